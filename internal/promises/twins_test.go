package promises_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Two nodes were given one name, as when a machine was copied: both work, on jobs that run
// once each, and each says once what is wrong.
func TestTwoNodesOfOneName(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	const says = "two live processes have the same node name"
	y := newTally()
	logs := map[string]*logbook{"first": newLogbook(t), "second": newLogbook(t)}
	start := func(which string, join ...string) *running {
		b.log = logs[which]
		return b.start(few(b.gossiping("twin", join...), 2), b.slow(which, y, 20*time.Millisecond))
	}
	first := start("first")
	first.holds("p1")
	second := start("second", first.Self().Addr)
	first.meet(2)
	second.meet(2)
	require.Equal(t, first.Self().Node, second.Self().Node)
	require.NotEqual(t, first.Self().Name, second.Self().Name)

	total := 0
	batch := func() {
		const n = 200
		b.many(second.Client(), n, eitherKind)
		total += n
		b.finished(second.Client(), total)
	}
	batch()
	for which, l := range logs {
		require.Eventually(t, func() bool { return l.count("WARN", says) > 0 }, patience, 10*time.Millisecond, "%s should say so", which)
	}
	batch()                           // they go on
	pause(t.Context(), 8*time.Second) // in which they would say so again
	require.Zero(t, y.twice())
	for which := range logs {
		require.Greater(t, y.byNode()[which], total/20, "the share of the %s: %v", which, y.byNode())
	}
	b.wroteOnce(total / 2)
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.node_session WHERE node = 'twin' AND state = 'live'"), "each has a session of its own")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
	for which, l := range logs {
		require.Equal(t, 1, l.count("WARN", says), which)
	}
}
