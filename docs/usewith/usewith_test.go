package usewith

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
	"github.com/stretchr/testify/require"
	"github.com/uptrace/bun"
	"github.com/uptrace/bun/dialect/pgdialect"
	"gorm.io/driver/postgres"
	"gorm.io/gorm"
	"gorm.io/gorm/logger"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

// With each of them an invoice and its job are there together or not at all, in a schema that goose has
// made, and the job's handler sends the invoice.
func TestBook(t *testing.T) {
	t.Parallel()
	var dsn string
	env := jobtest.New(t, jobtest.Tenants("acme"), jobtest.Register(func(r *job.Registry) { tenure.HandleTx(r, SendWithSQLC) }),
		jobtest.Migrations(func(ctx context.Context, of string) error {
			dsn = of
			return errors.Join(MigrateTenant(ctx, of), MigrateTenant(ctx, of)) // the second time there is nothing to do
		}))
	ctx := tenancy.For(t.Context(), "acme")
	acme := env.Tenant(t, "acme")

	orm, err := gorm.Open(postgres.Open(dsn), &gorm.Config{Logger: logger.Discard})
	require.NoError(t, err)
	plain, err := orm.DB()
	require.NoError(t, err)
	defer plain.Close()
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	db := stdlib.OpenDB(*cfg)
	defer db.Close()
	pool, err := pgxpool.New(ctx, dsn)
	require.NoError(t, err)
	defer pool.Close()

	number := int64(0)
	for name, book := range map[string]func(number int64) error{
		"gorm": func(n int64) error { return BookWithGORM(ctx, orm, env.Client(), n) },
		"bun":  func(n int64) error { return BookWithBun(ctx, bun.NewDB(db, pgdialect.New()), env.Client(), n) },
		"sqlc": func(n int64) error { return BookWithSQLC(ctx, pool, env.Client(), n) },
	} {
		number++
		require.NoError(t, book(number), name)
		require.Error(t, book(number), "%s: the invoice is there", name)
		require.Len(t, jobtest.Enqueued[SendInvoice](acme), 1, name)
		require.Equal(t, 1, env.Drain(t).Count(job.Done), name)
		require.True(t, jobtest.Value[bool](acme, "SELECT sent_at IS NOT NULL FROM invoice WHERE id = $1", number), name)
	}
}
