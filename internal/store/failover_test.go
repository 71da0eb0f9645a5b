package store_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
)

// After a fail-over that lost commits, a number can name another session's claim: what
// a node still reports must leave it alone.
func TestANumberOfAnotherSession(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue(t, store.NewJob{})
	claim := b.claim(t, b.page(t, 0))[0]
	other := uuid.New()
	require.NoError(t, store.ReleaseClaims(t.Context(), b.db, other, []int64{claim}))
	require.NoError(t, store.ReturnUnstarted(t.Context(), b.db, other, []int64{claim}, []int64{int64(id)}))
	_, err := store.Finish(t.Context(), b.db, store.Runner{Session: other, Node: "x"}, true, nil, []int64{claim})
	require.NoError(t, err)
	standing, err := store.Claims(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, []store.Claim{{ID: claim, Session: b.fence.Session, Jobs: []job.ID{id}}}, standing)
}

// A promoted standby gives the ids of jobs out again that it never heard of: the new
// ones have other turns than those had.
func TestTurnsAreHigherAfterAPromotion(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{})
	require.NoError(t, server.CreateDatabase(t.Context(), "p1"))
	require.NoError(t, storetest.Prepare(t.Context(), server.DSN("p1"), "p1", 1))
	db, err := pgxpool.New(t.Context(), server.DSN("p1"))
	require.NoError(t, err)
	defer db.Close()
	turns := func() (out []int32) {
		id, _, err := store.Enqueue(t.Context(), db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1")})
		require.NoError(t, err)
		require.NoError(t, pgx.BeginFunc(t.Context(), db, func(tx pgx.Tx) error {
			_, err := store.EnqueueMany(t.Context(), tx, 1, []store.NewJob{
				{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1")},
				{Tenant: "acme", Queue: "default", Kind: "k", Payload: []byte("1"), DueIn: time.Hour}})
			return err
		}))
		rows, err := db.Query(t.Context(), "SELECT turn FROM tenure.job WHERE id >= $1 UNION ALL SELECT turn FROM tenure.timer_job WHERE id >= $1", id)
		require.NoError(t, err)
		out, err = pgx.CollectRows(rows, pgx.RowTo[int32])
		require.NoError(t, err)
		return out
	}
	require.Equal(t, []int32{0, 0, 0}, turns())

	var data string
	require.NoError(t, db.QueryRow(t.Context(), "SHOW data_directory").Scan(&data))
	require.NoError(t, os.WriteFile(filepath.Join(data, "standby.signal"), nil, 0o644))
	require.NoError(t, server.Restart(t.Context(), false))
	db.Reset()
	var promoted bool
	require.NoError(t, db.QueryRow(t.Context(), "SELECT pg_promote()").Scan(&promoted))
	require.True(t, promoted)
	require.Equal(t, []int32{4096, 4096, 4096}, turns())
}
