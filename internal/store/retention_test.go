package store_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

func TestKeepDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.db.Exec(t.Context(), "CREATE TABLE tenure.mine (id int)")
	require.ErrorContains(t, err, "permission denied", "it makes no table by itself")
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	_, err = b.owner.Exec(t.Context(), `CREATE TABLE tenure.completed_job_20200101 PARTITION OF tenure.completed_job
		FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	require.NoError(t, err)
	require.NoError(t, store.KeepDays(t.Context(), b.db, 24*time.Hour))
	var n int
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass").Scan(&n))
	require.Equal(t, 4, n, "today, two days ahead and the default")
}
