package tenure_test

import (
	"bytes"
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
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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
const patience = 30 * time.Second

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
		require.NoError(t, storetest.Prepare(t.Context(), s.DSN(name), name, number))
		return s.DSN(name)
	})
}

func fillTestbed(t *testing.T, pools, tenants int, database func(name string, number int) string) *testbed {
	b := &testbed{t: t, cfg: config.Default(), db: map[string]*pgxpool.Pool{}, log: newLogbook(t)}
	b.cfg.Node.Name = "test"
	b.cfg.Pools = map[string]routing.PoolConfig{}
	b.cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	b.cfg.Tenants.Role = rolePrefix + "{tenant}"
	b.cfg.Execution.TenantShare = 100 // many tests have one tenant, and wait until it has all workers
	b.cfg.Acquire.IdleWait = 200 * time.Millisecond
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 2*time.Second, 400*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 3*time.Second, 500*time.Millisecond
	for p := 1; p <= pools; p++ {
		name := fmt.Sprintf("p%d", p)
		dsn := database(name, p)
		b.cfg.Pools[name] = routing.PoolConfig{DSN: storetest.AsRuntime(dsn), MaxConns: 16}
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

// exec runs statements in a pool's database.
func (b *testbed) exec(pool, sql string, args ...any) {
	b.t.Helper()
	_, err := b.db[pool].Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// count is a number that a query returns.
func (b *testbed) count(pool, sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// eventually waits until a query that returns a number returns want.
func (b *testbed) eventually(want int, pool, sql string, args ...any) {
	b.t.Helper()
	got := -1
	require.Eventually(b.t, func() bool {
		err := b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&got)
		return err == nil && got == want
	}, patience, 10*time.Millisecond, "%s: want %d", sql, want)
}

// dwindles waits until a pool has no jobs, for as long as they become fewer.
func (b *testbed) dwindles(pool string) {
	b.t.Helper()
	const waiting = "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)"
	for left := b.count(pool, waiting); left > 0; {
		require.Eventually(b.t, func() bool {
			now := left
			if err := b.db[pool].QueryRow(b.t.Context(), waiting).Scan(&now); err != nil || now >= left {
				return false
			}
			left = now
			return true
		}, patience, 10*time.Millisecond, "%d jobs are left in pool %s", left, pool)
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
	once sync.Once
}

// start starts a node and stops it with the test, if the test has not.
func (b *testbed) start(cfg config.Config, r *job.Registry, opts ...tenure.NodeOption) *running {
	n, err := tenure.New(cfg, r, append(opts, tenure.WithLogger(b.log.logger(cfg.Node.Name)))...)
	require.NoError(b.t, err)
	require.NoError(b.t, n.Start(b.t.Context()))
	run := &running{Node: n, b: b}
	b.t.Cleanup(run.stop)
	return run
}

// stop stops the node, which must succeed.
func (r *running) stop() {
	r.once.Do(func() {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		require.NoError(r.b.t, r.Node.Stop(ctx))
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

// finished waits until nothing but finished jobs is left.
func (b *testbed) finished(c *tenure.Client, want int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		counts, err := c.Count(b.t.Context())
		require.NoError(b.t, err)
		done := 0
		for _, n := range counts {
			if n.Waiting+n.Claimed+n.Timers+n.Dead > 0 {
				return false
			}
			done += int(n.Finished)
		}
		return done == want
	}, patience, 20*time.Millisecond)
}

// tenants lists the tenants of the bed.
func (b *testbed) tenants() []tenancy.ID {
	var out []tenancy.ID
	for i := range len(b.cfg.Tenants.Static) {
		out = append(out, tenancy.ID(fmt.Sprintf("t%d", i+1)))
	}
	return out
}

// logbook keeps what nodes log and shows it when the test fails. Unlike zaptest it
// may be written to after the test, by whatever of memberlist outlives a node.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newLogbook(t *testing.T) *logbook {
	l := &logbook{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !t.Failed() {
			return
		}
		const most = 40_000
		b := l.buf.Bytes()
		if len(b) > most {
			b = append([]byte("…"), b[len(b)-most:]...)
		}
		t.Logf("the nodes logged:\n%s", b)
	})
	return l
}

// Write implements zapcore.WriteSyncer.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// says tells whether all was logged in one line.
func (l *logbook) says(all ...string) bool { return l.count(all...) > 0 }

// count is how many lines say all.
func (l *logbook) count(all ...string) (lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.buf.Bytes()) {
		has := 0
		for _, text := range all {
			if bytes.Contains(line, []byte(text)) {
				has++
			}
		}
		if has == len(all) {
			lines++
		}
	}
	return lines
}

// Sync implements zapcore.WriteSyncer.
func (l *logbook) Sync() error { return nil }

func (l *logbook) logger(node string) *zap.Logger { return loggerTo(l, node) }

func loggerTo(w zapcore.WriteSyncer, node string) *zap.Logger {
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	enc.StacktraceKey = ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), w, zap.DebugLevel)).Named(node)
}
