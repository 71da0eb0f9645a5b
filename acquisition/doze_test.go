package acquisition

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestHeedElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{stable: rebalanceAfter}
		a := newIdleAcquirer(e)
		heed := func(elected string) error {
			e.elected = elected
			return (&term{acquirer: a}).heedElection(t.Context())
		}
		require.NoError(t, heed(""))
		require.NoError(t, heed("me"))
		require.NoError(t, heed("other"), "it holds no more than its share")
		a.balance.took()
		require.ErrorIs(t, heed("other"), errMoved)
		require.NoError(t, heed("other"), "one at a time")
		time.Sleep(balanceEvery)
		e.stable--
		require.NoError(t, heed("other"), "the members have not agreed for long")
	})
}

// Once others have been elected for a while, nothing more changes that a term which
// dozes would hear of.
func TestDozeHeedsTheElection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newIdleAcquirer(&fakeElector{elected: "other", stable: rebalanceAfter})
		a.balance.took()
		began := time.Now()
		tm := &term{acquirer: a, began: began, lanes: newLanes()}
		require.ErrorIs(t, tm.doze(t.Context()), errMoved)
		require.True(t, tm.dozing, "and whoever has the lock next is told that it dozed")
		require.InDelta(t, rebalanceAfter, time.Since(began), float64(electionEvery))

		tm.elector.(*fakeElector).elected = "me"
		began = time.Now()
		require.NoError(t, tm.doze(t.Context()))
		require.GreaterOrEqual(t, time.Since(began), longestDoze/2)
		require.False(t, tm.dozing)
	})
}
