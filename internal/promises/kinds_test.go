package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// A node withdraws a kind while there is much of it to do, whether it holds the lock or another one:
// from then on none starts there, the other node does the rest, nothing is lost, done twice or charged
// an attempt. Of what it still handles nothing stops. Registered anew, the kind runs there again.
func TestWithdrawUnderLoad(t *testing.T) {
	t.Parallel()
	for _, from := range []string{"holder", "peer"} {
		t.Run(from, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 3)
			y := newTally()
			const n, took = 400, 20 * time.Millisecond
			nodes := map[string]*running{}
			nodes["holder"], nodes["peer"] = startPair(b, y, 2, took, nil)
			client, here := nodes["holder"].Client(), nodes[from]
			b.many(client, n, func(i int) job.Args { return plain{i} })
			require.Eventually(t, func() bool { return y.byNode()["peer"] > 20 && y.byNode()["holder"] > 20 }, patience, time.Millisecond)
			require.NoError(t, here.Withdraw(t.Context(), "plain"))
			ran := y.byNode()
			before := ran[from]
			require.Less(t, ran["holder"]+ran["peer"], n, "or nothing was proved")
			b.finished(client, n)
			require.Equal(t, before, y.byNode()[from], "a job started after the kind was withdrawn")
			require.Zero(t, y.twice())
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt <> 1"))

			for _, one := range nodes {
				if one != here {
					one.stop() // its lock goes to the one that does not handle the kind
				}
			}
			here.holds("p1")
			b.many(here.Client(), 6, eitherKind)
			b.eventually(n+3, "p1", "SELECT count(*) FROM tenure.completed_job")
			require.Equal(t, 3, b.count("p1", "SELECT count(*) FROM tenure.job"), "they wait for somebody who handles them")
			require.NoError(t, here.Register(func(r *job.Registry) {
				job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
					y.ran("anew", j.ID)
					return nil
				})
			}))
			b.finished(here.Client(), n+6)
			require.Equal(t, 3, y.byNode()["anew"])
		})
	}
}

// A peer that registers a kind, which the holder knows not to have it, is given its jobs.
func TestRegisterOnAPeer(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	holder := b.start(b.gossiping("holder"), job.NewRegistry())
	holder.holds("p1")
	peer := b.start(b.gossiping("peer", holder.Self().Addr), job.NewRegistry())
	holder.meet(2)
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't1', 'default', 'plain', '{"n": 1}' FROM generate_series(1, 20) n`)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.node_session WHERE node = 'peer' AND state = 'live'")
	require.NoError(t, peer.Register(func(r *job.Registry) {
		job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
			y.ran("peer", j.ID)
			return nil
		})
	}))
	b.finished(peer.Client(), 20)
	require.Equal(t, 20, y.byNode()["peer"])
}

// What still runs when the withdrawal's time is over is cancelled and given back, and charged nothing; the
// kind can still be enqueued, with what its handler says of it.
func TestWithdrawCancels(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	began := make(chan struct{}, 10)
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, _ *job.Job[plain]) error {
		began <- struct{}{}
		<-ctx.Done()
		return context.Cause(ctx)
	}, job.Queue("mail"))
	n := b.start(b.cfg, r)
	ctx := tenancy.For(t.Context(), "t1")
	_, err := n.Client().Enqueue(ctx, plain{1})
	require.NoError(t, err)
	<-began
	over, cancel := context.WithCancel(t.Context())
	cancel()
	require.NoError(t, n.Withdraw(over, "plain"))
	require.ErrorIs(t, n.Withdraw(t.Context(), "plain"), job.ErrKindUnknown)
	_, err = n.Client().Enqueue(ctx, plain{2})
	require.NoError(t, err)
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.job WHERE queue = 'mail' AND attempt = 0")
	require.NoError(t, n.Register(func(r *job.Registry) {
		job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil }, job.Queue("mail"))
	}))
	b.finished(n.Client(), 2)
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt <> 1"))
	require.ErrorIs(t, n.Register(func(r *job.Registry) {
		job.Handle(r, func(context.Context, *job.Job[slow]) error { return nil })
		job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil })
	}), job.ErrKindExists)
	require.ErrorIs(t, n.Withdraw(t.Context(), slow{}.Kind()), job.ErrKindUnknown, "all are registered, or none")
}

// A job waits in its kind's queue also if who enqueues it has no handler of the kind: the nodes have told the ledger, those that do
// not hold the lock as well, of a kind that they register later, too, and of one that comes back with another queue.
func TestTheQueueOfAKindIsKnownElsewhere(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return nil }, job.Queue("mail"))
	holder := b.start(b.gossiping("holder"), job.NewRegistry())
	holder.holds("p1")
	n := b.start(b.gossiping("n", holder.Self().Addr), r)
	n.meet(2)
	for _, queue := range []string{"before", "slowly"} {
		require.NoError(t, n.Register(func(r *job.Registry) {
			job.Handle(r, func(context.Context, *job.Job[slow]) error { return nil }, job.Queue(queue))
		}))
		b.eventually(2, "p1", "SELECT count(*) FROM tenure.kind_queue WHERE (kind, queue) IN (('plain', 'mail'), ($1, $2))", slow{}.Kind(), queue)
		if queue == "before" {
			require.NoError(t, n.Withdraw(t.Context(), slow{}.Kind()))
		}
	}
	n.stop()
	holder.stop()

	c, ctx := b.client(b.cfg), tenancy.For(t.Context(), "t1")
	all, err := c.Operator().Queues().List(ctx, operate.LoadFilter{})
	require.NoError(t, err)
	require.Contains(t, all, operate.QueueStatus{Pool: "p1", Name: "slowly", Kinds: []string{slow{}.Kind()}}, "it has no jobs yet")
	_, err = c.Enqueue(ctx, plain{1})
	require.NoError(t, err)
	_, err = c.EnqueueMany(ctx, []tenure.Entry{{Args: plain{2}}, {Args: plain{3}, Options: []tenure.Option{tenure.In(time.Hour)}}, {Args: plain{4}, Options: []tenure.Option{tenure.OnQueue("other")}},
		{Args: plain{7}, Options: []tenure.Option{tenure.External()}}, {Args: write{8}}})
	require.NoError(t, err)
	require.NoError(t, c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
		_, err := c.EnqueueTx(ctx, tx, slow{})
		return err
	}))
	_, err = c.EnqueueBatch(ctx, tenure.Batch{Then: plain{5}, Jobs: []tenure.Entry{{Args: slow{}}}})
	require.NoError(t, err)
	_, err = c.Enqueue(ctx, plain{6}, tenure.External())
	require.NoError(t, err)
	const jobs = "(SELECT queue FROM tenure.job UNION ALL SELECT queue FROM tenure.timer_job UNION ALL SELECT queue FROM tenure.external_job) j"
	for queue, jobsThere := range map[string]int{"mail": 4, "slowly": 2, "other": 1, "default": 3} {
		require.Equal(t, jobsThere, b.count("p1", "SELECT count(*) FROM "+jobs+" WHERE queue = $1", queue), queue)
	}
}

// A paused node runs nothing and enqueues; it is paused and resumed by its program and by a reload.
func TestPause(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	cfg := b.named("a")
	cfg.Execution.Paused = true
	n := b.start(cfg, b.registry(nil))
	n.holds("p1")
	ctx := tenancy.For(t.Context(), "t1")
	resume := func() error { n.Resume(); return nil }
	pauses := []func() error{
		func() error { return n.Pause(t.Context()) },
		func() error { return n.reload(cfg) },
	}
	for i, goOn := range []func() error{resume, func() error { return n.reload(b.named("a")) }, resume} {
		_, err := n.Client().Enqueue(ctx, write{i})
		require.NoError(t, err)
		b.eventually(1, "p1", "SELECT count(*) FROM tenure.node_session WHERE state = 'live' AND kinds = '{}'")
		require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job"))
		require.NoError(t, goOn())
		b.finished(n.Client(), i+1)
		b.eventually(1, "p1", "SELECT count(*) FROM tenure.node_session WHERE state = 'live' AND kinds = '{plain,write}'")
		if i < len(pauses) {
			require.NoError(t, pauses[i]())
		}
	}
}
