package acquisition

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

// Whatever the pools and their weights: their shares of a limit add up to it, and no pool is left without one that has a
// weight.
func TestShares(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		var pools []string
		c := LimitConfig{Pools: map[string]int{}}
		sharing, weight := 0, 0
		for i := range rapid.IntRange(1, 40).Draw(t, "pools") {
			pool, w := fmt.Sprintf("p%02d", i), 1
			if rapid.Bool().Draw(t, "named") {
				w = rapid.IntRange(0, maxPoolWeight).Draw(t, "weight")
				c.Pools[pool] = w
			}
			pools = append(pools, pool)
			weight += w
			if w > 0 {
				sharing++
			}
		}
		if sharing == 0 {
			t.Skip()
		}
		c.MaxRunning = rapid.OneOf(rapid.Just(0), rapid.IntRange(sharing, 200)).Draw(t, "most")
		c.Rate = rapid.IntRange(0, 100).Draw(t, "rate")
		if c.Rate > 0 {
			c.Burst = rapid.OneOf(rapid.Just(0), rapid.IntRange(sharing, 100)).Draw(t, "burst")
			c.Per = rapid.SampledFrom([]time.Duration{0, time.Millisecond, time.Minute, store.LongestPer}).Draw(t, "per")
		}
		if c.MaxRunning == 0 && c.Rate == 0 {
			c.MaxRunning = sharing
		}
		all := LimitsConfig{Kinds: map[string]LimitConfig{"k": c}}
		require.NoError(t, ValidateLimits(all, pools))
		most, burst, rate := 0, 0, 0.0
		for pool, shares := range all.Shares(pools) {
			require.Len(t, shares, 1)
			l := shares[0]
			require.Equal(t, store.LimitKey{Scope: store.ScopeClusterKind, Name: "k"}, l.LimitKey)
			if w, named := c.Pools[pool]; named && w == 0 {
				require.Equal(t, store.Limit{LimitKey: l.LimitKey, Most: store.NoneAtAll}, l)
				continue
			}
			require.Equal(t, c.MaxRunning > 0, l.Most > 0)
			most += l.Most
			if c.Rate > 0 {
				require.Positive(t, l.Burst)
				burst += l.Burst
				rate += 1 / l.Tokens(1).Seconds()
				require.Positive(t, l.Tokens(l.Burst))
			}
		}
		require.Equal(t, c.MaxRunning, most)
		if c.Rate > 0 {
			require.Equal(t, max(c.Burst, sharing), burst)
			whole := float64(c.Rate) / c.per().Seconds()
			require.LessOrEqual(t, rate, whole*(1+1e-9))
			require.Greater(t, rate, whole*0.9)
		}
	})
}

func TestSharesGoByWeight(t *testing.T) {
	t.Parallel()
	c := LimitsConfig{
		Kinds:  map[string]LimitConfig{"sap.call": {MaxRunning: 50, Rate: 20, Pools: map[string]int{"a": 3, "c": 0}}},
		Queues: map[string]LimitConfig{"mail": {MaxRunning: 4}},
	}
	shares := c.Shares([]string{"c", "b", "a"})
	mail, sap := store.LimitKey{Scope: store.ScopeClusterQueue, Name: "mail"}, store.LimitKey{Scope: store.ScopeClusterKind, Name: "sap.call"}
	require.Equal(t, map[string][]store.Limit{
		"a": {{LimitKey: mail, Most: 2}, {LimitKey: sap, Most: 37, Rate: 20, Per: 1333333334, Burst: 1}},
		"b": {{LimitKey: mail, Most: 1}, {LimitKey: sap, Most: 13, Rate: 20, Per: 4 * time.Second, Burst: 1}},
		"c": {{LimitKey: mail, Most: 1}, {LimitKey: sap, Most: store.NoneAtAll}},
	}, shares)
}

func TestBadLimits(t *testing.T) {
	t.Parallel()
	pools := []string{"a", "b", "c"}
	good := LimitConfig{MaxRunning: 5, Rate: 5, Per: time.Minute, Burst: 5, Pools: map[string]int{"b": 3, "c": 0}}
	require.NoError(t, ValidateLimits(LimitsConfig{Kinds: map[string]LimitConfig{"k": good}, Queues: map[string]LimitConfig{"k": {Rate: 1}}}, pools))
	for says, change := range map[string]func(*LimitConfig){
		"limits.kinds.k: limits nothing":                                  func(c *LimitConfig) { *c = LimitConfig{} },
		"limits.kinds.k: has per or burst, which are of a rate":           func(c *LimitConfig) { c.Rate = 0 },
		"limits.kinds.k.max_running: -1":                                  func(c *LimitConfig) { c.MaxRunning = -1 },
		"limits.kinds.k.rate: 2000000":                                    func(c *LimitConfig) { c.Rate = 2_000_000 },
		"limits.kinds.k.per: 48h0m0s: 1ms to 24h0m0s":                     func(c *LimitConfig) { c.Per = 48 * time.Hour },
		"limits.kinds.k.burst: 900000: a rate of 5":                       func(c *LimitConfig) { c.Burst, c.Per = 900_000, time.Hour },
		"limits.kinds.k.pools.x: is not under pools":                      func(c *LimitConfig) { c.Pools = map[string]int{"x": 1} },
		"limits.kinds.k.pools.a: a weight of 101: 0 to 100":               func(c *LimitConfig) { c.Pools = map[string]int{"a": 101} },
		"limits.kinds.k.pools: no pool has a share":                       func(c *LimitConfig) { c.Pools = map[string]int{"a": 0, "b": 0, "c": 0} },
		"limits.kinds.k.max_running: 1 cannot be shared by 2 pools":       func(c *LimitConfig) { c.MaxRunning = 1 },
		"give those pools 0 in pools that are to start none of these job": func(c *LimitConfig) { c.Burst = 1 },
	} {
		bad := good
		change(&bad)
		require.ErrorContains(t, ValidateLimits(LimitsConfig{Kinds: map[string]LimitConfig{"k": bad}}, pools), says)
	}
	require.ErrorContains(t, ValidateLimits(LimitsConfig{Queues: map[string]LimitConfig{"two words": {Rate: 1}}}, pools), "limits.queues.two words: is not a name")
}
