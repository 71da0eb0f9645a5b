package model

import (
	"cmp"
	"hash/maphash"
	"slices"
)

// Canonical implements System: it sorts the nodes by what they and their sessions
// are like. That nodes may tie does no harm but a few states more.
func (p *Protocol) Canonical(s *State) State {
	var keys [maxNodes]uint64
	order := [maxNodes]int{0, 1, 2}
	for n := range p.Nodes {
		keys[n] = maphash.Comparable(p.seed, viewOf(s, n))
	}
	slices.SortStableFunc(order[:p.Nodes], func(a, b int) int { return cmp.Compare(keys[a], keys[b]) })
	if order == [maxNodes]int{0, 1, 2} {
		return *s
	}
	out := *s
	var names [maxSessions + 1]session // new ones by old ones
	for to, from := range order {
		out.nodes[to] = s.nodes[from]
		for life := range uint8(maxLives) {
			names[sessionOf(from, life)] = sessionOf(to, life)
		}
	}
	rename := func(l, old *ledger) {
		l.lock.holder = names[l.lock.holder]
		for i := range l.claims {
			l.claims[i].session = names[l.claims[i].session]
		}
		for i, row := range old.sessions {
			l.sessions[names[i+1]-1] = row
		}
	}
	rename(&out.ledger, &s.ledger)
	rename(&out.replica, &s.replica)
	for i, silent := range s.silent {
		out.silent[names[i+1]-1] = silent
	}
	for i := range out.requests {
		r := &out.requests[i]
		r.from, r.target = names[r.from], names[r.target]
	}
	out.tidy()
	return out
}

// nodeView is what distinguishes a node from others, without names.
type nodeView struct {
	node     node
	sessions [2][maxLives]sessionRow
	silent   [maxLives]bool
	holds    [2]uint8            // 1 + the life that holds the lock
	claims   [2][maxClaims]uint8 // 1 + the life whose claim it is
	requests uint64
}

func viewOf(s *State, n int) nodeView {
	v := nodeView{node: s.nodes[n]}
	first := int(sessionOf(n, 0)) - 1
	for k, l := range []*ledger{&s.ledger, &s.replica} {
		v.sessions[k] = [maxLives]sessionRow(l.sessions[first : first+maxLives])
		if h := l.lock.holder; h != 0 && h.node() == n {
			v.holds[k] = 1 + h.life()
		}
		for i, c := range l.claims {
			if c.session != 0 && c.session.node() == n {
				v.claims[k][i] = 1 + c.session.life()
			}
		}
	}
	copy(v.silent[:], s.silent[first:first+maxLives])
	for _, r := range s.requests {
		if r.kind != free && r.from.node() == n {
			r.from, r.target = session(1+r.from.life()), 0
			v.requests += r.key()
		}
	}
	return v
}
