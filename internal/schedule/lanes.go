package schedule

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// Lanes decides whose jobs to read next. Tenants take turns with shares by weight; a
// share that a tenant cannot use goes to the others in the next round, at once.
// A tenant's queues share its part by weight, in the time that their jobs take. Within a
// queue the lane of the highest priority goes first, and one that is passed over gains: see
// [QueueConfig]. It belongs to one term and is used by its goroutine only.
type Lanes struct {
	config *QueueConfig
	byKey  map[store.Lane]*Lane
	active line           // tenants with an active lane that are not full; the next to be served first
	full   []*tenantLanes // tenants that may not have more in flight now
	tenant map[string]*tenantLanes
	weight map[string]int // of tenants; those that are not named have 1

	begin   int64 // where lanes begin that are new
	drained bool  // a tenant of which lanes were left out has none to read any more

	missed      [2]bool         // some lane has jobs that were read and not claimed, by why
	unsupported map[string]bool // kinds among them that this node cannot run
}

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
}

// line is who waits for a turn: those first that have had fewest, and among equals those that have
// waited longest (start-time fair queueing, Goyal, Vin and Cheng, 1996, counted in turns). A tenant that has
// had more turns than others in one page, as more of them could not share it, waits until they have
// caught up.
type line []*tenantLanes

// join has a tenant wait that had nothing to do: behind those whose turn comes next, and before those that
// have had theirs. What it did not use is gone, and so is what it was ahead, as it may not have used that
// either.
func (l line) join(t *tenantLanes) line {
	if len(l) > 0 {
		t.turns = l[0].turns
	}
	return l.queue(t)
}

// queue puts a tenant behind all that have had as many turns.
func (l line) queue(t *tenantLanes) line {
	at := len(l)
	for at > 0 && l[at-1].turns > t.turns {
		at--
	}
	return slices.Insert(l, at, t)
}

// shareOut shares n places among the first ones, so many at most, turn by turn until the places are
// used up, and returns who waits then.
func (l line) shareOut(n, most int) line {
	most = min(most, len(l))
	for _, t := range l[:most] {
		t.quota = 0
	}
	first, others := slices.Clone(l[:most]), l[most:]
	for n > 0 {
		t := first[0]
		n -= t.give(n)
		if t.credit == 0 {
			first = first[1:].queue(t)
		}
	}
	merged := make(line, 0, len(l))
	for _, t := range first {
		for len(others) > 0 && (others[0].turns < t.turns || others[0].turns == t.turns && !t.wasCutShort()) {
			merged, others = append(merged, others[0]), others[1:]
		}
		merged = append(merged, t)
	}
	return append(merged, others...)
}

// NewLanes returns lanes of which none is known yet, whose queues share as c says.
func NewLanes(c *QueueConfig) *Lanes {
	return &Lanes{config: c, byKey: map[store.Lane]*Lane{}, tenant: map[string]*tenantLanes{}, unsupported: map[string]bool{}}
}

// Configure has queues share as c says from now on. c is not to be changed any more.
func (ls *Lanes) Configure(c *QueueConfig) {
	if c == ls.config {
		return
	}
	ls.config = c
	for _, t := range ls.tenant {
		for _, q := range t.queues {
			q.weight = c.weightOf(q.name)
		}
	}
}

// SetWeights says what tenants have of the others' turns, from now on. w is not to be changed any more.
func (ls *Lanes) SetWeights(w map[string]int) {
	ls.weight = w
	for tenant, t := range ls.tenant {
		t.weight = w[tenant]
		t.credit = min(t.credit, t.parts())
	}
}

// WeightOf is a tenant's weight.
func (ls *Lanes) WeightOf(tenant string) int { return max(ls.weight[tenant], 1) }

// MostLanes is how many lanes of one tenant are known at a time that have something to read: each costs memory, and
// a little of the time in which those of all others are not read. Others of its lanes take their places when these
// have no more jobs. With those that wait for a gate there are mostParked.
const (
	MostLanes  = 1000
	mostParked = 10 * MostLanes
)

// BeginAt has lanes be read behind a position, up to which no job stands or can appear.
func (ls *Lanes) BeginAt(position int64) {
	if ls.begin == position {
		return
	}
	ls.begin = position
	for _, l := range ls.byKey {
		l.after = max(l.after, position)
	}
}

// See notes that a lane may hold jobs behind its cursor. It returns nil for one that is not taken in, as its
// tenant has very many: discoveries go on until it is.
func (ls *Lanes) See(key store.Lane) *Lane {
	if t := ls.tenant[key.Tenant]; t != nil && t.lanes >= max(t.room, MostLanes) && ls.byKey[key] == nil && !ls.makeRoom(t) {
		return nil
	}
	l := ls.Find(key)
	l.beginWait()
	ls.activateLane(l)
	ls.seeKinds(l)
	return l
}

// Find returns a lane, which it does not have read.
func (ls *Lanes) Find(key store.Lane) *Lane {
	l := ls.byKey[key]
	if l == nil {
		t := ls.tenant[key.Tenant]
		if t == nil {
			t = &tenantLanes{share: share{weight: ls.weight[key.Tenant]}}
			ls.tenant[key.Tenant] = t
		}
		q := ls.queueOf(t, key.Queue)
		l = &Lane{Lane: key, owner: t, queue: q, after: ls.begin}
		t.lanes++
		ls.byKey[key] = l
		ls.addToQueue(l)
	}
	return l
}

// makeRoom drops the lanes of a tenant that have nothing to read, to take in another; false: all have. No
// page is being claimed from.
func (ls *Lanes) makeRoom(t *tenantLanes) bool {
	if t.busy {
		t.left = true
		return false
	}
	active := 0
	for _, q := range t.queues {
		for _, l := range q.lanes {
			switch {
			case l.Kind != "":
			case !l.mayHaveMore():
				delete(ls.byKey, l.Lane)
				t.lanes--
			case l.active:
				active++
			}
		}
		q.lanes = slices.DeleteFunc(q.lanes, func(l *Lane) bool { return ls.byKey[l.Lane] == nil })
	}
	t.queues = slices.DeleteFunc(t.queues, func(q *queue) bool { return len(q.lanes) == 0 })
	t.room = min(t.lanes+max(MostLanes-active, 0), mostParked)
	t.busy = t.lanes >= t.room
	t.left = t.left || t.busy
	return !t.busy
}

// mayHaveMore tells whether a lane, or one of its kinds, has something to read, now or once its gate is open.
func (l *Lane) mayHaveMore() bool {
	return l.active || l.parked || slices.ContainsFunc(l.kinds, (*Lane).waits)
}

// BeginDiscovery notes that lanes are about to be seen again: those that find no place are left out once more.
func (ls *Lanes) BeginDiscovery() {
	for _, t := range ls.tenant {
		t.left, t.busy = false, false
	}
}

// HasLeft tells whether lanes of some tenant were left out.
func (ls *Lanes) HasLeft() bool {
	for _, t := range ls.tenant {
		if t.left {
			return true
		}
	}
	return false
}

// TakeDrained tells whether since the last call a tenant has come to the end of its lanes of which others were
// left out.
func (ls *Lanes) TakeDrained() bool {
	drained := ls.drained
	ls.drained = false
	return drained
}

func (ls *Lanes) addToQueue(l *Lane) {
	l.queue.lanes = append(l.queue.lanes, l)
	slices.SortStableFunc(l.queue.lanes, func(a, b *Lane) int { return int(b.Priority) - int(a.Priority) })
}

// queueOf returns a tenant's queue of a name, which begins without lanes.
func (ls *Lanes) queueOf(t *tenantLanes, name string) *queue {
	for _, q := range t.queues {
		if q.name == name {
			return q
		}
	}
	q := &queue{name: name, weight: ls.config.weightOf(name), turn: t.clock}
	t.queues = append(t.queues, q)
	return q
}

// beginWait notes that jobs may have come into a lane that had none: they were not passed over
// yet. What it missed has been.
func (l *Lane) beginWait() {
	if !l.active && l.missed == [2]int64{} {
		l.passed = time.Time{}
	}
}

// RereadFrom has a lane read again from a position, unless that is still ahead of it.
func (ls *Lanes) RereadFrom(key store.Lane, position int64) {
	if l := ls.See(key); l != nil {
		l.after = min(l.after, position-1)
	}
}

// ResetCursor takes a lane's cursor back to where it was.
func (ls *Lanes) ResetCursor(l *Lane, cursor int64) {
	l.after = cursor
	ls.activateLane(l)
}

func (ls *Lanes) activateLane(l *Lane) {
	if l.parked { // until its gate is open
		return
	}
	if !l.active && l.queue.firstActive() == nil { // what it did not use while it had nothing is gone
		l.queue.turn = max(l.queue.turn, l.owner.clock)
	}
	l.active, l.idle = true, 0
	if !l.owner.waiting && !l.owner.full {
		l.owner.waiting = true
		ls.active = ls.active.join(l.owner)
	}
}

// ListReadBeyond lists the lanes that were read beyond a position.
func (ls *Lanes) ListReadBeyond(position int64) (out []store.Lane) {
	for key, l := range ls.byKey {
		if l.after > position {
			out = append(out, key)
		}
	}
	return out
}

// Rewind makes lanes be read again from the first job that was found behind their cursor.
// Unless always is set, that is done once for each job: one that nobody can run is found
// again and again while the floor cannot rise, and what is dead behind it is read with it.
func (ls *Lanes) Rewind(first map[store.Lane]int64, always bool) {
	for key, position := range first {
		if l := ls.byKey[key]; l != nil && l.after >= position && (always || l.rewound != position) {
			l.after, l.rewound = position-1, position
			l.beginWait()
			ls.activateLane(l)
		}
	}
}

// ForgetHomes has every tenant resolved again.
func (ls *Lanes) ForgetHomes() {
	for _, t := range ls.tenant {
		t.home = nil
	}
}

// NoteMissed notes that a job was read that nobody can run now.
func (ls *Lanes) NoteMissed(l *Lane, position int64, kind string, here bool) {
	why := MissedHere
	if !here {
		why = MissedByPeers
		ls.unsupported[kind] = true
	}
	ls.missed[why] = true
	if l.missed[why] == 0 || position < l.missed[why] {
		l.missed[why] = position
	}
}

// HasMissed tells whether jobs were read that could not be claimed.
func (ls *Lanes) HasMissed(why int) bool { return ls.missed[why] }

// UnsupportedKinds are the kinds of missed jobs that this node cannot run. It is not to be
// changed, and holds until the next call.
func (ls *Lanes) UnsupportedKinds() map[string]bool { return ls.unsupported }

// RereadMissed makes lanes be read again from what they missed.
func (ls *Lanes) RereadMissed(why int) {
	if !ls.missed[why] {
		return
	}
	ls.missed[why] = false
	if why == MissedByPeers {
		clear(ls.unsupported)
	}
	reread := func(l *Lane) {
		if at := l.missed[why]; at > 0 {
			l.missed[why] = 0
			l.after = min(l.after, at-1)
			ls.activateLane(l)
		}
	}
	for _, l := range ls.byKey {
		reread(l)
		for _, of := range l.kinds {
			reread(of)
		}
	}
}

// ForgetIdle drops lanes that it has found inactive so many times, so that tenants that came
// by once are not kept for ever. A dropped lane begins at its start when it is seen again,
// which is slow where its finished jobs are not tidied away yet: so not the first time.
func (ls *Lanes) ForgetIdle(times int) {
	for key, l := range ls.byKey {
		if l.mayHaveMore() || l.owner.waiting || l.owner.full {
			continue
		}
		if l.idle++; l.idle < times {
			continue
		}
		delete(ls.byKey, key)
		t, q := l.owner, l.queue
		t.lanes--
		q.lanes = slices.DeleteFunc(q.lanes, func(o *Lane) bool { return o.Lane == l.Lane })
		if len(q.lanes) == 0 {
			t.queues = slices.DeleteFunc(t.queues, func(o *queue) bool { return o == q })
		}
		if len(t.queues) == 0 {
			delete(ls.tenant, key.Tenant)
		}
	}
}

// HasWork tells whether some lane may have jobs.
func (ls *Lanes) HasWork() bool { return len(ls.active) > 0 }

// HasUnclaimed tells whether some lane may have jobs, or has some that could not be claimed.
func (ls *Lanes) HasUnclaimed() bool { return ls.HasWork() || ls.missed != [2]bool{} }

// mostTenants bounds those that share a page: each is looked up by itself, so that few jobs each
// of very many tenants take half as much time again as more of fewer in turns.
const mostTenants = 256

// Plan shares n jobs, by weight, among the tenants whose turn it is and returns what to read: one lane
// per tenant, the one whose turn it is at this time.
func (ls *Lanes) Plan(n int, now time.Time) []Portion {
	tenants := min(len(ls.active), mostTenants)
	if tenants == 0 || n == 0 {
		return nil
	}
	first := ls.active[:tenants]
	ls.active = ls.active.shareOut(n, tenants)
	out := make([]Portion, 0, tenants)
	for _, t := range first {
		if t.quota > 0 {
			out = append(out, Portion{Lane: t.chooseLane(now, ls.config.AgeEvery), Quota: t.quota})
		}
	}
	return out
}

// Portion is how many jobs to read from a lane.
type Portion struct {
	Lane  *Lane
	Quota int
	Here  int // how many of them may be for this node
	Head  *Head
}

// Head is the one job that a lane is read for, as it is its turn under its exclusive key.
type Head struct {
	Key      store.Key
	Position int64
	Followed bool   // others wait under the key
	Run      Run    // of the job, as it was read
	Kind     string // likewise; "": it is not to be claimed now
	Settled  bool   // it is known what becomes of the key
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

// Charge notes that a job of the lane was claimed, which is expected to take so long: its queue
// waits in proportion, and the lane is passed over from now on.
func (l *Lane) Charge(takes time.Duration, now time.Time) {
	l.queue.turn += takes / l.queue.weight
	l.passed = now
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

// apartPages is how many times as much is read of a lane in which most jobs have exclusive keys, or a
// kind that is read by itself: those of the page are not claimed, and would hold up the others behind
// them. At least so many are read then: where little may be claimed, as the tenant's limit is small, a
// page would pass over few.
const (
	apartPages = 16
	apartLeast = 256
)

// CountToRead is how many jobs to read where so many are to be claimed.
func (l *Lane) CountToRead(quota int) int {
	if l.apart {
		return max(quota*apartPages, apartLeast)
	}
	return quota
}

// NoteApart notes how many of the jobs that were read are claimed by themselves. If all are, the lane has
// had its turn.
func (l *Lane) NoteApart(apart, read int, now time.Time) {
	if read > 0 {
		l.apart = 2*apart > read
	}
	if read > 0 && apart == read {
		l.passed = now
	}
}

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

// RunsHereOnly tells whether peers cannot run the jobs that come next.
func (l *Lane) RunsHereOnly() bool { return l.owner.onlyHere }

// MarkRead notes that a lane was read up to a position, and whether there is more.
func (l *Lane) MarkRead(upTo int64, more bool) {
	l.after = max(l.after, upTo)
	l.active = more
	l.owner.busy = l.owner.busy && more
}

// DropInactive drops tenants from the round that have no active lane any more.
func (ls *Lanes) DropInactive() {
	ls.active = slices.DeleteFunc(ls.active, func(t *tenantLanes) bool {
		t.waiting = t.firstActive() != nil && !t.full
		ls.drained = ls.drained || t.left && !t.waiting && !t.full
		return !t.waiting
	})
}

// MarkFull takes a lane's tenant out of the round, once settle is called, as it may not have
// more in flight.
func (ls *Lanes) MarkFull(l *Lane) {
	if t := l.owner; !t.full {
		t.full = true
		ls.full = append(ls.full, t)
	}
}

// MarkFullHere is fill for a tenant of whose jobs peers can run some, but not the next ones.
func (ls *Lanes) MarkFullHere(l *Lane) {
	ls.MarkFull(l)
	l.owner.onlyHere = true
}

// IsFull tells whether a tenant may not have more in flight now.
func (ls *Lanes) IsFull(tenant string) bool {
	t := ls.tenant[tenant]
	return t != nil && t.full
}

// AnyFull tells whether some full tenant has jobs that match.
func (ls *Lanes) AnyFull(match func(*Lane) bool) bool {
	return slices.ContainsFunc(ls.full, func(t *tenantLanes) bool {
		l := t.firstActive()
		return l != nil && match(l)
	})
}

// ReopenFull brings full tenants back that may have more now, or have nothing more to do.
func (ls *Lanes) ReopenFull(may func(*Lane) bool) {
	ls.full = slices.DeleteFunc(ls.full, func(t *tenantLanes) bool {
		l := t.firstActive()
		if l != nil && !may(l) {
			return false
		}
		t.full, t.onlyHere = false, false
		if l != nil {
			ls.activateLane(l)
		}
		return true
	})
}

// RetryPeers has it tried again whether peers can run jobs of full tenants.
func (ls *Lanes) RetryPeers() {
	for _, t := range ls.full {
		t.onlyHere = false
	}
}

// NoteSize notes how large a job is.
func (l *Lane) NoteSize(j *store.Waiting) {
	const lately = 0.1 // of a new one in the average
	l.bytes += lately * (min(float64(j.Bytes), store.MaxJobBytes) - l.bytes)
}

// CountFitting is how many jobs of the lane fit into a page: others would be read in vain.
func (l *Lane) CountFitting() int { return max(1, int(store.MaxPageBytes/max(l.bytes, 1))) }

// ServeFirst has those tenants be the next ones of whose jobs some were left out of a page,
// as it was full, so that what stood before them does not fill the next one, too.
func (ls *Lanes) ServeFirst(portions []Portion, left map[int]bool) {
	owners := map[*tenantLanes]bool{}
	for i := range left {
		owners[portions[i].Lane.owner] = true
	}
	had := portions[slices.Min(slices.Collect(maps.Keys(left)))].Lane.owner // some
	for t := range owners {
		t.turns = ls.active[0].turns
	}
	rank := func(t *tenantLanes) int {
		switch {
		case t == had:
			return 2
		case owners[t]:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ls.active, func(a, b *tenantLanes) int {
		return cmp.Or(cmp.Compare(a.turns, b.turns), rank(a)-rank(b))
	})
}
