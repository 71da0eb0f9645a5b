package execution

import (
	"sync"
	"sync/atomic"
	"time"
)

// lookahead is how much work may wait for a worker, in time: long enough to hide
// the round trips of a claim, short enough that a job which was claimed for this
// node does not wait behind others while a peer is idle.
const lookahead = 100 * time.Millisecond

// maxAhead bounds the lookahead in jobs.
const maxAhead = 6000

// asksFor is how long an owner counts as one of those that the free places are for: one
// to two of these.
const asksFor = time.Second

// room counts places for claims: one per worker, and as many more as the workers
// have lately got through in the time of the lookahead.
//
// What is free is shared among those who have lately asked. An owner holds its places
// while it reads jobs and claims them; if it got all that is free, the others would wait
// for its database, which may be a slow one.
type room struct {
	workers  int
	used     atomic.Int64 // reserved, waiting or running
	finished atomic.Int64
	ahead    atomic.Int64
	bytes    atomic.Int64 // of the payloads of what waits or runs

	mu      sync.Mutex
	rate    float64 // jobs per second; guarded by mu
	since   time.Time
	counted int64
	wanting map[Owner]struct{} // those that were given less than they asked for
	wanted  atomic.Bool        // wanting is not empty

	unables map[Owner]*unables // guarded by mu; of owners whose databases were not able lately
	ables   atomic.Bool        // unables is not empty

	asking, asked map[Owner]struct{} // guarded by mu; since turned, and in the time before
	turned        time.Time          // guarded by mu
}

func newRoom(workers int) *room {
	now := time.Now()
	return &room{workers: workers, since: now, wanting: map[Owner]struct{}{}, unables: map[Owner]*unables{}, asking: map[Owner]struct{}{}, turned: now}
}

// reserve grants up to want places, one at least if any is free.
func (r *room) reserve(o Owner, want int) int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure()
	if u := r.unables[o]; u != nil && time.Now().Before(u.until) {
		return 0 // it is told when that is over
	}
	sharers := int64(r.sharers(o))
	granted := r.grant(want, sharers)
	if granted < want {
		r.wanting[o] = struct{}{}
		r.wanted.Store(true)
		if granted == 0 { // once more: a place that was given up just before that has woken nobody
			granted = r.grant(want, sharers)
		}
	}
	return granted
}

// open tells how many places are free, for somebody who does not take them now.
func (r *room) open() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.measure()
	return int(max(r.free(r.used.Load()), 0))
}

// await makes o be told once there is room again, unless it knows of enough.
func (r *room) await(o Owner, known int) {
	if int64(known) >= r.enough() {
		return
	}
	r.mu.Lock()
	r.wanting[o] = struct{}{}
	r.wanted.Store(true)
	r.mu.Unlock()
	r.wake(r.used.Load()) // what was given up just before has woken nobody
}

// enough is how much room makes it worth somebody's while to come.
func (r *room) enough() int64 { return max(1, r.ahead.Load()/2) }

// sharers is how many owners the free places are for, o being one of them; mu is held.
func (r *room) sharers(o Owner) int {
	switch passed := time.Since(r.turned); {
	case passed >= 2*asksFor:
		r.asking, r.asked, r.turned = map[Owner]struct{}{}, nil, time.Now()
	case passed >= asksFor:
		r.asking, r.asked, r.turned = map[Owner]struct{}{}, r.asking, r.turned.Add(asksFor)
	}
	r.asking[o] = struct{}{}
	return min(max(len(r.asking), len(r.asked)), mostSharers)
}

// mostSharers bounds the sharing: with many owners who ask for little now and then, the
// one that has much to do would get next to nothing.
const mostSharers = 4

// grant takes up to want places, and no more than a share; mu is held, so that nobody
// else takes any.
func (r *room) grant(want int, sharers int64) int {
	free := max(r.free(r.used.Load()), 0)
	n := min(int64(want), (free+sharers-1)/sharers)
	r.used.Add(n)
	return int(n)
}

// maxBytes bounds the payloads that are in memory for claims: a node gets no more of them
// while they come to that. It is a thousand of the largest that can be enqueued, and far
// more than jobs of a usual size ever need.
const maxBytes = 256 << 20

func (r *room) free(used int64) int64 {
	if r.bytes.Load() >= maxBytes {
		return 0
	}
	return int64(r.workers) + r.ahead.Load() - used
}

// release gives places back that were reserved and not used.
func (r *room) release(n int) {
	if n > 0 {
		r.wake(r.used.Add(-int64(n)))
	}
}

// left says that a claim has left the workers.
func (r *room) left(done bool) {
	used := r.used.Add(-1)
	if done {
		r.finished.Add(1)
	}
	r.wake(used)
}

// wake tells who wanted more once a good part of the lookahead is free, so that
// claims stay large under load, and at once when jobs are long and every free
// worker counts. Whoever gives up the last place does wake them: nobody waits for
// ever.
func (r *room) wake(used int64) {
	if !r.wanted.Load() || r.free(used) < r.enough() {
		return
	}
	r.mu.Lock()
	owners := make([]Owner, 0, len(r.wanting))
	for o := range r.wanting {
		owners = append(owners, o)
	}
	clear(r.wanting)
	r.wanted.Store(false)
	r.mu.Unlock()
	for _, o := range owners {
		o.Roomy()
	}
}

// forget drops an owner that has stopped.
func (r *room) forget(o Owner) {
	r.mu.Lock()
	delete(r.wanting, o)
	delete(r.asking, o)
	delete(r.asked, o)
	delete(r.unables, o)
	r.mu.Unlock()
}

// unables is how an owner's database has failed jobs.
type unables struct {
	inARow int
	pause  time.Duration
	until  time.Time // no places before that
}

// When so many jobs in a row could not be run by an owner's database, it gets no places for
// a while: the rest of its queue would fare no better, and connecting in vain costs a
// server that is in need.
const (
	unableInARow = 8
	firstPause   = time.Second
	longestPause = 30 * time.Second
)

// unable says that a job could not be run by its owner's database. When that is so of many
// in a row, the owner gets no more places for a while, but not for longer than most. all:
// it has got to that, and none could be run since.
func (r *room) unable(o Owner, most time.Duration) (all bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u := r.unables[o]
	if u == nil {
		u = &unables{}
		r.unables[o] = u
		r.ables.Store(true)
	}
	now := time.Now()
	if u.inARow++; u.inARow < unableInARow || now.Before(u.until) {
		return u.pause > 0
	}
	u.pause = min(max(2*u.pause, firstPause), most)
	u.inARow, u.until = 0, now.Add(u.pause)
	time.AfterFunc(u.pause, o.Roomy)
	return true
}

// able says that one could.
func (r *room) able(o Owner) {
	if !r.ables.Load() {
		return
	}
	r.mu.Lock()
	delete(r.unables, o)
	r.ables.Store(len(r.unables) > 0)
	r.mu.Unlock()
}

// rateWindow is the least time over which a rate is measured.
const rateWindow = 20 * time.Millisecond

// measure brings the rate up to date; mu is held.
func (r *room) measure() {
	now := time.Now()
	passed := now.Sub(r.since)
	if passed < rateWindow {
		return
	}
	n := r.finished.Load()
	rate := float64(n-r.counted) / passed.Seconds()
	r.since, r.counted = now, n
	// Quick to rise and slow to fall: one slow window should not shrink the claims.
	r.rate = max(rate, 0.7*r.rate+0.3*rate)
	r.ahead.Store(int64(min(maxAhead, r.rate*lookahead.Seconds())))
}
