package promises_test

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// twofold is a job whose handler begins a second transaction within its own.
type twofold struct {
	N int `json:"n"`
}

func (twofold) Kind() string { return "twofold" }

// TestP10TransactionsWithinTransactions: one tenant's handlers hold a transaction each, and begin
// another by a context that does not tell of the first. They have the tenant's share of the connections,
// and no more; others' jobs run meanwhile, the second transactions fail with an error that says why, and
// the node stops in its time. Before, they had all connections until the process was killed.
func TestP10TransactionsWithinTransactions(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2).byDefault()
	p := b.cfg.Pools["p1"]
	p.MaxConns = 12 // five are for tenants
	b.cfg.Pools["p1"] = p
	b.cfg.Execution.FinishWithin = time.Second
	const share = 3
	var client *tenure.Client
	var holding, highest, refused, stopped atomic.Int64
	r := b.registry(nil)
	tenure.HandleTx(r, func(context.Context, pgx.Tx, *job.Job[twofold]) error {
		n := holding.Add(1)
		defer holding.Add(-1)
		for h := highest.Load(); n > h && !highest.CompareAndSwap(h, n); h = highest.Load() {
		}
		err := client.InTx(tenancy.For(context.Background(), "t1"), func(context.Context, pgx.Tx) error { return nil })
		switch {
		case errors.Is(err, tenure.ErrTenantShare):
			refused.Add(1)
		case errors.Is(err, job.ErrStopping):
			stopped.Add(1)
		}
		return err
	})
	n := b.start(b.cfg, r)
	client = n.Client()
	enqueue := func(tenant tenancy.ID, jobs int, args func(i int) job.Args) {
		var entries []tenure.Entry
		for i := range jobs {
			entries = append(entries, tenure.Entry{Tenant: tenant, Args: args(i)})
		}
		_, err := client.EnqueueMany(t.Context(), entries)
		require.NoError(t, err)
	}
	enqueue("t1", 40, func(i int) job.Args { return twofold{i} })
	require.Eventually(t, func() bool { return holding.Load() == share }, patience, time.Millisecond)
	enqueue("t2", 100, func(i int) job.Args { return write{i} })
	b.eventually(100, "p1", "SELECT count(*) FROM t2.effect")
	require.Eventually(t, func() bool { return refused.Load() > 0 }, patience, time.Millisecond)
	require.Eventually(t, func() bool { return holding.Load() == share }, patience, time.Millisecond, "the next ones hold it")
	n.stop()
	require.Positive(t, stopped.Load(), "what waits is not waited for")
	require.EqualValues(t, share, highest.Load(), "two were left to others")
}
