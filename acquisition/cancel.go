package acquisition

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// cancelStep is how many waiting jobs are cancelled between two claims.
const cancelStep = 500

// canceller ends waiting jobs that somebody wants cancelled: what pages show, and what it finds.
type canceller struct {
	place
	*work
	lock   *holding
	duties *duties
	sweep  *duty // of the rereader

	findDuty, cancelDuty duty

	lastAsked int64          // up to which id unwanted jobs were looked for
	found     store.Unwanted // to be cancelled
}

// listDuties are those of the canceller: in the loop, and beside it.
func (c *canceller) listDuties(now time.Time) []*duty {
	c.findDuty = duty{name: "waiting jobs to be cancelled", every: fixed(sweepEvery), due: firstSweep(now), query: c.findUnwanted}
	c.cancelDuty = duty{name: "waiting jobs to be cancelled", every: fixed(sweepEvery), due: now.Add(sweepEvery), do: c.cancelFound}
	c.lastAsked = store.BeforeAllJobs
	return []*duty{&c.cancelDuty, &c.findDuty}
}

// findUnwanted finds waiting jobs that somebody wants cancelled, whether or not any node could run them, step by
// step: no page may ever show those of a kind that no node handles, or of a frozen tenant. The loop
// cancels them, which alone knows that it has not claimed them since.
func (c *canceller) findUnwanted(ctx context.Context) (use func(), err error) {
	found, err := store.FindUnwanted(ctx, c.pool.Jobs(), c.lastAsked, cancelStep)
	return func() {
		c.found, c.lastAsked = found, store.BeforeAllJobs
		if n := len(found.IDs); n > 0 {
			c.cancelDuty.ask()
			if n == cancelStep {
				c.lastAsked = found.IDs[n-1]
				c.findDuty.ask()
			}
		}
	}, err
}

// cancel ends waiting jobs that somebody wants cancelled: by SQL, or while they were
// claimed by a node that may not have known when it gave them back. A row that somebody has
// locked is not waited for, but found again.
func (c *canceller) cancel(ctx context.Context, unwanted store.Unwanted) (n int, err error) {
	if len(unwanted.IDs) == 0 {
		return 0, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lease.CallTimeout)
	defer cancel()
	n, err = store.CancelWaiting(ctx, c.pool.Jobs(), c.lock.Fence(), unwanted, c.keeper.KeepsFinished())
	if n > 0 {
		c.log.Info("waiting jobs cancelled on request", zap.Int("jobs", n))
	}
	if errors.Is(err, store.ErrLocked) {
		c.duties.logLocked("cancelling", err)
		return n, nil
	}
	return n, err
}

// cancelFound ends the jobs that were found to be unwanted, but for those that were
// claimed since. What waits in quarantine is read again: one of those may be gone.
func (c *canceller) cancelFound(ctx context.Context) error {
	found := c.found
	c.found = store.Unwanted{}
	free := store.Unwanted{Removals: found.Removals}
	for i, id := range found.IDs {
		if !c.inFlight.Has(job.ID(id), found.Turns[i]) {
			free.Add(job.ID(id), found.Turns[i])
		}
	}
	if len(free.IDs) > 0 && !c.quarantine.Empty() {
		c.clearQuarantine()
		c.sweep.ask()
	}
	_, err := c.cancel(ctx, free)
	if errors.Is(err, store.ErrFenced) { // somebody took jobs away
		c.findDuty.ask()
		return c.lock.verify(ctx, c.pool)
	}
	return err
}
