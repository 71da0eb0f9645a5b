package membership

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPoolSet(t *testing.T) {
	t.Parallel()
	require.False(t, poolSetOf(nil).hasPool(hashName("a")))
	rapid.Check(t, func(t *rapid.T) {
		in := rapid.SliceOfNDistinct(rapid.StringN(1, 10, 20), 0, maxPoolSet, func(s string) string { return s }).Draw(t, "in")
		s := poolSetOf(in)
		for _, p := range in {
			require.True(t, s.hasPool(hashName(p)))
		}
		got, rest, ok := cutPoolSet(append(s.appendTo(nil), "later"...))
		require.True(t, ok)
		require.Equal(t, s, got)
		require.Equal(t, "later", string(rest))
	})
	several := make([]string, 100)
	for i := range several {
		several[i] = fmt.Sprint(i)
	}
	require.False(t, poolSetOf(several[:10]).hasPool(hashName("11")))
	require.Equal(t, everyPool, poolSetOf(several))
	require.True(t, poolSetOf(several).hasPool(hashName("anything")))
}

// A node that says that it cannot reach a database is not elected there, by anybody,
// until it takes it back.
func TestUnreachableIsGossiped(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	a, b := all[0], all[1]
	for _, c := range all {
		c.SetPools([]string{"one", "two"})
	}
	agree(t, all...)
	elected := func(c *Cluster) string {
		m, _ := c.Elected("one")
		return m.Node
	}
	first, other := a, b
	if elected(a) == b.Self().Node {
		first, other = b, a
	}
	first.SetReaches("one", false)
	began := time.Now()
	for _, c := range all {
		eventually(t, func() bool { return elected(c) == other.Self().Node }, "the other is elected")
		_, eligible := c.Rank("one")
		require.True(t, eligible, "it may still try, after the others")
		require.True(t, c.Alive(first.Self().Name))
		require.True(t, c.Lacks(first.Self().Name, "one"))
		require.False(t, c.Lacks(first.Self().Name, "two"))
		require.False(t, c.Lacks(other.Self().Name, "one"))
		require.False(t, c.Lacks("nobody", "one"))
	}
	t.Logf("known after %v", time.Since(began).Round(time.Millisecond))
	rank, _ := first.Rank("one")
	require.Equal(t, 1, rank)
	other.SetReaches("one", false)
	eventually(t, func() bool { return elected(a) == first.Self().Node && elected(b) == first.Self().Node }, "nobody reaches it")
	for i := range maxPoolSet {
		first.SetReaches(fmt.Sprint(i), false)
	}
	eventually(t, func() bool { m, _ := b.currentView().findMember(first.Self().Name); return m.unreachable == everyPool }, "it reaches next to none")
	require.False(t, b.Lacks(first.Self().Name, "one"), "it does not say which")
	other.SetReaches("one", true)
	eventually(t, func() bool { return elected(a) == other.Self().Node && elected(b) == other.Self().Node }, "the other reaches it again")
}
