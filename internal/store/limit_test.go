package store_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
	"time"

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

	_, err = b.db.Exec(t.Context(), "UPDATE tenure.acquire_lock SET expires_at = now() + interval '1 d'")
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
		fmt.Sprintf("UPDATE tenure.node_session SET state = 'dead' WHERE session_id = '%s'; UPDATE tenure.acquire_lock SET expires_at = now() + interval '1 d'", dead),
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

// Those who change limits count that, and no one else who takes jobs away: else every removal would have
// the holder read the limits again.
func TestOnlyChangesOfLimitsAreCounted(t *testing.T) {
	t.Parallel()
	b := setup(t)
	changes := func() int64 {
		s, err := store.ReadLimits(t.Context(), b.db, nil)
		require.NoError(t, err)
		require.Equal(t, s.Changes, b.page(t, 0).Limits)
		return s.Changes
	}
	id := b.enqueue(t, store.NewJob{})
	before := b.page(t, 0).Removals
	_, err := store.Cancel(t.Context(), b.db, id, true)
	require.NoError(t, err)
	require.NoError(t, store.FreezeTenant(t.Context(), b.db, "other", true))
	require.Equal(t, before+2, b.page(t, 0).Removals)
	require.Zero(t, changes())
	require.NoError(t, store.LimitTenant(t.Context(), b.db, "acme", 4))
	require.EqualValues(t, 1, changes())
	require.NoError(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: store.LimitKey{Tenant: "acme", Scope: store.ScopeKind, Name: "k"}, Most: 1}))
	require.EqualValues(t, 2, changes())
	require.Equal(t, before+4, b.page(t, 0).Removals, "and what was read before is void")
}

// Lifting a limit adds no tenant; and a number below 1, as somebody may have written, counts as 1
// wherever limits are looked at.
func TestLimitsOfTenants(t *testing.T) {
	t.Parallel()
	b := setup(t)
	tenants := func() (n int) {
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT count(*) FROM tenure.tenant").Scan(&n))
		return n
	}
	of := store.LimitKey{Tenant: "acme", Scope: store.ScopeTenant}
	require.NoError(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: of, Rate: 1, Per: time.Second, Burst: 1}))
	require.NoError(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: of}))
	require.Zero(t, tenants())
	limit := store.Limit{LimitKey: of, Most: 3}
	require.NoError(t, store.SetLimit(t.Context(), b.db, limit))
	all, err := store.Limits(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Limit{limit}, all)
	require.NoError(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: of}))
	all, err = store.Limits(t.Context(), b.db)
	require.NoError(t, err)
	require.Empty(t, all)
	require.ErrorIs(t, store.SetLimit(t.Context(), b.db, store.Limit{LimitKey: of}), store.ErrNoLimit)

	execute(t, b.owner, "UPDATE tenure.tenant SET max_running = 0")
	limit.Most = 1
	all, err = store.Limits(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Limit{limit}, all)
	id := b.enqueue(t, store.NewJob{})
	why, err := store.LimitsOf(t.Context(), b.db, store.Status{ID: id}, nil)
	require.NoError(t, err)
	require.Equal(t, []store.LimitRow{{Limit: limit}}, why)
	shown, err := store.LimitRows(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.Equal(t, []store.LimitRow{{Limit: limit}}, shown)
}

// Buckets are forgotten without waiting for a claim that writes some of them, which may just wait for
// others.
func TestForgettingBucketsWaitsForNobody(t *testing.T) {
	t.Parallel()
	b := setup(t)
	execute(t, b.owner, "INSERT INTO tenure.rate_bucket (tenant_id, scope, name, full_at) SELECT 't' || n, 'kind', 'k', clock_timestamp() - make_interval(mins => n) FROM generate_series(0, 3) n")
	tx, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(context.WithoutCancel(t.Context())) // it ends here in any case
	_, err = tx.Exec(t.Context(), "UPDATE tenure.rate_bucket SET full_at = now() WHERE tenant_id = 't2'")
	require.NoError(t, err)
	require.NoError(t, pgx.BeginFunc(t.Context(), b.owner, func(forgets pgx.Tx) error {
		_, err := forgets.Exec(t.Context(), "SET LOCAL lock_timeout = '1ms'") // else it would wait for as long as this test
		if err != nil {
			return err
		}
		return store.ForgetBuckets(t.Context(), forgets)
	}))
	var left string
	require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT string_agg(tenant_id, ' ' ORDER BY tenant_id) FROM tenure.rate_bucket").Scan(&left))
	require.Equal(t, "t0 t2", left)
}

// Limits are read at the cost of the jobs in flight, and not once for each tenant that has one.
func TestReadingLimitsCostsWhatIsInFlight(t *testing.T) {
	t.Parallel()
	const limited, claims, of = 200, 20, 100
	b := setup(t)
	for _, sql := range []string{
		"INSERT INTO tenure.tenant (tenant_id, max_running) SELECT 't' || n, 5 FROM generate_series(1, $1) n",
		"INSERT INTO tenure.job (id, turn, tenant_id, queue, kind, payload) SELECT n, 1, 't' || n % 300, 'default', 'k', '{}' FROM generate_series(1, 20 * $1) n",
	} {
		_, err := b.owner.Exec(t.Context(), sql, limited)
		require.NoError(t, err)
	}
	_, err := b.owner.Exec(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids) SELECT $1, 1, array_agg(c * $3 + n) FROM generate_series(0, $2::int - 1) c, generate_series(1, $3) n GROUP BY c", b.fence.Session, claims, of)
	require.NoError(t, err)
	s, err := store.ReadLimits(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.Len(t, s.Limits, limited)
	flying := 0
	for _, f := range s.Flying {
		require.Len(t, f.Turns, len(f.IDs))
		flying += len(f.IDs)
	}
	require.Equal(t, 1400, flying, "those of 200 of 300 tenants, of 2000 jobs")

	text, err := os.ReadFile("queries/limit_flying.sql")
	require.NoError(t, err)
	type node struct {
		Rows  float64 `json:"Actual Rows"`
		Loops float64 `json:"Actual Loops"`
		Plans []node
	}
	var rows func(n node) float64
	rows = func(n node) (sum float64) {
		for _, part := range n.Plans {
			sum += rows(part)
		}
		return sum + n.Rows*n.Loops
	}
	handled := func() float64 {
		var plan []struct{ Plan node }
		require.NoError(t, b.owner.QueryRow(t.Context(), "EXPLAIN (ANALYZE, FORMAT JSON) "+string(text), []string(nil), []string(nil)).Scan(&plan))
		return rows(plan[0].Plan)
	}
	require.Less(t, handled(), 10.0*claims*of)
	_, err = b.owner.Exec(t.Context(), "UPDATE tenure.tenant SET max_running = NULL")
	require.NoError(t, err)
	require.Less(t, handled(), 10.0, "no tenant has one")
}
