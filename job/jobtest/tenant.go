package jobtest

import (
	"context"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/tenancy"
)

// Tenant is one tenant of an Env, as one test uses it. It is the context to call
// the code under test with: it carries the tenant, and ends with the test. What
// goes wrong in a method fails the test at once.
type Tenant struct {
	context.Context
	ID tenancy.ID

	t   testing.TB
	env *Env
}

// Tx runs fn in a transaction of the tenant, set up as a handler's is, and commits
// it when fn returns nil.
func (c *Tenant) Tx(fn func(ctx context.Context, tx pgx.Tx) error) {
	c.t.Helper()
	if err := c.env.Client().InTx(c, fn); err != nil {
		c.t.Fatalf("jobtest: in a transaction of tenant %q: %v", c.ID, err)
	}
}

// Exec runs statements in a transaction of the tenant. Without arguments there may
// be several, separated by semicolons.
func (c *Tenant) Exec(sql string, args ...any) {
	c.t.Helper()
	c.Tx(func(ctx context.Context, tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sql, args...)
		return err
	})
}

// Value returns what a query says that has one row and one column, run in a
// transaction of the tenant.
func Value[T any](c *Tenant, sql string, args ...any) (v T) {
	c.t.Helper()
	c.Tx(func(ctx context.Context, tx pgx.Tx) (err error) {
		rows, _ := tx.Query(ctx, sql, args...) // its error is the rows', too
		v, err = pgx.CollectExactlyOneRow(rows, pgx.RowTo[T])
		return err
	})
	return v
}
