package tenure

import (
	"sync"
	"time"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/membership"
)

// hint is what an enqueue tells the acquirer of a pool.
type hint struct {
	pool  string
	lanes map[store.Lane]struct{}
	dueIn time.Duration // of the first timer; 0: no timer
}

func (h *hint) add(j *store.NewJob) {
	if j.Later() {
		in := j.DueIn
		if !j.DueAt.IsZero() {
			in = max(time.Until(j.DueAt), time.Nanosecond)
		}
		if h.dueIn == 0 || in < h.dueIn {
			h.dueIn = in
		}
		return
	}
	if h.lanes == nil {
		h.lanes = map[store.Lane]struct{}{}
	}
	h.lanes[j.Lane()] = struct{}{}
}

func (h *hint) merge(o hint) {
	if h.lanes == nil {
		h.lanes = map[store.Lane]struct{}{}
	}
	for l := range o.lanes {
		h.lanes[l] = struct{}{}
	}
	if o.dueIn > 0 && (h.dueIn == 0 || o.dueIn < h.dueIn) {
		h.dueIn = o.dueIn
	}
}

// doorbell tells acquirers that jobs were enqueued, at most once per ringEvery and
// pool. Nothing depends on it but how soon a job starts.
type doorbell struct {
	cluster *membership.Cluster
	manager *acquisition.Manager // of this process; nil: it runs no jobs

	mu      sync.Mutex
	waiting map[string]*hint     // guarded by mu; by pool: to be sent when its time comes
	rung    map[string]time.Time // guarded by mu
	later   map[string]*echo     // guarded by mu
	stopped bool                 // guarded by mu
}

// ringEvery bounds the messages a busy enqueuer sends.
const ringEvery = 2 * time.Millisecond

// echoes are when to ring for a job whose transaction somebody else commits: most
// commit at once, and a ring too many costs the acquirer one look.
var echoes = []time.Duration{4 * time.Millisecond, 30 * time.Millisecond, 250 * time.Millisecond}

type echo struct {
	hint hint
	next int // index into echoes
}

func newDoorbell(cluster *membership.Cluster, manager *acquisition.Manager) *doorbell {
	return &doorbell{cluster: cluster, manager: manager,
		waiting: map[string]*hint{}, rung: map[string]time.Time{}, later: map[string]*echo{}}
}

// ring tells of jobs that are committed.
func (d *doorbell) ring(h hint) {
	if len(h.lanes) == 0 && h.dueIn == 0 {
		return
	}
	d.mu.Lock()
	if d.stopped {
		d.mu.Unlock()
		return
	}
	if w := d.waiting[h.pool]; w != nil {
		w.merge(h)
		d.mu.Unlock()
		return
	}
	now := time.Now()
	if rest := ringEvery - now.Sub(d.rung[h.pool]); rest > 0 {
		d.waiting[h.pool] = &h
		time.AfterFunc(rest, func() { d.flush(h.pool) })
		d.mu.Unlock()
		return
	}
	d.rung[h.pool] = now
	d.mu.Unlock()
	d.send(h)
}

func (d *doorbell) flush(pool string) {
	d.mu.Lock()
	h := d.waiting[pool]
	delete(d.waiting, pool)
	d.rung[pool] = time.Now()
	stopped := d.stopped
	d.mu.Unlock()
	if h != nil && !stopped {
		d.send(*h)
	}
}

// ringLater tells of jobs that somebody else commits, soon.
func (d *doorbell) ringLater(h hint) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.stopped || len(h.lanes) == 0 && h.dueIn == 0 {
		return
	}
	if e := d.later[h.pool]; e != nil {
		e.hint.merge(h)
		e.next = 0
		return
	}
	d.later[h.pool] = &echo{hint: h}
	time.AfterFunc(echoes[0], func() { d.echo(h.pool) })
}

func (d *doorbell) echo(pool string) {
	d.mu.Lock()
	e := d.later[pool]
	if e == nil || d.stopped {
		d.mu.Unlock()
		return
	}
	h := hint{pool: pool}
	h.merge(e.hint)
	e.next++
	if e.next == len(echoes) {
		delete(d.later, pool)
	} else {
		time.AfterFunc(echoes[e.next]-echoes[e.next-1], func() { d.echo(pool) })
	}
	d.mu.Unlock()
	d.ring(h)
}

// stop ends ringing.
func (d *doorbell) stop() {
	d.mu.Lock()
	d.stopped = true
	d.mu.Unlock()
}

// send tells this process' acquirer, which sends on what is not its own, or the
// elected node. Jobs and timers are told apart on the wire.
func (d *doorbell) send(h hint) {
	if h.dueIn > 0 {
		d.deliver(acquisition.Hint{Pool: h.pool, DueIn: h.dueIn})
	}
	if len(h.lanes) > 0 {
		out := acquisition.Hint{Pool: h.pool, Lanes: make([]store.Lane, 0, len(h.lanes))}
		for l := range h.lanes {
			out.Lanes = append(out.Lanes, l)
		}
		d.deliver(out)
	}
}

func (d *doorbell) deliver(h acquisition.Hint) {
	if d.manager != nil && d.manager.Holds(h.Pool) {
		d.manager.Hint(h)
		return
	}
	m, ok := d.cluster.Elected(h.Pool)
	switch {
	case ok && m.Name != d.cluster.Self().Name:
		_ = d.cluster.Send(m.Name, acquisition.MessageHint, h.Encode()) // the acquirer looks by itself, a little later
	case d.manager != nil:
		d.manager.Hint(h)
	}
}
