package routing

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// mostNamed bounds how many names one line of the log lists.
const mostNamed = 20

// caution logs what keeps no pool out of service but will hurt somebody. One
// tenant's missing schema, say, must not stop all others.
func (r *routes) caution(ctx context.Context, p *Pool, c *pgx.Conn) {
	var schemas, roles []string
	withRole, without := r.cfg.Tenants.Role != "", false
	for id, s := range r.cfg.Tenants.Static {
		if s.Pool != p.Name {
			continue
		}
		t, err := r.cfg.Tenants.place(id, s.Pool, s.Schema, s.Role)
		if err != nil {
			continue // Validate has refused it
		}
		schemas, roles = append(schemas, t.Schema), append(roles, t.Role)
		withRole, without = withRole || t.Role != "", without || t.Role == ""
	}
	r.cautionTable(ctx, p)
	risks, err := store.LookForRisks(ctx, c, schemas, roles)
	if err != nil {
		p.log.Warn("pool could not be looked at for risks", zap.Error(err))
		return
	}
	if !risks.FSync {
		p.log.Warn("fsync is off on this server: a crash of its machine loses jobs or the whole database; turn it on")
	}
	if !risks.FullPageWrites {
		p.log.Warn("full_page_writes is off on this server: a crash of its machine can damage the database; turn it on")
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
			zap.Int("count", n), zap.Strings("roles", risks.NoUsage[:min(n, mostNamed)]))
	}
	if n := len(risks.NoSchema); n > 0 {
		p.log.Warn("tenants have no schema in this pool, so that their jobs will fail; create it, or correct tenants.static",
			zap.Int("count", n), zap.Strings("schemas", risks.NoSchema[:min(n, mostNamed)]))
	}
	if n := len(risks.NoRole); n > 0 {
		p.log.Warn("tenants' roles do not exist, or this pool's user is no member of them, so that their jobs will fail; create or grant them",
			zap.Int("count", n), zap.Strings("roles", risks.NoRole[:min(n, mostNamed)]))
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
	if err != nil {
		p.log.Warn("tenants.table cannot be asked, so that its tenants are unknown; correct query and move, or make what they name", zap.Error(err))
	}
}
