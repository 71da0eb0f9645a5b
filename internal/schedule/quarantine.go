package schedule

import (
	"sync"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// maxTogether is how many jobs may run in quarantine at a time after their first loss.
const maxTogether = 16

// QuarantineLimit counts the jobs that run in quarantine, of all pools of a node: what kills
// a process kills what runs beside it, wherever that comes from. Those that were assigned to
// peers count, too. The zero value is ready. Safe for concurrent use.
type QuarantineLimit struct {
	mu    sync.Mutex
	n     int // guarded by mu
	alone int // guarded by mu; how many of them must be alone
}

// admitRun tells whether one more may run, and counts it if so.
func (l *QuarantineLimit) admitRun(alone bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.n >= maxTogether || l.n > 0 && (alone || l.alone > 0) {
		return false
	}
	l.n++
	if alone {
		l.alone++
	}
	return true
}

func (l *QuarantineLimit) releaseRun(alone bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n--
	if alone {
		l.alone--
	}
}

// Quarantined is a job whose node was lost while it ran. It is claimed by itself, so that a
// poison-pill job, which kills its node, is found without dragging others down with it: after
// the first loss beside some others of its kind, as most of them only happened to be there;
// from the second on while no other one runs on this node, of whatever pool.
type Quarantined struct {
	store.Waiting
	Removals int64 // as the job was read
	Lane     *Lane // where it was read; its tenant is resolved
}

// Run is the run that the job would be claimed for.
func (q Quarantined) Run() Run { return Run{q.Record.ID, q.Record.Turn} }

// mustBeAlone tells whether the job must run while no other one does in quarantine.
func (q Quarantined) mustBeAlone() bool { return q.Record.Losses > 1 }

// Quarantine holds the jobs that wait to be claimed by themselves, in the order they were
// read, and knows which of them run. Each waits once, however often it is read: it would be
// claimed again after it is finished, as nothing else remembers it then. It belongs to one
// term and is used by its goroutine only.
type Quarantine struct {
	limit   *QuarantineLimit
	queue   []Quarantined
	known   map[Run]int  // to the number in the queue, the first that ever stood there being 0
	taken   int          // how many have left the queue
	running map[Run]bool // admitted by the limit; true: one that must be alone
}

// NewQuarantine returns an empty quarantine under the node's limit.
func NewQuarantine(limit *QuarantineLimit) *Quarantine {
	return &Quarantine{limit: limit, known: map[Run]int{}, running: map[Run]bool{}}
}

// Add puts a job into quarantine, or brings what was read of it before up to date.
func (q *Quarantine) Add(one Quarantined) {
	key := one.Run()
	if at, ok := q.known[key]; ok {
		q.queue[at-q.taken] = one // as it was read last: with the latest count of removals
		return
	}
	q.known[key] = q.taken + len(q.queue)
	q.queue = append(q.queue, one)
}

// Empty tells whether no job waits.
func (q *Quarantine) Empty() bool { return len(q.queue) == 0 }

// Waiting lists the jobs that wait, in turn. It holds until the next change.
func (q *Quarantine) Waiting() []Quarantined { return q.queue }

// BringForward puts the first job in front that limits let pass, and returns
// it; ok is false when there is none.
func (q *Quarantine) BringForward(may func(*job.Record) bool) (first Quarantined, ok bool) {
	for range q.queue {
		if may(&q.queue[0].Record) {
			return q.queue[0], true
		}
		q.Add(q.TakeFirst())
	}
	return Quarantined{}, false
}

// TakeFirst takes the first job out.
func (q *Quarantine) TakeFirst() Quarantined {
	one := q.queue[0]
	q.queue[0] = Quarantined{} // so that its payload can be collected
	q.queue = q.queue[1:]
	q.taken++
	delete(q.known, one.Run())
	return one
}

// ListWaiting is which jobs wait.
func (q *Quarantine) ListWaiting() (ids []int64, turns []int32) {
	for key := range q.known {
		ids, turns = append(ids, int64(key.ID)), append(turns, key.Turn)
	}
	return ids, turns
}

// Clear forgets the jobs that wait.
func (q *Quarantine) Clear() {
	q.queue, q.taken = nil, 0
	clear(q.known)
}

// Start tells whether a job may run now, and counts it as running if so.
func (q *Quarantine) Start(one Quarantined) bool {
	if !q.limit.admitRun(one.mustBeAlone()) {
		return false
	}
	q.running[one.Run()] = one.mustBeAlone()
	return true
}

// End notes that a job does not run any more, or did not come to.
func (q *Quarantine) End(one Quarantined) { q.endRun(one.Run()) }

func (q *Quarantine) endRun(key Run) {
	if alone, ok := q.running[key]; ok {
		delete(q.running, key)
		q.limit.releaseRun(alone)
	}
}

// EndAllBut ends the jobs that are not in flight any more.
func (q *Quarantine) EndAllBut(inFlight func(Run) bool) {
	for key := range q.running {
		if !inFlight(key) {
			q.endRun(key)
		}
	}
}

// Close ends the jobs that run: a term that is over leaves the limit to others.
func (q *Quarantine) Close() { q.EndAllBut(func(Run) bool { return false }) }
