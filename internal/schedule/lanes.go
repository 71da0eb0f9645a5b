package schedule

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/store"
)

// MostLanes is how many lanes of one tenant are known at a time that have something to read: each costs memory, and
// a little of the time in which those of all others are not read. Others of its lanes take their places when these
// have no more jobs. With those that wait for a gate there are mostParked.
const (
	MostLanes  = 1000
	mostParked = 10 * MostLanes
)

// Lanes decides whose jobs to read next. Tenants take turns with shares by weight; a
// share that a tenant cannot use goes to the others in the next round, at once.
// A tenant's queues share its part by weight, in the time that their jobs take. Within a
// queue the lane of the highest priority goes first, and one that is passed over gains: see
// [QueueConfig]. It belongs to one term and is used by its goroutine only.
type Lanes struct {
	config   *QueueConfig
	byKey    map[store.Lane]*Lane
	active   line           // tenants with work that are not full; the next to be served first
	full     []*tenantLanes // tenants that may not have more in flight now
	skipping []*tenantLanes // tenants whose keys are left alone, as there was no room for their jobs
	tenant   map[string]*tenantLanes
	weight   map[string]int // of tenants; those that are not named have 1
	keys     *Keys          // which are work, too; nil: there are none

	together int     // of jobs of a tenant that may share a call, by those that were read last
	used     float64 // of the places of such turns, on average, lately

	begin   int64 // where lanes begin that are new
	drained bool  // a tenant of which lanes were left out has none to read any more

	unsorted    bool            // turns were given back
	missed      [2]bool         // some lane has jobs that were read and not claimed, by why
	unsupported map[string]bool // kinds among them that this node cannot run
}

// NewLanes returns lanes of which none is known yet, whose queues share as c says.
func NewLanes(c *QueueConfig) *Lanes {
	return &Lanes{config: c, byKey: map[store.Lane]*Lane{}, tenant: map[string]*tenantLanes{}, unsupported: map[string]bool{}, used: 1}
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
		t := ls.tenantOf(key.Tenant)
		q := t.queueOf(key.Queue, ls.config)
		l = &Lane{Lane: key, owner: t, queue: q, after: ls.begin}
		t.lanes++
		ls.byKey[key] = l
		l.queue.add(l)
	}
	return l
}

// tenantOf returns a tenant.
func (ls *Lanes) tenantOf(name string) *tenantLanes {
	t := ls.tenant[name]
	if t == nil {
		t = &tenantLanes{share: share{weight: ls.weight[name]}, name: name}
		ls.tenant[name] = t
	}
	return t
}

// countKeys is how many keys of a tenant are to be looked up now.
func (ls *Lanes) countKeys(t *tenantLanes) int {
	if ls.keys == nil || t.skips {
		return 0
	}
	return ls.keys.CountReady(t.name)
}

// hasWork tells whether a tenant has something to be read.
func (ls *Lanes) hasWork(t *tenantLanes) bool { return t.firstActive() != nil || ls.countKeys(t) > 0 }

// contend has a tenant wait for its turn that has work.
func (ls *Lanes) contend(t *tenantLanes) {
	if !t.waiting && !t.full {
		t.waiting = true
		ls.active = ls.active.join(t)
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
	ls.contend(l.owner)
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

// NoteTogether notes how many jobs like those that a lane has shown may share a call, and how many of the places that
// it had in the page it has used. Its tenant's turns have as many from now on, and so have those of tenants of which no
// job was read yet.
func (ls *Lanes) NoteTogether(p Portion, most, used int) {
	const lately = 0.1 // of a new one in the average
	t := p.tenant()
	if t.together > 1 && p.Planned > 0 {
		ls.used += lately * (min(1, float64(used)/float64(p.Planned)) - ls.used)
	}
	t.learned, ls.together = most, most
}

// NoteMissed notes that a job was read that cannot run now: here, as this node has no room for it; else as no peer has.
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

// HasWork tells whether some tenant that is not full may have jobs, in a lane or under a key.
func (ls *Lanes) HasWork() bool { return len(ls.active) > 0 }

// HasUnclaimed tells whether some tenant that is not full may have jobs, or a lane has some that could not be claimed.
func (ls *Lanes) HasUnclaimed() bool { return ls.HasWork() || ls.missed != [2]bool{} }

// mostTenants bounds those that share a page: each is looked up by itself, so that few jobs each
// of very many tenants take half as much time again as more of fewer in turns.
const mostTenants = 256

// Plan shares a page's space, by weight, among the tenants whose turn it is and returns what to read: of each tenant
// the lane whose turn it is at this time, or keys to be looked up, or, where it has both, half of each.
func (ls *Lanes) Plan(space Space, now time.Time) []Portion {
	tenants := min(len(ls.active), mostTenants)
	if tenants == 0 || space.isFull() {
		return nil
	}
	first := ls.active[:tenants]
	for _, t := range first {
		t.together, t.most = cmp.Or(t.learned, ls.together), math.MaxInt
		if t.firstActive() == nil {
			t.together, t.most = 1, ls.countKeys(t)
		}
	}
	space.used = ls.used
	ls.active = ls.active.shareOut(space, tenants)
	out := make([]Portion, 0, tenants)
	for _, t := range first {
		if t.places > 0 {
			out = append(out, ls.portionOf(t, space.Keys, now))
		}
	}
	return out
}

// portionOf says what to read for a tenant in its places.
func (ls *Lanes) portionOf(t *tenantLanes, enough int, now time.Time) Portion {
	p := Portion{Tenant: t.name, Planned: t.places, of: t}
	together := max(t.together, 1)
	switch keys, calls := ls.countKeys(t), (t.places+together-1)/together; {
	case keys == 0:
	case keys >= enough || t.firstActive() == nil:
		p.Heads, p.Planned = min(keys, calls), 0
	default:
		p.Heads = min(keys, t.halve(calls))
		p.Planned = max(0, t.places-p.Heads*together)
	}
	ls.TakeBack(p, t.places-p.Planned-p.Heads) // a head is one job
	if p.Places = p.Planned; p.Places > 0 {
		p.Lane = t.chooseLane(now, ls.config.AgeEvery)
	}
	return p
}

// Portion is what to read for a tenant: from a lane, and for keys that are to be looked up; or the head of one of these.
type Portion struct {
	Tenant  string
	Heads   int   // keys to be looked up
	Lane    *Lane // nil: none
	Planned int   // places of the lane
	Places  int   // those that it can use; 0: there is no room for any of its jobs, and they are the next
	Here    int   // how many calls of them, or jobs that share none, may be for this node
	Head    *Head // what the lane is read for; nil: for whatever comes
	of      *tenantLanes
}

func (p *Portion) tenant() *tenantLanes {
	if p.of == nil {
		return p.Lane.owner
	}
	return p.of
}

// RunsHereOnly tells whether peers cannot run the tenant's jobs that come next.
func (p *Portion) RunsHereOnly() bool { return p.tenant().onlyHere }

// Halve is how many of so many places are for the tenant's keys, if its lane is read, too.
func (p *Portion) Halve(places int) int {
	if p.Lane == nil {
		return places
	}
	return p.tenant().halve(places)
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

// TakeBack has a tenant not be charged for places of the page that was planned last, as it has not used them.
func (ls *Lanes) TakeBack(p Portion, places int) {
	if places > 0 {
		p.tenant().charge(-places)
		ls.unsorted = true
	}
}

// DropInactive drops tenants from the round that have no work any more.
func (ls *Lanes) DropInactive() {
	defer ls.sort()
	ls.active = slices.DeleteFunc(ls.active, func(t *tenantLanes) bool {
		t.waiting = !t.full && ls.hasWork(t)
		if t.left && !t.full && t.firstActive() == nil { // once: it may stay for its keys
			t.left, ls.drained = false, true
		}
		return !t.waiting
	})
}

// sort has tenants wait in order again of which some were given turns back.
func (ls *Lanes) sort() {
	if ls.unsorted {
		ls.unsorted = false
		slices.SortStableFunc(ls.active, func(a, b *tenantLanes) int { return cmp.Compare(a.turns, b.turns) })
	}
}

// MarkFull takes a tenant out of the round, once [Lanes.DropInactive] is called, as it may not have
// more in flight.
func (ls *Lanes) MarkFull(p Portion) {
	if t := p.tenant(); !t.full {
		t.full = true
		ls.full = append(ls.full, t)
	}
}

// MarkFullHere is MarkFull for a tenant of whose jobs peers can run some, but not the next ones.
func (ls *Lanes) MarkFullHere(p Portion) {
	ls.MarkFull(p)
	p.tenant().onlyHere = true
}

// SkipKeys leaves a tenant's keys alone, once [Lanes.DropInactive] is called, as there was no room for the head of one,
// on this node only or with peers either.
func (ls *Lanes) SkipKeys(p Portion, hereOnly bool) {
	t := p.tenant()
	if !t.skips {
		t.skips = true
		ls.skipping = append(ls.skipping, t)
	}
	t.skipped = t.skipped || hereOnly
}

// IsFull tells whether a tenant may not have more in flight now.
func (ls *Lanes) IsFull(tenant string) bool {
	t := ls.tenant[tenant]
	return t != nil && t.full
}

// AnyFull tells whether some full tenant with work matches.
func (ls *Lanes) AnyFull(match func(tenant string) bool) bool {
	return slices.ContainsFunc(ls.full, func(t *tenantLanes) bool { return ls.hasWork(t) && match(t.name) })
}

// ReopenFull brings full tenants, and keys that are skipped, back that may have more now (hereOnly: on this node), or
// have nothing more to do.
func (ls *Lanes) ReopenFull(may func(tenant string, hereOnly bool) bool) {
	ls.skipping = slices.DeleteFunc(ls.skipping, func(t *tenantLanes) bool {
		ready := ls.keys.CountReady(t.name) > 0
		if ready && !may(t.name, t.skipped) {
			return false
		}
		t.skips, t.skipped = false, false
		if ready {
			ls.contend(t)
		}
		return true
	})
	ls.full = slices.DeleteFunc(ls.full, func(t *tenantLanes) bool {
		works := ls.hasWork(t)
		if works && !may(t.name, t.onlyHere) {
			return false
		}
		t.full, t.onlyHere = false, false
		if works {
			ls.contend(t)
		}
		return true
	})
}

// RetryPeers has it tried again whether peers can run jobs of full tenants, and of keys that are skipped.
func (ls *Lanes) RetryPeers() {
	for _, t := range ls.skipping {
		t.skipped = false
	}
	for _, t := range ls.full {
		t.onlyHere = false
	}
}

// ServeFirst has those tenants be the next ones of whose jobs some were left out of a page,
// as it was full, so that what stood before them does not fill the next one, too.
func (ls *Lanes) ServeFirst(portions []Portion, left map[int]bool) {
	if len(ls.active) == 0 { // all are full by now
		return
	}
	owners := map[*tenantLanes]bool{}
	for i := range left {
		owners[portions[i].tenant()] = true
	}
	var had *tenantLanes // some
	if first := portions[slices.Min(slices.Collect(maps.Keys(left)))]; first.Places > 0 {
		had = first.tenant()
	}
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
