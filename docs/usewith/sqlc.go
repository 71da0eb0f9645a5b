package usewith

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/docs/usewith/sqlcdb"
	"github.com/tenurehq/tenure/job"
)

// BookWithSQLC books an invoice and enqueues the job that sends it: both, or neither.
func BookWithSQLC(ctx context.Context, db *pgxpool.Pool, client *tenure.Client, number int64) error {
	return pgx.BeginFunc(ctx, db, func(tx pgx.Tx) error {
		if err := sqlcdb.New(tx).CreateInvoice(ctx, number); err != nil {
			return err
		}
		_, err := client.EnqueueTx(ctx, tx, SendInvoice{number})
		return err
	})
}

// SendWithSQLC is a handler: what it does and the end of its job are committed together.
func SendWithSQLC(ctx context.Context, tx pgx.Tx, j *job.Job[SendInvoice]) error {
	return sqlcdb.New(tx).MarkSent(ctx, j.Args.Invoice)
}
