package dashboard

import (
	"context"
	"sync"
	"time"

	"github.com/tenurehq/tenure/operate"
)

const (
	// countWithin is how long a count may take: each of them is read.
	countWithin = time.Minute
	// countRests is how many times as long as a count took nothing is counted after it, whoever looks.
	countRests = 20
	// countFailed is for how long nothing is counted after a count that failed.
	countFailed = 10 * time.Second
	// countKept is for how long a count is kept that nobody asks for.
	countKept = time.Minute
	// countsKept is how many are kept: what they are of is in visitors' hands.
	countsKept = 200
	// countsAtOnce is how many are made at a time: visitors make up what they ask for.
	countsAtOnce = 4
)

// counts are of jobs, or of dead letters by their groups, for all who look: every tab asks again each two seconds, and
// a count reads each of them.
type counts[P comparable, T any] struct {
	count func(context.Context, P) (T, error)

	mu      sync.Mutex
	last    map[P]*counting[T] // guarded by mu
	running int                // guarded by mu
}

// counting is the last count of a part.
type counting[T any] struct {
	begun, ended time.Time // zero: none has ended
	found        T
	err          error         // found is not all
	counting     chan struct{} // closed when the count that is under way has ended; nil: none is
	asked        time.Time
	newer        time.Time // what was counted before then does not count any more
}

func (c *counting[T]) known() bool { return !c.begun.IsZero() && !c.begun.Before(c.newer) }

func newCounts[P comparable, T any](count func(context.Context, P) (T, error)) *counts[P, T] {
	return &counts[P, T]{last: map[P]*counting[T]{}, count: count}
}

func newDeadCounts(op *operate.Operator) *counts[scope, []operate.DeadGroup] {
	return newCounts(func(ctx context.Context, part scope) ([]operate.DeadGroup, error) {
		return op.DeadLetters().Groups(ctx, operate.DeadFilter{Pool: part.pool, Tenant: part.tenant})
	})
}

// of is the last count of a part: one that has just been made where that was known to nobody, and where it takes longer
// than ctx, one that has not begun. What it found is everybody's.
func (d *counts[P, T]) of(ctx context.Context, part P) counting[T] {
	for {
		c, end := d.look(part)
		if end == nil || c.known() && time.Since(c.begun) <= oldAfter || !wait(end, ctx.Done()) {
			return c
		}
	}
}

// look has a part counted if it is time, and returns what ends when that has been done.
func (d *counts[P, T]) look(part P) (counting[T], chan struct{}) {
	now := time.Now()
	d.mu.Lock()
	defer d.mu.Unlock()
	c := d.last[part]
	if c == nil {
		d.forget(now)
		c = &counting[T]{}
		d.last[part] = c
	}
	c.asked = now
	rest := max(time.Second, countRests*c.ended.Sub(c.begun))
	if c.err != nil {
		rest = countFailed
	}
	if c.counting == nil && d.running < countsAtOnce && (!c.known() || now.Sub(c.ended) >= rest) {
		d.running++
		c.counting = make(chan struct{})
		go d.renew(part, c) // ends within countWithin
	}
	return *c, c.counting
}

// forget makes room for one more; the caller holds mu.
func (d *counts[P, T]) forget(now time.Time) {
	var oldest P
	for part, c := range d.last {
		if c.counting == nil && now.Sub(c.asked) > countKept {
			delete(d.last, part)
		} else if o := d.last[oldest]; o == nil || c.asked.Before(o.asked) {
			oldest = part
		}
	}
	if len(d.last) >= countsKept {
		delete(d.last, oldest)
	}
}

func (d *counts[P, T]) renew(part P, c *counting[T]) {
	begun := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), countWithin) // for all who look, whichever of them goes
	defer cancel()
	found, err := d.count(ctx, part)
	d.mu.Lock()
	defer d.mu.Unlock()
	c.begun, c.ended, c.found, c.err = begun, time.Now(), found, err
	close(c.counting)
	c.counting = nil
	d.running--
}

// expire has the next who looks wait for what is newer than an action.
func (d *counts[P, T]) expire() {
	d.mu.Lock()
	defer d.mu.Unlock()
	for _, c := range d.last {
		c.newer = time.Now()
	}
}
