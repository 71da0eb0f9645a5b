package lease

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
)

// lockedOutcomes are the ends of runs that cannot be written yet, because somebody has locked the
// rows of their jobs or of their claims. They wait apart, so that nothing else waits with them. It is used by
// the completer's goroutine only.
type lockedOutcomes struct {
	nudge    chan struct{} // of the completer
	outcomes []Ended
	at       time.Time // when to check them again
	checks   int       // since the last of them came
}

// unlockChecks spaces out the checks whether rows are still locked.
var unlockChecks = backoff.Policy{First: retryEvery / 4, Longest: 5 * retryEvery}

// takeOut moves out of ends what touches something that is held, and returns the rest.
func (l *lockedOutcomes) takeOut(ends []Ended, held store.Held) (free []Ended) {
	if held.None() {
		return ends
	}
	l.checks = 0
	free = l.divide(ends, held)
	l.checkLater()
	return free
}

// release returns what is not locked any more, if it is time to check or ctx has ended.
func (l *lockedOutcomes) release(ctx context.Context, readHeld func(context.Context, []store.Finished, []int64) (store.Held, error)) (free []Ended) {
	if len(l.outcomes) == 0 || ctx.Err() == nil && time.Now().Before(l.at) {
		return nil
	}
	var runs []store.Finished
	claims := make([]int64, len(l.outcomes))
	for i, e := range l.outcomes {
		if claims[i] = e.Claim.ID; e.How == Ran {
			runs = append(runs, store.Finished{Record: &e.Claim.Record, Outcome: e.Outcome})
		}
	}
	if held, err := readHeld(ctx, runs, claims); err == nil {
		ends := l.outcomes
		l.outcomes = nil
		free = l.divide(ends, held)
	}
	l.checkLater()
	return free
}

// divide keeps what is held: the runs of held jobs; of a held claim what is to be given back
// and, as it goes with its last job, one end. Its other ends are written.
func (l *lockedOutcomes) divide(ends []Ended, held store.Held) (free []Ended) {
	stays := map[int64]bool{} // held claims
	for _, e := range ends {
		job := e.How == Ran && held.Jobs[e.Claim.Record.ID]
		claim := held.Claims[e.Claim.ID] && (e.How == Unstarted || !stays[e.Claim.ID])
		if job || claim {
			stays[e.Claim.ID] = true
			l.outcomes = append(l.outcomes, e)
		} else {
			free = append(free, e)
		}
	}
	return free
}

// checkLater wakes the completer in a while, if any row is locked.
func (l *lockedOutcomes) checkLater() {
	if len(l.outcomes) == 0 {
		return
	}
	l.checks++
	wait := unlockChecks.Exactly(l.checks)
	l.at = time.Now().Add(wait)
	time.AfterFunc(wait, func() { wake(l.nudge) })
}
