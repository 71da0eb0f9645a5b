package promises_test

import (
	"context"
	"errors"
	"maps"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Pools come and go while others work: nothing of theirs is lost or doubled, and
// nobody asks a database any more that was taken away.
func TestPoolsComeAndGo(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	var ran atomic.Int32
	both := b.gossiping("a")
	one := without(both, "p2")
	n := b.start(one, b.registry(func(job.ID) { ran.Add(1) }))
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	b.flows("p1")
	const epoch = "SELECT epoch FROM tenure.acquire_lock"
	before := b.count("p1", epoch)
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{1})
	require.ErrorIs(t, err, tenancy.ErrUnknownTenant)

	for round := 1; round <= 3; round++ {
		require.NoError(t, n.reload(both))
		n.holds("p2")
		_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{round})
		require.NoError(t, err)
		b.eventually(round, "p2", "SELECT count(*) FROM tenure.completed_job")

		require.NoError(t, n.reload(one))
		b.eventually(0, "p2", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %'")
		require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.node_session WHERE state = 'live'"))
		require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.acquire_lock WHERE holder IS NOT NULL"))
		_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{round})
		require.ErrorIs(t, err, tenancy.ErrUnknownTenant)
	}
	b.flows("p1")
	require.Equal(t, before, b.count("p1", epoch), "p1 went on")
}

// TestP4SettingsOfAPoolChangeWhileItsJobsEnd: a handler outlasts the time that it has to finish, or its job has ended and the
// database has not heard of it. The node goes on, so the job runs once, as it would have under the old settings.
func TestP4SettingsOfAPoolChangeWhileItsJobsEnd(t *testing.T) {
	t.Parallel()
	for name, outage := range map[string]bool{"a handler goes on": false, "an outage": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			cfg, proxy := b.behind(b.named("a"), "p1")
			cfg.Execution.FinishWithin = 100 * time.Millisecond
			begun, goOn := make(chan struct{}, 10), make(chan struct{})
			n := b.start(cfg, b.registry(func(job.ID) {
				begun <- struct{}{}
				<-goOn
			}))
			_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
			require.NoError(t, err)
			<-begun
			const beats = "SELECT hb_seq FROM tenure.node_session ORDER BY started_at LIMIT 1"
			before := b.count("p1", beats)
			if outage {
				proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
				proxy.Cut(nil)
				close(goOn)
			}
			pc := cfg.Pools["p1"]
			pc.MaxConns++
			cfg = through(cfg, "p1", pc.DSN)
			cfg.Pools["p1"] = pc
			require.NoError(t, n.reload(cfg))
			if outage {
				time.Sleep(3 * cfg.Acquire.Session.TTL) // in which it would have been given up
				proxy.SetRule(nil)
			} else {
				require.Eventually(t, func() bool { return b.count("p1", beats) > before+20 }, patience, 10*time.Millisecond, "the session lives")
				close(goOn)
			}
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE losses = 0")
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.node_session WHERE state = 'left'")
			require.Empty(t, begun, "it began again")
		})
	}
}

// Once a pool was taken away, nothing of a node asks its database for anything: no watcher
// of its lock, no search for members, no check of a connection, no look whether it is up
// again.
func TestNobodyAsksAPoolThatWasTakenAway(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 4, 1)
	first, p2 := b.behind(b.gossiping("a"), "p2")
	first, p3 := b.behind(first, "p3")
	first, p4 := b.behind(first, "p4")
	var tried [2]atomic.Int64
	outOfReach := func(p *faultproxy.Proxy, tried *atomic.Int64) {
		p.SetRule(func(faultproxy.Event) faultproxy.Verdict {
			tried.Add(1)
			return faultproxy.CutBefore
		})
		p.Cut(nil)
	}
	outOfReach(p4, &tried[1]) // from the beginning, and p3 later
	a := b.start(first, b.registry(nil))
	second := first
	second.Node.Name, second.Cluster = "b", b.gossiping("b", a.Self().Addr).Cluster
	other := b.start(second, b.registry(nil))
	a.meet(2)
	asked := passing(p2)
	stop := b.feed(context.WithoutCancel(t.Context()), "p2")
	b.flows("p2")
	stop()
	b.eventually(0, "p2", "SELECT count(*) FROM tenure.job")
	require.NotZero(t, asked.Load())
	b.eventually(1, "p3", "SELECT count(*) FROM tenure.acquire_lock WHERE holder IS NOT NULL")
	outOfReach(p3, &tried[0]) // without a job there, whose end would have to be written
	for i := range tried {
		require.Eventually(t, func() bool { return tried[i].Load() > 3 }, patience, time.Millisecond)
	}

	for n, cfg := range map[*running]config.Config{a: first, other: second} {
		done, err := n.Reload(t.Context(), without(without(without(cfg, "p2"), "p3"), "p4"))
		require.NoError(t, err)
		require.Equal(t, []string{"p2", "p3", "p4"}, done.Removed)
	}
	const left = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %'"
	b.eventually(0, "p2", left)
	require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.node_session WHERE state = 'live'"))
	for _, n := range []*atomic.Int64{&tried[0], &tried[1], asked} {
		quiet(t, n)
	}
	stop = b.feed(context.WithoutCancel(t.Context()), "p1")
	defer stop()
	b.flows("p1")
	timer(t, 2*time.Second) // anyone who comes by from time to time would have come
	require.Zero(t, asked.Load(), "p2")
	require.Zero(t, tried[0].Load(), "p3")
	require.Zero(t, tried[1].Load(), "p4")
}

// A pool is left while jobs run there: they finish first.
func TestALeftPoolFinishesItsJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	y := newTally()
	n := b.start(b.named("a"), b.slow("a", y, 500*time.Millisecond))
	for range 5 {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), write{1})
		require.NoError(t, err)
	}
	require.Eventually(t, func() bool { return y.byNode()["a"] == 5 }, patience, time.Millisecond)
	err := n.reload(without(b.named("a"), "p2"))
	require.ErrorIs(t, err, routing.ErrInUse)
	require.ErrorContains(t, err, `tenant "t2" has unfinished jobs there`)
	b.eventually(5, "p2", "SELECT count(*) FROM tenure.completed_job")
	require.NoError(t, n.reload(without(b.named("a"), "p2")))
	require.Zero(t, y.twice())
}

// A pool that a tenant was moved to stays until the tenant has left it, although the
// configuration places nobody there.
func TestAPoolStaysForWhoWasMovedThere(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	both := b.gossiping("a")
	n := b.start(both, b.registry(nil))
	b.move(n.Client(), "t1", "p2")
	err := n.reload(without(both, "p2"))
	require.ErrorIs(t, err, routing.ErrInUse)
	require.ErrorContains(t, err, `tenant "t1" is placed in pool p1 and lives there since it was moved`)
	enqueue := func() {
		t.Helper()
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
		require.NoError(t, err)
	}
	enqueue()
	b.eventually(1, "p2", "SELECT count(*) FROM t1.effect")
	b.move(n.Client(), "t1", "p1")
	require.NoError(t, n.reload(without(both, "p2")))
	enqueue()
	b.eventually(1, "p1", "SELECT count(*) FROM t1.effect")
}

// A pool's settings change while its jobs run: those finish on the old connections, the
// next ones start on the new.
func TestAPoolsSettingsChange(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	cfg := few(b.gossiping("a"), 4)
	n := b.start(cfg, b.slow("a", y, 20*time.Millisecond))
	const jobs = 300
	b.many(n.Client(), jobs, eitherKind)
	for round := range 3 {
		require.Eventually(t, func() bool { return y.byNode()["a"] > 20*(round+1) }, patience, time.Millisecond)
		cfg.Pools = maps.Clone(cfg.Pools)
		pc := cfg.Pools["p1"]
		pc.MaxConns++
		cfg.Pools["p1"] = pc
		require.NoError(t, n.reload(cfg))
	}
	b.finished(n.Client(), jobs)
	require.Zero(t, y.twice())
	b.wroteOnce(jobs / 2)
}

// through is a configuration that reaches a pool's database another way.
func through(cfg config.Config, pool, dsn string) config.Config {
	cfg.Pools = maps.Clone(cfg.Pools)
	pc := cfg.Pools[pool]
	pc.DSN = dsn
	cfg.Pools[pool] = pc
	return cfg
}

// passing counts what goes through a proxy, and lets it.
func passing(p *faultproxy.Proxy) *atomic.Int64 {
	var n atomic.Int64
	p.SetRule(func(faultproxy.Event) faultproxy.Verdict {
		n.Add(1)
		return faultproxy.Pass
	})
	return &n
}

// quiet waits until a count has stood still for a while, and sets it to zero.
func quiet(t *testing.T, n *atomic.Int64) {
	t.Helper()
	last, since := n.Load(), time.Now()
	require.Eventually(t, func() bool {
		if now := n.Load(); now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > time.Second
	}, patience, 10*time.Millisecond, "somebody goes on")
	n.Store(0)
}

// A pool's DSN leads to its database another way, while jobs are enqueued and run: the
// node goes over to it and leaves the old one. A DSN that leads to another database is
// refused, and where that shows later only, the pool stays out.
func TestAPoolsDSNChanges(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	plainly := without(b.gossiping("a"), "p2")
	first, old := b.behind(plainly, "p1")
	second, next := b.behind(plainly, "p1")
	came := passing(next)
	n := b.start(first, b.registry(nil))
	work := b.traffic(n.Client(), "t1")
	more := func() {
		t.Helper()
		some, from, ended := sized(100, 25), work.jobs.Load(), b.count("p1", "SELECT count(*) FROM tenure.completed_job")
		require.Eventually(t, func() bool {
			return work.jobs.Load() >= from+int64(some) && b.count("p1", "SELECT count(*) FROM tenure.completed_job") >= ended+some
		}, patience, poll)
	}
	more()
	require.Zero(t, came.Load())

	done, err := n.Reload(t.Context(), second)
	require.NoError(t, err)
	require.Equal(t, []string{"p1"}, done.Added)
	require.Equal(t, []string{"p1"}, done.Removed)
	require.Empty(t, done.Later)
	more()
	require.NotZero(t, came.Load())
	went := passing(old)
	quiet(t, went)
	old.Cut(nil) // what is left of it, of which nobody may have any use
	more()
	require.Zero(t, went.Load(), "the old way")

	for dsn, why := range map[string]string{
		b.cfg.Pools["p2"].DSN:     `the database says that it is pool "p2"`,
		pgtest.Database(t):        "run: tenure migrate",
		storetest.DSN(t, "p1", 1): "its DSN leads to another database than before", // of the same name and number
	} {
		err := n.reload(through(plainly, "p1", dsn))
		require.ErrorContains(t, err, "pool p1")
		require.ErrorContains(t, err, why)
		more()
	}
	work.stop()
	b.requireOnce("t1", int(work.jobs.Load()), "p1")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"), "no run failed")

	// This one does not answer yet, and is another pool's when it does.
	elsewhere, err := faultproxy.New(b.cfg.Pools["p2"].DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, elsewhere.Close()) })
	elsewhere.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	require.NoError(t, n.reload(through(plainly, "p1", elsewhere.DSN())))
	elsewhere.SetRule(nil)
	require.Eventually(t, func() bool {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
		return tenure.Refused(err) && !errors.Is(err, tenure.ErrPoolDown) && strings.Contains(err.Error(), `the database says that it is pool "p2"`)
	}, patience, 20*time.Millisecond)
	require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.node_session"))
	require.NoError(t, n.reload(second), "and back")
	require.Eventually(t, func() bool {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
		return err == nil
	}, patience, 20*time.Millisecond)
	b.requireOnce("t1", int(work.jobs.Load())+1, "p1")
}

// A tenant's schema changes in the configuration: its next job runs in the new one, also
// on a node that has had its jobs for long.
func TestATenantsSchemaChanges(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.exec("p1", "CREATE SCHEMA elsewhere")
	storetest.Role(t, b.db["p1"], rolePrefix+"t1", "elsewhere")
	b.exec("p1", "CREATE TABLE elsewhere.effect (LIKE t1.effect)")
	cfg := b.named("a")
	n := b.start(cfg, b.registry(nil))
	write1 := func() {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
		require.NoError(t, err)
	}
	write1()
	b.eventually(1, "p1", "SELECT count(*) FROM t1.effect")
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"t1": {Pool: "p1", Schema: "elsewhere"}}
	require.NoError(t, n.reload(cfg))
	write1()
	b.eventually(1, "p1", "SELECT count(*) FROM elsewhere.effect")
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM t1.effect"))
}

// What cannot be put into force changes nothing.
func TestReloadIsAllOrNothing(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	cfg := without(b.named("a"), "p2")
	n := b.start(cfg, b.registry(nil))
	n.holds("p1")
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")

	bad := b.named("a")
	bad.Execution.Workers = 0
	require.ErrorContains(t, n.reload(bad), "execution.workers")

	bad = b.named("a")
	bad.Pools = maps.Clone(bad.Pools)
	bad.Pools["p3"] = routing.PoolConfig{DSN: b.cfg.Pools["p2"].DSN + "&application_name=x"}
	delete(bad.Pools, "p2")
	bad.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"t1": {Pool: "p1"}}
	require.ErrorContains(t, n.reload(bad), "p2", "its database says that it is another pool")

	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{1})
	require.ErrorIs(t, err, tenancy.ErrUnknownTenant)
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"))

	later := without(b.named("a"), "p2")
	later.Execution.Workers++
	done, err := n.Reload(t.Context(), later)
	require.NoError(t, err)
	require.Equal(t, []string{"execution"}, done.Later)
	require.Empty(t, done.Added)
	later.Connections.PerNode = 50
	done, err = n.Reload(t.Context(), later)
	require.NoError(t, err)
	require.Equal(t, []string{"connections", "execution"}, done.Later)
	require.Empty(t, done.Applied)

	later.Schedules = map[string]acquisition.ScheduleConfig{"close": {EveryTenant: true, Kind: "plain", Rule: "0 2 * * *"}}
	later.Limits.Kinds = map[string]acquisition.LimitConfig{"plain": {MaxRunning: 4}}
	for _, want := range [][]string{{"schedules", "limits"}, nil} { // and then it is in force
		done, err = n.Reload(t.Context(), later)
		require.NoError(t, err)
		require.Equal(t, want, done.Applied)
	}
}

// A frozen pool claims nothing, and goes on when it is thawed.
func TestFreezeAndThaw(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	n := b.start(b.gossiping("a"), b.registry(nil))
	n.holds("p1")
	require.NoError(t, n.Operator().Pools().Freeze(t.Context(), "p1"))
	claims, err := n.Operator().Pools().Claims(t.Context(), "p1")
	require.NoError(t, err)
	require.Empty(t, claims)
	for _, id := range []tenancy.ID{"t1", "t2"} {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), id), plain{1})
		require.NoError(t, err, "jobs are taken in all the same")
	}
	b.eventually(1, "p2", "SELECT count(*) FROM tenure.completed_job")
	timer(t, b.acquireBound())
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job"))
	require.NoError(t, n.Operator().Pools().Thaw(t.Context(), "p1"))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.ErrorContains(t, n.Operator().Pools().Freeze(t.Context(), "nowhere"), "not configured")
}

// A client in a process without a node follows the configuration, too.
func TestAClientIsReloaded(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	n := b.start(b.gossiping("a"), b.registry(nil))
	_, err := n.Client().Reload(t.Context(), b.cfg)
	require.ErrorContains(t, err, "reload that")
	both := b.gossiping("web", n.Self().Addr)
	one := without(both, "p2")
	c, err := tenure.NewClient(one)
	require.NoError(t, err)
	_, err = c.Reload(t.Context(), both)
	require.ErrorContains(t, err, "does not run")
	require.NoError(t, c.Start(t.Context()))
	defer func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) }()
	enqueue := func(i int) error {
		_, err := c.Enqueue(tenancy.For(t.Context(), "t2"), plain{i})
		return err
	}
	require.ErrorIs(t, enqueue(0), tenancy.ErrUnknownTenant)

	done, err := c.Reload(t.Context(), both)
	require.NoError(t, err)
	require.Equal(t, tenure.Reloaded{Added: []string{"p2"}, Applied: []string{"tenants"}}, done)
	require.NoError(t, enqueue(1))
	b.eventually(1, "p2", "SELECT count(*) FROM tenure.completed_job")
	connected := func() int {
		return b.count("p2", "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure %' AND datname = current_database()")
	}
	n.stop()
	require.Positive(t, connected(), "of the client")

	other := both
	other.Execution.Workers++
	other = without(other, "p2")
	done, err = c.Reload(t.Context(), other)
	require.NoError(t, err)
	require.Equal(t, tenure.Reloaded{Removed: []string{"p2"}, Applied: []string{"tenants"}, Later: []string{"execution"}}, done)
	require.ErrorIs(t, enqueue(2), tenancy.ErrUnknownTenant)
	require.Eventually(t, func() bool { return connected() == 0 }, patience, 10*time.Millisecond)
	other.Pools = nil
	_, err = c.Reload(t.Context(), other)
	require.Error(t, err)
}
