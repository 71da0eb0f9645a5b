package schedule

import (
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// Why jobs that were read could not be claimed then: this node has handlers for them
// and was full, or it has none and no peer with one had capacity.
const (
	MissedHere    = 0
	MissedByPeers = 1
)

// Lane is where jobs of one queue, tenant and priority wait; or those of one kind among them.
type Lane struct {
	store.Lane
	Kind    string // "": all
	owner   *tenantLanes
	queue   *queue
	after   int64     // read up to this position
	active  bool      // there may be more behind it
	passed  time.Time // since when it has been passed over; zero: it has not, since it became active
	missed  [2]int64  // the first position that could not be claimed, by why; 0: none
	rewound int64     // the position of the job that the cursor was last taken back to
	bytes   float64   // of its jobs' payloads, on average, lately; 0: not known
	apart   bool      // most of what was read last is claimed by itself: it has exclusive keys, or a limited kind
	kinds   []*Lane   // of jobs that are read by themselves
	seen    int64     // of a kind's: the last position that the lane has shown
	parked  bool      // it waits for a gate
	idle    int       // how often ForgetIdle has found it inactive since it last was active
}

// queue is a tenant's lanes of one queue.
type queue struct {
	name   string
	lanes  []*Lane // highest priority first
	weight time.Duration
	turn   time.Duration // when its next turn begins, in served time
}

// tenantLanes is a tenant with its queues.
type tenantLanes struct {
	share
	name    string
	home    *tenancy.Tenant // nil: not resolved yet
	queues  []*queue
	clock   time.Duration // when the turn began that was given last, in served time
	lanes   int           // how many are known, those of kinds apart
	room    int           // how many may be, as was found out when room was wanted last
	left    bool          // there are others, which were not taken in
	busy    bool          // all had something to read when room was wanted last
	waiting bool          // it is in lanes.active
	full    bool          // it is in lanes.full
	// onlyHere: peers had capacity for some of its jobs, but not for those that came next.
	onlyHere bool

	learned  int  // how many of its jobs may share a call, by those that were read last; 0: not known
	skips    bool // it is in lanes.skipping
	skipped  bool // peers cannot run the jobs of keys that it skips
	headNext bool // the place that is left over when it halves them is a key's
}

// halve is how many of so many places are for keys, while the lanes have jobs, too.
func (t *tenantLanes) halve(calls int) int {
	if calls%2 == 1 {
		if t.headNext = !t.headNext; t.headNext {
			calls++
		}
	}
	return calls / 2
}

// mayHaveMore tells whether a lane, or one of its kinds, has something to read, now or once its gate is open.
func (l *Lane) mayHaveMore() bool {
	return l.active || l.parked || slices.ContainsFunc(l.kinds, (*Lane).waits)
}

// waits tells whether there may be jobs of the kind that were not read.
func (l *Lane) waits() bool { return l.active || l.parked || l.after < l.seen }

// beginWait notes that jobs may have come into a lane that had none: they were not passed over
// yet. What it missed has been.
func (l *Lane) beginWait() {
	if !l.active && l.missed == [2]int64{} {
		l.passed = time.Time{}
	}
}

// Charge notes that a job of the lane was claimed, which is expected to take so long: its queue
// waits in proportion, and the lane is passed over from now on.
func (l *Lane) Charge(takes time.Duration, now time.Time) {
	l.queue.turn += takes / l.queue.weight
	l.passed = now
}

// apartPages is how many times as much is read of a lane in which most jobs have exclusive keys, or a
// kind that is read by itself: those of the page are not claimed, and would hold up the others behind
// them. At least so many are read then: where little may be claimed, as the tenant's limit is small, a
// page would pass over few.
const (
	apartPages = 16
	apartLeast = 256
)

// CountToRead is how many jobs to read where so many are to be claimed.
func (l *Lane) CountToRead(places int) int {
	if l.apart && places > 0 {
		return max(places*apartPages, apartLeast)
	}
	return places
}

// NoteApart notes how many of the jobs that were read are claimed by themselves. If all are, the lane has
// had its turn, and none shares a call.
func (l *Lane) NoteApart(apart, read int, now time.Time) {
	if read > 0 {
		l.apart = 2*apart > read
	}
	if read > 0 && apart == read {
		l.passed, l.owner.learned = now, 1
	}
}

// Together is how many of the lane's jobs may share a call, by those that were read last of its tenant.
func (l *Lane) Together() int { return max(l.owner.together, 1) }

// Cursor is the position that the lane was read up to.
func (l *Lane) Cursor() int64 { return l.after }

// Advance moves the cursor on to a position.
func (l *Lane) Advance(position int64) { l.after = max(l.after, position) }

// Deactivate leaves the lane alone until it is seen again.
func (l *Lane) Deactivate() { l.active, l.owner.busy = false, false }

// Home is where the lane's tenant lives; nil: that was not resolved yet.
func (l *Lane) Home() *tenancy.Tenant { return l.owner.home }

// SetHome notes where the tenant lives.
func (l *Lane) SetHome(t *tenancy.Tenant) { l.owner.home = t }

// MarkRead notes that a lane was read up to a position, and whether there is more.
func (l *Lane) MarkRead(upTo int64, more bool) {
	l.after = max(l.after, upTo)
	l.active = more
	l.owner.busy = l.owner.busy && more
}

// NoteSize notes how large a job is.
func (l *Lane) NoteSize(j *store.Waiting) {
	const lately = 0.1 // of a new one in the average
	l.bytes += lately * (min(float64(j.Bytes), store.MaxJobBytes) - l.bytes)
}

// CountFitting is how many jobs of the lane, of so many bytes each, fit into what room a page has left, one at least: others
// would be read in vain.
func (l *Lane) CountFitting(room int64) (jobs int, bytes int64) {
	bytes = max(1, int64(l.bytes))
	return max(1, int(room/bytes)), bytes
}

// IsLarge tells whether a page has room for a few of the lane's jobs only.
func (l *Lane) IsLarge() bool { return l.bytes > store.MaxJobBytes/16 }

// queueOf returns the tenant's queue of a name, which begins without lanes.
func (t *tenantLanes) queueOf(name string, c *QueueConfig) *queue {
	for _, q := range t.queues {
		if q.name == name {
			return q
		}
	}
	q := &queue{name: name, weight: c.weightOf(name), turn: t.clock}
	t.queues = append(t.queues, q)
	return q
}

// add has a lane be read in the order of its priority.
func (q *queue) add(l *Lane) {
	q.lanes = append(q.lanes, l)
	slices.SortStableFunc(q.lanes, func(a, b *Lane) int { return int(b.Priority) - int(a.Priority) })
}

// chooseLane chooses the active lane whose turn it is: of the queue that has had least for
// its weight, so that it keeps its turn until some of its jobs are claimed (see Charge): for what
// takes long there is room only once less of the others waits. Its
// lanes gain a priority each time that they have been passed over for as long as a step takes.
func (t *tenantLanes) chooseLane(now time.Time, step time.Duration) (next *Lane) {
	for _, q := range t.queues {
		if l := q.chooseLane(now, step); l != nil && (next == nil || q.turn < next.queue.turn) {
			next = l
		}
	}
	t.clock = next.queue.turn
	return next
}

// chooseLane chooses the queue's active lane of the highest priority, with what it has gained;
// nil: none is active.
func (q *queue) chooseLane(now time.Time, step time.Duration) (next *Lane) {
	var highest time.Duration
	for _, l := range q.lanes {
		if !l.active {
			continue
		}
		if l.passed.IsZero() {
			l.passed = now
		}
		if p := time.Duration(l.Priority)*step + now.Sub(l.passed); next == nil || p > highest {
			next, highest = l, p
		}
	}
	return next
}

// firstActive is an active lane of the tenant; nil: it has none.
func (t *tenantLanes) firstActive() *Lane {
	for _, q := range t.queues {
		if l := q.firstActive(); l != nil {
			return l
		}
	}
	return nil
}

func (q *queue) firstActive() *Lane {
	for _, l := range q.lanes {
		if l.active {
			return l
		}
	}
	return nil
}
