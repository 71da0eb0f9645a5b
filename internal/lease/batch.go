package lease

import (
	"slices"

	"github.com/tenurehq/tenure/internal/store"
)

// batch is a part of the ends that wait, as it is written.
type batch struct {
	ends                     []Ended
	jobs                     map[int64]int    // of each of their claims
	over                     []int64          // claims whose last job is among them
	runs                     []store.Finished // to be ended
	returnClaims, returnJobs []int64          // to be given back, of claims that are not over
	tries                    int              // to write it
}

// sort finds out what is to be written of each end.
func (b *batch) sort() {
	b.runs = make([]store.Finished, 0, len(b.ends))
	for i := range b.ends {
		switch e := &b.ends[i]; e.How {
		case Ran:
			b.runs = append(b.runs, store.Finished{Record: &e.Claim.Record, Outcome: e.Outcome, Took: e.Took})
		case Unstarted:
			if !slices.Contains(b.over, e.Claim.ID) {
				b.returnClaims = append(b.returnClaims, e.Claim.ID)
				b.returnJobs = append(b.returnJobs, int64(e.Claim.Record.ID))
			}
		}
	}
}
