package lease

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

// lockingLedger is one in which somebody has locked the row of a job.
type lockingLedger struct {
	fakeLedger
	locked atomic.Int64 // the job
	looks  atomic.Int64
}

func (l *lockingLedger) findHeld(_ context.Context, runs []store.Finished, _ []int64) (store.Held, error) {
	l.looks.Add(1)
	held := store.Held{Jobs: map[job.ID]bool{}}
	for _, r := range runs {
		if int64(r.Record.ID) == l.locked.Load() {
			held.Jobs[r.Record.ID] = true
		}
	}
	return held, nil
}

func (l *lockingLedger) write(ctx context.Context, b *batch) (int, error) {
	for _, r := range b.runs {
		if int64(r.Record.ID) == l.locked.Load() {
			return 0, store.ErrLocked
		}
	}
	return l.fakeLedger.write(ctx, b)
}

// The end of a job whose row somebody has locked waits apart: what is in one batch with it
// is written, and so is all that follows. It is looked at now and then, and written when
// the row is free, with its claim.
func TestCompleterWaitsForNoLockedRow(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := &lockingLedger{}
		l.locked.Store(2)
		c, end := runCompleter(l)

		c.openClaim(7, 3)
		for _, id := range ids(1, 3) {
			c.addEnded(done(7, id))
		}
		time.Sleep(flushEvery)
		synctest.Wait()
		calls := l.all()
		require.Len(t, calls, 1)
		require.Equal(t, []job.ID{1, 3}, calls[0].runs)
		require.Empty(t, calls[0].over, "one of its jobs has not ended")

		c.openClaim(8, 1)
		c.addEnded(done(8, 4))
		time.Sleep(flushEvery)
		synctest.Wait()
		calls = l.all()
		require.Len(t, calls, 2)
		require.Equal(t, []job.ID{4}, calls[1].runs)
		require.Equal(t, []int64{8}, calls[1].over)
		require.EqualValues(t, 1, l.looks.Load(), "nothing new is known of it")

		time.Sleep(time.Minute)
		synctest.Wait()
		require.Len(t, l.all(), 2)
		require.Greater(t, l.looks.Load(), int64(5))
		require.Less(t, l.looks.Load(), int64(25), "ever less often")
		require.False(t, isClosed(c.whenIdle()))
		l.locked.Store(0)
		time.Sleep(unlockChecks.Longest + flushEvery)
		synctest.Wait()
		calls = l.all()
		require.Len(t, calls, 3)
		require.Equal(t, []job.ID{2}, calls[2].runs)
		require.Equal(t, []int64{7}, calls[2].over)
		require.True(t, isClosed(c.whenIdle()))

		l.locked.Store(5) // free just when the session ends
		c.openClaim(9, 1)
		c.addEnded(done(9, 5))
		time.Sleep(flushEvery)
		synctest.Wait()
		require.Len(t, l.all(), 3)
		l.locked.Store(0)
		end()
		require.Equal(t, []job.ID{5}, l.all()[3].runs)
	})
}

// A lock that is none on what the batch touches, such as one on a table, is waited for as for a database that
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
		c, end := runCompleter(l)
		defer end()
		c.openClaim(1, 2)
		c.addEnded(done(1, 1))
		c.addEnded(done(1, 2))
		<-c.whenIdle()
		require.Len(t, l.all(), 4)
		require.Equal(t, []int64{1}, l.all()[3].over)
	})
}

// On the ledger: two jobs end, and somebody has locked what belongs to the first of them,
// or their claim. What another claim's job has come to is written meanwhile, and so is the
// second's; the rest when it is free.
func TestALockedJobEndsWhenItIsFree(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		locks string
		ends  []How // of the two; others end in the same moment
		left  int64 // jobs that are not written
	}{
		"a job":                               {"SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", []How{Ran, Ran}, 1},
		"a unique key":                        {"SELECT FROM tenure.unique_job WHERE job_id = $1 FOR SHARE", []How{Ran, Ran}, 1},
		"a request to cancel":                 {"SELECT FROM tenure.cancel_request WHERE job_id = $1 FOR SHARE", []How{Ran, Ran}, 1},
		"a claim":                             {"SELECT FROM tenure.claim WHERE $1 = ANY (job_ids) FOR SHARE", []How{Ran, Ran}, 1},
		"a claim of jobs that did not start":  {"SELECT FROM tenure.claim WHERE $1 = ANY (job_ids) FOR SHARE", []How{Unstarted, Unstarted}, 2},
		"a claim whose first did not start":   {"SELECT FROM tenure.claim WHERE $1 = ANY (job_ids) FOR SHARE", []How{Unstarted, Ran}, 1},
		"a claim whose last ended by itself":  {"SELECT FROM tenure.claim WHERE $1 = ANY (job_ids) FOR SHARE", []How{Ran, RanInTx}, 1},
		"a claim of which one did not finish": {"SELECT FROM tenure.claim WHERE $1 = ANY (job_ids) FOR SHARE", []How{Unstarted}, 2},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil).start()
			s := b.session()
			b.ghostsSought()
			claims, other := b.claim(s, "k", "k"), b.claim(s, "k")
			first := &claims[0].Record
			first.UniqueKey = "u"
			b.exec("UPDATE tenure.job SET unique_key = 'u' WHERE id = $1", int64(first.ID))
			b.exec("INSERT INTO tenure.unique_job VALUES ('acme', 'u', $1)", int64(first.ID))
			b.exec("INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", int64(first.ID))
			tx, err := b.db.Begin(t.Context())
			require.NoError(t, err)
			defer func() { _ = tx.Rollback(context.Background()) }() // unless it is over
			_, err = tx.Exec(t.Context(), c.locks, int64(first.ID))
			require.NoError(t, err)
			for i, how := range c.ends {
				switch how {
				case Ran:
					s.Finish(&claims[i], job.Outcome{State: job.Cancelled})
				case RanInTx:
					b.exec("DELETE FROM tenure.job WHERE id = $1", int64(claims[i].Record.ID))
					s.FinishedInTx(&claims[i])
				case Unstarted:
					s.Return(&claims[i])
				}
			}
			s.Finish(&other[0], job.Outcome{State: job.Done})
			const left = "SELECT count(*) FROM tenure.job"
			b.eventually(c.left, left)
			b.eventually(1, "SELECT count(*) FROM tenure.claim")
			require.NoError(t, tx.Rollback(t.Context()))
			if len(c.ends) < 2 {
				b.eventually(1, "SELECT count(*) FROM tenure.claim WHERE job_ids = $1", []int64{int64(claims[1].Record.ID)})
				s.Finish(&claims[1], job.Outcome{State: job.Done})
			}
			b.eventually(0, "SELECT count(*) FROM tenure.claim")
			returned := int64(0)
			for _, how := range c.ends {
				if how == Unstarted {
					returned++
				}
			}
			b.eventually(returned, left)
			within(t, s.completer.whenIdle())
		})
	}
}
