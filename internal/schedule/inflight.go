package schedule

import (
	"iter"
	"slices"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Run is one run of a job, named by the turn it was claimed at.
type Run struct {
	ID   job.ID
	Turn int32
}

// InFlight knows which jobs of a pool are claimed, by any session. It belongs to one
// term and is used by its goroutine only.
type InFlight struct {
	own      map[job.ID]int32         // claimed in this term, with the turn each was claimed at
	assigned map[int64]*assignedClaim // claims made for other sessions in this term; their jobs are in own too
	away     int                      // how many those are
	// older holds the claims that stood when the term began, of whatever session, by
	// id. Nobody else makes claims during the term, so they can only get fewer.
	older map[int64]store.Claim
	byJob map[Run]struct{} // of older, without over; a job can stand in two of them, with different turns
	over  map[Run]struct{} // runs that have ended, while their older claim goes on: it keeps listing them
	last  int64            // the highest id among them
	onEnd []func(Run)      // are told of every run that is not in flight any more
}

// assignedClaim is a claim that was made for another session.
type assignedClaim struct {
	session uuid.UUID
	jobs    []Run
	over    int  // jobs that have ended, while the ledger goes on listing them
	gone    bool // it was missing from the ledger when last compared
}

// NewInFlight returns a set without a claim.
func NewInFlight() *InFlight {
	return &InFlight{own: map[job.ID]int32{}, assigned: map[int64]*assignedClaim{}, over: map[Run]struct{}{}}
}

// Any tells whether anything is in flight.
func (f *InFlight) Any() bool { return len(f.own)+len(f.older) > 0 }

// CountClaimed is how many jobs of this term are in flight, on all nodes.
func (f *InFlight) CountClaimed() int { return len(f.own) }

// HasAssigned tells whether claims for other sessions stand.
func (f *InFlight) HasAssigned() bool { return len(f.assigned) > 0 }

// HasOlder tells whether claims from before this term stand.
func (f *InFlight) HasOlder() bool { return len(f.older) > 0 }

// CountHere is how many jobs are in flight on this node.
func (f *InFlight) CountHere() int { return len(f.own) - f.away }

// Assign notes a job of a claim for another session.
func (f *InFlight) Assign(claim int64, session uuid.UUID, id job.ID, turn int32) {
	f.Add(id, turn)
	l := f.assigned[claim]
	if l == nil {
		l = &assignedClaim{session: session}
		f.assigned[claim] = l
	}
	l.jobs = append(l.jobs, Run{id, turn})
	f.away++
}

// EndAssigned notes that a claim for another session has come to its end, and returns whose it
// was, and of how many jobs; nobody's and none, if there is no such claim.
func (f *InFlight) EndAssigned(claim int64) (session uuid.UUID, jobs int) {
	l := f.assigned[claim]
	if l == nil {
		return uuid.Nil, 0
	}
	delete(f.assigned, claim)
	f.away -= len(l.jobs)
	for _, e := range l.jobs {
		f.End(e.ID, e.Turn)
	}
	return l.session, len(l.jobs)
}

// EndAssignedBy is EndAssigned, as a session says; false: the claim is another's, and stands.
// It may be a mistake, or a number that a fail-over has brought up again: the jobs of a claim
// that is wrongly thought to be over would be claimed once more.
func (f *InFlight) EndAssignedBy(session uuid.UUID, claim int64) bool {
	if l := f.assigned[claim]; l != nil && l.session != session {
		return false
	}
	f.EndAssigned(claim)
	return true
}

// ListAssigned returns the claims for other sessions, and how many jobs each had when last
// compared, to find out which have fewer now.
func (f *InFlight) ListAssigned() (claims []int64, jobs []int32) {
	for id, l := range f.assigned {
		claims, jobs = append(claims, id), append(jobs, int32(len(l.jobs)+l.over))
	}
	return claims, jobs
}

// CompareAssigned compares with the claims in the ledger, and tells whether jobs may wait
// again without anybody having said so: jobs that were given back unstarted leave a claim
// that goes on, and a claim that is missing twice in a row has ended without a word.
func (f *InFlight) CompareAssigned(ledger []store.Standing) (freed bool) {
	standing := make(map[int64][]job.ID, len(ledger))
	for _, c := range ledger {
		standing[c.ID] = c.Jobs
	}
	for id, l := range f.assigned {
		jobs, stands := standing[id]
		switch {
		case stands && jobs != nil:
			freed = f.keepListed(l, jobs) || freed
		case stands:
		case !l.gone:
			l.gone = true
		default:
			f.EndAssigned(id)
			freed = true
		}
	}
	return freed
}

// keepListed forgets the jobs of an assigned claim that the ledger does not list any more.
func (f *InFlight) keepListed(l *assignedClaim, listed []job.ID) (fewer bool) {
	still := make(map[job.ID]bool, len(listed))
	for _, id := range listed {
		still[id] = true
	}
	left := l.jobs[:0]
	for _, e := range l.jobs {
		if still[e.ID] {
			left = append(left, e)
			continue
		}
		f.End(e.ID, e.Turn)
		f.away--
		fewer = true
	}
	l.jobs, l.over = left, len(listed)-len(left)
	return fewer
}

// Has tells whether this very turn of a job is claimed. A later turn is not: the
// claim that lists an earlier one has lost it.
func (f *InFlight) Has(id job.ID, turn int32) bool {
	if t, ok := f.own[id]; ok && t == turn {
		return true
	}
	_, ok := f.byJob[Run{id, turn}]
	return ok
}

// Add notes that a turn of a job was claimed. That an earlier one has ended may not have come to this
// term's ears.
func (f *InFlight) Add(id job.ID, turn int32) {
	before, known := f.own[id]
	f.own[id] = turn
	if known && before != turn {
		f.tellEnd(Run{id, before})
	}
}

// End forgets a job whose end is committed, unless a later turn was claimed since.
func (f *InFlight) End(id job.ID, turn int32) {
	run := Run{id, turn}
	_, older := f.byJob[run]
	if older {
		delete(f.byJob, run)
		f.over[run] = struct{}{}
	}
	if t, own := f.own[id]; own && t == turn {
		delete(f.own, id)
	} else if !older {
		return
	}
	f.tellEnd(run)
}

// ListUntold lists those of some runs of whose ends nobody tells before their claims end: in claims
// from before this term, and in those for other sessions that have several jobs.
func (f *InFlight) ListUntold(runs iter.Seq[Run]) (untold []Run) {
	shared := map[Run]struct{}{}
	for _, l := range f.assigned {
		if len(l.jobs)+l.over > 1 {
			for _, run := range l.jobs {
				shared[run] = struct{}{}
			}
		}
	}
	if len(f.byJob)+len(shared) == 0 {
		return nil
	}
	for run := range runs {
		_, older := f.byJob[run]
		if _, ok := shared[run]; ok || older {
			untold = append(untold, run)
		}
	}
	return untold
}

// EndUntold forgets runs whose ends are committed, while the ledger goes on listing them.
func (f *InFlight) EndUntold(runs ...Run) {
	ended := make(map[Run]struct{}, len(runs))
	for _, run := range runs {
		ended[run] = struct{}{}
	}
	for _, l := range f.assigned {
		before := len(l.jobs)
		l.jobs = slices.DeleteFunc(l.jobs, func(run Run) bool { _, over := ended[run]; return over })
		l.over += before - len(l.jobs)
		f.away -= before - len(l.jobs)
	}
	for _, run := range runs {
		f.End(run.ID, run.Turn)
	}
}

func (f *InFlight) tellEnd(e Run) {
	for _, tell := range f.onEnd {
		tell(e)
	}
}

// Begin takes over the claims that stand when the term begins.
func (f *InFlight) Begin(claims []store.Claim) {
	for _, c := range claims {
		f.last = max(f.last, c.ID)
	}
	f.RefreshOlder(claims)
}

// RefreshOlder takes over what still stands of the older claims, and tells whether any
// job is free that was not before.
func (f *InFlight) RefreshOlder(claims []store.Claim) (freed bool) {
	older, byJob, over := map[int64]store.Claim{}, map[Run]struct{}{}, map[Run]struct{}{}
	for _, c := range claims {
		if c.ID > f.last {
			continue
		}
		older[c.ID] = c
		for _, id := range c.Jobs {
			run := Run{id, c.Turn}
			if _, ended := f.over[run]; ended {
				over[run] = struct{}{}
				continue
			}
			byJob[run] = struct{}{}
		}
	}
	before := f.byJob
	f.older, f.byJob, f.over = older, byJob, over
	for e := range before {
		if _, ok := byJob[e]; !ok {
			freed = true
			f.tellEnd(e)
		}
	}
	return freed
}

// CountOf is how many jobs a session has claimed, as far as is known here.
func (f *InFlight) CountOf(session uuid.UUID) (jobs int) {
	for _, c := range f.older {
		if c.Session == session {
			jobs += len(c.Jobs)
		}
	}
	for _, l := range f.assigned {
		if l.session == session {
			jobs += len(l.jobs)
		}
	}
	return jobs
}

// OthersClaim tells whether a session other than mine still has claims.
func (f *InFlight) OthersClaim(mine uuid.UUID) bool {
	if len(f.assigned) > 0 {
		return true
	}
	for _, c := range f.older {
		if c.Session != mine {
			return true
		}
	}
	return false
}
