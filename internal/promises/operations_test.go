package promises_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Somebody has dead letters retried in the background and goes away; the node that carries it out dies
// midway, and another one goes on: each of them is retried once, and none of another kind.
func TestOperationsOutliveTheirHolder(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const n = 90
	b.kill("p1", "t1", "write", "'timeout ' || n", n)
	b.kill("p1", "t1", "plain", "'timeout ' || n", 1)
	caller, err := tenure.NewClient(b.cfg)
	require.NoError(t, err)
	require.NoError(t, caller.Start(t.Context()))
	id, err := caller.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{Kind: "write"}, 60, "me")
	require.NoError(t, err)
	require.NoError(t, caller.Stop(context.Background()))
	dies := b.startChild(b.named("dies"))
	b.eventually(1, "p1", "SELECT (done >= 12)::int FROM tenure.operation")
	dies.kill()
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.operation WHERE state = 'running' AND done < 90"), "or nothing was proved")

	next := b.start(b.named("next"), b.registry(nil))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.operation WHERE state = 'done'")
	found, err := next.Operator().Operations().Get(t.Context(), id)
	require.NoError(t, err)
	require.Len(t, found, 1)
	o := found[0]
	require.Equal(t, []any{"p1", "retry", "me", "write", 60.0, int64(n), int64(0), int64(0), ""},
		[]any{o.Pool, o.Action, o.By, o.Filter.Kind, o.PerSecond, o.Done, o.KeyTaken, o.Left, o.Failure})
	require.False(t, o.EndedAt.Before(o.CreatedAt))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"), "of another kind")
	b.exec("p1", "DELETE FROM tenure.dead_letter_job")
	b.requireOnce("t1", n, "p1")
}

// What dies again is not retried again; a group is chosen by its id; what is asked for in all pools is done in
// all of them, and a pool that dozes wakes up for it.
func TestOperationsInAllPools(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	const n = 700 // more than a step
	b.kill("p1", "t1", "plain", "'order ' || n || ' not found'", n)
	b.kill("p1", "t1", "plain", "'no space left'", 2)
	b.kill("p2", "t2", "plain", "'order ' || n || ' not found'", 5)
	var ran atomic.Int64
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[plain]) error {
		ran.Add(1)
		return job.Discard(errors.New("order 7 not found"))
	})
	node := b.start(b.cfg, r)
	dead, operations := node.Operator().DeadLetters(), node.Operator().Operations()
	groups, err := dead.Groups(t.Context(), operate.DeadFilter{})
	require.NoError(t, err)
	group := operate.DeadFilter{Group: groups[0].ID}
	ended := func(id uuid.UUID, state string) {
		t.Helper()
		for _, pool := range []string{"p1", "p2"} {
			b.eventually(1, pool, "SELECT count(*) FROM tenure.operation WHERE id = $1 AND state = $2", id, state)
		}
	}
	id, err := dead.RetryInBackground(t.Context(), group, 0, "")
	require.NoError(t, err)
	ended(id, "done")
	b.eventually(n+2, "p1", "SELECT count(*) FROM tenure.dead_letter_job")
	b.eventually(5, "p2", "SELECT count(*) FROM tenure.dead_letter_job")
	require.EqualValues(t, n+5, ran.Load(), "each once")

	other, err := dead.DeleteInBackground(t.Context(), operate.DeadFilter{Error: "Not FOUND"}, 0, "")
	require.NoError(t, err)
	ended(other, "done")
	require.Equal(t, 2, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"))
	all, err := operations.List(t.Context())
	require.NoError(t, err)
	require.Len(t, all, 4)
	require.Equal(t, other, all[0].ID, "the newest first")
	require.Equal(t, "test", all[0].By, "this process")

}

// A cancelled operation does no more steps, and is not under way anywhere.
func TestOperationsAreCancelled(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.kill("p1", "t1", "plain", "'timeout'", 20)
	node := b.start(b.cfg, b.registry(nil))
	operations := node.Operator().Operations()
	id, err := node.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{}, 0.01, "")
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.operation WHERE done = 1")
	pools, err := operations.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Equal(t, 1, pools)
	pools, err = operations.Cancel(t.Context(), id)
	require.NoError(t, err)
	require.Zero(t, pools, "it had ended")
	b.exec("p1", "UPDATE tenure.operation SET next_at = clock_timestamp()")
	next, err := node.Operator().DeadLetters().DeleteInBackground(t.Context(), operate.DeadFilter{Kind: "nothing"}, 0, "")
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.operation WHERE id = $1 AND state = 'done'", next)
	require.Equal(t, 19, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"))

	_, err = operations.Cancel(t.Context(), uuid.New())
	require.ErrorIs(t, err, tenure.ErrNotFound)
	_, err = operations.Get(t.Context(), uuid.New())
	require.ErrorIs(t, err, tenure.ErrNotFound)
	_, err = node.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{}, -1, "")
	require.ErrorContains(t, err, "a rate of -1 in a second")
	_, err = node.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{Error: "a\x00b"}, 0, "")
	require.ErrorContains(t, err, "NUL")
	_, err = node.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{Pool: "p9"}, 0, "")
	require.ErrorIs(t, err, tenure.ErrUnknownPool)
}

// An open transaction has the unique key of a dead letter: that one is passed by, and the others are
// retried.
func TestOperationsMeetAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.kill("p1", "t1", "write", "'timeout'", 9)
	b.exec("p1", "UPDATE tenure.dead_letter_job SET unique_key = 'k' || id")
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "INSERT INTO tenure.unique_job (tenant_id, key, job_id) SELECT tenant_id, unique_key, 4711 FROM tenure.dead_letter_job ORDER BY id OFFSET 4 LIMIT 1")
	require.NoError(t, err)
	node := b.start(b.cfg, b.registry(nil))
	_, err = node.Operator().DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{}, 0, "")
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.operation WHERE state = 'done' AND done = 8 AND left_dead = 1")
	b.eventually(8, "p1", "SELECT count(*) FROM tenure.completed_job")
}

// Somebody has all jobs of a kind cancelled and goes away; the node that carries it out dies midway, and another one goes
// on: none of them starts any more, one that runs is ended, and other jobs run.
func TestOperationsCancelJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	const n = 60
	for pool, tenant := range map[string]string{"p1": "t1", "p2": "t2"} {
		b.exec(pool, `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
			SELECT $1, 'default', 'write', '{"n": 1}', now() + interval '1 hour' FROM generate_series(1, $2::integer)`, tenant, n)
	}
	caller := b.client(b.named("caller"))
	filter := operate.Selection{Kind: "write"}
	count, err := caller.Operator().Jobs().CountCancellable(t.Context(), filter)
	require.NoError(t, err)
	require.EqualValues(t, 2*n, count)
	_, err = caller.Operator().Jobs().CancelInBackground(operate.ByWhom(t.Context(), "ann"), filter, 40, "ann")
	require.NoError(t, err)
	dies := b.startChild(b.named("dies"))
	b.eventually(1, "p1", "SELECT (done >= 8)::int FROM tenure.operation")
	dies.kill()
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.operation WHERE ended_at IS NULL AND done < 60"), "or nothing was proved")

	started := make(chan job.ID, 10)
	r := blockingHandlers(b, started, nil)
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil })
	next := b.start(few(b.named("next"), 2), r)
	for _, pool := range []string{"p1", "p2"} {
		b.eventually(1, pool, "SELECT count(*) FROM tenure.operation WHERE state = 'done' AND done = 60 AND left_dead = 0")
		require.Equal(t, n, b.count(pool, "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled'"))
	}
	ctx := tenancy.For(t.Context(), "t1")
	for range 2 + n { // two run, and the others wait
		_, err := next.Client().Enqueue(ctx, write{1})
		require.NoError(t, err)
	}
	<-started
	<-started
	_, err = next.Client().Enqueue(ctx, plain{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	_, err = next.Operator().Jobs().CancelInBackground(t.Context(), filter, 0, "")
	require.NoError(t, err)
	b.eventually(2*n+2, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled'")
	require.Empty(t, started, "none has started since")
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job"), "of another kind")
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.operation WHERE state = 'done'")
	found, err := next.Operator().Audit(t.Context(), operate.AuditFilter{Action: "jobs.cancel", Pool: "p1"})
	require.NoError(t, err)
	require.Len(t, found, 4, "each with what became of it")
	require.Equal(t, map[string]any{"stage": "ended", "done": 60.0, "key_taken": 0.0, "skipped": 0.0}, found[2].Detail)
	require.Equal(t, []any{"ann", "ann", found[3].Subject}, []any{found[3].Who, found[2].Who, found[2].Subject})
	one := job.ID(b.count("p1", "SELECT min(id) FROM tenure.completed_job WHERE outcome = 'cancelled'"))
	found, err = next.Operator().Audit(t.Context(), operate.AuditFilter{Job: one})
	require.NoError(t, err)
	require.Len(t, found, 1, "it had ended when the others were cancelled")
	require.Equal(t, []any{"ann", true}, []any{found[0].Who, found[0].Chosen})

	for says, f := range map[string]operate.Selection{"dead": {State: "dead"}, "NUL": {Queue: "\x00"}, "p9": {Pool: "p9"}} {
		_, err := next.Operator().Jobs().CancelInBackground(t.Context(), f, 0, "")
		require.ErrorContains(t, err, says)
		_, err = next.Operator().Jobs().CountCancellable(t.Context(), f)
		require.ErrorContains(t, err, says)
	}
	_, err = next.Operator().Jobs().CancelInBackground(t.Context(), operate.Selection{}, -1, "")
	require.ErrorContains(t, err, "a rate of -1 in a second")
}
