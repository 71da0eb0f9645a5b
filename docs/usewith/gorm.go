package usewith

import (
	"context"
	"database/sql"
	"time"

	"gorm.io/gorm"

	"github.com/tenurehq/tenure"
)

// GORMInvoice is a row.
type GORMInvoice struct {
	ID     int64
	SentAt *time.Time
}

// TableName is what GORM asks for.
func (GORMInvoice) TableName() string { return "invoice" }

// BookWithGORM books an invoice and enqueues the job that sends it: both, or neither.
func BookWithGORM(ctx context.Context, db *gorm.DB, client *tenure.Client, number int64) error {
	return db.WithContext(ctx).Transaction(func(tx *gorm.DB) error {
		if err := tx.Create(&GORMInvoice{ID: number}).Error; err != nil {
			return err
		}
		_, err := client.EnqueueSQLTx(ctx, tx.Statement.ConnPool.(*sql.Tx), SendInvoice{number})
		return err
	})
}
