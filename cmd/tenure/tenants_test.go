package main

import (
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// place changes where the configuration says that a tenant's schema is.
func (b *bed) place(tenant, pool, schema string) {
	b.t.Helper()
	text, err := os.ReadFile(b.path)
	require.NoError(b.t, err)
	line := func(schema string) string { return fmt.Sprintf("%s: {pool: %s, schema: %s}", tenant, pool, schema) }
	require.Contains(b.t, string(text), line("t"))
	require.NoError(b.t, os.WriteFile(b.path, []byte(strings.Replace(string(text), line("t"), line(schema), 1)), 0o600))
}

func TestTenantsMove(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2", "p3!", "p4?")
	b.sql("p1", "CREATE SCHEMA t")
	one := b.run("enqueue", "k", "{}", "--tenant", "P1")
	require.Zero(t, one.code, one.errors)
	require.Zero(t, b.run("enqueue", "k", "{}", "--tenant", "P1", "--in", "1h").code)

	r := b.fails(exitUsage, "tenants", "move", "P1", "--to", "p9")
	require.Contains(t, r.errors, `pool "p9"`)
	r = b.fails(exitUsage, "tenants", "move", "nobody", "--to", "p2")
	require.Contains(t, r.errors, `unknown tenant "nobody"`)
	r = b.fails(exitUsage, "tenants", "move", "P1", "--to", "p1")
	require.Contains(t, r.errors, "it lives there already, and no other pool has jobs of it")
	r = b.fails(exitFailed, "tenants", "move", "P1", "--to", "p3")
	require.Contains(t, r.errors, "check that the database is running and that the pool's dsn is right")
	r = b.fails(exitUsage, "tenants", "move", "P1", "--to", "p4")
	require.Contains(t, r.errors, "run: tenure migrate --pool p4")
	r = b.fails(exitUsage, "tenants", "move", "P4", "--to", "p2")
	require.Contains(t, r.errors, "pool is down: pool p4: has no ledger: run: tenure migrate --pool p4; if the pool had jobs, restore it first, as they and its number are gone")
	b.place("P2", "p2", "other")
	r = b.fails(exitUsage, "tenants", "move", "P1", "--to", "p2")
	require.Contains(t, r.errors, `it has no schema "t" there: run this with --hold, copy the schema`)
	require.Empty(t, r.out)
}

// Tenants that the application's table lists are shown like those of the configuration, also while they have nothing to do.
func TestTenantsOfTheTableAreListed(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.config("  table: {pool: p1, query: \"SELECT 'p2' WHERE $1 IN ('idle', 'busy')\", list: \"SELECT unnest('{idle,busy,P1}'::text[]) WHERE $1 = 'p2'\"}\n")
	b.enqueue("k", "{}", "--tenant", "busy")
	require.Equal(t, [][]string{{"P1", "p1", "active", "1", "-"}, {"P2", "p2", "active", "1", "-"}, {"busy", "p2", "active", "1", "-"}, {"idle", "p2", "active", "1", "-"}},
		rows(b.ok("tenants", "list")), "and P1 lives where tenants.static says")
}

func TestTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.enqueue("k", "{}", "--tenant", "P1")
	b.enqueue("k", "{}", "--tenant", "P1", "--in", "1h")
	require.Equal(t, [][]string{{"P1", "p1", "active", "1", "-"}, {"P2", "p2", "active", "1", "-"}}, rows(b.ok("tenants", "list")))
	require.Equal(t, "tenant P1 has weight 3\n", b.ok("tenants", "weight", "P1", "3"))
	require.Equal(t, [][]string{{"P1", "p1", "active", "3", "-"}, {"P2", "p2", "active", "1", "-"}}, rows(b.ok("tenants", "list")))
	b.ok("tenants", "weight", "P1", "1")
	require.Contains(t, b.fails(exitUsage, "tenants", "weight", "P1", "0").errors, "1 to 100 are allowed")
	require.Contains(t, b.fails(exitUsage, "tenants", "weight", "P1", "much").errors, "a whole number")
	require.Equal(t, "tenant P1 may have 4 jobs running at a time\n", b.ok("tenants", "limit", "P1", "--max-running", "4"))
	require.Equal(t, "tenant P1 may have any number of jobs running\n", b.ok("tenants", "limit", "P1", "--max-running", "0"))
	require.Equal(t, "tenant P1 may have 4 jobs running at a time, may have 9 jobs waiting\n", b.ok("tenants", "limit", "P1", "--max-running", "4", "--max-waiting", "9"))
	require.Equal(t, "tenant P1 may have any number of jobs waiting\n", b.ok("tenants", "limit", "P1", "--max-waiting", "0"))
	b.fails(exitUsage, "tenants", "limit", "P1")
	require.Contains(t, b.fails(exitUsage, "tenants", "limit", "P1", "--max-running", "-1").errors, "0 to 1000000 are allowed")
	require.Equal(t, "tenant P1 is frozen; thaw it with: tenure tenants thaw P1\n", b.ok("tenants", "freeze", "P1"))
	require.Equal(t, []string{"P1", "p1", "frozen", "1", "-"}, rows(b.ok("tenants", "list"))[0])

	// P2's schema in p2 has the same name, so P1 cannot have it there.
	r := b.fails(exitUsage, "tenants", "move", "P1", "--to", "p2")
	require.Contains(t, r.errors, `schema "t" of tenant "P1" is tenant "P2"'s in pool p2`)
	b.place("P2", "p2", "other")
	b.sql("p2", "CREATE SCHEMA t")
	r = b.run("tenants", "move", "P1", "--to", "p2")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "tenant P1 lives in pool p2; jobs moved by this command: 1 waiting, 1 scheduled\n", r.out)
	require.Equal(t, `tenant P1: pool p2 has a schema "t" already, which its jobs will use as it is, as this copies no data: if pool p1 has newer data, move the tenant back and begin again with --hold
tenant P1: freezing it in pool p1
tenant P1: making its jobs wait in pool p2
tenant P1: closing pool p1 for it
tenant P1: moving its jobs from pool p1 to pool p2
tenant P1: it lives in pool p2 now, and is frozen as it was before
tenant P1: moving its finished jobs from pool p1
`, r.errors)
	require.Equal(t, "tenant P1 is thawed\n", b.ok("tenants", "thaw", "P1"))
	require.Equal(t, [][]string{{"P1", "p1", "moved", "1", "p2"}, {"P1", "p2", "active", "1", "-"}, {"P2", "p2", "active", "1", "-"}}, rows(b.ok("tenants", "list")))
	require.JSONEq(t, `{"items": [{"tenant": "P1", "pool": "p1", "state": "moved", "other": "p2", "weight": 1}, {"tenant": "P1", "pool": "p2", "state": "active", "weight": 1}, {"tenant": "P2", "pool": "p2", "state": "active", "weight": 1}], "incomplete": false}`,
		b.ok("tenants", "list", "-o", "json"))
	id := b.enqueue("k", "{}", "--tenant", "P1")
	require.Contains(t, b.ok("jobs", "show", id), "p2")
	r = b.run("tenants", "move", "P1", "--to", "p2")
	require.Equal(t, "tenant P1 lives in pool p2; this command had no jobs to move\n", r.out)
	b.sql("p1", "CREATE SCHEMA t")
	require.JSONEq(t, `{"tenant": "P1", "from": ["p2"], "to": "p1", "done": true, "jobs": {"waiting": 2, "scheduled": 1}}`,
		b.ok("tenants", "move", "P1", "--to", "p1", "-o", "json"))
}

// The procedure of `tenants move --help`, as it is printed.
func TestTenantsMoveHold(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.place("P2", "p2", "other")
	b.enqueue("k", "{}", "--tenant", "P1")
	r := b.run("tenants", "move", "P1", "--to", "p2", "--hold")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "tenant P1 is held: copy its data to pool p2 now, then run: tenure tenants move P1 --to p2\n", r.out)
	require.Contains(t, r.errors, "tenant P1: stopping its transactions in pool p1\n")
	require.Equal(t, []string{"P1", "p1", "held", "1", "p2"}, rows(b.ok("tenants", "list"))[0])
	require.JSONEq(t, `{"tenant": "P1", "from": [], "to": "p2", "done": false, "held": true, "jobs": {}}`,
		b.ok("tenants", "move", "P1", "--to", "p2", "--hold", "-o", "json"))
	r = b.fails(exitUsage, "tenants", "move", "P1", "--to", "p2")
	require.Contains(t, r.errors, `it has no schema "t" there: run this with --hold, copy the schema`)
	r = b.run("tenants", "move", "P1", "--to", "p1")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, []string{"P1", "p1", "active", "1", "-"}, rows(b.ok("tenants", "list"))[0])

	require.Zero(t, b.run("tenants", "move", "P1", "--to", "p2", "--hold").code)
	b.sql("p2", "CREATE SCHEMA t") // the copy
	r = b.run("tenants", "move", "P1", "--to", "p2")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "tenant P1 lives in pool p2; jobs moved by this command: 1 waiting\n", r.out)
	require.Equal(t, []string{"P1", "p2", "active", "1", "-"}, rows(b.ok("tenants", "list"))[1])
}

// A tenant that has left leaves nothing behind that would go on; one that a rule knows keeps all that it has.
func TestTenantsClear(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	for _, name := range []string{"copy", "own"} {
		b.ok("schedules", "set", name, "k", "{}", "--tenant", "P1", "--rule", "@daily")
	}
	b.ok("schedules", "set", "copy", "k", "{}", "--every-tenant", "--rule", "@daily")
	b.ok("schedules", "set", "own", "k", "{}", "--tenant", "P2", "--rule", "@daily")
	b.enqueue("k", "{}", "--tenant", "P1")
	b.enqueue("k", "{}", "--tenant", "P1", "--in", "1h")
	kept := b.enqueue("k", "{}", "--tenant", "P2", "--in", "1h")
	b.sql("p1", `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error) VALUES ('P1', 'default', 'k', '{}', 'job', 'no');
		UPDATE tenure.schedule SET origin = 'every' WHERE name = 'copy'`)
	r := b.fails(exitFailed, "tenants", "clear", "P1")
	require.Contains(t, r.errors, `tenant "P1" has not left: a routing rule leads it to pool "p1"`)
	require.Contains(t, r.errors, "take it out of the configuration or the table first")
	require.Len(t, b.list("schedules", "list", "--tenant", "P1"), 2)

	b.rewrite(func(text string) string { return strings.Replace(text, " P1: {", " Q1: {", 1) })
	b.serve() // a node that still has the tenant would give it its copy again
	r = b.run("tenants", "clear", "P1")
	require.Zero(t, r.code, r.errors)
	require.Equal(t, "tenant P1: 2 jobs are cancelled, 1 dead letter is deleted\n", r.out)
	require.Contains(t, r.errors, "tenant P1: 2 schedules are deleted; nodes cancel its jobs and delete its dead letters: see tenure operations list\n")
	require.Empty(t, b.list("schedules", "list", "--tenant", "P1"))
	require.Eventually(t, func() bool { return len(b.list("jobs", "list", "--tenant", "P1", "--state", "cancelled")) == 2 }, patience, tick)
	require.Len(t, b.list("jobs", "list", "--tenant", "P1"), 2, "and nothing else")
	require.Equal(t, "tenant P1: 0 jobs are cancelled, 0 dead letters are deleted\n", b.run("tenants", "clear", "P1").out, "it may be run again")
	require.NotEmpty(t, b.list("schedules", "list", "--tenant", "P2"))
	require.Contains(t, b.ok("jobs", "show", kept), "scheduled")
	require.Contains(t, b.fails(exitUsage, "tenants", "clear", "a b\x00").errors, "tenant")
}
