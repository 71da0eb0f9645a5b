package tenure_test

import (
	"bytes"
	"encoding/base64"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
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

// gossipKey is a key, another for each from.
func gossipKey(from byte) string {
	raw := bytes.Repeat([]byte{from}, 32)
	for i := range raw {
		raw[i] += byte(i)
	}
	return base64.StdEncoding.EncodeToString(raw)
}
