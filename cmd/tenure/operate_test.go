package main

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

func TestMigrate(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1?", "p2?")
	out := b.ok("migrate", "--pool", "p2")
	require.Regexp(t, `^p2: applied baseline.sql \([0-9.]+m?s\)\n`, out)
	require.NotContains(t, out, "p1")
	require.Regexp(t, `^p1: applied baseline.sql \([0-9.]+m?s\)\n(p1: .*\n)*p2: up to date\n$`, b.ok("migrate"))
	require.Equal(t, "p1: up to date\np2: up to date\n", b.ok("migrate"))
	require.Equal(t, "p1: up to date\n", b.ok("migrate", "--pool", "p1", "--pool", "p1"))
	require.NotEmpty(t, b.enqueue("k", "{}", "--tenant", "P1"))
}

func TestMigrateJSON(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1?", "p2", "p3!")
	var pools []jsonPoolMigrated
	r := b.fails(exitFailed, "migrate", "-o", "json")
	require.NoError(t, json.Unmarshal([]byte(r.out), &pools))
	require.Len(t, pools, 3)
	require.Equal(t, "failed", pools[0].State, "it has no number as long as p3 does not answer")
	require.Equal(t, operate.LedgerVersion(), pools[0].Applied[len(pools[0].Applied)-1].Version)
	require.Equal(t, "current", pools[1].State)
	require.Empty(t, pools[1].Error)
	require.Equal(t, "failed", pools[2].State)
	require.Contains(t, pools[2].Error, "connection refused")
	require.Contains(t, r.errors, "continue with: tenure migrate --config "+b.path+" --pool p1 --pool p3\n")
	r = b.fails(exitUsage, "migrate", "--at-once", "0")
	require.Contains(t, r.errors, "--per-server and --at-once must be 1 or more")
}

func TestProgress(t *testing.T) {
	t.Parallel()
	p := newProgress(io.Discard, "migrated", 500)
	defer p.stop()
	require.Equal(t, "migrated 0 of 500 pools, 0 failed, 0 per second, time left: unknown", p.line(time.Second))
	for i := range 100 {
		p.add(i == 7)
	}
	require.Equal(t, "migrated 100 of 500 pools, 1 failed, 10 per second, time left: 40s", p.line(10*time.Second))
	require.Equal(t, "1 of 4 pools migrated, 1 was up to date, 1 failed, in 1.5s", summary([]operate.MigratedPool{
		{Steps: make([]operate.Migration, 2)}, {}, {Err: io.EOF},
	}, 4, 1500*time.Millisecond))
	require.EqualError(t, adviceAfter("node.yaml", []operate.MigratedPool{{Pool: "p1"}, {Pool: "p2", Err: io.EOF}}, 4),
		"1 of 4 pools failed, the others are not affected: fix the cause; 2 pools were not started; continue with: tenure migrate --config node.yaml")
}

func TestMigratePoolDown(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!")
	require.Equal(t, "p1: up to date\n", b.ok("migrate", "--pool", "p1"))
	r := b.fails(exitFailed, "migrate")
	require.Regexp(t, `(?m)^tenure: connect to pool p2: .*connection refused.*: check that the database is running and that the pool's dsn is right; tenure doctor says more$`, r.errors)
	require.Contains(t, r.errors, "tenure: 1 of 2 pools failed, the others are not affected: fix the cause; continue with: tenure migrate --config "+b.path+" --pool p2\n")
}

func TestMigrateRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2?", "p3?")
	b.sql("p3", "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET default_transaction_read_only = on', current_database()); END $$")
	r := b.fails(exitUsage, "migrate")
	require.Regexp(t, `^p1: up to date\np2: applied baseline.sql \([0-9.]+m?s\)\n`, r.out)
	require.True(t, strings.HasSuffix(r.errors, "tenure: pool p3: its transactions are read-only: unset default_transaction_read_only for this user and database\n"+
		"tenure: 1 of 3 pools failed, the others are not affected: fix the cause; continue with: tenure migrate --config "+b.path+" --pool p3\n"),
		"%s", r.errors) // how far it is stands before, where that takes long

	b = setup(t, "p1")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(b.path, []byte(strings.NewReplacer(" p1:", " p2:", "pool: p1", "pool: p2").Replace(string(text))), 0o600))
	r = b.fails(exitUsage, "migrate")
	require.Contains(t, r.errors, `pool p2: the database says that it is pool "p1": correct the DSN, or name the pool as it was named`)
	require.Empty(t, r.out)
}

// What a webhook proves itself with is not shown to anyone who looks at its job.
func TestShowHidesCredentials(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	id := b.enqueue("http.request", `{"url": "https://u:hunter2@hook.example/in?token=hunter2", "headers": {"Authorization": "Bearer hunter2"}, "body": {"n": 1}}`, "--tenant", "P1")
	for _, output := range []string{"table", "json"} {
		out := b.ok("jobs", "show", id, "-o", output) // which looks for hunter2
		require.Contains(t, out, "https://***@hook.example/in?token=***")
		require.Contains(t, out, "Authorization")
		revealed := command(t.Context(), "", "jobs", "show", id, "--reveal", "-o", output, "--config", b.path).out
		require.Contains(t, revealed, "Bearer hunter2")
	}
}

func TestEnqueueRefused(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!", "p3?")
	r := b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "nobody")
	require.Contains(t, r.errors, `unknown tenant "nobody"`)
	require.Contains(t, r.errors, "correct --tenant; or add the tenant")
	r = b.fails(exitFailed, "enqueue", "k", "{}", "--tenant", "P2")
	require.Contains(t, r.errors, "pool is down")
	require.Contains(t, r.errors, "check that the database is running")
	r = b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P3")
	require.Equal(t, "tenure: enqueue k: pool is down: pool p3: has no ledger: run: tenure migrate --pool p3; if the pool had jobs, restore it first, as they and its number are gone\n", r.errors)
	r = b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P1", "--at", "0001-01-01T00:00:00Z")
	require.Contains(t, r.errors, "years 1970 to 9999")
	text, err := os.ReadFile(b.path)
	require.NoError(t, err)
	text = append(text, "  table: {pool: p1, query: \"SELECT 'p1', 'public' WHERE $1 = 'odd'\"}\n"...)
	require.NoError(t, os.WriteFile(b.path, text, 0o600))
	r = b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "odd")
	require.Contains(t, r.errors, `tenants.table: tenant "odd": schema "public" is not a tenant's: give it a schema of its own`)
	// Pools that have nothing to do with a tenant do not stop its jobs.
	r = b.run("enqueue", "k", "{}", "--tenant", "P1")
	require.Zero(t, r.code)
	require.Regexp(t, `^\d+\n$`, r.out)
	require.Contains(t, r.errors, "tenure: note: ")
}

// failing is a job whose handler fails in a way that tests the terminal.
type failing struct{}

func (failing) Kind() string { return "failing" }

func TestFailedRunsAreShown(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	cfg, err := loadConfig(b.path)
	require.NoError(t, err)
	runs := 0
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[failing]) error {
		if runs++; runs == 1 {
			return errors.New("first\x1b[2J\nline")
		}
		panic("second")
	}, job.Retry("R2/PT0.01S"))
	node, err := tenure.New(cfg, r)
	require.NoError(t, err)
	require.NoError(t, node.Start(t.Context()))
	id := b.enqueue("failing", `{"a": {"b": 1}}`, "--tenant", "P1", "--meta", `{"by": "me"}`, "--unique", "u")
	require.Eventually(t, func() bool { return strings.Contains(b.ok("jobs", "list", "--state", "dead"), id) }, patience, tick)
	require.NoError(t, node.Stop(context.WithoutCancel(t.Context())))

	require.Regexp(t, `^\d+ +dead +P1 +failing +default +p1 +2 +\S+Z \(.*\) +.*, panic: second$`, strings.Split(b.ok("jobs", "list"), "\n")[1])
	out := b.ok("jobs", "show", id)
	require.Regexp(t, `(?s)^id +`+id+`\nstate +dead\nkind +failing\n.*error +panic: second\n\nargs:\n  \{\n    "a": \{\n      "b": 1\n    \}\n  \}\n\nmeta:\n  \{\n    "by": "me"\n  \}\n\n`+
		`attempt 1 failed \S+Z \(.*\) on test:\n  first \[2J\n  line\n\nattempt 2 failed \S+Z \(.*\) on test:\n  panic: second\n\nthe stack: tenure jobs show `+id+` --stack\n$`, out)
	stack := command(t.Context(), "", "jobs", "show", id, "--stack", "--config", b.path)
	require.Contains(t, stack.out, "goroutine ")
	require.NotContains(t, stack.out, "the stack: ")
	var shown shownJob
	require.NoError(t, json.Unmarshal([]byte(command(t.Context(), "", "jobs", "show", id, "-o", "json", "--config", b.path).out), &shown))
	require.Len(t, shown.Errors, 2)
	require.Contains(t, shown.Errors[1].Stack, "goroutine ")

	other := b.enqueue("failing", "{}", "--tenant", "P1", "--unique", "u")
	again := b.fails(exitFailed, "jobs", "retry", id)
	require.Equal(t, "tenure: retry job "+id+": job "+other+" has its unique key: retry it once that job has ended, or cancel that job first\n", again.errors)
	require.Contains(t, b.ok("jobs", "list", "--state", "dead"), id)
	b.ok("jobs", "cancel", other)
	require.Equal(t, "job "+id+" will run now\n", b.ok("jobs", "retry", id))
}

func TestInterrupted(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	r := command(ctx, "", "jobs", "list", "--config", b.path)
	require.Equal(t, exitFailed, r.code)
}

// A user who runs nodes is given what they need, which is printed, and can be printed before.
func TestMigrateGrants(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2?")
	user := "tenure_test_" + strings.ToLower(rand.Text()[:10])
	b.sql("p1", "CREATE ROLE "+user+" LOGIN")
	t.Cleanup(func() {
		for _, sql := range [][2]string{{"p2", "DROP OWNED BY " + user}, {"p1", "DROP OWNED BY " + user + "; DROP ROLE " + user}} {
			conn, err := pgx.Connect(context.Background(), b.dsn[sql[0]])
			require.NoError(t, err)
			_, err = conn.Exec(context.Background(), sql[1])
			require.NoError(t, errors.Join(err, conn.Close(context.Background())))
		}
	})

	r := b.fails(exitUsage, "migrate", "--runtime", user)
	require.Contains(t, r.errors, "--runtime and --print go with --grants")
	r = b.fails(exitUsage, "migrate", "--grants", "--print", "--runtime", user)
	require.Equal(t, "tenure: pool p2: has no ledger: run: tenure migrate --pool p2; if the pool had jobs, restore it first, as they and its number are gone\n", r.errors)
	shown := b.ok("migrate", "--grants", "--print", "--runtime", user, "--pool", "p1")
	require.Regexp(t, `^-- p1:\nINSERT INTO tenure.runtime_user \(user_name\) VALUES \('`+user+`'\);\nGRANT `, shown)
	require.Regexp(t, `(?m)^GRANT USAGE, SELECT, UPDATE ON SEQUENCE tenure.incarnation_moment, tenure.job_id, tenure.job_position TO `+user+`;$`, shown)
	require.Equal(t, shown, b.ok("migrate", "--grants", "--print", "--runtime", user, "--pool", "p1"))
	require.Equal(t, "p1: up to date\n"+shown, b.ok("migrate", "--grants", "--runtime", user, "--pool", "p1"))
	require.Equal(t, "p1: up to date\n-- p1: nothing is missing\n", b.ok("migrate", "--grants", "--runtime", user, "--pool", "p1"))
	require.Regexp(t, `(?s)^p1: up to date\np2: applied .*\n-- p1: nothing is missing\n-- p2: nobody but its owner is to work on this ledger, unless you name a user with --runtime\n$`, b.run("migrate", "--grants").out) // which tells how far it is where that takes long
	require.Contains(t, b.ok("migrate", "--grants", "--runtime", user), "-- p2:\nINSERT INTO tenure.runtime_user ")
	r = b.fails(exitFailed, "migrate", "--grants", "--runtime", "nobody_at_all")
	require.Contains(t, r.errors, `user "nobody_at_all" does not exist on this server: create it first`)

	// Whoever has rights that nobody gave by naming him is given nothing, and printed.
	b.sql("p2", "DELETE FROM tenure.runtime_user; REVOKE ALL ON ALL TABLES IN SCHEMA tenure FROM "+user+"; GRANT SELECT ON tenure.audit, tenure.job TO "+user)
	b.sql("p2", "REVOKE ALL ON ALL SEQUENCES IN SCHEMA tenure FROM "+user+"; REVOKE ALL ON ALL FUNCTIONS IN SCHEMA tenure FROM "+user)
	said := "p2: user " + user + " has rights on the ledger, and nobody has named it to work there\n" +
		"%s  if nodes or clients connect as this user: tenure migrate --pool p2 --grants --runtime " + user + "\n" +
		"%s  to take its rights away: REVOKE SELECT ON tenure.audit, tenure.job FROM " + user + ";\n"
	require.Equal(t, "p2: up to date\n"+strings.ReplaceAll(said, "%s", ""), b.ok("migrate", "--pool", "p2"))
	require.Contains(t, b.ok("migrate", "--grants", "--pool", "p2"), "-- "+strings.ReplaceAll(said, "%s", "-- "))
	require.Contains(t, b.ok("migrate", "--pool", "p2", "-o", "json"), `"name": "tenure migrate --pool p2 --grants --runtime `+user+`"`)
}

// TestLocksOfAServerThatHidesItsTimeline: an operator sees what is not noticed there.
func TestLocksOfAServerThatHidesItsTimeline(t *testing.T) {
	t.Parallel()
	open := setup(t, "p1")
	require.Equal(t, []string{"1", "no"}, rows(open.ok("locks"))[0][6:])
	require.NotContains(t, open.ok("locks"), "constant")
	require.Contains(t, open.ok("locks", "-o", "json"), `"timeline": 1`)

	storetest.On(t, storetest.Aurora)
	b := setup(t, "p1")
	out := b.ok("locks")
	require.Equal(t, []string{"constant", "no"}, rows(out)[0][6:])
	require.Contains(t, out, "nobody here notices a primary that was replaced, and its storage has to refuse that one's writes: p1 (Function pg_walfile_name() is currently not supported for Aurora)")
	require.Contains(t, b.ok("locks", "-o", "json"), `"timeline_refused"`)
	require.Contains(t, b.ok("locks", "-o", "json"), `"timeline_refused": "Function pg_walfile_name() is currently not supported for Aurora"`)
	require.Contains(t, b.ok("migrate"), "p1: up to date")
}

// What all tenants have together is listed with each pool's share, and set in the configuration only.
func TestLimitsOfTheCluster(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.configure("tenants:\n", "limits: {kinds: {sap.call: {max_running: 50, rate: 20}}, queues: {mail: {max_running: 9, pools: {p2: 0}}}}\ntenants:\n")
	b.ok("limits", "set", "--every-tenant", "--kind", "sap.call", "--max-running", "4")
	table := b.ok("limits", "list")
	require.Len(t, rows(table), 6)
	for _, text := range []string{"(all together)", "25 of 50", "none here", "20 per 2s of 20 per 1s"} {
		require.Contains(t, table, text)
	}
}

// Who types sudo is named, and as whom the command runs.
func TestWhoAsksUnderSudo(t *testing.T) {
	t.Setenv("SUDO_USER", "eve")
	require.Regexp(t, `^eve \(as [^)]+\)@`, whoAsks())
}
