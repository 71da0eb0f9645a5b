package store_test

import (
	"slices"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// Whose turn it is under a key: a job that is tried again, else the first in the queue, over
// lanes; unless one waits for its next attempt.
func TestKeyHeads(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func(tenant, key string, priority int16, attempt int) (position int64) {
		require.NoError(t, b.owner.QueryRow(t.Context(), `INSERT INTO tenure.job (tenant_id, queue, kind, payload, priority, attempt, exclusive_key)
			VALUES ($1, 'default', 'k', '{}', $2, $3, $4) RETURNING position`, tenant, priority, attempt, key).Scan(&position))
		return position
	}
	var from int64
	heads := func(names ...string) map[store.Key]store.KeyHead {
		keys := make([]store.Key, len(names))
		for i, n := range names {
			keys[i] = store.Key{Tenant: "t1", Name: n}
		}
		out, err := store.KeyHeads(t.Context(), b.db, keys, slices.Repeat([]int64{from}, len(keys)))
		require.NoError(t, err)
		return out
	}
	a, c := store.Key{Tenant: "t1", Name: "a"}, store.Key{Tenant: "t1", Name: "c"}
	add("t2", "a", 0, 0)
	first := add("t1", "a", 0, 0)
	lane := func(priority int16) store.Lane { return store.Lane{Queue: "default", Tenant: "t1", Priority: priority} }
	require.Equal(t, map[store.Key]store.KeyHead{a: {Lane: lane(0), Position: first, Kind: "k"}}, heads("a", "none"))
	add("t1", "a", 5, 0)
	alone := add("t1", "c", 7, 0)
	require.Equal(t, map[store.Key]store.KeyHead{a: {Lane: lane(0), Position: first, Kind: "k", Followed: true}, c: {Lane: lane(7), Position: alone, Kind: "k"}}, heads("a", "c"))

	_, err := b.owner.Exec(t.Context(), `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, attempt, exclusive_key, due_at)
		VALUES ('t1', 'default', 'k', '{}', 0, 'a', '9999-12-31'), ('t1', 'default', 'k', '{}', 1, 'c', '9999-12-31'), ('t2', 'default', 'k', '{}', 1, 'a', '9999-12-31')`)
	require.NoError(t, err)
	require.False(t, heads("a")[a].Retrying, "one that has not run yet has no place")
	require.True(t, heads("c")[c].Retrying)
	again := add("t1", "c", 0, 1)
	require.Equal(t, store.KeyHead{Lane: lane(0), Position: again, Kind: "k", Again: true, Followed: true}, heads("c")[c], "it is its turn")

	from = again + 1
	require.Equal(t, store.KeyHead{Lane: lane(0), Position: again, Kind: "k", Again: true}, heads("c")[c], "wherever it stands, but not the other one")
	require.NotContains(t, heads("a"), a)
	later := add("t1", "a", 0, 0)
	require.Equal(t, store.KeyHead{Lane: lane(0), Position: later, Kind: "k"}, heads("a")[a])
}

// Jobs that are added one by one, together or by SQL have the key they were given, also if they are
// for later.
func TestEnqueueKeepsExclusiveKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := func(key string, later bool) store.NewJob {
		j := store.NewJob{Tenant: "t1", Queue: "default", Kind: "k", Payload: []byte("{}"), ExclusiveKey: key}
		if later {
			j.DueIn = 1e12
		}
		return j
	}
	for _, later := range []bool{false, true} {
		j := one("single", later)
		_, _, err := store.Enqueue(t.Context(), b.db.QueryRow, 1, &j)
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(t.Context(), b.owner, func(tx pgx.Tx) error {
			return store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{one("many", later), one("", later)})
		}))
	}
	_, err := b.owner.Exec(t.Context(), "SELECT tenure.enqueue(tenant => 't1', kind => 'k', exclusive_key => 'sql')")
	require.NoError(t, err)
	for table, want := range map[string][]string{"job": {"", "many", "single", "sql"}, "timer_job": {"", "many", "single"}} {
		rows, err := b.owner.Query(t.Context(), "SELECT coalesce(exclusive_key, '') FROM tenure."+table+" ORDER BY 1")
		require.NoError(t, err)
		keys, err := pgx.CollectRows(rows, pgx.RowTo[string])
		require.NoError(t, err)
		require.Equal(t, want, keys, table)
	}
	_, err = b.owner.Exec(t.Context(), "SELECT tenure.enqueue(tenant => 't1', kind => 'k', exclusive_key => '')")
	require.ErrorContains(t, err, "exclusive_key: 1 to 1024 bytes are allowed")
}
