package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// planSettings are ways to plan that can be ruled out. What is left may be absurd, as it
// is when statistics are.
var planSettings = []string{"hashjoin", "mergejoin", "nestloop", "seqscan", "indexscan", "indexonlyscan", "bitmapscan", "material", "memoize", "sort", "hashagg"}

// No plan makes a statement take more than it was told to. A limit in a subquery that is
// planned as one side of a join, and run once for each row of the other, can be overrun.
func TestLimitsHoldWhateverThePlan(t *testing.T) {
	t.Parallel()
	const waiting, atMost, quota = 500, 7, 3
	b := setup(t)
	for _, table := range []string{"job", "timer_job"} { // no statistics but those of empty tables
		_, err := b.db.Exec(t.Context(), fmt.Sprintf("ALTER TABLE tenure.%s SET (autovacuum_enabled = off); ANALYZE tenure.%s", table, table))
		require.NoError(t, err)
	}
	for _, sql := range []string{
		`INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't' || n % 5, 'default', 'k', '{}' FROM generate_series(1, $1) n`,
		`INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, due_at)
		 SELECT 1000000 + n, 't' || n % 5, 'default', 'k', '{}', clock_timestamp() - interval '1 hour' FROM generate_series(1, $1) n`,
	} {
		_, err := b.db.Exec(t.Context(), sql, waiting)
		require.NoError(t, err)
	}
	lanes, err := store.Lanes(t.Context(), b.db, 100)
	require.NoError(t, err)
	require.Len(t, lanes, 5)
	var req store.PageRequest
	for _, l := range lanes {
		req.Add(l, 0, quota)
	}

	_, err = b.db.Exec(t.Context(), "UPDATE tenure.acquire_lock SET expires_at = 'infinity'")
	require.NoError(t, err)
	rng := rand.New(rand.NewPCG(1, 42))
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // it has failed, or changed nothing that counts
	for i := range 20 {
		_, err := tx.Exec(t.Context(), "SAVEPOINT before")
		require.NoError(t, err)
		var off []string
		for _, s := range planSettings {
			if i > 0 && rng.IntN(2) == 0 {
				off = append(off, s)
				_, err := tx.Exec(t.Context(), "SET LOCAL enable_"+s+" = off")
				require.NoError(t, err)
			}
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			_, err := tx.Exec(t.Context(), "SET LOCAL plan_cache_mode = "+mode)
			require.NoError(t, err)
			requireLimits(t, tx, b.fence, &req, atMost, quota*len(lanes), "%s without %v", mode, off)
		}
		_, err = tx.Exec(t.Context(), "ROLLBACK TO SAVEPOINT before") // also of the settings
		require.NoError(t, err)
	}
}

func requireLimits(t *testing.T, tx pgx.Tx, f store.Fence, req *store.PageRequest, fires, reads int, what string, args ...any) {
	t.Helper()
	what = fmt.Sprintf(what, args...)
	page, err := store.ReadPage(t.Context(), tx, req, store.KindsOf([]string{"k"}), false)
	require.NoError(t, err, what)
	require.Len(t, page.Jobs, reads, what)
	fired, err := store.FireTimers(t.Context(), tx, f, fires)
	require.NoError(t, err, what)
	n := 0
	for _, lane := range fired {
		n += lane.Count
	}
	require.Equal(t, fires, n, "timers fired, %s", what)
}
