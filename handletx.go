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
// If the transaction loses to another one (40001, 40P01), fn is called again at once with a
// fresh one, up to four times; then the job is put off, says so, and no attempt is charged, twenty
// times. So what fn does elsewhere may be done more than once, as after any failed run.
//
// tx must not be used after fn has returned, and cannot be committed or rolled
// back by it; tx.Begin opens a savepoint. Its isolation is READ COMMITTED, and
// [Client.InTx] within fn is refused with [ErrInTx]. One goroutine at a time may use it, and none
// from within a call of it, such as the source of a CopyFrom: that returns an error.
// There is no bare connection: Conn is nil, of tx and of rows, and query rewriters are given none.
// Deferred constraints are checked, and deferred triggers run, when fn has
// returned nil; if one fails, the job has failed. Keep work that waits for other systems
// in handlers registered with job.Handle: it would hold the transaction open.
//
// No attempt is charged either if the database fails fn (it has gone, is read-only, or has no room),
// and the ledger in it as well. What fn's own SQL raises is charged, whatever SQLSTATE it has.
//
// The transaction begins with the first statement of tx, in one round trip with it. If it cannot begin, as the
// tenant has no schema or has just moved, that statement returns the error, what fn returns does not count, and no
// attempt is charged. Nor does it count if a table was altered so that a statement's types are not those of the job
// before: then fn is called once more, at once.
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

// HandleBatchTx registers fn for the kind of A, to be called with several jobs of one tenant at a
// time, as by [job.HandleBatch], and with one transaction for all of them, as by [HandleTx]. When fn
// returns nil, what it did in tx and the ends of those jobs that are done are committed together;
// when it returns an error, or the claim on any of them was lost, everything is rolled back. The jobs
// beside one that was lost run again, and no attempt is charged.
//
// A job that [job.Batch.End] has said an error of is not part of that: it is written how it ended
// after the commit, and what fn did for it in tx is committed with the others'. So do nothing for such
// a job, or undo it: tx.Begin opens a savepoint. When no job is done, everything is
// rolled back. An error that fn returns charges an attempt to each job of the call. fn must not send COMMIT:
// all jobs of the call would run again, with what it did until then in place.
func HandleBatchTx[A job.Args](r *job.Registry, fn func(ctx context.Context, tx pgx.Tx, b *job.Batch[A]) error, opts ...job.Option) {
	if fn == nil {
		panic("tenure.HandleBatchTx: nil handler")
	}
	r.Add(job.Spec{Kind: job.KindOf[A](), InTx: true, HandleBatch: job.BatchOf(func(ctx context.Context, b *job.Batch[A]) error {
		tx, ok := execution.TxFromContext(ctx)
		if !ok {
			return job.Discard(errNoTx)
		}
		return fn(ctx, tx, b)
	})}, opts...)
}
