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
		_, err := b.owner.Exec(t.Context(), fmt.Sprintf("ALTER TABLE tenure.%s SET (autovacuum_enabled = off); ANALYZE tenure.%s", table, table))
		require.NoError(t, err)
	}
	for _, sql := range []string{
		`INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't' || n % 5, 'default', 'k', '{}' FROM generate_series(1, $1) n`,
		`INSERT INTO tenure.timer_job (id, tenant_id, queue, kind, payload, due_at)
		 SELECT 1000000 + n, 't' || n % 5, 'default', 'k', '{}', clock_timestamp() - interval '1 hour' FROM generate_series(1, $1) n`,
	} {
		_, err := b.owner.Exec(t.Context(), sql, waiting)
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
	whateverThePlan(t, b.db, func(tx pgx.Tx, what string) {
		requireLimits(t, tx, b.fence, &req, atMost, quota*len(lanes), what)
	})
}

// Whatever the plan, a reaping takes no more claims at a time than it may, and none of a
// live session, and gives each of their jobs back once.
func TestReapingHoldsWhateverThePlan(t *testing.T) {
	t.Parallel()
	const claims, of, atOnce = 200, 5, 50
	b := setup(t)
	dead := openSession(t, b.db, "dead")
	for _, sql := range []string{
		"ALTER TABLE tenure.job SET (autovacuum_enabled = off); ALTER TABLE tenure.claim SET (autovacuum_enabled = off); ALTER TABLE tenure.node_session SET (autovacuum_enabled = off)",
		"ANALYZE tenure.job, tenure.claim, tenure.node_session", // as good as empty
		fmt.Sprintf(`INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't' || n %% 5, 'default', 'k', '{}' FROM generate_series(1, %d) n`, 2*claims*of),
		fmt.Sprintf(`WITH c AS (SELECT (r - 1) / %d AS n, turn, array_agg(id) AS ids FROM (SELECT id, turn, row_number() OVER (ORDER BY id) AS r FROM tenure.job) j GROUP BY 1, 2)
			INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT CASE n %% 2 WHEN 0 THEN '%s'::uuid ELSE '%s'::uuid END, turn, ids, clock_timestamp() FROM c`, of, dead, b.fence.Session),
		fmt.Sprintf("UPDATE tenure.node_session SET state = 'dead' WHERE session_id = '%s'; UPDATE tenure.acquire_lock SET expires_at = 'infinity'", dead),
	} {
		_, err := b.owner.Exec(t.Context(), sql)
		require.NoError(t, err, sql)
	}
	whateverThePlan(t, b.db, func(tx pgx.Tx, what string) {
		r, err := store.ReapClaims(t.Context(), tx, b.fence, 3, 0, true)
		require.NoError(t, err, what)
		r.Last = 0
		require.Equal(t, store.Reaped{Claims: atOnce, Back: atOnce * of}, r, what)
	})
}

// whateverThePlan runs try in a transaction under many settings of the planner. What it
// changes is undone.
func whateverThePlan(t *testing.T, db store.Beginner, try func(tx pgx.Tx, what string)) {
	t.Helper()
	rng := rand.New(rand.NewPCG(1, 42))
	tx, err := db.BeginTx(t.Context(), pgx.TxOptions{})
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }() // it has failed, or changed nothing that counts
	for i := range 20 {
		var off []string
		for _, s := range planSettings {
			if i > 0 && rng.IntN(2) == 0 {
				off = append(off, s)
			}
		}
		for _, mode := range []string{"force_generic_plan", "force_custom_plan"} {
			settings := "SAVEPOINT before; SET LOCAL jit = off; SET LOCAL plan_cache_mode = " + mode // jit is off on our connections
			for _, s := range off {
				settings += "; SET LOCAL enable_" + s + " = off"
			}
			_, err := tx.Exec(t.Context(), settings)
			require.NoError(t, err)
			try(tx, fmt.Sprintf("%s without %v", mode, off))
			_, err = tx.Exec(t.Context(), "ROLLBACK TO SAVEPOINT before") // also of the settings
			require.NoError(t, err)
		}
	}
}

func requireLimits(t *testing.T, tx pgx.Tx, f store.Fence, req *store.PageRequest, fires, reads int, what string) {
	t.Helper()
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
