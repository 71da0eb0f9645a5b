package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// servers are those of two pools, old and new, with the tenant acme in the old one: set up
// as docs/privileges.md says, but that the new server does not know the tenant's role yet.
type servers struct {
	*bed
	bin string // where pg_dump is
}

// mover is who copies a tenant's data. He is no superuser.
const mover = "tenure_test_mover"

func setupServers(t *testing.T) *servers {
	bin, err := devpg.Find()
	require.NoError(t, err)
	for _, program := range []string{"pg_dump", "pg_restore"} {
		if _, err := os.Stat(filepath.Join(bin, program)); err != nil {
			t.Skip("not installed: ", err)
		}
	}
	s := &servers{bed: &bed{t: t, path: filepath.Join(t.TempDir(), defaultConfig), dsn: map[string]string{}}, bin: bin}
	for i, pool := range []string{"old", "new"} {
		server := pgtest.Server(t, devpg.Options{})
		require.NoError(t, server.CreateDatabase(t.Context(), pool))
		s.dsn[pool] = server.DSN(pool)
		require.NoError(t, storetest.Prepare(t.Context(), s.dsn[pool], pool, i+1))
		s.sql(pool, "CREATE ROLE "+mover+" LOGIN PASSWORD 'secret'")
	}
	s.sql("new", "GRANT CREATE ON DATABASE new TO "+mover)
	require.NoError(t, os.WriteFile(s.path, fmt.Appendf(nil, `
node: {name: test, listen: 127.0.0.1:0}
acquire: {idle_wait: 200ms, lock: {ttl: 2s, renew_every: 400ms}, session: {ttl: 3s, heartbeat_every: 500ms}}
pools:
  old: {dsn: %q, max_conns: 8}
  new: {dsn: %q, max_conns: 8}
tenants:
  role: "t_{tenant}"
  static: {acme: {pool: old}}
`, storetest.AsRuntime(s.dsn["old"]), storetest.AsRuntime(s.dsn["new"])), 0o600))
	s.role("old")
	s.sql("old", `CREATE SCHEMA acme AUTHORIZATION t_acme;
		SET ROLE t_acme;
		CREATE TABLE acme.orders (number bigserial PRIMARY KEY, name text UNIQUE NOT NULL, tenant text NOT NULL DEFAULT current_setting('app.tenant_id'));
		CREATE TABLE acme.effect (job_id bigint PRIMARY KEY);
		CREATE TABLE acme.journal (name text PRIMARY KEY REFERENCES acme.orders (name));
		CREATE FUNCTION acme.note() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO journal VALUES (NEW.name); RETURN NULL; END';
		CREATE TRIGGER note AFTER INSERT ON acme.orders FOR EACH ROW EXECUTE FUNCTION acme.note()`)
	return s
}

// role makes the tenant's role on a pool's server.
func (s *servers) role(pool string) {
	s.sql(pool, "CREATE ROLE t_acme NOLOGIN; GRANT t_acme TO tenure_test_app, "+mover)
}

// strings reads a column.
func (s *servers) strings(pool, query string) []string {
	s.t.Helper()
	conn, err := pgx.Connect(s.t.Context(), s.dsn[pool])
	require.NoError(s.t, err)
	defer conn.Close(context.WithoutCancel(s.t.Context()))
	rows, err := conn.Query(s.t.Context(), query)
	require.NoError(s.t, err)
	out, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(s.t, err)
	return out
}

// procedure is what `tenants move --help` says is to be executed, without the remarks.
func (s *servers) procedure() []string {
	s.t.Helper()
	help := command(s.t.Context(), "", "tenants", "move", "--help")
	require.Zero(s.t, help.code)
	var steps []string
	for line := range strings.Lines(help.out) {
		step, indented := strings.CutPrefix(line, "  ")
		if !indented && len(steps) > 0 {
			break
		}
		if indented {
			step, _, _ = strings.Cut(strings.TrimSpace(step), "   ")
			steps = append(steps, step)
		}
	}
	require.Len(s.t, steps, 3, help.out)
	return steps
}

// shell executes a step as its reader would, beside node.yaml: with tenure, this program,
// and Postgres' own ones on the path, and connection strings for OLD and NEW.
func (s *servers) shell(step string) (string, error) {
	s.t.Helper()
	self, err := os.Executable()
	require.NoError(s.t, err)
	dir := filepath.Dir(s.path)
	tenure := filepath.Join(dir, "tenure")
	if _, err := os.Lstat(tenure); err != nil {
		require.NoError(s.t, os.Symlink(self, tenure))
	}
	for _, pool := range []string{"OLD", "NEW"} {
		step = strings.ReplaceAll(step, pool, "'"+storetest.As(s.dsn[strings.ToLower(pool)], mover)+"'")
	}
	cmd := exec.CommandContext(s.t.Context(), "sh", "-ec", step)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), mainEnv+"=1", configEnv+"="+s.path, "PATH="+dir+":"+s.bin+":"+os.Getenv("PATH"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// bill is a job that leaves an effect.
type bill struct{}

func (bill) Kind() string { return "bill" }

// sales are writers of orders, and what they were told that was written.
type sales struct {
	mu     sync.Mutex
	orders map[string]bool // guarded by mu
	jobs   int             // guarded by mu
	held   map[string]int  // guarded by mu; refusals while the tenant was held, by writer
	ahead  int             // guarded by mu; what the writer that is ahead of the move could not write, as nothing was there yet
	failed error           // guarded by mu; what no writer may be told
}

// count reads under mu.
func (s *sales) count(what func() int) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return what()
}

// sell has each client write orders, each with a job in the same transaction, and jobs
// alone, until it is stopped. The schema that the client named ahead writes to comes with
// the copy.
func sell(t *testing.T, clients map[string]*tenure.Client) (s *sales, stop func()) {
	s = &sales{orders: map[string]bool{}, held: map[string]int{}}
	ctx, cancel := context.WithCancel(t.Context())
	var group sync.WaitGroup
	for name, client := range clients {
		lasting := tenancy.For(context.WithoutCancel(ctx), "acme") // what has begun is let come to its end
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				order := fmt.Sprint(name, n)
				err := client.InTx(lasting, func(ctx context.Context, tx pgx.Tx) error {
					if _, err := tx.Exec(ctx, "INSERT INTO orders (name) VALUES ($1)", order); err != nil {
						return err
					}
					_, err := client.EnqueueTx(ctx, tx, bill{})
					return err
				})
				s.note(name, order, err)
				if name != "ahead" {
					_, err = client.Enqueue(lasting, bill{})
					s.note(name, "", err)
				}
				select {
				case <-ctx.Done():
				case <-time.After(5 * time.Millisecond): // a rate that a busy machine can follow
				}
			}
		})
	}
	stop = sync.OnceFunc(func() {
		cancel()
		group.Wait()
	})
	t.Cleanup(stop)
	return s, stop
}

func (s *sales) note(name, order string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case errors.Is(err, tenure.ErrTenantHeld):
		s.held[name]++
	case err != nil && name == "ahead" &&
		(strings.Contains(err.Error(), "tenant acme has no schema acme in database new") || strings.Contains(err.Error(), `relation "orders" does not exist`)):
		s.ahead++
	case err != nil:
		s.failed = errors.Join(s.failed, fmt.Errorf("%s: %w", name, err))
	default:
		s.jobs++
		if order != "" {
			s.orders[order] = true
		}
	}
}

// The procedure of `tenants move --help`, word for word, with pg_dump and pg_restore, from
// one server to another, in role mode, and while orders are written and jobs run: each
// order and each effect of which somebody was told is in the new database.
func TestTenantsMoveWithItsData(t *testing.T) {
	t.Parallel()
	s := setupServers(t)
	steps := s.procedure()
	do := func(step string) {
		t.Helper()
		out, err := s.shell(step)
		require.NoError(t, err, "%s\n%s", step, out)
	}
	cfg, err := config.Load(s.path)
	require.NoError(t, err)
	registry := job.NewRegistry()
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[bill]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect VALUES ($1)", int64(j.ID))
		return err
	}, job.Retry("R1000/PT1S"))
	logger := tenure.WithLogger(zap.NewNop())
	node, err := tenure.New(cfg, registry, logger)
	require.NoError(t, err)
	require.NoError(t, node.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, node.Stop(context.Background())) })
	clients := map[string]*tenure.Client{"node": node.Client()}
	for _, name := range []string{"shop", "ahead"} {
		cfg := cfg
		if name == "ahead" { // somebody changed its configuration too early
			cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "new"}}
		}
		c, err := tenure.NewClient(cfg, logger)
		require.NoError(t, err)
		require.NoError(t, c.Start(t.Context()))
		t.Cleanup(func() { require.NoError(t, c.Stop(context.Background())) })
		clients[name] = c
	}
	sold, stop := sell(t, clients)
	until := func(what string, reached func() bool) {
		t.Helper()
		require.Eventually(t, func() bool {
			sold.mu.Lock()
			defer sold.mu.Unlock()
			require.NoError(t, sold.failed)
			return reached()
		}, patience, tick, what)
	}
	more := func() {
		t.Helper()
		had := sold.count(func() int { return len(sold.orders) })
		until("orders go on", func() bool { return len(sold.orders) >= had+50 })
	}
	more()

	out, err := s.shell(steps[0])
	require.Error(t, err)
	require.Contains(t, out, `role "t_acme" does not exist there, or the pool's user is no member of it: create or grant it, and run this again`)
	more() // nothing is held
	s.role("new")
	do(steps[0])
	before := s.strings("old", "SELECT name FROM acme.orders ORDER BY name")
	until("writers are refused", func() bool { return sold.held["shop"] > 0 && sold.held["node"] > 0 && sold.ahead > 0 })

	// A schema that is there already is left as it is, and the step can be repeated.
	s.sql("new", "CREATE SCHEMA acme AUTHORIZATION t_acme")
	out, err = s.shell(steps[1])
	require.Error(t, err)
	require.Contains(t, out, `schema "acme" already exists`)
	require.Empty(t, s.strings("new", "SELECT relname FROM pg_class WHERE relnamespace = 'acme'::regnamespace"))
	s.sql("new", "DROP SCHEMA acme")
	do(steps[1])
	waited := sold.count(func() int { return sold.held["shop"] })
	until("the tenant stays held", func() bool { return sold.held["shop"] > waited })
	do(steps[2])
	more()
	stop()

	require.Equal(t, before, s.strings("old", "SELECT name FROM acme.orders ORDER BY name"), "written in the old database while or after its data was copied")
	require.ElementsMatch(t, slices.Collect(maps.Keys(sold.orders)), s.strings("new", "SELECT name FROM acme.orders"))
	require.ElementsMatch(t, slices.Collect(maps.Keys(sold.orders)), s.strings("new", "SELECT name FROM acme.journal"), "the trigger moved, too")
	require.Equal(t, []string{"t_acme"}, s.strings("new", "SELECT DISTINCT relowner::regrole::text FROM pg_class WHERE relnamespace = 'acme'::regnamespace"))
	require.Greater(t, len(sold.orders), len(before))
	require.Eventually(t, func() bool {
		return s.strings("new", "SELECT count(*)::text FROM acme.effect")[0] == fmt.Sprint(sold.jobs)
	}, patience, tick, "%d jobs leave effects", sold.jobs)
	const unfinished = `SELECT ((SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job) + (SELECT count(*) FROM tenure.dead_letter_job))::text`
	require.Equal(t, []string{"0"}, s.strings("old", unfinished))
	require.Equal(t, []string{"0"}, s.strings("new", unfinished))
	require.Equal(t, [][]string{{"acme", "new", "active", "1", "-"}, {"acme", "old", "moved", "1", "new"}}, rows(s.ok("tenants", "list")))
}
