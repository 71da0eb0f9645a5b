package promises_test

import (
	"context"
	"maps"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// inQueue is an entry of tenant t1.
func inQueue(queue string, priority int, args job.Args) tenure.Entry {
	return tenure.Entry{Tenant: "t1", Args: args, Options: []tenure.Option{tenure.OnQueue(queue), tenure.Priority(priority)}}
}

// flood keeps a queue of tenant t1 filled with jobs of a priority, far more than run, until the
// test ends.
func flood(b *testbed, c *tenure.Client, queue string, priority int, args job.Args) {
	b.t.Helper()
	ctx, cancel := context.WithCancel(context.WithoutCancel(b.t.Context()))
	entries := make([]tenure.Entry, 200)
	for i := range entries {
		entries[i] = inQueue(queue, priority, args)
	}
	add := func() {
		if _, err := c.EnqueueMany(ctx, entries); err != nil && ctx.Err() == nil {
			b.t.Errorf("flood: %v", err)
		}
	}
	for range 10 {
		add()
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			add()
			pause(ctx, 300*time.Millisecond)
		}
	}()
	b.t.Cleanup(func() { cancel(); <-done })
}

// TestNoQueueAndNoPriorityStarves: beside a stream of jobs of priority 1 that is more than the
// node gets through, and of which thousands wait, a job of priority 0 starts once it has been
// passed over for a step, and one of another queue of the same tenant at its next turn; both of
// a kind that has not run here before, or all of one kind. A second job of priority 0 waits for
// another step: the stream's jobs keep their priority.
func TestNoQueueAndNoPriorityStarves(t *testing.T) {
	t.Parallel()
	for name, other := range map[string]func() job.Args{
		"of another kind": func() job.Args { return prompt{time.Now()} },
		"of one kind":     func() job.Args { return slow{1} },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			const takes, step = 20 * time.Millisecond, 2 * time.Second
			b.cfg.Acquire.Queues.AgeEvery = step
			r := b.registry(nil)
			started := make(chan string, 10)
			tell := func(queue string, priority int16) {
				if priority == 0 {
					started <- queue
				}
			}
			job.Handle(r, func(ctx context.Context, j *job.Job[slow]) error {
				tell(j.Queue, j.Priority)
				pause(ctx, takes)
				return ctx.Err()
			})
			job.Handle(r, func(_ context.Context, j *job.Job[prompt]) error {
				tell(j.Queue, j.Priority)
				return nil
			})
			n := b.start(few(b.cfg, 4), r)
			flood(b, n.Client(), "default", 1, slow{0})
			b.flows("p1")
			wait := func(queue string) time.Duration {
				t.Helper()
				began := time.Now()
				e := inQueue(queue, 0, other())
				_, err := n.Client().Enqueue(tenancy.For(t.Context(), e.Tenant), e.Args, e.Options...)
				require.NoError(t, err)
				select {
				case q := <-started:
					require.Equal(t, queue, q)
				case <-time.After(patience):
					require.FailNow(t, "the job does not start", "in queue %s", queue)
				}
				return time.Since(began)
			}
			for range 3 {
				wait("other")
			}
			for range 2 {
				require.Greater(t, wait("default"), step/2, "what is of a higher priority goes first")
			}
			require.Greater(t, b.count("p1", "SELECT count(*) FROM tenure.job WHERE priority = 1"), 1000, "or nothing was proved")
		})
	}
}

// TestAFloodOfHistoryHoldsNobodyUp: a queue for audit jobs, with a small weight, takes its part of the
// workers and no more, however many jobs wait in it and whatever their priority: far more business
// jobs than that run meanwhile.
func TestAFloodOfHistoryHoldsNobodyUp(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Queues.Weights = map[string]int{"default": 20, "history": 1}
	const business = 400
	var mu sync.Mutex
	begun := map[string]int{} // by queue, since the first business job began
	done := make(chan struct{})
	r := b.registry(nil)
	job.Handle(r, func(ctx context.Context, j *job.Job[slow]) error {
		mu.Lock()
		if j.Queue == "default" || begun["default"] > 0 && begun["default"] < business {
			begun[j.Queue]++
		}
		if j.Queue == "default" && begun["default"] == business {
			close(done)
		}
		mu.Unlock()
		pause(ctx, 5*time.Millisecond)
		return ctx.Err()
	})
	n := b.start(few(b.cfg, 4), r)
	flood(b, n.Client(), "history", job.MaxPriority, slow{0})
	b.flows("p1")
	entries := make([]tenure.Entry, business)
	for i := range entries {
		entries[i] = inQueue("default", 0, slow{i})
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	select {
	case <-done:
	case <-time.After(patience):
		require.FailNow(t, "history holds business up")
	}
	mu.Lock()
	defer mu.Unlock()
	require.Less(t, begun["history"], business/2, "history has more than its part")
	require.Greater(t, b.count("p1", "SELECT count(*) FROM tenure.job WHERE queue = 'history'"), 100, "or nothing was proved")
}

// TestQueuesShareByWeightLive: two queues of a tenant that have much to do share the workers by
// weight, whatever their jobs' priorities, and by other weights within a second after a reload.
func TestQueuesShareByWeightLive(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var mu sync.Mutex
	ran := map[string]int{}
	r := b.registry(nil)
	job.Handle(r, func(ctx context.Context, j *job.Job[slow]) error {
		mu.Lock()
		ran[j.Queue]++
		mu.Unlock()
		pause(ctx, 10*time.Millisecond)
		return ctx.Err()
	})
	n := b.start(few(b.cfg, 4), r)
	flood(b, n.Client(), "mail", 0, slow{0})
	flood(b, n.Client(), "reports", 5, slow{0})
	b.flows("p1")
	share := func() float64 {
		mu.Lock()
		before := maps.Clone(ran)
		mu.Unlock()
		timer(t, 2*time.Second)
		mu.Lock()
		defer mu.Unlock()
		mail, reports := ran["mail"]-before["mail"], ran["reports"]-before["reports"]
		require.Greater(t, mail+reports, 50, "or nothing was proved")
		return float64(mail) / float64(mail+reports)
	}
	require.InDelta(t, 0.5, share(), 0.1)
	cfg := few(b.cfg, 4)
	cfg.Acquire.Queues.Weights = map[string]int{"mail": 4}
	done, err := n.Reload(t.Context(), cfg)
	require.NoError(t, err)
	require.Empty(t, done.Later, "it needs no restart")
	timer(t, time.Second)
	require.InDelta(t, 0.8, share(), 0.1)
	cfg.Acquire.Batch++
	done, err = n.Reload(t.Context(), cfg)
	require.NoError(t, err)
	require.Equal(t, []string{"acquire"}, done.Later, "the rest of the section does")
}
