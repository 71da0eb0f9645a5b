package acquisition

import (
	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// flight knows which jobs of a pool are claimed, by whomever. It belongs to one
// term and is used by its goroutine only.
type flight struct {
	own  map[job.ID]int32 // claimed in this term, with the turn each was claimed at
	lent map[int64]*loan  // claims made for other sessions in this term; their jobs are in own too
	away int              // how many those are
	// older holds the claims that stood when the term began, of whatever session, by
	// id. Nobody else makes claims during the term, so they can only get fewer.
	older map[int64]store.Claim
	byJob map[endedJob]struct{} // of older; a job can stand in two of them, with different turns
	last  int64                 // the highest id among them
}

// loan is a claim that was made for another session.
type loan struct {
	session uuid.UUID
	jobs    []endedJob
	gone    bool // it was not in the ledger any more at the last look
}

func newFlight() *flight {
	return &flight{own: map[job.ID]int32{}, lent: map[int64]*loan{}}
}

// here is how many jobs are in flight on this node.
func (f *flight) here() int { return len(f.own) - f.away }

// lend notes a job of a claim for another session.
func (f *flight) lend(claim int64, session uuid.UUID, id job.ID, turn int32) {
	f.add(id, turn)
	l := f.lent[claim]
	if l == nil {
		l = &loan{session: session}
		f.lent[claim] = l
	}
	l.jobs = append(l.jobs, endedJob{id, turn})
	f.away++
}

// over notes that a claim for another session has come to its end.
func (f *flight) over(claim int64) {
	l := f.lent[claim]
	if l == nil {
		return
	}
	delete(f.lent, claim)
	f.away -= len(l.jobs)
	for _, e := range l.jobs {
		f.end(e.id, e.turn)
	}
}

// overBy is over, as a session says; false: the claim is another's, and stands. It may be
// a mistake, or a number that a fail-over has brought up again: of a claim that is thought
// to be over the jobs would be claimed once more.
func (f *flight) overBy(session uuid.UUID, claim int64) bool {
	if l := f.lent[claim]; l != nil && l.session != session {
		return false
	}
	f.over(claim)
	return true
}

// listed is of how many jobs each claim for another session was when last looked at, to
// find out which have fewer now.
func (f *flight) listed() (claims []int64, jobs []int32) {
	for id, l := range f.lent {
		claims, jobs = append(claims, id), append(jobs, int32(len(l.jobs)))
	}
	return claims, jobs
}

// settle compares with the claims in the ledger, and tells whether jobs may wait again of
// which nobody has said so: jobs that were given back unstarted leave a claim that goes on,
// and a claim that is gone for two looks has ended without a word.
func (f *flight) settle(ledger []store.Standing) (freed bool) {
	standing := make(map[int64][]job.ID, len(ledger))
	for _, c := range ledger {
		standing[c.ID] = c.Jobs
	}
	for id, l := range f.lent {
		jobs, stands := standing[id]
		switch {
		case stands && jobs != nil:
			freed = f.keep(l, jobs) || freed
		case stands:
		case !l.gone:
			l.gone = true
		default:
			f.over(id)
			freed = true
		}
	}
	return freed
}

// keep forgets the jobs of a loan that are not among those that its claim still lists.
func (f *flight) keep(l *loan, listed []job.ID) (fewer bool) {
	still := make(map[job.ID]bool, len(listed))
	for _, id := range listed {
		still[id] = true
	}
	left := l.jobs[:0]
	for _, e := range l.jobs {
		if still[e.id] {
			left = append(left, e)
			continue
		}
		f.end(e.id, e.turn)
		f.away--
		fewer = true
	}
	l.jobs = left
	return fewer
}

// has tells whether this very turn of a job is claimed. A later turn is not: the
// claim that lists an earlier one has lost it.
func (f *flight) has(id job.ID, turn int32) bool {
	if t, ok := f.own[id]; ok && t == turn {
		return true
	}
	_, ok := f.byJob[endedJob{id, turn}]
	return ok
}

func (f *flight) add(id job.ID, turn int32) { f.own[id] = turn }

// end forgets a job whose end is committed, unless a later turn was claimed since.
func (f *flight) end(id job.ID, turn int32) {
	if f.own[id] == turn {
		delete(f.own, id)
	}
}

// begin takes over the claims that stand when the term begins.
func (f *flight) begin(claims []store.Claim) {
	for _, c := range claims {
		f.last = max(f.last, c.ID)
	}
	f.refresh(claims)
}

// refresh takes over what still stands of the older claims, and tells whether any
// job is free that was not before.
func (f *flight) refresh(claims []store.Claim) (freed bool) {
	older, byJob := map[int64]store.Claim{}, map[endedJob]struct{}{}
	for _, c := range claims {
		if c.ID > f.last {
			continue
		}
		older[c.ID] = c
		for _, id := range c.Jobs {
			byJob[endedJob{id, c.Turn}] = struct{}{}
		}
	}
	for e := range f.byJob {
		if _, ok := byJob[e]; !ok {
			freed = true
			break
		}
	}
	f.older, f.byJob = older, byJob
	return freed
}

// othersClaim tells whether a session other than mine still has claims.
func (f *flight) othersClaim(mine uuid.UUID) bool {
	if len(f.lent) > 0 {
		return true
	}
	for _, c := range f.older {
		if c.Session != mine {
			return true
		}
	}
	return false
}
