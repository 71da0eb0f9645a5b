package acquisition

import (
	"context"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// peers are the other nodes that run jobs of this pool. When a holder's own workers
// are full it invites some of them; each answers with the capacity it has, and the holder
// makes claims for them. So the holder stays the only one that schedules, and work
// for a whole cluster costs one reader of the queue.
type peers struct {
	place
	*work
	fence    store.Fence
	elector  Elector
	settings *settings
	timers   *timers
	sweep    *duty // of the rereader

	tendDuty duty
	known    map[uuid.UUID]*peer
	asked    map[string]invitation // by member
	runnable store.Kinds           // kinds that this node or some peer can run
	full     time.Time             // since when there has been more work than this node's workers had capacity for; zero: there is not
	counted  time.Time             // when a job that counts for a limit was last claimed though it has to wait for a worker here
	alone    bool                  // no other node was there at the last look
}

// invitation is what is remembered of a member: when it was invited last, and what it
// can run, as far as that is known.
type invitation struct {
	at    time.Time
	kinds store.Kinds
	mark  uint32    // tells them from others
	known time.Time // when the kinds were
}

// peer is another node's session.
type peer struct {
	session  uuid.UUID
	member   string
	kinds    store.Kinds
	mark     uint32          // of the kinds that it has in the ledger
	met      bool            // they are known
	full     map[string]bool // tenants that it can run no more jobs of now
	heard    time.Time
	credit   int   // jobs that may be assigned to it now
	idle     int   // its workers that run nothing, as far as they may be assigned some
	assigned int64 // jobs assigned to it, in all
	base     int64 // jobs it had accepted before this term assigned it any
	bytes    int64 // of jobs assigned to it since it was last known to have accepted all
}

// maxInvited bounds how many members are invited at a time that are not at work here.
const maxInvited = 8

// maxComing is how many bytes of payloads may be on their way to a peer, which reads all of
// them at once.
const maxComing = 2 * store.MaxPageBytes

// listDuties are those about peers.
func (ps *peers) listDuties(now time.Time) []*duty {
	ps.tendDuty = duty{name: "peers and their claims", every: fixed(tendEvery), due: now.Add(tendEvery), do: ps.tend}
	return []*duty{&ps.tendDuty}
}

// noteReport takes in what a peer says; more: it can be assigned more than before. nil: the
// session is another member's.
func (ps *peers) noteReport(from string, r Capacity) (p *peer, more bool) {
	p = ps.known[r.Session]
	if p != nil && p.member != from {
		return nil, false
	}
	if p == nil {
		p = &peer{session: r.Session, member: from, base: r.Taken}
		ps.known[r.Session] = p
	}
	p.heard = time.Now()
	if p.mark != r.Kinds {
		p.mark, p.met = r.Kinds, false
	}
	before, full := p.credit, len(p.full)
	p.full = make(map[string]bool, len(r.Full))
	for _, tenant := range r.Full {
		p.full[tenant] = true
	}
	coming := max(0, p.assigned-(r.Taken-p.base)) // assigned, and not accepted yet
	p.credit = max(0, r.Free-int(coming))
	p.idle = min(p.credit, max(0, r.Idle-int(coming)))
	if coming == 0 {
		p.bytes = 0
	}
	return p, p.credit > before || len(p.full) < full
}

// haveOthers tells whether there are other nodes.
func (ps *peers) haveOthers() bool { return len(ps.elector.Peers()) > 0 }

func (p *peer) countCredit() int { return p.credit }

func (p *peer) countIdle() int { return p.idle }

// noteWithdrawn notes that a peer lost a claim of some jobs that it did not accept.
func (ps *peers) noteWithdrawn(session uuid.UUID, jobs int) {
	if p := ps.known[session]; p != nil {
		p.assigned = max(0, p.assigned-int64(jobs))
	}
}

// hasUnmet tells whether the kinds of some peer are not known yet.
func (ps *peers) hasUnmet() bool {
	for _, p := range ps.known {
		if !p.met {
			return true
		}
	}
	return false
}

// noteSessions learns from the ledger what the peers can run, and forgets those whose session is
// another member's. It returns how many those were.
func (ps *peers) noteSessions(sessions []store.Session) (impostors int) {
	for _, s := range sessions {
		p := ps.known[s.ID]
		switch {
		case p == nil:
		case p.member != s.Member:
			delete(ps.known, s.ID)
			impostors++
		case s.State == "live":
			p.kinds, p.met = store.KindsOf(s.Kinds), true
			ps.asked[p.member] = invitation{at: ps.asked[p.member].at, kinds: p.kinds, mark: p.mark, known: time.Now()}
		}
	}
	ps.countKinds()
	return impostors
}

// noteOwnKinds takes in that this node's kinds have changed.
func (ps *peers) noteOwnKinds() {
	ps.countKinds()
	ps.sweep.ask() // jobs of kinds that nobody could run have not been read
}

// countKinds brings the kinds that can be run up to date.
func (ps *peers) countKinds() {
	all := slices.Clone(ps.settings.kinds.Load().List())
	for _, p := range ps.known {
		all = append(all, p.kinds.List()...)
	}
	ps.runnable = store.KindsOf(all)
}

// dropSilent drops peers that have fallen silent or are gone.
func (ps *peers) dropSilent() {
	dropped := false
	for id, p := range ps.known {
		if time.Since(p.heard) > peerPatience || !ps.elector.Alive(p.member) {
			delete(ps.known, id)
			dropped = true
		}
	}
	if dropped {
		ps.countKinds()
	}
}

// dropPeer forgets a peer whose session has ended.
func (ps *peers) dropPeer(p *peer) {
	delete(ps.known, p.session)
	ps.countKinds()
}

// listReady lists the peers that can be assigned jobs, the one with most capacity first: what
// one said a while ago it may have told another holder since.
func (ps *peers) listReady() (ready []*peer, credit int) {
	for _, p := range ps.known {
		if p.met && p.credit > 0 && p.bytes < maxComing && time.Since(p.heard) <= allottedFor {
			ready = append(ready, p)
			credit += p.credit
		}
	}
	slices.SortFunc(ready, func(a, b *peer) int { return b.credit - a.credit })
	return ready, credit
}

// chooseInvited chooses which members to invite now: those that are known, so that they go on, and
// some that are not. With full unset help is sought for unsupported kinds only, so that members
// are left out that cannot run any of them either.
func (ps *peers) chooseInvited(members []string, full bool, unsupported map[string]bool) (out []string) {
	now, kindsKept := time.Now(), 5*sweepEvery
	working := map[string]bool{}
	for _, p := range ps.known {
		working[p.member] = true
	}
	strangers := 0
	for _, i := range rand.Perm(len(members)) {
		m := members[i]
		a := ps.asked[m]
		known := now.Sub(a.known) < kindsKept && a.mark == ps.elector.KindsMark(m)
		if now.Sub(a.at) < tendEvery || !full && known && !anyOf(a.kinds, unsupported) {
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

// noteWork notes whether there is work here, and how many slots are reserved for it; it tells
// whether this node's workers have been full for a while. Fewer slots than there might be jobs
// say nothing: they may well be enough.
func (ps *peers) noteWork(work bool, slots int) (full bool) {
	now := time.Now()
	switch {
	case !work:
		ps.full = time.Time{}
	case slots == 0 && ps.full.IsZero():
		ps.full = now
	}
	return !ps.full.IsZero() && now.Sub(ps.full) >= burst
}

// noteCounted notes that a job which counts for a limit waits for a worker here.
func (ps *peers) noteCounted() { ps.counted = time.Now() }

// holdsCounted tells whether some did lately: peers would run more of what the limit allows.
func (ps *peers) holdsCounted() bool { return time.Since(ps.counted) < tendEvery }

// seekHelp invites peers while there is more to do than this node can.
func (ps *peers) seekHelp(full bool) {
	if !full && len(ps.lanes.UnsupportedKinds()) == 0 {
		return
	}
	for _, m := range ps.chooseInvited(ps.elector.Peers(), full, ps.lanes.UnsupportedKinds()) {
		if err := ps.elector.Send(m, MessageInvite, About{Pool: ps.pool.Name}.Encode()); err != nil {
			ps.log.Debug("invitation could not be sent", zap.String("to", m), zap.Error(err))
		}
	}
}

// noteReports takes in what peers say.
func (ps *peers) noteReports(reports []report) {
	for _, r := range reports {
		p, more := ps.noteReport(r.from, r.Capacity)
		if p == nil {
			ps.metrics.dropped.WithLabelValues(foreignSession).Inc()
			continue
		}
		if more {
			ps.lanes.RetryPeers()
		}
		if more && anyOf(p.kinds, ps.lanes.UnsupportedKinds()) {
			ps.lanes.RereadMissed(schedule.MissedByPeers)
		}
		for _, id := range r.Over {
			if !ps.inFlight.EndAssignedBy(r.Session, id) {
				ps.metrics.dropped.WithLabelValues(foreignClaim).Inc()
			}
		}
		if r.Returned {
			ps.tendDuty.ask() // it sees which
			ps.sweep.ask()
		}
		if r.DueIn > 0 {
			ps.timers.expect(time.Now().Add(r.DueIn))
		}
	}
	if ps.hasUnmet() {
		ps.tendDuty.ask()
	}
}

// tend learns about new peers, and finds out what has become of assigned claims: a message
// about one may have been lost, or a peer may not have taken it over.
func (ps *peers) tend(ctx context.Context) error {
	ps.dropSilent()
	if alone := !ps.haveOthers(); alone != ps.alone {
		ps.alone = alone
		ps.sweep.ask() // jobs of unsupported kinds are read only while there is somebody to run them
	}
	if ps.hasUnmet() {
		sessions, err := store.Sessions(ctx, ps.pool.Jobs())
		if err != nil {
			return err
		}
		ps.metrics.dropped.WithLabelValues(foreignSession).Add(float64(ps.noteSessions(sessions)))
		if anyOf(ps.runnable, ps.lanes.UnsupportedKinds()) {
			ps.lanes.RereadMissed(schedule.MissedByPeers)
		}
	}
	if _, credit := ps.listReady(); credit > 0 {
		// This node may be full for long, and have jobs that no peer could run. Not with every report:
		// what is read again is in flight for the most part.
		ps.lanes.RereadMissed(schedule.MissedHere)
	}
	if !ps.inFlight.HasAssigned() && !ps.inFlight.HasOlder() {
		return nil
	}
	withdrawn, err := store.WithdrawClaims(ctx, ps.pool.Jobs(), ps.fence, peerPatience)
	if err != nil {
		return err
	}
	if len(withdrawn) > 0 {
		ps.log.Warn("claims withdrawn that a node did not accept in time", zap.Int("claims", len(withdrawn)))
		for _, id := range withdrawn {
			ps.noteWithdrawn(ps.inFlight.EndAssigned(id))
		}
		ps.sweep.ask()
	}
	ids, jobs := ps.inFlight.ListAssigned()
	standing, err := store.StandingClaims(ctx, ps.pool.Jobs(), ids, jobs)
	if err != nil {
		return err
	}
	if ps.inFlight.CompareAssigned(standing) {
		ps.sweep.ask()
	}
	return nil
}
