package promises_test

import (
	"context"
	"flag"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.uber.org/fx"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// TestMain runs the tests, or, in a process that a test started, a node.
func TestMain(m *testing.M) {
	if spec := os.Getenv(childEnv); spec != "" {
		os.Exit(runChild(spec))
	}
	if role := os.Getenv(releaseEnv); role != "" {
		os.Exit(runRelease(role))
	}
	flag.Parse()
	set := false
	flag.Visit(func(f *flag.Flag) { set = set || f.Name == "test.parallel" })
	if !set { // these tests wait more than they compute
		_ = flag.Set("test.parallel", "8") // the flag exists
	}
	pgtest.Main(m)
}

// patience is for what takes milliseconds to seconds on an idle machine.
var patience = 30 * time.Second

// poll is how often a database is asked for what is waited for: eight tests that ask without end take the time of
// those that work.
const poll = 30 * time.Millisecond

// sized is how much of something a test has: little of it proves the same, if there is less to be struck by chance.
func sized(full, short int) int {
	if testing.Short() {
		return short
	}
	return full
}

// plain is a job without a transaction.
type plain struct {
	N int `json:"n"`
}

func (plain) Kind() string { return "plain" }

// write is a job that writes an effect in its tenant's schema.
type write struct {
	N int `json:"n"`
}

func (write) Kind() string { return "write" }

// testbed is a number of pools with tenants, and what was done in them.
type testbed struct {
	t   *testing.T
	cfg config.Config
	db  map[string]*pgxpool.Pool // by pool
	log *logbook
}

// rolePrefix begins the names of tenants' roles, which a whole server shares.
const rolePrefix = "tenure_test_"

// newTestbed makes pools p1, p2, … with the given number of tenants each: t1, t2, … Nodes
// and clients come to them as a user who owns nothing, and tenants have roles, as in
// production; the test looks at them as a superuser, by db.
func newTestbed(t *testing.T, pools, tenants int) *testbed {
	return fillTestbed(t, pools, tenants, func(name string, number int) string { return storetest.DSN(t, name, number) })
}

// newTestbedOn makes them on a server of the test's own.
func newTestbedOn(t *testing.T, s *devpg.Server, pools, tenants int) *testbed {
	return fillTestbed(t, pools, tenants, func(name string, number int) string {
		require.NoError(t, s.CreateDatabase(t.Context(), name))
		require.NoError(t, storetest.PrepareFor(t.Context(), t, s.DSN(name), name, number))
		return s.DSN(name)
	})
}

func fillTestbed(t *testing.T, pools, tenants int, database func(name string, number int) string) *testbed {
	b := &testbed{t: t, cfg: config.Default(), db: map[string]*pgxpool.Pool{}, log: newLogbook(t)}
	b.cfg.Node.Name = "test"
	b.cfg.Pools = map[string]routing.PoolConfig{}
	b.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	b.cfg.Tenants.Role = rolePrefix + "{tenant}"
	b.cfg.Execution.TenantShare = 100 // many tests have one tenant, and wait until it has all workers; see byDefault
	b.cfg.Acquire.IdleWait = 200 * time.Millisecond
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 2*time.Second, 400*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 3*time.Second, 500*time.Millisecond
	for p := 1; p <= pools; p++ {
		name := fmt.Sprintf("p%d", p)
		dsn := database(name, p)
		b.cfg.Pools[name] = routing.PoolConfig{DSN: storetest.AsRuntime(dsn), TenantDSN: throughPooler(t, storetest.AsRuntime(dsn)), MaxConns: 16}
		db, err := pgxpool.New(context.Background(), dsn)
		require.NoError(t, err)
		t.Cleanup(db.Close)
		b.db[name] = db
		for i := 1; i <= tenants; i++ {
			id := fmt.Sprintf("t%d", (p-1)*tenants+i)
			b.prepare(id, name)
			b.cfg.Tenants.Static[tenancy.ID(id)] = routing.TenantConfig{Pool: name}
		}
	}
	return b
}

// byDefault has nodes keep tenants to their share of the workers, as they do by default.
func (b *testbed) byDefault() *testbed {
	b.cfg.Execution.TenantShare = config.Default().Execution.TenantShare
	return b
}

// requireNoSuperuser sees that nobody comes to a pool as the user that the test looks at it as:
// what is promised is to hold with the privileges that nodes need.
func (b *testbed) requireNoSuperuser(cfg config.Config) {
	b.t.Helper()
	for name, db := range b.db {
		if p, ok := cfg.Pools[name]; ok {
			c, err := pgx.ParseConfig(p.DSN)
			require.NoError(b.t, err)
			require.NotEqual(b.t, db.Config().ConnConfig.User, c.User, "pool %s", name)
		}
	}
}

// named is the bed's configuration for a node of this name.
func (b *testbed) named(name string) config.Config {
	cfg := b.cfg
	cfg.Node.Name = name
	return cfg
}

// gossiping is the bed's configuration for a node that joins the addresses of others.
func (b *testbed) gossiping(name string, join ...string) config.Config {
	cfg := b.named(name)
	h := fnv.New64a()
	fmt.Fprint(h, os.Getpid(), b.t.Name()) // keeps parallel tests apart, which take over one another's ports
	cfg.Cluster = &membership.Config{Bind: "127.0.0.1:0", Label: fmt.Sprintf("test-%x", h.Sum64()), Profile: "local", Join: join}
	return cfg
}

// behind puts a fault proxy between a node's configuration and one of its pools.
func (b *testbed) behind(cfg config.Config, pool string) (config.Config, *faultproxy.Proxy) {
	p, err := faultproxy.New(cfg.Pools[pool].DSN)
	require.NoError(b.t, err)
	b.t.Cleanup(func() { require.NoError(b.t, p.Close()) })
	cfg.Pools = maps.Clone(cfg.Pools)
	pc := cfg.Pools[pool]
	pc.DSN = p.DSN()
	cfg.Pools[pool] = pc
	return cfg, p
}

// registry handles plain and write.
func (b *testbed) registry(ran func(job.ID)) *job.Registry {
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if ran != nil {
			ran(j.ID)
		}
		return nil
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	return r
}

// running is a started node of a test.
type running struct {
	*tenure.Node
	b    *testbed
	end  func(context.Context) error
	once sync.Once
}

// start starts a node and stops it with the test, if the test has not.
func (b *testbed) start(cfg config.Config, r *job.Registry, opts ...tenure.NodeOption) *running {
	b.requireNoSuperuser(cfg)
	n, err := tenure.New(cfg, r, append(opts, tenure.WithLogger(b.log.logger(cfg.Node.Name)))...)
	require.NoError(b.t, err)
	require.NoError(b.t, n.Start(b.t.Context()))
	run := &running{Node: n, b: b, end: n.Stop}
	b.t.Cleanup(run.stop)
	return run
}

// startDecorated starts a node within an application that has something put in the place of
// a part of it, for which decorator is as fx.Decorate takes it.
func (b *testbed) startDecorated(cfg config.Config, r *job.Registry, decorator any) *running {
	b.requireNoSuperuser(cfg)
	var n *tenure.Node
	app := fx.New(tenure.Module, fx.Supply(cfg, b.log.logger(cfg.Node.Name)), fx.Decorate(func(*job.Registry) *job.Registry { return r }),
		fx.Decorate(decorator), fx.Populate(&n), fx.NopLogger, fx.StopTimeout(tenure.StopTimeout(cfg)))
	require.NoError(b.t, app.Start(b.t.Context()))
	run := &running{Node: n, b: b, end: app.Stop}
	b.t.Cleanup(run.stop)
	return run
}

// stop stops the node, which must succeed.
func (r *running) stop() {
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(r.b.t, r.end(ctx))
	})
}

// node starts a node and stops it with the test.
func (b *testbed) node(cfg config.Config, r *job.Registry) *tenure.Node { return b.start(cfg, r).Node }

// holds waits until the node holds a pool's lock.
func (r *running) holds(pool string) {
	r.b.t.Helper()
	require.Eventually(r.b.t, func() bool {
		for _, l := range r.Locks() {
			if l.Pool == pool && l.Holding {
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond, "%s should hold the lock of %s", r.Self().Node, pool)
}

// tenants lists the tenants of the bed.
func (b *testbed) tenants() []tenancy.ID {
	var out []tenancy.ID
	for i := range len(b.cfg.Tenants.Static) {
		out = append(out, tenancy.ID(fmt.Sprintf("t%d", i+1)))
	}
	return out
}

// startChild starts one and waits until it runs.
func (b *testbed) startChild(cfg config.Config) *child {
	c, err := tryChild(b, cfg)
	require.NoError(b.t, err)
	return c
}

// prepare makes a tenant's schema in a pool, and its role, as its operator would.
func (b *testbed) prepare(tenant, pool string) {
	b.t.Helper()
	b.exec(pool, "CREATE SCHEMA "+tenant)
	storetest.Role(b.t, b.db[pool], rolePrefix+tenant, tenant)
	b.exec(pool, fmt.Sprintf("CREATE TABLE %s.effect (job_id bigint, run text, tenant text DEFAULT current_setting('app.tenant_id'))", tenant))
}

// client is one of a process that runs no jobs and does not gossip, like the command line's.
func (b *testbed) client(cfg config.Config, opts ...tenure.NodeOption) *tenure.Client {
	b.requireNoSuperuser(cfg)
	c, err := tenure.NewClient(cfg, append(opts, tenure.WithLogger(b.log.logger("client")))...)
	require.NoError(b.t, err)
	require.NoError(b.t, c.Start(b.t.Context()))
	b.t.Cleanup(func() { require.NoError(b.t, c.Stop(context.Background())) })
	return c
}

// meet waits until a node knows so many members that take part.
func (r *running) meet(members int) {
	r.b.t.Helper()
	require.Eventually(r.b.t, func() bool {
		n := 0
		for _, m := range r.Members() {
			if m.Eligible() {
				n++
			}
		}
		return n == members
	}, patience, 10*time.Millisecond)
}

func (r *running) reload(cfg config.Config) error {
	_, err := r.Reload(r.b.t.Context(), cfg)
	return err
}
