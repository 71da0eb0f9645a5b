package execution

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

var errBroken = errors.New("broken")

// TestEveryClaimEndsOnce runs handlers that end in every way there is, each followed
// by one that just works, on two workers: a lost worker would be missed.
func TestEveryClaimEndsOnce(t *testing.T) {
	t.Parallel()
	once := job.DefaultPolicy()
	for _, c := range []struct {
		name   string
		handle job.HandlerFunc
		state  job.State
		says   string // part of the outcome's error
		is     error
		stack  bool
	}{
		{name: "nil", handle: func(context.Context, *job.Record) error { return nil }, state: job.Done},
		{name: "error", handle: func(context.Context, *job.Record) error { return errBroken }, state: job.Retrying, is: errBroken},
		{name: "discard", handle: func(context.Context, *job.Record) error { return job.Discard(errBroken) }, state: job.Dead, is: errBroken},
		{name: "cancel", handle: func(context.Context, *job.Record) error { return job.Cancel(errBroken) }, state: job.Cancelled, is: errBroken},
		{name: "snooze", handle: func(context.Context, *job.Record) error { return job.Snooze(time.Hour) }, state: job.Snoozed},
		{name: "panic", handle: func(context.Context, *job.Record) error { panic("boom") }, state: job.Retrying, says: "panic: boom", stack: true},
		{name: "panic with an error", handle: func(context.Context, *job.Record) error { panic(errBroken) }, state: job.Retrying, says: "broken", stack: true},
		{name: "panic with nil", handle: func(context.Context, *job.Record) error { panic(any(nil)) }, state: job.Retrying, says: "nil", stack: true},
		{name: "nil map", handle: func(context.Context, *job.Record) error {
			var m map[string]int
			//lint:ignore SA5000 the panic is what is tested
			m["a"] = 1
			return nil
		}, state: job.Retrying, says: "nil map", stack: true},
		{name: "goexit", handle: func(context.Context, *job.Record) error { runtime.Goexit(); return nil }, state: job.Retrying, is: errGoexit},
		{name: "panic while it ends by goexit", handle: func(context.Context, *job.Record) error {
			defer func() { panic("late") }()
			runtime.Goexit()
			return nil
		}, state: job.Retrying, says: "panic: late", stack: true},
		{name: "timeout", handle: func(ctx context.Context, _ *job.Record) error { <-ctx.Done(); return context.Cause(ctx) }, state: job.Retrying, is: job.ErrTimeout},
		{name: "timeout told as another error", handle: func(ctx context.Context, _ *job.Record) error { <-ctx.Done(); return ctx.Err() }, state: job.Retrying, is: job.ErrTimeout},
		{name: "timeout ignored", handle: func(context.Context, *job.Record) error { time.Sleep(2 * time.Hour); return nil }, state: job.Done},
		{name: "timeout, then panic", handle: func(ctx context.Context, _ *job.Record) error { <-ctx.Done(); panic("late") }, state: job.Retrying, says: "late", is: job.ErrTimeout, stack: true},
		{name: "deep panic", handle: func(context.Context, *job.Record) error { return deep(1000) }, state: job.Retrying, says: "deep", stack: true},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBundle(t, nil, func(r *job.Registry) { r.Add(job.Spec{Kind: "odd", Handle: c.handle, Retry: &once}) }).start()
				for range 3 { // more often than there are workers
					b.submit("odd", 2)
					for range 2 {
						e := b.owner.next(t)
						require.Equal(t, "finish", e.how)
						require.Equal(t, c.state, e.outcome.State)
						if c.says != "" {
							require.ErrorContains(t, e.outcome.Err, c.says)
						}
						if c.is != nil {
							require.ErrorIs(t, e.outcome.Err, c.is)
						}
						require.Equal(t, c.stack, strings.Contains(e.outcome.Stack, "workers_test.go"), "a stack that leads to the handler: %s", e.outcome.Stack)
					}
				}
				b.submit("noop", 10)
				for range 10 {
					require.Equal(t, job.Done, b.owner.next(t).outcome.State)
				}
				b.stop()
			})
		})
	}
}

func deep(n int) error {
	if n == 0 {
		panic("deep")
	}
	return deep(n - 1)
}

// waiter is a handler that says when it runs and goes on until it is told to, or its
// runContext ends.
type waiter struct {
	running chan struct{}
	goOn    chan struct{}
	stuck   bool // it does not look at its context
}

func newWaiter(stuck bool) *waiter {
	return &waiter{running: make(chan struct{}, 100), goOn: make(chan struct{}), stuck: stuck}
}

func (w *waiter) handle(ctx context.Context, _ *job.Record) error {
	w.running <- struct{}{}
	if w.stuck {
		<-w.goOn
		return nil
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-w.goOn:
		return nil
	}
}

func (w *waiter) register(r *job.Registry) { r.Add(job.Spec{Kind: "wait", Handle: w.handle}) }

func TestCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register).start()
		b.submit("wait", 3) // two run, one waits
		<-w.running
		<-w.running
		synctest.Wait()
		require.False(t, b.workers.Cancel(99), "unknown")
		require.False(t, b.workers.Cancel(3), "it does not run yet")
		require.True(t, b.workers.Cancel(2))
		e := b.owner.next(t)
		require.EqualValues(t, 2, e.claim.Record.ID)
		require.Equal(t, job.Cancelled, e.outcome.State)
		require.ErrorIs(t, e.outcome.Err, job.ErrCancelled)
		require.False(t, b.workers.Cancel(2), "it has ended")
		<-w.running
		close(w.goOn)
		for range 2 {
			require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		}
	})
}

// A handler that comes to its end although it was cancelled has done its work.
func TestCancelledButDone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(true)
		b := newBundle(t, nil, w.register).start()
		b.submit("wait", 1)
		<-w.running
		require.True(t, b.workers.Cancel(1))
		close(w.goOn)
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
	})
}

func TestLostClaimCancelsItsRuns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register).start()
		b.submit("wait", 1)
		<-w.running
		b.owner.lose(fmt.Errorf("declared dead: %w", job.ErrClaimLost))
		e := b.owner.next(t)
		require.Equal(t, "finish", e.how, "the owner sorts out that it finds no row")
		require.ErrorIs(t, e.outcome.Err, job.ErrClaimLost)
	})
}

func TestReturnsWhatMayNotStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var ran atomic.Int64
		b := newBundle(t, nil, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "count", Handle: func(context.Context, *job.Record) error { ran.Add(1); return nil }})
		}).start()
		b.owner.mayStart.Store(false)
		b.submit("count", 5)
		for range 5 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
		require.Zero(t, b.workers.Reserve(b.owner, 5), "nothing is claimed only to be given back")
		b.owner.mayStart.Store(true)
		b.submit("unheard.of", 5)
		for range 5 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
		require.Zero(t, ran.Load())
		b.submit("count", 1)
		require.Equal(t, "finish", b.owner.next(t).how)
	})
}

func TestStopReturnsWhatWaitsAndLetsTheRestFinish(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register)
		require.NoError(t, b.workers.Start(t.Context()))
		b.submit("wait", 5)
		<-w.running
		<-w.running
		stopped := make(chan error, 2)
		for range 2 { // idempotent, also at the same time
			go func() { stopped <- b.workers.Stop(context.Background()) }()
		}
		for range 3 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
		b.submit("wait", 2)
		for range 2 {
			require.Equal(t, "return", b.owner.next(t).how, "submitted after the stop")
		}
		time.Sleep(DefaultConfig().FinishWithin - time.Second)
		synctest.Wait()
		require.Empty(t, stopped)
		close(w.goOn)
		for range 2 {
			e := b.owner.next(t)
			require.Equal(t, "finish", e.how)
			require.Equal(t, job.Done, e.outcome.State)
		}
		require.NoError(t, <-stopped)
		require.NoError(t, <-stopped)
		b.stop()
	})
}

func TestStopCancelsAfterItsTime(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct{ deadline, cancelled, want time.Duration }{
		"finish_within":              {dayAndNight, dayAndNight, DefaultConfig().FinishWithin},
		"a deadline that comes soon": {15 * time.Second, dayAndNight, 15*time.Second - cancelGrace - writeGrace},
		"a deadline that is near":    {time.Second, dayAndNight, 0},
		"cancelled":                  {dayAndNight, 7 * time.Second, 7 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w := newWaiter(false)
				b := newBundle(t, nil, w.register)
				require.NoError(t, b.workers.Start(t.Context()))
				b.submit("wait", 2)
				<-w.running
				<-w.running
				ctx, cancel := context.WithTimeout(t.Context(), c.deadline)
				defer cancel()
				defer time.AfterFunc(c.cancelled, cancel).Stop()
				began := time.Now()
				require.NoError(t, b.workers.Stop(ctx))
				require.Equal(t, c.want, time.Since(began))
				for range 2 {
					e := b.owner.next(t)
					require.Equal(t, job.Returned, e.outcome.State)
					require.ErrorIs(t, e.outcome.Err, job.ErrStopping)
				}
				b.settled()
			})
		})
	}
}

func TestStopNamesHandlersThatDoNotListen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(true)
		b := newBundle(t, nil, w.register)
		require.NoError(t, b.workers.Start(t.Context()))
		b.submit("wait", 2)
		<-w.running
		<-w.running
		began := time.Now()
		err := b.workers.Stop(context.Background())
		require.ErrorContains(t, err, "map[wait:2]")
		require.Equal(t, DefaultConfig().FinishWithin+5*time.Second, time.Since(began))
		require.Empty(t, b.owner.ends, "their claims stay: nobody else may run the jobs yet")
		close(w.goOn)
		b.stop()
	})
}

func TestStopWithoutStart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, nil, nil)
		b.submit("noop", 3)
		b.stop()
		b.stop()
		for range 3 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
	})
}

// A worker that is between taking a claim and running it when the stop cancels
// what runs must not start it uncancelled.
func TestStopReachesWhatJustBegins(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register)
		b.workers.interrupted.begin(job.ErrStopping)
		require.NoError(t, b.workers.Start(t.Context()))
		b.submit("wait", 1)
		require.Equal(t, job.Returned, b.owner.next(t).outcome.State)
		b.stop()
	})
}

func TestContextOfARun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		type key struct{}
		var order []string
		seen := make(chan context.Context, 1)
		b := newBundle(t, nil, func(r *job.Registry) {
			for _, name := range []string{"outer", "inner"} {
				r.Use(func(next job.HandlerFunc) job.HandlerFunc {
					return func(ctx context.Context, rec *job.Record) error {
						order = append(order, name)
						return next(context.WithValue(ctx, key{}, name), rec)
					}
				})
			}
			r.Add(job.Spec{Kind: "look", Timeout: time.Minute, Handle: func(ctx context.Context, rec *job.Record) error {
				tenant, ok := tenancy.FromContext(ctx)
				require.True(t, ok)
				require.Equal(t, *acme, tenant)
				got, ok := job.FromContext(ctx)
				require.True(t, ok)
				require.Same(t, rec, got)
				require.Equal(t, "inner", ctx.Value(key{}))
				_, ok = TxFromContext(ctx)
				require.False(t, ok, "no transaction was asked for")
				seen <- ctx
				return nil
			}})
		}).start()
		for _, c := range []struct {
			record, want time.Duration
			kind         string
		}{{0, time.Minute, "look"}, {time.Hour, time.Hour, "look"}} {
			claim := b.claim(c.kind)
			claim.Record.Timeout = c.record
			b.submitClaims([]ClaimedJob{claim})
			ctx := <-seen
			deadline, ok := ctx.Deadline()
			require.True(t, ok)
			require.Equal(t, c.want, time.Until(deadline))
			require.Equal(t, job.Done, b.owner.next(t).outcome.State)
			require.Error(t, ctx.Err(), "over with the run")
		}
		require.Equal(t, []string{"outer", "inner", "outer", "inner"}, order)
	})
}

// The deadline of a context made from a run's counts where it is the earlier one.
func TestDeadlineOfAChildContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, nil, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "child", Timeout: time.Minute, Handle: func(ctx context.Context, _ *job.Record) error {
				child, cancel := context.WithTimeout(ctx, time.Hour)
				defer cancel()
				<-child.Done()
				return context.Cause(child)
			}})
		}).start()
		began := time.Now()
		b.submit("child", 1)
		e := b.owner.next(t)
		require.ErrorIs(t, e.outcome.Err, job.ErrTimeout, "the child hears the cause")
		require.Equal(t, time.Minute, time.Since(began))
	})
}

func TestMaxAttempts(t *testing.T) {
	t.Parallel()
	three, err := job.ParsePolicy("R3/PT1M")
	require.NoError(t, err)
	synctest.Test(t, func(t *testing.T) {
		fail := func(context.Context, *job.Record) error { return errBroken }
		b := newBundle(t, func(c *Config) { c.Retry = "R5/PT2M" }, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "default", Handle: fail})
			r.Add(job.Spec{Kind: "policy", Handle: fail, Retry: &three})
		}).start()
		for _, c := range []struct {
			kind         string
			attempt, max int
			want         job.Outcome
		}{
			{"default", 4, 0, job.Outcome{State: job.Retrying, Delay: 2 * time.Minute}},
			{"default", 5, 0, job.Outcome{State: job.Dead}},
			{"policy", 2, 0, job.Outcome{State: job.Retrying, Delay: time.Minute}},
			{"policy", 3, 0, job.Outcome{State: job.Dead}},
			{"policy", 3, 7, job.Outcome{State: job.Retrying, Delay: time.Minute}},
			{"policy", 7, 7, job.Outcome{State: job.Dead}},
			{"policy", 1, 1, job.Outcome{State: job.Dead}},
			{"default", 9, 2, job.Outcome{State: job.Dead}},
		} {
			claim := b.claim(c.kind)
			claim.Record.Attempt, claim.Record.MaxAttempts = c.attempt, c.max
			b.submitClaims([]ClaimedJob{claim})
			got := b.owner.next(t).outcome
			require.ErrorIs(t, got.Err, errBroken)
			got.Err = nil
			require.Equal(t, c.want, got, "%+v", c)
		}
	})
}

// A handler is told how many attempts its job has, however large the job is.
func TestHandlersAreToldMaxAttempts(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []int
		b := newBundle(t, func(c *Config) { c.Retry = "R5/PT2M" }, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "k", Handle: func(_ context.Context, rec *job.Record) error {
				told = append(told, rec.MaxAttempts)
				return nil
			}})
		}).start()
		for _, size := range []int{1, 2 * ownRecord} {
			claim := b.claim("k")
			claim.Record.Payload = []byte(`"` + strings.Repeat("x", size) + `"`)
			b.submitClaims([]ClaimedJob{claim})
			b.owner.next(t)
		}
		require.Equal(t, []int{5, 5}, told)
	})
}

// Owners take turns, so a backlog of one does not hold up another.
func TestOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, func(c *Config) { c.Workers = 1 }, func(r *job.Registry) {
			r.Add(job.Spec{Kind: "slow", Handle: func(context.Context, *job.Record) error { time.Sleep(time.Second); return nil }})
		}).start()
		b.submit("slow", 100)
		other := newFakeOwner()
		began := time.Now()
		b.workers.capacity.used.Add(1)
		b.workers.Submit(other, []ClaimedJob{{Owner: other, Tenant: acme, Record: job.Record{ID: 1000, Kind: "slow", Attempt: 1}}})
		other.next(t)
		require.LessOrEqual(t, time.Since(began), 3*time.Second)
	})
}

func TestReserveThroughWorkers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register).start()
		require.Equal(t, 2, b.workers.Reserve(b.owner, 10))
		b.workers.Submit(b.owner, nil) // nothing is no batch
		b.workers.Submit(b.owner, []ClaimedJob{b.claim("wait"), b.claim("wait")})
		synctest.Wait()
		require.Zero(t, b.workers.Reserve(b.owner, 1))
		other := newFakeOwner()
		require.Zero(t, b.workers.Reserve(other, 1))
		b.workers.Forget(other)
		close(w.goOn)
		b.owner.next(t)
		b.owner.next(t)
		synctest.Wait()
		require.EqualValues(t, 1, b.owner.available.Load())
		require.Zero(t, other.available.Load())
		require.Equal(t, 2, b.workers.Reserve(b.owner, 2))
		b.workers.Release(2)
	})
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBundle(t, nil, nil).start()
		claims := []ClaimedJob{b.claim("noop"), b.claim("noop"), b.claim("noop")}
		claims[0].Ready, claims[1].Ready = time.Now().Add(-time.Hour), time.Now().Add(time.Hour) // a clock may be wrong
		b.submitClaims(claims)
		for range 3 {
			b.owner.next(t)
		}
		synctest.Wait()
		reg := prometheus.NewPedanticRegistry()
		require.NoError(t, reg.Register(b.workers.Metrics()))
		families, err := reg.Gather()
		require.NoError(t, err)
		got := map[string]float64{}
		for _, f := range families {
			m := f.GetMetric()[0]
			if f.GetName() == "tenure_job_wait_seconds" {
				require.Equal(t, time.Hour.Seconds(), m.GetHistogram().GetSampleSum())
			}
			if h := m.GetHistogram(); h != nil {
				bounds := h.GetBucket()
				require.LessOrEqual(t, bounds[0].GetUpperBound(), 0.001)
				require.GreaterOrEqual(t, bounds[len(bounds)-1].GetUpperBound(), (2 * time.Hour).Seconds())
				for i := range bounds[1:] {
					require.LessOrEqual(t, bounds[i+1].GetUpperBound(), 2*bounds[i].GetUpperBound()+1e-9, "%s: a percentile is wrong by more than half", f.GetName())
				}
			}
			got[f.GetName()] = m.GetCounter().GetValue() + m.GetGauge().GetValue() + float64(m.GetHistogram().GetSampleCount())
		}
		require.Equal(t, map[string]float64{"tenure_jobs_finished_total": 3, "tenure_job_run_seconds": 3, "tenure_jobs_started_total": 3, "tenure_job_wait_seconds": 2,
			"tenure_workers_max": 2, "tenure_workers_replaced": 0, "tenure_workers_used": 0, "tenure_workers_backlog": 0}, got)
	})
}

func TestNewRefusesABadConfig(t *testing.T) {
	t.Parallel()
	for _, break_ := range []func(*Config){
		func(c *Config) { c.Workers = 0 }, func(c *Config) { c.Timeout = 0 }, func(c *Config) { c.Retry = "often" },
		func(c *Config) { c.Retention = -1 }, func(c *Config) { c.FinishWithin = 0 },
	} {
		cfg := DefaultConfig()
		require.NoError(t, cfg.Validate())
		break_(&cfg)
		_, err := New(cfg, job.NewRegistry(), zap.NewNop())
		require.ErrorContains(t, err, "execution.")
	}
}

// BenchmarkWorkers is what the workers cost a job that does nothing.
func BenchmarkWorkers(b *testing.B) { benchmarkWorkers(b, nil) }

func benchmarkWorkers(b *testing.B, tracer trace.Tracer) {
	const batch = 1000
	r := job.NewRegistry()
	r.Add(job.Spec{Kind: "noop", Handle: func(context.Context, *job.Record) error { return nil }})
	r.Freeze()
	w, err := New(DefaultConfig(), r, zap.NewNop())
	require.NoError(b, err)
	w.TraceWith(tracer)
	require.NoError(b, w.Start(b.Context()))
	o := &countingOwner{fakeOwner: newFakeOwner(), done: make(chan struct{}, 1)}
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		claims := make([]ClaimedJob, batch)
		for i := range claims {
			claims[i] = ClaimedJob{Owner: o, Tenant: acme, Record: job.Record{ID: job.ID(i), Kind: "noop", Queue: "default", Attempt: 1}}
		}
		o.left.Store(batch)
		w.capacity.used.Add(batch)
		w.Submit(o, claims)
		<-o.done
		n += batch
	}
	b.ReportMetric(float64(n)/b.Elapsed().Seconds(), "claims/s")
	require.NoError(b, w.Stop(context.Background()))
}

// countingOwner only counts.
type countingOwner struct {
	*fakeOwner
	left atomic.Int64
	done chan struct{}
}

func (o *countingOwner) Finish(*ClaimedJob, job.Outcome) {
	if o.left.Add(-1) == 0 {
		o.done <- struct{}{}
	}
}
