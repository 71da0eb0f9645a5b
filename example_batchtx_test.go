package tenure_test

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// MarkPaid is of a kind with many small jobs: a call of its handler gets several of one tenant.
type MarkPaid struct {
	Invoice int64 `json:"invoice"`
}

// Kind implements job.Args.
func (MarkPaid) Kind() string { return "invoice.paid" }

// One statement and one commit end many jobs: their effects and their ends are committed together.
func ExampleHandleBatchTx() {
	cfg, stop := exampleConfig()
	defer stop()
	node, stop := exampleNode(cfg, func(r *job.Registry) {
		tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, b *job.Batch[MarkPaid]) error {
			var ids []int64
			for _, j := range b.Jobs {
				ids = append(ids, j.Args.Invoice)
			}
			_, err := tx.Exec(ctx, "INSERT INTO invoice (id, sent) SELECT unnest($1::bigint[]), true", ids)
			return err
		}, job.MaxBatch(100))
	})
	defer stop()

	ctx := tenancy.For(context.Background(), "acme")
	var ids []job.ID
	for invoice := range int64(3) {
		added, err := node.Client().Enqueue(ctx, MarkPaid{invoice})
		check(err)
		ids = append(ids, added.ID)
	}
	for _, id := range ids {
		j, _, err := node.Operator().Jobs().Await(ctx, id)
		check(err)
		fmt.Println(j.State)
	}
	// Output:
	// done
	// done
	// done
}
