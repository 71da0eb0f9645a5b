package store_test

import (
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A job cannot end unseen while a transaction is open in which another comes to await it.
func TestAJobDoesNotEndWhileItComesToBeAwaited(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	b.enqueue(t, store.NewJob{})
	p := b.page(t, 0)
	b.claim(t, p)
	tx, err := b.db.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	awaits, _, err := store.Enqueue(ctx, tx.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"),
		Links: &store.Links{After: []int64{int64(p.Jobs[0].Record.ID)}}})
	require.NoError(t, err)
	finish := func() error {
		_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true,
			[]store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Done}}}, nil)
		return err
	}
	require.ErrorIs(t, finish(), store.ErrLocked)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, finish())
	require.Equal(t, 1, b.settle(t).Started)
	require.Equal(t, []string{"done"}, b.outcomes(t, awaits))

	// One that waits for that transaction, as handlers' do, has a snapshot of before it.
	id := b.enqueue(t, store.NewJob{})
	p = b.page(t, 0)
	b.claim(t, p)
	tx, err = b.db.Begin(ctx)
	require.NoError(t, err)
	defer tx.Rollback(ctx)
	awaits, _, err = store.Enqueue(ctx, tx.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"),
		Links: &store.Links{After: []int64{int64(id)}}})
	require.NoError(t, err)
	ended := make(chan error, 1)
	go func() {
		_, err := b.db.Exec(ctx, store.FinishInTx(store.EndInTx{Turn: p.Jobs[0].Record.Turn, IDs: []job.ID{id}, Keep: true, Node: "a"}))
		ended <- err
	}()
	require.Eventually(t, func() bool {
		var n int
		require.NoError(t, b.owner.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'").Scan(&n))
		return n == 1
	}, time.Minute, time.Millisecond)
	require.NoError(t, tx.Commit(ctx))
	require.NoError(t, <-ended)
	require.Equal(t, 1, b.settle(t).Started)
	require.Equal(t, []string{"done"}, b.outcomes(t, awaits))
}

// The same holds for jobs that the holder ends, whose statements wait for no job's row: they skip it while
// the transaction is open, and see what it has added once it is not, whenever they have begun.
func TestTheHolderSeesWhoComesToAwait(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	for tried := 0; ; tried++ {
		require.Less(t, tried, 1000)
		id := b.enqueue(t, store.NewJob{})
		execute(t, b.db, "SELECT tenure.cancel($1)", int64(id))
		found, err := store.FindUnwanted(ctx, b.db, store.BeforeAllJobs, 10)
		require.NoError(t, err)
		adding, err := b.db.Begin(ctx)
		require.NoError(t, err)
		defer adding.Rollback(ctx)
		awaits, _, err := store.Enqueue(ctx, adding.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("{}"),
			Links: &store.Links{After: []int64{int64(id)}, OnFailure: "run"}})
		require.NoError(t, err)
		holding, err := b.owner.Begin(ctx)
		require.NoError(t, err)
		defer holding.Rollback(ctx)
		_, err = holding.Exec(ctx, "SELECT FROM tenure.acquire_lock FOR UPDATE")
		require.NoError(t, err)
		ended := make(chan error, 1)
		go func() {
			_, err := store.CancelWaiting(ctx, b.db, b.fence, found, true)
			ended <- err
		}()
		require.Eventually(t, func() bool {
			var waits bool
			require.NoError(t, b.owner.QueryRow(ctx, "SELECT EXISTS (SELECT FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock')").Scan(&waits))
			return waits || len(ended) > 0
		}, time.Minute, time.Millisecond)
		require.NoError(t, adding.Commit(ctx))
		require.NoError(t, holding.Commit(ctx))
		if err := <-ended; errors.Is(err, store.ErrLocked) { // it waits for a tenth of a second
			_, err = store.CancelWaiting(ctx, b.db, b.fence, found, true)
			require.NoError(t, err)
			b.settle(t)
			continue
		} else {
			require.NoError(t, err)
		}
		require.Equal(t, "cancelled", b.state(t, id))
		b.settle(t)
		require.Equal(t, []string{"cancelled"}, b.outcomes(t, awaits))
		return
	}
}

// A dead letter that is retried before its end was taken in is none: neither for who awaited it before
// nor for who does since.
func TestARetriedDeadLetterHasNotEnded(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	id := b.enqueue(t, store.NewJob{})
	before := b.after(t, "cancel", id)
	p := b.page(t, 0)
	b.claim(t, p)
	_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true,
		[]store.Finished{{Record: &p.Jobs[0].Record, Outcome: job.Outcome{State: job.Dead, Err: errors.New("no")}}}, nil)
	require.NoError(t, err)
	_, err = store.Retry(ctx, b.db, id)
	require.NoError(t, err)
	since := b.after(t, "run", id)
	require.Equal(t, store.Settled{Ends: 3, Some: true}, b.settle(t))
	require.Equal(t, []string{""}, b.outcomes(t, before))
	require.Equal(t, []string{""}, b.outcomes(t, since))
}

// Who uses no batches does not pay for those that others had, also while nothing can be vacuumed.
func TestEndsOfNobodyCostNothing(t *testing.T) {
	t.Parallel()
	b, ctx := awaited(t), t.Context()
	execute(t, b.owner, "INSERT INTO tenure.awaited (tenant_id, awaiting_id, job_id) SELECT 'acme', 1, n FROM generate_series(1, 20000) n")
	old, err := b.owner.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	require.NoError(t, err)
	defer old.Rollback(ctx)
	_, err = old.Exec(ctx, "SELECT count(*) FROM tenure.awaited")
	require.NoError(t, err)
	execute(t, b.owner, "DELETE FROM tenure.awaited")
	conn, err := b.db.Acquire(ctx)
	require.NoError(t, err)
	defer conn.Release()
	execute(t, conn, "SET enable_seqscan = off")
	var plan []struct {
		Plan struct {
			Hit  int `json:"Shared Hit Blocks"`
			Read int `json:"Shared Read Blocks"`
		}
	}
	for range 2 { // the first one reads the catalog, too
		require.NoError(t, conn.QueryRow(ctx, "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) SELECT tenure.note_ends('{30000,30001,30002}', 'done')").Scan(&plan))
	}
	require.Less(t, plan[0].Plan.Hit+plan[0].Plan.Read, 100)
}
