package acquisition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// Once others have been elected for a while, nothing more changes that a term which
// dozes would hear of.
func TestDozeHeedsTheElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newIdleAcquirer(&fakeElector{elected: "other", stable: calmAfter})
		a.node.balance.count(1)
		began := time.Now()
		tm := idleTerm(a)
		tm.stopping = t.Context()
		require.ErrorIs(t, tm.doze(t.Context()), errMoved)
		require.True(t, tm.idleness.dozed, "and anyone who has the lock next is told that it dozed")
		require.InDelta(t, calmAfter, time.Since(began), float64(tendEvery))

		a.node.elector.(*fakeElector).elected = "me"
		began = time.Now()
		require.NoError(t, tm.doze(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), longestDoze/2)
		require.False(t, tm.idleness.dozed)

		stop, cancel := context.WithCancel(t.Context())
		tm.stopping = stop
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		require.ErrorIs(t, tm.doze(t.Context()), context.Canceled)
		require.Equal(t, time.Second, time.Since(began), "at once: nobody waits for jobs there")
		require.True(t, tm.idleness.dozed)
	})
}

// A holder dozes once nothing has been going on for a while, and soon where pools wait for the node's connections, for
// which it does not wait until a duty is due.
func TestDozesSoonWhereConnectionsAreShort(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		crowded := false
		tm := newIdleTerm()
		tm.idleness.isCrowded = func() bool { return crowded }
		mayDozeAfter := func(d time.Duration) bool { return tm.idleness.mayDoze(time.Now().Add(d)) }
		tm.operations.some = true
		require.False(t, mayDozeAfter(0), "something is going on")
		tm.operations.some = false
		require.False(t, mayDozeAfter(burst))
		require.True(t, mayDozeAfter(dozeAfter*tm.idleness.cfg.IdleWait))
		crowded = true
		require.False(t, mayDozeAfter(0))
		began := time.Now()
		require.NoError(t, tm.awaitWork(t.Context()))
		require.Equal(t, burst, time.Since(began))
		require.True(t, mayDozeAfter(0))
	})
}

// A term that dozes wakes when the next timer that it knows of is due, and not at the next look; and each minute where
// schedules are to reach tenants that are listed.
func TestDozeEndsWhenATimerIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newIdleAcquirer(&fakeElector{elected: "me", stable: calmAfter})
		a.node.balance.count(1)
		tm := idleTerm(a)
		tm.stopping = t.Context()
		began := time.Now()
		tm.planDuties(began.Add(longestDoze)) // none of them is due
		tm.timers.expect(began.Add(time.Hour))
		tm.timers.expect(began.Add(7 * time.Second))
		require.NoError(t, tm.doze(t.Context()))
		require.Equal(t, 7*time.Second, time.Since(began))
		require.False(t, tm.timers.fireDuty.due.After(time.Now()), "and fires it then")

		tm.timers.next, began = time.Time{}, time.Now()
		tm.spreader.watched, tm.spreader.began = true, began
		require.NoError(t, tm.doze(t.Context()))
		require.Equal(t, sweepEvery, time.Since(began), "tenants may be listed at any time")
		require.Zero(t, tm.spreader.began, "and schedules are spread before it dozes again")
	})
}

// A pool that dozes is counted, and now and then again: jobs that are frozen wait, and somebody may delete dead letters.
// Where that fails, what is known stays.
func TestDozeCountsWhatWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newIdleAcquirer(&fakeElector{elected: "me", stable: calmAfter})
		a.node.balance.count(1)
		tm := idleTerm(a)
		tm.stopping = t.Context()
		began := time.Now()
		tm.countIdle = func(context.Context) (waitingPool, error) {
			switch passed := time.Since(began); {
			case passed < countIdleEvery:
				return waitingPool{dead: 400_000, byKind: map[string]store.WaitingJobs{"frozen": {Jobs: 3}}}, nil
			case passed < 2*countIdleEvery:
				return waitingPool{}, errCut
			}
			return waitingPool{}, nil
		}
		tm.planDuties(began.Add(longestDoze))
		tm.timers.expect(began.Add(2*countIdleEvery + countIdleAfter + time.Second))
		seen := make(chan [2]float64, 3)
		for i := range 3 {
			time.AfterFunc(time.Duration(i)*countIdleEvery+countIdleAfter+time.Second/2, func() {
				said := gatherGauges(t, a.metrics.waiting)
				seen <- [2]float64{said["tenure_dead_letters main"], said["tenure_jobs_waiting frozen main"]}
			})
		}
		require.NoError(t, tm.doze(t.Context()))
		require.Equal(t, [][2]float64{{400_000, 3}, {400_000, 3}, {0, 0}}, [][2]float64{<-seen, <-seen, <-seen})
	})
}
