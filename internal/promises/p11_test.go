package promises_test

import (
	"context"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
)

// long is a job that runs until its context ends, and some longer.
type long struct {
	Ignore time.Duration `json:"ignore"` // how long it ignores that
	Fail   bool          `json:"fail"`
}

func (long) Kind() string { return "long" }

// stubborn is a job that does not return.
type stubborn struct{}

func (stubborn) Kind() string { return "stubborn" }

// TestP11ExitZeroLeavesNothingClaimed stops a node in the midst of short jobs, jobs
// that would run for ever, jobs that ignore for a while that they are cancelled, and
// claims that wait for a worker.
func TestP11ExitZeroLeavesNothingClaimed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2).byDefault()
	cfg := b.named("a")
	cfg.Execution.Workers = 32
	cfg.Execution.FinishWithin = 500 * time.Millisecond
	runs := newRuns()
	var mu sync.Mutex
	longs := 0
	all := make(chan struct{})
	const longJobs = 16
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		defer runs.start(j.ID)()
		pause(ctx, time.Duration(j.Args.N)*time.Millisecond)
		return nil
	})
	job.Handle(r, func(ctx context.Context, j *job.Job[long]) error {
		mu.Lock()
		if longs++; longs == longJobs {
			close(all)
		}
		mu.Unlock()
		<-ctx.Done()
		pause(context.WithoutCancel(ctx), j.Args.Ignore)
		if j.Args.Fail {
			return context.Cause(ctx)
		}
		return nil
	})
	n := b.start(cfg, r)
	var entries []tenure.Entry
	tenants := b.tenants()
	for i := range longJobs {
		entries = append(entries, tenure.Entry{Tenant: tenants[i%4], Args: long{Ignore: time.Duration(i/4) * 400 * time.Millisecond, Fail: i%2 == 0}})
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	<-all
	entries = entries[:0]
	for i := range 6000 {
		entries = append(entries, tenure.Entry{Tenant: tenants[i%4], Args: plain{i % 20}})
	}
	_, err = n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	total := longJobs + len(entries)
	require.Eventually(t, func() bool { starts, _ := runs.sum(); return starts > 300 }, patience, time.Millisecond)
	n.stop()

	finished, waiting := 0, 0
	for pool := range b.db {
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.claim"))
		require.Equal(t, 1, b.count(pool, "SELECT count(*) FROM tenure.node_session WHERE state = 'left'"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.node_session WHERE state <> 'left'"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.acquire_lock WHERE holder IS NOT NULL"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.job_error"), "nothing is charged")
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.job WHERE attempt > 0 OR losses > 0"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.timer_job"))
		finished += b.count(pool, "SELECT count(*) FROM tenure.completed_job")
		waiting += b.count(pool, "SELECT count(*) FROM tenure.job")
		require.Equal(t, longJobs/4, b.count(pool, "SELECT count(*) FROM tenure.job WHERE kind = 'long'"), "those that gave up wait again")
	}
	require.Equal(t, total, finished+waiting)
	require.NotZero(t, waiting, "the node was not under load")

	// Another node runs the rest, and nothing twice but what was interrupted.
	next := job.NewRegistry()
	job.Handle(next, func(_ context.Context, j *job.Job[plain]) error { defer runs.start(j.ID)(); return nil })
	job.Handle(next, func(context.Context, *job.Job[long]) error { return nil })
	b.finished(b.node(b.named("b"), next).Client(), total)
	starts, overlaps := runs.sum()
	require.Equal(t, len(entries), starts)
	require.Zero(t, overlaps)
}

// TestP11AHandlerThatDoesNotReturn: while a handler does not return, Stop does not say that
// all is well, and the job stays claimed.
func TestP11AHandlerThatDoesNotReturn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	cfg := b.named("a")
	cfg.Execution.FinishWithin = 100 * time.Millisecond
	started, end := make(chan struct{}), make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[stubborn]) error {
		close(started)
		<-end
		return nil
	})
	n, err := tenure.New(cfg, r, tenure.WithLogger(b.log.logger("a")))
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	defer sync.OnceFunc(func() { close(end) })()
	_, err = n.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: stubborn{}}})
	require.NoError(t, err)
	<-started
	turn := b.count("p1", "SELECT turn FROM tenure.job")
	ctx, cancel := context.WithTimeout(t.Context(), 7*time.Second)
	defer cancel()
	require.Error(t, n.Stop(ctx))
	require.Error(t, n.Stop(t.Context()), "nothing has changed since")
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.claim c JOIN tenure.node_session s USING (session_id) WHERE s.state = 'live'"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job WHERE attempt = 0 AND turn = $1", turn))
}

// TestP11AStopThatIsCutShortGoesOn: whoever waited for the stop gives up; the node leaves all the same once its handler has
// returned.
func TestP11AStopThatIsCutShortGoesOn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	started, goOn := make(chan struct{}), make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[stubborn]) error {
		close(started)
		<-goOn
		return nil
	})
	stays := b.start(b.gossiping("stays"), b.registry(nil))
	n, err := tenure.New(b.gossiping("goes", stays.Self().Addr), r, tenure.WithLogger(b.log.logger("goes")))
	require.NoError(t, err)
	require.NoError(t, n.Start(t.Context()))
	stays.meet(2)
	_, err = n.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: stubborn{}}})
	require.NoError(t, err)
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	require.ErrorIs(t, n.Stop(ctx), context.DeadlineExceeded)
	close(goOn)
	stays.meet(1)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.node_session WHERE node = 'goes' AND state = 'live'")
	_ = n.Stop(t.Context()) // waits for the rest; that it was cut short it says again
}

// A node that was stopped before it was started does not start: nobody would stop it any more. One that is stopped while it
// starts is stopped once it has.
func TestP11AStopBeforeOrDuringTheStart(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	before, err := tenure.New(b.named("before"), b.registry(nil), tenure.WithLogger(b.log.logger("before")))
	require.NoError(t, err)
	require.NoError(t, before.Stop(t.Context()))
	require.ErrorContains(t, before.Start(t.Context()), "the node was started, or stopped, before")
	require.NoError(t, before.Stop(t.Context()))

	during, err := tenure.New(b.named("during"), b.registry(nil), tenure.WithLogger(b.log.logger("during")))
	require.NoError(t, err)
	started := make(chan error, 1)
	go func() { started <- during.Start(t.Context()) }()
	require.NoError(t, during.Stop(t.Context()))
	if err := <-started; err == nil { // else the stop came first
		b.eventually(0, "p1", "SELECT count(*) FROM tenure.node_session WHERE state = 'live'")
	}
}

// A supervisor does not wait for ever: with a handler that does not return, the stop ends,
// and says so, before Kubernetes kills the process, which it does after 30 s by default.
func TestP11AStopEndsInTime(t *testing.T) {
	t.Parallel()
	require.LessOrEqual(t, tenure.StopTimeout(config.Default()), 25*time.Second)
	b := newTestbed(t, 1, 1)
	cfg := b.named("a")
	cfg.Execution.FinishWithin = 100 * time.Millisecond
	started, end := make(chan struct{}), make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[stubborn]) error {
		close(started)
		<-end
		return nil
	})
	n, err := tenure.New(cfg, r, tenure.WithLogger(b.log.logger("a")))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	defer close(end)
	require.Eventually(t, func() bool {
		_, err := n.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: stubborn{}}})
		return err == nil
	}, patience, 10*time.Millisecond)
	receive(t, started)
	began := time.Now()
	stop()
	require.ErrorContains(t, receive(t, ran), "handlers ignore that their context was cancelled")
	require.LessOrEqual(t, time.Since(began), tenure.StopTimeout(cfg)+time.Second)
}

// TestP11AStopWithLittleTime: the caller has less time than handlers were promised. They are
// cancelled early enough for what they left to be written.
func TestP11AStopWithLittleTime(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	cfg := b.named("a")
	cfg.Execution.FinishWithin = time.Minute
	started := make(chan struct{})
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[long]) error {
		close(started)
		<-ctx.Done()
		return ctx.Err()
	})
	n := b.start(cfg, r)
	_, err := n.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: long{}}})
	require.NoError(t, err)
	<-started
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
	defer cancel()
	require.NoError(t, n.Stop(ctx))
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.claim"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job WHERE attempt = 0"))
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
}

// TestP11TheBacklogIsGivenBack: claims wait behind workers that are all taken by long
// jobs when the stop comes.
func TestP11TheBacklogIsGivenBack(t *testing.T) {
	t.Parallel()
	backlogIsGivenBack(t, newTestbed(t, 1, 1), 4)
}

// TestP11WhatIsSetAsideIsGivenBack: the same of claims that wait because their tenant has
// its share.
func TestP11WhatIsSetAsideIsGivenBack(t *testing.T) {
	t.Parallel()
	backlogIsGivenBack(t, newTestbed(t, 1, 1).byDefault(), 3)
}

// backlogIsGivenBack stops a node of which so many of four workers have started.
func backlogIsGivenBack(t *testing.T, b *testbed, started int) {
	cfg := b.named("a")
	cfg.Execution.Workers = 4
	cfg.Execution.FinishWithin = 100 * time.Millisecond
	r := b.registry(nil)
	var block atomic.Bool
	job.Handle(r, func(ctx context.Context, j *job.Job[long]) error {
		if !block.Load() {
			return nil
		}
		<-ctx.Done()
		return ctx.Err()
	})
	n := b.start(cfg, r)
	const longJobs = 500
	entries := slices.Repeat([]tenure.Entry{{Tenant: "t1", Args: long{}}}, longJobs)
	_, err := n.Client().EnqueueMany(t.Context(), entries) // so that such jobs look quick, and much is claimed ahead
	require.NoError(t, err)
	b.eventually(longJobs, "p1", "SELECT count(*) FROM tenure.completed_job")
	block.Store(true)
	_, err = n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	const claimed = "SELECT count(*) FROM tenure.job j JOIN tenure.claim c ON j.id = ANY (c.job_ids)"
	require.Eventually(t, func() bool { return b.count("p1", claimed) > started }, patience, 10*time.Millisecond, "claims should wait for workers")
	n.stop()
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.claim"))
	require.Equal(t, longJobs, b.count("p1", "SELECT count(*) FROM tenure.job WHERE attempt = 0 AND losses = 0"))
	require.Equal(t, started, b.count("p1", "SELECT count(*) FROM tenure.job WHERE turn > (SELECT min(turn) FROM tenure.job)"), "only what had started gets a new turn")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
}
