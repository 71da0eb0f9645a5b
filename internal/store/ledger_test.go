package store_test

import (
	"context"
	"flag"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

var updateSchema = flag.Bool("update", false, "write schema.sql anew")

// schemaOf is what a ledger is made of.
func schemaOf(t *testing.T, conn *pgx.Conn) (text string) {
	sql, err := os.ReadFile("testdata/schema_of.sql")
	require.NoError(t, err)
	require.NoError(t, conn.QueryRow(t.Context(), string(sql)).Scan(&text))
	return text
}

// TestSchema: an empty database and a ledger of the version before become the same, which schema.sql shows.
func TestSchema(t *testing.T) {
	t.Parallel()
	fresh := pgtest.Database(t)
	require.NoError(t, migrate(t.Context(), t, fresh))
	have := schemaOf(t, connectTo(t, fresh))
	const file = "schema.sql"
	text := "-- The ledger as it is now, for people to read and compare: it is executed nowhere. Behind a function stands the md5 of\n" +
		"-- its definition. Written by: go test ./internal/store -run TestSchema -update\n\n" + have + "\n"
	if *updateSchema {
		require.NoError(t, os.WriteFile(file, []byte(text), 0o644))
	}
	want, err := os.ReadFile(file)
	require.NoError(t, err)
	requireLines(t, string(want), text, "run: go test ./internal/store -run TestSchema -update")

	before, conn := ledgerAt(t, 55)
	require.NoError(t, migrate(t.Context(), t, before))
	requireLines(t, have, schemaOf(t, conn), "an upgraded ledger is another")
}

// requireLines compares texts of many lines, and says which are others.
func requireLines(t *testing.T, want, have, said string) {
	t.Helper()
	only := func(in, other string) []string {
		others := strings.Split(other, "\n")
		return slices.DeleteFunc(strings.Split(in, "\n"), func(line string) bool { return slices.Contains(others, line) })
	}
	require.Equal(t, only(want, have), only(have, want), said)
	require.True(t, want == have, said)
}

// TestFunctionsAreMadeAgain when their text has changed, and no others; what programs of before may call stays. One that
// takes another argument takes the other's place: who calls it, and who may, does not notice.
func TestFunctionsAreMadeAgain(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	conn := connectTo(t, dsn)
	keeper := role(t, conn, "keeper", "")
	execute(t, conn, `DO $$ DECLARE f regprocedure; BEGIN
		FOR f IN SELECT oid FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace LOOP EXECUTE format('ALTER FUNCTION %s OWNER TO `+keeper+`', f); END LOOP;
	END $$; REVOKE EXECUTE ON FUNCTION tenure.enqueue FROM PUBLIC; GRANT EXECUTE ON FUNCTION tenure.enqueue TO `+keeper+` WITH GRANT OPTION;
	GRANT ALL ON ALL TABLES IN SCHEMA tenure TO `+keeper+`; GRANT ALL ON ALL SEQUENCES IN SCHEMA tenure TO `+keeper)
	access := func() (text string) {
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT string_agg(format('%s %s %s', proname, proowner, proacl), ' ' ORDER BY proname, pronargs) FROM pg_proc WHERE pronamespace = 'tenure'::regnamespace AND proname NOT LIKE 'added%'").Scan(&text))
		return text
	}
	before := access()
	execute(t, conn, "CREATE FUNCTION public.enqueues() RETURNS void LANGUAGE plpgsql AS $$ BEGIN PERFORM tenure.enqueue('acme', 'k', delay => '1 s'); END $$")
	execute(t, conn, "SELECT enqueues()")
	changed := func() bool {
		ledger, err := store.ReadLedger(t.Context(), conn)
		require.NoError(t, err)
		require.False(t, ledger.Changed && ledger.UpToDate())
		return ledger.Changed
	}
	require.False(t, changed())
	never, err := store.LedgerFiles.ReadFile("functions/never.sql")
	require.NoError(t, err)
	next := map[string]string{
		"functions/never.sql":    strings.Replace(string(never), "2300", "2301", 1),
		"functions/enqueue.sql":  strings.Replace(enqueueText(t), "OUT id ", "added text DEFAULT NULL, OUT id ", 1),
		"functions/added.sql":    "CREATE OR REPLACE FUNCTION tenure.added() RETURNS bigint LANGUAGE sql SECURITY DEFINER AS 'SELECT count(*) FROM tenure.added_table';\nREVOKE EXECUTE ON FUNCTION tenure.added FROM PUBLIC;\n",
		"ledger/9000_added.sql":  "CREATE TABLE tenure.added_table (); CREATE VIEW tenure.added_view AS SELECT tenure.added() AS n;",
		"ledger/9001_failed.sql": "SELECT 1 / 0;",
	}
	done, err := store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
	require.ErrorContains(t, err, "9001_failed.sql: ERROR: division by zero")
	require.Equal(t, []string{"9000_added.sql"}, names(done), "what was done before stays")
	var year int
	const yearOfNever = "SELECT extract(year FROM tenure.never())::integer"
	require.NoError(t, conn.QueryRow(t.Context(), yearOfNever).Scan(&year))
	require.Equal(t, 2300, year, "functions that are in use change behind the steps")
	next["ledger/9001_failed.sql"] = "-- mended"
	done, err = store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
	require.NoError(t, err)
	require.Equal(t, []string{"9001_failed.sql", "functions added, enqueue, never"}, names(done))
	require.NoError(t, conn.QueryRow(t.Context(), yearOfNever).Scan(&year))
	require.Equal(t, 2301, year)
	require.Equal(t, before, access(), "whose they are, and who may execute them, stays")
	execute(t, conn, "BEGIN; SELECT tenure.enqueue('acme', 'k', added => 'x'), enqueues()")
	next["functions/never.sql"] = strings.Replace(string(never), "2300", "2302", 1)
	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, err = store.MigrateTo(ctx, migrationConfig(t, dsn), next)
	require.Error(t, err, "it waits for who is at the door, and may go on with a function that it drops")
	execute(t, conn, "COMMIT")
	done, err = store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
	require.NoError(t, err)
	require.Equal(t, []string{"functions never"}, names(done))
	var owner string
	var public bool
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pg_get_userbyid(proowner), EXISTS (SELECT FROM aclexplode(proacl) a WHERE a.grantee = 0) FROM pg_proc WHERE oid = 'tenure.added()'::regprocedure").Scan(&owner, &public))
	require.Equal(t, keeper, owner, "with his rights it is executed")
	require.False(t, public)

	require.NoError(t, migrate(t.Context(), t, dsn))
	require.NoError(t, conn.QueryRow(t.Context(), yearOfNever).Scan(&year))
	require.Equal(t, 2302, year, "a newer ledger keeps its own")
	execute(t, conn, "DELETE FROM tenure.migration WHERE version_id >= 9000")
	require.True(t, changed())
	require.NoError(t, migrate(t.Context(), t, dsn))
	require.NoError(t, conn.QueryRow(t.Context(), yearOfNever).Scan(&year))
	require.Equal(t, 2300, year)
	require.False(t, changed())
	execute(t, conn, "SELECT tenure.enqueue('acme', 'k'), enqueues()")
	execute(t, conn, "DROP VIEW tenure.added_view")
}

func enqueueText(t *testing.T) string {
	text, err := store.LedgerFiles.ReadFile("functions/enqueue.sql")
	require.NoError(t, err)
	return string(text)
}

func names(steps []store.Migration) (names []string) {
	for _, s := range steps {
		names = append(names, s.Name)
	}
	return names
}

// TestALedgerOfLongAgoIsRefused, and what brings it to where this program leads on.
func TestALedgerOfLongAgoIsRefused(t *testing.T) {
	t.Parallel()
	dsn, conn := ledgerAt(t, 55)
	execute(t, conn, "DELETE FROM tenure.migration WHERE version_id > 41")
	err := migrate(t.Context(), t, dsn)
	require.ErrorContains(t, err, "pool main: its ledger has version 41, from which this program does not lead on: it does from version 55: migrate it first with a program for that version, which docs/upgrades.md names")
}
