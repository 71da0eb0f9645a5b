package store_test

import (
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// tuned is the bundle's database by connections with the settings of those for job SQL, of which
// the plans depend: every statement walks an index.
func tuned(t testing.TB, l *bundle) *pgxpool.Pool {
	cfg := l.db.Config()
	for _, s := range []string{"enable_seqscan", "enable_bitmapscan", "enable_hashjoin", "enable_mergejoin", "jit"} {
		cfg.ConnConfig.RuntimeParams[s] = "off"
	}
	cfg.ConnConfig.RuntimeParams["plan_cache_mode"] = "force_generic_plan"
	db, err := pgxpool.NewWithConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	return db
}

// BenchmarkFireTimers fires timers of one tenant, as when a million of them are due at midnight.
func BenchmarkFireTimers(b *testing.B) {
	for name, fire := range map[string]func(store.DB, store.Fence, int) ([]store.Fired, error){
		"first due": func(db store.DB, f store.Fence, n int) ([]store.Fired, error) {
			return store.FireTimers(b.Context(), db, f, n)
		},
		"share": func(db store.DB, f store.Fence, n int) ([]store.Fired, error) {
			return store.FireTimersOf(b.Context(), db, f, []string{"acme"}, n)
		},
	} {
		b.Run(name, func(b *testing.B) {
			const slice = 500
			l := setup(b)
			_, err := l.owner.Exec(b.Context(), `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
				SELECT 'acme', 'default', 'k', '{}', clock_timestamp() FROM generate_series(1, $1::int)`, b.N*slice)
			require.NoError(b, err)
			_, err = l.owner.Exec(b.Context(), "UPDATE tenure.acquire_lock SET expires_at = now() + interval '1 d'")
			require.NoError(b, err)
			db := tuned(b, l)
			b.ResetTimer()
			for range b.N {
				fired, err := fire(db, l.fence, slice)
				require.NoError(b, err)
				require.Equal(b, slice, fired[0].Count)
			}
			b.ReportMetric(float64(b.N)*slice/b.Elapsed().Seconds(), "timers/s")
		})
	}
}
