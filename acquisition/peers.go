package acquisition

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// peers are the other nodes that run jobs of this pool. When a holder's own workers
// are full it invites some of them; each answers with the room it has, and the holder
// makes claims for them. So the holder stays the only one that schedules, and work
// for a whole cluster costs one reader of the queue. It belongs to one term and is
// used by its goroutine only.
type peers struct {
	own   store.Kinds // of this node
	known map[uuid.UUID]*peer
	asked map[string]asking // by member
	kinds store.Kinds       // what this node or some peer can run
	full  time.Time         // since when there has been more work than this node's workers had room for; zero: there is not
	alone bool              // no other node was there at the last look
}

// asking is what is remembered of a member: when it was invited last, and what it
// can run, as far as that is known.
type asking struct {
	at    time.Time
	kinds store.Kinds
	known time.Time // when the kinds were
}

// peer is another node's session.
type peer struct {
	session uuid.UUID
	member  string
	kinds   store.Kinds
	met     bool            // its kinds are known
	full    map[string]bool // tenants that it can run no more jobs of now
	heard   time.Time
	credit  int   // jobs that may be given to it now
	given   int64 // jobs given to it, in all
	base    int64 // jobs it had taken over before this term gave it any
	bytes   int64 // of jobs given to it since it was last known to have taken over all
}

// Times of working together. A holder invites when its workers have been full for a
// moment, as a short burst is not worth a session on another node, and again while
// they are; a node works on a pool until no invitation has come for a while.
const (
	fullFor       = 50 * time.Millisecond
	inviteEvery   = time.Second
	invitedFor    = 3 * time.Second
	peerSilence   = 5 * time.Second // after it a peer is given nothing
	maxInvited    = 8               // at a time, of those that are not at work here
	kindsKept     = 5 * time.Minute // how long it is remembered what a member can run
	giveWithin    = 5 * time.Second // after it a claim that nobody took over is taken back
	reportEvery   = 5 * time.Millisecond
	reportAtLeast = 250 * time.Millisecond
)

// maxComing is how many bytes of payloads may be on their way to a peer, which reads all of
// them at once.
const maxComing = 2 * store.MaxPageBytes

func newPeers(own store.Kinds) *peers {
	return &peers{own: own, known: map[uuid.UUID]*peer{}, asked: map[string]asking{}, kinds: own, alone: true}
}

// report takes in what a peer says; more: it can be given more than before. nil: the
// session is another member's.
func (ps *peers) report(from string, r Room) (p *peer, more bool) {
	p = ps.known[r.Session]
	if p != nil && p.member != from {
		return nil, false
	}
	if p == nil {
		p = &peer{session: r.Session, member: from, base: r.Taken}
		ps.known[r.Session] = p
	}
	p.heard = time.Now()
	before, full := p.credit, len(p.full)
	p.full = make(map[string]bool, len(r.Full))
	for _, tenant := range r.Full {
		p.full[tenant] = true
	}
	coming := max(0, p.given-(r.Taken-p.base)) // given, and not taken over yet
	p.credit = max(0, r.Room-int(coming))
	if coming == 0 {
		p.bytes = 0
	}
	return p, p.credit > before || len(p.full) < full
}

// tookBack notes that a claim, or nil, which a peer did not take over is its own no more.
func (ps *peers) tookBack(l *loan) {
	if l == nil {
		return
	}
	if p := ps.known[l.session]; p != nil {
		p.given = max(0, p.given-int64(len(l.jobs)))
	}
}

// strangers tells whether the kinds of some peer are not known yet.
func (ps *peers) strangers() bool {
	for _, p := range ps.known {
		if !p.met {
			return true
		}
	}
	return false
}

// meet learns from the ledger what the peers can run, and forgets those whose session is
// another member's. It returns how many those were.
func (ps *peers) meet(sessions []store.Session) (impostors int) {
	for _, s := range sessions {
		p := ps.known[s.ID]
		switch {
		case p == nil:
		case p.member != s.Member:
			delete(ps.known, s.ID)
			impostors++
		case s.State == "live":
			p.kinds, p.met = store.KindsOf(s.Kinds), true
			ps.asked[p.member] = asking{at: ps.asked[p.member].at, kinds: p.kinds, known: time.Now()}
		}
	}
	ps.count()
	return impostors
}

// count brings the kinds that can be run up to date.
func (ps *peers) count() {
	all := slices.Clone(ps.own.List())
	for _, p := range ps.known {
		all = append(all, p.kinds.List()...)
	}
	ps.kinds = store.KindsOf(all)
}

// tend drops peers that have fallen silent or are gone.
func (ps *peers) tend(alive func(member string) bool) {
	dropped := false
	for id, p := range ps.known {
		if time.Since(p.heard) > peerSilence || !alive(p.member) {
			delete(ps.known, id)
			dropped = true
		}
	}
	if dropped {
		ps.count()
	}
}

// drop forgets a peer whose session has ended.
func (ps *peers) drop(p *peer) {
	delete(ps.known, p.session)
	ps.count()
}

// ready lists the peers that can be given jobs, the one with most room first.
func (ps *peers) ready() (ready []*peer, credit int) {
	for _, p := range ps.known {
		if p.met && p.credit > 0 && p.bytes < maxComing {
			ready = append(ready, p)
			credit += p.credit
		}
	}
	slices.SortFunc(ready, func(a, b *peer) int { return b.credit - a.credit })
	return ready, credit
}

// invite chooses whom to invite now: those that are known, so that they go on, and
// some that are not. With full unset help is sought for foreign kinds only, so that
// members are left out that cannot run any of them.
func (ps *peers) invite(members []string, full bool, foreign map[string]bool) (out []string) {
	now := time.Now()
	working := map[string]bool{}
	for _, p := range ps.known {
		working[p.member] = true
	}
	strangers := 0
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		a := ps.asked[m]
		if now.Sub(a.at) < inviteEvery || !full && now.Sub(a.known) < kindsKept && !anyOf(a.kinds, foreign) {
			continue
		}
		if !working[m] {
			if strangers++; strangers > maxInvited {
				continue
			}
		}
		a.at = now
		ps.asked[m] = a
		out = append(out, m)
	}
	for m, a := range ps.asked {
		if now.Sub(a.at) > kindsKept {
			delete(ps.asked, m)
		}
	}
	return out
}

// anyOf tells whether some of the wanted kinds is among kinds.
func anyOf(kinds store.Kinds, wanted map[string]bool) bool {
	for k := range wanted {
		if kinds.Has(k) {
			return true
		}
	}
	return false
}

// lack notes whether there is work here, and room for it; it tells whether this node's
// workers have been full for a while. Room that is less than there might be work says
// nothing: it may well be enough.
func (ps *peers) lack(work bool, room int) (full bool) {
	now := time.Now()
	switch {
	case !work:
		ps.full = time.Time{}
	case room == 0 && ps.full.IsZero():
		ps.full = now
	}
	return !ps.full.IsZero() && now.Sub(ps.full) >= fullFor
}

// seekHelp invites peers while there is more to do than this node can.
func (t *term) seekHelp(full bool) {
	if !full && len(t.lanes.foreign) == 0 {
		return
	}
	for _, m := range t.peers.invite(t.elector.Peers(), full, t.lanes.foreign) {
		if err := t.elector.Send(m, MessageInvite, About{Pool: t.pool.Name}.Encode()); err != nil {
			t.log.Debug("invitation could not be sent", zap.String("to", m), zap.Error(err))
		}
	}
}

// hear takes in what peers say.
func (t *term) hear(reports []report) {
	for _, r := range reports {
		p, more := t.peers.report(r.from, r.Room)
		if p == nil {
			t.metrics.dropped.WithLabelValues(foreignSession).Inc()
			continue
		}
		if more {
			t.lanes.peersMay()
		}
		if more && anyOf(p.kinds, t.lanes.foreign) {
			t.lanes.retry(missedByPeers)
		}
		for _, id := range r.Over {
			if !t.flight.overBy(r.Session, id) {
				t.metrics.dropped.WithLabelValues(foreignClaim).Inc()
			}
		}
		if r.Returned {
			t.chores.peers = time.Now() // it sees which
			askFor(&t.chores.sweep)
		}
		if r.DueIn > 0 {
			t.dueBy(time.Now().Add(r.DueIn))
		}
	}
	if t.peers.strangers() {
		t.chores.peers = time.Now()
	}
}

// tendPeers learns about new peers, and finds out what has become of claims that
// were given: a message about one may have been lost, or a peer may not have taken
// it over.
func (t *term) tendPeers(ctx context.Context) error {
	t.peers.tend(t.elector.Alive)
	if alone := len(t.elector.Peers()) == 0; alone != t.peers.alone {
		t.peers.alone = alone
		askFor(&t.chores.sweep) // jobs of foreign kinds are read only while there is somebody to run them
	}
	if t.peers.strangers() {
		sessions, err := store.Sessions(ctx, t.pool.Jobs())
		if err != nil {
			return err
		}
		t.metrics.dropped.WithLabelValues(foreignSession).Add(float64(t.peers.meet(sessions)))
		if anyOf(t.peers.kinds, t.lanes.foreign) {
			t.lanes.retry(missedByPeers)
		}
	}
	if len(t.flight.lent) == 0 && len(t.flight.older) == 0 {
		return nil
	}
	withdrawn, err := store.WithdrawClaims(ctx, t.pool.Jobs(), t.fence, giveWithin)
	if err != nil {
		return err
	}
	if len(withdrawn) > 0 {
		t.log.Warn("claims taken back that a node did not take over in time", zap.Int("claims", len(withdrawn)))
		for _, id := range withdrawn {
			t.peers.tookBack(t.flight.lent[id])
			t.flight.over(id)
		}
		askFor(&t.chores.sweep)
	}
	ids, jobs := t.flight.listed()
	standing, err := store.StandingClaims(ctx, t.pool.Jobs(), ids, jobs)
	if err != nil {
		return err
	}
	if t.flight.settle(standing) {
		askFor(&t.chores.sweep)
	}
	return nil
}

// share is what a peer is to be given.
type share struct {
	peer *peer
	jobs []store.Waiting
}

// assign shares out what was picked: as much to this node as it has room for, the
// rest to peers, each in proportion to its room. What nobody can run now is read
// again when somebody can.
func (t *term) assign(picked []store.Waiting, room int, ready []*peer, portions []portion) (own []store.Waiting, shares []share) {
	own = picked[:0]
	for _, p := range ready {
		shares = append(shares, share{peer: p})
	}
	for i := range picked {
		j := &picked[i]
		mine := t.kinds.Has(j.Record.Kind)
		p := &portions[j.Lane]
		if j.TooLarge && len(own) < room || mine && len(own) < room && p.here > 0 {
			p.here--
			own = append(own, *j)
			continue
		}
		if s := choose(shares, j.Record.Kind, j.Record.Tenant); s != nil {
			s.jobs = append(s.jobs, *j)
			continue
		}
		if mine && p.here == 0 { // else it would be read again at once, for a peer that cannot run it
			t.lanes.fill(p.lane.owner)
			p.lane.owner.onlyHere = true
		}
		t.lanes.miss(p.lane, j.Position, j.Record.Kind, mine)
	}
	return own, slices.DeleteFunc(shares, func(s share) bool { return len(s.jobs) == 0 })
}

// choose finds the peer with most room left among those that can run a kind, and more of a
// tenant's.
func choose(shares []share, kind, tenant string) (best *share) {
	most := 0
	for i := range shares {
		s := &shares[i]
		if left := s.peer.credit - len(s.jobs); left > most && s.peer.kinds.Has(kind) && !s.peer.full[tenant] {
			best, most = s, left
		}
	}
	return best
}

// give claims jobs for peers and tells them. An error other than ErrFenced leaves
// it open whether the claims stand, and ends the term, as with insert.
func (t *term) give(ctx context.Context, removals int64, shares []share, portions []portion) (n int, err error) {
	if !t.holding.trust.stands() {
		return 0, errTrustOver
	}
	var ids []int64
	var turns, to []int32
	sessions := make([]uuid.UUID, len(shares))
	for i, s := range shares {
		sessions[i] = s.peer.session
		for k := range s.jobs {
			ids, turns, to = append(ids, int64(s.jobs[k].Record.ID)), append(turns, s.jobs[k].Record.Turn), append(to, int32(i))
		}
	}
	// Not to be cut short by a stop: the answer would be lost for nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	given, err := store.GiveClaims(ctx, t.pool.Jobs(), t.fence, removals, ids, turns, to, sessions)
	if err != nil {
		return 0, fmt.Errorf("%w: %w", errUnsure, err)
	}
	t.inVain = 0
	byTurn := map[uuid.UUID]map[int32]int64{}
	for _, g := range given {
		t.horizon.bound(g.XID)
		if byTurn[g.Session] == nil {
			byTurn[g.Session] = map[int32]int64{}
		}
		byTurn[g.Session][g.Turn] = g.ID
	}
	for _, s := range shares {
		claims := byTurn[s.peer.session]
		if claims == nil { // its session has ended
			t.peers.drop(s.peer)
			for k := range s.jobs {
				t.lanes.miss(portions[s.jobs[k].Lane].lane, s.jobs[k].Position, s.jobs[k].Record.Kind, t.kinds.Has(s.jobs[k].Record.Kind))
			}
			continue
		}
		for k := range s.jobs {
			r := &s.jobs[k].Record
			t.flight.lend(claims[r.Turn], s.peer.session, r.ID, r.Turn)
		}
		t.limits.claimed(s.jobs...)
		s.peer.given += int64(len(s.jobs))
		for k := range s.jobs {
			s.peer.bytes += s.jobs[k].Bytes
		}
		s.peer.credit -= len(s.jobs)
		n += len(s.jobs)
		if err := t.elector.Send(s.peer.member, MessageGiven, About{Pool: t.pool.Name}.Encode()); err != nil {
			t.log.Debug("a node could not be told of its claims; it finds them by itself", zap.String("to", s.peer.member), zap.Error(err))
		}
	}
	t.metrics.given.WithLabelValues(t.pool.Name).Add(float64(n))
	if n == 0 {
		return 0, store.ErrFenced
	}
	return n, nil
}
