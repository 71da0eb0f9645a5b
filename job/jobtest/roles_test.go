package jobtest_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

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
