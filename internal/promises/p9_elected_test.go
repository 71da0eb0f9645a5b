package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
)

// TestP9TheElectedReachesNoDatabase: the elected node gossips in good health, and cannot reach
// the database any more. It says so, the others elect somebody else, and the holder keeps the
// lock, which it would have handed over ten seconds after the elected node joined.
func TestP9TheElectedReachesNoDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 4, 1)
	holder := b.start(b.gossiping("b"), b.registry(nil))
	for pool := range b.db {
		holder.holds(pool)
	}
	cfg := b.gossiping("a", holder.Self().Addr)
	var proxies []*faultproxy.Proxy
	for pool := range b.cfg.Pools {
		var proxy *faultproxy.Proxy
		cfg, proxy = b.behind(cfg, pool)
		proxies = append(proxies, proxy)
	}
	a := b.start(cfg, b.registry(nil))
	b.agree(a, holder)
	moved := ""
	for pool := range b.db {
		if holder.Operator().Pools().Elected(pool) == "a" {
			moved = pool
		}
	}
	const epoch = "SELECT epoch FROM tenure.acquire_lock"
	before := b.count(moved, epoch)
	for _, proxy := range proxies {
		proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
		proxy.Cut(nil)
	}
	stop := b.feed(context.WithoutCancel(t.Context()), moved)
	defer stop()
	for _, n := range []*running{a, holder} {
		require.Eventually(t, func() bool { return n.Operator().Pools().Elected(moved) == "b" }, patience, 10*time.Millisecond, "%s should not elect a", n.Self().Node)
	}
	require.Equal(t, before, b.count(moved, epoch), "the lock was released")
}

// TestP9ANodeIsElectedAgain: a node loses its database and others take over there; when it
// is back it is elected again.
func TestP9ANodeIsElectedAgain(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 4, 1)
	cfg := b.gossiping("a")
	proxies := map[string]*faultproxy.Proxy{}
	for pool := range b.cfg.Pools {
		cfg, proxies[pool] = b.behind(cfg, pool)
	}
	a := b.start(cfg, b.registry(nil))
	other := b.start(b.gossiping("b", a.Self().Addr), b.registry(nil))
	b.agree(a, other)
	lost := ""
	for pool := range b.db {
		if a.Operator().Pools().Elected(pool) == "a" {
			lost = pool
		}
	}
	proxies[lost].SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	proxies[lost].Cut(nil)
	other.holds(lost)
	require.Eventually(t, func() bool { return other.Operator().Pools().Elected(lost) == "b" }, patience, 10*time.Millisecond)
	proxies[lost].SetRule(nil)
	require.Eventually(t, func() bool { return other.Operator().Pools().Elected(lost) == "a" }, patience, 10*time.Millisecond, "a has been back for a while")
	require.Equal(t, "b", lockHolder(b, lost), "the holder keeps the lock until the view has stood still")
}

// lockHolder names the node that holds a pool's lock.
func lockHolder(b *testbed, pool string) (node string) {
	b.t.Helper()
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), "SELECT s.node FROM tenure.acquire_lock l JOIN tenure.node_session s ON s.session_id = l.holder").Scan(&node))
	return node
}
