package membership

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/hashicorp/memberlist"
)

// peer is another member, and a copy of what memberlist needs to send to it.
type peer struct {
	Member
	node memberlist.Node
}

// roster is who is believed alive, and what this process says of itself. Safe for concurrent
// use. Its lock is never held while memberlist is called: memberlist calls delegate with its
// own lock held.
type roster struct {
	name    string // Self().Name, which never changes
	metrics *metrics

	cached     atomic.Pointer[view] // nil after a change; set with mu held
	wake       chan struct{}        // one slot: look at the view
	announcing chan struct{}        // one slot: send our metadata
	alone      chan struct{}        // one slot: this process has stopped, and nobody else is left

	mu        sync.Mutex
	phase     phase                      // guarded by mu
	self      Member                     // guarded by mu
	others    map[string]peer            // guarded by mu
	pools     []string                   // guarded by mu; ascending; replaced, never written
	lacking   map[string]bool            // guarded by mu; pools this process does not reach
	movedAt   time.Time                  // guarded by mu; last change that concerns a node
	watchers  map[chan struct{}]struct{} // guarded by mu
	conflicts map[string][2]string       // guarded by mu; member name to its two addresses
	parted    map[string]bool            // guarded by mu; members that said that they leave, since they were last taken
}

func newRoster(self Member) roster {
	return roster{
		name:       self.Name,
		self:       self,
		wake:       make(chan struct{}, 1),
		announcing: make(chan struct{}, 1),
		alone:      make(chan struct{}, 1),
		others:     map[string]peer{},
		lacking:    map[string]bool{},
		movedAt:    time.Now(),
		watchers:   map[chan struct{}]struct{}{},
		conflicts:  map[string][2]string{},
		parted:     map[string]bool{},
	}
}

// currentView is the current snapshot.
func (r *roster) currentView() *view {
	if v := r.cached.Load(); v != nil {
		return v
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if v := r.cached.Load(); v != nil {
		return v
	}
	v := &view{self: r.name, pools: r.pools}
	if r.phase != stopped {
		v.members = make([]Member, 0, len(r.others)+1)
		v.members = append(v.members, r.self)
		for _, p := range r.others {
			v.members = append(v.members, p.Member)
		}
		slices.SortFunc(v.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	r.cached.Store(v)
	return v
}

// putMember records a member as n describes it, keeping nothing of n.
func (r *roster) putMember(n *memberlist.Node) {
	node := *n
	node.Addr = slices.Clone(n.Addr)
	node.Meta = nil
	m, err := decodeMeta(n.Name, n.Meta)
	if err != nil {
		// Alive is alive, whatever it says about itself.
		m = Member{Name: n.Name, Node: n.Name, Role: RoleUnknown}
		r.metrics.malformed.WithLabelValues("meta").Inc()
	}
	m.Addr = node.Address()

	r.mu.Lock()
	defer r.mu.Unlock()
	if r.phase == stopped {
		return
	}
	if n.Name == r.name {
		// Our own flags are ours to say; only the address is news.
		if r.self.Addr != m.Addr {
			r.self.Addr = m.Addr
			r.markChanged(false)
		}
		return
	}
	old, known := r.others[n.Name]
	r.others[n.Name] = peer{Member: m, node: node}
	if !known || old.Member != m {
		before := old.Member
		before.kindsMark = m.kindsMark // which concerns no election
		r.markChanged((m.Role == RoleNode || old.Role == RoleNode) && before != m)
	}
}

func (r *roster) dropMember(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	old, known := r.others[name]
	if !known {
		return
	}
	delete(r.others, name)
	if r.phase != stopped { // memberlist's suspicion timers can fire even after its shutdown
		r.markChanged(old.Role == RoleNode)
	} else if len(r.others) == 0 {
		nudge(r.alone)
	}
}

// noteConflict leaves a note for followView, which logs it once per name.
func (r *roster) noteConflict(name, here, there string) {
	r.metrics.conflicts.Inc()
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, noted := r.conflicts[name]; noted || len(r.conflicts) >= maxConflicts {
		return
	}
	r.conflicts[name] = [2]string{here, there}
	nudge(r.wake)
}

// takeConflicts empties what noteConflict noted.
func (r *roster) takeConflicts() map[string][2]string {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.conflicts) == 0 {
		return nil
	}
	taken := r.conflicts
	r.conflicts = map[string][2]string{}
	return taken
}

// noteFarewell notes that a member leaves of itself, which memberlist does not tell from its death.
func (r *roster) noteFarewell(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.parted) < maxParted { // what is more, nobody has sent who is one of us
		r.parted[name] = true
		nudge(r.wake)
	}
}

// takeParted empties what noteFarewell noted.
func (r *roster) takeParted() map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	taken := r.parted
	r.parted = map[string]bool{}
	return taken
}

// markChanged must be called with mu held, after a change to the view. nodes says
// whether it concerned a member that serves pools.
func (r *roster) markChanged(nodes bool) {
	if nodes {
		r.movedAt = time.Now()
	}
	r.cached.Store(nil)
	for w := range r.watchers {
		nudge(w)
	}
	nudge(r.wake)
}

// markSettled makes this process eligible.
func (r *roster) markSettled() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.self.Joining = false
	r.markChanged(r.self.Role == RoleNode)
	nudge(r.announcing)
}

// endPhase makes the phase stopped and returns what it was before.
func (r *roster) endPhase() (before phase) {
	r.mu.Lock()
	defer r.mu.Unlock()
	before, r.phase = r.phase, stopped
	if before != stopped {
		r.markChanged(true)
	}
	return before
}

func (r *roster) currentPhase() phase {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.phase
}

// listOthers lists the other members, also once this one has stopped.
func (r *roster) listOthers() []peer {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Collect(maps.Values(r.others))
}

// countOthers is how many other members are believed alive, also once this one has stopped.
func (r *roster) countOthers() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.others)
}

// Self is this process as it announces itself.
func (r *roster) Self() Member {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.self
}

// SetDraining announces that this process leaves soon, or, with false, that it
// stays after all. While draining it is eligible nowhere. Other members learn of
// it within some gossip rounds; SetDraining does not wait for that.
func (r *roster) SetDraining(draining bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self.Draining == draining {
		return
	}
	r.self.Draining = draining
	nudge(r.announcing)
	r.markChanged(r.self.Role == RoleNode)
}

// SetReaches announces whether this process reaches a pool's database. While it does
// not, others are elected for that pool.
func (r *roster) SetReaches(pool string, reaches bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if reaches {
		delete(r.lacking, pool)
	} else {
		r.lacking[pool] = true
	}
	set := poolSetOf(slices.Collect(maps.Keys(r.lacking)))
	if set == r.self.unreachable {
		return
	}
	r.self.unreachable = set
	nudge(r.announcing)
	r.markChanged(r.self.Role == RoleNode)
}

// SetKindsMark announces a number that tells the kinds that this process handles from others.
func (r *roster) SetKindsMark(mark uint32) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.self.kindsMark == mark {
		return
	}
	r.self.kindsMark = mark
	nudge(r.announcing)
	r.markChanged(false)
}

// SetPools names the pools of this process' configuration, in any order. The
// election spreads them evenly; nodes agree on it as long as they are configured
// alike. The slice is copied.
func (r *roster) SetPools(names []string) {
	names = slices.Compact(slices.Sorted(slices.Values(names)))
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Equal(r.pools, names) {
		return
	}
	r.pools = names
	r.markChanged(false)
}

// Watch returns a channel that receives after the view changed: members, their
// states, or the pools. It has one slot, so changes in a row coalesce, and it is
// never closed. cancel ends the subscription; it may be called twice.
func (r *roster) Watch() (changes <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	r.watchers[ch] = struct{}{}
	return ch, func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(r.watchers, ch)
	}
}

// StableFor is how long no node came, went, or became or ceased to be eligible.
// Clients do not count.
func (r *roster) StableFor() time.Duration {
	r.mu.Lock()
	defer r.mu.Unlock()
	return time.Since(r.movedAt)
}
