package store_test

import (
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/devpg/poolertest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// ledgerAt returns a database with the ledger of an earlier version, numbered, and a connection to it.
func ledgerAt(t *testing.T, version int64) (dsn string, conn *pgx.Conn) {
	dsn = pgtest.Database(t)
	conn = connectTo(t, dsn)
	text, err := os.ReadFile(fmt.Sprintf("testdata/ledger%d.sql", version))
	require.NoError(t, err)
	_, err = conn.Exec(t.Context(), "BEGIN; "+string(text)+"; COMMIT")
	require.NoError(t, err)
	_, err = store.NumberPool(t.Context(), conn, 1, "main")
	require.NoError(t, err)
	return dsn, conn
}

func connectTo(t *testing.T, dsn string) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

func migrate(ctx context.Context, t *testing.T, dsn string) error {
	_, err := store.Migrate(ctx, migrationConfig(t, dsn), "main", 1, nil)
	return err
}

func migrationConfig(t *testing.T, dsn string) *pgx.ConnConfig {
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	store.MigrationConfig(cfg)
	return cfg
}

// described is what a program relies on in a statement: its parameters' and columns' types.
func described(t *testing.T, conn *pgx.Conn, file string) string {
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	d, err := conn.PgConn().Prepare(t.Context(), "", string(text), nil)
	require.NoError(t, err, "%s cannot be executed on this ledger", file)
	var out strings.Builder
	fmt.Fprint(&out, d.ParamOIDs)
	for _, f := range d.Fields {
		fmt.Fprintf(&out, " %s:%d", f.Name, f.DataTypeOID)
	}
	return out.String()
}

// Programs of earlier releases, of which testdata/ledgerN keeps the statements, work on the
// newest ledger, unless its oldest_program says that they must not. docs/upgrades.md says
// what to do when this fails.
func TestEarlierProgramsWorkOnTheNewestLedger(t *testing.T) {
	t.Parallel()
	newest := connectTo(t, storetest.DSN(t, "main", 1))
	var oldest int64
	require.NoError(t, newest.QueryRow(t.Context(), "SELECT oldest_program FROM tenure.pool").Scan(&oldest))
	require.Less(t, oldest, store.LedgerVersion(), "at least the programs of the release before can work on a ledger")
	require.DirExists(t, fmt.Sprintf("testdata/ledger%d", oldest), "the statements of the oldest programs that the ledger admits are kept")
	folders, err := filepath.Glob("testdata/ledger*[0-9]")
	require.NoError(t, err)
	for _, folder := range folders {
		version, err := strconv.ParseInt(strings.TrimPrefix(filepath.Base(folder), "ledger"), 10, 64)
		require.NoError(t, err)
		if version < oldest {
			continue
		}
		_, old := ledgerAt(t, version)
		files, err := filepath.Glob(folder + "/*.sql")
		require.NoError(t, err)
		require.Greater(t, len(files), 40)
		for _, f := range files {
			require.Equal(t, described(t, old, f), described(t, newest, f), "%s: other types than on ledger %d", f, version)
		}
		requireColumnsKept(t, old, newest)
	}
}

// requireColumnsKept compares what no PREPARE finds out: an INSERT of an earlier program
// fails if a column has become NOT NULL, or a new one is and has no default.
func requireColumnsKept(t *testing.T, old, newest *pgx.Conn) {
	const tables = `SELECT c.relname || '.' || a.attname, a.attnotnull AND NOT a.atthasdef AND a.attidentity = ''
		FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
		WHERE c.relnamespace = 'tenure'::regnamespace AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND NOT a.attisdropped`
	needed := func(conn *pgx.Conn) (columns map[string]bool, known map[string]bool) {
		columns, known = map[string]bool{}, map[string]bool{}
		rows, err := conn.Query(t.Context(), tables)
		require.NoError(t, err)
		for rows.Next() {
			var column string
			var must bool
			require.NoError(t, rows.Scan(&column, &must))
			table, _, _ := strings.Cut(column, ".")
			columns[column], known[table] = must, true
		}
		require.NoError(t, rows.Err())
		return columns, known
	}
	before, tablesBefore := needed(old)
	after, _ := needed(newest)
	for column, must := range after {
		if table, _, _ := strings.Cut(column, "."); must && tablesBefore[table] {
			require.True(t, before[column], "tenure.%s must be given a value, which earlier programs do not give", column)
		}
	}
}

// While a transaction stays open that has enqueued a job, a migration of what it has used
// waits; and those who enqueue jobs then do not wait behind the migration.
func TestMigrateHoldsUpNobody(t *testing.T) {
	t.Parallel()
	dsn, conn := ledgerAt(t, 55)
	open, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "SELECT FROM tenure.pool")
	require.NoError(t, err)
	migrated := make(chan error, 1)
	go func() { migrated <- migrate(t.Context(), t, dsn) }()

	other := connectTo(t, dsn)
	waiting := func() (yes bool) {
		require.NoError(t, other.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE a.datname = current_database() AND a.application_name = 'tenure migrate' AND NOT l.granted)`).Scan(&yes))
		return yes
	}
	for range 2 { // it tries again and again
		require.Eventually(t, waiting, 20*time.Second, time.Millisecond)
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		_, err := other.Exec(ctx, "SELECT FROM tenure.pool")
		cancel()
		require.NoError(t, err, "it stood behind the migration")
		require.Eventually(t, func() bool { return !waiting() }, 20*time.Second, time.Millisecond)
	}

	require.NoError(t, open.Commit(t.Context()))
	select {
	case err := <-migrated:
		require.NoError(t, err)
	case <-time.After(20 * time.Second):
		require.Fail(t, "the migration should go on")
	}
	_, err = store.Verify(t.Context(), other, "main", store.ToRun)
	require.NoError(t, err)
}

// A migration that gave up says which transaction was in its way.
func TestMigrateNamesWhatIsInItsWay(t *testing.T) {
	t.Parallel()
	dsn, conn := ledgerAt(t, 55)
	_, err := conn.Exec(t.Context(), "SET application_name = 'nightly report'")
	require.NoError(t, err)
	open, err := conn.Begin(t.Context())
	require.NoError(t, err)
	_, err = open.Exec(t.Context(), "SELECT FROM tenure.pool")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	failed := make(chan error, 1)
	go func() { failed <- migrate(ctx, t, dsn) }()
	other := connectTo(t, dsn)
	require.Eventually(t, func() (gaveUp bool) { // it asks who is in its way after its first try
		require.NoError(t, other.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_stat_activity
			WHERE datname = current_database() AND application_name = 'tenure migrate' AND state = 'idle' AND query LIKE '%pg_locks%')`).Scan(&gaveUp))
		return gaveUp
	}, 20*time.Second, time.Millisecond)
	cancel()
	err = <-failed
	require.ErrorContains(t, err, `application "nightly report"`)
}

// What somebody makes of a table's row type keeps that from being altered: a ledger of before is upgraded as soon as it
// is dropped, and says what it is.
func TestMigrateNamesWhatDependsOnTheLedger(t *testing.T) {
	t.Parallel()
	dsn, conn := ledgerAt(t, 55)
	execute(t, conn, "CREATE SCHEMA alpha; CREATE TABLE alpha.t (x tenure.pool); CREATE VIEW alpha.v AS SELECT number FROM tenure.pool")
	next := map[string]string{"ledger/9000_next.sql": "ALTER TABLE tenure.pool ADD COLUMN added integer NOT NULL DEFAULT 7;"}
	_, err := store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
	require.ErrorContains(t, err, "column x of table alpha.t depends on type tenure.pool; rule _RETURN on view alpha.v depends on column number of table tenure.pool; drop what is in the way")
	execute(t, conn, "DROP TABLE alpha.t")
	_, err = store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
	require.NoError(t, err, "a view keeps no column from being added")

	owner, tenant := asTenants(t) // on a ledger of today nobody can make any
	today := time.Now().UTC().Truncate(24 * time.Hour)
	execute(t, owner, "SELECT tenure.make_day('"+today.AddDate(0, 0, 9).Format(time.DateOnly)+"')")
	execute(t, tenant, "SET ROLE "+roleAcme)
	rows, err := owner.Query(t.Context(), "SELECT t.oid::regtype::text FROM pg_type t WHERE t.typnamespace = 'tenure'::regnamespace AND t.typtype = 'c'")
	require.NoError(t, err)
	types, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	require.Contains(t, types, "tenure.door")
	for _, of := range types {
		for _, sql := range []string{"CREATE TABLE acme.t (x %s)", "CREATE TABLE acme.t (x %s[])", "CREATE FUNCTION acme.f(%s) RETURNS integer LANGUAGE sql AS 'SELECT 1'", "CREATE DOMAIN acme.d AS %s"} {
			_, err := tenant.Exec(t.Context(), fmt.Sprintf(sql, of))
			require.Equal(t, "42501", code(err), "%s %s: %v", sql, of, err)
		}
	}
}

// Users of a ledger of before, whom nobody had to name, keep what they have, so that nodes of the release before go
// on, and are given nothing until somebody names them. A tenant's role that has as many rights cannot be named.
func TestAnUpgradeGuessesNobody(t *testing.T) {
	t.Parallel()
	dsn, owner := ledgerAt(t, 55)
	app, tenant := role(t, owner, "app", "LOGIN"), role(t, owner, "tenant", "LOGIN")
	execute(t, owner, "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA tenure TO "+app+", "+tenant)
	may := func(user, table string) (yes bool) {
		require.NoError(t, owner.QueryRow(t.Context(), "SELECT has_table_privilege($1, 'tenure.' || $2, 'SELECT')", user, table).Scan(&yes))
		return yes
	}
	require.NoError(t, migrate(t.Context(), t, dsn))
	execute(t, owner, "INSERT INTO tenure.tenant_role VALUES ('acme', '"+tenant+"')")
	for _, user := range []string{app, tenant} {
		require.True(t, may(user, "job"), "it is not for migrations to take rights away")
		require.False(t, may(user, "function_text"), "that is new")
	}
	require.NotEmpty(t, heldBy(t, owner, app))
	_, err := store.Grant(t.Context(), owner, tenant)
	require.ErrorContains(t, err, "is the role of tenant \"acme\"")
	for _, sql := range heldBy(t, owner, tenant) {
		execute(t, owner, sql)
	}
	require.False(t, may(tenant, "job"))
	require.Empty(t, heldBy(t, owner, tenant))

	_, err = store.Grant(t.Context(), owner, app)
	require.NoError(t, err)
	require.True(t, may(app, "function_text"))
	require.Empty(t, heldBy(t, owner, app))
}

// A DBA makes the schema for a user who may make none.
func TestMigrateIntoASchemaThatWasMade(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	dba := connectTo(t, dsn)
	low := "low_" + strings.ToLower(rand.Text())
	execute(t, dba, "CREATE ROLE "+low+" LOGIN PASSWORD 'secret'; REVOKE CREATE ON DATABASE "+pgx.Identifier{dba.Config().Database}.Sanitize()+" FROM PUBLIC")
	t.Cleanup(func() { _, _ = dba.Exec(context.Background(), "DROP OWNED BY "+low+" CASCADE; DROP ROLE "+low) })
	lows := storetest.As(dsn, low)
	err := migrate(t.Context(), t, lows)
	require.ErrorContains(t, err, "pool main: its user may not make schema tenure: migrate as the database's owner, or as who is to own the ledger; or run, as a superuser or the database's owner: GRANT CREATE ON DATABASE ")
	execute(t, dba, "CREATE SCHEMA tenure")
	require.ErrorContains(t, migrate(t.Context(), t, lows), " does not own schema tenure: migrate as its owner, or run, as a superuser: ALTER SCHEMA tenure OWNER TO ")
	execute(t, dba, "ALTER SCHEMA tenure OWNER TO "+low)
	require.NoError(t, migrate(t.Context(), t, lows))
	execute(t, dba, "ALTER TABLE tenure.completed_job_rest REPLICA IDENTITY DEFAULT") // as if the ledger were older
	require.NoError(t, migrate(t.Context(), t, lows), "an upgrade")
}

// Nothing is applied through what keeps no sessions.
func TestMigrateThroughAPooler(t *testing.T) {
	t.Parallel()
	dsn := pgtest.Database(t)
	pooler := poolertest.Start(t, dsn, nil)
	for range 2 {
		err := migrate(t.Context(), t, pooler.DSN(connectTo(t, dsn).Config().Database))
		require.ErrorContains(t, err, "pool main: what its DSN leads to keeps no session with its settings, as PgBouncer in transaction mode: point dsn at Postgres itself")
		pooler.Configure(map[string]string{"ignore_startup_parameters": "application_name,lock_timeout,statement_timeout"})
		pooler.Admin("RELOAD")
	}
	var made bool
	require.NoError(t, connectTo(t, dsn).QueryRow(t.Context(), "SELECT to_regnamespace('tenure') IS NOT NULL").Scan(&made))
	require.False(t, made)
}
