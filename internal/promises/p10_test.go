package promises_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP10OneDatabaseHangs: the hottest pool's database falls silent while its jobs have
// all workers. The other pool has them again soon, and when the first is back nothing of
// it is lost, doubled or charged.
func TestP10OneDatabaseHangs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		maxConns int  // of the hot pool: with few of them workers wait for one
		inside   bool // all workers are in the middle of a handler
	}{
		"in the middle of handlers":    {16, true},
		"while connections are scarce": {4, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			oneDatabaseHangs(t, c.maxConns, c.inside)
		})
	}
}

func oneDatabaseHangs(t *testing.T, maxConns int, inside bool) {
	const workers = 8
	b := newTestbed(t, 2, 1)
	cfg, proxy := b.behind(b.cfg, "p1")
	cfg.Execution.Workers = workers
	pool := cfg.Pools["p1"]
	pool.MaxConns = maxConns
	cfg.Pools["p1"] = pool
	began, goOn := make(chan struct{}, workers), make(chan struct{})
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if inside {
			select {
			case <-goOn:
			case began <- struct{}{}:
				<-goOn
			}
		}
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) SELECT $1 FROM pg_sleep(0.01)", int64(j.ID))
		return err
	})
	n := b.start(cfg, r)
	n.holds("p1")
	n.holds("p2")
	hot, other := b.tenantIn("p1"), b.tenantIn("p2")
	const jobs = 200
	var entries []tenure.Entry
	for i := range jobs {
		entries = append(entries, tenure.Entry{Tenant: hot, Args: write{i}})
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	if inside {
		for range workers {
			<-began
		}
	} else {
		b.eventually(50, "p1", "SELECT least(count(*), 50) FROM tenure.completed_job")
	}
	proxy.Hold(func(string) bool { return true })
	close(goOn)

	ctx, cancel := context.WithTimeout(tenancy.For(t.Context(), other), 20*time.Second)
	defer cancel()
	for i := range 20 {
		_, err := n.Client().Enqueue(ctx, write{i})
		require.NoError(t, err)
	}
	since := time.Now()
	b.eventually(20, "p2", "SELECT count(*) FROM tenure.completed_job")
	require.Less(t, time.Since(since), 15*time.Second, "less than any timeout of a job")

	proxy.Hold(nil)
	b.eventually(jobs, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.requireOnce(string(hot), jobs, "p1")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt > 1"), "what had not started is not charged")
}

// TestP10AReadHangs: a pool's database stands still just while its jobs are read, for
// which the pool has all workers that are free. The other pool's jobs do not wait for
// that.
func TestP10AReadHangs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	cfg, proxy := b.behind(b.cfg, "p1")
	cfg.Execution.Workers = 4
	n := b.start(cfg, b.registry(nil))
	n.holds("p1")
	n.holds("p2")
	run := func(pool string, i int) {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), b.tenantIn(pool)), write{i}, tenure.Unique(strconv.Itoa(i))) // is read from a page
		require.NoError(t, err)
	}
	const done = "SELECT count(*) FROM tenure.completed_job"
	reading, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var once sync.Once
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "j.position > lane.after") {
			once.Do(func() { close(reading) })
			<-goOn
		}
		return faultproxy.Pass
	})
	run("p1", 0)
	<-reading
	for i := range 20 {
		run("p2", i)
	}
	since := time.Now()
	b.eventually(20, "p2", done)
	require.Less(t, time.Since(since), 4*time.Second, "though a read may take as long as a query may")
	release()
	b.eventually(1, "p1", done)
}

// TestP10JobsAreAddedBesideASlowPool: EnqueueMany adds each pool's jobs by itself; one whose database is slow
// keeps no other's waiting.
func TestP10JobsAreAddedBesideASlowPool(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 3, 1)
	cfg, proxy := b.behind(b.cfg, "p1")
	c := b.client(cfg)
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.HasPrefix(e.SQL, "COPY ") {
			<-goOn
		}
		return faultproxy.Pass
	})
	const calls = 6 // each takes the pools in an order of its own
	done := make(chan error, calls)
	for range calls {
		go func() {
			var entries []tenure.Entry
			for _, pool := range []string{"p1", "p2", "p3"} {
				entries = append(entries, tenure.Entry{Tenant: b.tenantIn(pool), Args: plain{1}})
			}
			_, err := c.EnqueueMany(t.Context(), entries)
			done <- err
		}()
	}
	for _, pool := range []string{"p2", "p3"} {
		b.eventually(calls, pool, "SELECT count(*) FROM tenure.job")
	}
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job"))
	release()
	for range calls {
		require.NoError(t, <-done)
	}
	b.eventually(calls, "p1", "SELECT count(*) FROM tenure.job")
}

// TestP10NobodyWaitsForASilentDatabase: once the node has not reached a pool's database
// for a while, nobody has to wait for it: anyone who enqueues there is told at once, and also
// when it is back.
func TestP10NobodyWaitsForASilentDatabase(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	cfg, proxy := b.behind(b.cfg, "p1")
	n := b.start(cfg, b.registry(nil))
	n.holds("p1")
	silent, other := tenancy.For(t.Context(), b.tenantIn("p1")), tenancy.For(t.Context(), b.tenantIn("p2"))
	up := func(pool string, is int) bool {
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
		return strings.Contains(w.Body.String(), fmt.Sprintf("tenure_pool_up{pool=%q} %d\n", pool, is))
	}
	require.Eventually(t, func() bool { return up("p1", 1) && up("p2", 1) }, patience, 10*time.Millisecond)
	proxy.Hold(func(string) bool { return true })
	require.Eventually(t, func() bool { return up("p1", 0) }, patience, 10*time.Millisecond)

	var failed tenure.PoolErrors
	elsewhere := []tenure.Option{tenure.Elsewhere()} // whose queue the ledger knows
	for _, call := range []func(context.Context) error{
		func(ctx context.Context) error { _, err := n.Client().Enqueue(ctx, plain{1}); return err },
		func(ctx context.Context) error {
			return n.Client().InTx(ctx, func(context.Context, pgx.Tx) error { return nil })
		},
		func(ctx context.Context) error { _, err := n.Client().Enqueue(ctx, slow{}, elsewhere...); return err },
		func(ctx context.Context) error {
			added, err := n.Client().EnqueueMany(ctx, []tenure.Entry{{Args: slow{}, Options: elsewhere}, {Tenant: b.tenantIn("p2"), Args: plain{1}}})
			require.Zero(t, added[0].ID, err)
			require.NotZero(t, added[1].ID, err)
			require.ErrorAs(t, err, &failed)
			return err
		},
	} {
		ctx, cancel := context.WithTimeout(silent, time.Second)
		err := call(ctx)
		cancel()
		require.ErrorIs(t, err, tenure.ErrPoolDown)
		require.ErrorContains(t, err, "its database has not answered this node since")
	}
	_, err := n.Client().Enqueue(other, plain{2})
	require.NoError(t, err)
	w := httptest.NewRecorder()
	n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	require.Equal(t, http.StatusOK, w.Code, "there is another pool")

	proxy.Hold(nil)
	require.Eventually(t, func() bool {
		_, err := n.Client().Enqueue(silent, plain{3})
		return err == nil
	}, patience, 10*time.Millisecond)
	require.True(t, up("p1", 1))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
}

// TestClaimsDoNotWaitForBackgroundQueries: what the holder looks for besides claiming may take long,
// as when dead rows cannot be tidied away. Jobs run meanwhile.
func TestClaimsDoNotWaitForBackgroundQueries(t *testing.T) {
	t.Parallel()
	for name, sql := range map[string]string{"behind the cursors": "FROM known k", "for lanes": "WITH RECURSIVE bottom"} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			cfg, proxy := b.behind(b.cfg, "p1")
			n := b.start(cfg, b.registry(nil))
			run := func(i int) {
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), b.tenantIn("p1")), write{i})
				require.NoError(t, err)
			}
			const done = "SELECT count(*) FROM tenure.completed_job"
			run(0)
			b.eventually(1, "p1", done)
			looking, goOn := make(chan struct{}), make(chan struct{})
			release := sync.OnceFunc(func() { close(goOn) })
			defer release()
			var once sync.Once
			proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				if strings.Contains(e.SQL, sql) {
					once.Do(func() { close(looking) })
					<-goOn
				}
				return faultproxy.Pass
			})
			select {
			case <-looking:
			case <-time.After(patience):
				require.FailNow(t, "nobody looks")
			}
			since := time.Now()
			for i := range 20 {
				run(i)
				b.eventually(2+i, "p1", done)
			}
			require.Less(t, time.Since(since), patience/3, "though a look may take as long as a query may")
		})
	}
}

// TestP10AUserIsLetInNoMore: a node whose pool's user loses the right to log in while it runs says so as
// at its start, by whatever it is asked, and goes on by itself when the user is let in again.
func TestP10AUserIsLetInNoMore(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	user := fmt.Sprintf("let_in_no_more_%d", os.Getpid()) // of the whole server
	b.exec("p1", "CREATE ROLE "+user+" LOGIN SUPERUSER PASSWORD 'secret'")
	t.Cleanup(func() {
		_, err := b.db["p1"].Exec(context.Background(), "DROP ROLE "+user)
		require.NoError(t, err)
	})
	p1 := b.cfg.Pools["p1"]
	p1.DSN = storetest.As(p1.DSN, user)
	b.cfg.Pools["p1"] = p1
	n := b.start(b.cfg, b.registry(nil))
	n.holds("p1")
	ready := func() int {
		w := httptest.NewRecorder()
		n.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/readyz", nil))
		return w.Code
	}
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, patience, 10*time.Millisecond)

	b.exec("p1", "ALTER ROLE "+user+" NOLOGIN")
	b.exec("p1", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = $1", user)
	require.Eventually(t, func() bool { return ready() == http.StatusServiceUnavailable }, patience, 10*time.Millisecond)
	ctx := tenancy.For(t.Context(), "t1")
	_, err := n.Client().Enqueue(ctx, write{1})
	require.ErrorContains(t, err, `its server refuses user "`+user+`"`)
	statuses, err := n.Operator().Pools().List(t.Context())
	require.ErrorContains(t, err, user)
	require.Equal(t, operate.PoolUnfit, statuses[0].State)
	require.ErrorContains(t, statuses[0].Unfit, "correct user and password in the DSN, or let the user in")

	b.exec("p1", "ALTER ROLE "+user+" LOGIN")
	require.Eventually(t, func() bool { return ready() == http.StatusOK }, patience, 10*time.Millisecond)
	_, err = n.Client().Enqueue(ctx, write{2})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")
}
