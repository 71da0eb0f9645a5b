package routing

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// mostNamed bounds how many names one line of the log lists.
const mostNamed = 20

// caution logs what keeps no pool out of service but will hurt somebody. One
// tenant's missing schema, say, must not stop all others.
func (r *routes) caution(ctx context.Context, p *Pool, c *pgx.Conn) {
	var tenants []tenancy.Tenant
	for id, s := range r.cfg.Tenants.Static {
		if s.Pool != p.Name {
			continue
		}
		if t, ok := r.listed(id); ok {
			tenants = append(tenants, t)
		}
	}
	r.cautionTable(ctx, p)
	r.cautionSchemaOnly(p, tenants)
	risks, ok := r.cautionTenants(ctx, p, c, tenants)
	if ok && !risks.FSync {
		p.log.Warn("fsync is off on this server: a crash of its machine loses jobs or the whole database; turn it on")
	}
	if ok && !risks.FullPageWrites {
		p.log.Warn("full_page_writes is off on this server: a crash of its machine can damage the database; turn it on")
	}
}

// listed is how tenants.static places a tenant, if it does.
func (r *routes) listed(id tenancy.ID) (t tenancy.Tenant, ok bool) {
	s, ok := r.cfg.Tenants.Static[id]
	if !ok {
		return t, false
	}
	t, err := r.cfg.Tenants.place(id, s.Pool, s.Schema, s.Role)
	return t, err == nil // else Validate has refused it
}

// cautionNews is caution for the pools that stay in service, of what next, which has come
// into force, says otherwise than old did. What was told before is not told again.
func (r *Router) cautionNews(next, old *routes) {
	look := func(p *Pool, at func(ctx context.Context)) {
		r.group.Go(func() {
			done, err := p.door.verifying.turn(r.run)
			if err != nil {
				return
			}
			defer done()
			ctx, cancel := context.WithTimeout(r.run, verifyTimeout)
			defer cancel()
			at(ctx)
		})
	}
	serves := func(name string) (*Pool, bool) {
		p := next.pools[name]
		if p == nil || p != old.pools[name] {
			return nil, false
		}
		_, err := p.Number() // one that is not in service yet is looked at when it comes
		return p, err == nil
	}
	tenants := map[*Pool][]tenancy.Tenant{}
	for id := range next.cfg.Tenants.Static {
		t, _ := next.listed(id)
		before, _ := old.listed(id)
		if p, ok := serves(t.Pool); ok && t != before {
			tenants[p] = append(tenants[p], t)
		}
	}
	for p, here := range tenants {
		look(p, func(ctx context.Context) { next.cautionTenants(ctx, p, p.Jobs(), here) })
	}
	if table := next.cfg.Tenants.Table; table != nil && !table.asks(old.cfg.Tenants.Table) {
		if p, ok := serves(table.Pool); ok {
			look(p, func(ctx context.Context) { next.cautionTable(ctx, p) })
		}
	}
}

// asks tells whether other asks the same.
func (t *TableConfig) asks(other *TableConfig) bool {
	return other != nil && t.Pool == other.Pool && t.Query == other.Query && t.Move == other.Move
}

// cautionTenants is caution of these tenants of a pool.
func (r *routes) cautionTenants(ctx context.Context, p *Pool, db store.DB, tenants []tenancy.Tenant) (risks store.Risks, ok bool) {
	r.learnRoles(ctx, p, db, tenants)
	var schemas, roles []string
	withRole, without := r.cfg.Tenants.Role != "", false
	for _, t := range tenants {
		schemas, roles = append(schemas, t.Schema), append(roles, t.Role)
		withRole, without = withRole || t.Role != "", without || t.Role == ""
	}
	risks, err := store.LookForRisks(ctx, db, schemas, roles)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // as on a stop
			p.log.Warn("pool could not be looked at for risks", zap.Error(err))
		}
		return risks, false
	}
	if withRole && risks.LosesRole() {
		p.log.Warn("this minor version of Postgres may lose a transaction's role (CVE-2024-10978), which keeps tenants apart; install the newest one",
			zap.Int("server_version_num", risks.Version))
	}
	if without && risks.Mighty {
		p.log.Warn("this pool's user is a superuser or bypasses row-level security, and so do the handlers of tenants that have no role of their own; use another user, or set tenants.role")
	}
	if n := len(risks.MightyRoles); n > 0 {
		p.log.Warn("tenants' roles are superusers or bypass row-level security, so that they keep no tenants apart; use other roles",
			zap.Int("count", n), zap.Strings("roles", risks.MightyRoles[:min(n, mostNamed)]))
	}
	if n := len(risks.NoUsage); n > 0 {
		p.log.Warn("tenants' roles may not use their schemas, so that their jobs will fail; GRANT USAGE ON SCHEMA to them",
			zap.Int("count", n), zap.Strings("roles", risks.NoUsage[:min(n, mostNamed)]),
			zap.Strings("grants", risks.UsageGrants[:min(len(risks.UsageGrants), mostNamed)]))
	}
	if n := len(risks.EnqueueGrants); n > 0 {
		p.log.Warn("tenants' roles may not enqueue in their transactions",
			zap.Int("count", n), zap.Strings("grants", risks.EnqueueGrants[:min(n, mostNamed)]))
	}
	if n := len(risks.NoSchema); n > 0 {
		p.log.Warn("tenants have no schema in this pool, so that their jobs will fail; create it, or correct tenants.static",
			zap.Int("count", n), zap.Strings("schemas", risks.NoSchema[:min(n, mostNamed)]))
	}
	if n := len(risks.NoRole); n > 0 {
		p.log.Warn("tenants' roles do not exist, or this pool's user is no member of them, so that their jobs will fail; create or grant them",
			zap.Int("count", n), zap.Strings("roles", risks.NoRole[:min(n, mostNamed)]))
	}
	return risks, true
}

// learnRoles tells a pool's ledger which roles these tenants have, and which the others,
// so that they may enqueue by tenure.enqueue.
func (r *routes) learnRoles(ctx context.Context, p *Pool, db store.DB, tenants []tenancy.Tenant) {
	roles := map[string]string{store.PatternRole: r.cfg.Tenants.Role}
	for _, t := range tenants {
		roles[string(t.ID)] = t.Role
	}
	if _, err := store.LearnRoles(ctx, db, roles); err != nil && !errors.Is(err, context.Canceled) {
		p.log.Warn("the ledger could not be told which roles tenants have; by SQL, they may not enqueue under new ones", zap.Error(err))
	}
}

// Roles are the roles of a pool's tenants, by tenant, as far as they are under
// tenants.static, and under "" the pattern of the others'.
func (c Config) Roles(pool string) map[string]string {
	roles := map[string]string{store.PatternRole: c.Tenants.Role}
	for id, s := range c.Tenants.Static {
		if t, err := c.Tenants.place(id, s.Pool, s.Schema, s.Role); err == nil && t.Pool == pool { // else Validate refuses it
			roles[string(id)] = t.Role
		}
	}
	return roles
}

// cautionSchemaOnly says what nothing protects where handlers run as the pool's own user.
func (r *routes) cautionSchemaOnly(p *Pool, tenants []tenancy.Tenant) {
	without := r.cfg.Tenants.Table != nil && r.cfg.Tenants.Role == "" // unless the table says otherwise for each
	for _, t := range tenants {
		without = without || t.Role == ""
	}
	if without {
		p.log.Warn("tenants without a role run as this pool's user: their schema is searched first, and nothing more keeps them apart. " +
			"SQL that names another tenant's schema reaches its tables, and SQL that names schema tenure reaches all tenants' jobs, " +
			"where LOCK TABLE stops the pool for as long as the transaction may take; set tenants.role unless you trust all their SQL")
	}
}

// cautionTable has the lookup table's query described, which finds a table or a
// column that does not exist before the first tenant is looked up.
func (r *routes) cautionTable(ctx context.Context, p *Pool) {
	table := r.cfg.Tenants.Table
	if table == nil || table.Pool != p.Name {
		return
	}
	err := p.Tenants().AcquireFunc(ctx, func(c *pgxpool.Conn) error {
		for _, sql := range []string{table.Query, table.Move} {
			if sql == "" {
				continue
			}
			if _, err := c.Conn().PgConn().Prepare(ctx, "", sql, nil); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil && !errors.Is(err, context.Canceled) {
		p.log.Warn("tenants.table cannot be asked, so that its tenants are unknown; correct query and move, or make what they name", zap.Error(err))
	}
}
