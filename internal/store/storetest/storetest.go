// Package storetest gives tests a migrated ledger on real Postgres.
package storetest

import (
	"context"
	"fmt"
	"net/url"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// DSN returns a database of its own with the ledger of the pool of this name and
// number in it.
func DSN(t testing.TB, name string, number int) string {
	s := serverOf(t)
	return pgtest.CloneOf(t, "ledger"+string(s), func(ctx context.Context, dsn string) error {
		return prepare(ctx, dsn, name, 0, s)
	}, fmt.Sprintf("ledger-%s-%d%s", name, number, s), func(ctx context.Context, dsn string) error { // migrating takes long, numbering does not
		if s != Open {
			dsn = As(dsn, owner)
		}
		return migrate(ctx, dsn, name, number)
	})
}

// runtime is the user that nodes and clients connect as: it owns nothing.
const runtime = "tenure_test_app"

// password is that of the users made here, for servers that ask for one.
const password = "secret"

// Prepare migrates a database and numbers it, and gives the ledger to the user of
// [AsRuntime].
func Prepare(ctx context.Context, dsn, name string, number int) error {
	return prepare(ctx, dsn, name, number, Open)
}

// AsRuntime leads to a prepared database as nodes and clients come to it in production: as
// a user with the privileges that `tenure migrate --grants` gives, and no others.
func AsRuntime(dsn string) string { return As(dsn, runtime) }

// As is a connection string with another user.
func As(dsn, user string) string {
	u, err := url.Parse(dsn)
	if err != nil || u.Scheme == "" {
		return dsn + " user=" + user + " password=" + password
	}
	u.User = url.UserPassword(user, password)
	return u.String()
}

// roles is held while a role is made or given: servers, and the roles on them, are shared by tests.
var roles sync.Mutex

// makeRole makes a role, unless another test has.
func makeRole(ctx context.Context, db store.DB, name, options string) error {
	roles.Lock()
	defer roles.Unlock()
	_, err := db.Exec(ctx, fmt.Sprintf("DO $$ BEGIN CREATE ROLE %s %s; EXCEPTION WHEN duplicate_object OR unique_violation THEN NULL; END $$",
		pgx.Identifier{name}.Sanitize(), options))
	return err
}

// Role makes a role that may do what it likes in a schema, and that the user of [AsRuntime]
// may take. db belongs to a superuser; what he makes there later is the role's to use, too.
func Role(t testing.TB, db store.DB, name, schema string) {
	t.Helper()
	require.NoError(t, makeRole(t.Context(), db, name, "NOLOGIN"))
	roles.Lock()
	_, err := store.GrantRoles(t.Context(), db, runtime, map[string]string{schema: name})
	roles.Unlock()
	require.NoError(t, err)
	schema, name = pgx.Identifier{schema}.Sanitize(), pgx.Identifier{name}.Sanitize()
	for _, sql := range []string{
		"GRANT ALL ON SCHEMA %[1]s TO %[2]s",
		"ALTER DEFAULT PRIVILEGES IN SCHEMA %[1]s GRANT ALL ON TABLES TO %[2]s",
		"ALTER DEFAULT PRIVILEGES IN SCHEMA %[1]s GRANT ALL ON SEQUENCES TO %[2]s",
	} {
		_, err := db.Exec(t.Context(), fmt.Sprintf(sql, schema, name))
		require.NoError(t, err)
	}
}

// Pool returns a connection pool on such a database, closed with the test, of the user of
// [AsRuntime].
func Pool(t testing.TB) *pgxpool.Pool {
	_, runtime := Pools(t)
	return runtime
}

// Pools returns what Pool does, and with it a superuser's connection pool on the same
// database.
func Pools(t testing.TB) (owner, runtime *pgxpool.Pool) {
	dsn := DSN(t, "main", 1)
	return open(t, dsn), open(t, AsRuntime(dsn))
}

func open(t testing.TB, dsn string) *pgxpool.Pool {
	cfg, err := pgxpool.ParseConfig(dsn)
	require.NoError(t, err)
	cfg.AfterConnect = func(_ context.Context, conn *pgx.Conn) error {
		store.BoundTimes(conn.TypeMap()) // as nodes do
		return nil
	}
	p, err := pgxpool.NewWithConfig(context.Background(), cfg)
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}

// Damage gives a job in a table of the ledger a payload that cannot be read: where it is stored apart there is one piece
// too many. db is a superuser's.
func Damage(t testing.TB, db store.DB, table string, id job.ID) {
	t.Helper()
	_, err := db.Exec(t.Context(), fmt.Sprintf(`DO $$
		DECLARE
			pieces CONSTANT regclass := (SELECT reltoastrelid FROM pg_class WHERE oid = 'tenure.%[1]s'::regclass);
		BEGIN
			UPDATE tenure.%[1]s SET payload = (SELECT to_jsonb(string_agg(md5(random()::text), '')) FROM generate_series(1, 1000)) WHERE id = %[2]d;
			PERFORM set_config('allow_system_table_mods', 'on', true);
			UPDATE pg_class SET relkind = 'r' WHERE oid = pieces; -- which can be written to
			EXECUTE format('INSERT INTO %%s SELECT chunk_id, chunk_seq + 1, chunk_data FROM %%1$s ORDER BY chunk_id DESC, chunk_seq DESC LIMIT 1', pieces);
			UPDATE pg_class SET relkind = 't' WHERE oid = pieces;
		END $$`, table, int64(id)))
	require.NoError(t, err)
}
