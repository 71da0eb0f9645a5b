package store_test

import (
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A list of the jobs in one state reads no table in which there are none, however many jobs are finished.
func TestAListOfOneStateReadsItsTablesOnly(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for state, want := range map[string][]string{"waiting": {"external_job", "job"}, "running": {"job"}, "locked": {"external_job"}, "scheduled": {"external_job", "timer_job"}, "awaiting": {"timer_job"},
		"suspended": {"suspended_job"}, "dead": {"dead_letter_job"}, "done": {"completed_job_rest"}, "cancelled": {"completed_job_rest"}} {
		require.NoError(t, store.Inspect(t.Context(), b.db, func(db store.DB) error {
			scans := func() map[string]int64 {
				n := map[string]int64{}
				rows, err := db.Query(t.Context(), `SELECT relname, seq_scan + coalesce(idx_scan, 0) FROM pg_stat_xact_user_tables
					WHERE relname IN ('job', 'timer_job', 'external_job', 'suspended_job', 'dead_letter_job', 'completed_job_rest')`)
				require.NoError(t, err)
				var table string
				var scans int64
				_, err = pgx.ForEachRow(rows, []any{&table, &scans}, func() error { n[table] = scans; return nil })
				require.NoError(t, err)
				return n
			}
			before := scans()
			_, err := store.List(t.Context(), db, store.Filter{State: state, Limit: 10})
			require.NoError(t, err)
			read := 0
			for table, n := range scans() {
				if n > before[table] {
					read++
					require.Contains(t, want, table, state)
				}
			}
			require.True(t, read > 0 || state == "running", state) // of those the claims are read first
			return nil
		}))
	}
}

// pages reads a list page by page, and calls between before each.
func pages(t *testing.T, db store.Beginner, f store.Filter, between func(page int)) (all []job.ID) {
	t.Helper()
	for page := 0; ; page++ {
		require.Less(t, page, 1000, "the list repeats itself")
		between(page)
		var some []store.Status
		require.NoError(t, store.Inspect(t.Context(), db, func(db store.DB) (err error) {
			some, err = store.List(t.Context(), db, f)
			return err
		}))
		if len(some) == 0 {
			return all
		}
		for i := range some {
			all = append(all, some[i].ID)
			year := some[i].ListedAt.UTC().Year()
			require.True(t, 1970 <= year && year <= 9999, "a cursor can say that")
		}
		f.After = store.CursorOf(&some[len(some)-1])
	}
}

// Each job is on one page, whichever table it is in, and also if its place in the order of ids is not the one in
// that of times, or it goes from one table to another between two pages.
func TestEachJobIsOnOnePage(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []job.ID
	for i := range 30 {
		j := store.NewJob{Tenant: "acme"}
		switch i % 3 {
		case 1:
			j.DueIn = time.Hour
		case 2:
			j.External = true
		}
		want = append(want, b.enqueue(t, j))
	}
	for i := range 20 { // finished, from seconds to months ago; two at the same time
		id := job.ID(1<<47 + 1000 + i)
		execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			VALUES ($1, now() - $2::bigint * interval '1 s', now(), 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}')`, int64(id), 1<<(i/2*2))
		want = append(want, id)
	}
	for i, times := range []string{"'9999-06-01', now() - interval '10 s'", "now() + interval '1 h', now() - interval '1 h'"} { // they finished before they were made
		id := job.ID(1<<47 + 2000 + i)
		execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			VALUES ($1, `+times+`, 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}')`, int64(id))
		want = append(want, id)
	}
	for i, times := range []string{"'infinity', 'infinity'", "'20000-01-01', '-infinity'", "'1969-01-01', now()", "'-infinity', now()"} { // somebody has set them
		id := job.ID(1<<47 + 3000 + i)
		execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			VALUES ($1, `+times+`, 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}')`, int64(id))
		want = append(want, id)
	}
	execute(t, b.owner, "UPDATE tenure.timer_job SET created_at = CASE WHEN id < (SELECT max(id) - 9 FROM tenure.timer_job) THEN '-infinity' ELSE 'infinity'::timestamptz END")
	execute(t, b.owner, "UPDATE tenure.external_job SET created_at = '20000-01-01'")
	// One that was made long before others that have lower ids, as of a tenant that was moved here.
	execute(t, b.owner, "UPDATE tenure.job SET created_at = now() - interval '1 day' WHERE id = (SELECT max(id) FROM tenure.job)")
	for _, size := range []int{1, 7, 100} {
		require.ElementsMatch(t, want, pages(t, b.db, store.Filter{Limit: size}, func(int) {}), "in pages of %d", size)
		require.ElementsMatch(t, want, pages(t, b.db, store.Filter{Limit: size, Tenant: "acme"}, func(int) {}), "in pages of %d", size)
	}
	require.Len(t, pages(t, b.db, store.Filter{Limit: 3, State: "scheduled"}, func(int) {}), 10)
	require.Len(t, pages(t, b.db, store.Filter{Limit: 3, State: "done"}, func(int) {}), 26)
	execute(t, b.owner, "UPDATE tenure.timer_job SET created_at = now() - interval '1 min'; UPDATE tenure.external_job SET created_at = now() - interval '1 min'")
	execute(t, b.owner, "UPDATE tenure.job SET created_at = clock_timestamp() WHERE id = (SELECT max(id) FROM tenure.job)")
	all := pages(t, b.db, store.Filter{Limit: 6}, func(page int) {
		switch page {
		case 1:
			b.finishAll(t) // the ten of them
		case 2:
			b.enqueue(t, store.NewJob{}) // a new one is on no page
		}
	})
	require.ElementsMatch(t, want, all)
}

// Lists by tags, and of batches, go on as well, whatever somebody has made of their times.
func TestListsGoOnBehindStrangeTimes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var jobs, batches []job.ID
	for _, at := range []string{"-infinity", "-infinity", "1969-01-01", "infinity", "20000-01-01", "infinity"} {
		id := b.enqueue(t, tagged(t, "x"))
		execute(t, b.owner, "UPDATE tenure.job SET created_at = '"+at+"' WHERE id = "+id.String())
		execute(t, b.owner, "INSERT INTO tenure.awaiting (job_id, tenant_id, batch, on_failure, created_at) VALUES ("+id.String()+", 'acme', true, 'wait', '"+at+"')")
		jobs = append(jobs, id)
	}
	require.ElementsMatch(t, jobs, pages(t, b.db, store.Filter{Tags: []string{"x"}, Limit: 1}, func(int) {}))
	for f := (store.BatchFilter{Limit: 1}); len(batches) <= len(jobs); {
		some, err := store.Batches(t.Context(), b.db, f)
		require.NoError(t, err)
		if len(some) == 0 {
			break
		}
		batches, f.After = append(batches, some[0].ID), store.Cursor{ListedAt: some[0].ListedAt, ID: some[0].ID}
	}
	require.ElementsMatch(t, jobs, batches)
}

// The last error is that of the last attempt, also if an earlier one failed while the clock ran ahead; of a dead letter
// that was retried, which begins to count again, it is not one of before.
func TestTheLastErrorIsThatOfTheLastAttempt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	timer, outside := b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{External: true, DueIn: time.Hour})
	retried, snoozed := b.enqueue(t, store.NewJob{DueIn: time.Hour}), b.enqueue(t, store.NewJob{DueIn: time.Hour})
	ended := job.ID(1<<47 + 1000)
	execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		VALUES ($1, now(), now(), 0, 0, 2, 0, 'acme', 'default', 'k', 'business_error', '{}')`, int64(ended))
	execute(t, b.owner, "UPDATE tenure.timer_job SET attempt = 2 WHERE id = "+timer.String())
	execute(t, b.owner, "UPDATE tenure.timer_job SET attempt = 1 WHERE id = "+retried.String())
	execute(t, b.owner, "UPDATE tenure.external_job SET attempt = 2")
	for id, errors := range map[job.ID]string{
		timer: "(1, 24, 'first'), (2, -1, 'last')", outside: "(1, 24, 'first'), (2, -1, 'last')", ended: "(1, 24, 'first'), (2, -1, 'last')",
		retried: "(1, -5, 'first'), (2, -4, 'then it was dead'), (1, -1, 'last')", snoozed: "(1, -5, 'first'), (2, -4, 'last')",
	} {
		execute(t, b.owner, "INSERT INTO tenure.job_error (job_id, attempt, at, node, error) SELECT "+id.String()+", attempt, now() + hours * interval '1 h', 'n', error FROM (VALUES "+errors+") e (attempt, hours, error)")
	}
	all, err := store.List(t.Context(), b.db, store.Filter{Limit: 10})
	require.NoError(t, err)
	require.Len(t, all, 5)
	for _, s := range all {
		require.Equal(t, "last", s.Error, s.State)
	}
	one, err := store.FindExternal(t.Context(), b.db, outside)
	require.NoError(t, err)
	require.Equal(t, "last", one.Error)
	some, _, err := store.ListExternal(t.Context(), b.db, store.ExternalFilter{Limit: 1, Count: 1})
	require.NoError(t, err)
	require.Equal(t, "last", some[0].Error)
}

// The first page needs few of many jobs to be read, be they finished or waiting, and so does the next one.
func TestAPageReadsFewJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n = 100_000
	execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		SELECT (1::bigint << 47) + n, now() - ($1 - n) * interval '100 ms', now() - ($1 - n) * interval '100 ms', 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}' FROM generate_series(1, $1::bigint) n`, n)
	execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 'acme', 'default', 'k', '{}' FROM generate_series(1, $1::bigint) n", n)
	execute(t, b.owner, "VACUUM ANALYZE tenure.completed_job")
	execute(t, b.owner, "VACUUM ANALYZE tenure.job")
	for _, f := range []store.Filter{{State: "done"}, {State: "waiting"}, {Tenant: "acme"}, {State: "waiting", Tenant: "acme", Kind: "k", Queue: "default"}} {
		require.NoError(t, store.Inspect(t.Context(), b.db, func(db store.DB) error {
			read := func() (n int64) {
				require.NoError(t, db.QueryRow(t.Context(), "SELECT coalesce(sum(seq_tup_read + idx_tup_fetch), 0)::bigint FROM pg_stat_xact_user_tables WHERE relname LIKE 'completed\\_job%' OR relname = 'job'").Scan(&n))
				return n
			}
			f.Limit = 30
			for range 2 {
				before := read()
				some, err := store.List(t.Context(), db, f)
				require.NoError(t, err)
				require.Len(t, some, f.Limit)
				require.Less(t, read()-before, int64(n/5), "%+v", f)
				f.After = store.CursorOf(&some[len(some)-1])
			}
			return nil
		}))
	}
}

// What few of many jobs have is found by reading few of them, be these the oldest or all over the table.
func TestRareJobsAreFoundAmongMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const n, rare = 60_000, 20
	const names = "CASE WHEN n <= 10 OR n % 6000 = 0 THEN 'rare' ELSE 'common' || n % 7 END"
	const meta = `CASE WHEN n <= 10 OR n % 6000 = 0 THEN '{"tenure:tags": ["rare"]}'::jsonb END`
	const payload = "jsonb_build_object('text', repeat(md5(n::text), 8))"
	execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload, meta)
		SELECT (1::bigint << 46) + n, now() - ($1 - n) * interval '100 ms', now() - ($1 - n) * interval '100 ms', 0, 0, 1, 0, `+names+", "+names+", "+names+`,
			CASE WHEN n <= 10 OR n % 6000 = 0 THEN 'business_error' ELSE 'done' END, `+payload+", "+meta+" FROM generate_series(1, $1::bigint) n", n)
	execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload, meta) SELECT "+names+", "+names+", "+names+", "+payload+", "+meta+" FROM generate_series(1, $1::bigint) n", n)
	execute(t, b.owner, "INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, meta, origin, error) SELECT "+names+", "+names+", "+names+", "+payload+", "+meta+", 'job', 'it failed' FROM generate_series(1, $1::bigint) n", n)
	for _, table := range []string{"completed_job", "job", "dead_letter_job"} {
		execute(t, b.owner, "INSERT INTO tenure.job_tag SELECT tenant_id, 'rare', id FROM tenure."+table+" WHERE meta IS NOT NULL")
		execute(t, b.owner, "VACUUM ANALYZE tenure."+table)
	}
	for _, c := range []struct {
		filter store.Filter
		tables int // that have such jobs
	}{
		{store.Filter{State: "business_error"}, 1},
		{store.Filter{State: "business_error", Kind: "rare"}, 1},
		{store.Filter{State: "waiting", Tenant: "rare"}, 1}, // those of a kind alone are looked for in all that wait
		{store.Filter{State: "waiting", Queue: "rare"}, 1},
		{store.Filter{State: "waiting", Tenant: "rare", Queue: "rare", Kind: "rare"}, 1},
		{store.Filter{State: "dead", Tenant: "rare"}, 1},
		{store.Filter{State: "dead", Kind: "rare"}, 1},
		{store.Filter{State: "dead", Queue: "rare"}, 1},
		{store.Filter{Tenant: "rare"}, 3},
		{store.Filter{Queue: "rare"}, 3},
		{store.Filter{Tags: []string{"rare"}}, 3},
		{store.Filter{Queue: "none"}, 0},
		{store.Filter{Tenant: "none"}, 0},
		{store.Filter{Tags: []string{"none"}}, 0},
	} {
		require.NoError(t, store.Inspect(t.Context(), b.db, func(db store.DB) error {
			read := func() (n int) {
				require.NoError(t, db.QueryRow(t.Context(), "SELECT sum(seq_tup_read + coalesce(idx_tup_fetch, 0)) FROM pg_stat_xact_user_tables WHERE relname ~ '^(completed_job|job$|dead_letter)'").Scan(&n))
				return n
			}
			before := read()
			c.filter.Limit = 100
			some, err := store.List(t.Context(), db, c.filter)
			require.NoError(t, err)
			require.Len(t, some, c.tables*rare, "%+v", c.filter)
			require.Less(t, read()-before, n/3, "%+v", c.filter)
			return nil
		}))
	}
}

// Jobs that were made in a time are those of the list of all that were, in any state, with tags and page by page.
func TestAListIsOfATime(t *testing.T) {
	t.Parallel()
	b := setup(t)
	begin := time.Now().Add(-60 * time.Hour).Truncate(time.Hour).UTC()
	for hour := range 60 {
		at := begin.Add(time.Duration(hour) * time.Hour)
		switch hour % 4 {
		case 0:
			execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload, created_at) VALUES ('acme', 'default', 'k', '{}', $1)", at)
		case 1:
			execute(t, b.owner, "INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at, created_at) VALUES ('acme', 'default', 'k', '{}', now() + interval '1 h', $1)", at)
		case 2:
			execute(t, b.owner, "INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error, created_at) VALUES ('acme', 'default', 'k', '{}', 'job', 'No Mailbox ' || $2::integer, $1)", at, hour)
		case 3:
			execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload, meta)
				VALUES (nextval('tenure.job_id'), $1::timestamptz, $1::timestamptz + interval '30 minutes', 1, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}', '{"tenure:tags": ["red"]}')`, at)
		}
	}
	execute(t, b.owner, `INSERT INTO tenure.job_tag (tenant_id, tag, job_id) SELECT 'acme', 'red', id FROM (SELECT id FROM tenure.job UNION ALL SELECT id FROM tenure.timer_job
		UNION ALL SELECT id FROM tenure.dead_letter_job UNION ALL SELECT id FROM tenure.completed_job) j`)
	count := func(f store.Filter) int {
		f.Limit = 7
		return len(pages(t, b.db, f, func(int) {}))
	}
	at := func(hour int) time.Time { return begin.Add(time.Duration(hour) * time.Hour) }
	for _, tags := range [][]string{nil, {"red"}} {
		require.Equal(t, 60, count(store.Filter{Tags: tags}))
		require.Equal(t, 20, count(store.Filter{Tags: tags, Since: at(40)}))
		require.Equal(t, 40, count(store.Filter{Tags: tags, Until: at(40)}))
		require.Equal(t, 8, count(store.Filter{Tags: tags, Since: at(12), Until: at(20)}))
		require.Equal(t, 2, count(store.Filter{Tags: tags, Since: at(12), Until: at(20), State: "done"}))
		require.Zero(t, count(store.Filter{Tags: tags, Since: at(60)}))
	}
	require.Equal(t, 15, count(store.Filter{State: "dead", Error: "no mailbox"}))
	require.Equal(t, 1, count(store.Filter{State: "dead", Error: "MAILBOX 42"}))
	execute(t, b.owner, "INSERT INTO tenure.dead_letter_job (id, tenant_id, queue, kind, payload, origin, error, created_at) VALUES ($1, 'acme', 'default', 'k', '{}', 'job', '', $2)",
		int64(1)<<62, at(-100)) // it came from another pool
	require.Equal(t, 5, count(store.Filter{State: "dead", Since: at(40)}))
	require.Equal(t, 11, count(store.Filter{State: "dead", Until: at(40)}))
	execute(t, b.owner, `INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES (gen_random_uuid(), 'far', 'far', now() + interval '1 h');
		INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT session_id, turn, ARRAY[id], now() FROM tenure.job, tenure.node_session WHERE node = 'far' ORDER BY tenure.job.id LIMIT 3`)
	require.Equal(t, 3, count(store.Filter{State: "running", Node: "far"}))
	require.Zero(t, count(store.Filter{State: "running", Node: "near"}))
}
