package tenure

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/job"
)

// HandleTx registers fn for the kind of A. fn gets a transaction on its tenant's
// database: the tenant's schema is on the search path, its role is taken and
// app.tenant_id is set, for this transaction only. When fn returns nil, what it
// did in tx and the end of the job are committed together; when it returns an
// error, everything is rolled back and the job is retried by its policy. Should
// the claim have been lost meanwhile, because this node was thought dead, nothing
// is committed either: effects in the tenant's database happen exactly once.
//
// tx must not be used after fn has returned, and cannot be committed or rolled
// back by it; tx.Begin opens a savepoint. Its isolation is READ COMMITTED, and
// [Client.InTx] within fn is refused with [ErrInTx]. One goroutine at a time may use it, and none
// from within a call of it, such as the source of a CopyFrom: that returns an error.
// Whoever takes the bare connection, from tx, rows or a query rewriter, has it destroyed
// after the job. Deferred constraints are checked, and deferred triggers run, when fn has
// returned nil; if one fails, the job has failed. Keep work that waits for other systems
// in handlers registered with job.Handle: it would hold the transaction open.
func HandleTx[A job.Args](r *job.Registry, fn func(ctx context.Context, tx pgx.Tx, j *job.Job[A]) error, opts ...job.Option) {
	if fn == nil {
		panic("tenure.HandleTx: nil handler")
	}
	r.Add(job.Spec{Kind: job.KindOf[A](), InTx: true, Handle: func(ctx context.Context, rec *job.Record) error {
		j, err := job.Decode[A](rec)
		if err != nil {
			return err
		}
		tx, ok := execution.TxFromContext(ctx)
		if !ok {
			return job.Discard(errNoTx)
		}
		return fn(ctx, tx, j)
	}}, opts...)
}

var errNoTx = errors.New("the context holds no transaction: middleware must pass on the context it was given, or one made from it")
