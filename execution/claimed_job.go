package execution

import (
	"context"
	"iter"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// ClaimedJob is one job of a claim on its way through the workers.
type ClaimedJob struct {
	ID     int64 // of the claim that lists it, with others
	Record job.Record
	Tenant *tenancy.Tenant
	Owner  Owner
	Weight int       // of the tenant, beside others; 0: 1
	Ready  time.Time // since when the job could start; zero: that is not known

	metrics  *runMetrics   // once it was submitted
	bytes    int           // of its payload and meta, once it was submitted
	expected time.Duration // how long it was thought to take when it was
	queued   time.Time     // since when it waits for a worker

	shares    bool          // it waits for a call that another waiting one has begun; see tenantLoad.join
	joined    bool          // it is counted among its tenant's claims that may share calls
	slotless  bool          // it waits and has no slot
	with      []*ClaimedJob // the others that share its call, from when a worker takes it; see batch.go
	cancelled bool          // guarded by the mu of the slot that it runs in; see Workers.Cancel

	began    time.Time     // its run, once it has
	reporter *job.Reporter // guarded by the mu of its call's reports until that is closed; see Reporter
}

// Age is how long ago the claim's run began; 0: it has not.
func (c *ClaimedJob) Age() time.Duration {
	if c.began.IsZero() {
		return 0
	}
	return time.Since(c.began)
}

// Reporter has what the claim's run says of itself; nil: nothing. It is for the owner, from when
// Owner.Reported was called with the claim, or its end was reported.
func (c *ClaimedJob) Reporter() *job.Reporter { return c.reporter }

// OpenReport is Reporter for the run: it makes it if there is none yet.
func (c *ClaimedJob) OpenReport() *job.Reporter {
	if c.reporter == nil {
		c.reporter = job.NewReporter(c.began, func() { c.Owner.Reported(c) })
	}
	return c.reporter
}

// ForgetReport lets go of what the claim's run has said, once its end is written: the claim stays in
// memory together with all others of its batch.
func (c *ClaimedJob) ForgetReport() {
	if c.reporter != nil {
		c.reporter = nil
	}
}

// IDs lists the ids of claims' jobs.
func IDs(claims []*ClaimedJob) []job.ID {
	ids := make([]job.ID, len(claims))
	for i, c := range claims {
		ids[i] = c.Record.ID
	}
	return ids
}

// call are the claims of the call that c is the first of.
func (c *ClaimedJob) call() iter.Seq[*ClaimedJob] {
	return func(yield func(*ClaimedJob) bool) {
		if !yield(c) {
			return
		}
		for _, other := range c.with {
			if !yield(other) {
				return
			}
		}
	}
}

// size is how many there are.
func (c *ClaimedJob) size() int { return 1 + len(c.with) }

// share is what one job of the call has of a time that the call took.
func (c *ClaimedJob) share(took time.Duration) time.Duration { return took / time.Duration(c.size()) }

// Owner is the session of a pool that claims belong to. Its methods are called
// from many workers at once.
type Owner interface {
	// Context is the parent of every run: done, with a cause, when the claims are lost.
	Context() context.Context
	// MayStart tells whether the claims still protect their jobs, and the ledger takes their ends.
	MayStart() bool
	// Tenants is where the tenants' transactions are opened.
	Tenants() Conns
	// FinishInTx is the one statement that finishes jobs, which have the same turn, in their
	// handler's transaction.
	FinishInTx(claims []*ClaimedJob) (sql string)
	// FinishError gives an error of that statement its meaning: job.ErrClaimLost and ErrConflict
	// among them.
	FinishError(err error) error
	// TryFinish finishes jobs on a connection of the ledger's own, and undoes it. What it fails with
	// keeps the ledger from ending them now.
	TryFinish(ctx context.Context, claims []*ClaimedJob) error
	// FinishedInTx says that the handler's transaction has committed, and the job's end with it.
	FinishedInTx(c *ClaimedJob)
	// Finish says how a run ended. It does not block on the database.
	Finish(c *ClaimedJob, o job.Outcome)
	// Return gives a job back that never started. It does not block on the database.
	Return(c *ClaimedJob)
	// Reported says that there is news in the claim's Reporter. It must not block.
	Reported(c *ClaimedJob)
	// CapacityAvailable says that the workers can take more jobs. It must not block.
	CapacityAvailable()
}

// Conns are a pool's connections for tenants' transactions: routing.TenantConns.
type Conns interface {
	// AcquireFor waits for a connection for a transaction of a tenant, which has a share of them. leave says
	// that the connection was released. An error that wraps tenancy.ErrShareInUse: the share is in use.
	AcquireFor(ctx context.Context, tenant tenancy.ID) (c *pgxpool.Conn, leave func(), err error)
}

// ownRecord is from what size on a claim gives its payload away to its run.
const ownRecord = 1 << 10

// handlerRecord is what the handler gets. A large payload goes with it: the claim stays in memory
// together with all others of its batch until the last of them has ended.
func (c *ClaimedJob) handlerRecord() *job.Record {
	if c.bytes <= ownRecord {
		return &c.Record
	}
	own := c.Record
	c.Record.Payload, c.Record.Meta = nil, nil
	return &own
}
