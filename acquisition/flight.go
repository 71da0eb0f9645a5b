package acquisition

import (
	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// flight knows which jobs of a pool are claimed, by whomever. It belongs to one
// term and is used by its goroutine only.
type flight struct {
	own map[job.ID]int32 // claimed in this term, with the turn each was claimed at
	// older holds the claims that stood when the term began, of whatever session, by
	// id. Nobody else makes claims during the term, so they can only get fewer.
	older map[int64]store.Claim
	byJob map[job.ID]int32 // of older
	last  int64            // the highest id among them
}

func newFlight() *flight {
	return &flight{own: map[job.ID]int32{}}
}

// has tells whether this very turn of a job is claimed. A later turn is not: the
// claim that lists an earlier one has lost it.
func (f *flight) has(id job.ID, turn int32) bool {
	if t, ok := f.own[id]; ok && t == turn {
		return true
	}
	t, ok := f.byJob[id]
	return ok && t == turn
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
	older, byJob := map[int64]store.Claim{}, map[job.ID]int32{}
	for _, c := range claims {
		if c.ID > f.last {
			continue
		}
		older[c.ID] = c
		for _, id := range c.Jobs {
			byJob[id] = c.Turn
		}
	}
	for id, turn := range f.byJob {
		if t, ok := byJob[id]; !ok || t != turn {
			freed = true
			break
		}
	}
	f.older, f.byJob = older, byJob
	return freed
}

// othersClaim tells whether a session other than mine still has claims.
func (f *flight) othersClaim(mine uuid.UUID) bool {
	for _, c := range f.older {
		if c.Session != mine {
			return true
		}
	}
	return false
}
