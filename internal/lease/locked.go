package lease

import (
	"time"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
)

// lockedOutcomes are the ends of runs that cannot be written yet, because somebody has locked the
// rows of their jobs or of their claims. They wait apart, so that nothing else waits with them. It is used by
// the completer's goroutine only.
type lockedOutcomes struct {
	outcomes []Ended
	at       time.Time // when to check them again
	checks   int       // so far
}

// unlockChecks spaces out the checks whether rows are still locked.
var unlockChecks = backoff.Policy{First: retryEvery / 4, Longest: 5 * retryEvery}

// takeOut moves out of a batch what touches something that is held, and returns the rest:
// the runs of held jobs; of a held claim what is to be given back and, as it goes with its
// last job, one end. Its other ends are written.
func (s *lockedOutcomes) takeOut(batch []Ended, held store.Held) (free []Ended) {
	if held.None() {
		return batch
	}
	stays := map[int64]bool{} // held claims
	for _, e := range batch {
		job := e.How == Ran && held.Jobs[e.Claim.Record.ID]
		claim := held.Claims[e.Claim.ID] && (e.How == Unstarted || !stays[e.Claim.ID])
		if job || claim {
			stays[e.Claim.ID] = true
			s.outcomes = append(s.outcomes, e)
		} else {
			free = append(free, e)
		}
	}
	return free
}
