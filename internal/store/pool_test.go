package store_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

func TestVerify(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	db, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = store.Verify(t.Context(), db, "main", store.ToRun)
	require.ErrorIs(t, err, store.ErrNotMigrated)
	var refused *store.PoolError
	require.ErrorAs(t, err, &refused)
	require.EqualError(t, err, "pool main: has no ledger: run: tenure migrate --pool main; if the pool had jobs, restore it first, as they and its number are gone")
	require.NoError(t, storetest.Prepare(t.Context(), dsn, "main", 7))
	n, err := store.Verify(t.Context(), db, "main", store.ToRun)
	require.NoError(t, err)
	require.Equal(t, 7, n)
	_, err = store.Verify(t.Context(), db, "other", store.ToRun)
	require.ErrorContains(t, err, `says that it is pool "main"`)
	newer, err := db.Begin(t.Context())
	require.NoError(t, err)
	_, err = newer.Exec(t.Context(), "INSERT INTO tenure.migration (version_id, is_applied) VALUES (9999, true)")
	require.NoError(t, err)
	n, err = store.Verify(t.Context(), newer, "main", store.ToRun)
	require.NoError(t, err, "a newer ledger that lets this program in")
	require.Equal(t, 7, n)
	_, err = newer.Exec(t.Context(), "UPDATE tenure.pool SET oldest_program = 9999")
	require.NoError(t, err)
	_, err = store.Verify(t.Context(), newer, "main", store.ToRun)
	require.EqualError(t, err, fmt.Sprintf("pool main: its ledger has version 9999, which only programs for version 9999 or newer can work on; this one is for version %d: run the newer tenure",
		store.LedgerVersion()))
	require.NoError(t, newer.Rollback(t.Context()))
	for change, says := range map[string]string{
		"ALTER TABLE tenure.acquire_lock SET UNLOGGED":                                                                                  "UNLOGGED",
		"ALTER TABLE tenure.acquire_lock DROP CONSTRAINT acquire_lock_name_epoch_key":                                                   "lost UNIQUE",
		"ALTER TABLE tenure.pool DROP COLUMN oldest_program; INSERT INTO tenure.migration (version_id, is_applied) VALUES (9999, true)": "only programs for version 9999 or newer",
		"UPDATE tenure.migration SET is_applied = false":                                                                                "has no ledger",
	} {
		tx, err := db.Begin(t.Context())
		require.NoError(t, err)
		_, err = tx.Exec(t.Context(), change)
		require.NoError(t, err)
		_, err = store.Verify(t.Context(), tx, "main", store.ToRun)
		require.ErrorContains(t, err, says)
		require.NoError(t, tx.Rollback(t.Context()))
	}
}

// Citus's catalogs, as it lays them out, on a server without it.
func TestCitusIsRefused(t *testing.T) {
	t.Parallel()
	conn := connectTo(t, storetest.DSN(t, "main", 1))
	verified := func() error {
		_, err := store.Verify(t.Context(), conn, "main", store.ToRun)
		return err
	}
	execute(t, conn, `SET allow_system_table_mods = on;
		CREATE TABLE pg_catalog.pg_dist_local_group (groupid integer);
		CREATE TABLE pg_catalog.pg_dist_node (nodeid integer, groupid integer);
		CREATE TABLE pg_catalog.pg_dist_partition (logicalrelid regclass);
		INSERT INTO pg_catalog.pg_dist_local_group VALUES (0)`)
	require.NoError(t, verified(), "the extension alone")
	execute(t, conn, "INSERT INTO pg_catalog.pg_dist_node VALUES (1, 0), (2, 1)")
	require.ErrorContains(t, verified(), "pool main: its database is the coordinator of a Citus cluster")
	require.ErrorContains(t, migrate(t.Context(), t, conn.Config().ConnString()), "make each worker node a pool, with citus.enable_ddl_propagation=off")
	execute(t, conn, "UPDATE pg_catalog.pg_dist_local_group SET groupid = 1")
	require.NoError(t, verified(), "a worker node")
	execute(t, conn, "INSERT INTO pg_catalog.pg_dist_partition VALUES ('tenure.job')")
	require.ErrorContains(t, verified(), "its schema tenure has tables that Citus distributes")
	execute(t, conn, "CREATE TABLE pg_catalog.pg_dist_schema (schemaid oid); INSERT INTO pg_catalog.pg_dist_schema VALUES ('tenure'::regnamespace)")
	require.ErrorContains(t, verified(), "its database has schemas that Citus distributes")
}

// Servers that are not at hand to be tried.
func TestUsable(t *testing.T) {
	t.Parallel()
	fine := store.Identity{Version: 14_00_00, Encoding: "UTF8", StandardString: true, Triggers: true, LockLogged: true, LockKeyed: true}
	require.NoError(t, fine.Usable("p"))
	for says, change := range map[string]func(*store.Identity){
		"pool p: PostgreSQL 13 is too old: 14 or newer is needed":                                               func(i *store.Identity) { i.Version = 13_22_00 },
		"pool p: the server is a standby: point the DSN at the primary, or add target_session_attrs=read-write": func(i *store.Identity) { i.Standby = true },
		"pool p: its encoding is LATIN1: use a database created with ENCODING 'UTF8'":                           func(i *store.Identity) { i.Encoding = "LATIN1" },
	} {
		i := fine
		change(&i)
		require.EqualError(t, i.Usable("p"), says)
	}
	for version, risky := range map[int]bool{140013: true, 140014: false, 150008: true, 150018: false, 170000: true, 170001: false, 180000: false} {
		require.Equal(t, risky, store.Risks{Version: version}.LosesRole(), version)
	}
}
