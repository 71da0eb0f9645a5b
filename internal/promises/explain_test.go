package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Of a job that does not run it is said why: the first true reason, with who is in its way, and
// what to do.
func TestExplainJob(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.client(b.cfg)
	op := c.Operator()
	ctx := tenancy.For(t.Context(), "t1")
	add := func(n int, o ...tenure.Option) job.ID {
		added, err := c.Enqueue(ctx, plain{n}, o...)
		require.NoError(t, err)
		return added.ID
	}
	why := func(id job.ID) operate.Explanation {
		t.Helper()
		e, err := op.Jobs().Explain(t.Context(), id)
		require.NoError(t, err)
		require.NotEmpty(t, e.Text)
		return e
	}
	requireWhy := func(id job.ID, reason operate.WaitReason, parts ...string) {
		t.Helper()
		e := why(id)
		require.Equal(t, reason, e.Reason, "%s", e.Text)
		for _, p := range parts {
			require.Contains(t, e.Text+"\n"+e.Advice, p)
		}
	}

	first := add(1)
	requireWhy(first, operate.WaitsForHolder, "pool p1", "start a node")
	b.exec("p1", "INSERT INTO tenure.claim (session_id, turn, job_ids) SELECT gen_random_uuid(), turn, ARRAY[id] FROM tenure.job")
	requireWhy(first, operate.WaitsNot, "has not begun with it")
	require.ErrorContains(t, op.Jobs().Suspend(t.Context(), first, time.Time{}), "it is claimed; suspend it when its run has ended")
	b.exec("p1", "DELETE FROM tenure.claim")
	later := add(2, tenure.In(time.Hour))
	requireWhy(later, operate.WaitsUntilDue, fmt.Sprintf("tenure jobs retry %d", later))
	require.NoError(t, op.Tenants().Freeze(t.Context(), "t1"))
	requireWhy(first, operate.WaitsForTenant, "tenure tenants thaw t1")
	require.NoError(t, op.Pools().Freeze(t.Context(), "p1"))
	requireWhy(first, operate.WaitsForPool, "tenure pools thaw p1")
	requireWhy(later, operate.WaitsUntilDue)
	require.NoError(t, op.Pools().Thaw(t.Context(), "p1"))
	require.NoError(t, op.Tenants().Thaw(t.Context(), "t1"))

	started, gate := make(chan job.ID, 100), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(gate) })
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		started <- j.ID
		switch {
		case j.Args.N == 10:
			return job.RetryIn(time.Hour, errors.New("not yet"))
		case j.Args.N == 11:
			return job.Discard(errors.New("never"))
		}
		select {
		case <-gate:
		case <-ctx.Done():
		}
		return nil
	})
	n := b.start(few(b.named("a"), 8), r)
	t.Cleanup(goOn)
	require.Equal(t, first, <-started)
	requireWhy(first, operate.WaitsNot, "running on node a")

	other, err := c.Enqueue(ctx, write{1})
	require.NoError(t, err)
	requireWhy(other.ID, operate.WaitsForHandler, "kind write")
	holder := add(3, tenure.Exclusive("k"))
	require.Equal(t, holder, <-started)
	follower, behind := add(4, tenure.Exclusive("k")), add(5, tenure.Exclusive("k"))
	requireWhy(follower, operate.WaitsForKey, `"k"`, fmt.Sprintf("held by job %d", holder), fmt.Sprintf("tenure jobs cancel %d", holder))
	requireWhy(behind, operate.WaitsForKey, fmt.Sprintf("held by job %d", holder))
	retried := add(10, tenure.Exclusive("r"))
	require.Equal(t, retried, <-started)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.timer_job WHERE id = $1", int64(retried))
	requireWhy(add(6, tenure.Exclusive("r")), operate.WaitsForKey, fmt.Sprintf("held by job %d, which is tried again", retried))
	requireWhy(retried, operate.WaitsUntilDue, "failed 1 time,")
	dead := add(11)
	require.Equal(t, dead, <-started)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.dead_letter_job")
	requireWhy(dead, operate.WaitsNot, "never", fmt.Sprintf("tenure jobs retry %d", dead))

	require.NoError(t, op.Tenants().Limit(t.Context(), "t1", 2))
	var limited job.ID
	require.Eventually(t, func() bool { // until the holder knows of it, which claims some before that
		if limited != 0 && why(limited).Reason == operate.WaitsForMaxRunning {
			return true
		}
		limited = add(7)
		return false
	}, patience, 200*time.Millisecond)
	requireWhy(limited, operate.WaitsForMaxRunning, "of the 2 that it may have", "tenure limits set --tenant t1 --max-running 3")
	b.exec("p1", "UPDATE tenure.tenant SET state = 'moving', other_pool = 'p2', max_running = NULL")
	requireWhy(limited, operate.WaitsForMove, "moving to pool p2 from pool p1", "tenure tenants move t1 --to p2; or give it up with: tenure tenants move t1 --to p1")
	b.exec("p1", "DELETE FROM tenure.tenant")

	goOn()
	n.stop()
	_, err = op.Jobs().Explain(t.Context(), 1)
	require.ErrorIs(t, err, tenure.ErrNotFound)
}

// A job whose tenant has its share of the workers is told so, and not that it is a matter of its turn, as it
// is once some node runs any number of them; so is its tenant.
func TestExplainShare(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Execution.Workers, b.cfg.Execution.TenantShare = 4, 50
	l := newLongs(t)
	first := b.start(b.gossiping("first"), l.handle(b.registry(nil)))
	c := first.Client()
	op := c.Operator()
	enqueueLong(t, c, "t1", 20)
	require.Eventually(t, func() bool { return l.running.Load() == 2 }, patience, time.Millisecond)
	last, err := c.Enqueue(tenancy.For(t.Context(), "t1"), endless{20})
	require.NoError(t, err)
	e, err := op.Jobs().Explain(t.Context(), last.ID)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForShare, e.Reason, e.Text)
	require.Contains(t, e.Text+"\n"+e.Advice, "which run 2 of one tenant at a time")
	why, err := op.Tenants().Explain(t.Context(), "t1")
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForShare, why.Reason, why.Text)
	require.Contains(t, why.Text, "run 2 of one tenant")

	other, err := c.Enqueue(tenancy.For(t.Context(), "t2"), write{1}) // which has none of its share
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1", int64(other.ID))

	b.cfg.Execution.TenantShare = 100
	b.start(b.gossiping("second", first.Self().Addr), l.handle(b.registry(nil)))
	require.Eventually(t, func() bool { return l.running.Load() == 6 }, patience, time.Millisecond)
	e, err = op.Jobs().Explain(t.Context(), last.ID)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForTurn, e.Reason, e.Text)
	why, err = op.Tenants().Explain(t.Context(), "t1")
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForTurn, why.Reason, why.Text)
	l.release()
}

// Of a job that waits for a worker, be it that its node has claimed it or that no node has a worker left, it is told what
// keeps the workers; the doctor and the dashboard, which makes the same checks, name handlers that ignore the end of their context.
func TestExplainBusyNode(t *testing.T) {
	t.Parallel()
	t.Run("no worker left", func(t *testing.T) { explainBusyNode(t, false) })
	t.Run("claimed", func(t *testing.T) {
		if testing.Short() {
			t.Skip("it needs several jobs to be claimed for one worker, which a slow machine may not do")
		}
		explainBusyNode(t, true)
	})
}

func explainBusyNode(t *testing.T, claimed bool) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Execution.Workers = 1
	started, gate := make(chan job.ID, 10), make(chan struct{})
	goOn := sync.OnceFunc(func() { close(gate) })
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if j.Args.N > 0 {
			started <- j.ID
			<-gate
		}
		return nil
	})
	n := b.start(b.named("a"), r)
	t.Cleanup(goOn)
	c := n.Client()
	op := c.Operator()
	add := func(tenant tenancy.ID, n, of int) []tenure.Enqueued {
		added, err := c.EnqueueMany(t.Context(), slices.Repeat([]tenure.Entry{{Tenant: tenant, Args: plain{n}}}, of))
		require.NoError(t, err)
		return added
	}
	jobs := 1
	if claimed {
		add("t1", 0, 100) // so many jobs of the kind are soon over that several are claimed for one worker
		b.eventually(0, "p1", "SELECT count(*) FROM tenure.job")
		jobs = 3
	}
	added := add("t1", 1, jobs)
	holder := <-started
	require.Equal(t, added[0].ID, holder)
	if !claimed { // of another tenant, as the first has its share
		added = append(added, add("t2", 1, 1)...)
	}
	waiting := added[1].ID
	var e operate.Explanation
	require.Eventually(t, func() (ok bool) {
		var err error
		e, err = op.Jobs().Explain(t.Context(), waiting)
		require.NoError(t, err)
		return e.Reason == operate.WaitsForWorkers
	}, patience, 100*time.Millisecond)
	require.Contains(t, e.Text, "no worker is free for it on node a, which has 1: ")
	require.Contains(t, e.Text, "1 of kind plain, since ")
	require.Contains(t, e.Advice, "--kind plain")
	require.Eventually(t, func() bool { // the third may have been claimed later
		listed, err := op.Jobs().List(t.Context(), operate.JobFilter{State: "running"})
		require.NoError(t, err)
		return len(listed) == 1 && listed[0].ID == holder
	}, patience, 100*time.Millisecond)

	running, err := op.Jobs().Cancel(t.Context(), holder)
	require.NoError(t, err)
	require.True(t, running)
	require.Equal(t, waiting, <-started, "another worker stands in")
	require.Eventually(t, func() bool {
		found, err := op.ExamineWork(t.Context(), "p1")
		require.NoError(t, err)
		return slices.ContainsFunc(operate.MergeFindings([]operate.PoolFindings{found}), func(f operate.Finding) bool {
			return f.Severity == operate.SeverityWarning && strings.Contains(f.What, "on node a (member "+n.Self().Name+") 1 handler ignores the end of its context: 1 of kind plain, since ")
		})
	}, patience, 100*time.Millisecond)
	goOn()
	n.stop()
}

// A job that a limit holds up is told which: its queue's, its kind's or a rate, and when the next may
// start.
func TestExplainLimits(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r, _, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	c := n.Client()
	op := c.Operator()
	wait := func(l operate.Limit, reason operate.WaitReason, texts ...string) {
		t.Helper()
		require.NoError(t, op.Limits().Set(t.Context(), l))
		var e operate.Explanation
		require.Eventually(t, func() bool {
			added, err := c.Enqueue(tenancy.For(t.Context(), "t1"), plain{1}, tenure.OnQueue("mail"))
			require.NoError(t, err)
			e, err = op.Jobs().Explain(t.Context(), added.ID)
			require.NoError(t, err)
			return e.Reason == reason
		}, patience, 50*time.Millisecond)
		for _, text := range texts {
			require.Contains(t, e.Text+"\n"+e.Advice, text)
		}
		require.NoError(t, op.Limits().Delete(t.Context(), l))
	}
	wait(operate.Limit{Tenant: "t1", Queue: "mail", MaxRunning: 1}, operate.WaitsForQueueLimit, "queue mail of tenant t1", "of the 1", "--queue mail --max-running 2")
	wait(operate.Limit{Tenant: operate.EveryTenant, Kind: "plain", MaxRunning: 1}, operate.WaitsForKindLimit, "kind plain of tenant t1", "--kind plain --max-running 2")
	wait(operate.Limit{Tenant: "t1", Rate: 1, Per: time.Hour}, operate.WaitsForRate, "1 job in 1h0m0s", "--rate 2 --per 1h0m0s")
	goOn()
	for _, bad := range []struct {
		limit operate.Limit
		says  string
	}{
		{operate.Limit{Tenant: "t1"}, "max running and rate"},
		{operate.Limit{Tenant: "t1", MaxRunning: -1}, "1 to 1000000"},
		{operate.Limit{Tenant: "t1", Kind: "a", Queue: "b", MaxRunning: 1}, "name one of them"},
		{operate.Limit{Tenant: "t1", MaxRunning: 1, Per: time.Second}, "of a rate, which is missing"},
		{operate.Limit{Tenant: "t1", Rate: 1, Per: time.Microsecond}, "whole milliseconds"},
		{operate.Limit{Tenant: "t1", Rate: 1, Per: 24 * time.Hour, Burst: 1_000_000}, "burst: 1000000: 365 at most at a rate of 1 in 24h0m0s"},
		{operate.Limit{Tenant: "", Rate: 1}, "tenant"},
	} {
		require.ErrorContains(t, op.Limits().Set(t.Context(), bad.limit), bad.says)
	}
}

// Of a job in a pool that its tenant does not live in, why says how to bring it home: to end the tenant's jobs would end those at
// home, too.
func TestExplainStray(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	home, other := b.client(b.cfg), ""
	op := home.Operator()
	at, err := op.Tenants().Home(t.Context(), "t1")
	require.NoError(t, err)
	for pool := range b.db {
		if pool != at {
			other = pool
		}
	}
	var id job.ID
	require.NoError(t, b.db[other].QueryRow(t.Context(), "SELECT id FROM tenure.enqueue(tenant => 't1', kind => 'plain')").Scan(&id))
	e, err := op.Jobs().Explain(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForRoute, e.Reason)
	require.Equal(t, fmt.Sprintf("tenant %q lives in pool %q, but has jobs in pool %q", "t1", at, other), e.Text)
	require.Equal(t, fmt.Sprintf("tenure tenants move t1 --to %s brings the tenant's jobs there; or correct its route; or tenure jobs cancel %d ends this one", at, id), e.Advice)

	_, err = home.Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	_, err = home.Enqueue(tenancy.For(t.Context(), "t1"), plain{2})
	require.NoError(t, err)
	stray, err := op.Tenants().ExplainStray(t.Context(), "t1", other)
	require.NoError(t, err)
	require.Equal(t, operate.TenantExplanation{Tenant: "t1", Pool: other, Reason: operate.WaitsForRoute, Text: e.Text, Advice: stray.Advice, Waiting: 1}, stray)
	require.Contains(t, stray.Advice, "tenure tenants move t1 --to "+at)
}
