package acquisition

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// The end of a job whose row somebody has locked waits apart: what is in one batch with it
// is written, and so is all that follows. It is looked at now and then, and written when
// the row is free, with its claim.
func TestCompleterWaitsForNoLockedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var locked atomic.Int64 // a job
		locked.Store(2)
		l := &fakeLedger{}
		c := newFakeSession(l).completer
		var looks atomic.Int64
		c.heldJobs = func(_ context.Context, runs []store.Finished) (map[job.ID]bool, error) {
			looks.Add(1)
			held := map[job.ID]bool{}
			for _, r := range runs {
				if int64(r.Record.ID) == locked.Load() {
					held[r.Record.ID] = true
				}
			}
			return held, nil
		}
		c.writeOnce = func(ctx context.Context, runs []store.Finished, over, claims, jobs []int64) (int, error) {
			for _, r := range runs {
				if int64(r.Record.ID) == locked.Load() {
					return 0, store.ErrLocked
				}
			}
			return l.writeOnce(ctx, runs, over, claims, jobs)
		}
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); c.run(ctx) }()

		c.open(7, 3)
		for _, id := range ids(1, 3) {
			c.add(done(7, id))
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		calls := l.all()
		require.Len(t, calls, 1)
		require.Equal(t, []job.ID{1, 3}, calls[0].runs)
		require.Empty(t, calls[0].over, "one of its jobs has not ended")

		c.open(8, 1)
		c.add(done(8, 4))
		time.Sleep(flushEvery)
		synctest.Wait()
		calls = l.all()
		require.Len(t, calls, 2)
		require.Equal(t, []job.ID{4}, calls[1].runs)
		require.Equal(t, []int64{8}, calls[1].over)
		require.EqualValues(t, 1, looks.Load(), "nothing new is known of it")

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, l.all(), 2)
		require.Greater(t, looks.Load(), int64(5))
		require.Less(t, looks.Load(), int64(25), "ever less often")
		require.False(t, isClosed(c.whenIdle()))
		locked.Store(0)
		time.Sleep(lastUnstick + flushEvery)
		synctest.Wait()
		calls = l.all()
		require.Len(t, calls, 3)
		require.Equal(t, []job.ID{2}, calls[2].runs)
		require.Equal(t, []int64{7}, calls[2].over)
		require.True(t, isClosed(c.whenIdle()))

		locked.Store(5) // free just when the session ends
		c.open(9, 1)
		c.add(done(9, 5))
		time.Sleep(flushEvery)
		synctest.Wait()
		require.Len(t, l.all(), 3)
		locked.Store(0)
		cancel()
		<-stopped
		require.Equal(t, []job.ID{5}, l.all()[3].runs)
	})
}

// A lock that is none on the rows of the batch's jobs is waited for as for a database that
// fails: everything is tried again.
func TestCompleterTriesAgainWhenNoRowIsLocked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &fakeLedger{answer: func(_ context.Context, try int) (int, error) {
			if try < 4 {
				return 0, store.ErrLocked
			}
			return 0, nil
		}}
		c := newFakeSession(l).completer
		c.heldJobs = func(context.Context, []store.Finished) (map[job.ID]bool, error) { return nil, nil }
		ctx, cancel := context.WithCancel(t.Context())
		stopped := make(chan struct{})
		go func() { defer close(stopped); c.run(ctx) }()
		c.open(1, 2)
		c.add(done(1, 1))
		c.add(done(1, 2))
		<-c.whenIdle()
		require.Len(t, l.all(), 4)
		require.Equal(t, []int64{1}, l.all()[3].over)
		cancel()
		<-stopped
	})
}

// On the ledger: of two jobs that end together one is locked by somebody.
func TestALockedJobEndsWhenItIsFree(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	b.ghostsSought()
	claims := b.claim(s, "k", "k")
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // unless it is over
	_, err = tx.Exec(t.Context(), "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", int64(claims[0].Record.ID))
	require.NoError(t, err)
	b.submit(s, claims)
	const left = "SELECT count(*) FROM tenure.job"
	b.eventually(1, left)
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.claim"))
	require.NoError(t, tx.Rollback(t.Context()))
	b.eventually(0, left)
	b.eventually(0, "SELECT count(*) FROM tenure.claim")
}
