package acquisition

import (
	"maps"
	"slices"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// lanes decides whose jobs to read next. Tenants take turns with equal shares; a
// share that a tenant cannot use goes to the others in the next round, at once.
// Within a tenant the lane of the highest priority goes first, and those of one
// priority take turns. It belongs to one term and is used by its goroutine only.
type lanes struct {
	byKey  map[store.Lane]*lane
	active []*tenantLanes // tenants with an active lane that are not full; the next to be served first
	full   []*tenantLanes // tenants that may not have more in flight now
	tenant map[string]*tenantLanes

	missed  [2]bool         // some lane has jobs that were read and not claimed, by why
	foreign map[string]bool // kinds among them that this node cannot run
}

// Why jobs that were read could not be claimed then: this node has handlers for them
// and was full, or it has none and no peer with one had room.
const (
	missedHere    = 0
	missedByPeers = 1
)

// lane is where jobs of one queue, tenant and priority wait.
type lane struct {
	store.Lane
	owner   *tenantLanes
	after   int64    // read up to this position
	active  bool     // there may be more behind it
	missed  [2]int64 // the first position that could not be claimed, by why; 0: none
	rewound int64    // the position of the job that the cursor was last taken back to
	bytes   float64  // of its jobs' payloads, on average, lately; 0: not known
	idle    int      // how often forget has found it inactive since it last was active
}

// tenantLanes is a tenant with its lanes, highest priority first.
type tenantLanes struct {
	place   *tenancy.Tenant // where the tenant lives; nil: not resolved yet
	lanes   []*lane
	waiting bool // it is in lanes.active
	full    bool // it is in lanes.full
	// onlyHere: peers had room for some of its jobs, but not for those that came next.
	onlyHere bool
}

func newLanes() *lanes {
	return &lanes{byKey: map[store.Lane]*lane{}, tenant: map[string]*tenantLanes{}, foreign: map[string]bool{}}
}

// see notes that a lane may hold jobs behind its cursor.
func (ls *lanes) see(key store.Lane) *lane {
	l := ls.byKey[key]
	if l == nil {
		t := ls.tenant[key.Tenant]
		if t == nil {
			t = &tenantLanes{}
			ls.tenant[key.Tenant] = t
		}
		l = &lane{Lane: key, owner: t}
		ls.byKey[key] = l
		t.lanes = append(t.lanes, l)
		slices.SortStableFunc(t.lanes, func(a, b *lane) int { return int(b.Priority) - int(a.Priority) })
	}
	ls.activate(l)
	return l
}

func (ls *lanes) activate(l *lane) {
	l.active, l.idle = true, 0
	if !l.owner.waiting && !l.owner.full {
		l.owner.waiting = true
		ls.active = append(ls.active, l.owner)
	}
}

// beyond lists the lanes that were read beyond a position.
func (ls *lanes) beyond(position int64) (out []store.Lane) {
	for key, l := range ls.byKey {
		if l.after > position {
			out = append(out, key)
		}
	}
	return out
}

// rewind makes lanes be read again from the first job that was found behind their cursor.
// Unless always is set, that is done once for each job: one that nobody can run is found
// again and again while the floor cannot rise, and what is dead behind it is read with it.
func (ls *lanes) rewind(first map[store.Lane]int64, always bool) {
	for key, position := range first {
		if l := ls.byKey[key]; l != nil && l.after >= position && (always || l.rewound != position) {
			l.after, l.rewound = position-1, position
			ls.activate(l)
		}
	}
}

// restart makes every lane be read again from its start.
func (ls *lanes) restart() {
	for _, l := range ls.byKey {
		l.after = 0
		ls.activate(l)
	}
}

// unplace makes every tenant be resolved anew.
func (ls *lanes) unplace() {
	for _, t := range ls.tenant {
		t.place = nil
	}
}

// miss notes that a job was read that nobody can run now.
func (ls *lanes) miss(l *lane, position int64, kind string, here bool) {
	why := missedHere
	if !here {
		why = missedByPeers
		ls.foreign[kind] = true
	}
	ls.missed[why] = true
	if l.missed[why] == 0 || position < l.missed[why] {
		l.missed[why] = position
	}
}

// retry makes lanes be read again from what they missed.
func (ls *lanes) retry(why int) {
	if !ls.missed[why] {
		return
	}
	ls.missed[why] = false
	if why == missedByPeers {
		clear(ls.foreign)
	}
	for _, l := range ls.byKey {
		if at := l.missed[why]; at > 0 {
			l.missed[why] = 0
			l.after = min(l.after, at-1)
			ls.activate(l)
		}
	}
}

// forget drops lanes that it has found inactive so many times, so that tenants that came
// by once are not kept for ever. A dropped lane begins at its start when it is seen again,
// which is slow where its finished jobs are not tidied away yet: so not the first time.
func (ls *lanes) forget(times int) {
	for key, l := range ls.byKey {
		if l.active || l.owner.waiting || l.owner.full {
			continue
		}
		if l.idle++; l.idle < times {
			continue
		}
		delete(ls.byKey, key)
		l.owner.lanes = slices.DeleteFunc(l.owner.lanes, func(o *lane) bool { return o == l })
		if len(l.owner.lanes) == 0 {
			delete(ls.tenant, key.Tenant)
		}
	}
}

// hasWork tells whether some lane may have jobs.
func (ls *lanes) hasWork() bool { return len(ls.active) > 0 }

// plan shares n places among the tenants and returns what to read: one lane per
// tenant, the one whose turn it is.
func (ls *lanes) plan(n int) []portion {
	tenants := min(n, len(ls.active))
	if tenants == 0 {
		return nil
	}
	out := make([]portion, 0, tenants)
	share, rest := n/tenants, n%tenants
	for i, t := range ls.active[:tenants] {
		quota := share
		if i < rest {
			quota++
		}
		out = append(out, portion{lane: t.next(), quota: quota})
	}
	served := tenants
	if tenants == len(ls.active) { // all of them: the next round begins behind those that got one more
		served = rest
	}
	ls.active = append(slices.Clone(ls.active[served:]), ls.active[:served]...)
	return out
}

// portion is how many jobs to read from a lane.
type portion struct {
	lane  *lane
	quota int
	here  int // how many of them may be for this node
}

// next is the active lane of the highest priority; lanes of one priority take turns.
func (t *tenantLanes) next() *lane {
	l := t.first()
	for i := slices.Index(t.lanes, l); i+1 < len(t.lanes) && t.lanes[i+1].Priority == l.Priority; i++ {
		t.lanes[i], t.lanes[i+1] = t.lanes[i+1], t.lanes[i]
	}
	return l
}

func (t *tenantLanes) first() *lane {
	for _, l := range t.lanes {
		if l.active {
			return l
		}
	}
	return nil
}

// read notes that a lane was read up to a position, and whether there is more.
func (l *lane) read(upTo int64, more bool) {
	l.after = max(l.after, upTo)
	l.active = more
}

// settle drops tenants from the round that have no active lane any more.
func (ls *lanes) settle() {
	ls.active = slices.DeleteFunc(ls.active, func(t *tenantLanes) bool {
		t.waiting = t.first() != nil && !t.full
		return !t.waiting
	})
}

// fill takes a tenant out of the round, once settle is called, that may not have more in flight.
func (ls *lanes) fill(t *tenantLanes) {
	if !t.full {
		t.full = true
		ls.full = append(ls.full, t)
	}
}

// reopen brings full tenants back that may have more now, or have nothing more to do.
func (ls *lanes) reopen(may func(*lane) bool) {
	ls.full = slices.DeleteFunc(ls.full, func(t *tenantLanes) bool {
		l := t.first()
		if l != nil && !may(l) {
			return false
		}
		t.full, t.onlyHere = false, false
		if l != nil {
			ls.activate(l)
		}
		return true
	})
}

// peersMay makes it be looked again whether peers can run jobs of full tenants.
func (ls *lanes) peersMay() {
	for _, t := range ls.full {
		t.onlyHere = false
	}
}

// weigh notes how large a job is.
func (l *lane) weigh(j *store.Waiting) {
	const lately = 0.1 // of a new one in the average
	l.bytes += lately * (min(float64(j.Bytes), store.MaxJobBytes) - l.bytes)
}

// fits is how many jobs of the lane a page may have room for: others would be read in vain.
func (l *lane) fits() int { return max(1, int(store.MaxPageBytes/max(l.bytes, 1))) }

// serveFirst has those tenants be the next ones of whose jobs some were left out of a page,
// as it was full, so that what stood before them does not fill the next one, too.
func (ls *lanes) serveFirst(portions []portion, left map[int]bool) {
	owners := map[*tenantLanes]bool{}
	for i := range left {
		owners[portions[i].lane.owner] = true
	}
	served := map[*tenantLanes]bool{portions[slices.Min(slices.Collect(maps.Keys(left)))].lane.owner: true} // it had some
	rank := func(t *tenantLanes) int {
		switch {
		case served[t]:
			return 2
		case owners[t]:
			return 0
		}
		return 1
	}
	slices.SortStableFunc(ls.active, func(a, b *tenantLanes) int { return rank(a) - rank(b) })
}
