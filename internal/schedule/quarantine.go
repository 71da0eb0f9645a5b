package schedule

import (
	"iter"
	"maps"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// maxTogether is how many jobs may run in quarantine at a time after their first loss, until they have lasted.
const maxTogether = 16

// proofFactor is for how many times as long as a job takes to last others wait in a row so that jobs run alone.
const proofFactor = 3

// QuarantineLimit counts the jobs that run in quarantine, of all pools of a node: what kills
// a process kills what runs beside it, wherever that comes from. Those that were assigned to
// peers count, too. The zero value is ready. Safe for concurrent use.
type QuarantineLimit struct {
	mu      sync.Mutex
	n       int  // guarded by mu
	alone   int  // guarded by mu; how many of them must be alone
	lasting int  // guarded by mu; how many of them have lasted
	wanted  bool // guarded by mu; somebody was refused since the last one was admitted
}

// admitRun tells whether one more may run, and counts it if so.
func (l *QuarantineLimit) admitRun(alone bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.wanted = l.n-l.lasting >= maxTogether || l.n > 0 && (alone || l.alone > 0)
	if l.wanted {
		return false
	}
	l.n++
	if alone {
		l.alone++
	}
	return true
}

// count takes one of a stay out of the counts, or into them.
func (l *QuarantineLimit) count(s stay, by int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.n += by
	if s.alone {
		l.alone += by
	}
	if s.lasting {
		l.lasting += by
	}
}

func (l *QuarantineLimit) isWanted() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted
}

// stay is the run of a job in quarantine.
type stay struct {
	began   time.Time
	alone   bool // no other may run
	lasting bool // it has run for long without ending its process
}

// Quarantined is a job whose node was lost while it ran. It is claimed by itself, so that a
// poison-pill job, which kills its node, is found without dragging others down with it: after
// the first loss beside some others of its kind, as most of them only happened to be there;
// from the second on while no other one runs on this node, of whatever pool. So a third loss is
// of a job that ran alone, unless others would have waited for long: then its last loss is taken
// back first.
type Quarantined struct {
	store.Waiting
	Removals int64 // as the job was read
	Lane     *Lane // where it was read; its tenant is resolved
	spared   bool  // its last loss was taken back, or it has had that too often
}

// Run is the run that the job would be claimed for.
func (q Quarantined) Run() Run { return Run{q.Record.ID, q.Record.Turn} }

// mustBeAlone tells whether the job must run while no other one does in quarantine.
func (q Quarantined) mustBeAlone() bool { return q.Record.Losses > 1 && !q.spared }

// Quarantine holds the jobs that wait to be claimed by themselves, of each tenant in the order they
// were read, and knows which of them run. Tenants take turns. Each job waits once, however often it is
// read: it would be claimed again after it is finished, as nothing else remembers it then. It belongs
// to one term and is used by its goroutine only.
type Quarantine struct {
	limit   *QuarantineLimit
	known   map[Run]Quarantined
	queues  map[string][]Run // by tenant; none is empty
	order   []string         // the tenants, in turn
	running map[Run]stay     // admitted by the limit

	lastsAfter    time.Duration // what ends its process does so before, for the most part
	blocked, seen time.Time     // since when some job could not run, and when that was last so
}

// NewQuarantine returns an empty quarantine under the node's limit, in which a job has lasted that has run
// for so long.
func NewQuarantine(limit *QuarantineLimit, lastsAfter time.Duration) *Quarantine {
	return &Quarantine{limit: limit, lastsAfter: lastsAfter, known: map[Run]Quarantined{}, queues: map[string][]Run{}, running: map[Run]stay{}}
}

// Add puts a job into quarantine, or brings what was read of it before up to date.
func (q *Quarantine) Add(one Quarantined) {
	key, tenant := one.Run(), one.Record.Tenant
	if _, ok := q.known[key]; !ok {
		if len(q.queues[tenant]) == 0 {
			q.order = append(q.order, tenant)
		}
		q.queues[tenant] = append(q.queues[tenant], key)
	}
	q.known[key] = one // as it was read last: with the latest count of removals
}

// Empty tells whether no job waits.
func (q *Quarantine) Empty() bool { return len(q.known) == 0 }

// Waiting goes through the jobs that wait. It holds until the next change.
func (q *Quarantine) Waiting() iter.Seq[Quarantined] { return maps.Values(q.known) }

// BringForward puts the first job in front that limits let pass, and returns
// it; ok is false when there is none.
func (q *Quarantine) BringForward(may func(*job.Record) bool) (first Quarantined, ok bool) {
	for range q.order {
		tenant := q.order[0]
		for range q.queues[tenant] {
			runs := q.queues[tenant]
			if first = q.known[runs[0]]; may(&first.Record) {
				return first, true
			}
			q.queues[tenant] = append(runs[1:], runs[0])
		}
		q.order = append(q.order[1:], tenant)
	}
	return Quarantined{}, false
}

// TakeFirst takes the first job out. It is another tenant's turn then.
func (q *Quarantine) TakeFirst() Quarantined {
	tenant := q.order[0]
	runs := q.queues[tenant]
	one := q.known[runs[0]]
	delete(q.known, runs[0])
	q.order = q.order[1:]
	if len(runs) > 1 {
		q.queues[tenant] = runs[1:]
		q.order = append(q.order, tenant)
	} else {
		delete(q.queues, tenant)
	}
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
	q.order = nil
	clear(q.known)
	clear(q.queues)
}

// Start tells whether a job may run now, and counts it as running if so.
func (q *Quarantine) Start(one Quarantined, now time.Time) bool {
	if !q.limit.admitRun(one.mustBeAlone()) {
		if now.Sub(q.seen) > q.lastsAfter { // nobody has waited meanwhile
			q.blocked = now
		}
		q.seen = now
		return false
	}
	q.running[one.Run()] = stay{began: now, alone: one.mustBeAlone()}
	return true
}

// ToSpare is a job whose last loss is to be taken back, as others wait for it: one that must be alone
// and has lasted, or the first one that waits to be, if others have waited for long in a row.
func (q *Quarantine) ToSpare(first Quarantined, now time.Time) (run Run, ok bool) {
	if !q.limit.isWanted() {
		return Run{}, false
	}
	for run, s := range q.running {
		if s.alone && now.Sub(s.began) >= q.lastsAfter {
			return run, true
		}
	}
	return first.Run(), first.mustBeAlone() && now.Sub(q.seen) <= q.lastsAfter && now.Sub(q.blocked) >= proofFactor*q.lastsAfter
}

// Spare notes that others need not wait for a job any more.
func (q *Quarantine) Spare(run Run) {
	if one, ok := q.known[run]; ok {
		one.spared = true
		q.known[run] = one
	}
	if s, ok := q.running[run]; ok {
		q.setStay(run, stay{began: s.began, lasting: true})
	}
}

func (q *Quarantine) setStay(run Run, to stay) {
	q.limit.count(q.running[run], -1)
	q.limit.count(to, 1)
	q.running[run] = to
}

// End notes that a job does not run any more, or did not come to.
func (q *Quarantine) End(one Quarantined) { q.endRun(one.Run()) }

func (q *Quarantine) endRun(key Run) {
	if s, ok := q.running[key]; ok {
		delete(q.running, key)
		q.limit.count(s, -1)
	}
}

// Review ends the jobs that are not in flight any more, and makes room for others beside those that
// have lasted and need not be alone.
func (q *Quarantine) Review(inFlight func(Run) bool, now time.Time) {
	for key, s := range q.running {
		switch {
		case !inFlight(key):
			q.endRun(key)
		case !s.alone && !s.lasting && now.Sub(s.began) >= q.lastsAfter:
			q.setStay(key, stay{began: s.began, lasting: true})
		}
	}
}

// Close ends the jobs that run: a term that is over leaves the limit to others.
func (q *Quarantine) Close() { q.Review(func(Run) bool { return false }, time.Time{}) }
