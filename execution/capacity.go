package execution

import (
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// capacity counts slots for claims: one per worker, and as many more as the workers get
// through in the time of the lookahead.
//
// What is free is shared among those who have lately asked. An owner holds its slots
// while it reads jobs and claims them; if it got all that is free, the others would wait
// for its database, which may be a slow one.
type capacity struct {
	workers int
	runs    estimate     // of all kinds
	used    atomic.Int64 // reserved, waiting or running
	kept    atomic.Int64 // workers that one run has kept for long: nothing is claimed ahead for them; see Workers.noteLong
	bytes   atomic.Int64 // of the payloads of what waits or runs
	full    atomic.Bool  // of work, in time: until a run ends only a free worker counts; see Room

	mu      sync.Mutex
	asking  recentOwners // guarded by mu
	wanting []Owner      // guarded by mu; those that were given less than they asked for, in order
	wanted  atomic.Bool  // wanting is not empty
}

func newCapacity(workers int) *capacity {
	return &capacity{workers: workers, asking: newRecentOwners(time.Now())}
}

// reserve grants up to want slots. While most of the lookahead is taken that may be none: with
// many owners each would claim a few jobs at a time, which costs their databases several times
// as much as a few of the owners at a time who claim many.
func (c *capacity) reserve(o Owner, want int) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	sharers := int64(c.asking.countSharers(o))
	granted := c.grantShare(want, sharers)
	if granted < want {
		c.await(o)
		if granted == 0 { // once more: a slot that was given up just before that has woken nobody
			granted = c.grantShare(want, sharers)
		}
	}
	return granted
}

// countFree tells how many slots are free, for somebody who does not take them now.
func (c *capacity) countFree() int { return int(max(c.freeSlots(c.used.Load()), 0)) }

// tellWhenFree has o be told once slots are free again, unless it knows of enough.
func (c *capacity) tellWhenFree(o Owner, known int) {
	if int64(known) >= c.worthTelling() {
		return
	}
	c.mu.Lock()
	c.await(o)
	c.mu.Unlock()
	c.tellWaiting(c.used.Load()) // what was given up just before has woken nobody
}

// await has o be told once slots are free again; mu is held.
func (c *capacity) await(o Owner) {
	if !slices.Contains(c.wanting, o) {
		c.wanting = append(c.wanting, o)
	}
	c.wanted.Store(true)
}

// worthTelling is how many free slots make it worth an owner's while to come.
func (c *capacity) worthTelling() int64 { return int64(max(1, c.runs.countAhead(c.turning())/2)) }

// turning is how many workers runs begin and end in.
func (c *capacity) turning() int { return max(c.workers-int(c.kept.Load()), 0) }

// grantShare takes up to want slots, and no more than a share; mu is held, so that nobody
// else takes any.
func (c *capacity) grantShare(want int, sharers int64) int {
	free := max(c.freeSlots(c.used.Load()), 0)
	n := min(int64(want), (free+sharers-1)/sharers)
	if sharers == mostSharers && c.used.Load() >= int64(c.workers) && !c.full.Load() && n < min(int64(want), c.worthTelling()/worthClaiming) {
		return 0 // what is used will be given up, and tells of it
	}
	c.used.Add(n)
	return int(n)
}

// worthClaiming is which part of the slots that are worth telling of is worth a claim.
const worthClaiming = 2 * mostSharers

// maxBytes bounds the payloads that are in memory for claims: a node gets no more of them
// while they come to that. It is a thousand of the largest that can be enqueued, and far
// more than jobs of a usual size ever need.
const maxBytes = 256 << 20

func (c *capacity) freeSlots(used int64) int64 {
	if c.bytes.Load() >= maxBytes {
		return 0
	}
	free := int64(c.workers) - used
	if !c.full.Load() {
		free += int64(c.runs.countAhead(c.turning()))
	}
	return free
}

// release gives slots back that were reserved and not used.
func (c *capacity) release(n int) {
	if n > 0 {
		c.tellWaiting(c.used.Add(-int64(n)))
	}
}

// freeSlot says that a claim has left the workers.
func (c *capacity) freeSlot() {
	c.full.Store(false)
	c.tellWaiting(c.used.Add(-1))
}

// tellWaiting tells owners that wanted more once a good part of the lookahead is free, so
// that claims stay large under load, and at once when jobs are long and every free
// worker counts. The last slot to be given up does wake them: nobody waits for ever.
func (c *capacity) tellWaiting(used int64) {
	if !c.wanted.Load() || c.freeSlots(used) < c.worthTelling() {
		return
	}
	c.mu.Lock()
	owners := c.wanting
	c.wanting = nil
	c.wanted.Store(false)
	c.mu.Unlock()
	for _, o := range owners {
		o.CapacityAvailable()
	}
}

// forget drops an owner that has stopped.
func (c *capacity) forget(o Owner) {
	c.mu.Lock()
	c.wanting = slices.DeleteFunc(c.wanting, func(other Owner) bool { return other == o })
	c.asking.forget(o)
	c.mu.Unlock()
}
