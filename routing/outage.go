package routing

import (
	"context"
	"fmt"
	"time"
)

// outage is that a pool in service has fallen silent, as this node's own calls on the
// lock's connection show.
type outage struct {
	since, last time.Time
	cause       error
}

// forgetOutage is after how long without another failure an outage is over: whoever
// found it has stopped looking.
const forgetOutage = 30 * time.Second

// Lost notes that this node has not reached the pool's database for a while.
func (p *Pool) Lost(cause error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	now := time.Now()
	if p.silent == nil || now.Sub(p.silent.last) >= forgetOutage {
		p.silent = &outage{since: now}
	}
	p.silent.last, p.silent.cause = now, cause
}

// Heard notes that the database has answered.
func (p *Pool) Heard() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.silent = nil
}

// Outage is why the pool's database cannot be used now, as an error with ErrPoolDown;
// nil: as far as this node knows it can. Whoever is about to wait for the database on
// behalf of somebody else asks first: it is tried again and again all the time, so one
// more try would only keep its caller waiting.
func (p *Pool) Outage() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case p.down != nil:
		return p.down
	case p.silent != nil && time.Since(p.silent.last) < forgetOutage:
		return fmt.Errorf("%w: its database has not answered this node since %s: %w", ErrPoolDown, p.silent.since.Format(time.RFC3339), p.silent.cause)
	}
	return nil
}

// firstTryLimit bounds the wait for a pool's first connection on behalf of a caller whose
// context has no end: a node that takes longer to start has failed.
const firstTryLimit = 30 * time.Second

// Available waits until the pool's database has been tried once, so that whoever enqueues
// while its process starts need not know when that is done, and returns [Pool.Outage].
// It waits for 30 s at most, within ctx, and not at all later on.
func (p *Pool) Available(ctx context.Context) error {
	select {
	case <-p.tried:
		return p.Outage()
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, firstTryLimit)
	defer cancel()
	select {
	case <-p.tried:
	case <-p.gone:
	case <-ctx.Done():
	}
	return p.Outage()
}
