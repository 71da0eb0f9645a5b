package promises_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// isolated makes pools in databases whose transactions are by default of another isolation
// than the ledger's.
func isolated(t *testing.T, pools int, level string) *testbed {
	return fillTestbed(t, pools, 1, func(name string, number int) string {
		dsn := storetest.DSN(t, name, number)
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		_, err = conn.Exec(t.Context(), fmt.Sprintf("DO $$ BEGIN EXECUTE format('ALTER DATABASE %%I SET default_transaction_isolation = %%L', current_database(), '%s'); END $$", level))
		require.NoError(t, err)
		require.NoError(t, conn.Close(t.Context()))
		return dsn
	})
}

// TestWhateverTheDefaultIsolation: a cancel that waits for a claim sees the claim, jobs of
// every kind come to their end, those of a dead node are taken back, and a tenant moves.
func TestWhateverTheDefaultIsolation(t *testing.T) {
	t.Parallel()
	for _, level := range []string{"repeatable read", "serializable"} {
		t.Run(level, func(t *testing.T) {
			t.Parallel()
			b := isolated(t, 2, level)
			b.prepare("t1", "p2")
			c := b.client(b.named("client"))
			cancelBesideClaim(b, c)

			died := uuid.New()
			b.exec("p1", "INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES ($1, 'died', 'died', clock_timestamp())", died)
			ctx := tenancy.For(t.Context(), "t1")
			lost, err := c.Enqueue(ctx, plain{1})
			require.NoError(t, err)
			b.exec("p1", "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT $1, turn, ARRAY[id], now() FROM tenure.job WHERE id = $2", died, int64(lost.ID))
			var fails bool
			r := job.NewRegistry()
			job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
				if fails = !fails; fails && j.Attempt == 1 {
					return errors.New("once")
				}
				return nil
			}, job.Retry("R2/PT0.1S"))
			tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
				_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
				return err
			})
			cfg := b.named("a")
			cfg.Execution.Workers = 1 // handlers share a variable
			b.start(cfg, r)
			const n = 60
			for i := range n {
				_, err := c.Enqueue(ctx, []job.Args{plain{i}, write{i}}[i%2], tenure.In(time.Duration(i%3)*10*time.Millisecond))
				require.NoError(t, err)
			}
			b.eventually(n+1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")
			require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND losses = 1", int64(lost.ID)))

			busy := b.traffic(c, "t1")
			require.Eventually(t, func() bool { return busy.jobs.Load() > 20 }, patience, 10*time.Millisecond)
			b.move(c, "t1", "p2")
			busy.stop()
			b.eventually(0, "p2", unfinished, "t1")
			require.Zero(t, b.count("p1", unfinished, "t1"))
			b.requireOnce("t1", b.count("p2", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'write' AND outcome = 'done'"), "p1", "p2")
		})
	}
}

// cancelBesideClaim has a cancel wait for a claim of the job that is just being made.
func cancelBesideClaim(b *testbed, c *tenure.Client) {
	t := b.t
	t.Helper()
	e, err := c.Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	holder := uuid.New()
	require.NoError(t, store.OpenSession(t.Context(), b.db["p1"], store.Session{ID: holder, Node: "h", Member: "h"}, time.Minute))
	mine, l, err := store.TakeLock(t.Context(), b.db["p1"], store.Claimant{Session: holder, Member: "h", SeenSeq: -1}, time.Minute)
	require.NoError(t, err)
	require.True(t, mine)
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) // after a commit it does nothing
	f := store.Fence{Session: holder, Epoch: l.Epoch, Incarnation: l.Incarnation}
	turn := b.count("p1", "SELECT turn FROM tenure.job WHERE id = $1", int64(e.ID))
	claim := store.NewClaimRequest(l.Removals, 1)
	claim.Add(e.ID, int32(turn))
	_, err = store.InsertClaims(t.Context(), tx, f, claim)
	require.NoError(t, err)
	type answer struct {
		running bool
		err     error
	}
	answered := make(chan answer, 1)
	go func() {
		running, err := c.Operator().Jobs().Cancel(t.Context(), e.ID)
		answered <- answer{running, err}
	}()
	b.eventually(1, "p1", "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock' AND application_name = 'tenure jobs'")
	require.NoError(t, tx.Commit(t.Context()))
	require.Equal(t, answer{running: true}, <-answered)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job WHERE id = $1", int64(e.ID)))
	require.NoError(t, store.OfferLock(t.Context(), b.db["p1"], f, "", 0))
	b.exec("p1", "DELETE FROM tenure.claim")
	b.exec("p1", "DELETE FROM tenure.job")
	b.exec("p1", "DELETE FROM tenure.cancel_request")
}

// TestEnqueueInARepeatableReadTransaction: what another transaction has enqueued under the
// key since is not to be seen in it, nor would trying again show it. Postgres says so, and
// the caller knows what to do.
func TestEnqueueInARepeatableReadTransaction(t *testing.T) {
	t.Parallel()
	for _, level := range []pgx.TxIsoLevel{pgx.RepeatableRead, pgx.Serializable} {
		t.Run(string(level), func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			c := b.client(b.named("client"))
			ctx := tenancy.For(t.Context(), "t1")
			before, err := c.Enqueue(ctx, plain{1}, tenure.Unique("before"))
			require.NoError(t, err)
			tx, err := b.db["p1"].BeginTx(ctx, pgx.TxOptions{IsoLevel: level})
			require.NoError(t, err)
			defer tx.Rollback(context.WithoutCancel(ctx)) // after a commit it does nothing
			e, err := c.EnqueueTx(ctx, tx, plain{1}, tenure.Unique("before"))
			require.NoError(t, err)
			require.Equal(t, before.ID, e.ID)
			require.True(t, e.Duplicate)
			e, err = c.EnqueueTx(ctx, tx, plain{1}, tenure.Unique("mine"))
			require.NoError(t, err)
			require.False(t, e.Duplicate)
			_, err = c.Enqueue(ctx, plain{1}, tenure.Unique("meanwhile"))
			require.NoError(t, err)
			_, err = c.EnqueueTx(ctx, tx, plain{1}, tenure.Unique("meanwhile"))
			var pg *pgconn.PgError
			require.ErrorAs(t, err, &pg)
			require.Equal(t, "40001", pg.Code, "a serialization failure: begin the transaction again")
		})
	}
}
