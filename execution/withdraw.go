package execution

import (
	"context"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
)

// withdrawnPoll is how often it is looked whether runs of withdrawn kinds have ended: those that
// withdraw kinds are few, and the runs are not slowed down by telling of their end.
const withdrawnPoll = lookahead / 10

// withdrawal brings what runs of withdrawn kinds to its end.
type withdrawal struct{ *Workers }

// finish is Workers.FinishWithdrawn.
func (w withdrawal) finish(ctx context.Context) error {
	w.gathering.passOnAll()
	poll := time.NewTicker(withdrawnPoll)
	defer poll.Stop()
	ended, grace := ctx.Done(), (<-chan time.Time)(nil)
	for {
		running := w.withdrawnKinds()
		if len(running) == 0 {
			return nil
		}
		select {
		case <-poll.C:
		case <-ended:
			w.log.Warn("cancelling handlers of withdrawn kinds that did not finish in time", zap.Any("running", running))
			w.cancelWithdrawn()
			ended, grace = nil, time.After(cancelGrace)
		case <-grace:
			return fmt.Errorf("withdraw kinds: handlers ignore that their context was cancelled: %v", running)
		case <-w.stopped:
			return nil
		}
	}
}

// withdrawnKinds counts what runs of kinds that are not handled any more, by kind. A slot's mu is what
// keeps a worker from beginning what it has looked up before the kind was withdrawn.
func (w withdrawal) withdrawnKinds() map[string]int {
	out := w.runningKinds()
	for kind := range out {
		if _, handled := w.registry.Lookup(kind); handled {
			delete(out, kind)
		}
	}
	return out
}

func (w withdrawal) cancelWithdrawn() {
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil {
			if _, handled := w.registry.Lookup(s.claim.Record.Kind); !handled {
				s.cancel(job.ErrStopping)
			}
		}
		s.mu.Unlock()
	}
}
