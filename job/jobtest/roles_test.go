package jobtest_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
)

// Under their roles tenants reach what is theirs, may enqueue in their transactions, and no more.
func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Roles(), jobtest.Tenants("acme", "globex"))
	require.Equal(t, "jobtest_acme", jobtest.Value[string](b.acme, "SELECT current_user::text"))
	require.Equal(t, job.Done, b.acme.Run(write{1}).State)
	require.Equal(t, []int32{1}, effects(b.acme))
	insert := b.write
	b.write = func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		if _, err := b.Client().EnqueueTx(ctx, tx, ping{j.Args.N}); err != nil {
			return err
		}
		return insert(ctx, tx, j)
	}
	require.Equal(t, job.Done, b.acme.Run(write{2}).State)
	require.Len(t, jobtest.Enqueued[ping](b.acme), 1)
	b.write = func(ctx context.Context, tx pgx.Tx, _ *job.Job[write]) error {
		_, err := tx.Exec(ctx, "SELECT FROM globex.effect")
		return err
	}
	res := b.acme.Run(write{3})
	require.Equal(t, job.Retrying, res.State)
	require.ErrorContains(t, res.Err, "permission denied for schema globex")
	require.Empty(t, effects(b.Tenant(t, "globex")))
}

// The application's own migrations get a connection string that leads to the tenant's schema.
func TestMigrations(t *testing.T) {
	t.Parallel()
	var seen []string
	for _, options := range [][]jobtest.Option{nil, {jobtest.Roles()}} {
		b := setup(t, append(options, jobtest.Tenants("acme", "globex"), jobtest.Migrations(func(ctx context.Context, dsn string) error {
			conn, err := pgx.Connect(ctx, dsn)
			if err != nil {
				return err
			}
			defer conn.Close(ctx)
			var schema string
			if err := conn.QueryRow(ctx, "SELECT current_schema()").Scan(&schema); err != nil {
				return err
			}
			seen = append(seen, schema)
			_, err = conn.Exec(ctx, "CREATE TABLE migrated (schema text DEFAULT current_schema()); INSERT INTO migrated DEFAULT VALUES")
			return err
		}))...)
		require.Equal(t, "acme", jobtest.Value[string](b.acme, "SELECT schema FROM migrated"))
		require.Equal(t, "globex", jobtest.Value[string](b.Tenant(t, "globex"), "SELECT schema FROM migrated"))
	}
	require.Equal(t, []string{"acme", "globex", "acme", "globex"}, seen)
}

// quiet is a test whose log is read.
type quiet struct {
	*testing.T
	lines *strings.Builder
}

func (q quiet) Logf(format string, args ...any) { fmt.Fprintf(q.lines, format+"\n", args...) }

// The throwaway server is careless and its user mighty: a test's log does not say so.
func TestNothingIsSaidOfRisks(t *testing.T) {
	t.Parallel()
	q := quiet{t, &strings.Builder{}}
	jobtest.New(q)
	require.Empty(t, q.lines.String())
}

// TestSharedSchemas: types, operators and tables that tenants have in common are found behind a tenant's own, in handlers
// in what triggers put off until the commit and once more, and in InTx, after a savepoint was rolled back, too. Without them a comparison of citext is one of text, and finds
// nothing, without an error.
func TestSharedSchemas(t *testing.T) {
	t.Parallel()
	find := func(shared ...string) (found int) {
		env := jobtest.New(t, jobtest.Roles(), jobtest.SharedSchemas(shared...), jobtest.Schema(`
			CREATE EXTENSION IF NOT EXISTS citext SCHEMA public;
			CREATE TABLE customer (email public.citext);
			INSERT INTO customer VALUES ('ann@example.com');
			CREATE TABLE put_off (x integer);
			CREATE TABLE once_more (x integer);
			CREATE TABLE seen (n integer);
			CREATE FUNCTION put_off_once_more() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN SET CONSTRAINTS ALL DEFERRED; INSERT INTO once_more VALUES (1); RETURN NULL; END $$;
			CREATE FUNCTION see() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO seen SELECT count(*) FROM customer WHERE email = 'ANN@example.com'; RETURN NULL; END $$;
			CREATE CONSTRAINT TRIGGER later AFTER INSERT ON put_off DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION put_off_once_more();
			CREATE CONSTRAINT TRIGGER later AFTER INSERT ON once_more DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION see();
			GRANT ALL ON ALL TABLES IN SCHEMA acme TO PUBLIC`), jobtest.Register(func(r *job.Registry) {
			tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[ping]) error {
				inner, err := tx.Begin(ctx)
				if err == nil {
					err = inner.Rollback(ctx)
				}
				if err == nil {
					_, err = tx.Exec(ctx, "INSERT INTO put_off VALUES (1)")
				}
				return errors.Join(err, tx.QueryRow(ctx, "SELECT count(*) FROM customer WHERE email = 'ANN@example.com'").Scan(&found))
			})
		}))
		acme := env.Tenant(t, "acme")
		require.Equal(t, job.Done, acme.Run(ping{}).State)
		var again int
		require.NoError(t, env.Client().InTx(acme, func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, "SELECT count(*) FROM customer WHERE email = 'ANN@example.com'").Scan(&again)
		}))
		require.Equal(t, found, again)
		require.EqualValues(t, found, jobtest.Value[int32](acme, "SELECT n FROM seen"))
		return found
	}
	require.Equal(t, 1, find("app_common", "public"))
	require.Equal(t, 0, find())
}

// A program's own types are written and read, in handlers and in InTx.
func TestTypes(t *testing.T) {
	t.Parallel()
	type amount struct {
		Cents    int64
		Currency string
	}
	paid := amount{1250, "EUR"}
	env := jobtest.New(t, jobtest.SharedSchemas("app_common"), jobtest.Schema(`
		CREATE TYPE app_common.amount AS (cents bigint, currency text);
		CREATE TABLE payment (paid app_common.amount)`),
		jobtest.Types(func(ctx context.Context, conn *pgx.Conn) error {
			of, err := conn.LoadType(ctx, "app_common.amount")
			if err == nil {
				conn.TypeMap().RegisterType(of)
			}
			return err
		}),
		jobtest.Register(func(r *job.Registry) {
			tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[ping]) error {
				_, err := tx.Exec(ctx, "INSERT INTO payment VALUES ($1)", paid)
				return err
			})
		}))
	acme := env.Tenant(t, "acme")
	require.Equal(t, job.Done, acme.Run(ping{}).State)
	var read amount
	require.NoError(t, env.Client().InTx(acme, func(ctx context.Context, tx pgx.Tx) error {
		return tx.QueryRow(ctx, "SELECT paid FROM payment").Scan(&read)
	}))
	require.Equal(t, paid, read)
}
