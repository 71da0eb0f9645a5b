package routing

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/tenancy"
)

// asker asks for connections of one pool.
type asker struct {
	t      *testing.T
	shares *shares

	mu     sync.Mutex
	served []tenancy.ID
	leave  map[tenancy.ID][]func()
	failed []error
}

func newAsker(t *testing.T, conns, percent int) *asker {
	return &asker{t: t, shares: newShares("main", tenancy.Share{Of: conns, Percent: percent}), leave: map[tenancy.ID][]func(){}}
}

// ask has a tenant ask for some connections at a time, and waits until they are served, or wait.
func (a *asker) ask(ctx context.Context, tenant tenancy.ID, conns int) {
	for range conns {
		go func() {
			leave, err := a.shares.enter(ctx, tenant)
			a.mu.Lock()
			defer a.mu.Unlock()
			if err != nil {
				a.failed = append(a.failed, err)
				return
			}
			a.served = append(a.served, tenant)
			a.leave[tenant] = append(a.leave[tenant], leave)
		}()
		synctest.Wait()
	}
}

// giveBack gives the last one of a tenant back.
func (a *asker) giveBack(tenant tenancy.ID) {
	a.mu.Lock()
	last := len(a.leave[tenant]) - 1
	leave := a.leave[tenant][last]
	a.leave[tenant] = a.leave[tenant][:last]
	a.mu.Unlock()
	leave()
	leave() // does nothing
	synctest.Wait()
}

func (a *asker) has(tenant tenancy.ID) int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return len(a.leave[tenant])
}

// allServed are those whose turn has come, in order.
func (a *asker) allServed() []tenancy.ID {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.served)
}

// allFailed are the errors of the others.
func (a *asker) allFailed() []error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.failed)
}

// A tenant has its share of the connections, so that others find some, however many it waits for; those
// who wait take turns.
func TestSharesOfConnections(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ conns, percent, first, second int }{
		"some":                     {5, 75, 3, 1},
		"many":                     {13, 75, 9, 3},
		"two":                      {2, 75, 1, 1},
		"one":                      {1, 75, 1, 0},
		"nobody is to leave any":   {5, 100, 5, 0},
		"a small share for anyone": {5, 20, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newAsker(t, c.conns, c.percent)
				ctx, cancel := context.WithCancel(t.Context())
				a.ask(ctx, "a", 40)
				require.Equal(t, c.first, a.has("a"))
				a.ask(ctx, "b", 40)
				require.Equal(t, c.second, a.has("b"))
				for range 6 {
					for _, tenant := range []tenancy.ID{"a", "b"} {
						if a.has(tenant) > 0 {
							a.giveBack(tenant)
						}
					}
					require.LessOrEqual(t, a.has("a")+a.has("b"), c.conns)
					require.Positive(t, a.has("a")+a.has("b"), "one goes on")
				}
				require.Contains(t, a.allServed(), tenancy.ID("b"), "nobody waits for all of the others")
				cancel()
				synctest.Wait()
				for _, tenant := range []tenancy.ID{"a", "b"} {
					for a.has(tenant) > 0 {
						a.giveBack(tenant)
					}
				}
				require.Empty(t, a.shares.tenants, "nothing is kept")
				require.Empty(t, a.shares.line)
				require.Zero(t, a.shares.used)
				for _, err := range a.allFailed() {
					require.ErrorIs(t, err, context.Canceled)
				}
			})
		})
	}
}

// Who waits is told when none of its tenant's connections comes free for a while; not while they do, nor
// if others have all of them.
func TestAShareThatStaysInUse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		a := newAsker(t, 5, 75)
		a.ask(t.Context(), "a", 3)
		a.ask(t.Context(), "a", 2)
		time.Sleep(sharePatience - time.Second)
		a.giveBack("a")
		require.Equal(t, 3, a.has("a"), "one more was served")
		time.Sleep(sharePatience - time.Second)
		synctest.Wait()
		require.Empty(t, a.allFailed(), "one came free meanwhile")
		time.Sleep(time.Second)
		synctest.Wait()
		require.Len(t, a.allFailed(), 1)
		require.ErrorIs(t, a.allFailed()[0], tenancy.ErrShareInUse)
		require.ErrorContains(t, a.allFailed()[0], `3 of 5 of pool main, for 5s, in transactions of tenant "a"`)

		cause := errors.New("it stops")
		ctx, stop := context.WithCancelCause(t.Context())
		a.ask(t.Context(), "b", 1)
		a.ask(t.Context(), "c", 1)
		a.ask(ctx, "d", 1)
		time.Sleep(10 * sharePatience)
		synctest.Wait()
		require.Len(t, a.allFailed(), 1, "it has none that it could give back")
		stop(cause)
		synctest.Wait()
		require.Equal(t, cause, a.allFailed()[1])
		a.ask(t.Context(), "d", 1)
		a.giveBack("c")
		require.Equal(t, 1, a.has("d"))
	})
}
