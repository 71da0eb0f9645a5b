// Package storetest gives tests a migrated ledger on real Postgres.
package storetest

import (
	"context"
	"fmt"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
)

// DSN returns a database of its own with the ledger of the pool of this name and
// number in it.
func DSN(t testing.TB, name string, number int) string {
	return pgtest.Clone(t, fmt.Sprintf("ledger-%s-%d", name, number), func(ctx context.Context, dsn string) error {
		return Prepare(ctx, dsn, name, number)
	})
}

// Prepare migrates a database and numbers it.
func Prepare(ctx context.Context, dsn, name string, number int) error {
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		return err
	}
	store.MigrationConfig(cfg)
	_, err = store.Migrate(ctx, cfg, name, number)
	return err
}

// Pool returns a connection pool on such a database, closed with the test.
func Pool(t testing.TB) *pgxpool.Pool {
	p, err := pgxpool.New(context.Background(), DSN(t, "main", 1))
	require.NoError(t, err)
	t.Cleanup(p.Close)
	return p
}
