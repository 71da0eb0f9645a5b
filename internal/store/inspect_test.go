package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// What an operator asks is planned freely on a connection that is set up for job SQL, and
// the next statement on it as before.
func TestInspect(t *testing.T) {
	t.Parallel()
	b := setup(t)
	conn, err := b.db.Acquire(t.Context())
	require.NoError(t, err)
	defer conn.Release()
	_, err = conn.Exec(t.Context(), "SET enable_seqscan = off; SET enable_hashjoin = off; SET plan_cache_mode = force_generic_plan")
	require.NoError(t, err)
	planned := func(db store.DB) (settings [3]string) {
		for i, name := range []string{"enable_seqscan", "enable_hashjoin", "plan_cache_mode"} {
			require.NoError(t, db.QueryRow(t.Context(), "SELECT current_setting($1)", name).Scan(&settings[i]))
		}
		return settings
	}
	before := planned(conn)
	require.NoError(t, store.Inspect(t.Context(), conn, func(db store.DB) error {
		require.Equal(t, [3]string{"on", "on", "force_custom_plan"}, planned(db))
		_, err := db.Exec(t.Context(), "DELETE FROM tenure.job")
		require.ErrorContains(t, err, "read-only")
		return nil
	}))
	require.Equal(t, before, planned(conn))
}
