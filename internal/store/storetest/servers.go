package storetest

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/store"
)

// Server is what kind of server a pool is on, as far as it hides what it is. The ledgers are
// those of an owner who is no superuser.
type Server string

const (
	// Open hides nothing; the ledgers' owner is the tests' superuser.
	Open Server = ""
	// Restricted lets only superusers ask for its system identifier and the end of its log.
	Restricted Server = "restricted"
	// Aurora supports nothing that has to do with a log, for nobody, and says that it is Aurora.
	Aurora Server = "aurora"
	// Silent lets only superusers ask for its timeline in any way, and says nothing of its storage.
	Silent Server = "silent"
)

// owner is who has the ledgers on servers that hide something.
const owner = "tenure_test_owner"

// ServerEnv has the tests that do not choose be on such a server, all of them: "restricted", say.
const ServerEnv = "TENURE_TEST_SERVER"

// servers are the kinds of servers that tests are on, by the tests' names.
var servers sync.Map

// On has the databases of a test and its subtests be on such a server from now on.
func On(t testing.TB, s Server) {
	servers.Store(t.Name(), s)
	t.Cleanup(func() { servers.Delete(t.Name()) })
}

// serverOf is what kind of server a test is on.
func serverOf(t testing.TB) Server {
	for name := t.Name(); ; {
		if s, ok := servers.Load(name); ok {
			return s.(Server)
		}
		end := strings.LastIndex(name, "/")
		if end < 0 {
			return Server(os.Getenv(ServerEnv))
		}
		name = name[:end]
	}
}

const (
	hideServer   = "REVOKE EXECUTE ON FUNCTION pg_current_wal_lsn(), pg_control_system(), pg_control_checkpoint() FROM PUBLIC"
	hideTimeline = "REVOKE EXECUTE ON FUNCTION pg_walfile_name(pg_lsn) FROM PUBLIC"
	sayAurora    = "CREATE FUNCTION pg_catalog.aurora_version() RETURNS text LANGUAGE sql AS $$ SELECT '17.4.0' $$"
	// A builtin function that is replaced is executed all the same.
	unsupported = `ALTER FUNCTION pg_catalog.pg_current_wal_lsn() RENAME TO real_wal_lsn;
		ALTER FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RENAME TO real_walfile_name;
		CREATE FUNCTION pg_catalog.pg_current_wal_lsn() RETURNS pg_lsn LANGUAGE plpgsql AS $$
			BEGIN RAISE feature_not_supported USING MESSAGE = 'Function pg_current_wal_lsn() is currently not supported for Aurora'; END $$;
		CREATE FUNCTION pg_catalog.pg_walfile_name(pg_lsn) RETURNS text LANGUAGE plpgsql AS $$
			BEGIN RAISE feature_not_supported USING MESSAGE = 'Function pg_walfile_name() is currently not supported for Aurora'; END $$`
)

var hides = map[Server][]string{
	Restricted: {hideServer},
	Aurora:     {hideServer, unsupported, sayAurora},
	Silent:     {hideServer, hideTimeline},
}

// Hide makes the server of a database one of this kind, as far as connections to that database
// can tell, and returns a connection string of the user who is to own the ledger.
func Hide(ctx context.Context, dsn string, s Server) (owners string, err error) {
	if s == Open {
		return dsn, nil
	}
	conn, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return "", err
	}
	defer conn.Close(ctx)
	if err := makeRole(ctx, conn, owner, "LOGIN PASSWORD '"+password+"'"); err != nil {
		return "", err
	}
	database := pgx.Identifier{conn.Config().Database}.Sanitize()
	for _, sql := range append(hides[s], "GRANT CREATE ON DATABASE "+database+" TO "+owner) {
		if _, err := conn.Exec(ctx, sql); err != nil {
			return "", fmt.Errorf("%s: %w", sql, err)
		}
	}
	return As(dsn, owner), nil
}

// PrepareFor prepares a database as it is on the server that the test is on.
func PrepareFor(ctx context.Context, t testing.TB, dsn, name string, number int) error {
	return prepare(ctx, dsn, name, number, serverOf(t))
}

// published is a ledger as change capture leaves it, which asks for a key of every table.
const published = `DO $$ BEGIN
	IF current_setting('server_version_num')::integer >= 150000 THEN
		EXECUTE 'CREATE PUBLICATION published FOR TABLES IN SCHEMA tenure'; -- which an older server does not even read
	END IF;
END $$`

// migrate migrates a database, of an owner's, and numbers it unless the number is 0.
func migrate(ctx context.Context, dsn, name string, number int) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	store.MigrationConfig(cfg)
	_, err = store.Migrate(ctx, cfg, name, number, nil)
	return err
}

func prepare(ctx context.Context, dsn, name string, number int, s Server) error {
	owners, err := Hide(ctx, dsn, s)
	if err != nil {
		return err
	}
	superuser, err := pgx.Connect(ctx, dsn)
	if err != nil {
		return err
	}
	defer superuser.Close(ctx)
	if err := makeRole(ctx, superuser, runtime, "LOGIN NOINHERIT PASSWORD '"+password+"'"); err != nil {
		return err
	}
	if err := migrate(ctx, owners, name, number); err != nil {
		return err
	}
	if _, err := superuser.Exec(ctx, published); err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, owners)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	_, err = store.Grant(ctx, conn, runtime)
	return err
}
