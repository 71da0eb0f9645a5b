package execution

import "sync"

// backlog holds claims that wait for a worker: one queue per owner, served in
// turn. It is bounded by whoever submits (see Workers.Reserve), not here.
type backlog struct {
	mu     sync.Mutex
	filled *sync.Cond
	queues map[Owner]*queue
	turns  []*queue // those that hold something; the next to be served first
	size   int
	closed bool
}

// queue is a first-in-first-out list of batches.
type queue struct {
	batches [][]Claim
	next    int // index into batches[0]
}

func newBacklog() *backlog {
	b := &backlog{queues: map[Owner]*queue{}}
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
	if len(batch) == 1 {
		b.filled.Signal()
	} else {
		b.filled.Broadcast()
	}
	return true
}

// pop waits for a claim; nil when the backlog is closed.
func (b *backlog) pop() *Claim {
	b.mu.Lock()
	defer b.mu.Unlock()
	for b.size == 0 && !b.closed {
		b.filled.Wait()
	}
	if b.closed {
		return nil
	}
	return b.take()
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
	return rest
}
