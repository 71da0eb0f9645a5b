package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/tenancy"
)

// TestP6ADayIsAddedWhileJobsFinish: a pool's first jobs finish while the partition of their day
// is attached, for which Postgres refuses to keep them in the default one. Nobody is charged for
// that.
func TestP6ADayIsAddedWhileJobsFinish(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	n := b.start(b.cfg, b.registry(nil))
	n.holds("p1")
	const today = "(now() AT TIME ZONE 'UTC')::date"
	var tx pgx.Tx
	require.Eventually(t, func() (made bool) { // as neither waits for anybody, and the node may be making days
		if _, err := b.db["p1"].Exec(t.Context(), "SELECT tenure.drop_day("+today+")"); err != nil {
			return false
		}
		var err error
		tx, err = b.db["p1"].Begin(t.Context())
		require.NoError(t, err)
		if _, err = tx.Exec(t.Context(), "SELECT tenure.make_day("+today+")"); err != nil {
			require.NoError(t, tx.Rollback(t.Context()))
		}
		return err == nil
	}, patience, 10*time.Millisecond)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), write{1})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM pg_locks WHERE relation = 'tenure.completed_job_rest'::regclass AND NOT granted")
	require.NoError(t, tx.Commit(t.Context()))
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done' AND attempt = 1")
	require.Empty(t, b.errorsOf("p1"))
	b.requireOnce("t1", 1, "p1")
}
