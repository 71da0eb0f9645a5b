package acquisition

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// LimitsConfig is the limits section of the configuration: what the jobs of all tenants, in all pools together, are
// kept to. Each pool has a share of each limit, to which the holder of its lock keeps exactly.
type LimitsConfig struct {
	Kinds  map[string]LimitConfig `yaml:"kinds"`
	Queues map[string]LimitConfig `yaml:"queues"`
}

// LimitConfig is a limit of the whole cluster.
type LimitConfig struct {
	// MaxRunning is how many may be in flight at a time: 1 to 1,000,000; 0: any number.
	MaxRunning int `yaml:"max_running"`
	// Rate is how many may start in Per: 1 to 1,000,000; 0: any number.
	Rate int `yaml:"rate"`
	// Per is the period of Rate: a millisecond to a day. Default: a second.
	Per time.Duration `yaml:"per"`
	// Burst is how many may start at once after a pause. Default: one in each pool.
	Burst int `yaml:"burst"`
	// Pools are the weights by which pools have shares, up to 100. A pool that is not named has 1; with 0 none of
	// the jobs start there.
	Pools map[string]int `yaml:"pools"`
}

// maxPoolWeight bounds the weight of a pool.
const maxPoolWeight = 100

// ValidateLimits returns every fault of the limits section, joined, for these pools.
func ValidateLimits(c LimitsConfig, pools []string) error {
	var l fault.List
	for _, section := range []struct {
		what   string
		limits map[string]LimitConfig
	}{{"kind", c.Kinds}, {"queue", c.Queues}} {
		for _, name := range slices.Sorted(maps.Keys(section.limits)) {
			path := "limits." + section.what + "s." + name
			if job.ValidateKind(section.what, name) != nil {
				l.Add(path, "", nameForm)
			}
			section.limits[name].validate(&l, path, pools)
		}
	}
	return l.Err()
}

func (c LimitConfig) validate(l *fault.List, path string, pools []string) {
	within := func(key string, n int) {
		if n < 0 || n > store.MaxLimit {
			l.Add(path+key, "", "%d: 1 to %d are allowed, or 0 for any number", n, store.MaxLimit)
		}
	}
	within(".max_running", c.MaxRunning)
	within(".rate", c.Rate)
	within(".burst", c.Burst)
	per := c.per()
	switch {
	case c.MaxRunning == 0 && c.Rate == 0:
		l.Add(path, "write max_running: 50, or rate: 20, or both", "limits nothing")
	case c.Rate == 0 && (c.Per != 0 || c.Burst != 0):
		l.Add(path, "write rate, too, or remove them", "has per or burst, which are of a rate")
	case per < time.Millisecond || per > store.LongestPer:
		l.Add(path+".per", "", "%v: 1ms to %v are allowed", c.Per, store.LongestPer)
	case c.Rate > 0 && c.Burst > int(store.LongestRefill/max(per/time.Duration(c.Rate), 1)):
		l.Add(path+".burst", "raise the rate, or lower the burst", "%d: a rate of %d in %v takes longer than %v to give as many", c.Burst, c.Rate, per, store.LongestRefill)
	}
	sharing := len(pools)
	for _, pool := range slices.Sorted(maps.Keys(c.Pools)) {
		switch w := c.Pools[pool]; {
		case !slices.Contains(pools, pool):
			l.Add(path+".pools."+pool, cmp.Or(fault.DidYouMean(pool, pools), "add it to pools, or correct the name here"), "is not under pools")
		case w < 0 || w > maxPoolWeight:
			l.Add(path+".pools."+pool, "a pool that is not named has 1", "a weight of %d: 0 to %d are allowed", w, maxPoolWeight)
		case w == 0:
			sharing--
		}
	}
	const spare = "raise it, or give those pools 0 in pools that are to start none of these jobs"
	switch {
	case sharing == 0 && len(pools) > 0:
		l.Add(path+".pools", "give one of them 1 or more", "no pool has a share, so none of the jobs would start")
	case c.MaxRunning > 0 && c.MaxRunning < sharing:
		l.Add(path+".max_running", spare, "%d cannot be shared by %d pools, each of which needs one at least", c.MaxRunning, sharing)
	case c.Burst > 0 && c.Burst < sharing:
		l.Add(path+".burst", spare, "%d cannot be shared by %d pools, each of which needs one at least", c.Burst, sharing)
	}
}

func (c LimitConfig) per() time.Duration { return cmp.Or(c.Per, time.Second) }

// Shares are these pools' shares of the limits, if they are valid, in order of what they are about. Those of one limit
// add up to no more than the limit.
func (c LimitsConfig) Shares(pools []string) map[string][]store.Limit {
	pools = slices.Sorted(slices.Values(pools))
	out := map[string][]store.Limit{}
	add := func(scope store.Scope, limits map[string]LimitConfig) {
		for _, name := range slices.Sorted(maps.Keys(limits)) {
			for i, l := range limits[name].split(pools) {
				l.LimitKey = store.LimitKey{Scope: scope, Name: name}
				out[pools[i]] = append(out[pools[i]], l)
			}
		}
	}
	add(store.ScopeClusterQueue, c.Queues)
	add(store.ScopeClusterKind, c.Kinds)
	return out
}

// split is the shares that pools have of a limit.
func (c LimitConfig) split(pools []string) []store.Limit {
	weights, all, sharing := make([]int, len(pools)), 0, 0
	for i, pool := range pools {
		weights[i] = 1
		if w, named := c.Pools[pool]; named {
			weights[i] = w
		}
		all += weights[i]
		if weights[i] > 0 {
			sharing++
		}
	}
	out := make([]store.Limit, len(pools))
	most, burst := shareOut(c.MaxRunning, weights), shareOut(cmp.Or(c.Burst, sharing), weights)
	for i, w := range weights {
		switch {
		case w == 0:
			out[i].Most = store.NoneAtAll
			continue
		case c.MaxRunning > 0:
			out[i].Most = most[i]
		}
		if c.Rate > 0 { // the period is as much longer as the share is smaller, so that none is rounded to nothing
			out[i].Rate, out[i].Burst = c.Rate, burst[i]
			out[i].Per = time.Duration(min(math.Ceil(float64(c.per())*float64(all)/float64(w)), math.MaxInt64/2))
		}
	}
	return out
}

// shareOut shares n by weight: each that has a weight gets one, and the rest goes by the largest remainder.
func shareOut(n int, weights []int) []int {
	out, all := make([]int, len(weights)), 0
	for i, w := range weights {
		all += w
		if w > 0 && n > 0 {
			out[i] = 1
			n--
		}
	}
	if all == 0 {
		return out
	}
	left, order := n, make([]int, len(weights))
	for i, w := range weights {
		order[i] = i
		out[i] += n * w / all
		left -= n * w / all
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(n*weights[b]%all, n*weights[a]%all) })
	for _, i := range order[:left] {
		out[i]++
	}
	return out
}
