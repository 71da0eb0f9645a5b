package execution

import (
	"sync"
	"time"
)

// backlog holds claims that wait for a worker: one queue per owner, served in turn, and
// apart from them those of tenants that have their share of the workers. It is bounded by
// whoever submits (see Workers.Reserve and RoomFor), not here.
type backlog struct {
	share share
	room  *room

	mu     sync.Mutex
	filled *sync.Cond
	queues map[Owner]*queue
	turns  []*queue // those that hold something; the next to be served first
	size   int      // of the queues
	closed bool

	loads   map[string]*load // by tenant
	tidied  time.Time        // when loads last was
	running int              // of all tenants
	crowded []*load          // those with claims set aside; the next to be served first
	aside   int              // claims that are
	vacated int              // of them, those whose places have not been given up yet
}

// queue is a first-in-first-out list of batches.
type queue struct {
	batches [][]Claim
	next    int // index into batches[0]
}

func newBacklog(s share, r *room) *backlog {
	b := &backlog{share: s, room: r, queues: map[Owner]*queue{}, loads: map[string]*load{}}
	b.filled = sync.NewCond(&b.mu)
	return b
}

// push adds a batch of one owner; false when the backlog is closed.
func (b *backlog) push(o Owner, batch []Claim) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.closed {
		return false
	}
	q := b.queues[o]
	if q == nil {
		q = &queue{}
		b.queues[o] = q
	}
	if len(q.batches) == 0 {
		b.turns = append(b.turns, q)
	}
	q.batches = append(q.batches, batch)
	b.size += len(batch)
	var l *load
	for i := range batch {
		if i == 0 || batch[i].Record.Tenant != batch[i-1].Record.Tenant {
			l = b.load(batch[i].Record.Tenant)
		}
		l.waiting++
	}
	if len(batch) == 1 {
		b.filled.Signal()
	} else {
		b.filled.Broadcast()
	}
	return true
}

// pop waits for a claim that may run now, and counts it as running until ended is called;
// nil when the backlog is closed. Whoever ends a run comes back for the next, so that
// nobody else has to be woken for what that run was in the way of.
func (b *backlog) pop() *Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	for !b.closed {
		c := b.next()
		if n := b.vacated; n > 0 {
			b.vacated = 0
			b.mu.Unlock()
			b.room.release(n) // tells owners
			b.mu.Lock()
		} else if c == nil {
			b.filled.Wait()
		}
		if c != nil {
			return c
		}
	}
	return nil
}

// take removes the claim whose turn it is; mu is held and size is not 0.
func (b *backlog) take() *Claim {
	q := b.turns[0]
	c := &q.batches[0][q.next]
	q.next++
	b.size--
	if q.next == len(q.batches[0]) {
		q.batches[0] = nil
		q.batches, q.next = q.batches[1:], 0
	}
	if len(b.turns) > 1 {
		copy(b.turns, b.turns[1:])
		b.turns = b.turns[:len(b.turns)-1]
		if len(q.batches) > 0 {
			b.turns = append(b.turns, q)
		}
	} else if len(q.batches) == 0 {
		b.turns = b.turns[:0]
	}
	if len(q.batches) == 0 {
		delete(b.queues, c.Owner)
	}
	return c
}

// close ends pop and push, and hands out what was still waiting.
func (b *backlog) close() []*Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.closed = true
	b.filled.Broadcast()
	var rest []*Claim
	for b.size > 0 {
		rest = append(rest, b.take())
	}
	for _, l := range b.crowded {
		rest = append(rest, l.aside...)
	}
	b.room.used.Add(int64(b.aside)) // as whoever takes them gives up a place for each
	b.crowded, b.aside = nil, 0
	return rest
}
