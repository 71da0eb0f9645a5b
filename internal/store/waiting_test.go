package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// What waits is counted by kind and tenant, without what nodes have, and each job waits since it could
// start: one that comes from the timers since it came due.
func TestCountWaiting(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	b.claim(t, b.page(t, 0))
	b.enqueue(t, store.NewJob{Kind: "a"})
	b.enqueue(t, store.NewJob{Kind: "a", Tenant: "globex"})
	old := b.enqueue(t, store.NewJob{Kind: "b"})
	_, err := b.owner.Exec(t.Context(), "UPDATE tenure.job SET created_at = created_at - interval '2 h', ready_at = ready_at - interval '1 h' WHERE id = $1", int64(old))
	require.NoError(t, err)
	byKind, byTenant, err := store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	count := func(all map[string]store.WaitingJobs) map[string]int {
		out := map[string]int{}
		for name, w := range all {
			out[name] = w.Jobs
		}
		return out
	}
	require.Equal(t, map[string]int{"a": 2, "b": 1}, count(byKind))
	require.Equal(t, map[string]int{"acme": 2, "globex": 1}, count(byTenant))
	require.InDelta(t, time.Hour.Seconds(), byKind["b"].Oldest.Seconds(), 60)
	require.Equal(t, byKind["b"].Oldest, byTenant["acme"].Oldest)
	require.Less(t, byKind["a"].Oldest, time.Minute)

	_, err = b.owner.Exec(t.Context(), "UPDATE tenure.job SET ready_at = NULL WHERE id = $1", int64(old)) // of a ledger of before
	require.NoError(t, err)
	byKind, _, err = store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	require.InDelta(t, 2*time.Hour.Seconds(), byKind["b"].Oldest.Seconds(), 60)

	execute(t, b.owner, "UPDATE tenure.job SET created_at = '-infinity', ready_at = NULL; UPDATE tenure.claim SET started_at = '-infinity'") // somebody has
	byKind, _, err = store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, 2, byKind["a"].Jobs)
	_, err = store.LongRuns(t.Context(), b.db, time.Hour, 10)
	require.NoError(t, err)
}

// Of a large table a sample says how many wait, and of one that is large and nearly empty every job is counted.
func TestCountWaiting_sample(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const jobs = 60_000
	_, err := b.owner.Exec(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
		SELECT 't' || n % 10, 'default', 'k' || n % 2, jsonb_build_object('n', n, 'text', repeat('x', 100)) FROM generate_series(1, $1) n`, jobs)
	require.NoError(t, err)
	byKind, byTenant, err := store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	require.Len(t, byKind, 2)
	require.Len(t, byTenant, 10)
	for kind, w := range byKind {
		require.InDelta(t, jobs/2, w.Jobs, jobs/10, kind)
	}
	for tenant, w := range byTenant {
		require.InDelta(t, jobs/10, w.Jobs, jobs/40, tenant)
	}
	_, err = b.owner.Exec(t.Context(), "DELETE FROM tenure.job WHERE (payload ->> 'n')::integer % 10000 <> 1")
	require.NoError(t, err)
	byKind, byTenant, err = store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, 6, byKind["k1"].Jobs)
	require.Equal(t, 6, byTenant["t1"].Jobs)
}

// Dead letters are counted where they are few, and beyond that as Postgres' statistics say, or at least as many as were counted.
func TestCountDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	count := func() int64 {
		t.Helper()
		n, err := store.CountDead(t.Context(), b.db)
		require.NoError(t, err)
		return n
	}
	add := func(n int) {
		t.Helper()
		_, err := b.owner.Exec(t.Context(), `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error)
			SELECT 'acme', 'default', 'k', '{}', 'job', 'no' FROM generate_series(1, $1::integer)`, n)
		require.NoError(t, err)
	}
	require.Zero(t, count())
	add(3)
	require.EqualValues(t, 3, count())
	add(20_000)
	require.GreaterOrEqual(t, count(), int64(10_001))
	execute(t, b.owner, "ANALYZE tenure.dead_letter_job")
	require.GreaterOrEqual(t, count(), int64(20_003), "what was added may come into the statistics once more")
}

// A timer that has fired has a low id, and may have waited for a moment only; and one job may wait behind ten thousand that nobody
// handles.
func TestTheOldestMayStandBehindOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	behind := func(others int, kind string, hours int) {
		execute(t, b.owner, fmt.Sprintf("INSERT INTO tenure.job (id, tenant_id, queue, kind, payload) SELECT nextval('tenure.job_id'), 'acme', 'default', 'gone', '{}' FROM generate_series(1, %d)", others))
		execute(t, b.owner, fmt.Sprintf("UPDATE tenure.job SET ready_at = clock_timestamp() - interval '%d h' WHERE id = %s", hours, b.enqueue(t, store.NewJob{Kind: kind})))
	}
	behind(100, "old", 1)
	l, err := store.ReadLoad(t.Context(), b.db)
	require.NoError(t, err)
	require.InDelta(t, time.Hour, l.Oldest, float64(time.Minute))
	behind(11_000, "older", 2)
	o, err := store.OldestWaiting(t.Context(), b.db, []string{"gone"}, nil)
	require.NoError(t, err)
	require.Equal(t, "older", o.Kind)
	require.InDelta(t, 2*time.Hour, o.Waited, float64(time.Minute))
}

// A page says since when its jobs could start, and so does a claim that a peer takes over, by the clock of
// this process, however wrong it is: nothing else is known of it.
func TestPagesSaySinceWhenJobsAreReady(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	_, err := b.owner.Exec(t.Context(), "UPDATE tenure.job SET ready_at = clock_timestamp() - interval '1 h'")
	require.NoError(t, err)
	page := b.page(t, 0)
	require.Len(t, page.Jobs, 1)
	require.InDelta(t, time.Hour.Seconds(), time.Since(page.Jobs[0].Ready).Seconds(), 30)

	peer := openSession(t, b.db, "peer")
	b.assign(t, peer)
	accepted, err := store.AcceptClaims(t.Context(), b.db, peer, nil)
	require.NoError(t, err)
	require.Len(t, accepted, 1)
	require.Len(t, accepted[0].Ready, len(accepted[0].Jobs))
	require.InDelta(t, time.Hour.Seconds(), time.Since(accepted[0].Ready[0]).Seconds(), 30)
}
