package acquisition

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// byTable has tenants be looked up in a table.
func (b *bundle) byTable(list string) {
	b.t.Helper()
	b.exec("CREATE SCHEMA app")
	b.exec("CREATE TABLE app.customer (id text PRIMARY KEY, pool text NOT NULL)")
	b.exec("GRANT USAGE ON SCHEMA app TO PUBLIC")
	b.exec("GRANT SELECT ON app.customer TO PUBLIC")
	routes := b.routes
	routes.Tenants.Static = nil
	routes.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM app.customer WHERE id = $1", List: list, Cache: 1}
	_, err := b.router.Apply(b.t.Context(), routes)
	require.NoError(b.t, err)
}

// With tenants.table alone, tenants have schedules for every tenant of whom the ledger has any trace, be it a finished
// job of months ago, or a timer behind ten thousand of another one; and those whom the table lists.
func TestSchedulesReachEveryTenantThatIsKnown(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.byTable("SELECT id FROM app.customer WHERE pool = $1 AND id LIKE 'listed%'")
	b.exec("INSERT INTO app.customer SELECT 'f' || n, 'main' FROM generate_series(1, 20) n")
	b.exec("INSERT INTO app.customer VALUES ('many', 'main'), ('one', 'main'), ('weighty', 'main'), ('silent', 'main')")
	finished := func(tenant string, daysAgo int) {
		b.exec("INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload) SELECT 1, at, at, 1, 0, 1, 0, $1, 'default', 'k', 'done', '{}' FROM (SELECT clock_timestamp() - $2 * interval '1 day' AS at) a", tenant, daysAgo)
	}
	b.exec("SELECT tenure.make_day(current_date - 100)")
	for n := range 20 {
		finished("f"+string(rune('0'+n/10))+string(rune('0'+n%10)), 5*n)
	}
	b.exec("UPDATE app.customer SET id = 'f' || lpad(((substr(id, 2))::int - 1)::text, 2, '0') WHERE id LIKE 'f%'")
	finished("nobody", 0)
	b.exec("INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) SELECT CASE WHEN n <= 20000 THEN 'many' ELSE 'one' END, 'default', 'k', '{}', now() + interval '1 day' FROM generate_series(1, 20001) n")
	b.exec("INSERT INTO tenure.tenant (tenant_id, weight) VALUES ('weighty', 2)")
	tm, logged := b.term(t.Context())
	all := map[string]ScheduleConfig{"all": {EveryTenant: true, Kind: "k", Rule: "@daily"}}
	tm.spreader.settings.schedules.Store(&all)
	const copies = "SELECT count(*) FROM tenure.schedule WHERE origin = 'every'"
	b.until(func() bool { // what there is of finished jobs is looked at part by part
		b.spreadNow(tm)
		return b.count(copies) == 23
	})
	require.EqualValues(t, 20, b.count(copies+" AND tenant_id LIKE 'f%'"))

	b.exec("INSERT INTO app.customer VALUES ('listed1', 'main'), ('listed2', 'elsewhere')")
	require.True(t, tm.spreader.watched)
	finished("silent", 0)
	b.spreadNow(tm)
	require.EqualValues(t, 25, b.count(copies))
	b.exec("ALTER TABLE app.customer RENAME COLUMN pool TO place")
	b.spreadNow(tm)
	b.spreadNow(tm)
	require.EqualValues(t, 25, b.count(copies), "whom the table does not name just now stays")
	require.Len(t, logged.FilterMessageSnippet("it cannot be asked who lives here").All(), 1)
	tm.duties.group.Wait()
}

// Finished jobs are read once: what was noted of them is gone on from, by the next holder too, however many there are.
func TestFinishedJobsAreReadOnceForTheirTenants(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.exec("SELECT tenure.make_day(current_date - 10)")
	b.exec("INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload) SELECT 1, at, at, 1, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}' FROM (SELECT clock_timestamp() - interval '1 day' AS at) a")
	day := 24 * sweepEvery * 60
	for want := 11; ; want-- {
		more, err := store.NoteFinished(t.Context(), b.db, day)
		require.NoError(t, err)
		if !more {
			break
		}
		require.Positive(t, want)
	}
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.seen_tenant WHERE tenant_id = 'acme'"))
	const upTo = "SELECT extract(epoch FROM clock_timestamp() - until)::bigint FROM tenure.seen_tenant WHERE tenant_id = ''"
	require.Less(t, b.count(upTo), int64(60))
	b.exec("UPDATE tenure.completed_job SET tenant_id = 'globex'")
	more, err := store.NoteFinished(t.Context(), b.db, day)
	require.NoError(t, err)
	require.False(t, more)
	require.Zero(t, b.count("SELECT count(*) FROM tenure.seen_tenant WHERE tenant_id = 'globex'"), "it finished before what is looked at")
	b.exec("UPDATE tenure.seen_tenant SET until = until - interval '20 days' WHERE tenant_id = 'acme'")
	_, err = store.NoteFinished(t.Context(), b.db, day)
	require.NoError(t, err)
	require.Zero(t, b.count("SELECT count(*) FROM tenure.seen_tenant WHERE tenant_id = 'acme'"), "nothing is kept of it any more")
}
