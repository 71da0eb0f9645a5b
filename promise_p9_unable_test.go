package tenure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
)

// TestP9TheElectedIsUnable: the elected node gossips in good health, and cannot reach
// the database. The holder lets it have the lock once, and not again and again.
func TestP9TheElectedIsUnable(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 4, 1)
	cfg := b.gossiping("a")
	for pool := range b.cfg.Pools {
		var proxy *faultproxy.Proxy
		cfg, proxy = b.behind(cfg, pool)
		proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	}
	a := b.start(cfg, b.registry(nil))
	other := b.start(b.gossiping("b", a.Self().Addr), b.registry(nil))
	b.agree(a, other)
	moved := ""
	for pool := range b.db {
		other.holds(pool)
		if other.Client().Elected(pool) == "a" {
			moved = pool
		}
	}
	stop := b.feed(context.WithoutCancel(t.Context()), moved)
	defer stop()
	const epoch = "SELECT epoch FROM tenure.acquire_lock"
	before := b.count(moved, epoch)
	require.Eventually(t, func() bool { return b.count(moved, epoch) != before }, patience, 10*time.Millisecond, "the lock should be let go of once")
	before = b.count(moved, epoch)
	timer(t, 6*time.Second)
	require.Equal(t, before, b.count(moved, epoch), "the lock was let go of again")
}
