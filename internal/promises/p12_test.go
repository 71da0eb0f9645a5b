package promises_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// slow is a job that takes a while.
type slow struct {
	N int `json:"n"`
}

func (slow) Kind() string { return "slow" }

// prompt is a job that knows when it was enqueued.
type prompt struct {
	At time.Time `json:"at"`
}

func (prompt) Kind() string { return "prompt" }

// TestP12SlowTenantsDelayOthersByAWorker: more tenants than there are workers have many slow jobs; another
// one's job waits for about as long as it takes until one of the slow ones ends, whether the node has just
// started or quick jobs have been claimed far ahead before.
func TestP12SlowTenantsDelayOthersByAWorker(t *testing.T) {
	t.Parallel()
	const takes, workers, heavy = 300 * time.Millisecond, 16, 24
	for name, burst := range map[string]int{"on a cold node": 0, "after a burst of quick jobs": 2000} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, heavy+1)
			b.cfg.Execution.Workers, b.cfg.Execution.TenantShare = workers, execution.DefaultConfig().TenantShare
			r := b.registry(nil)
			job.Handle(r, func(ctx context.Context, _ *job.Job[slow]) error {
				select {
				case <-time.After(takes):
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
			waits := make(chan time.Duration, 1)
			job.Handle(r, func(_ context.Context, j *job.Job[prompt]) error {
				waits <- time.Since(j.Args.At)
				return nil
			})
			n := b.start(b.cfg, r)
			tenants := b.tenants()
			var quick, slows []tenure.Entry
			for i := range burst {
				quick = append(quick, tenure.Entry{Tenant: tenants[i%heavy], Args: plain{i}})
			}
			for i := range 1000 {
				slows = append(slows, tenure.Entry{Tenant: tenants[i%heavy], Args: slow{i}})
			}
			for _, entries := range [][]tenure.Entry{quick, slows} {
				if len(entries) > 0 {
					_, err := n.Client().EnqueueMany(t.Context(), entries)
					require.NoError(t, err)
				}
			}
			time.Sleep(2 * takes) // until all workers have slow ones
			var all []time.Duration
			for range 20 {
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), tenants[heavy]), prompt{time.Now()})
				require.NoError(t, err)
				select {
				case d := <-waits:
					all = append(all, d)
				case <-time.After(patience):
					require.FailNow(t, "the job does not start")
				}
			}
			require.NotZero(t, b.count("p1", "SELECT count(*) FROM tenure.job WHERE kind = 'slow'"), "or nothing was proved")
			slices.Sort(all)
			require.Less(t, all[len(all)/2], 3*takes, "it is claimed in its turn, and the next free worker's; all waited for %v", all)
			require.Less(t, all[len(all)-1], 10*takes, "the backlog takes sixty times as long; all waited for %v", all)
		})
	}
}

// TestP12LongJobsLeaveWorkersToOtherPools: 150 jobs of one tenant that take minutes, and as many of a second
// one of its pool, do not hold all workers: jobs of a tenant in another pool start while none of them has
// ended. Before a share of the workers was kept for others they waited for the first of them to end.
func TestP12LongJobsLeaveWorkersToOtherPools(t *testing.T) {
	t.Parallel()
	const workers, long, prompts = 16, 150, 20
	b := newTestbed(t, 2, 2).byDefault()
	b.cfg.Execution.Workers = workers
	l := newLongs(t)
	n := b.start(b.cfg, l.handle(b.registry(nil)))
	n.holds("p1")
	n.holds("p2")
	most := workers * b.cfg.Execution.TenantShare / 100
	for i, tenant := range b.tenants()[:2] {
		enqueueLong(t, n.Client(), tenant, long)
		require.Eventually(t, func() bool { return l.running.Load() >= int64(most+i) }, patience, time.Millisecond, "they have what they may have")
	}
	for i := range prompts {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t3"), plain{i})
		require.NoError(t, err)
		b.eventually(i+1, "p2", "SELECT count(*) FROM tenure.completed_job")
	}
	require.Zero(t, l.done.Load(), "or nothing was proved")
	require.Less(t, l.highest.Load(), int64(workers))
	l.release()
	b.eventually(2*long, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.EqualValues(t, 2*long, l.done.Load(), "each once")
}

// TestP12QuickJobsGoWhereAWorkerIsIdle: jobs that a node has no worker for, as one long run keeps each, end on its
// idle peer; before, those that it had claimed waited until one of the long ones had ended.
func TestP12QuickJobsGoWhereAWorkerIsIdle(t *testing.T) {
	t.Parallel()
	const workers, quick = 2, 300
	b := newTestbed(t, 1, 2)
	l := newLongs(t)
	busy := b.start(few(b.gossiping("busy"), workers), l.handle(b.registry(nil)))
	busy.holds("p1")
	enqueue := func() {
		var entries []tenure.Entry
		for i := range quick {
			entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}})
		}
		_, err := busy.Client().EnqueueMany(t.Context(), entries)
		require.NoError(t, err)
	}
	enqueue()
	b.eventually(quick, "p1", "SELECT count(*) FROM tenure.completed_job") // it knows now that they are quick
	enqueueLong(t, busy.Client(), "t2", workers)
	require.Eventually(t, func() bool { return l.running.Load() == workers }, patience, time.Millisecond)
	enqueue()
	b.start(few(b.gossiping("idle", busy.Self().Addr), workers), b.registry(nil))
	busy.meet(2)
	b.eventually(2*quick, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Zero(t, l.done.Load(), "or nothing was proved")
	l.release()
	b.eventually(2*quick+workers, "p1", "SELECT count(*) FROM tenure.completed_job")
}

// TestP12WhatMayNotRunIsLeftToOthers: while long runs leave a tenant none of a node's free workers, its quick jobs are not
// claimed for that node: they hold no limit there, and an idle peer runs them.
func TestP12WhatMayNotRunIsLeftToOthers(t *testing.T) {
	t.Parallel()
	for name, onPeer := range map[string]bool{"on the holder": false, "on its peer": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 3)
			b.cfg.Execution.TenantShare = execution.DefaultConfig().TenantShare
			b.cfg.Limits.Kinds = map[string]acquisition.LimitConfig{"plain": {MaxRunning: 1}}
			l := newLongs(t)
			registry := l.handle(b.registry(nil))
			holds := registry
			if onPeer {
				holds = job.NewRegistry()
			}
			holder := b.start(few(b.gossiping("holder"), 8), holds)
			holder.holds("p1")
			busy := holder
			if onPeer {
				busy = b.start(few(b.gossiping("peer", holder.Self().Addr), 8), registry)
				holder.meet(2)
			}
			enqueueLong(t, busy.Client(), "t2", 6)
			require.Eventually(t, func() bool { return l.running.Load() == 6 }, patience, time.Millisecond)
			enqueueLong(t, busy.Client(), "t1", 1)
			require.Eventually(t, func() bool { return l.running.Load() == 7 }, patience, time.Millisecond)
			for i := range 10 {
				_, err := busy.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{i})
				require.NoError(t, err)
			}
			const claims = "SELECT count(*) FROM tenure.claim c, unnest(c.job_ids) AS run (id) JOIN tenure.job j ON j.id = run.id WHERE j.kind = 'plain'"
			none := 0
			require.Eventually(t, func() bool { // the node learns first that the runs go on for long
				if none++; b.count("p1", claims) > 0 {
					none = 0
				}
				return none == 50
			}, patience, 10*time.Millisecond)
			for i := range 3 {
				_, err := busy.Client().Enqueue(tenancy.For(t.Context(), "t3"), plain{i})
				require.NoError(t, err)
				b.eventually(i+1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't3'")
			}
			b.start(few(b.gossiping("idle", holder.Self().Addr), 8), b.registry(nil))
			b.eventually(13, "p1", "SELECT count(*) FROM tenure.completed_job")
			require.Zero(t, l.done.Load(), "or nothing was proved")
			l.release()
		})
	}
}

// TestP12TimersDelayNobody: while very many timers of one tenant are due at once, jobs of another one
// start one after the other, and the lock stays where it is.
func TestP12TimersDelayNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	r := b.registry(nil)
	started := make(chan struct{}, 1)
	job.Handle(r, func(context.Context, *job.Job[prompt]) error {
		started <- struct{}{}
		return nil
	})
	n := b.start(b.cfg, r)
	n.holds("p1")
	const timers, prompts = 60_000, 5
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")
	b.exec("p1", `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
		SELECT 't1', 'default', 'plain', '{"n": 0}', now() FROM generate_series(1, $1::integer)`, timers)
	left := func() int { return b.count("p1", "SELECT count(*) FROM tenure.timer_job") }
	require.Eventually(t, func() bool { return left() < timers }, patience, time.Millisecond)
	for i := range prompts {
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), prompt{})
		require.NoError(t, err)
		select {
		case <-started:
		case <-time.After(patience):
			require.FailNow(t, "a job does not start", "the %d. of %d", i+1, prompts)
		}
	}
	require.NotZero(t, left(), "all had been fired before")
	if testing.Short() { // firing them all, and running their jobs, says no more of the others
		b.exec("p1", "DELETE FROM tenure.timer_job")
	}
	require.Eventually(t, func() bool { return left() == 0 }, 4*patience, 50*time.Millisecond, "timers are left")
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"), "the lock was lost")
}
