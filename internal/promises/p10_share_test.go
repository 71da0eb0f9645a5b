package promises_test

import (
	"context"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// endless is a job that goes on until the test lets it end.
type endless struct {
	N int `json:"n"`
}

func (endless) Kind() string { return "endless" }

// longs runs jobs that go on until they are released.
type longs struct {
	goOn             chan struct{}
	release          func()
	running, highest atomic.Int64
	done             atomic.Int64
}

func newLongs(t *testing.T) *longs {
	l := &longs{goOn: make(chan struct{})}
	l.release = sync.OnceFunc(func() { close(l.goOn) })
	t.Cleanup(l.release)
	return l
}

func (l *longs) handle(r *job.Registry) *job.Registry {
	job.Handle(r, func(ctx context.Context, _ *job.Job[endless]) error {
		n := l.running.Add(1)
		defer l.running.Add(-1)
		for h := l.highest.Load(); n > h && !l.highest.CompareAndSwap(h, n); h = l.highest.Load() {
		}
		select {
		case <-l.goOn:
			l.done.Add(1)
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return r
}

// enqueueLong enqueues n jobs of one tenant that go on for long.
func enqueueLong(t *testing.T, c *tenure.Client, tenant tenancy.ID, n int) {
	t.Helper()
	var entries []tenure.Entry
	for i := range n {
		entries = append(entries, tenure.Entry{Tenant: tenant, Args: endless{i}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
}

// TestP10ATenantHasItsShare: 200 long jobs of one tenant on 16 workers, and of a second one
// after them, leave some workers to others, whose jobs run at once; before, they waited for
// the first of the long ones to end. When they end all of them have run once.
func TestP10ATenantHasItsShare(t *testing.T) {
	t.Parallel()
	for name, busy := range map[string]bool{"on an idle node": false, "while others have much to do": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 4)
			b.cfg.Execution.Workers, b.cfg.Execution.TenantShare = 16, execution.DefaultConfig().TenantShare
			l := newLongs(t)
			n := b.start(b.cfg, l.handle(b.registry(nil)))
			const done = "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = $1"
			quick := 0
			if busy { // so that claims are made far ahead
				var entries []tenure.Entry
				for range 20_000 {
					entries = append(entries, tenure.Entry{Tenant: "t4", Args: plain{}})
				}
				added, err := n.Client().EnqueueMany(t.Context(), entries)
				require.NoError(t, err)
				quick = len(added)
			}
			enqueueLong(t, n.Client(), "t1", 200)
			require.Eventually(t, func() bool { return l.running.Load() >= 12 }, patience, time.Millisecond, "a tenant that is alone has three quarters")
			b.eventually(quick, "p1", done, "t4")
			enqueueLong(t, n.Client(), "t2", 200)
			require.Eventually(t, func() bool { return l.running.Load() >= 13 }, patience, time.Millisecond, "so has the next of what is left")
			for i := range 50 {
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t3"), plain{i})
				require.NoError(t, err)
			}
			b.eventually(50, "p1", done, "t3")
			require.Less(t, l.highest.Load(), int64(16), "one is left to others")
			require.LessOrEqual(t, b.count("p1", `SELECT count(*) FROM tenure.claim c CROSS JOIN unnest(c.job_ids) AS run (job_id)
				JOIN tenure.job j ON j.id = run.job_id WHERE j.kind = 'endless'`), 24, "no more is claimed than may run")
			require.Zero(t, l.done.Load())
			l.release()
			b.eventually(400+50+quick, "p1", "SELECT count(*) FROM tenure.completed_job")
			require.EqualValues(t, 400, l.done.Load(), "each once")
		})
	}
}

// TestP10MaxRunning: of a tenant with a limit no more jobs run at a time than it says, on all
// nodes together, also after the lock has changed hands, and once the limit was raised more
// of them do.
func TestP10MaxRunning(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Execution.Workers = 4
	b.exec("p1", "INSERT INTO tenure.tenant (tenant_id, max_running) VALUES ('t1', 5)")
	l := newLongs(t)
	first := b.start(b.gossiping("first"), l.handle(b.registry(nil)))
	first.holds("p1")
	second := b.start(b.gossiping("second", first.Self().Addr), l.handle(b.registry(nil)))
	enqueueLong(t, first.Client(), "t1", 50)
	require.Eventually(t, func() bool { return l.running.Load() == 5 }, patience, time.Millisecond, "more than one node has workers")
	claimed := "SELECT coalesce(sum(cardinality(job_ids)), 0)::int FROM tenure.claim"
	require.Equal(t, 5, b.count("p1", claimed))
	for i := range 20 { // others use the rest
		_, err := second.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{i})
		require.NoError(t, err)
	}
	b.eventually(20, "p1", "SELECT count(*) FROM tenure.completed_job")

	b.exec("p1", "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)") // it is taken again
	for i := range 20 {
		_, err := second.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{i})
		require.NoError(t, err)
	}
	b.eventually(40, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.EqualValues(t, 5, l.highest.Load(), "the next holder knows what runs")

	b.exec("p1", "UPDATE tenure.tenant SET max_running = 7")
	require.Eventually(t, func() bool { return l.running.Load() == 7 }, patience, time.Millisecond)
	require.EqualValues(t, 7, l.highest.Load())
	l.release()
	b.eventually(90, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.LessOrEqual(t, l.highest.Load(), int64(7))
	require.EqualValues(t, 50, l.done.Load(), "each once")
}
