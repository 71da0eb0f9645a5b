package execution

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// What decides which have series of their own: the work that they had lately.
const (
	workHalves  = 5 * time.Minute
	rankEvery   = workHalves / 30
	leastWork   = rankEvery / 10_000 // that a run counts as, and below which nothing is known any more
	namedFactor = 1.5                // by which others must have more work than one that has series
)

// busiest tells which of many, such as tenants or queues, whose names others choose, have most work: these have series
// of their own. Not safe for concurrent use.
type busiest[K comparable] struct {
	most   int // that have
	named  int
	byName map[K]*busy
	ranked time.Time
}

// busy is what is known of one.
type busy struct {
	work  time.Duration // lately
	named bool
}

// add notes work, and tells whether its name has series.
func (b *busiest[K]) add(name K, work time.Duration) (named bool) {
	one := b.byName[name]
	if one == nil {
		one = &busy{}
		if b.byName == nil {
			b.byName = map[K]*busy{}
		}
		b.byName[name] = one
		b.name(one)
	}
	one.work += max(work, leastWork)
	return one.named
}

// has tells whether a name has series.
func (b *busiest[K]) has(name K) bool {
	one := b.byName[name]
	return one != nil && one.named
}

// name gives one series if there is room.
func (b *busiest[K]) name(one *busy) {
	if b.named < b.most {
		one.named = true
		b.named++
	}
}

// rank gives series to those that have most work now, and returns those that have none any more. One that
// is idle is forgotten where there is not room for all.
func (b *busiest[K]) rank(now time.Time) (ended []K) {
	if b.ranked.IsZero() {
		b.ranked = now
	}
	passed := now.Sub(b.ranked)
	if passed < rankEvery {
		return nil
	}
	b.ranked = now
	left := math.Exp2(-passed.Seconds() / workHalves.Seconds())
	for name, one := range b.byName {
		one.work = time.Duration(float64(one.work) * left)
		if one.work < leastWork && !one.named {
			delete(b.byName, name)
		}
	}
	if len(b.byName) <= b.most {
		for _, one := range b.byName {
			if !one.named {
				b.name(one)
			}
		}
		return nil
	}
	weigh := func(name K) float64 {
		if one := b.byName[name]; one.named {
			return float64(one.work) * namedFactor
		}
		return float64(b.byName[name].work)
	}
	order := slices.SortedStableFunc(maps.Keys(b.byName), func(x, y K) int { return cmp.Compare(weigh(y), weigh(x)) })
	b.named = 0
	for i, name := range order {
		one := b.byName[name]
		if i < b.most {
			one.named = true
			b.named++
			continue
		}
		if one.named {
			ended = append(ended, name)
		}
		one.named = false
	}
	return ended
}
