package execution

import (
	"context"
	"crypto/rand"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/devpg/poolertest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// city is a database with tenants, reached through one connection for all of them,
// by a user without privileges, as in production.
type city struct {
	*bundle
	admin   *pgxpool.Pool // superuser
	user    string        // of the pool
	suffix  string        // of the roles' names, which a whole server shares
	tenants map[string]*tenancy.Tenant
	pooler  *poolertest.Pooler // that tenants' transactions go through; nil: they do not
}

// newPooledCity is newCity with a pooler that has one session for all tenants.
func newPooledCity(t *testing.T, fill func(*job.Registry)) *city {
	return makeCity(t, fill, func(c *city, dsn string) string {
		c.pooler = poolertest.Start(t, dsn, map[string]string{"default_pool_size": "1"})
		return c.pooler.DSN(databaseOf(t, dsn))
	})
}

// newCity has the tenants alpha and beta with roles of their own and gamma without.
// Each schema has a canary, a table of orders, and one for effects.
func newCity(t *testing.T, fill func(*job.Registry)) *city {
	return makeCity(t, fill, func(*city, string) string { return "" })
}

// makeCity asks pooled for the way of tenants' transactions, given their database and user.
func makeCity(t testing.TB, fill func(*job.Registry), pooled func(*city, string) string) *city {
	c := &city{suffix: "_" + strings.ToLower(rand.Text()[:10]), tenants: map[string]*tenancy.Tenant{}}
	c.user = "app" + c.suffix
	var dsn string
	t.Cleanup(func() { c.dropRoles(t, dsn) }) // after the database
	dsn = storetest.DSN(t, "main", 1)
	var err error
	c.admin, err = pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(c.admin.Close)

	c.exec(t, fmt.Sprintf(`CREATE ROLE %[1]s LOGIN PASSWORD 'secret';
		CREATE TABLE tenure.ended (job_id bigint PRIMARY KEY, who text); GRANT SELECT, INSERT ON tenure.ended TO %[1]s;
		CREATE TABLE public.orders (of text); INSERT INTO public.orders VALUES ('nobody'); GRANT SELECT ON public.orders TO PUBLIC`, c.user))
	_, err = store.Grant(t.Context(), c.admin, c.user)
	require.NoError(t, err)
	c.add(t, "alpha", "alpha", true)
	c.add(t, "beta", "beta", true)
	c.add(t, "gamma", "gamma", false)

	c.bundle = newBundle(t, func(cfg *Config) { cfg.Workers = 1 }, fill)
	as := storetest.As(dsn, c.user)
	c.owner.tenants, c.owner.patience = tenantConns(t, routing.PoolConfig{DSN: as, TenantDSN: pooled(c, as), MaxConns: 4}), patience
	require.EqualValues(t, 1, c.owner.tenants.Stat().MaxConns(), "each job must follow on the connection of the one before")
	return c
}

func databaseOf(t *testing.T, dsn string) string {
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return cfg.Database
}

// tenantConns returns the connections for tenants' transactions of a pool.
func tenantConns(t testing.TB, pc routing.PoolConfig) *routing.TenantConns {
	cfg := routing.DefaultConfig()
	cfg.Pools = map[string]routing.PoolConfig{"main": pc}
	router, err := routing.New(cfg, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, router.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, router.Stop(context.Background())) })
	pool, _ := router.Pool("main")
	return pool.Tenants()
}

func (c *city) exec(t testing.TB, sql string, args ...any) {
	t.Helper()
	_, err := c.admin.Exec(t.Context(), sql, args...)
	require.NoError(t, err)
}

func (c *city) count(t *testing.T, sql string, args ...any) (n int) {
	t.Helper()
	require.NoError(t, c.admin.QueryRow(t.Context(), sql, args...).Scan(&n))
	return n
}

// add makes a tenant.
func (c *city) add(t testing.TB, id, schema string, withRole bool) *tenancy.Tenant {
	tenant := &tenancy.Tenant{ID: tenancy.ID(id), Pool: "main", Schema: schema}
	owner := c.user
	if withRole {
		tenant.Role = id + c.suffix
		owner = tenant.Role
		c.exec(t, fmt.Sprintf("CREATE ROLE %s NOLOGIN; GRANT %[1]s TO %s", quoted(owner), quoted(c.user)))
	}
	s := quoted(schema)
	c.exec(t, fmt.Sprintf("CREATE SCHEMA %s AUTHORIZATION %s", s, quoted(owner)))
	c.exec(t, fmt.Sprintf(`SET ROLE %[2]s;
		CREATE TABLE %[1]s.canary (tenant text); INSERT INTO %[1]s.canary VALUES (%[3]s);
		CREATE TABLE %[1]s.orders (of text); INSERT INTO %[1]s.orders VALUES (%[3]s);
		CREATE TABLE %[1]s.effect (job_id bigint);
		CREATE FUNCTION %[1]s.set_all() RETURNS void LANGUAGE sql AS
			$$ SELECT set_config('search_path', 'public', false), set_config('app.tenant_id', 'other', false), set_config('work_mem', '1MB', false) $$;
		RESET ROLE`, s, quoted(owner), quoteLiteral(id)))
	c.tenants[id] = tenant
	return tenant
}

func (c *city) dropRoles(t testing.TB, dsn string) {
	if dsn == "" || t.Failed() { // the database is kept, and with it what the roles own
		return
	}
	ctx := context.Background()
	u, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	u.Database = "postgres"
	conn, err := pgx.ConnectConfig(ctx, u)
	require.NoError(t, err)
	defer conn.Close(ctx)
	names := []string{c.user}
	for _, tenant := range c.tenants {
		if tenant.Role != "" {
			names = append(names, tenant.Role)
		}
	}
	for _, name := range names {
		_, err = conn.Exec(ctx, "DROP ROLE IF EXISTS "+quoted(name))
		require.NoError(t, err)
	}
}

func quoted(name string) string { return pgx.Identifier{name}.Sanitize() }

// runClaim runs one job and returns how it ended.
func (c *city) run(t *testing.T, kind string, tenant *tenancy.Tenant, payload string) end {
	t.Helper()
	claim := c.claim(kind)
	claim.Tenant, claim.Record.Tenant, claim.Record.Payload = tenant, string(tenant.ID), []byte(payload)
	c.submitClaims([]ClaimedJob{claim})
	return c.owner.next(t)
}

// inTx registers a kind that runs in a transaction.
func inTx(r *job.Registry, kind string, fn func(ctx context.Context, tx pgx.Tx, rec *job.Record) error, opts ...job.Option) {
	r.Add(job.Spec{Kind: kind, InTx: true, Handle: func(ctx context.Context, rec *job.Record) error {
		tx, ok := TxFromContext(ctx)
		if !ok {
			return errNotYours
		}
		return fn(ctx, tx, rec)
	}}, opts...)
}
