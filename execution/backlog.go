package execution

import (
	"container/heap"
	"slices"
	"sync"
	"time"
)

// backlog holds claims that wait for a worker, and chooses which is next: the owners take
// turns, and of an owner's tenants the one whose turn began first, where a turn lasts as long as
// its jobs take. So the next free worker takes a job of a tenant that has had little, however
// many and long the jobs of others are (start-time fair queueing, Goyal and others, 1996).
// It is bounded by those who submit (see Workers.Reserve, FreeSlotsFor and Room), not here.
type backlog struct {
	share     tenantShare
	capacity  *capacity
	durations durations
	shares    func(c *ClaimedJob) int // how many jobs may share a call that c is in; nil: none does

	mu       sync.Mutex
	filled   *sync.Cond
	owners   map[Owner]*ownerQueue
	order    []*ownerQueue // those that have a tenant to serve; the next to be served first
	parked   []*queue      // of tenants that have their share; the next to be served first, as often as its weight says
	unparked bool          // who is next is not a parked one, if there is another
	waiting  int           // claims, those in parked queues among them
	aside    int           // claims in parked queues
	sharing  int           // those that share calls, in queues that are not parked
	work     time.Duration // that these claims are expected to take, those in parked queues apart
	closed   bool

	loads   map[string]*tenantLoad // by tenant
	tidied  time.Time              // when loads last was
	running int                    // of all tenants
	refused []*tenantLoad          // whose jobs are long and may have none of the free workers: the end of anybody's run may admit one
	vacated int                    // slots of waiting claims that have not been given up yet
	spare   []*queue               // empty ones, to be used again
}

// ownerQueue is the queues of an owner's tenants that may be served.
type ownerQueue struct {
	byTenant map[string]*queue // those that hold something, parked ones among them
	turns    turns
	clock    time.Duration // when the turn began that was served last, in served time
}

// queue is the claims of one tenant of an owner: first in, first out.
type queue struct {
	owner  *ownerQueue
	load   *tenantLoad
	claims []*ClaimedJob
	head   int           // index of the first one
	work   time.Duration // that they are expected to take
	turn   time.Duration // when its next turn begins, in served time
	parked bool
	served int // since it came to be parked, or behind the other parked ones
}

func (q *queue) size() int { return len(q.claims) - q.head }

// waiting lists the claims in it.
func (q *queue) waiting() []*ClaimedJob { return q.claims[q.head:] }

// turns is a heap of queues, the one whose turn began first on top.
type turns []*queue

func (t turns) Len() int           { return len(t) }
func (t turns) Less(i, j int) bool { return t[i].turn < t[j].turn }
func (t turns) Swap(i, j int)      { t[i], t[j] = t[j], t[i] }
func (t *turns) Push(q any)        { *t = append(*t, q.(*queue)) }
func (t *turns) Pop() any {
	old := *t
	q := old[len(old)-1]
	old[len(old)-1] = nil
	*t = old[:len(old)-1]
	return q
}

func newBacklog(s tenantShare, c *capacity, d durations) *backlog {
	b := &backlog{share: s, capacity: c, durations: d, owners: map[Owner]*ownerQueue{}, loads: map[string]*tenantLoad{}}
	b.filled = sync.NewCond(&b.mu)
	return b
}

// push adds a batch of one owner; false when the backlog is closed.
func (b *backlog) push(o Owner, batch []ClaimedJob) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	owner := b.owners[o]
	if owner == nil {
		owner = &ownerQueue{byTenant: map[string]*queue{}}
		b.owners[o] = owner
	}
	var q *queue
	now := time.Now()
	for i := range batch {
		c := &batch[i]
		c.queued = now
		if i == 0 || c.Record.Tenant != batch[i-1].Record.Tenant {
			q = b.queueOf(owner, c.Record.Tenant)
		}
		q.load.weight, q.load.owner = max(c.Weight, 1), o
		c.expected = b.durations.expectAnyway(c.Record.Kind)
		if b.shares != nil {
			most := b.shares(c) // by now its kind may be handled no more when it is taken
			c.joined, c.shares = most > 1, q.load.join(c.Record.Kind, most)
		}
		q.claims = append(q.claims, c)
		q.work += c.expected
		b.waiting++
		if !c.shares {
			q.load.waiting++
		}
		if q.parked {
			b.aside++
		} else {
			b.work += c.expected
			b.countSharing(c, 1)
		}
		if q.parked || c.shares {
			b.vacate(c)
		}
	}
	if len(batch) == 1 {
		b.filled.Signal()
	} else {
		b.filled.Broadcast()
	}
	return true
}

// queueOf returns the queue of an owner's tenant, which is about to hold something; mu is held.
func (b *backlog) queueOf(owner *ownerQueue, tenant string) *queue {
	q := owner.byTenant[tenant]
	if q == nil {
		if n := len(b.spare); n > 0 {
			q, b.spare = b.spare[n-1], b.spare[:n-1]
		} else {
			q = &queue{}
		}
		*q = queue{owner: owner, load: b.loadOf(tenant), turn: owner.clock, claims: q.claims[:0]}
		owner.byTenant[tenant] = q
		b.enter(q)
	}
	return q
}

// enter has a queue be served in turn; mu is held.
func (b *backlog) enter(q *queue) {
	if len(q.owner.turns) == 0 {
		b.order = append(b.order, q.owner)
	}
	heap.Push(&q.owner.turns, q)
}

// pop waits for a claim that may run now, and counts it as running until countEnd is called;
// nil when the backlog is closed. The worker that ends a run comes back for the next, and wakes one
// more, which does the same: the end may have admitted a claim of each of two tenants, as
// the one has a run less and there is a free worker more.
func (b *backlog) pop() *ClaimedJob {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		c := b.takeRunnable()
		if b.vacated > 0 {
			b.mu.Unlock()
			b.giveUpSlots()
			b.mu.Lock()
		} else if c == nil {
			b.filled.Wait()
		}
		if c != nil {
			if b.waiting > 0 {
				b.filled.Signal()
			}
			return c
		}
	}
	return nil
}

// takeRunnable chooses what a free worker runs, in turn from what was parked and may run now, and
// from what was not: so nobody waits behind all of the others. It returns nil when nothing may; mu is
// held.
func (b *backlog) takeRunnable() (c *ClaimedJob) {
	free := b.share.Of - b.running
	if b.unparked {
		if c = b.takeInTurn(free); c != nil {
			b.unparked = false
			return c
		}
	}
	if c = b.takeParked(free); c != nil {
		b.unparked = true
		return c
	}
	return b.takeInTurn(free)
}

// takeParked takes what was parked and may run now.
func (b *backlog) takeParked(free int) *ClaimedJob {
	for i, q := range b.parked {
		if !b.share.AdmitsOneMore(q.load.running, q.load.weight, free) {
			continue
		}
		c := b.takeCall(q)
		b.keepSlot(c)
		switch q.served++; {
		case q.size() == 0:
			b.parked = slices.Delete(b.parked, i, i+1)
			b.recycle(q)
		case q.served >= q.load.weight:
			q.served = 0
			b.parked = append(slices.Delete(b.parked, i, i+1), q) // behind the others
		}
		b.countRun(q.load)
		return c
	}
	return nil
}

// takeInTurn takes what is next among those that are not parked, and parks who may not run more.
func (b *backlog) takeInTurn(free int) *ClaimedJob {
	for len(b.order) > 0 {
		owner := b.order[0]
		q := owner.turns[0]
		if !b.share.AdmitsOneMore(q.load.running, q.load.weight, free) {
			b.park(q)
			continue
		}
		owner.clock = q.turn
		c := b.takeCall(q)
		for one := range c.call() {
			q.turn += one.expected / time.Duration(q.load.weight)
		}
		b.keepSlot(c)
		if q.size() > 0 {
			heap.Fix(&owner.turns, 0)
		} else {
			heap.Pop(&owner.turns)
			b.recycle(q)
		}
		b.order = append(b.order[:0], b.order[1:]...)
		if len(owner.turns) > 0 {
			b.order = append(b.order, owner)
		}
		b.countRun(q.load)
		return c
	}
	return nil
}

// giveUpSlots gives up those that waiting claims do without; it tells owners, so mu is not held.
func (b *backlog) giveUpSlots() {
	b.mu.Lock()
	n := b.vacated
	b.vacated = 0
	b.mu.Unlock()
	b.capacity.release(n)
}

// vacate has a waiting claim do without its slot; mu is held. The slot is given up when mu is not.
func (b *backlog) vacate(c *ClaimedJob) {
	if !c.slotless {
		c.slotless = true
		b.vacated++
	}
}

// keepSlot sees that a call which is about to run has one slot; mu is held.
func (b *backlog) keepSlot(c *ClaimedJob) {
	slots := 0
	for one := range c.call() {
		if !one.slotless {
			slots++
		}
	}
	if c.slotless = false; slots == 0 {
		b.capacity.used.Add(1)
	} else {
		b.vacated += slots - 1
	}
}

// countSharing counts a claim of a queue that is not parked, if it shares a call; mu is held.
func (b *backlog) countSharing(c *ClaimedJob, n int) {
	if c.shares {
		b.sharing += n
	}
}

// takeCall takes a queue's first claim, and with it those that may share its call; mu is held.
func (b *backlog) takeCall(q *queue) *ClaimedJob {
	c := b.takeFirst(q)
	if b.shares == nil {
		return c
	}
	if most := b.shares(c); most > 1 {
		b.takeAlike(q, c, most)
	}
	return c
}

// takeAlike takes claims out of a queue that share the call of c, so that most come together; mu
// is held.
func (b *backlog) takeAlike(q *queue, c *ClaimedJob, most int) {
	var taken []int
	for i := q.head; i < len(q.claims) && c.size() < most; i++ {
		other := q.claims[i]
		if !c.isLike(other) {
			continue
		}
		if n := b.shares(other); n > c.size() {
			most = min(most, n)
			c.with = append(c.with, other)
			taken = append(taken, i)
		}
	}
	if len(taken) == 0 {
		return
	}
	// What was passed over moves up to what comes behind the last one taken.
	to := taken[len(taken)-1] + 1
	for i, t := to-1, len(taken)-1; i >= q.head; i-- {
		if t >= 0 && taken[t] == i {
			t--
			continue
		}
		to--
		q.claims[to] = q.claims[i]
	}
	clear(q.claims[q.head:to])
	q.head = to
	for _, other := range c.with {
		b.countTaken(q, other)
	}
}

// takeFirst takes a queue's first claim; mu is held.
func (b *backlog) takeFirst(q *queue) *ClaimedJob {
	c := q.claims[q.head]
	q.claims[q.head] = nil
	q.head++
	b.countTaken(q, c)
	return c
}

// takeLast takes a queue's last claim; mu is held.
func (b *backlog) takeLast(q *queue) *ClaimedJob {
	n := len(q.claims) - 1
	c := q.claims[n]
	q.claims[n] = nil
	q.claims = q.claims[:n]
	b.countTaken(q, c)
	return c
}

// takeAll takes all of a queue's claims; mu is held.
func (b *backlog) takeAll(q *queue) (all []*ClaimedJob) {
	for q.size() > 0 {
		all = append(all, b.takeFirst(q))
	}
	if q.parked {
		b.parked = slices.DeleteFunc(b.parked, func(p *queue) bool { return p == q })
	} else {
		b.leaveTurns(q)
	}
	b.recycle(q)
	return all
}

// countTaken notes that a claim was taken from a queue; mu is held.
func (b *backlog) countTaken(q *queue, c *ClaimedJob) {
	q.work -= c.expected
	b.waiting--
	if !c.shares {
		q.load.waiting--
	}
	if c.joined {
		q.load.batches[c.Record.Kind]--
	}
	if q.parked {
		b.aside--
	} else {
		b.work -= c.expected
		b.countSharing(c, -1)
	}
	if q.size() == 0 {
		delete(q.owner.byTenant, c.Record.Tenant)
		if len(q.owner.byTenant) == 0 {
			delete(b.owners, c.Owner)
		}
	}
}

// mostSpare bounds the empty queues that are kept.
const mostSpare = 1000

// recycle keeps an empty queue, to be used again; mu is held.
func (b *backlog) recycle(q *queue) {
	if len(b.spare) < mostSpare {
		b.spare = append(b.spare, q)
	}
}

// park keeps the queue that is next until its tenant may run more; mu is held. The slots of its
// claims are given up when mu is not.
func (b *backlog) park(q *queue) {
	b.leaveTurns(q)
	q.parked = true
	b.aside += q.size()
	b.work -= q.work
	for _, c := range q.waiting() {
		b.countSharing(c, -1)
		b.vacate(c)
	}
	b.parked = append(b.parked, q)
}

// leaveTurns has a queue be served in turn no more; mu is held.
func (b *backlog) leaveTurns(q *queue) {
	heap.Remove(&q.owner.turns, slices.Index(q.owner.turns, q))
	if len(q.owner.turns) == 0 {
		b.order = slices.DeleteFunc(b.order, func(o *ownerQueue) bool { return o == q.owner })
	}
}

// close ends pop and push, and hands out what was still waiting.
func (b *backlog) close() (rest []*ClaimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.filled.Broadcast()
	for _, owner := range b.owners {
		for _, q := range owner.byTenant {
			rest = append(rest, q.waiting()...)
			q.load.waiting = 0
		}
	}
	b.capacity.used.Add(-int64(b.vacated))
	b.owners, b.order, b.parked, b.waiting, b.aside, b.sharing, b.work, b.vacated = nil, nil, nil, 0, 0, 0, 0, 0
	return rest
}

// farOff is when a claim's turn is too far off for it to wait here: a peer may be idle.
const farOff = 30 * lookahead

// takeFarOff takes out claims whose turn is far off, by what their kinds take by now, down to the
// lookahead, and those that have waited for long where no run has begun or ended; anyone who asked for it
// gives up their slots. Those stay that free workers are about to take.
func (b *backlog) takeFarOff(now time.Time) (far []*ClaimedJob) {
	b.mu.Lock()
	defer b.mu.Unlock()
	free, longAgo := b.share.Of-b.running, now.Add(-farOff)
	for _, owner := range b.owners {
		for _, q := range owner.byTenant {
			stands := b.capacity.turning() == 0 || q.parked && q.load.seen.Before(longAgo)
			if stands && q.claims[q.head].queued.Before(longAgo) {
				far = append(far, b.takeAll(q)...)
				continue
			}
			workers := time.Duration(max(q.load.running, 1))
			ahead, keep := time.Duration(0), q.size()
			for i, c := range q.waiting() {
				if ahead <= lookahead*workers {
					keep = i + 1
				}
				took, _ := b.durations.expect(c.Record.Kind)
				ahead += took
			}
			if ahead <= farOff*workers {
				continue
			}
			if b.share.AdmitsOneMore(q.load.running, q.load.weight, free) {
				keep = max(keep, free)
			}
			for q.size() > keep {
				far = append(far, b.takeLast(q))
			}
		}
	}
	return far
}

func (b *backlog) freeFor(o Owner, tenant string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.loadOf(tenant)
	n := b.freeSlots(l)
	if n == 0 {
		b.refuse(l, o)
	}
	return n
}

// freeSlots is how many more claims of a tenant are of use here; mu is held.
func (b *backlog) freeSlots(l *tenantLoad) int {
	return max(l.freeSlots(b.share, b.share.Of-b.running), 0)
}

// refuse has o be told once more claims of a tenant are of use; mu is held.
func (b *backlog) refuse(l *tenantLoad, o Owner) {
	l.wanting = o
	if !l.refused && l.countAhead(b.share) == 0 {
		l.refused = true
		b.refused = append(b.refused, l)
	}
}

func (b *backlog) fullTenants(o Owner, most int) (tenants []string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	add := func(tenant string, l *tenantLoad) {
		if size := len(tenant) + separator; size <= most && b.freeSlots(l) == 0 {
			b.refuse(l, o)
			tenants = append(tenants, tenant)
			most -= size
		}
	}
	if b.capacity.kept.Load() > 0 { // else who runs something gets on soon
		for tenant, l := range b.loads {
			if l.owner == o && l.running > 0 {
				add(tenant, l)
			}
		}
	} else if owner := b.owners[o]; owner != nil {
		for tenant, q := range owner.byTenant {
			if q.parked {
				add(tenant, q.load)
			}
		}
	}
	return tenants
}

// separator is what stands around a name in a list of them.
const separator = 3

// countWaiting counts the claims that wait for a worker.
func (b *backlog) countWaiting() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.waiting
}

// loadOf returns a tenant's load; mu is held.
func (b *backlog) loadOf(tenant string) *tenantLoad {
	l := b.loads[tenant]
	if l == nil {
		now := time.Now()
		if now.Sub(b.tidied) > forgetLoad {
			b.tidied = now
			for t, l := range b.loads {
				if l.isIdle(now) {
					delete(b.loads, t)
				}
			}
		}
		l = &tenantLoad{weight: 1, seen: now}
		b.loads[tenant] = l
	}
	return l
}

// countRun counts a run of the tenant's; mu is held.
func (b *backlog) countRun(l *tenantLoad) {
	l.seen = time.Now()
	l.running++
	b.running++
}

// countEnd counts the end of a run, or that another worker stands in for it. took is how long it
// has run; 0: it did not.
func (b *backlog) countEnd(tenant string, took time.Duration) {
	b.mu.Lock()
	l := b.loads[tenant]
	l.running--
	b.running--
	if took > 0 {
		l.runs.note(took)
		l.seen = time.Now()
	}
	tell := b.whoWants(l)
	var others []Owner
	b.refused = slices.DeleteFunc(b.refused, func(l *tenantLoad) bool {
		if o := b.whoWants(l); o != nil {
			others = append(others, o)
		}
		l.refused = l.wanting != nil
		return !l.refused
	})
	b.mu.Unlock()
	if tell != nil {
		tell.CapacityAvailable()
	}
	for _, o := range slices.Compact(others) {
		o.CapacityAvailable()
	}
}

// whoWants is who is to be told that more claims of a tenant are of use now; nil: nobody. mu is held.
func (b *backlog) whoWants(l *tenantLoad) (tell Owner) {
	if l.wanting != nil && b.freeSlots(l) >= max(1, l.countAhead(b.share)/2) {
		tell, l.wanting = l.wanting, nil
	}
	return tell
}

// countBytes counts a claim's payload with its tenant, or, with -1, no longer.
func (b *backlog) countBytes(c *ClaimedJob, sign int64) {
	if c.bytes < smallPayload {
		return
	}
	b.mu.Lock()
	l := b.loadOf(c.Record.Tenant)
	l.bytes += sign * int64(c.bytes)
	tell := b.whoWants(l)
	b.mu.Unlock()
	if tell != nil {
		tell.CapacityAvailable()
	}
}

// raise takes in how long a run has taken that has not ended.
func (b *backlog) raise(tenant string, took time.Duration) {
	b.mu.Lock()
	b.loads[tenant].runs.raise(took)
	b.mu.Unlock()
}

// hasNothingOf tells whether nothing of a tenant waits, or runs.
func (b *backlog) hasNothingOf(tenant string, runs bool) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	l := b.loads[tenant]
	return l == nil || l.waiting == 0 && (l.running == 0 || !runs)
}

// countAlike counts a tenant's waiting claims of a kind that comes in batches.
func (b *backlog) countAlike(tenant, kind string) int {
	b.mu.Lock()
	defer b.mu.Unlock()
	if l := b.loads[tenant]; l != nil {
		return l.batches[kind]
	}
	return 0
}

// room is how much more work may wait here now; see Workers.Room.
func (b *backlog) room() (free int, left time.Duration) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.share.Of - b.running - (b.waiting - b.aside - b.sharing), time.Duration(b.capacity.turning())*lookahead - b.work
}
