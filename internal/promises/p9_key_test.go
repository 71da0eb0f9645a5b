package promises_test

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP9AWrongKey: a node whose key is wrong, or that has none, stays apart, which is said,
// and acquires all the same from what nobody else does: at once from a pool that is its
// alone, and from another's when that leaves.
func TestP9AWrongKey(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][]string{"wrong": {gossipKey(100)}, "missing": nil} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 2, 1)
			ran := newRuns()
			registry := func() *job.Registry { return b.registry(func(id job.ID) { ran.start(id)() }) }
			right := b.gossiping("a")
			right.Cluster.Keys = []string{gossipKey(1)}
			a := b.start(without(right, "p2"), registry())
			a.holds("p1")
			stray := b.gossiping("stray", a.Self().Addr)
			stray.Cluster.Keys = keys
			s := b.start(stray, registry())
			s.holds("p2")
			work := func(rounds int) {
				t.Helper()
				for _, pool := range []string{"p1", "p2"} {
					_, err := s.Client().Enqueue(tenancy.For(t.Context(), b.tenantIn(pool)), plain{rounds})
					require.NoError(t, err)
					b.eventually(rounds, pool, "SELECT count(*) FROM tenure.completed_job")
				}
			}
			work(1)
			require.Len(t, a.Members(), 1)
			require.Len(t, s.Members(), 1)
			require.Eventually(t, func() bool { return b.log.says("a.membership", "give all nodes the same cluster.keys") }, patience, 10*time.Millisecond)
			a.stop()
			s.holds("p1")
			work(2)
			starts, overlaps := ran.sum()
			require.Equal(t, 4, starts)
			require.Zero(t, overlaps)
		})
	}
}

// TestP9TheGossipKeyChanges: three nodes get another key by reloads, one after the other, in the
// documented steps. Jobs run at each of them, nobody is missed, and nobody is taken for dead.
func TestP9TheGossipKeyChanges(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.cfg.Acquire.Session = config.Default().Acquire.Session // a busy machine kills none
	before, after := gossipKey(1), gossipKey(100)
	var nodes []*running
	var configs []config.Config
	for _, name := range []string{"a", "b", "c"} {
		cfg := b.gossiping(name)
		if len(nodes) > 0 {
			cfg.Cluster.Join = []string{nodes[0].Self().Addr}
		}
		cfg.Cluster.Keys = []string{before}
		configs = append(configs, cfg)
		nodes = append(nodes, b.start(cfg, b.registry(nil)))
	}
	rounds := 0
	work := func() {
		t.Helper()
		for _, n := range nodes {
			rounds++
			for _, pool := range []string{"p1", "p2"} {
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), b.tenantIn(pool)), plain{rounds})
				require.NoError(t, err)
				b.eventually(rounds, pool, "SELECT count(*) FROM tenure.completed_job")
			}
			require.Eventually(t, func() bool { return len(n.Members()) == len(nodes) }, patience, 10*time.Millisecond)
		}
	}
	work()
	for _, keys := range [][]string{{before, after}, {after, before}, {after}} {
		for i, n := range nodes {
			cluster := *configs[i].Cluster
			cluster.Keys = keys
			configs[i].Cluster = &cluster
			done, err := n.Reload(t.Context(), configs[i])
			require.NoError(t, err)
			require.Empty(t, done.Later, "it is in force")
			work()
		}
	}
	for _, pool := range []string{"p1", "p2"} {
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.node_session WHERE state <> 'live'"))
	}
	for _, name := range []string{"a", "b", "c"} {
		require.False(t, b.log.says(name+".membership", "could not be decrypted"), name)
	}
	configs[0].Cluster = &membership.Config{Bind: configs[0].Cluster.Bind, Label: configs[0].Cluster.Label, Profile: "local"}
	done, err := nodes[0].Reload(t.Context(), configs[0])
	require.NoError(t, err)
	require.Equal(t, []string{"cluster"}, done.Later, "gossip begins and ends to be encrypted with a restart")
	work()
}

// gossipKey is a key, another for each from.
func gossipKey(from byte) string {
	raw := bytes.Repeat([]byte{from}, 32)
	for i := range raw {
		raw[i] += byte(i)
	}
	return base64.StdEncoding.EncodeToString(raw)
}
