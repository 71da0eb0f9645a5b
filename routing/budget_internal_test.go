package routing

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

// Where more connections are wanted than there may be, each serves its pool for a while, and as
// many are closed as others wait for.
func TestBudgetTakesBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBudget(4, func() []*Pool { return nil }, zap.NewNop())
		opened, own, others := time.Now(), new(int), new(int)
		for range 4 {
			require.NoError(t, b.takePermit(t.Context(), others, always))
		}
		time.Sleep(time.Hour)
		require.False(t, b.takesBack(own, opened), "nobody waits")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		ask := func() <-chan error {
			done := make(chan error, 1)
			go func() { done <- b.takePermit(ctx, others, always) }()
			synctest.Wait()
			return done
		}
		first, second := ask(), ask()
		require.False(t, b.takesBack(own, time.Now()), "it was opened just now")
		require.False(t, b.takesBack(others, opened), "its own pool wants one, too")
		require.True(t, b.takesBack(own, opened))
		require.True(t, b.takesBack(own, opened))
		require.False(t, b.takesBack(own, opened), "two wait")
		<-b.permits
		<-b.permits
		require.NoError(t, <-first)
		require.NoError(t, <-second)
		require.False(t, b.takesBack(own, opened))

		third := ask()
		require.True(t, b.takesBack(own, opened))
		<-b.permits
		require.NoError(t, <-third)
		fourth := ask()
		require.True(t, b.takesBack(own, opened), "what was promised to others is kept")
		cancel()
		require.ErrorIs(t, <-fourth, ErrNoConnection)
		for range 1000 { // so that the last is served before its time is over
			b.note(others, 1, false)
		}
		require.Equal(t, evictAfter, b.spell())
	})
}

// The connections that nobody has used for the longest are closed first, and none that is used
// now and then.
func TestBudgetClosesWhatNobodyUses(t *testing.T) {
	t.Parallel()
	p, _ := behindProxy(t, 20)
	use := func(ago time.Duration) {
		require.NoError(t, p.Jobs().Ping(t.Context()))
		require.Eventually(t, func() bool { return p.Jobs().Stat().IdleConns() == 1 }, 10*time.Second, time.Millisecond)
		p.conns.admission.used.Store(int64(time.Since(began) - ago))
	}
	b := newBudget(1, func() []*Pool { return []*Pool{p} }, zap.NewNop())
	b.note(new(int), 2, false)
	use(-time.Hour)
	b.evict(t.Context())
	require.EqualValues(t, 1, p.Jobs().Stat().IdleConns())
	tenants, err := p.Tenants().Acquire(t.Context())
	require.NoError(t, err)
	tenants.Release()
	require.Eventually(t, func() bool { return p.Tenants().Stat().IdleConns() == 1 }, 10*time.Second, time.Millisecond)
	p.conns.tenants.admission.used.Store(int64(time.Since(began) - time.Minute))
	use(time.Second)
	b.evict(t.Context())
	require.EqualValues(t, 1, p.Jobs().Stat().IdleConns())
	require.Zero(t, p.Tenants().Stat().IdleConns())
	b.evict(t.Context())
	require.Zero(t, p.Jobs().Stat().IdleConns())
}

// always wants a connection.
func always() bool { return true }

// An opening for callers who have all gone makes room for others.
func TestNobodyWaitsForWhatNobodyWants(t *testing.T) {
	t.Parallel()
	b, own := newBudget(1, func() []*Pool { return nil }, zap.NewNop()), new(int)
	require.NoError(t, b.takePermit(t.Context(), own, always))
	a := &admission{}
	ctx, cancel := context.WithCancel(t.Context())
	opening := &ticket{caller: ctx}
	ended := make(chan error)
	go func() { ended <- b.takePermit(t.Context(), own, func() bool { return a.isWanted(opening) }) }()
	require.Eventually(t, func() bool { b.mu.Lock(); defer b.mu.Unlock(); return *own == 1 }, 20*time.Second, time.Millisecond)
	a.waiting.Add(1)
	cancel()
	select {
	case err := <-ended:
		require.NoError(t, err, "another caller waits")
	case <-time.After(10 * recheckEvery):
	}
	a.waiting.Add(-1)
	require.ErrorIs(t, <-ended, ErrNoConnection)
	require.Zero(t, b.waiting)
}
