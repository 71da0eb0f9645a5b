package notify

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
)

// Hint is what an enqueue tells the acquirer of a pool.
type Hint struct {
	Pool  string
	DueIn time.Duration // of the first timer; 0: no timer
	timer job.ID        // which that is; 0: it is not known
	lanes map[store.Lane]job.ID
}

// AddJob adds where a job waits, or when it is due. Its id is 0 as long as it is not known.
func (h *Hint) AddJob(j *store.NewJob, id job.ID) {
	if j.Awaits() { // which the holder sees when it looks at the timers
		h.addTimer(time.Nanosecond, id)
		return
	}
	if !j.Later() {
		h.addLane(j.Lane(), id)
		return
	}
	in := j.DueIn
	if !j.DueAt.IsZero() {
		in = max(time.Until(j.DueAt), time.Nanosecond)
	}
	h.addTimer(in, id)
}

// AddLane adds a lane in which a job waits.
func (h *Hint) AddLane(l store.Lane) { h.addLane(l, 0) }

func (h *Hint) addLane(l store.Lane, id job.ID) {
	if h.lanes == nil {
		h.lanes = map[store.Lane]job.ID{}
	}
	h.lanes[l] = id
}

// AddTimer adds that a timer is due in so long; 0: none is.
func (h *Hint) AddTimer(in time.Duration) { h.addTimer(in, 0) }

func (h *Hint) addTimer(in time.Duration, id job.ID) {
	if in > 0 && (h.DueIn == 0 || in < h.DueIn) {
		h.DueIn, h.timer = in, id
	}
}

func (h *Hint) merge(o Hint) {
	for l, id := range o.lanes {
		h.addLane(l, id)
	}
	h.addTimer(o.DueIn, o.timer)
}

// mostIDs bounds the jobs that a database is told of by their ids.
const mostIDs = 100

// jobs are those of which the pool's database tells the holder: what it tells anybody can hear, who connects, so it names
// no tenants. None: the holder is to look, as an id is not known or there are too many.
func (h *Hint) jobs() (ids []job.ID) {
	if len(h.lanes) > mostIDs {
		return nil
	}
	for _, id := range h.lanes {
		ids = append(ids, id)
	}
	if h.DueIn > 0 {
		ids = append(ids, h.timer)
	}
	if slices.Contains(ids, 0) {
		return nil
	}
	return ids
}

func (h *Hint) isEmpty() bool { return len(h.lanes) == 0 && h.DueIn == 0 }

// Acquirer takes hints for the pools whose lock it holds: an *acquisition.Manager.
type Acquirer interface {
	Holds(pool string) bool
	Hint(acquisition.Hint)
}

// Database tells the holder of a pool's lock of jobs, where gossip reaches no node.
type Database func(ctx context.Context, pool string, jobs []job.ID) error

// Notifier sends hints, at most one per notifyEvery and pool.
type Notifier struct {
	cluster  *membership.Cluster
	acquirer Acquirer // of this process; nil: it runs no jobs
	database Database
	telling  sync.WaitGroup // by the database

	mu       sync.Mutex
	waiting  map[string]*Hint     // guarded by mu; by pool: to be sent when its time comes
	notified map[string]time.Time // guarded by mu
	repeated map[string]*repeat   // guarded by mu
	busy     map[string]bool      // guarded by mu; pools whose database is being told
	stopped  bool                 // guarded by mu
}

// notifyEvery bounds the messages that a busy enqueuer sends.
const notifyEvery = 2 * time.Millisecond

// repeats are when to notify of a job whose transaction somebody else commits: most
// commit at once, and a hint too many costs the acquirer one query. Each is some eight times
// as late as the one before: the last a quarter of a second after the job.
var repeats = []time.Duration{2 * notifyEvery, 15 * notifyEvery, 125 * notifyEvery}

type repeat struct {
	hint Hint
	next int // index into repeats
}

// tellTimeout bounds how long a database is told of a job, and so how long Stop takes.
const tellTimeout = 1000 * notifyEvery

// New returns a notifier of a process that runs no jobs.
func New(cluster *membership.Cluster, database Database) *Notifier {
	return &Notifier{cluster: cluster, database: database,
		waiting: map[string]*Hint{}, notified: map[string]time.Time{}, repeated: map[string]*repeat{}, busy: map[string]bool{}}
}

// SetAcquirer says who acquires jobs in this process. It must be called before the first hint.
func (n *Notifier) SetAcquirer(a Acquirer) { n.acquirer = a }

// Notify tells of jobs that are committed.
func (n *Notifier) Notify(h Hint) {
	if h.isEmpty() {
		return
	}
	n.mu.Lock()
	if n.stopped {
		n.mu.Unlock()
		return
	}
	if w := n.waiting[h.Pool]; w != nil {
		w.merge(h)
		n.mu.Unlock()
		return
	}
	now := time.Now()
	if rest := notifyEvery - now.Sub(n.notified[h.Pool]); rest > 0 {
		n.waiting[h.Pool] = &h
		time.AfterFunc(rest, func() { n.flush(h.Pool) })
		n.mu.Unlock()
		return
	}
	n.notified[h.Pool] = now
	n.mu.Unlock()
	n.send(h)
}

// HasPending tells whether the acquirer of a pool is still to be told of jobs.
func (n *Notifier) HasPending(pool string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.waiting[pool] != nil || n.repeated[pool] != nil
}

func (n *Notifier) flush(pool string) {
	n.mu.Lock()
	h := n.waiting[pool]
	delete(n.waiting, pool)
	n.notified[pool] = time.Now()
	stopped := n.stopped
	n.mu.Unlock()
	if h != nil && !stopped {
		n.send(*h)
	}
}

// NotifyLater tells of jobs that somebody else commits, soon.
func (n *Notifier) NotifyLater(h Hint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.stopped || h.isEmpty() {
		return
	}
	if r := n.repeated[h.Pool]; r != nil {
		r.hint.merge(h)
		r.next = 0
		return
	}
	n.repeated[h.Pool] = &repeat{hint: h}
	time.AfterFunc(repeats[0], func() { n.notifyAgain(h.Pool) })
}

func (n *Notifier) notifyAgain(pool string) {
	n.mu.Lock()
	r := n.repeated[pool]
	if r == nil || n.stopped {
		n.mu.Unlock()
		return
	}
	h := Hint{Pool: pool}
	h.merge(r.hint)
	r.next++
	if r.next == len(repeats) {
		delete(n.repeated, pool)
	} else {
		time.AfterFunc(repeats[r.next]-repeats[r.next-1], func() { n.notifyAgain(pool) })
	}
	n.mu.Unlock()
	n.Notify(h)
}

// Stop makes it send nothing more, and waits for what is being sent.
func (n *Notifier) Stop() {
	n.mu.Lock()
	n.stopped = true
	n.mu.Unlock()
	n.telling.Wait()
}

// send tells this process' acquirer, which sends on what is not its own, or the
// elected node. Jobs and timers are told apart on the wire.
func (n *Notifier) send(h Hint) {
	m, ok := n.cluster.Elected(h.Pool)
	deliver := func(wire acquisition.Hint) {
		_ = n.cluster.Send(m.Name, acquisition.MessageHint, wire.Encode()) // the acquirer looks by itself, a little later
	}
	switch {
	case n.acquirer != nil && (n.acquirer.Holds(h.Pool) || !ok || m.Name == n.cluster.Self().Name):
		deliver = n.acquirer.Hint
	case !ok || m.Name == n.cluster.Self().Name:
		n.tellDatabase(h)
		return
	}
	if h.DueIn > 0 {
		deliver(acquisition.Hint{Pool: h.Pool, DueIn: h.DueIn})
	}
	if len(h.lanes) > 0 {
		deliver(acquisition.Hint{Pool: h.Pool, Lanes: slices.Collect(maps.Keys(h.lanes))})
	}
}

// tellDatabase tells the holder by the pool's database, once at a time: what comes meanwhile is
// told together.
func (n *Notifier) tellDatabase(h Hint) {
	n.mu.Lock()
	defer n.mu.Unlock()
	switch {
	case n.stopped:
	case n.busy[h.Pool]:
		time.AfterFunc(notifyEvery, func() { n.Notify(h) })
	default:
		n.busy[h.Pool] = true
		n.telling.Go(func() {
			ctx, cancel := context.WithTimeout(context.Background(), tellTimeout)
			defer cancel()
			_ = n.database(ctx, h.Pool, h.jobs()) // the acquirer looks by itself, a little later
			n.mu.Lock()
			delete(n.busy, h.Pool)
			n.mu.Unlock()
		})
	}
}
