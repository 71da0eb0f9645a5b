// Package sqlcdb is of the shape that sqlc generates for pgx.
package sqlcdb

import (
	"context"

	"github.com/jackc/pgx/v5/pgconn"
)

// DBTX is a pool, a connection or a transaction.
type DBTX interface {
	Exec(context.Context, string, ...any) (pgconn.CommandTag, error)
}

// Queries are the application's.
type Queries struct{ db DBTX }

// New returns the queries on db.
func New(db DBTX) *Queries { return &Queries{db} }

// CreateInvoice inserts an invoice.
func (q *Queries) CreateInvoice(ctx context.Context, id int64) error {
	_, err := q.db.Exec(ctx, "INSERT INTO invoice (id) VALUES ($1)", id)
	return err
}

// MarkSent notes that an invoice was sent.
func (q *Queries) MarkSent(ctx context.Context, id int64) error {
	_, err := q.db.Exec(ctx, "UPDATE invoice SET sent_at = now() WHERE id = $1", id)
	return err
}
