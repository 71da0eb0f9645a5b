package store_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

func TestReadOverview(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue(t, store.NewJob{})
	}
	b.enqueue(t, store.NewJob{DueIn: time.Hour})
	_, err := b.db.Exec(t.Context(), `INSERT INTO tenure.completed_job (id, created_at, finished_at, started_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		SELECT n, now() - interval '3 s', now(), now() - interval '2 s', 0, 0, CASE WHEN n > 2 THEN 2 ELSE 1 END, 0, 'acme', 'default', 'k', 'done', '{}' FROM generate_series(1, 3) n`)
	require.NoError(t, err)
	conn, err := b.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	o, err := store.ReadOverview(t.Context(), conn)
	require.NoError(t, err)
	require.Equal(t, "a", o.Lock.Holder)
	require.Equal(t, []int64{3, 0, 1, 0}, []int64{o.Load.Waiting, o.Load.Running, o.Load.Timers, o.Load.Awaiting})
	require.Len(t, o.Sessions, 1)
	require.Equal(t, store.LockTaken, o.Changes[0].Change)
	require.Len(t, o.Runs, 2, "first runs only")
	require.InDelta(t, 2*time.Second, o.Runs[0].Ran, float64(100*time.Millisecond))
	require.InDelta(t, time.Second, o.Runs[0].Waited, float64(100*time.Millisecond))
}

// The times of runs are read from the last pages of the finished jobs, however many there are.
func TestRunTimesReadFewPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := store.KeepDays(t.Context(), b.db, 24*time.Hour)
	require.NoError(t, err)
	_, err = b.db.Exec(t.Context(), `INSERT INTO tenure.completed_job (id, created_at, finished_at, started_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		SELECT n, now(), now(), now(), 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}' FROM generate_series(1, 20000) n`)
	require.NoError(t, err)
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	runs, err := store.RunTimes(t.Context(), tx, time.Hour)
	require.NoError(t, err)
	require.Len(t, runs, 500)
	var scanned, read int
	require.NoError(t, tx.QueryRow(t.Context(), `SELECT sum(seq_scan), sum(seq_tup_read) FROM pg_stat_xact_user_tables WHERE relname LIKE 'completed_job%'`).Scan(&scanned, &read))
	require.Less(t, read, 2000, fmt.Sprint(scanned, " scans"))
}

func TestQueues(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, j := range []store.NewJob{{Queue: "mail"}, {Queue: "mail", Tenant: "globex"}, {Queue: "mail"}, {Queue: "reports"}} {
		b.enqueue(t, j)
	}
	_, err := b.db.Exec(t.Context(), "UPDATE tenure.job SET created_at = now() - interval '3 h', ready_at = now() - interval '1 h' WHERE tenant_id = 'globex'")
	require.NoError(t, err)
	all, err := store.Queues(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.Len(t, all, 2)
	require.Equal(t, "mail", all[0].Name)
	require.Equal(t, []int64{3, 0, 2}, []int64{all[0].Waiting, all[0].Running, all[0].Tenants})
	require.InDelta(t, time.Hour, all[0].Oldest, float64(time.Minute))
	require.EqualValues(t, 1, all[1].Waiting)

	_, err = store.InsertClaims(t.Context(), b.db, b.fence, request(b.page(t, 0)))
	require.NoError(t, err)
	some, err := store.Queues(t.Context(), b.db, []string{"acme"})
	require.NoError(t, err)
	require.EqualValues(t, 3, some[0].Running+some[0].Waiting+some[1].Running+some[1].Waiting, "only that tenant's")
	require.Positive(t, some[0].Running)

	execute(t, b.owner, "DELETE FROM tenure.job WHERE id = (SELECT max(id) FROM tenure.job)") // it has ended, and its claim stands for the others
	l, err := store.ReadLoad(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []int64{0, 3}, []int64{l.Waiting, l.Running})
	counts, err := store.Count(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []int64{3, 3}, []int64{counts.Waiting, counts.Claimed})
}

// Jobs that wait for workers outside the cluster wait: they are among those of the pool, its queues, kinds and tenants, and
// the oldest may be one of them. Those that a worker has, or that were put off, do not.
func TestJobsOfExternalWorkersWaitToo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{Queue: "mail"})
	for range 3 {
		b.external(t, store.NewJob{Queue: "outside", Kind: "topic"})
	}
	locked := b.external(t, store.NewJob{Queue: "outside", Kind: "topic"})
	off := b.external(t, store.NewJob{Queue: "outside", Kind: "topic"})
	execute(t, b.owner, "UPDATE tenure.external_job SET created_at = created_at - interval '2 days', ready_at = ready_at - interval '1 h'")
	execute(t, b.owner, "UPDATE tenure.external_job SET lock_expires_at = now() + interval '1 h' WHERE id = "+locked.String())
	execute(t, b.owner, "UPDATE tenure.external_job SET due_at = now() + interval '1 h' WHERE id = "+off.String())
	l, err := store.ReadLoad(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []int64{4, 5}, []int64{l.Waiting, l.External})
	require.InDelta(t, time.Hour, l.Oldest, float64(time.Minute))
	queues, err := store.Queues(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.Len(t, queues, 2)
	require.Equal(t, []any{"outside", int64(3), int64(1)}, []any{queues[1].Name, queues[1].Waiting, queues[1].Tenants})
	require.InDelta(t, time.Hour, queues[1].Oldest, float64(time.Minute))
	queues, err = store.Queues(t.Context(), b.db, []string{"globex"})
	require.NoError(t, err)
	for _, q := range queues {
		require.Zero(t, q.Waiting, "nobody else's")
	}
	byKind, byTenant, err := store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, 3, byKind["topic"].Jobs)
	require.Equal(t, 4, byTenant["acme"].Jobs)
	require.InDelta(t, time.Hour, byKind["topic"].Oldest, float64(time.Minute))

	execute(t, b.owner, "DELETE FROM tenure.external_job WHERE due_at IS NULL; UPDATE tenure.external_job SET due_at = now() - interval '5 min'")
	_, err = store.SweepExternal(t.Context(), b.db, 10)
	require.NoError(t, err)
	untaken, err := store.UntakenTopics(t.Context(), b.db)
	require.NoError(t, err)
	require.Len(t, untaken, 1)
	require.InDelta(t, 5*time.Minute, untaken[0].Oldest, float64(time.Minute), "since its time came")

	execute(t, b.owner, "UPDATE tenure.external_job SET created_at = '-infinity', ready_at = NULL") // somebody has, in a ledger of before
	_, err = store.ReadLoad(t.Context(), b.db)
	require.NoError(t, err)
	_, err = store.Queues(t.Context(), b.db, nil)
	require.NoError(t, err)
	_, _, err = store.CountWaiting(t.Context(), b.db)
	require.NoError(t, err)
}
