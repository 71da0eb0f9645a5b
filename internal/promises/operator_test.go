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

// An operator's calls do not wait for a connection while handlers hold all of those for
// tenants' transactions.
func TestOperatorPassesBusyHandlers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	pool := b.cfg.Pools["p1"]
	pool.MaxConns = 4 // one of them for handlers
	b.cfg.Pools["p1"] = pool
	began := make(chan struct{})
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, _ pgx.Tx, _ *job.Job[write]) error {
		close(began)
		<-ctx.Done()
		return ctx.Err()
	})
	c := b.node(b.cfg, r).Client()
	op := c.Operator()
	tenant := tenancy.For(t.Context(), "t1")
	busy, err := c.Enqueue(tenant, write{1})
	require.NoError(t, err)
	later, err := c.Enqueue(tenant, write{2}, tenure.In(time.Hour))
	require.NoError(t, err)
	<-began

	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Second) // less than a call waits for one pool
	defer cancel()
	running, err := op.Jobs().Cancel(ctx, later.ID)
	require.NoError(t, err)
	require.False(t, running)
	_, err = op.Jobs().List(ctx, operate.JobFilter{})
	require.NoError(t, err)
	_, err = op.Pools().Count(ctx)
	require.NoError(t, err)
	require.NoError(t, op.Pools().Locks(ctx)[0].Err)
	_, err = op.Pools().Sessions(ctx)
	require.NoError(t, err)
	running, err = op.Jobs().Cancel(ctx, busy.ID)
	require.NoError(t, err)
	require.True(t, running)
}

// However many calls of operators wait for a row that somebody has locked, jobs run.
func TestOperatorsLeaveConnectionsToJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	pool := b.cfg.Pools["p1"]
	pool.MaxConns = 4 // two of them for job SQL
	b.cfg.Pools["p1"] = pool
	n := b.start(b.cfg, b.registry(nil))
	n.holds("p1")
	tenant := tenancy.For(t.Context(), "t1")
	later, err := n.Client().Enqueue(tenant, plain{1}, tenure.In(time.Hour))
	require.NoError(t, err)
	unlock := lockWith(b, "p1", "SELECT FROM tenure.timer_job FOR UPDATE")
	defer unlock()
	const calls = 3
	answered := make(chan error, calls)
	for range calls {
		go func() { answered <- n.Operator().Jobs().Retry(t.Context(), later.ID) }()
	}
	b.eventually(1, "p1", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'tenure jobs'")
	_, err = n.Client().Enqueue(tenant, plain{2})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Empty(t, answered, "they wait still")
	for range calls {
		require.Error(t, <-answered)
	}
}
