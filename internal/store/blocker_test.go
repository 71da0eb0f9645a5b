package store

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

// A migration that has waited in vain names whose transaction it waited for: also one that has
// nothing to do with the ledger, which an index waits for that is made while jobs run.
func TestWhatAMigrationWaitsForIsNamed(t *testing.T) {
	t.Parallel()
	cfg, err := pgx.ParseConfig(pgtest.Database(t))
	require.NoError(t, err)
	db, err := pgx.ConnectConfig(t.Context(), cfg)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, db.Close(context.Background())) })
	_, err = db.Exec(t.Context(), "CREATE SCHEMA tenure; CREATE TABLE tenure.job (id bigint)")
	require.NoError(t, err)
	begin := func(application, sql string) {
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(context.Background()) })
		for _, sql := range []string{"SET application_name = '" + application + "'", "BEGIN ISOLATION LEVEL REPEATABLE READ", sql} {
			_, err := conn.Exec(t.Context(), sql)
			require.NoError(t, err)
		}
	}
	require.Equal(t, "other transactions use the ledger's tables all the time", blockerOf(t.Context(), db))
	begin("report", "SELECT 1 FROM pg_class")
	require.Regexp(t, `^a transaction of user ".+" and application "report" \(pid [0-9]+\) has been open in this database for [0-9]+s$`, blockerOf(t.Context(), db))
	begin("backup", "SELECT 1 FROM tenure.job")
	require.Regexp(t, `and application "backup" \(pid [0-9]+\) has used the ledger's tables for [0-9]+s$`, blockerOf(t.Context(), db))
	holder := func() string {
		conn, err := pgx.ConnectConfig(t.Context(), cfg)
		require.NoError(t, err)
		defer conn.Close(context.Background())
		return holderOf(t.Context(), conn, "tenure.job")
	}
	require.Equal(t, "others have held tenure.job one after the other", holder())
	begin("another migrate", "LOCK TABLE tenure.job IN SHARE UPDATE EXCLUSIVE MODE")
	require.Regexp(t, `^user ".+" with application "another migrate" \(pid [0-9]+\) has held tenure.job for [0-9]+s$`, holder())
}
