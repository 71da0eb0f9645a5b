package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

// ping has a plain handler.
type ping struct {
	N int `json:"n"`
}

func (ping) Kind() string { return "ping" }

// write has a handler in the tenant's transaction.
type write struct {
	N int `json:"n"`
}

func (write) Kind() string { return "write" }

const schema = `CREATE TABLE effect (n int NOT NULL, tenant text NOT NULL DEFAULT current_setting('app.tenant_id'))`

// bundle is an env whose handlers the test chooses.
type bundle struct {
	*jobtest.Env
	acme *jobtest.Tenant

	ping  func(ctx context.Context, j *job.Job[ping]) error
	write func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error
}

func setup(t *testing.T, opts ...jobtest.Option) *bundle {
	t.Helper()
	b := &bundle{
		ping: func(context.Context, *job.Job[ping]) error { return nil },
		write: func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (n) VALUES ($1)", j.Args.N)
			return err
		},
	}
	b.Env = jobtest.New(t, append(opts, jobtest.Schema(schema), jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(ctx context.Context, j *job.Job[ping]) error { return b.ping(ctx, j) }, job.Retry("R3/PT5M"), job.Queue("pings"))
		tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error { return b.write(ctx, tx, j) }, job.Retry("R2/PT1M"))
	}))...)
	b.acme = b.Tenant(t, "acme")
	return b
}

// returns makes the ping handler return err.
func (b *bundle) returns(err error) {
	b.ping = func(context.Context, *job.Job[ping]) error { return err }
}

// effects are what write has done for the tenant.
func effects(c *jobtest.Tenant) []int32 {
	return jobtest.Value[[]int32](c, "SELECT coalesce(array_agg(n ORDER BY n), '{}') FROM effect WHERE tenant = $1", string(c.ID))
}

// state is where the job of a run stands in the ledger, and the last error there.
func (b *bundle) state(t *testing.T, r jobtest.Result) (state, lastError string) {
	s, _, err := b.Client().Operator().Jobs().Get(t.Context(), r.ID)
	require.NoError(t, err)
	return s.State, s.Error
}

func TestRun_done(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var seen tenancy.Tenant
	b.ping = func(ctx context.Context, j *job.Job[ping]) error {
		seen = tenancy.Must(ctx)
		return nil
	}
	res := b.acme.Run(ping{7}, tenure.Priority(3), tenure.Correlation("c"))
	require.Equal(t, job.Done, res.State)
	require.NoError(t, res.Err)
	require.Equal(t, 1, res.Attempt)
	require.Equal(t, "pings", res.Queue)
	require.EqualValues(t, 3, res.Priority)
	require.Equal(t, "c", res.CorrelationID)
	require.JSONEq(t, `{"n": 7}`, string(res.Payload))
	require.Equal(t, tenancy.Tenant{ID: "acme", Pool: "pool-1", Schema: "acme"}, seen)
	state, _ := b.state(t, res)
	require.Equal(t, "done", state)
	require.Equal(t, `ping {"n": 7} of tenant acme, attempt 1: done`, res.String())
}

// What a run says is in its result, and in the ledger as in production.
func TestRun_report(t *testing.T) {
	t.Parallel()
	b := setup(t)
	say := func(ctx context.Context, n int) error {
		job.SetProgress(ctx, int64(n), 10, "so far")
		job.Log(ctx, "a line")
		return job.SetOutput(ctx, n)
	}
	b.ping = func(ctx context.Context, j *job.Job[ping]) error {
		return errors.Join(say(ctx, j.Args.N), errors.New("boom"))
	}
	b.write = func(ctx context.Context, _ pgx.Tx, j *job.Job[write]) error { return say(ctx, j.Args.N) }
	for n, args := range []job.Args{ping{0}, write{1}} {
		res := b.acme.Run(args)
		require.EqualValues(t, n, res.Report.Done)
		require.EqualValues(t, 10, res.Report.Total)
		require.Equal(t, "so far", res.Report.Note)
		require.Equal(t, "a line", res.Report.Lines[0].Text)
		require.Equal(t, fmt.Sprint(n), string(res.Report.Output))
		s, _, err := b.Client().Operator().Jobs().Get(t.Context(), res.ID)
		require.NoError(t, err)
		require.Len(t, s.Reports, 1)
		require.EqualValues(t, n, s.Reports[0].Done)
		require.Equal(t, res.Report.Output, s.Reports[0].Output)
	}
}

func TestRun_retry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	boom := errors.New("boom")
	b.returns(boom)
	res := b.acme.Run(ping{1})
	require.Equal(t, job.Retrying, res.State)
	require.Equal(t, 5*time.Minute, res.Delay)
	require.ErrorIs(t, res.Err, boom)
	require.Contains(t, res.String(), "attempt 1: retrying in 5m0s: boom")
	state, lastError := b.state(t, res)
	require.Equal(t, "retrying", state)
	require.Equal(t, "boom", lastError)

	require.Empty(t, b.Drain(t), "a delay is not waited for")
	for attempt, want := range []job.State{job.Retrying, job.Dead} {
		b.Advance(t, 5*time.Minute)
		runs := b.Drain(t)
		require.Len(t, runs, 1)
		require.Equal(t, attempt+2, runs[0].Attempt)
		require.Equal(t, want, runs[0].State)
	}
}

func TestRun_retryIn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.returns(job.RetryIn(time.Hour, errors.New("busy")))
	res := b.acme.Run(ping{1})
	require.Equal(t, job.Retrying, res.State)
	require.Equal(t, time.Hour, res.Delay)
}

func TestRun_snooze(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.returns(job.Snooze(time.Hour))
	res := b.acme.Run(ping{1})
	require.Equal(t, job.Snoozed, res.State)
	require.Equal(t, time.Hour, res.Delay)
	b.returns(nil)
	b.Advance(t, time.Hour)
	runs := b.Drain(t)
	require.Len(t, runs, 1)
	require.Equal(t, 1, runs[0].Attempt, "snoozing charges no attempt")
	require.Equal(t, job.Done, runs[0].State)
}

func TestRun_endsWithoutRetry(t *testing.T) {
	t.Parallel()
	b := setup(t)
	boom := errors.New("boom")
	for name, c := range map[string]struct {
		err   error
		want  job.State
		state string
	}{
		"discard": {job.Discard(boom), job.Dead, "dead"},
		"cancel":  {job.Cancel(boom), job.Cancelled, "cancelled"},
	} {
		b.returns(c.err)
		res := b.acme.Run(ping{1})
		require.Equal(t, c.want, res.State, name)
		require.ErrorIs(t, res.Err, boom, name)
		state, _ := b.state(t, res)
		require.Equal(t, c.state, state, name)
	}
	require.Empty(t, b.Drain(t))
}

func TestRun_panic(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write = func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error { panic("oh no") }
	res := b.acme.Run(write{1})
	require.Equal(t, job.Retrying, res.State)
	var p *job.PanicError
	require.ErrorAs(t, res.Err, &p)
	require.Equal(t, "oh no", p.Value)
	require.Contains(t, res.Stack, "TestRun_panic")
}

// A handler in a test may well call require, which ends its goroutine.
func TestRun_goexit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ping = func(context.Context, *job.Job[ping]) error {
		runtime.Goexit()
		return nil
	}
	require.Equal(t, job.Retrying, b.acme.Run(ping{1}).State)
	require.Equal(t, job.Retrying, b.acme.Run(ping{2}).State)
}

func TestRun_undecodable(t *testing.T) {
	t.Parallel()
	b := setup(t)
	res := b.acme.Run(job.RawArgs{Name: "ping", Payload: []byte(`{"n": "seven"}`)})
	require.Equal(t, job.Retrying, res.State, "a newer node may know how")
	require.ErrorContains(t, res.Err, `decode the arguments of kind "ping"`)
}

func TestRun_timeout(t *testing.T) {
	t.Parallel()
	var waited atomic.Bool
	env := jobtest.New(t, jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(ctx context.Context, _ *job.Job[ping]) error {
			<-ctx.Done()
			waited.Store(true)
			return ctx.Err()
		}, job.Timeout(time.Second))
	}))
	res := env.Tenant(t, "acme").Run(ping{1})
	require.True(t, waited.Load())
	require.ErrorIs(t, res.Err, job.ErrTimeout)
}

func TestRun_cancelledMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.ping = func(ctx context.Context, j *job.Job[ping]) error {
		running, err := b.Client().Operator().Jobs().Cancel(ctx, j.ID)
		if err != nil || !running {
			return job.Discard(fmt.Errorf("running %v, error %w", running, err))
		}
		<-ctx.Done()
		return context.Cause(ctx)
	}
	res := b.acme.Run(ping{1})
	require.Equal(t, job.Cancelled, res.State)
	require.ErrorIs(t, res.Err, job.ErrCancelled)
}

// The period of a unique key ends when the clock is advanced by it, and not before.
func TestAdvance_uniquePeriods(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for i, step := range []struct {
		advance   time.Duration
		duplicate bool
	}{{0, false}, {23 * time.Hour, true}, {time.Hour, false}, {time.Hour, true}} {
		b.Advance(t, step.advance)
		added, err := b.Client().Enqueue(b.acme, ping{i}, tenure.UniqueFor("bill", 24*time.Hour))
		require.NoError(t, err)
		require.Equal(t, step.duplicate, added.Duplicate, i)
		b.Drain(t)
	}
}

// What is cancelled before it runs does not run, and what awaits it is told.
func TestDrain_cancelled(t *testing.T) {
	t.Parallel()
	b := setup(t)
	batch, err := b.Client().EnqueueBatch(b.acme, tenure.Batch{Then: ping{0}, Jobs: []tenure.Entry{{Args: ping{1}}, {Args: ping{2}}}})
	require.NoError(t, err)
	_, err = b.Client().Operator().Batches().Cancel(b.acme, batch.ID)
	require.NoError(t, err)
	alone, err := b.Client().Enqueue(b.acme, ping{3})
	require.NoError(t, err)
	_, err = b.Client().Operator().Jobs().Cancel(b.acme, alone.ID)
	require.NoError(t, err)
	require.Empty(t, b.Drain(t))
	all, err := b.Client().Operator().Jobs().List(b.acme, operate.JobFilter{})
	require.NoError(t, err)
	require.Len(t, all, 4)
	for _, j := range all {
		require.Equal(t, "cancelled", j.State, j.ID)
	}
}

func TestRun_inTx(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Tenants("acme", "globex"))
	require.Equal(t, job.Done, b.acme.Run(write{1}).State)
	require.Equal(t, []int32{1}, effects(b.acme))
	require.Empty(t, effects(b.Tenant(t, "globex")))

	insert := b.write
	b.write = func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if err := insert(ctx, tx, j); err != nil {
			return err
		}
		return errors.New("after the effect")
	}
	require.Equal(t, job.Retrying, b.acme.Run(write{2}).State)
	require.Equal(t, []int32{1}, effects(b.acme), "rolled back")

	b.write = insert
	b.Advance(t, time.Minute)
	require.Equal(t, 1, b.Drain(t).Count(job.Done))
	require.Equal(t, []int32{1, 2}, effects(b.acme))
}

func TestRun_leavesOtherJobsAlone(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		_, err := b.Client().Enqueue(b.acme, write{1})
		require.NoError(t, err)
	}
	res := b.acme.Run(write{2})
	require.JSONEq(t, `{"n": 2}`, string(res.Payload))
	require.Equal(t, []int32{2}, effects(b.acme))
	require.Len(t, jobtest.Enqueued[write](b.acme), 3)
}

// All parts of an application enqueue from their handlers.
func TestFollowUps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.write = func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		for i := range 2 {
			if _, err := tenure.ClientFrom(ctx).EnqueueTx(ctx, tx, ping{j.Args.N*10 + i}); err != nil {
				return err
			}
		}
		_, err := tenure.ClientFrom(ctx).EnqueueTx(ctx, tx, ping{99}, tenure.In(14*24*time.Hour), tenure.Timeout(time.Minute), tenure.Exclusive("p"))
		return err
	}
	require.Equal(t, job.Done, b.acme.Run(write{4}).State)

	require.Len(t, jobtest.Enqueued[ping](b.acme), 3)
	now := jobtest.RequireEnqueued(b.acme, func(p ping) bool { return p.N == 41 })
	require.Zero(t, now.In)
	require.Equal(t, "pings", now.Queue)
	require.Equal(t, 1, now.Attempt)
	later := jobtest.RequireEnqueued(b.acme, func(p ping) bool { return p.N == 99 })
	require.InDelta(t, 14*24*time.Hour, later.In, float64(time.Minute))
	require.Equal(t, time.Minute, later.Timeout)
	require.Equal(t, "p", later.ExclusiveKey)

	runs := b.Drain(t)
	require.Equal(t, 2, runs.Count(job.Done), runs)
	require.Len(t, runs, 2)
	require.JSONEq(t, `{"n": 40}`, string(runs[0].Payload))
	require.JSONEq(t, `{"n": 41}`, string(runs[1].Payload))

	b.Advance(t, 13*24*time.Hour)
	require.Empty(t, b.Drain(t))
	b.Advance(t, 24*time.Hour)
	require.Zero(t, jobtest.RequireEnqueued(b.acme, func(ping) bool { return true }).In)
	runs = b.Drain(t)
	require.Len(t, runs, 1)
	require.Equal(t, later.ID, runs[0].ID)
	require.Empty(t, jobtest.Enqueued[ping](b.acme))
}

func TestDrain_runsWhatIsEnqueuedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"))
	b.ping = func(ctx context.Context, j *job.Job[ping]) error {
		if j.Args.N == 0 {
			return nil
		}
		next := map[tenancy.ID]tenancy.ID{"acme": "globex", "globex": "acme"}[tenancy.Must(ctx).ID]
		_, err := b.Client().Enqueue(tenancy.For(ctx, next), ping{j.Args.N - 1})
		return err
	}
	_, err := b.Client().Enqueue(b.acme, ping{5})
	require.NoError(t, err)
	runs := b.Drain(t)
	require.Equal(t, 6, runs.Count(job.Done), runs)
	for i, r := range runs {
		require.Equal(t, []string{"acme", "globex"}[i%2], r.Tenant)
	}
}

func TestDrain_order(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Tenants("globex", "acme"))
	globex := b.Tenant(t, "globex")
	var order []int
	b.ping = func(_ context.Context, j *job.Job[ping]) error {
		order = append(order, j.Args.N)
		return nil
	}
	for n, c := range []*jobtest.Tenant{globex, b.acme, b.acme, globex} {
		_, err := b.Client().Enqueue(c, ping{n})
		require.NoError(t, err)
	}
	_, err := b.Client().Enqueue(globex, ping{4}, tenure.Priority(1))
	require.NoError(t, err)
	b.Drain(t)
	require.Equal(t, []int{4, 0, 1, 2, 3}, order)
}

func TestDrain_leavesAnyDelay(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.returns(job.Snooze(0))
	b.acme.Run(ping{1})
	for range 3 {
		require.Empty(t, b.Drain(t), "it waits as long as any job does")
		b.Advance(t, job.MinDelay)
		require.Equal(t, 1, b.Drain(t).Count(job.Snoozed))
	}
}

func TestDrain_leavesKindsOfOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	raw := job.RawArgs{Name: "elsewhere", Payload: []byte(`{}`)}
	_, err := b.Client().Enqueue(b.acme, raw)
	require.ErrorIs(t, err, tenure.ErrUnknownKind)
	_, err = b.Client().Enqueue(b.acme, raw, tenure.Elsewhere())
	require.NoError(t, err)
	_, err = b.Client().Enqueue(b.acme, ping{1})
	require.NoError(t, err)
	require.Len(t, b.Drain(t), 1)
}

func TestTwoPools(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex", "initech"))
	homes := map[tenancy.ID]string{"acme": "pool-1", "globex": "pool-2", "initech": "pool-1"}
	for id, pool := range homes {
		c := b.Tenant(t, id)
		res := c.Run(write{len(id)})
		require.Equal(t, job.Done, res.State)
		s, _, err := b.Client().Operator().Jobs().Get(c, res.ID)
		require.NoError(t, err)
		require.Equal(t, pool, s.Pool)
		require.Equal(t, []int32{int32(len(id))}, effects(c))
	}
	require.Equal(t, 2, jobtest.Value[int](b.acme, "SELECT count(*) FROM pg_namespace WHERE nspname IN ('acme', 'globex', 'initech')"))
}

func TestMiddlewareRuns(t *testing.T) {
	t.Parallel()
	var before bool
	b := setup(t, jobtest.Register(func(r *job.Registry) {
		r.Use(func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, rec *job.Record) error {
				before = true
				return next(ctx, rec)
			}
		})
	}))
	b.acme.Run(write{1})
	require.True(t, before)
}

func TestRunAndDrainExcludeEachOther(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var running, most, total atomic.Int32
	b.ping = func(context.Context, *job.Job[ping]) error {
		total.Add(1)
		if n := running.Add(1); n > most.Load() {
			most.Store(n)
		}
		runtime.Gosched()
		running.Add(-1)
		return nil
	}
	t.Run("together", func(t *testing.T) {
		for i := range 4 {
			t.Run("one", func(t *testing.T) {
				t.Parallel()
				c := b.Tenant(t, "acme")
				for range 5 {
					if i == 0 {
						b.Drain(t)
					} else {
						c.Run(ping{i})
					}
				}
			})
		}
	})
	require.EqualValues(t, 15, total.Load())
	require.EqualValues(t, 1, most.Load())
}

// The handlers of a test that has failed must not keep it from ending.
func TestEndOfTest_cancelsHandlers(t *testing.T) {
	t.Parallel()
	ended := make(chan error, 1)
	t.Run("leaves a handler behind", func(t *testing.T) {
		b := setup(t)
		started := make(chan struct{})
		b.ping = func(ctx context.Context, _ *job.Job[ping]) error {
			close(started)
			<-ctx.Done()
			ended <- context.Cause(ctx)
			return ctx.Err()
		}
		f := &fakeTB{TB: t, ctx: t.Context()}
		go f.run(func() { b.Tenant(f, "acme").Run(ping{1}) })
		<-started
		t.Cleanup(func() { require.NotEmpty(t, f.wait()) })
	})
	require.ErrorIs(t, <-ended, job.ErrStopping)
}

func TestMisuse(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Tenants("globex", "acme"))
	_, err := b.Client().Enqueue(b.acme, ping{1}, tenure.Unique("key"))
	require.NoError(t, err)
	for name, c := range map[string]struct {
		do   func(t testing.TB)
		want []string
	}{
		"unknown tenant": {func(t testing.TB) { b.Tenant(t, "umbrella") }, []string{`no tenant "umbrella"`, "acme, globex"}},
		"unknown kind":   {func(t testing.TB) { b.Tenant(t, "acme").Run(job.RawArgs{Name: "pong"}) }, []string{"no handler is registered"}},
		"kind of others": {func(t testing.TB) {
			b.Tenant(t, "acme").Run(job.RawArgs{Name: "pong", Payload: []byte("{}")}, tenure.Elsewhere())
		}, []string{"is there a handler"}},
		"delay":           {func(t testing.TB) { b.Tenant(t, "acme").Run(ping{1}, tenure.In(time.Hour)) }, []string{"it is scheduled for later", "Advance and Drain"}},
		"duplicate":       {func(t testing.TB) { b.Tenant(t, "acme").Run(ping{1}, tenure.Unique("key")) }, []string{"same unique key"}},
		"back in time":    {func(t testing.TB) { b.Advance(t, -time.Second) }, []string{"does not go back"}},
		"no pools":        {func(t testing.TB) { jobtest.New(t, jobtest.Pools(0)) }, []string{"at least 1"}},
		"bad SQL":         {func(t testing.TB) { b.Tenant(t, "acme").Exec("SELEKT") }, []string{`tenant "acme"`, "syntax error"}},
		"bad schema":      {func(t testing.TB) { jobtest.New(t, jobtest.Schema("SELEKT")) }, []string{`prepare tenant "acme"`, "syntax error"}},
		"reserved schema": {func(t testing.TB) { jobtest.New(t, jobtest.Tenants("public")) }, []string{"give it a schema of its own"}},
		"not a value":     {func(t testing.TB) { jobtest.Value[int](b.Tenant(t, "acme"), "SELECT 1 WHERE false") }, []string{"no rows"}},
		"wrong type": {func(t testing.TB) {
			c := b.Tenant(t, "globex")
			_, _ = b.Client().Enqueue(c, job.RawArgs{Name: "ping", Payload: []byte(`{"n": "seven"}`)})
			jobtest.Enqueued[ping](c)
		}, []string{`decode the arguments of kind "ping"`}},
	} {
		t.Run(name, func(t *testing.T) {
			f := &fakeTB{TB: t, ctx: t.Context()}
			f.run(func() { c.do(f) })
			message := f.wait()
			for _, want := range c.want {
				require.Contains(t, message, want)
			}
		})
	}
}

func TestRequireEnqueued_saysWhatIsThere(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Tenants("acme", "globex"))
	message := func() string {
		f := &fakeTB{TB: t, ctx: t.Context()}
		f.run(func() { jobtest.RequireEnqueued(b.Tenant(f, "acme"), func(p ping) bool { return p.N == 42 }) })
		return f.wait()
	}
	_, err := b.Client().Enqueue(b.Tenant(t, "globex"), ping{42})
	require.NoError(t, err)
	require.Equal(t, `jobtest: tenant "acme" has no job ping that matches; it has no job that waits`, message())

	_, err = b.Client().Enqueue(b.acme, ping{41})
	require.NoError(t, err)
	_, err = b.Client().Enqueue(b.acme, write{42}, tenure.In(time.Hour+400*time.Millisecond))
	require.NoError(t, err)
	require.Equal(t, strings.Join([]string{
		`jobtest: tenant "acme" has no job ping that matches; it has:`,
		"\t" + `ping {"n": 41}`,
		"\t" + `write {"n": 42} scheduled, due in 1h0m0s`,
	}, "\n"), message())

	for range 30 {
		_, err = b.Client().Enqueue(b.acme, ping{0})
		require.NoError(t, err)
	}
	require.Contains(t, message(), "\tand 12 more")
}

func TestNodes(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"))
	nodes := b.Nodes(t, 2)
	fill := func(from, to int) {
		for n := from; n < to; n++ {
			for _, id := range []tenancy.ID{"acme", "globex"} {
				_, err := b.Client().Enqueue(tenancy.For(t.Context(), id), write{n})
				require.NoError(t, err)
			}
		}
		nodes.Wait()
		for _, id := range []tenancy.ID{"acme", "globex"} {
			require.Len(t, effects(b.Tenant(t, id)), to)
		}
	}
	fill(0, 20)
	nodes.Stop(0)
	fill(20, 40)

	f := &fakeTB{TB: t, ctx: t.Context()}
	f.run(func() { b.Drain(f) })
	require.Contains(t, f.wait(), "nodes run the jobs of this env")
}

// fakeTB stands in for a test that fails, without failing this one.
type fakeTB struct {
	testing.TB
	ctx  context.Context
	done chan string
}

func (f *fakeTB) Helper()                  {}
func (f *fakeTB) Context() context.Context { return f.ctx }
func (f *fakeTB) Fatalf(format string, args ...any) {
	f.done <- fmt.Sprintf(format, args...)
	runtime.Goexit()
}

// run calls fn as a test function is called.
func (f *fakeTB) run(fn func()) {
	f.done = make(chan string, 1)
	go func() {
		defer close(f.done)
		fn()
	}()
}

// wait returns the message of the failure; empty: there was none.
func (f *fakeTB) wait() string { return <-f.done }

// note has a batch handler in the tenant's transaction, count a plain one.
type note struct {
	N int `json:"n"`
}

func (note) Kind() string { return "note" }

type count struct {
	N int `json:"n"`
}

func (count) Kind() string { return "count" }

// Drain calls a batch handler with what waits, and Run with its one job; neither waits for more.
func TestBatchHandlers(t *testing.T) {
	t.Parallel()
	var calls [][]int
	env := jobtest.New(t, jobtest.Schema(schema), jobtest.Register(func(r *job.Registry) {
		tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, b *job.Batch[note]) error {
			var ns []int
			for _, j := range b.Jobs {
				ns = append(ns, j.Args.N)
			}
			calls = append(calls, ns)
			if i := slices.Index(ns, 13); i >= 0 {
				b.End(b.Jobs[i], job.Discard(errors.New("unlucky")))
				ns = slices.Delete(slices.Clone(ns), i, i+1)
			}
			_, err := tx.Exec(ctx, "INSERT INTO effect (n) SELECT unnest($1::int[])", ns)
			return err
		}, job.MaxBatch(3), job.BatchWait(10*time.Second))
		job.HandleBatch(r, func(context.Context, *job.Batch[count]) error { return errors.New("down") }, job.Retry("R2/PT1M"))
	}))
	acme := env.Tenant(t, "acme")
	began := time.Now()
	require.Equal(t, job.Done, acme.Run(note{1}).State)
	for _, args := range []job.Args{note{11}, count{1}, note{12}, count{2}, note{13}, note{14}} {
		_, err := env.Client().Enqueue(acme, args)
		require.NoError(t, err)
	}
	runs := env.Drain(t)
	require.Len(t, runs, 6)
	require.Equal(t, 3, runs.Count(job.Done), runs)
	require.Equal(t, 1, runs.Count(job.Dead), runs)
	require.Equal(t, 2, runs.Count(job.Retrying), runs)
	require.Equal(t, [][]int{{1}, {11, 12, 13}, {14}}, calls)
	require.Equal(t, []int32{1, 11, 12, 14}, effects(acme))
	env.Advance(t, time.Minute)
	runs = env.Drain(t)
	require.Equal(t, 2, runs.Count(job.Dead), runs)
	require.Less(t, time.Since(began), 15*time.Second, "neither waits")
}
