package acquisition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// directClaimer adds and claims jobs in one transaction.
type directClaimer struct {
	place
	*work
	lock       *holding
	workers    *execution.Workers
	settings   *settings
	inbox      *inbox
	homes      *homes
	limits     *limits
	dispatcher *dispatcher
	handover   *handover
}

// add adds a job and claims it. It runs in the term's loop, while that waits: so the job is known to be in flight
// before the next page is read, which may show it.
func (c *directClaimer) add(ctx context.Context, d direct) error {
	home, err := c.admit(ctx, d.job)
	if home == nil {
		d.reply <- directReply{}
		return err
	}
	reserved := holdReserved(c.workers, 1)
	defer reserved.release()
	defer c.lock.session.BeginClaim()()
	// Not to be cut short by a stop: the reply would be lost for nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	began := time.Now()
	r, claim, err := store.EnqueueClaimed(ctx, c.pool.Jobs(), c.lock.Fence(), c.gates.Changes(), d.pool, d.job)
	d.reply <- directReply{Direct{r.ID, claim != 0}, true, err}
	if errors.Is(err, store.ErrUnsure) {
		return fmt.Errorf("%w: %w", errUnsure, err)
	}
	if claim == 0 {
		return nil
	}
	c.dispatcher.claimed = true
	c.dispatcher.submit(map[int64]int{claim: 1}, []execution.ClaimedJob{{ID: claim, Record: r, Tenant: home, Owner: c.lock.session, Weight: c.lanes.WeightOf(r.Tenant), Ready: began}}, []store.Waiting{{Record: r}}, reserved)
	return nil
}

// admit returns where the tenant of a job lives if the job may start at once, for which a
// slot is reserved then; nil: it may not.
func (c *directClaimer) admit(ctx context.Context, j *store.NewJob) (*tenancy.Tenant, error) {
	if c.handover.departing != nil || c.inbox.hasHints() || !c.lock.Trusted() || !c.settings.handles(j.Kind) ||
		c.lanes.HasUnclaimed() || c.lanes.IsFull(j.Tenant) || !c.quarantine.Empty() || c.homes.areOutdated() {
		return nil, nil
	}
	if err := c.limits.read(ctx); err != nil {
		return nil, err
	}
	home, pool, err := resolveTenant(ctx, c.homes.router, c.pool, tenancy.ID(j.Tenant))
	room := c.workers.Room()
	if err != nil || pool != c.pool || !c.gates.MayAdd(schedule.Passer{Tenant: j.Tenant, Queue: j.Queue, Kind: j.Kind, Key: j.ExclusiveKey}, time.Now()) || c.workers.FreeSlotsFor(c.lock.session, j.Tenant) == 0 || !room.Take(j.Tenant, j.Kind) {
		return nil, nil
	}
	if c.workers.Reserve(c.lock.session, 1) == 0 {
		return nil, nil
	}
	return &home, nil
}
