package routing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// forwards are what a pool's ledger says about tenants that are on their way: few, so
// that all are read at once and finding a tenant costs no query of its own.
type forwards struct {
	mu    sync.Mutex
	known map[tenancy.ID]store.TenantRow // guarded by mu; replaced, never changed
	until time.Time                      // guarded by mu; until when that is believed
}

const (
	forwardTimeout = 2 * time.Second
	forwardRetry   = time.Second // after a failed look
	heldKeep       = 200 * time.Millisecond
)

// forward says where a tenant stands in p.
func (p *Pool) forward(ctx context.Context, id tenancy.ID, keep time.Duration) store.TenantRow {
	return p.onTheirWay(ctx, keep)[id]
}

// onTheirWay is what p's ledger says about tenants. While the database cannot be asked,
// what was known last holds: whoever acts on it is refused there.
func (p *Pool) onTheirWay(ctx context.Context, keep time.Duration) map[tenancy.ID]store.TenantRow {
	f := &p.forwards
	f.mu.Lock()
	defer f.mu.Unlock()
	now := time.Now()
	if p.Outage() == nil && !now.Before(f.until) {
		queryCtx, cancel := context.WithTimeout(ctx, forwardTimeout)
		rows, err := store.TenantsOnTheirWay(queryCtx, p.Jobs())
		cancel()
		switch {
		case err == nil:
			f.known = make(map[tenancy.ID]store.TenantRow, len(rows))
			for _, r := range rows {
				f.known[tenancy.ID(r.Tenant)] = r
				if r.Held { // somebody waits for its end
					keep = min(keep, heldKeep)
				}
			}
			f.until = now.Add(keep)
		case ctx.Err() == nil: // it is not the caller who gave up
			p.log.Debug("moved tenants could not be read", zap.Error(err))
			f.until = now.Add(forwardRetry)
		}
	}
	return f.known
}

// expire makes the next look at p's tenants a new one, and says what is known of one.
func (p *Pool) expire(id tenancy.ID) store.TenantRow {
	p.forwards.mu.Lock()
	defer p.forwards.mu.Unlock()
	p.forwards.until = time.Time{}
	return p.forwards.known[id]
}

// follow leads a tenant on from where the configuration places it to where it was moved.
func (r *routes) follow(ctx context.Context, t tenancy.Tenant, p *Pool) (tenancy.Tenant, *Pool, error) {
	begin := p
	for range 2 { // what is remembered of several pools may not fit together
		p = begin
		for range len(r.pools) {
			next, err := r.next(ctx, t.ID, p)
			if err != nil {
				return tenancy.Tenant{}, nil, err
			}
			if next == nil {
				t.Pool = p.Name
				return t, p, nil
			}
			p = next
		}
		r.expire(t.ID, begin)
	}
	return tenancy.Tenant{}, nil, fmt.Errorf("tenant %q was moved in a circle, which nobody but a fail-over that lost commits can have done: set its row in tenure.tenant of the right pool to active", t.ID)
}

// next is the pool that a tenant's row in p leads to; nil: the tenant lives in p.
func (r *routes) next(ctx context.Context, id tenancy.ID, p *Pool) (*Pool, error) {
	row := p.forward(ctx, id, r.keep())
	switch row.State {
	case store.TenantMoved:
		if next := r.pools[row.Other]; next != nil {
			return next, nil
		}
		return nil, fmt.Errorf("tenant %q has moved from pool %q to pool %q, which is not configured: add it under pools", id, p.Name, row.Other)
	case store.TenantArriving: // it lives where it comes from until that pool is closed for it
		if from := r.pools[row.Other]; from != nil && from.forward(ctx, id, r.keep()).State == store.TenantMoving {
			return from, nil
		}
	}
	return nil, nil
}

func (r *routes) keep() time.Duration {
	if t := r.cfg.Tenants.Table; t != nil {
		return t.Cache
	}
	return defaultCache
}

// expire forgets what is known of the pools that a tenant was led through.
func (r *routes) expire(id tenancy.ID, p *Pool) {
	for seen := map[*Pool]bool{}; p != nil && !seen[p]; {
		seen[p] = true
		p = r.pools[p.expire(id).Other]
	}
}

// Forget has it asked anew where a tenant lives, because what is remembered turned out to
// be wrong.
func (r *Router) Forget(id tenancy.ID) {
	in := r.routes.Load()
	in.mu.Lock()
	a, known := in.cache[id]
	at := a.tenant.Pool
	if known { // kept for when the table cannot be asked
		a.until = time.Time{}
		in.cache[id] = a
	}
	in.mu.Unlock()
	if s, ok := in.cfg.Tenants.Static[id]; ok {
		at = s.Pool
	}
	in.expire(id, in.pools[at])
}

// Held returns a *tenancy.HeldError while p, where a tenant lives, is known to hold it:
// asking costs no connection then, however many wait. Whoever was refused by the database
// has it asked anew by Forget.
func (r *Router) Held(ctx context.Context, id tenancy.ID, p *Pool) error {
	row := p.forward(ctx, id, r.routes.Load().keep())
	if !row.Held {
		return nil
	}
	return &tenancy.HeldError{Tenant: id, To: row.Other}
}

// PlaceIn says how a tenant would be placed in a pool, with the schema and the role that
// it has where it lives. It refuses a schema that is another tenant's there.
func (r *Router) PlaceIn(ctx context.Context, id tenancy.ID, pool string) (tenancy.Tenant, error) {
	in := r.routes.Load()
	t, _, err := in.resolve(ctx, id)
	if err != nil {
		return tenancy.Tenant{}, err
	}
	t.Pool = pool
	if owner, ok := in.taken[[2]string{t.Pool, t.Schema}]; ok && owner != id {
		return tenancy.Tenant{}, fmt.Errorf("schema %q of tenant %q is tenant %q's in pool %s: give each its own schema", t.Schema, id, owner, pool)
	}
	return t, nil
}

// Reroute has the lookup table say that a tenant lives in a pool now, where the
// configuration says how. changed is false when there is nothing to be done.
func (r *Router) Reroute(ctx context.Context, id tenancy.ID, pool string) (changed bool, err error) {
	in := r.routes.Load()
	table := in.cfg.Tenants.Table
	if _, static := in.cfg.Tenants.Static[id]; static || table == nil || table.Move == "" {
		return false, nil
	}
	tag, err := in.pools[table.Pool].Tenants().Exec(ctx, table.Move, string(id), pool)
	switch {
	case err != nil:
		return false, fmt.Errorf("tenants.table.move for tenant %q: %w", id, err)
	case tag.RowsAffected() != 1:
		return false, &RowError{fmt.Errorf("move changed %d rows for tenant %q, not one: correct the statement", tag.RowsAffected(), id)}
	}
	r.Forget(id)
	return true, nil
}

// Listed are the tenants that the configuration itself lists.
func (r *Router) Listed() []tenancy.ID {
	return slices.Sorted(maps.Keys(r.routes.Load().cfg.Tenants.Static))
}
