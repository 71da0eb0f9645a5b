package store_test

import (
	"context"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// BenchmarkEnqueueTx is one job by tenure.enqueue, as EnqueueTx adds it in a transaction of
// the caller's, beside a bare INSERT of the same row. They take turns, each in a transaction
// of its own, which is committed when many were added: so other work on the machine slows
// all of them, and the medians, in microseconds, can be compared. A tenant's role costs a
// look at what it may.
func BenchmarkEnqueueTx(b *testing.B) {
	const perTransaction = 200
	ctx := context.Background()
	server := pgtest.Server(b, devpg.Options{})
	require.NoError(b, server.CreateDatabase(ctx, "main"))
	require.NoError(b, storetest.Prepare(ctx, server.DSN("main"), "main", 1))
	db, err := pgxpool.New(ctx, storetest.AsRuntime(server.DSN("main")))
	require.NoError(b, err)
	defer db.Close()
	owner, err := pgxpool.New(ctx, server.DSN("main"))
	require.NoError(b, err)
	defer owner.Close()
	_, err = owner.Exec(ctx, "CREATE SCHEMA acme; INSERT INTO tenure.tenant_role VALUES ('acme', 't_acme')")
	require.NoError(b, err)
	storetest.Role(b, owner, "t_acme", "acme")
	const bare = `INSERT INTO tenure.job (id, tenant_id, queue, kind, payload, priority, max_attempts, meta, correlation_id, unique_key)
		VALUES (nextval('tenure.job_id'), $1, $2, $3, $4, $5, $6, $7, $8, $9) RETURNING id`
	j := store.NewJob{Tenant: "acme", Queue: "default", Kind: "invoice.send", Payload: []byte(`{"invoice": 42, "to": "ada@example.com"}`), WithData: true}
	enqueue := func(tx pgx.Tx) error {
		_, _, err := store.Enqueue(ctx, store.OnTx(tx), 1, &j)
		return err
	}
	ways := []struct {
		unit, role string
		add        func(tx pgx.Tx) error
		tx         pgx.Tx
		took       []time.Duration
	}{
		{unit: "µs/insert", role: "none", add: func(tx pgx.Tx) (err error) {
			var id int64
			return tx.QueryRow(ctx, bare, pgx.QueryExecModeExec, j.Tenant, j.Queue, j.Kind, string(j.Payload), j.Priority, nil, nil, nil, nil).Scan(&id)
		}},
		{unit: "µs/enqueue", role: "none", add: enqueue},
		{unit: "µs/enqueue-as-tenant", role: "t_acme", add: enqueue},
	}
	n := 0
	for b.Loop() {
		for i := range ways {
			w := &ways[i]
			if n%perTransaction == 0 {
				if w.tx != nil {
					require.NoError(b, w.tx.Commit(ctx))
				}
				w.tx, err = db.Begin(ctx)
				require.NoError(b, err)
				_, err = w.tx.Exec(ctx, "SELECT set_config('role', $1, true)", w.role)
				require.NoError(b, err)
			}
			begun := time.Now()
			require.NoError(b, w.add(w.tx))
			w.took = append(w.took, time.Since(begun))
		}
		n++
	}
	for _, w := range ways {
		require.NoError(b, w.tx.Commit(ctx))
		slices.Sort(w.took)
		b.ReportMetric(float64(w.took[len(w.took)/2].Nanoseconds())/1000, w.unit)
	}
}
