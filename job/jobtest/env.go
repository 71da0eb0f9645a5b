package jobtest

import (
	"context"
	"fmt"
	"maps"
	"net/url"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Main runs the tests of a package with one PostgreSQL for all of them, which
// starts when the first test asks for it. Call it from TestMain; without it every
// test that no other one overlaps starts a server of its own.
func Main(m *testing.M) { os.Exit(pgtest.Run(m)) }

// Env is a set of pools with tenants in them, and the handlers of one registry.
// Jobs run when [Tenant.Run] or [Env.Drain] says so, one at a time, and never by
// themselves. It ends with its test.
type Env struct {
	cfg      config.Config
	registry *job.Registry
	owners   map[string]string // connection strings of the databases' owner, by pool
	node     *tenure.Node      // lends its client; acquires nothing, because we hold the locks
	router   *routing.Router
	workers  *execution.Workers
	pools    []*pool // by name

	mu    sync.Mutex // held while jobs run
	nodes bool       // guarded by mu; the locks were released for real nodes
}

// Option changes what an Env is made of.
type Option func(*settings)

type settings struct {
	pools    int
	tenants  []tenancy.ID
	register []func(*job.Registry)
	schema   []string
	migrate  []func(ctx context.Context, dsn string) error
	roles    bool
	shared   []string
	types    routing.Types
}

// Pools makes n pools, named pool-1, pool-2, and so on. Default: 1.
func Pools(n int) Option { return func(s *settings) { s.pools = n } }

// Tenants makes these tenants, spread over the pools in turn, each with a schema
// named like it. Default: one tenant, acme.
func Tenants(ids ...tenancy.ID) Option {
	return func(s *settings) { s.tenants = append(s.tenants, ids...) }
}

// Register registers handlers; given several times, all of them. The Register
// method of a [tenure.Registrar] fits:
//
//	jobtest.Register(invoices.Register)
func Register(register func(*job.Registry)) Option {
	return func(s *settings) { s.register = append(s.register, register) }
}

// Schema runs statements in each tenant's schema, as the application's migrations
// would; given several times, in that order.
func Schema(sql string) Option { return func(s *settings) { s.schema = append(s.schema, sql) } }

// Migrations has the application's own migrations make each tenant's schema, such as those of goose:
// migrate is called once for each tenant, after what Schema says, with a connection string of the
// database's owner under which that schema is the first one that is searched. Given several times, in
// that order.
//
//	jobtest.Migrations(func(ctx context.Context, dsn string) error { return migrations.Up(ctx, dsn) })
func Migrations(migrate func(ctx context.Context, dsn string) error) Option {
	return func(s *settings) { s.migrate = append(s.migrate, migrate) }
}

// Roles has each tenant's transactions run under a role of its own, jobtest_ and the tenant's id,
// which may use what is in the tenant's schema and nothing more, and has the pools' user be one with the
// privileges that `tenure migrate --grants` gives: so that missing rights show, as they would in production. The
// roles stay on the server, which is thrown away unless TEST_DATABASE_URL names it.
func Roles() Option { return func(s *settings) { s.roles = true } }

// SharedSchemas names schemas that tenants have in common, such as public with the types of extensions: they are
// searched behind a tenant's own one, as with tenants.schemas of the configuration. Those that the database has not are
// made, open to every role.
func SharedSchemas(names ...string) Option {
	return func(s *settings) { s.shared = append(s.shared, names...) }
}

// Types is [tenure.WithTypes], for the transactions of handlers and of the test.
func Types(f func(ctx context.Context, conn *pgx.Conn) error) Option {
	return func(s *settings) { s.types = f }
}

// New makes an Env for t and ends it with t. It needs nothing but PostgreSQL's
// binaries, or TEST_DATABASE_URL.
func New(t testing.TB, opts ...Option) *Env {
	t.Helper()
	s := settings{pools: 1}
	for _, o := range opts {
		o(&s)
	}
	if s.pools < 1 {
		t.Fatalf("jobtest: Pools(%d): at least 1", s.pools)
	}
	if len(s.tenants) == 0 {
		s.tenants = []tenancy.ID{"acme"}
	}
	e := &Env{registry: job.NewRegistry(), owners: map[string]string{}}
	e.cfg = s.config(t, e.owners)
	for _, register := range s.register {
		register(e.registry)
	}
	if err := e.open(t, s.types); err != nil {
		t.Fatalf("jobtest: %v", err)
	}
	for _, id := range s.tenants {
		if err := e.prepare(t, id, &s); err != nil {
			t.Fatalf("jobtest: prepare tenant %q: %v", id, err)
		}
	}
	return e
}

// name is what jobtest calls itself in the ledger.
const name = "jobtest"

// rolePattern is what tenants' roles are called, if they have one.
const rolePattern = "jobtest_{tenant}"

// config describes pools on databases made for t, whose owner's connection strings it notes.
func (s *settings) config(t testing.TB, owners map[string]string) config.Config {
	t.Helper()
	cfg := config.Default()
	cfg.Node.Name, cfg.Node.Listen = name, "off"
	cfg.Pools = map[string]routing.PoolConfig{}
	for i := range s.pools {
		pool := fmt.Sprintf("pool-%d", i+1)
		owners[pool] = storetest.DSN(t, pool, i+1)
		cfg.Pools[pool] = routing.PoolConfig{DSN: owners[pool]}
		if s.roles {
			cfg.Pools[pool] = routing.PoolConfig{DSN: storetest.AsRuntime(owners[pool])}
			cfg.Tenants.Role = rolePattern
		}
	}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	for i, id := range s.tenants {
		cfg.Tenants.Static[id] = routing.TenantConfig{Pool: fmt.Sprintf("pool-%d", i%s.pools+1)}
	}
	cfg.Tenants.Schemas = s.shared
	cfg.Execution.FinishWithin = finishWithin
	return cfg
}

// finishWithin is what handlers get when their node is stopped; the env's own
// workers, which nobody waits for any more when they are stopped, give them nothing.
const finishWithin = 5 * time.Second

// asleep gives a node that finds the locks held by somebody else times with which
// it looks again in an hour, after any test.
func asleep(cfg config.Config) config.Config {
	a := &cfg.Acquire
	a.IdleWait = time.Hour
	a.Lock.TTL, a.Lock.RenewEvery = time.Hour, 29*time.Minute
	a.Session.TTL, a.Session.HeartbeatEvery = time.Hour, 20*time.Minute
	return cfg
}

// open starts everything, and takes the acquire locks before the node could.
func (e *Env) open(t testing.TB, types routing.Types) (err error) {
	log := logger(t)
	if e.router, err = routing.New(e.cfg.Routing(), log, routing.WithTypes(types)); err != nil {
		return err
	}
	stopLater(t, e.router)
	if e.node, err = tenure.New(asleep(e.cfg), e.registry, tenure.WithLogger(log), tenure.WithTypes(types)); err != nil {
		return err
	}
	stopLater(t, e.node)
	atOnce := e.cfg.Execution
	atOnce.FinishWithin = time.Nanosecond
	atOnce.Workers = 1 // one job, or batch, after another
	if e.workers, err = execution.New(atOnce, e.registry, log); err != nil {
		return err
	}
	e.workers.OpenWith(encryption.New(e.cfg.Encryption.Ring(), e.cfg.Encryption.Kinds...).OpenRecord)
	e.workers.HandWith(e.node.Client())
	stopLater(t, e.workers)
	ctx := t.Context()
	if err := e.router.Start(ctx); err != nil {
		return err
	}
	for _, p := range e.router.Pools() {
		if _, err := p.Number(); err != nil {
			return err
		}
		own, err := takeOver(ctx, p, e.registry)
		if err != nil {
			return err
		}
		e.pools = append(e.pools, own)
	}
	if err := e.node.Start(ctx); err != nil {
		return err
	}
	return e.workers.Start(ctx)
}

// logger writes what an operator should see to the test's log, without the risks of a server that is
// thrown away.
func logger(t testing.TB) *zap.Logger {
	return zaptest.NewLogger(t, zaptest.Level(zap.WarnLevel), zaptest.WrapOptions(zap.WrapCore(func(c zapcore.Core) zapcore.Core { return unworried{c} })))
}

// unworried is a core that is not told of risks.
type unworried struct{ zapcore.Core }

// Check implements zapcore.Core.
func (u unworried) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if strings.HasSuffix(e.LoggerName, ".risks") {
		return checked
	}
	return u.Core.Check(e, checked)
}

// With implements zapcore.Core.
func (u unworried) With(fields []zapcore.Field) zapcore.Core { return unworried{u.Core.With(fields)} }

// stopLimit bounds the stop of one component at the end of a test.
const stopLimit = 30 * time.Second

func stopLater(t testing.TB, c interface{ Stop(context.Context) error }) {
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), stopLimit) // the test's own context is over
		defer cancel()
		if err := c.Stop(ctx); err != nil {
			t.Errorf("jobtest: %v", err)
		}
	})
}

// prepare makes a tenant's schema, and its role if it is to have one, and fills the schema.
func (e *Env) prepare(t testing.TB, id tenancy.ID, s *settings) error {
	ctx := t.Context()
	tenant, p, err := e.router.Resolve(ctx, id)
	if err != nil {
		return err
	}
	schema := pgx.Identifier{tenant.Schema}.Sanitize()
	path := schema
	if tenant.Shared != "" {
		path += ", " + tenant.Shared
	}
	owner, err := pgx.ParseConfig(e.owners[p.Name])
	if err != nil {
		return err
	}
	owner.RuntimeParams["search_path"] = path
	owner.RuntimeParams["app.tenant_id"] = string(id)
	conn, err := pgx.ConnectConfig(ctx, owner)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	if _, err := conn.Exec(ctx, "CREATE SCHEMA "+schema); err != nil {
		return err
	}
	for _, name := range s.shared {
		shared := pgx.Identifier{name}.Sanitize()
		if _, err := conn.Exec(ctx, fmt.Sprintf("CREATE SCHEMA IF NOT EXISTS %s; GRANT USAGE ON SCHEMA %[1]s TO PUBLIC", shared)); err != nil {
			return err
		}
	}
	if tenant.Role != "" {
		storetest.Role(t, conn, tenant.Role, tenant.Schema)
	}
	for _, sql := range s.schema {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return err
		}
	}
	for _, migrate := range s.migrate {
		if err := migrate(ctx, within(e.owners[p.Name], path)); err != nil {
			return fmt.Errorf("migrate: %w", err)
		}
	}
	return nil
}

// within is a connection string under which these schemas are searched.
func within(dsn, path string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " search_path='" + strings.NewReplacer(`\`, `\\`, "'", `\'`).Replace(path) + "'"
	}
	q := u.Query()
	q.Set("search_path", path)
	u.RawQuery = q.Encode()
	return u.String()
}

// Client is the client of the env's node: it knows the kinds that were registered,
// and what it enqueues waits for Drain.
func (e *Env) Client() *tenure.Client { return e.node.Client() }

// Tenant returns the tenant id for use by t, the test or one of its subtests.
func (e *Env) Tenant(t testing.TB, id tenancy.ID) *Tenant {
	t.Helper()
	if _, ok := e.cfg.Tenants.Static[id]; !ok {
		var known []string
		for _, id := range slices.Sorted(maps.Keys(e.cfg.Tenants.Static)) {
			known = append(known, string(id))
		}
		t.Fatalf("jobtest: the env has no tenant %q: its tenants are %s", id, strings.Join(known, ", "))
	}
	return &Tenant{Context: tenancy.For(t.Context(), id), ID: id, t: t, env: e}
}
