package promises_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// report is a completion job.
type report struct {
	N int `json:"n"`
}

func (report) Kind() string { return "report" }

// reported is what a completion job was told.
type reported struct {
	n    int
	ends job.AwaitedEnds
}

// fails is a job that fails at once, for good, as long as failing is set.
type fails struct{}

func (fails) Kind() string { return "fails" }

// linked is a registry of jobs that await each other; what completion jobs are told comes to told.
func (b *testbed) linked(failing *sync.Map) (r *job.Registry, told chan reported) {
	told = make(chan reported, 10_000)
	r = b.registry(nil)
	job.Handle(r, func(_ context.Context, j *job.Job[report]) error {
		ends, ok := j.Awaited()
		if !ok {
			return job.Discard(fmt.Errorf("nothing is said of what it awaited"))
		}
		told <- reported{j.Args.N, ends}
		return nil
	})
	job.Handle(r, func(context.Context, *job.Job[fails]) error {
		if _, yes := failing.Load("failing"); yes {
			return job.Discard(fmt.Errorf("it fails"))
		}
		return nil
	})
	return r, told
}

func entries(args ...job.Args) (all []tenure.Entry) {
	for _, a := range args {
		all = append(all, tenure.Entry{Args: a})
	}
	return all
}

func (b *testbed) next(told chan reported) reported {
	b.t.Helper()
	select {
	case r := <-told:
		return r
	case <-time.After(patience):
		require.FailNow(b.t, "no completion job has started")
	}
	return reported{}
}

// A batch's completion job runs once, however its jobs end: here the last two at about the same moment,
// in transactions and not, on two nodes.
func TestBatchesAreCompletedOnce(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	r, told := b.linked(&sync.Map{})
	one := b.start(few(b.gossiping("one"), 2), r)
	two := b.start(few(b.gossiping("two", one.Self().Addr), 2), r)
	one.meet(2)
	two.meet(2)
	const rounds = 100
	for i := range rounds {
		_, err := two.Client().EnqueueBatch(tenancy.For(t.Context(), tenancy.ID(fmt.Sprintf("t%d", i%2+1))),
			tenure.Batch{Then: report{i}, Jobs: entries(write{i}, plain{i})})
		require.NoError(t, err)
	}
	got := map[int]int{}
	for range rounds {
		n := b.next(told)
		got[n.n]++
		require.Equal(t, job.AwaitedEnds{Done: 2}, n.ends)
	}
	require.Len(t, got, rounds, "each once")
	b.drained("p1", 3*rounds)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.awaiting WHERE closed_at IS NULL"))
	require.Empty(t, told)
}

// A batch is empty, large, part of the caller's transaction, added to by its own jobs, or nested: it is
// completed once all of it has ended.
func TestBatches(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r, told := b.linked(&sync.Map{})
	var c *tenure.Client
	job.Handle(r, func(ctx context.Context, j *job.Job[adds]) error {
		_, err := c.Enqueue(ctx, write{1}, tenure.InBatch(j.Args.To))
		return err
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[addsTx]) error {
		_, err := c.EnqueueTx(ctx, tx, plain{1}, tenure.InBatch(j.Args.To))
		return err
	})
	n := b.start(b.cfg, r)
	c = n.Client()
	ctx := tenancy.For(t.Context(), "t1")

	_, err := c.EnqueueBatch(ctx, tenure.Batch{Then: report{0}})
	require.NoError(t, err)
	require.Equal(t, reported{0, job.AwaitedEnds{}}, b.next(told))

	large := make([]tenure.Entry, 2000)
	for i := range large {
		large[i] = tenure.Entry{Args: plain{i}}
	}
	large[7].Options = []tenure.Option{tenure.Unique("one"), tenure.In(time.Millisecond)}
	large[8].Options = []tenure.Option{tenure.Tags("tagged")}
	added, err := c.EnqueueBatch(ctx, tenure.Batch{Then: report{2}, Jobs: large})
	require.NoError(t, err)
	require.Equal(t, reported{2, job.AwaitedEnds{Done: 2000}}, b.next(told))
	s, err := n.Operator().Batches().Get(ctx, added.ID)
	require.NoError(t, err)
	require.Equal(t, []int{2000, 2000, 0, 0, 0}, []int{s.Jobs, s.Done, s.Dead, s.Cancelled, s.Unfinished()})
	require.NotZero(t, s.ClosedAt)

	var outer, inner tenure.Enqueued
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if outer, err = c.EnqueueTx(ctx, tx, report{3}, tenure.AsBatch()); err != nil {
			return err
		}
		if inner, err = c.EnqueueTx(ctx, tx, report{4}, tenure.AsBatch(), tenure.InBatch(outer.ID)); err != nil {
			return err
		}
		for range 3 {
			if _, err = c.EnqueueTx(ctx, tx, adds{inner.ID}, tenure.InBatch(inner.ID)); err != nil {
				return err
			}
		}
		_, err = c.EnqueueTx(ctx, tx, addsTx{inner.ID}, tenure.InBatch(inner.ID))
		return err
	}))
	require.Equal(t, reported{4, job.AwaitedEnds{Done: 8}}, b.next(told), "four jobs, each of which has added one")
	require.Equal(t, reported{3, job.AwaitedEnds{Done: 1}}, b.next(told), "the inner batch's completion job")
	_, err = c.Enqueue(ctx, plain{1}, tenure.InBatch(inner.ID))
	require.ErrorIs(t, err, tenure.ErrNotFound)
	require.ErrorContains(t, err, "not the completion job of an open batch")
	require.True(t, tenure.Refused(err))
	_, err = c.Enqueue(ctx, plain{1}, tenure.After(12345))
	require.ErrorIs(t, err, tenure.ErrNotFound)
	require.True(t, tenure.Refused(err))
	b.eventually(0, "p1", allJobs)
	require.Empty(t, told)
}

type adds struct {
	To job.ID `json:"to"`
}

func (adds) Kind() string { return "adds" }

type addsTx struct {
	To job.ID `json:"to"`
}

func (addsTx) Kind() string { return "adds.tx" }

// What becomes of jobs that await others when one of these is dead, retried, deleted or cancelled is as
// their policy says.
func TestFailuresOfAwaitedJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var failing sync.Map
	failing.Store("failing", true)
	r, told := b.linked(&failing)
	n := b.start(b.cfg, r)
	c, op := n.Client(), n.Operator()
	ctx := tenancy.For(t.Context(), "t1")
	batch := func(n int, policy ...tenure.Option) job.ID {
		t.Helper()
		added, err := c.EnqueueBatch(ctx, tenure.Batch{Then: report{n}, Options: policy, Jobs: entries(plain{1}, fails{})})
		require.NoError(t, err)
		return added.ID
	}
	state := func(id job.ID) string {
		j, _, err := op.Jobs().Get(ctx, id)
		require.NoError(t, err)
		return j.State
	}
	becomes := func(id job.ID, want string) {
		t.Helper()
		require.Eventually(t, func() bool { return state(id) == want }, patience, 10*time.Millisecond, "job %d should be %s", id, want)
	}
	run := batch(1, tenure.OnFailure(tenure.RunAnyway))
	require.Equal(t, reported{1, job.AwaitedEnds{Done: 1, Dead: 1}}, b.next(told))
	becomes(run, "done")
	cancelled := batch(2, tenure.OnFailure(tenure.CancelToo))
	becomes(cancelled, "cancelled")
	why, err := op.Jobs().Explain(ctx, cancelled)
	require.NoError(t, err)
	require.Regexp(t, `^it is cancelled: it awaited job \d+, which became a dead letter$`, why.Text)

	waits, gone := batch(3), batch(4)
	for _, id := range []job.ID{waits, gone} {
		require.Eventually(t, func() bool {
			s, err := op.Batches().Get(ctx, id)
			return err == nil && s.Dead == 1 && s.Done == 1
		}, patience, 10*time.Millisecond)
		require.Equal(t, "awaiting", state(id))
	}
	why, err = op.Jobs().Explain(ctx, waits)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForOthers, why.Reason)
	shown, err := op.Batches().Get(ctx, waits)
	require.NoError(t, err)
	require.Len(t, shown.Open, 1)
	require.Contains(t, why.Text, fmt.Sprintf("awaits job %d; job %[1]d is dead", shown.Open[0]))
	require.Contains(t, why.Advice, fmt.Sprintf("tenure jobs retry %d", shown.Open[0]))
	dead := func(of job.ID) (id job.ID) {
		require.NoError(t, b.db["p1"].QueryRow(ctx, "SELECT job_id FROM tenure.awaited WHERE awaiting_id = $1 AND outcome IS NULL", int64(of)).Scan(&id))
		return id
	}
	chained, err := c.Enqueue(ctx, report{5}, tenure.After(waits, dead(waits)))
	require.NoError(t, err)
	byHand, err := c.Enqueue(ctx, report{6}, tenure.After(waits, dead(waits)), tenure.OnFailure(tenure.RunAnyway))
	require.NoError(t, err)
	_, err = op.Jobs().Cancel(ctx, byHand.ID)
	require.NoError(t, err)
	becomes(byHand.ID, "cancelled")
	why, err = op.Jobs().Explain(ctx, byHand.ID)
	require.NoError(t, err)
	require.Equal(t, "it is cancelled", why.Text)
	failing.Delete("failing")
	require.NoError(t, op.Jobs().Retry(ctx, dead(waits)))
	require.Equal(t, reported{3, job.AwaitedEnds{Done: 2}}, b.next(told))
	require.Equal(t, reported{5, job.AwaitedEnds{Done: 2}}, b.next(told))
	becomes(chained.ID, "done")
	_, err = op.Jobs().Cancel(ctx, dead(gone))
	require.NoError(t, err)
	becomes(gone, "cancelled")

	_, err = c.Enqueue(ctx, report{6}, tenure.After(gone))
	require.NoError(t, err)
	after, err := c.Enqueue(ctx, report{7}, tenure.After(waits, gone), tenure.OnFailure(tenure.RunAnyway))
	require.NoError(t, err)
	require.Equal(t, reported{7, job.AwaitedEnds{Done: 1, Cancelled: 1}}, b.next(told))
	becomes(after.ID, "done")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.timer_job")
	require.Empty(t, told, "what was to start after a cancelled job was cancelled")
}

// blocks is a job that runs until it is let go, or cancelled.
type blocks struct{}

func (blocks) Kind() string { return "blocks" }

func blocking(r *job.Registry) (began chan struct{}, let chan struct{}) {
	began, let = make(chan struct{}, 100), make(chan struct{})
	job.Handle(r, func(ctx context.Context, _ *job.Job[blocks]) error {
		began <- struct{}{}
		select {
		case <-let:
			return nil
		case <-ctx.Done():
			return ctx.Err()
		}
	})
	return began, let
}

// An end that was noted and not taken in when the lock changes hands is taken in by the next holder; here
// where finished jobs are not kept.
func TestBatchesOutliveTheirHolder(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Execution.Retention = 0
	r, told := b.linked(&sync.Map{})
	began, let := blocking(r)
	n := b.start(b.named("first"), r)
	ctx := tenancy.For(t.Context(), "t1")
	batch, err := n.Client().EnqueueBatch(ctx, tenure.Batch{Then: report{1}, Jobs: entries(write{1}, blocks{}, plain{1})})
	require.NoError(t, err)
	<-began
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.awaited WHERE outcome = 'done'")
	require.NoError(t, n.Operator().Pools().Freeze(t.Context(), "p1")) // no end is taken in by a term
	close(let)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.awaited_end")
	n.stop()
	next := b.start(b.named("next"), r)
	after, err := next.Client().Enqueue(ctx, report{2}, tenure.After(batch.ID), tenure.OnFailure(tenure.RunAnyway))
	require.NoError(t, err)
	require.NoError(t, next.Operator().Pools().Thaw(t.Context(), "p1"))
	require.Equal(t, reported{1, job.AwaitedEnds{Done: 3}}, b.next(told))
	require.Equal(t, reported{2, job.AwaitedEnds{Done: 1}}, b.next(told))
	b.eventually(0, "p1", allJobs)
	require.Empty(t, told)
	_, err = next.Client().Enqueue(ctx, report{3}, tenure.After(after.ID))
	require.ErrorIs(t, err, tenure.ErrNotFound, "it has ended, and is not kept")
	require.ErrorContains(t, err, "enqueue both in one transaction")
}

// To cancel a batch cancels its completion job and what has not ended of it, running or not.
func TestCancelABatch(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r, told := b.linked(&sync.Map{})
	began, _ := blocking(r)
	n := b.start(few(b.cfg, 1), r)
	ctx := tenancy.For(t.Context(), "t1")
	jobs := entries(blocks{})
	for range 600 { // more than one step
		jobs = append(jobs, tenure.Entry{Args: plain{1}, Options: []tenure.Option{tenure.In(time.Hour)}})
	}
	batch, err := n.Client().EnqueueBatch(ctx, tenure.Batch{Then: report{1}, Jobs: jobs, Options: []tenure.Option{tenure.OnFailure(tenure.RunAnyway)}})
	require.NoError(t, err)
	<-began
	all, err := n.Operator().Batches().List(ctx, operate.BatchFilter{Tenant: "t1", Pool: "p1"})
	require.NoError(t, err)
	require.Len(t, all, 1)
	require.Equal(t, 601, all[0].Unfinished())
	cancelled, err := n.Operator().Batches().Cancel(ctx, batch.ID)
	require.NoError(t, err)
	require.Equal(t, 601, cancelled)
	b.eventually(602, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled'")
	require.Empty(t, told)
	_, err = n.Client().Enqueue(ctx, plain{1}, tenure.InBatch(batch.ID))
	require.ErrorIs(t, err, tenure.ErrNotFound)
	_, err = n.Operator().Batches().Cancel(ctx, 99)
	require.ErrorIs(t, err, tenure.ErrNotFound)
}

// To cancel a batch cancels also what a transaction adds to it just then, and the batches in it with their jobs.
func TestCancelABatchThatGrows(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	later := []tenure.Option{tenure.In(time.Hour)}
	elsewhere := append([]tenure.Option{tenure.Elsewhere()}, later...)
	var outer, inner tenure.Enqueued
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) (err error) {
		if outer, err = c.EnqueueTx(ctx, tx, report{1}, tenure.AsBatch(), tenure.Elsewhere()); err != nil {
			return err
		}
		if inner, err = c.EnqueueTx(ctx, tx, report{2}, tenure.AsBatch(), tenure.InBatch(outer.ID), tenure.Elsewhere()); err != nil {
			return err
		}
		for _, batch := range []job.ID{outer.ID, inner.ID, inner.ID} {
			if _, err = c.EnqueueTx(ctx, tx, plain{1}, append(elsewhere, tenure.InBatch(batch))...); err != nil {
				return err
			}
		}
		return nil
	}))
	type answer struct {
		jobs int
		err  error
	}
	cancelled := make(chan answer, 1)
	require.NoError(t, c.InTx(ctx, func(within context.Context, tx pgx.Tx) error {
		if _, err := c.EnqueueTx(within, tx, plain{1}, append(elsewhere, tenure.InBatch(inner.ID))...); err != nil {
			return err
		}
		go func() {
			n, err := c.Operator().Batches().Cancel(ctx, outer.ID)
			cancelled <- answer{n, err}
		}()
		require.Eventually(t, func() bool {
			return len(cancelled) > 0 || b.count("p1", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'") > 0
		}, patience, time.Millisecond)
		return nil
	}))
	require.Equal(t, answer{jobs: 5}, <-cancelled, "four jobs, and the inner batch's completion job")
	require.Zero(t, b.count("p1", allJobs))
}

// A batch and what is to start after it move with their tenant, whatever has ended before and after.
func TestMoveBringsBatches(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	tenant := b.tenantIn("p1")
	b.prepare(string(tenant), "p2")
	r, told := b.linked(&sync.Map{})
	n := b.start(b.cfg, r)
	c, op := n.Client(), n.Operator()
	ctx := tenancy.For(t.Context(), tenant)
	jobs := entries(plain{1}, plain{2})
	for range 3 {
		jobs = append(jobs, tenure.Entry{Args: write{1}, Options: []tenure.Option{tenure.In(time.Hour)}})
	}
	batch, err := c.EnqueueBatch(ctx, tenure.Batch{Then: report{1}, Jobs: jobs, Options: []tenure.Option{tenure.OnFailure(tenure.RunAnyway)}})
	require.NoError(t, err)
	_, err = c.Enqueue(ctx, report{2}, tenure.After(batch.ID))
	require.NoError(t, err)
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.awaited WHERE outcome = 'done'")
	writes := func(pool string) []job.ID {
		t.Helper()
		rows, err := b.db[pool].Query(ctx, "SELECT id FROM tenure.timer_job WHERE kind = 'write'")
		require.NoError(t, err)
		ids, err := pgx.CollectRows(rows, pgx.RowTo[job.ID])
		require.NoError(t, err)
		return ids
	}
	require.NoError(t, op.Pools().Freeze(ctx, "p1")) // ends stay noted
	_, err = op.Jobs().Cancel(ctx, writes("p1")[0])
	require.NoError(t, err)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.awaited_end WHERE outcome = 'cancelled'"))
	require.NoError(t, op.Pools().Freeze(ctx, "p2")) // or what was not noted would be found
	b.move(c, tenant, "p2")
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.awaited_end WHERE outcome = 'cancelled'"))
	require.NoError(t, op.Pools().Thaw(ctx, "p2"))
	for _, table := range []string{"awaiting", "awaited", "awaited_end"} {
		require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure."+table), table)
	}
	s, err := op.Batches().Get(ctx, batch.ID)
	require.NoError(t, err)
	require.Equal(t, []any{"p2", 5, 2}, []any{s.Pool, s.Jobs, s.Done})
	_, err = c.Enqueue(ctx, plain{3}, tenure.InBatch(batch.ID))
	require.NoError(t, err)
	for _, id := range writes("p2") {
		require.NoError(t, op.Jobs().Retry(ctx, id))
	}
	require.Equal(t, reported{1, job.AwaitedEnds{Done: 5, Cancelled: 1}}, b.next(told))
	require.Equal(t, reported{2, job.AwaitedEnds{Done: 1}}, b.next(told))
	require.Empty(t, told)
}

// Where a program of before has moved a tenant, what its jobs await has stayed behind: they go on waiting,
// and once that is brought along they start.
func TestMoveByAProgramThatKnowsNoBatches(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	tenant := b.tenantIn("p1")
	b.prepare(string(tenant), "p2")
	r, told := b.linked(&sync.Map{})
	n := b.start(b.cfg, r)
	c, op := n.Client(), n.Operator()
	ctx := tenancy.For(t.Context(), tenant)
	batch, err := c.EnqueueBatch(ctx, tenure.Batch{Then: report{1}, Jobs: []tenure.Entry{{Args: plain{1}, Options: []tenure.Option{tenure.In(time.Hour)}}}})
	require.NoError(t, err)
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.awaited_end")
	for _, table := range []string{"awaiting", "awaited"} {
		b.exec("p1", fmt.Sprintf("CREATE TABLE public.%[1]s AS SELECT * FROM tenure.%[1]s; DELETE FROM tenure.%[1]s", table))
	}
	b.move(c, tenant, "p2")
	for _, table := range []string{"awaiting", "awaited"} {
		b.exec("p1", fmt.Sprintf("INSERT INTO tenure.%[1]s SELECT * FROM public.%[1]s", table))
	}
	var one job.ID
	require.NoError(t, b.db["p2"].QueryRow(ctx, "SELECT id FROM tenure.timer_job WHERE kind = 'plain'").Scan(&one))
	require.NoError(t, op.Jobs().Retry(ctx, one))
	b.eventually(1, "p2", "SELECT count(*) FROM tenure.completed_job")
	j, _, err := op.Jobs().Get(ctx, batch.ID)
	require.NoError(t, err)
	require.Equal(t, "awaiting", j.State)
	b.move(c, tenant, "p2")
	require.Zero(t, b.count("p1", "SELECT (SELECT count(*) FROM tenure.awaiting) + (SELECT count(*) FROM tenure.awaited)"))
	n.stop()
	b.start(b.named("next"), r) // whose first look comes soon
	require.Equal(t, reported{1, job.AwaitedEnds{Done: 1}}, b.next(told))
}
