package promises_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// What is suspended does not run, and runs once it is resumed: by hand, or when its time comes.
func TestSuspendedJobsDoNotRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	let, began := make(chan struct{}), make(chan job.ID, 100)
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		began <- j.ID
		select {
		case <-let:
		case <-ctx.Done():
		}
		return ctx.Err()
	})
	n := b.start(few(b.cfg, 1), r)
	op, c := n.Operator(), n.Client()
	tenant, other := tenancy.For(t.Context(), "t1"), tenancy.For(t.Context(), "t2")
	add := func(ctx context.Context, options ...tenure.Option) job.ID {
		t.Helper()
		added, err := c.Enqueue(ctx, plain{1}, options...)
		require.NoError(t, err)
		return added.ID
	}
	running := add(tenant)
	require.Equal(t, running, <-began)                         // and has the only worker
	require.NoError(t, op.Tenants().Freeze(t.Context(), "t1")) // else the holder may claim some more, for when the worker is free
	waiting, timer := add(tenant), add(tenant, tenure.In(time.Hour))
	brief := add(tenant)

	var state *operate.StateError
	require.ErrorAs(t, op.Jobs().Suspend(t.Context(), running, time.Time{}), &state)
	require.Equal(t, "running", state.State)
	require.ErrorContains(t, state, "suspend it when its run has ended")
	require.ErrorAs(t, op.Jobs().Resume(t.Context(), waiting), &state)
	require.ErrorContains(t, state, "it is waiting, and not suspended")
	require.ErrorIs(t, op.Jobs().Suspend(t.Context(), 99, time.Time{}), tenure.ErrNotFound)
	require.ErrorContains(t, op.Jobs().Suspend(t.Context(), waiting, time.Now().Add(-time.Hour)), "a time in the future is needed")

	result, err := op.Jobs().SuspendAll(t.Context(), operate.Selection{Tenant: "t1"}, time.Time{})
	require.NoError(t, err)
	require.Equal(t, operate.SuspendResult{Suspended: 3, Running: 1}, result)
	require.NoError(t, op.Tenants().Thaw(t.Context(), "t1"))
	theirs := add(other)
	close(let)
	require.Equal(t, theirs, <-began)
	require.NoError(t, op.Jobs().Suspend(t.Context(), brief, time.Now().Add(time.Second)))
	select {
	case id := <-began:
		require.Equal(t, brief, id, "its time has come")
	case <-time.After(patience): // the term looks once a minute, too
		require.Fail(t, "its time has come, and it is not resumed")
	}
	b.eventually(3, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.suspended_job"))
	require.ErrorAs(t, op.Jobs().Retry(t.Context(), waiting), &state)
	require.ErrorContains(t, state, "resume it first")

	resumed, err := op.Jobs().ResumeAll(t.Context(), operate.Selection{Tenant: "t1", Kind: "plain"})
	require.NoError(t, err)
	require.Equal(t, 2, resumed)
	require.Equal(t, waiting, <-began)
	j, _, err := op.Jobs().Get(t.Context(), timer)
	require.NoError(t, err)
	require.Equal(t, "scheduled", j.State)

	now := time.Now()
	require.NoError(t, op.Jobs().Change(t.Context(), timer, operate.JobChange{DueAt: &now}))
	require.Equal(t, timer, <-began)
	b.eventually(5, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Empty(t, began)
	require.ErrorAs(t, op.Jobs().Change(t.Context(), timer, operate.JobChange{DueAt: &now}), &state)
	require.Equal(t, "done", state.State)
	for why, change := range map[string]operate.JobChange{
		"nothing is to be changed": {},
		"priority 1001":            {Priority: new(1001)},
		"max attempts 0":           {MaxAttempts: new(0)},
		"timeout 1":                {Timeout: new(time.Microsecond)},
		"years 1970 to 9999":       {DueAt: &time.Time{}},
	} {
		require.ErrorContains(t, op.Jobs().Change(t.Context(), timer, change), why)
	}
}

// After an outage all jobs of a kind that wait to be tried again run now, at a rate; those for later stay, and so do other tenants'.
func TestRetryAll(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	const jobs, perSecond = 20, 20
	var down atomic.Bool
	down.Store(true)
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[plain]) error {
		if down.Load() {
			return errors.New("the partner is down")
		}
		return nil
	}, job.Retry("R5/P1D"))
	n := b.start(b.cfg, r)
	op := n.Operator().Jobs()
	for _, tenant := range []string{"t1", "t2"} {
		b.exec("p1", "SELECT tenure.enqueue($1, 'plain') FROM generate_series(1, $2)", tenant, jobs)
		b.exec("p1", "SELECT tenure.enqueue($1, 'plain', delay => '1 day')", tenant)
	}
	b.eventually(2*jobs, "p1", "SELECT count(*) FROM tenure.timer_job WHERE attempt = 1")
	down.Store(false)
	for why, f := range map[string]operate.Selection{"say of which state": {Kind: "plain"}, "is not one of": {State: "dead"}} {
		_, err := op.RetryAll(t.Context(), f, 0)
		require.ErrorContains(t, err, why)
		require.True(t, tenure.Refused(err))
	}
	mine := operate.Selection{Tenant: "t1", Kind: "plain", State: "retrying"}
	count, err := op.CountRetryable(t.Context(), mine)
	require.NoError(t, err)
	require.EqualValues(t, jobs, count)
	began := time.Now()
	did, err := op.RetryAll(t.Context(), mine, perSecond)
	require.NoError(t, err)
	require.Equal(t, operate.RetryResult{Retried: jobs}, did)
	b.eventually(jobs, "p1", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't1' AND attempt = 2")
	require.GreaterOrEqual(t, time.Since(began), (jobs-1)*time.Second/perSecond)
	require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.timer_job WHERE tenant_id = 't2' AND attempt = 1"))
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.timer_job WHERE attempt = 0"))
	did, err = op.RetryAll(t.Context(), operate.Selection{State: "scheduled"}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.RetryResult{Retried: 2}, did)
	b.eventually(jobs+2, "p1", "SELECT count(*) FROM tenure.completed_job")
	entries, err := n.Operator().Audit(t.Context(), operate.AuditFilter{Action: "jobs.retry"})
	require.NoError(t, err)
	require.Len(t, entries, 4, "what was asked for, and what became of it")
}

// However many are suspended, others' jobs run meanwhile, and what interrupts it leaves each job
// either where it was or suspended.
func TestSuspendingManyGoesOn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	const n = 3000
	for pool, tenant := range map[string]string{"p1": "t1", "p2": "t2"} {
		b.exec(pool, `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
			SELECT $1, 'default', 'write', '{"n": 1}', now() + interval '1 hour' FROM generate_series(1, $2::integer)`, tenant, n)
	}
	op := b.client(b.cfg).Operator()
	ctx, cancel := context.WithCancel(t.Context())
	interrupted := make(chan operate.SuspendResult, 1)
	go func() {
		r, _ := op.Jobs().SuspendAll(ctx, operate.Selection{}, time.Time{})
		interrupted <- r
	}()
	b.eventually(1, "p1", "SELECT (count(*) > 0)::int FROM tenure.suspended_job")
	cancel()
	first := <-interrupted
	all := func(pool string) int {
		return b.count(pool, "SELECT (SELECT count(*) FROM tenure.timer_job) + (SELECT count(*) FROM tenure.suspended_job)")
	}
	require.Equal(t, n, all("p1"))
	second, err := op.Jobs().SuspendAll(t.Context(), operate.Selection{Kind: "write"}, time.Time{})
	require.NoError(t, err)
	require.InDelta(t, 2*n-first.Suspended, second.Suspended, 500, "a step whose answer was not awaited may have been done")
	for _, pool := range []string{"p1", "p2"} {
		require.Equal(t, n, b.count(pool, "SELECT count(*) FROM tenure.suspended_job"))
	}
	resumed, err := op.Jobs().ResumeAll(t.Context(), operate.Selection{Pool: "p2"})
	require.NoError(t, err)
	require.Equal(t, n, resumed)
	require.Equal(t, n, b.count("p2", "SELECT count(*) FROM tenure.timer_job"))
}
