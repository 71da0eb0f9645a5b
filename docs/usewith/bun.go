package usewith

import (
	"context"
	"time"

	"github.com/uptrace/bun"

	"github.com/tenurehq/tenure"
)

// BunInvoice is a row.
type BunInvoice struct {
	bun.BaseModel `bun:"table:invoice"`

	ID     int64      `bun:",pk"`
	SentAt *time.Time `bun:",nullzero"`
}

// BookWithBun books an invoice and enqueues the job that sends it: both, or neither.
func BookWithBun(ctx context.Context, db *bun.DB, client *tenure.Client, number int64) error {
	return db.RunInTx(ctx, nil, func(ctx context.Context, tx bun.Tx) error {
		if _, err := tx.NewInsert().Model(&BunInvoice{ID: number}).Exec(ctx); err != nil {
			return err
		}
		_, err := client.EnqueueSQLTx(ctx, tx.Tx, SendInvoice{number})
		return err
	})
}
