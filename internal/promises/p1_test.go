package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// fate is a job that ends in a given way.
type fate struct {
	End string `json:"end"`
}

func (fate) Kind() string { return "fate" }

func fates(r *job.Registry) *job.Registry {
	job.Handle(r, func(_ context.Context, j *job.Job[fate]) error {
		first := j.Attempt == 1
		switch {
		case j.Args.End == "retry" && first:
			return errors.New("not yet")
		case j.Args.End == "panic" && first:
			panic("not yet")
		case j.Args.End == "retry-in" && first:
			return job.RetryIn(20*time.Millisecond, errors.New("not yet"))
		case j.Args.End == "discard":
			return job.Discard(errors.New("never"))
		case j.Args.End == "cancel":
			return job.Cancel(errors.New("no longer needed"))
		}
		return nil
	}, job.Retry("R3/PT0.05S"))
	return r
}

// TestP1NothingIsLost: every enqueued job stands in exactly one place at the end,
// across outcomes of every kind, a hand-over, and a crash of the database.
func TestP1NothingIsLost(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Durable: true, SharedBuffers: "64MB"})
	b := newTestbedOn(t, server, 2, 2).byDefault()
	a := b.start(b.gossiping("a"), fates(b.registry(nil)))
	second := b.start(b.gossiping("b", a.Self().Addr), fates(b.registry(nil)))
	c := second.Client()
	ends := []string{"done", "retry", "panic", "retry-in", "discard", "cancel"}
	want := map[string]int{"p1": 0, "p2": 0}
	enqueue := func(rounds int) {
		for i := range rounds {
			for id, where := range b.cfg.Tenants.Static {
				ctx := tenancy.For(t.Context(), id)
				var entries []tenure.Entry
				for _, end := range ends {
					entries = append(entries, tenure.Entry{Args: fate{end}}, tenure.Entry{Args: fate{end}, Options: []tenure.Option{tenure.In(50 * time.Millisecond)}})
				}
				n, err := c.EnqueueMany(ctx, entries)
				require.NoError(t, err)
				want[where.Pool] += n
				e, err := c.Enqueue(ctx, write{i}, tenure.Unique(fmt.Sprintf("%d", i)))
				require.NoError(t, err)
				if !e.Duplicate {
					want[where.Pool]++
				}
				err = c.InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
					if _, err := c.EnqueueTx(ctx, tx, write{i}); err != nil {
						return err
					}
					return errNotThis
				})
				require.ErrorIs(t, err, errNotThis)
			}
		}
	}
	enqueue(5)
	a.stop() // hands its locks over
	enqueue(5)
	third := b.start(b.gossiping("c", second.Self().Addr), fates(b.registry(nil)))
	enqueue(5)
	require.NoError(t, server.Crash(t.Context()))
	require.NoError(t, server.Resume(t.Context()))
	third.stop()
	c = b.start(b.gossiping("d", second.Self().Addr), fates(b.registry(nil))).Client() // its connections are not the crash's victims
	enqueue(5)
	for pool, n := range want {
		b.eventually(0, pool, "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)")
		require.Equal(t, n, b.count(pool, "SELECT count(*) FROM (SELECT id FROM tenure.completed_job UNION ALL SELECT id FROM tenure.dead_letter_job) every_place"))
		require.Equal(t, n, b.count(pool, "SELECT count(DISTINCT id) FROM (SELECT id FROM tenure.completed_job UNION ALL SELECT id FROM tenure.dead_letter_job) every_job"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.unique_job"))
		b.eventually(0, pool, "SELECT count(*) FROM tenure.claim")
	}
}

var errNotThis = errors.New("rolled back on purpose")
