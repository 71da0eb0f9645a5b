package promises_test

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// unfinished counts a tenant's jobs in a pool's tables, finished ones not included.
const unfinished = `SELECT (SELECT count(*) FROM tenure.job WHERE tenant_id = $1) + (SELECT count(*) FROM tenure.timer_job WHERE tenant_id = $1)
	+ (SELECT count(*) FROM tenure.external_job WHERE tenant_id = $1)
	+ (SELECT count(*) FROM tenure.suspended_job WHERE tenant_id = $1) + (SELECT count(*) FROM tenure.dead_letter_job WHERE tenant_id = $1)`

// Tenants are moved while jobs of theirs and of others are enqueued in every way and
// run on two nodes: each job has its effect once, in one of the two databases.
func TestMoveWhileJobsRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2) // t1, t2 in p1; t3, t4 in p2
	b.prepare("t1", "p2")
	a := b.start(few(b.gossiping("a"), 8), b.registry(nil))
	second := b.start(few(b.gossiping("b", a.Self().Addr), 8), b.registry(nil))
	a.meet(2)
	moving, still := b.traffic(second.Client(), "t1"), b.traffic(a.Client(), "t2")
	there := b.traffic(a.Client(), "t3")
	enough := func(more int64) {
		t.Helper()
		for _, f := range []*traffic{moving, still, there} {
			from := f.jobs.Load()
			require.Eventually(t, func() bool { return f.jobs.Load() >= from+more }, patience, time.Millisecond)
		}
	}
	enough(int64(sized(200, 50)))
	operator := b.client(b.named("operator"))
	moved := b.move(operator, "t1", "p2")
	require.Equal(t, "p2", moved.To)
	require.Equal(t, "moved", stateOf(t, operator, "t1", "p1"))
	enough(int64(sized(200, 50)))
	b.move(operator, "t1", "p1") // and back
	enough(int64(sized(100, 25)))
	b.move(operator, "t1", "p2")
	enough(int64(sized(100, 25)))
	for _, f := range []*traffic{moving, still, there} {
		f.stop()
	}
	b.requireOnce("t1", int(moving.jobs.Load()), "p1", "p2")
	b.requireOnce("t2", int(still.jobs.Load()), "p1")
	b.requireOnce("t3", int(there.jobs.Load()), "p2")
	for _, p := range []string{"p1", "p2"} {
		require.Zero(t, b.count(p, "SELECT count(*) FROM tenure.unique_job"))
		require.Empty(t, b.errorsOf(p), "no run failed")
	}
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't1'"))
	require.Equal(t, int(moving.jobs.Load()), b.count("p2", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't1'"))
}

// startMoving is a move that runs beside the test, which hears of its steps.
type moving struct {
	b     *testbed
	steps chan string
	done  chan error
}

func startMoving(b *testbed, c *tenure.Client, tenant tenancy.ID, to string) *moving {
	m := &moving{b: b, steps: make(chan string, 100), done: make(chan error, 1)}
	go func() {
		_, err := c.Operator().Tenants().Move(b.t.Context(), tenant, to, operate.MoveOptions{Wait: patience, Progress: func(s string) { m.steps <- s }})
		m.done <- err
	}()
	return m
}

// reaches waits for a step.
func (m *moving) reaches(step string) {
	m.b.t.Helper()
	for {
		select {
		case s := <-m.steps:
			if strings.Contains(s, step) {
				return
			}
		case err := <-m.done:
			require.FailNow(m.b.t, "the move has ended", "before %q: %v", step, err)
		case <-time.After(patience):
			require.FailNow(m.b.t, "the move does not get there", step)
		}
	}
}

func (m *moving) ends() {
	m.b.t.Helper()
	select {
	case err := <-m.done:
		require.NoError(m.b.t, err)
	case <-time.After(patience):
		require.FailNow(m.b.t, "the move does not end")
	}
}

// Transactions that began before the old pool was closed commit jobs there afterwards:
// one that had enqueued before, and one that only had its snapshot. The tenant's jobs run
// in the new pool meanwhile, and the late ones follow.
func TestMoveLateCommit(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	node := b.start(b.named("n"), b.registry(nil))
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	begin := func(options pgx.TxOptions) pgx.Tx {
		conn, err := pgx.Connect(t.Context(), b.cfg.Pools["p1"].DSN)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		tx, err := conn.BeginTx(t.Context(), options)
		require.NoError(t, err)
		return tx
	}
	later, err := c.Enqueue(ctx, write{5}, tenure.In(time.Hour))
	require.NoError(t, err)
	early := begin(pgx.TxOptions{})
	_, err = c.EnqueueTx(ctx, early, write{1}, tenure.Unique("u"))
	require.NoError(t, err)
	old := begin(pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	_, err = old.Exec(t.Context(), "SELECT count(*) FROM tenure.tenant") // it has a snapshot, and no id
	require.NoError(t, err)
	unaware := b.client(b.cfg) // it has looked where tenants are
	given := begin(pgx.TxOptions{})
	_, err = unaware.EnqueueTx(ctx, given, write{1})
	require.NoError(t, err)
	require.NoError(t, given.Rollback(t.Context()))

	m := startMoving(b, b.client(b.named("operator")), "t1", "p2")
	m.reaches("waiting for 2 transactions")
	_, err = node.Client().Enqueue(ctx, write{2})
	require.NoError(t, err)
	b.eventually(1, "p2", "SELECT count(*) FROM t1.effect")

	_, err = unaware.EnqueueTx(ctx, begin(pgx.TxOptions{}), write{3})
	require.ErrorIs(t, err, tenure.ErrWrongPool)
	require.ErrorContains(t, err, `tenant "t1" has moved to pool p2`)
	require.True(t, tenure.Refused(err))
	_, err = unaware.EnqueueTx(ctx, begin(pgx.TxOptions{}), write{3})
	require.ErrorContains(t, err, "lives in pool p2, but the transaction is on database")

	fresh := b.client(b.cfg)
	_, err = fresh.EnqueueTx(ctx, old, write{4})
	require.ErrorIs(t, err, tenure.ErrWrongPool, "who knows of the move refuses")
	_, err = old.Exec(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'write', '{"n": 4}')`)
	require.NoError(t, err)
	_, err = early.Exec(t.Context(), "INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", int64(later.ID)) // as tenure.cancel does
	require.NoError(t, err)
	require.NoError(t, early.Commit(t.Context()))
	require.NoError(t, old.Commit(t.Context()))
	require.Equal(t, 2, b.count("p1", unfinished, "t1"))
	m.reaches("moving jobs that were committed late")
	m.ends()
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.cancel_request WHERE job_id = $1", int64(later.ID)))
	b.exec("p2", "DELETE FROM tenure.timer_job WHERE id = $1", int64(later.ID))
	b.requireOnce("t1", 3, "p1", "p2")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM t1.effect"))
	require.Zero(t, b.count("p2", "SELECT count(*) FROM tenure.unique_job"))
}

// blockingHandlers handles write by waiting until it may go on.
func blockingHandlers(b *testbed, started chan<- job.ID, goOn <-chan struct{}) *job.Registry {
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		started <- j.ID
		select {
		case <-goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	return r
}

// A move waits for what runs, starts nothing meanwhile, can be given up, and says so
// when it has waited for long enough.
func TestMoveWaitsForRunningJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	started, goOn := make(chan job.ID, 10), make(chan struct{})
	node := b.start(few(b.named("n"), 2), blockingHandlers(b, started, goOn))
	ctx := tenancy.For(t.Context(), "t1")
	_, err := node.Client().Enqueue(ctx, write{1})
	require.NoError(t, err)
	<-started
	operator := b.client(b.named("operator"))
	_, err = operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Wait: time.Millisecond})
	require.ErrorContains(t, err, `move tenant "t1" to pool p2: 1 job still runs in pool p1, one on node n`)
	require.Equal(t, "moving", stateOf(t, operator, "t1", "p1"))

	_, err = operator.Operator().Tenants().Move(t.Context(), "t1", "p9", operate.MoveOptions{})
	require.ErrorIs(t, err, tenure.ErrUnknownPool)
	require.ErrorContains(t, operator.Operator().Tenants().Freeze(t.Context(), "t1"), "is being moved between pools p1 and p2")

	_, err = node.Client().Enqueue(ctx, write{2}) // is taken in
	require.NoError(t, err)
	_, err = node.Client().Enqueue(ctx, write{3}, tenure.In(time.Millisecond))
	require.NoError(t, err)
	_, err = node.Client().Enqueue(tenancy.For(t.Context(), "t2"), write{4}) // goes on
	require.NoError(t, err)
	<-started
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job j JOIN tenure.claim c ON j.id = ANY (c.job_ids) WHERE j.tenant_id = 't1'"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job"))

	gaveUp := b.move(operator, "t1", "p1")
	require.Empty(t, gaveUp.From)
	require.Equal(t, "active", stateOf(t, operator, "t1", "p1"))

	m := startMoving(b, operator, "t1", "p2")
	m.reaches("waiting for 1 running job in pool p1")
	close(goOn)
	m.ends()
	b.requireOnce("t1", 3, "p1", "p2")
	require.NotZero(t, b.count("p1", "SELECT count(*) FROM t1.effect"))
}

// Who has begun a move can be seen while it is under way, and after it was interrupted; so can who went on
// with it, gave it up, or brought it to its end.
func TestMoveIsNoted(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	started, goOn := make(chan job.ID, 10), make(chan struct{})
	node := b.start(few(b.named("n"), 2), blockingHandlers(b, started, goOn))
	_, err := node.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	<-started
	operator := b.client(b.named("operator")).Operator()
	move := func(who, to string, o operate.MoveOptions) error {
		_, err := operator.Tenants().Move(operate.ByWhom(t.Context(), who), "t1", to, o)
		return err
	}
	var all []string
	noted := func(more ...string) {
		t.Helper()
		all = append(all, more...)
		found, err := operator.Audit(t.Context(), operate.AuditFilter{Tenant: "t1"})
		require.NoError(t, err)
		var got []string
		for _, e := range slices.Backward(found) {
			got = append(got, fmt.Sprintf("%s %s %v %s in %s, hold %v", e.Who, e.Action, e.Detail["stage"], e.Subject, e.Pool, e.Detail["hold"]))
		}
		require.Equal(t, all, got)
	}
	require.Error(t, move("ann", "p2", operate.MoveOptions{Wait: time.Millisecond}))
	noted("ann tenant.move begun p2 in p1, hold false")
	require.NoError(t, move("bob", "p1", operate.MoveOptions{}))
	noted("bob tenant.move given_up p1 in p1, hold false")
	require.Error(t, move("ann", "p2", operate.MoveOptions{Wait: time.Millisecond, Hold: true}))
	noted("ann tenant.move begun p2 in p1, hold true", "ann tenant.move given_up p2 in p1, hold true")
	require.Error(t, move("ann", "p1", operate.MoveOptions{}), "it lives there")
	close(goOn)
	b.eventually(1, "p1", "SELECT count(*) FROM t1.effect")
	require.NoError(t, move("ann", "p2", operate.MoveOptions{Hold: true}))
	noted("ann tenant.move begun p2 in p1, hold true", "ann tenant.move held p2 in p2, hold true")

	ctx, interrupt := context.WithCancel(t.Context())
	_, err = operator.Tenants().Move(operate.ByWhom(ctx, "bob"), "t1", "p2", operate.MoveOptions{Progress: func(step string) {
		if strings.HasPrefix(step, "moving its jobs") {
			interrupt()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	noted("bob tenant.move begun p2 in p1, hold false")
	require.NoError(t, move("eve", "p2", operate.MoveOptions{}))
	noted("eve tenant.move resumed p2 in p1, hold false", "eve tenant.move ended p2 in p2, hold false")
}

// What cannot be meant is refused before anything is changed.
func TestMoveRefused(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 3, 1)
	b.prepare("t1", "p2")
	b.cfg.Tenants.Static["t4"] = b.cfg.Tenants.Static["t1"]
	cfg, proxy := b.behind(b.cfg, "p3")
	proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	c := b.client(cfg)
	refused := func(tenant tenancy.ID, to, why string) {
		t.Helper()
		moved, err := c.Operator().Tenants().Move(t.Context(), tenant, to, operate.MoveOptions{})
		require.ErrorContains(t, err, why)
		require.Equal(t, to != "p3", tenure.Refused(err), "%v", err)
		require.Empty(t, moved.From)
		require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.tenant"))
	}
	refused("t9", "p2", `unknown tenant "t9"`)
	refused("t1 ", "p2", "white space")
	refused("t1", "p9", "it is not configured")
	refused("t1", "p1", "it lives there already, and no other pool has jobs of it")
	refused("t1", "p3", "pool is down")
	refused("t4", "p2", `it has no schema "t4" there: run this with --hold, copy the schema`)

	// One move at a time.
	ctx, cancel := context.WithCancel(t.Context())
	_, err := c.Operator().Tenants().Move(ctx, "t1", "p2", operate.MoveOptions{Progress: func(s string) {
		if strings.Contains(s, "moving its jobs") {
			cancel()
		}
	}})
	require.ErrorIs(t, err, context.Canceled)
	cancel()
	proxy.SetRule(nil)
	b.prepare("t1", "p3")
	other := b.client(b.cfg)
	_, err = other.Operator().Tenants().Move(t.Context(), "t1", "p3", operate.MoveOptions{})
	require.ErrorContains(t, err, "it is being moved to pool p2: let that come to its end first, with: tenure tenants move t1 --to p2")
	_, err = other.Operator().Tenants().Move(t.Context(), "t1", "p1", operate.MoveOptions{})
	require.ErrorContains(t, err, "it is being moved to pool p2")
	b.move(other, "t1", "p2")
	b.move(other, "t1", "p2") // again: nothing is left to be done
	b.move(other, "t1", "p3")
	require.Equal(t, "moved", stateOf(t, other, "t1", "p1")) // and leads to p2, which leads to p3
	_, err = other.Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	require.Equal(t, 1, b.count("p3", unfinished, "t1"))
}

// A move does not come to its end while it is not known what is left in the old pool.
func TestMoveNeedsTheOldPool(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	cfg, p1 := b.behind(b.cfg, "p1")
	c := b.client(cfg)
	_, err := c.Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	p1.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "gone AS (") && strings.Contains(e.SQL, "out_job") {
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	_, err = c.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{})
	require.Error(t, err)
	p1.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
	p1.Cut(func(string) bool { return true })
	for _, one := range []*tenure.Client{c, b.client(cfg)} { // one that knows where the tenant was, and one that does not
		_, err = one.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{})
		require.ErrorContains(t, err, "a move is under way, and some pools do not answer: pool p1: ")
	}
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.tenant WHERE state = 'arriving'"))
	p1.SetRule(nil)
	b.move(b.client(b.cfg), "t1", "p2")
	require.Zero(t, b.count("p1", unfinished, "t1"))
	require.Equal(t, 1, b.count("p2", unfinished, "t1"))
}

// A job of a tenant between two pools may stand in both: nobody changes it in one.
func TestMoveKeepsOperatorsOut(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	waiting, err := c.Enqueue(ctx, write{1})
	require.NoError(t, err)
	later, err := c.Enqueue(ctx, write{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	cutting, p1 := b.behind(b.cfg, "p1")
	p1.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "gone AS (") && strings.Contains(e.SQL, "out_job") {
			return faultproxy.CutBefore // the batch is in the new pool, and still in the old one
		}
		return faultproxy.Pass
	})
	cut := b.client(cutting)
	_, err = cut.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{})
	require.Error(t, err)
	p1.SetRule(nil)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job"))
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.job"))
	for _, id := range []job.ID{waiting.ID, later.ID} {
		_, err = c.Operator().Jobs().Cancel(t.Context(), id)
		require.ErrorContains(t, err, "is being moved between this pool and")
	}
	require.ErrorContains(t, c.Operator().Jobs().Retry(t.Context(), later.ID), "is being moved between this pool and")
	b.move(c, "t1", "p2")
	require.NoError(t, c.Operator().Jobs().Retry(t.Context(), later.ID))
	_, err = c.Operator().Jobs().Cancel(t.Context(), waiting.ID)
	require.NoError(t, err)
	b.start(b.named("n"), b.registry(nil))
	b.requireOnce("t1", 1, "p1", "p2")
}

// The configuration was changed while a tenant had jobs in its old pool: they do not run
// until they are moved to where it lives. What it has there goes on being enqueued.
func TestMoveWhatWasLeftBehind(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	before := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	_, err := before.Enqueue(ctx, write{1})
	require.NoError(t, err)
	b.cfg.Tenants.Static = maps.Clone(b.cfg.Tenants.Static)
	b.cfg.Tenants.Static["t1"] = b.cfg.Tenants.Static["t2"] // p2
	node := b.start(b.named("n"), b.registry(nil))
	_, err = node.Client().Enqueue(ctx, write{2})
	require.NoError(t, err)
	b.eventually(1, "p2", "SELECT count(*) FROM t1.effect")
	require.Equal(t, "stray", stateOf(t, node.Client(), "t1", "p1"))
	require.Equal(t, 1, b.count("p1", unfinished, "t1"))
	moved := b.move(b.client(b.cfg), "t1", "p2")
	require.Equal(t, []string{"p1"}, moved.From)
	require.Equal(t, map[string]int{"waiting": 1}, moved.Jobs)
	_, err = before.Enqueue(ctx, write{3}) // by one that has not heard of it
	require.NoError(t, err)
	b.requireOnce("t1", 3, "p1", "p2")
	require.Equal(t, 0, b.count("p1", "SELECT count(*) FROM t1.effect"))
}

// What an operator has set for a tenant goes with it, as it is where the tenant lives: not
// what a pool has kept that it once left, and not what stands where only stray jobs are.
func TestMoveBringsLimits(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	operator := b.client(b.named("operator"))
	limits := func(pool string) string {
		t.Helper()
		var limits string
		require.NoError(t, b.db[pool].QueryRow(t.Context(), "SELECT concat(max_running, ' ', weight, ' ', max_waiting, (SELECT string_agg(concat(' ', scope, ' ', name, ' ', rate), ',' ORDER BY name) FROM tenure.job_limit), "+
			"(SELECT concat(' full in ', sum(round(extract(epoch FROM full_at - clock_timestamp()) / 100))) FROM tenure.rate_bucket)) FROM tenure.tenant WHERE tenant_id = 't1'").Scan(&limits))
		return limits
	}
	b.exec("p1", "INSERT INTO tenure.tenant (tenant_id, max_running, weight, max_waiting) VALUES ('t1', 4, 3, 70)")
	b.exec("p2", "INSERT INTO tenure.tenant (tenant_id, max_running, weight) VALUES ('t1', 9, 9)")
	b.exec("p1", "INSERT INTO tenure.job_limit VALUES ('t1', 'kind', 'k', NULL, 7, 1000, 1), ('t1', 'queue', 'q', NULL, 8, 1000, 1), ('t1', 'key', '', NULL, 9, 1000, 1)")
	b.exec("p1", "INSERT INTO tenure.rate_bucket VALUES ('t1', 'kind', 'k', clock_timestamp() + interval '5000 s')")
	b.exec("p2", "INSERT INTO tenure.job_limit VALUES ('t1', 'kind', 'k', NULL, 6, 1000, 1), ('t1', 'kind', 'other', NULL, 5, 1000, 1)")
	const moved = "4 3 70 key  9, kind k 7, queue q 8 full in 50"
	_, err := operator.Operator().Tenants().Move(t.Context(), "t1", "p2", operate.MoveOptions{Progress: func(step string) {
		if strings.HasPrefix(step, "letting its jobs run") {
			require.Equal(t, moved, limits("p2"), "before its jobs run")
		}
	}})
	require.NoError(t, err)
	require.Equal(t, moved, limits("p2"))
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_limit"), "they are not left behind")
	b.move(operator, "t1", "p2") // again
	require.Equal(t, moved, limits("p2"))

	b.exec("p2", "DELETE FROM tenure.job_limit; UPDATE tenure.tenant SET max_running = NULL, weight = 2")
	b.move(operator, "t1", "p1")
	require.Equal(t, " 2 70 full in 50", limits("p1"))

	b.exec("p2", "UPDATE tenure.tenant SET state = 'active', other_pool = NULL, max_running = 9") // as if it had never lived there
	b.exec("p2", "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'write', '{}')")
	require.Equal(t, []string{"p2"}, b.move(operator, "t1", "p1").From)
	require.Equal(t, " 2 70 full in 50", limits("p1"))
}

// A lookup table is told, and leads to the new pool by itself.
func TestMoveChangesTheTable(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	b.prepare("t1", "p2")
	b.exec("p2", "CREATE SCHEMA app; CREATE TABLE app.tenant (id text PRIMARY KEY, pool text); INSERT INTO app.tenant VALUES ('t1', 'p1');"+
		"GRANT USAGE ON SCHEMA app TO PUBLIC; GRANT SELECT, UPDATE ON app.tenant TO PUBLIC")
	b.cfg.Tenants.Static = nil
	b.cfg.Tenants.Table = &routing.TableConfig{Pool: "p2", Query: "SELECT pool FROM app.tenant WHERE id = $1", Move: "UPDATE app.tenant SET pool = $2 WHERE id = $1"}
	c := b.client(b.cfg)
	_, err := c.Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	b.move(c, "t1", "p2")
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM app.tenant WHERE pool = 'p2'"))
	require.Equal(t, 1, b.count("p2", unfinished, "t1"))

	b.exec("p2", "DELETE FROM app.tenant")
	b.exec("p2", "INSERT INTO app.tenant VALUES ('t1', 'p2')")
	b.cfg.Tenants.Table.Move = "UPDATE app.tenant SET pool = $2 WHERE id = $1 || 'x'"
	wrong := b.client(b.cfg)
	_, err = wrong.Operator().Tenants().Move(t.Context(), "t1", "p1", operate.MoveOptions{})
	require.ErrorContains(t, err, "the tenant lives there now, but the table does not say so")
	_, err = wrong.Enqueue(tenancy.For(t.Context(), "t1"), write{1}) // the old pool leads on
	require.NoError(t, err)
	require.Equal(t, 2, b.count("p1", unfinished, "t1"))
	b.move(c, "t1", "p1")
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM app.tenant WHERE pool = 'p1'"))
}
