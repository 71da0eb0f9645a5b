package execution

import (
	"context"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Claim is one claimed job on its way through the workers.
type Claim struct {
	ID     int64 // of the batch it was claimed in
	Record job.Record
	Tenant *tenancy.Tenant
	Owner  Owner

	bytes int // of its payload and meta, once it was submitted
}

// Owner is the session of a pool that claims belong to. Its methods are called
// from many workers at once.
type Owner interface {
	// Context is the parent of every run: done, with a cause, when the claims are lost.
	Context() context.Context
	// MayStart tells whether the claims still protect their jobs.
	MayStart() bool
	// Tenants is where the tenants' transactions are opened.
	Tenants() *pgxpool.Pool
	// QueueFinish adds what finishes the job to a batch in the handler's transaction.
	QueueFinish(b *pgx.Batch, c *Claim)
	// FinishError gives an error of that batch its meaning; job.ErrClaimLost among them.
	FinishError(err error) error
	// FinishedInTx says that the handler's transaction has committed, and the job's end with it.
	FinishedInTx(c *Claim)
	// Finish says how a run ended. It does not block on the database.
	Finish(c *Claim, o job.Outcome)
	// Return gives a job back that never started. It does not block on the database.
	Return(c *Claim)
	// Roomy says that the workers can take more jobs. It must not block.
	Roomy()
}

// ownRecord is from what size on a claim gives its payload away to its run.
const ownRecord = 1 << 10

// record is what the handler gets. A large payload goes with it: the claim stays in memory
// together with all others of its batch until the last of them has ended.
func (c *Claim) record() *job.Record {
	if c.bytes <= ownRecord {
		return &c.Record
	}
	own := c.Record
	c.Record.Payload, c.Record.Meta = nil, nil
	return &own
}
