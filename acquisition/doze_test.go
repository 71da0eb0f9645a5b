package acquisition

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// Once others have been elected for a while, nothing more changes that a term which
// dozes would hear of.
func TestDozeHeedsTheElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newIdleAcquirer(&fakeElector{elected: "other", stable: rebalanceAfter})
		a.balance.took()
		began := time.Now()
		tm := &term{aside: &aside{}, acquirer: a, stop: t.Context(), began: began, lanes: newLanes(), limits: newLimits(newFlight())}
		require.ErrorIs(t, tm.doze(t.Context()), errMoved)
		require.True(t, tm.dozing, "and whoever has the lock next is told that it dozed")
		require.InDelta(t, rebalanceAfter, time.Since(began), float64(electionEvery))

		tm.elector.(*fakeElector).elected = "me"
		began = time.Now()
		require.NoError(t, tm.doze(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), longestDoze/2)
		require.False(t, tm.dozing)

		stop, cancel := context.WithCancel(t.Context())
		tm.stop = stop
		time.AfterFunc(time.Second, cancel)
		began = time.Now()
		require.ErrorIs(t, tm.doze(t.Context()), context.Canceled)
		require.Equal(t, time.Second, time.Since(began), "at once: nobody waits for jobs there")
		require.True(t, tm.dozing)
	})
}
