package membership

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Two members tell one another their state when they meet, and again and again.
func TestExchange(t *testing.T) {
	t.Parallel()
	type heard struct{ by, from, state string }
	all := make(chan heard, 100)
	nodes := startNodes(t, 2, func(c *Cluster) {
		c.Exchange(func() []byte { return []byte("of " + c.name) }, func(from string, state []byte) error {
			all <- heard{c.name, from, string(state)}
			return nil
		})
	})
	a, b := nodes[0], nodes[1]
	want := map[heard]bool{{a.name, b.name, "of " + b.name}: true, {b.name, a.name, "of " + a.name}: true}
	for len(want) > 0 {
		delete(want, await(t, all))
	}
	require.Panics(t, func() { a.Exchange(nil, nil) }, "after Start")
}

func TestState(t *testing.T) {
	t.Parallel()
	fine := []byte("fine")
	for name, c := range map[string]struct {
		b    []byte
		want float64 // counted as malformed
	}{
		"nothing":          {nil, 0},
		"read":             {append([]byte{1, 1, 'x'}, fine...), 0},
		"not what it says": {[]byte{1, 1, 'x', 'b', 'a', 'd'}, 1},
		"cut off":          {[]byte{1, 9, 'x'}, 1},
		"another version":  {append([]byte{2, 1, 'x'}, fine...), 1},
		"too much":         {append([]byte{1, 1, 'x'}, make([]byte, maxState+300)...), 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c2 := build(t, testConfig(t), Self{Node: "a"})
			c2.Exchange(func() []byte { return nil }, func(from string, state []byte) error {
				require.Equal(t, "x", from)
				if string(state) != "fine" {
					return errMessageShort
				}
				return nil
			})
			require.Nil(t, c2.exchange.encodeState())
			c2.exchange.mergeState(c.b)
			require.Equal(t, c.want, counter(t, c2.metrics.malformed.WithLabelValues("state")))
		})
	}
	c := build(t, testConfig(t), Self{Node: "a"})
	require.Nil(t, c.exchange.encodeState())
	c.exchange.mergeState(fine) // nobody wants it
	c.Exchange(func() []byte { return make([]byte, maxState+1) }, nil)
	require.Nil(t, c.exchange.encodeState(), "too large to be sent")
}
