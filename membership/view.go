package membership

import (
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/hashicorp/memberlist"
)

// peer is another member, and a copy of what memberlist needs to send to it.
type peer struct {
	Member
	node memberlist.Node
}

// view is an immutable snapshot of the members and of the pools to elect for.
// Changes throw it away, the next reader builds it anew; so a burst of changes
// costs one view, and one election only if somebody asks.
type view struct {
	members []Member // ascending by Name
	self    string
	pools   []string

	once     sync.Once
	eligible []Member  // by once; the election's candidates, at the same indexes
	election *election // by once
}

func (v *view) elect() *election {
	v.once.Do(func() {
		var nodes []candidate
		for _, m := range v.members {
			if m.Eligible() {
				v.eligible = append(v.eligible, m)
				nodes = append(nodes, newCandidate(m))
			}
		}
		v.election = newElection(nodes, v.pools)
	})
	return v.election
}

func (v *view) find(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return v.members[i], true
}

func (c *Cluster) view() *view {
	if v := c.cached.Load(); v != nil {
		return v
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.cached.Load(); v != nil {
		return v
	}
	v := &view{self: c.name, pools: c.pools}
	if c.phase != stopped {
		v.members = make([]Member, 0, len(c.others)+1)
		v.members = append(v.members, c.self)
		for _, p := range c.others {
			v.members = append(v.members, p.Member)
		}
		slices.SortFunc(v.members, func(a, b Member) int { return strings.Compare(a.Name, b.Name) })
	}
	c.cached.Store(v)
	return v
}

// put records a member as n describes it, keeping nothing of n.
func (c *Cluster) put(n *memberlist.Node) {
	node := *n
	node.Addr = slices.Clone(n.Addr)
	node.Meta = nil
	m, err := decodeMeta(n.Name, n.Meta)
	if err != nil {
		// Alive is alive, whatever it says about itself.
		m = Member{Name: n.Name, Node: n.Name, Role: RoleUnknown}
		c.metrics.malformed.WithLabelValues("meta").Inc()
	}
	m.Addr = node.Address()

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.phase == stopped {
		return
	}
	if n.Name == c.name {
		// Our own flags are ours to say; only the address is news.
		if c.self.Addr != m.Addr {
			c.self.Addr = m.Addr
			c.changed(false)
		}
		return
	}
	old, known := c.others[n.Name]
	c.others[n.Name] = peer{Member: m, node: node}
	if !known || old.Member != m {
		c.changed(m.Role == RoleNode || old.Role == RoleNode)
	}
}

func (c *Cluster) drop(name string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	old, known := c.others[name]
	if !known {
		return
	}
	delete(c.others, name)
	if c.phase != stopped { // memberlist's suspicion timers can fire even after its shutdown
		c.changed(old.Role == RoleNode)
	} else if len(c.others) == 0 {
		nudge(c.gone)
	}
}

// conflict leaves a note for run, which logs it once per name.
func (c *Cluster) conflict(name, here, there string) {
	c.metrics.conflicts.Inc()
	c.mu.Lock()
	defer c.mu.Unlock()
	if _, noted := c.conflicts[name]; noted || len(c.conflicts) >= maxClashes {
		return
	}
	c.conflicts[name] = [2]string{here, there}
	nudge(c.wake)
}

// changed must be called with mu held, after a change to the view. nodes says
// whether it concerned a member that serves pools.
func (c *Cluster) changed(nodes bool) {
	if nodes {
		c.movedAt = time.Now()
	}
	c.cached.Store(nil)
	for w := range c.watchers {
		nudge(w)
	}
	nudge(c.wake)
}

// Self is this process as it announces itself.
func (c *Cluster) Self() Member {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.self
}

// Members returns everybody believed alive, this process included, ascending by
// Name. The slice is the caller's. After Stop it is empty.
func (c *Cluster) Members() []Member { return slices.Clone(c.view().members) }

// Alive reports whether the process with this unique name is believed alive. It
// is false for a name this process never heard of, so before [Cluster.Settled],
// and after Stop, it says nothing.
func (c *Cluster) Alive(name string) bool {
	_, ok := c.view().find(name)
	return ok
}

// Lacks reports whether the process with this unique name is believed alive and announces
// that it cannot reach pool's database. One that lacks more than it can name says nothing
// of this one.
func (c *Cluster) Lacks(name, pool string) bool {
	m, ok := c.view().find(name)
	return ok && m.unreachable != everyPool && !m.Reaches(pool)
}

// Settled is closed once this process has looked around: the first join
// succeeded, somebody joined it, or there is nobody to join, and the view then
// stood still for a while (local 200 ms, lan 1 s, wan 3 s); at the latest 1 s,
// 5 s or 15 s after Start. Until then it is not eligible, on any member. A
// Cluster stopped before never settles.
func (c *Cluster) Settled() <-chan struct{} { return c.settled }

// SetDraining announces that this process leaves soon, or, with false, that it
// stays after all. While draining it is eligible nowhere. Other members learn of
// it within some gossip rounds; SetDraining does not wait for that.
func (c *Cluster) SetDraining(draining bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.self.Draining == draining {
		return
	}
	c.self.Draining = draining
	nudge(c.announcing)
	c.changed(c.self.Role == RoleNode)
}

// SetReaches announces whether this process reaches a pool's database. While it does
// not, others are elected for that pool.
func (c *Cluster) SetReaches(pool string, reaches bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if reaches {
		delete(c.lacking, pool)
	} else {
		c.lacking[pool] = true
	}
	set := poolSetOf(slices.Collect(maps.Keys(c.lacking)))
	if set == c.self.unreachable {
		return
	}
	c.self.unreachable = set
	nudge(c.announcing)
	c.changed(c.self.Role == RoleNode)
}

// SetPools names the pools of this process' configuration, in any order. The
// election spreads them evenly; nodes agree on it as long as they are configured
// alike. The slice is copied.
func (c *Cluster) SetPools(names []string) {
	names = slices.Clone(names)
	slices.Sort(names)
	names = slices.Compact(names)
	c.mu.Lock()
	defer c.mu.Unlock()
	if slices.Equal(c.pools, names) {
		return
	}
	c.pools = names
	c.changed(false)
}

// Rank is this process' place in the preference order for pool; 0 is elected. If
// it is not eligible, being a client, draining, not settled or stopped, rank is
// the number of those who are.
func (c *Cluster) Rank(pool string) (rank int, eligible bool) {
	v := c.view()
	e := v.elect()
	i := e.find(v.self)
	if i < 0 {
		return len(e.nodes), false
	}
	return e.rank(pool, i), true
}

// Elected is the member that should hold pool's lock; false if nobody is eligible.
func (c *Cluster) Elected(pool string) (Member, bool) {
	v := c.view()
	i := v.elect().winner(pool)
	if i < 0 {
		return Member{}, false
	}
	return v.eligible[i], true
}

// Share is how many of the pools one member is elected for at most, unless others do
// not reach them.
func (c *Cluster) Share() int {
	v := c.view()
	return loadLimit(len(v.pools), max(1, len(v.elect().nodes)))
}

// Prefer is every eligible member in the order of preference for pool, the
// elected one first. The slice is the caller's.
func (c *Cluster) Prefer(pool string) []Member {
	v := c.view()
	order := v.elect().prefer(pool)
	members := make([]Member, len(order))
	for i, n := range order {
		members[i] = v.eligible[n]
	}
	return members
}

// Watch returns a channel that receives after the view changed: members, their
// states, or the pools. It has one slot, so changes in a row coalesce, and it is
// never closed. cancel ends the subscription; it may be called twice.
func (c *Cluster) Watch() (changes <-chan struct{}, cancel func()) {
	ch := make(chan struct{}, 1)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.watchers[ch] = struct{}{}
	return ch, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		delete(c.watchers, ch)
	}
}

// StableFor is how long no node came, went, or became or ceased to be eligible.
// Clients do not count.
func (c *Cluster) StableFor() time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	return time.Since(c.movedAt)
}
