package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// However a job is enqueued, the client counts it once by its kind, and none whose unique key was taken.
func TestEnqueuedJobsAreCounted(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "p1", 1)
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"p1": {DSN: dsn}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "p1"}}
	registry := prometheus.NewPedanticRegistry()
	c, err := tenure.NewClient(cfg, tenure.WithMetrics(registry))
	require.NoError(t, err)
	require.NoError(t, c.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, c.Stop(context.WithoutCancel(t.Context()))) })
	failed := map[string]float64{} // by SQLSTATE and pool
	counted := func() map[string]float64 {
		families, err := registry.Gather()
		require.NoError(t, err)
		all := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				if f.GetName() == "tenure_enqueues_failed_total" {
					failed[m.Label[0].GetValue()+" in "+m.Label[1].GetValue()] = m.GetCounter().GetValue()
					continue
				}
				all[m.Label[0].GetValue()+" in "+m.Label[1].GetValue()] = m.GetCounter().GetValue()
			}
		}
		return all
	}
	acme, once := tenancy.For(t.Context(), "acme"), tenure.Unique("once")
	for range 2 {
		_, err = c.Enqueue(acme, sendInvoice{}, once)
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{"invoice.send in p1": 1}, counted())
	some := []tenure.Entry{{Args: sendInvoice{}}, {Args: sendInvoice{}, Options: []tenure.Option{once}}, {Args: mailInvoice{}}}
	_, err = c.EnqueueMany(acme, some)
	require.NoError(t, err)
	require.Equal(t, map[string]float64{"invoice.send in p1": 2, "invoice.mail in p1": 1}, counted())

	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	require.NoError(t, pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
		_, err := c.EnqueueTx(acme, tx, mailInvoice{})
		require.NoError(t, err)
		_, err = c.EnqueueManyTx(acme, tx, some)
		return err
	}))
	require.Equal(t, map[string]float64{"invoice.send in p1": 3, "invoice.mail in p1": 3}, counted())
	for range 2 { // the second is a duplicate
		_, err = c.EnqueueBatch(acme, tenure.Batch{Then: mailInvoice{}, Options: []tenure.Option{tenure.Unique("batch")}, Jobs: some})
		require.NoError(t, err)
	}
	require.Equal(t, map[string]float64{"invoice.send in p1": 4, "invoice.mail in p1": 5}, counted())
	_, err = c.Enqueue(acme, sendInvoice{}, tenure.External())
	require.NoError(t, err)
	require.Equal(t, 5.0, counted()["invoice.send in p1"])
	require.Empty(t, failed)

	_, err = conn.Exec(t.Context(), "ALTER TABLE tenure.job ADD CONSTRAINT no_more CHECK (kind <> 'invoice.send') NOT VALID")
	require.NoError(t, err)
	_, err = c.Enqueue(acme, sendInvoice{})
	require.Error(t, err)
	_, err = c.EnqueueMany(acme, some)
	require.Error(t, err)
	_, err = c.EnqueueBatch(acme, tenure.Batch{Then: mailInvoice{}, Jobs: some})
	require.Error(t, err)
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = c.EnqueueManyTx(acme, tx, some)
	require.Error(t, err)
	require.NoError(t, tx.Rollback(t.Context()))
	// What is their caller's own matter is not counted.
	_, err = c.EnqueueManyTx(acme, tx, some)
	require.ErrorIs(t, err, pgx.ErrTxClosed)
	over, cancel := context.WithDeadline(acme, time.Now())
	defer cancel()
	_, err = c.Enqueue(over, mailInvoice{})
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = c.EnqueueMany(over, some)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	_, err = c.Enqueue(acme, mailInvoice{}, tenure.After(1)) // which is refused
	require.ErrorAs(t, err, new(*job.LinkError))
	counted()
	require.Equal(t, map[string]float64{"23514 in p1": 4}, failed)
}
