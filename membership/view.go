package membership

import (
	"slices"
	"strings"
	"sync"
)

// view is an immutable snapshot of the members and of the pools to elect for.
// Changes throw it away, the next reader builds another; so a burst of changes
// costs one view, and one election only if somebody asks.
type view struct {
	members []Member // ascending by Name
	self    string
	pools   []string

	once     sync.Once
	eligible []Member  // by once; the election's candidates, at the same indexes
	election *election // by once
}

func (v *view) electOnce() *election {
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

func (v *view) findMember(name string) (Member, bool) {
	i, ok := slices.BinarySearchFunc(v.members, name, func(m Member, name string) int { return strings.Compare(m.Name, name) })
	if !ok {
		return Member{}, false
	}
	return v.members[i], true
}

// Members returns everybody believed alive, this process included, ascending by
// Name. The slice is the caller's. After Stop it is empty.
func (r *roster) Members() []Member { return slices.Clone(r.currentView().members) }

// Alive reports whether the process with this unique name is believed alive. It
// is false for a name this process never heard of, so before [Cluster.Settled],
// and after Stop, it says nothing.
func (r *roster) Alive(name string) bool {
	_, ok := r.currentView().findMember(name)
	return ok
}

// Lacks reports whether the process with this unique name is believed alive and announces
// that it cannot reach pool's database. One that lacks more than it can name says nothing
// of this one.
func (r *roster) Lacks(name, pool string) bool {
	m, ok := r.currentView().findMember(name)
	return ok && m.unreachable != everyPool && !m.Reaches(pool)
}

// KindsMark is what the process with this unique name announces of the kinds that it handles; 0:
// nothing, or it is not believed alive.
func (r *roster) KindsMark(name string) uint32 {
	m, _ := r.currentView().findMember(name)
	return m.kindsMark
}

// Rank is this process' place in the preference order for pool; 0 is elected. If
// it is not eligible, being a client, draining, not settled or stopped, rank is
// the number of those who are.
func (r *roster) Rank(pool string) (rank int, eligible bool) {
	v := r.currentView()
	e := v.electOnce()
	i := e.indexOf(v.self)
	if i < 0 {
		return len(e.nodes), false
	}
	return e.rankOf(pool, i), true
}

// Elected is the member that should hold pool's lock; false if nobody is eligible.
func (r *roster) Elected(pool string) (Member, bool) {
	v := r.currentView()
	i := v.electOnce().winner(pool)
	if i < 0 {
		return Member{}, false
	}
	return v.eligible[i], true
}

// Share is how many of the pools one member is elected for at most, unless others do
// not reach them.
func (r *roster) Share() int {
	v := r.currentView()
	return loadLimit(len(v.pools), max(1, len(v.electOnce().nodes)))
}

// Prefer is every eligible member in the order of preference for pool, the
// elected one first. The slice is the caller's.
func (r *roster) Prefer(pool string) []Member {
	v := r.currentView()
	order := v.electOnce().preferenceOf(pool)
	members := make([]Member, len(order))
	for i, n := range order {
		members[i] = v.eligible[n]
	}
	return members
}
