package routing

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// routes is one configuration in force. It does not change, but for what it remembers.
type routes struct {
	cfg    Config
	pools  map[string]*Pool
	owners map[schemaIn]tenancy.ID // whose a schema is, as tenants.static says
	table  *lookupTable            // nil: there is none
}

// schemaIn is a schema in a pool.
type schemaIn struct{ pool, schema string }

// newRoutes prepares a configuration; spawn runs what nobody waits for.
func newRoutes(cfg Config, pools map[string]*Pool, spawn func(func())) (*routes, error) {
	owners, err := cfg.Tenants.owners()
	if err != nil {
		return nil, err
	}
	r := &routes{cfg: cfg, pools: pools, owners: owners}
	if t := cfg.Tenants.Table; t != nil {
		r.table = newLookupTable(cfg.Tenants, pools[t.Pool], r.owners, spawn)
	}
	return r, nil
}

// owners are whose schemas are, as tenants.static says.
func (t TenantsConfig) owners() (map[schemaIn]tenancy.ID, error) {
	owners := map[schemaIn]tenancy.ID{}
	for id, s := range t.Static {
		placed, err := t.place(id, s.Pool, s.Schema, s.Role)
		if err != nil {
			return nil, err
		}
		owners[schemaIn{placed.Pool, placed.Schema}] = id
	}
	return owners, nil
}

// list is the pools by name.
func (r *routes) list() []*Pool {
	out := make([]*Pool, 0, len(r.pools))
	for _, name := range slices.Sorted(maps.Keys(r.pools)) {
		out = append(out, r.pools[name])
	}
	return out
}

func (r *routes) resolve(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *Pool, error) {
	t, err := r.placeOf(ctx, id)
	if err != nil {
		return tenancy.Tenant{}, nil, err
	}
	p, ok := r.pools[t.Pool]
	if !ok {
		return tenancy.Tenant{}, nil, noSuchPool(t)
	}
	return r.followMoves(ctx, t, p)
}

// placeOf is where the configuration, or the lookup table, places a tenant.
func (r *routes) placeOf(ctx context.Context, id tenancy.ID) (tenancy.Tenant, error) {
	if err := id.Validate(); err != nil {
		return tenancy.Tenant{}, err
	}
	if s, ok := r.cfg.Tenants.Static[id]; ok {
		return r.cfg.Tenants.place(id, s.Pool, s.Schema, s.Role)
	}
	if r.table == nil {
		return tenancy.Tenant{}, fmt.Errorf("%w %q: it is not under tenants.static, and there is no tenants.table", tenancy.ErrUnknownTenant, id)
	}
	return r.table.lookUp(ctx, id)
}

// followMoves leads a tenant on from where the configuration places it to where it was moved.
func (r *routes) followMoves(ctx context.Context, t tenancy.Tenant, p *Pool) (tenancy.Tenant, *Pool, error) {
	begin := p
	for range 2 { // what is remembered of several pools may not fit together
		p = begin
		for range len(r.pools) {
			next, err := r.nextPool(ctx, t.ID, p)
			if err != nil {
				return tenancy.Tenant{}, nil, err
			}
			if next == nil {
				t.Pool = p.Name
				t.Shared = r.cfg.sharedBy(t.ID, p.Name)
				return p.admit(ctx, t)
			}
			p = next
		}
		r.expireMoves(t.ID, begin)
	}
	return tenancy.Tenant{}, nil, &RouteError{fmt.Errorf("tenant %q was moved in a circle, which only a fail-over that lost commits can have done: set its row in tenure.tenant of the right pool to active", t.ID)}
}

// admit refuses a tenant whose role is the user that the pool's connections are made as: its transactions would see
// all tenants' jobs. So would those of other roles that nobody should let that user take.
func (p *Pool) admit(ctx context.Context, t tenancy.Tenant) (tenancy.Tenant, *Pool, error) {
	if t.Role == "" {
		p.warnNoRole()
		return t, p, nil
	}
	users := p.latest.Load().users
	if slices.Contains(users, t.Role) {
		return tenancy.Tenant{}, nil, nodesRole(t)
	}
	if why := p.roles.refusal(ctx, p, users, t.Role); why != "" {
		return tenancy.Tenant{}, nil, &RouteError{fmt.Errorf("tenant %q: its role %q cannot be a tenant's in pool %q, as it would keep no tenants apart: it %s: give the tenant another role", t.ID, t.Role, p.Name, why)}
	}
	return t, p, nil
}

// nextPool is the pool that a tenant's row in p leads to; nil: the tenant lives in p.
func (r *routes) nextPool(ctx context.Context, id tenancy.ID, p *Pool) (*Pool, error) {
	row := p.forwards.read(ctx, r.believeFor())[id]
	switch row.State {
	case store.TenantMoved:
		if next := r.pools[row.Other]; next != nil {
			return next, nil
		}
		return nil, &RouteError{fmt.Errorf("tenant %q has moved from pool %q to pool %q, which is not configured: add it under pools", id, p.Name, row.Other)}
	case store.TenantArriving: // it lives where it comes from until that pool is closed for it
		if from := r.pools[row.Other]; from != nil && from.forwards.read(ctx, r.believeFor())[id].State == store.TenantMoving {
			return from, nil
		}
	}
	return nil, nil
}

// believeFor is how long what was read about tenants is believed.
func (r *routes) believeFor() time.Duration {
	if r.table != nil {
		return r.table.cfg.Cache
	}
	return defaultCache
}

// expireMoves forgets what is known of the pools that a tenant was led through.
func (r *routes) expireMoves(id tenancy.ID, p *Pool) {
	for seen := map[*Pool]bool{}; p != nil && !seen[p]; {
		seen[p] = true
		p = r.pools[p.forwards.expire(id).Other]
	}
}

// forget has the next resolve ask again where a tenant lives.
func (r *routes) forget(id tenancy.ID) {
	at := ""
	if r.table != nil {
		at = r.table.expire(id)
	}
	if s, ok := r.cfg.Tenants.Static[id]; ok {
		at = s.Pool
	}
	r.expireMoves(id, r.pools[at])
}
