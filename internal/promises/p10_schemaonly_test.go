package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP10ALockOnTheLedger: a tenant without a role locks the table of jobs. While it waits
// for that lock, as somebody is about to add a job, and once it has it, nobody can enqueue;
// both come to an end long before the job's own timeout or its context does.
func TestP10ALockOnTheLedger(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Tenants.Role = ""
	b.exec("p1", "GRANT USAGE ON SCHEMA t1, t2 TO PUBLIC; GRANT INSERT ON t1.effect, t2.effect TO PUBLIC")
	b.cfg.Execution.FinishWithin = time.Second
	b.cfg.Connections.LockTimeout, b.cfg.Connections.TransactionTimeout = 2*time.Second, 3*time.Second
	locked := make(chan error, 1)
	r := b.registry(nil)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[lockLedger]) error {
		_, err := tx.Exec(ctx, "LOCK TABLE tenure.job")
		locked <- err
		return job.Discard(err)
	})
	n := b.start(b.cfg, r)
	careless, other := tenancy.For(t.Context(), "t1"), tenancy.For(t.Context(), "t2")
	enqueue := func() {
		t.Helper()
		ctx, cancel := context.WithTimeout(other, patience/2)
		defer cancel()
		_, err := n.Client().Enqueue(ctx, write{1})
		require.NoError(t, err)
	}

	adding, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = adding.Rollback(context.WithoutCancel(t.Context())) }() // else nothing would end after a failure
	_, err = adding.Exec(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t2', 'default', 'write', '{}')")
	require.NoError(t, err)
	_, err = n.Client().Enqueue(careless, lockLedger{})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM pg_locks WHERE relation = 'tenure.job'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted")
	enqueue()
	require.ErrorContains(t, <-locked, "lock timeout")
	require.NoError(t, adding.Rollback(t.Context()))

	held := make(chan error, 1)
	go func() {
		held <- n.Client().InTx(careless, func(ctx context.Context, tx pgx.Tx) error {
			if _, err := tx.Exec(ctx, "LOCK TABLE tenure.job"); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, "SELECT pg_sleep(600)")
			return err
		})
	}()
	b.eventually(1, "p1", "SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'SELECT pg_sleep(600)%' AND state = 'active'")
	enqueue()
	require.ErrorContains(t, <-held, "statement timeout")
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.job")
}

// lockLedger is a job that locks the table of jobs.
type lockLedger struct{}

func (lockLedger) Kind() string { return "lock.ledger" }
