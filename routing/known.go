package routing

import (
	"context"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// MaxKnown bounds how many tenants of a pool are looked for, in each place where they may be found.
const MaxKnown = maxCached

// ListsTenants tells whether the lookup table says who lives in a pool.
func (r *Router) ListsTenants() bool {
	t := r.routes.Load().table
	return t != nil && t.cfg.List != ""
}

// Known lists tenants that may live in a pool: those that the configuration or tenants.table.list names, and those of
// whom there is a trace in the ledger. Each may be named more than once, and may live elsewhere: see [Router.Resolve].
// If the table cannot be asked, the others are returned together with an error.
func (r *Router) Known(ctx context.Context, p *Pool) (ids []tenancy.ID, err error) {
	for _, find := range []func(context.Context, store.DB) ([]string, error){
		func(ctx context.Context, db store.DB) ([]string, error) {
			return store.TenantsWithJobs(ctx, db, MaxKnown, nil)
		},
		func(ctx context.Context, db store.DB) ([]string, error) { return store.SeenTenants(ctx, db, MaxKnown) },
	} {
		found, err := find(ctx, p.Jobs())
		if err != nil {
			return nil, err
		}
		for _, id := range found {
			ids = append(ids, tenancy.ID(id))
		}
	}
	ids = append(ids, r.Listed()...)
	listed, err := r.ListedByTable(ctx, p)
	return append(ids, listed...), err
}

// ListedByTable are the tenants that tenants.table.list names for a pool, in order, without those that tenants.static
// places; none if it is not configured.
func (r *Router) ListedByTable(ctx context.Context, p *Pool) ([]tenancy.ID, error) {
	in := r.routes.Load()
	if !r.ListsTenants() {
		return nil, nil
	}
	ids, err := in.table.list(ctx, p.Name)
	ids = slices.DeleteFunc(ids, func(id tenancy.ID) bool { _, static := in.cfg.Tenants.Static[id]; return static })
	slices.Sort(ids)
	return ids, err
}

// list asks the table who lives in a pool.
func (l *lookupTable) list(ctx context.Context, pool string) (ids []tenancy.ID, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	_ = l.pool.Available(ctx) // Outage says what is wrong with it
	if err := l.pool.Outage(); err != nil {
		return nil, err
	}
	err = l.pool.Tenants().do(ctx, func(c *pgx.Conn) error {
		ids, err = l.cfg.list(ctx, c, pool)
		return err
	})
	return ids, err
}

// list is one query, of MaxKnown tenants at most.
func (t *TableConfig) list(ctx context.Context, c *pgx.Conn, pool string) (ids []tenancy.ID, err error) {
	rows, _ := c.Query(ctx, t.List, pool) // its error is the rows', too
	defer rows.Close()
	for err == nil && rows.Next() && len(ids) < MaxKnown {
		var id string
		err = rows.Scan(&id)
		ids = append(ids, tenancy.ID(id))
	}
	rows.Close()
	if err == nil {
		err = rows.Err()
	}
	if err != nil {
		return nil, fmt.Errorf("tenants.table.list for pool %s: %w", pool, t.explain(err, c))
	}
	return ids, nil
}
