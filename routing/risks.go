package routing

import (
	"context"
	"errors"
	"slices"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// mostNamed bounds how many names one line of the log lists.
const mostNamed = 20

// riskCheck logs what keeps no pool out of service but will hurt somebody. One tenant's
// missing schema, say, must not stop all others.
type riskCheck struct{ tenants TenantsConfig }

// riskLog has a name of its own, as not everybody wants to hear of risks: a test's server is careless
// on purpose.
func riskLog(p *Pool) *zap.Logger { return p.log.Named("risks") }

// checkPool looks at a pool that is about to come into service.
func (r riskCheck) checkPool(ctx context.Context, p *Pool, c *pgx.Conn) {
	tenants := Config{Tenants: r.tenants}.TenantsOf(p.Name)
	r.checkTimeline(ctx, p, c)
	r.checkTable(ctx, p)
	r.checkRoles(p, tenants)
	risks, ok := r.checkTenants(ctx, p, c, tenants)
	if ok && !risks.FSync {
		riskLog(p).Warn("fsync is off on this server: a crash of its machine loses jobs or the whole database; turn it on")
	}
	if ok && !risks.FullPageWrites {
		riskLog(p).Warn("full_page_writes is off on this server: a crash of its machine can damage the database; turn it on")
	}
}

// checkTimeline looks whether it could be told that the pool's server was replaced.
func (r riskCheck) checkTimeline(ctx context.Context, p *Pool, db store.DB) {
	if is, err := store.ServerIs(ctx, db); err == nil && is.Constant() { // else it is asked again with each connection
		riskLog(p).Info("this server's timeline cannot be read, so nothing here notices a primary that was replaced; its storage has to refuse that one's writes",
			zap.String("reason", is.Refused))
	}
}

// asksSame tells whether other asks the same.
func (t *TableConfig) asksSame(other *TableConfig) bool {
	return other != nil && t.Pool == other.Pool && t.Query == other.Query && t.List == other.List && t.Move == other.Move
}

// checkTenants looks at these tenants of a pool.
func (r riskCheck) checkTenants(ctx context.Context, p *Pool, db store.DB, tenants []tenancy.Tenant) (risks store.Risks, ok bool) {
	r.learnRoles(ctx, p, db, tenants)
	var schemas, roles []string
	withRole, without := r.tenants.Role != "", false
	for _, t := range tenants {
		schemas, roles = append(schemas, t.Schema), append(roles, t.Role)
		withRole, without = withRole || t.Role != "", without || t.Role == ""
	}
	risks, err := store.LookForRisks(ctx, db, schemas, roles)
	if err != nil {
		if !errors.Is(err, context.Canceled) { // as on a stop
			riskLog(p).Warn("pool could not be checked for risks", zap.Error(err))
		}
		return risks, false
	}
	if withRole && risks.LosesRole() {
		riskLog(p).Warn("this minor version of Postgres may lose a transaction's role (CVE-2024-10978), which keeps tenants apart; install the newest one",
			zap.Int("server_version_num", risks.Version))
	}
	if without && risks.Mighty {
		riskLog(p).Warn("this pool's user is a superuser or bypasses row-level security, and so do the handlers of tenants that have no role of their own; use another user, or set tenants.role")
	}
	warn := func(message, key string, names []string, more ...zap.Field) {
		if n := len(names); n > 0 {
			riskLog(p).Warn(message, append([]zap.Field{zap.Int("count", n), zap.Strings(key, names[:min(n, mostNamed)])}, more...)...)
		}
	}
	warn("tenants' roles are superusers or bypass row-level security, so that they keep no tenants apart; use other roles", "roles", risks.MightyRoles)
	warn("tenants' roles, or this pool's user where they have none, may not use their schemas, so that their jobs wait; GRANT USAGE ON SCHEMA to them", "roles", risks.NoUsage,
		zap.Strings("grants", risks.UsageGrants[:min(len(risks.UsageGrants), mostNamed)]))
	warn("tenants' roles may not enqueue in their transactions", "grants", risks.EnqueueGrants)
	warn("tenants have no schema in this pool, so that their jobs wait; create it, or correct tenants.static", "schemas", risks.NoSchema,
		zap.Strings("statements", risks.MakeSchemas[:min(len(risks.MakeSchemas), mostNamed)]))
	warn("tenants have roles that no tenant can have, as these would keep nobody apart, so that their jobs wait; name other roles", "roles", risks.RefusedRoles)
	warn("tenants' roles do not exist, or this pool's user is no member of them, so that their jobs wait; create or grant them", "roles", risks.NoRole,
		zap.Strings("statements", risks.MakeRoles[:min(len(risks.MakeRoles), mostNamed)]))
	return risks, true
}

// learnRoles tells a pool's ledger which roles these tenants have, and which the others,
// so that they may enqueue by tenure.enqueue.
func (r riskCheck) learnRoles(ctx context.Context, p *Pool, db store.DB, tenants []tenancy.Tenant) {
	roles := map[string]string{store.PatternRole: r.tenants.Role}
	for _, t := range tenants {
		roles[string(t.ID)] = t.Role
	}
	switch _, err := store.LearnRoles(ctx, db, roles); {
	case err == nil || errors.Is(err, context.Canceled):
	case store.NoPrivilege(err): // its user only enqueues: nodes tell it
	default:
		riskLog(p).Warn("the ledger could not be told which roles tenants have; by SQL, they may not enqueue under new ones", zap.Error(err))
	}
}

// checkRoles says what nothing protects where handlers run as the pool's own user. Which of the lookup table's
// tenants do is not known before they are looked up.
func (r riskCheck) checkRoles(p *Pool, tenants []tenancy.Tenant) {
	if slices.ContainsFunc(tenants, func(t tenancy.Tenant) bool { return t.Role == "" }) {
		p.warnNoRole()
	}
}

// warnNoRole is called for each tenant without a role, and says so once.
func (p *Pool) warnNoRole() {
	p.noRole.Do(func() {
		riskLog(p).Warn("tenants without a role run as this pool's user: their schema is searched first, and nothing more keeps them apart. " +
			"SQL that names another tenant's schema reaches its tables, and SQL that names schema tenure reaches all tenants' jobs, " +
			"where LOCK TABLE stops the pool for as long as the transaction may take; set tenants.role, or name roles, unless you trust all their SQL")
	})
}

// checkTable finds what keeps the lookup table from being asked before the first tenant is looked up.
func (r riskCheck) checkTable(ctx context.Context, p *Pool) {
	table := r.tenants.Table
	if table == nil || table.Pool != p.Name {
		return
	}
	try := func(what string, check func(context.Context, *pgx.Conn) error) {
		err := p.Tenants().do(ctx, func(c *pgx.Conn) error { return check(ctx, c) })
		if err != nil && !errors.Is(err, context.Canceled) {
			riskLog(p).Warn(what+"; correct its statements, or make what they name", zap.Error(err))
		}
	}
	try("tenants.table cannot be asked, so that its tenants are unknown", table.check)
	try("tenants.table cannot be asked for all that it is configured for", table.checkRest)
}
