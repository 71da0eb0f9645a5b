package store_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 6 {
		b.enqueue(t, store.NewJob{UniqueKey: uuid.NewString()})
	}
	p := b.page(t, 0)
	claims := b.claim(t, p)
	runs := []store.Finished{
		{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[1].Record, Outcome: job.Outcome{State: job.Retrying, Delay: time.Hour, Err: job.ErrTimeout, Stack: "s\x00\xff"}},
		{Record: &p.Jobs[2].Record, Outcome: job.Outcome{State: job.Snoozed, Delay: time.Hour}},
		{Record: &p.Jobs[3].Record, Outcome: job.Outcome{State: job.Dead, Err: job.ErrTimeout}},
		{Record: &p.Jobs[4].Record, Outcome: job.Outcome{State: job.Cancelled}},
		{Record: &p.Jobs[5].Record, Outcome: job.Outcome{State: job.Returned}},
	}
	lost, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, []int64{claims[b.first()]})
	require.NoError(t, err)
	require.Zero(t, lost)
	require.Equal(t, store.Counts{Waiting: 1, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))

	again, err := store.Finish(t.Context(), b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
	require.NoError(t, err)
	require.Equal(t, 5, again, "all but the cancelled one, which is not counted")
	require.Equal(t, store.Counts{Waiting: 1, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))

	for i, state := range []string{"done", "retrying", "scheduled", "dead", "cancelled", "waiting"} {
		got, err := store.List(t.Context(), b.db, store.Filter{ID: runs[i].Record.ID, Limit: 10})
		require.NoError(t, err)
		require.Len(t, got, 1)
		require.Equal(t, state, got[0].State)
	}
	errs, err := store.Errors(t.Context(), b.db, runs[1].Record.ID)
	require.NoError(t, err)
	require.Len(t, errs, 1)
	require.Equal(t, job.ErrTimeout.Error(), errs[0].Error)

	var keys int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM tenure.unique_job").Scan(&keys))
	require.Equal(t, 3, keys, "the unfinished ones keep their keys")

	var key string
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT unique_key FROM tenure.dead_letter_job").Scan(&key))
	taker := b.enqueue(t, store.NewJob{UniqueKey: key})
	_, err = store.Retry(t.Context(), b.db, runs[3].Record.ID)
	var taken *store.KeyTakenError
	require.ErrorAs(t, err, &taken)
	require.Equal(t, taker, taken.By)
	require.Equal(t, store.Counts{Waiting: 2, Timers: 2, Dead: 1, Finished: 2}, counts(t, b.db))
	_, err = store.Cancel(t.Context(), b.db, taker, false)
	require.NoError(t, err)

	lane, err := store.Retry(t.Context(), b.db, runs[3].Record.ID)
	require.NoError(t, err)
	require.Equal(t, "acme", lane.Tenant)
	_, err = store.Retry(t.Context(), b.db, runs[1].Record.ID)
	require.NoError(t, err)
	_, err = store.Retry(t.Context(), b.db, runs[0].Record.ID)
	require.ErrorIs(t, err, store.ErrNotFound)
	require.Len(t, b.page(t, 0).Jobs, 3)
}

func TestFinishInTransaction(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{UniqueKey: "u"})
	p := b.page(t, 0)
	b.claim(t, p)
	rec := p.Jobs[0].Record
	finish := func() error {
		return pgx.BeginFunc(context.Background(), b.db, func(tx pgx.Tx) error {
			var batch pgx.Batch
			store.QueueFinishInTx(&batch, &rec, true)
			return store.TranslateFinish(tx.SendBatch(context.Background(), &batch).Close())
		})
	}
	require.NoError(t, finish())
	require.Equal(t, store.Counts{Claimed: 1, Finished: 1}, counts(t, b.db))
	require.ErrorIs(t, finish(), job.ErrClaimLost)
}

// Of a batch of ended runs those whose row somebody has locked can be told, and the others
// be written meanwhile.
func TestFinishWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	runs := []store.Finished{
		{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[1].Record, Outcome: job.Outcome{State: job.Done}},
		{Record: &p.Jobs[2].Record, Outcome: job.Outcome{State: job.Retrying, Err: job.ErrTimeout}},
	}
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Second)
	defer cancel()
	finish := func(runs ...store.Finished) error {
		_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, runs, nil)
		return err
	}
	unlock := b.locks(t, "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", p.Jobs[1].Record.ID)
	require.ErrorIs(t, finish(runs...), store.ErrLocked)
	held, err := store.HeldJobs(ctx, b.db, runs)
	require.NoError(t, err)
	require.Equal(t, map[job.ID]bool{p.Jobs[1].Record.ID: true}, held)
	require.NoError(t, finish(runs[0], runs[2]))
	require.Equal(t, store.Counts{Claimed: 3, Waiting: 1, Timers: 1, Finished: 1}, counts(t, b.db))
	unlock()
	held, err = store.HeldJobs(ctx, b.db, runs)
	require.NoError(t, err)
	require.Empty(t, held)
	require.NoError(t, finish(runs[1]))
	require.Equal(t, store.Counts{Claimed: 3, Timers: 1, Finished: 2}, counts(t, b.db))
}
