package promises_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

func TestJobsOfEveryTenantRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 3)
	n := b.node(b.cfg, b.registry(nil))
	c := n.Client()
	total := 0
	for id := range b.cfg.Tenants.Static {
		ctx := tenancy.For(t.Context(), id)
		for i := range 20 {
			_, err := c.Enqueue(ctx, plain{i})
			require.NoError(t, err)
			err = c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := c.EnqueueTx(ctx, tx, write{i})
				return err
			})
			require.NoError(t, err)
			total += 2
		}
	}
	b.finished(c, total)
	for id, where := range b.cfg.Tenants.Static {
		var n, others int
		require.NoError(t, b.db[where.Pool].QueryRow(t.Context(), fmt.Sprintf("SELECT count(*), count(*) FILTER (WHERE tenant <> $1) FROM %s.effect", id), string(id)).Scan(&n, &others))
		require.Equal(t, 20, n)
		require.Zero(t, others)
	}
}

func TestFailuresAreRetriedThenDead(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	boom := errors.New("boom")
	job.Handle(r, func(context.Context, *job.Job[plain]) error { return boom }, job.Retry("R3/PT0.05S"))
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID)); err != nil {
			return err
		}
		panic("after the effect")
	}, job.Retry("R2/PT0.05S"))
	var last atomic.Int64
	r.Use(func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, r *job.Record) error {
			err := next(ctx, r)
			if r.Kind == "plain" && job.Decide(err, r.Attempt, r.MaxAttempts, job.DefaultPolicy()).State == job.Dead {
				last.Add(1)
			}
			return err
		}
	})
	n := b.node(b.cfg, r)
	ctx := tenancy.For(t.Context(), "t1")
	failing, err := n.Client().Enqueue(ctx, plain{1})
	require.NoError(t, err)
	panicking, err := n.Client().Enqueue(ctx, write{1})
	require.NoError(t, err)
	for id, runs := range map[job.ID]int{failing.ID: 3, panicking.ID: 2} {
		require.Eventually(t, func() bool {
			s, _, err := n.Operator().Jobs().Get(t.Context(), id)
			require.NoError(t, err)
			return s.State == "dead"
		}, 20*time.Second, 20*time.Millisecond)
		_, errs, err := n.Operator().Jobs().Get(t.Context(), id)
		require.NoError(t, err)
		require.Len(t, errs, runs)
	}
	require.EqualValues(t, 1, last.Load(), "middleware sees that it was the last attempt")
	var effects int
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT count(*) FROM t1.effect").Scan(&effects))
	require.Zero(t, effects)
}

// Run serves, takes jobs and ends with its context.
func TestRunEndsWithItsContext(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Node.Listen = "127.0.0.1:0"
	n, err := tenure.New(b.cfg, b.registry(nil), tenure.WithLogger(b.log.logger("run")))
	require.NoError(t, err)
	ctx, stop := context.WithCancel(t.Context())
	ran := make(chan error, 1)
	go func() { ran <- n.Run(ctx) }()
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	stop()
	require.NoError(t, <-ran)
}
