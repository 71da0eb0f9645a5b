package acquisition

import (
	"sync"
	"time"
)

// allotments are the parts of a node's free slots that it has told the holders of other locks
// of: each slot is told to one of them at a time, so that together they assign no more than
// there is. What a holder does not use is told to another after a while. What this node's own
// terms claim meanwhile does not ask here, and comes on top. The zero value is ready to use.
// Safe for concurrent use.
type allotments struct {
	mu     sync.Mutex
	byPool map[string]*allotment // guarded by mu
}

// allotment is what the holder of one pool's lock may have been told of.
type allotment struct {
	told   [3]int    // most slots since turned, and in the two times recheckEvery before, less the jobs that came
	turned time.Time // when the first of them was begun
	asked  time.Time // when it was last to be told
	unused time.Time // since when it is told of slots and uses none; zero: it uses them, or there are none
	lapsed bool      // it has used none since it let them lapse
}

// allottedFor is how long a holder assigns jobs after it was told of slots, and how long at
// least those are kept for it; at most for half as long again. It is told twice in that time.
const allottedFor = 2 * recheckEvery

// allot returns of how many of the free slots a pool's holder is to be told now: of none that
// are kept for others, and of its part, if others could use them, too. One that has used none
// since it was last told is told of one, and later for a while of none.
func (as *allotments) allot(pool string, free int, now time.Time) int {
	as.mu.Lock()
	defer as.mu.Unlock()
	kept, others := as.countOthers(pool, now)
	a := as.byPool[pool]
	if a == nil {
		if as.byPool == nil {
			as.byPool = map[string]*allotment{}
		}
		a = &allotment{}
		as.byPool[pool] = a
	}
	n := max(min((free+others)/(others+1), free-kept), 0)
	if others > 0 {
		n = a.bound(n, now)
	}
	a.tell(n, now)
	return n
}

// countOthers counts the slots that are kept for other holders, and those of them that use what
// they are told of; mu is held.
func (as *allotments) countOthers(pool string, now time.Time) (kept, users int) {
	for other, a := range as.byPool {
		switch {
		case other == pool:
		case now.Sub(a.asked) > 2*allottedFor:
			delete(as.byPool, other)
		default:
			kept += a.kept(now)
			if !a.isUnused(now) {
				users++
			}
		}
	}
	return kept, users
}

// note takes in that jobs of a pool came, for which slots were taken.
func (as *allotments) note(pool string, jobs int, now time.Time) {
	as.mu.Lock()
	defer as.mu.Unlock()
	if a := as.byPool[pool]; a != nil {
		a.kept(now)
		for i := range a.told {
			a.told[i] = max(a.told[i]-jobs, 0)
		}
		a.unused, a.lapsed = time.Time{}, false
	}
}

// kept is how many slots are kept for the holder.
func (a *allotment) kept(now time.Time) int {
	for ; now.Sub(a.turned) >= recheckEvery && a.told != [3]int{}; a.turned = a.turned.Add(recheckEvery) {
		a.told = [3]int{0, a.told[0], a.told[1]}
	}
	return max(a.told[0], a.told[1], a.told[2])
}

// isUnused tells whether the holder lets slots lapse.
func (a *allotment) isUnused(now time.Time) bool {
	return !a.unused.IsZero() && now.Sub(a.unused) >= 2*allottedFor
}

// bound is how many of n slots a holder is told of that may have used none lately.
func (a *allotment) bound(n int, now time.Time) int {
	if a.isUnused(now) {
		a.lapsed = true
		if now.Sub(a.unused) < 4*allottedFor {
			return 0
		}
		a.unused = time.Time{}
	}
	if a.lapsed || !a.unused.IsZero() && now.Sub(a.unused) >= recheckEvery {
		return min(n, 1)
	}
	return n
}

// tell notes that the holder is told of n slots.
func (a *allotment) tell(n int, now time.Time) {
	if a.kept(now) == 0 {
		a.turned = now
	}
	a.told[0], a.asked = max(a.told[0], n), now
	switch {
	case n > 0 && a.unused.IsZero():
		a.unused = now
	case n == 0 && !a.isUnused(now):
		a.unused = time.Time{}
	}
}
