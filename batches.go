package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// FailurePolicy is what becomes of a job that awaits others when one of these fails: when it becomes a
// dead letter, or is cancelled.
type FailurePolicy string

// What can become of it.
const (
	// WaitForRetry has it wait while one of the others is a dead letter, which may be retried. It is
	// cancelled once one of them is cancelled, or deleted as a dead letter. It is the default.
	WaitForRetry FailurePolicy = "wait"
	// CancelToo cancels it as soon as one of the others is dead or cancelled.
	CancelToo FailurePolicy = "cancel"
	// RunAnyway starts it when all the others have ended, be it dead or cancelled: see
	// [job.Record.Awaited].
	RunAnyway FailurePolicy = "run"
)

// maxAfter bounds how many jobs one is to start after; a batch may have any number.
const maxAfter = 1000

// After has the job start when other jobs of the tenant have ended, 1 to 1000 of them, in whatever
// state they are when it is enqueued; until then it is awaiting. [OnFailure] says what becomes of it
// when one of them fails. In a transaction of the caller's, jobs that it is to start after cannot end
// before that commits. ErrNotFound: the tenant has no job with one of these ids in the pool, unfinished,
// dead, or among the finished ones that are kept. See docs/batches.md.
func After(ids ...job.ID) Option {
	return func(e *enqueue) error {
		if len(ids) < 1 || len(ids) > maxAfter {
			return fmt.Errorf("After: %d jobs: 1 to %d are allowed", len(ids), maxAfter)
		}
		for _, id := range ids {
			if id <= 0 {
				return fmt.Errorf("After: %d is not a job's id", id)
			}
			e.links().After = append(e.links().After, int64(id))
		}
		return nil
	}
}

// OnFailure says what becomes of a job with [After] or [AsBatch] when a job that it awaits fails.
func OnFailure(p FailurePolicy) Option {
	return func(e *enqueue) error {
		if !slices.Contains([]FailurePolicy{WaitForRetry, CancelToo, RunAnyway}, p) {
			return fmt.Errorf("OnFailure(%q): %q, %q and %q are allowed", p, WaitForRetry, CancelToo, RunAnyway)
		}
		e.links().OnFailure = string(p)
		return nil
	}
}

// AsBatch makes the job the completion job of a batch: it starts when all jobs have ended that were added
// with [InBatch] and its id, at once if there are none. So it is enqueued in a transaction, with the
// first of them; for a batch in a transaction of its own there is [Client.EnqueueBatch].
func AsBatch() Option {
	return func(e *enqueue) error {
		e.links().Batch = true
		return nil
	}
}

// InBatch adds the job to an open batch of the tenant, by the id of its completion job: while that
// awaits others. A job of the batch can add more to it whenever it runs. ErrNotFound: there is no such
// batch, or it is not open any more.
func InBatch(id job.ID) Option {
	return func(e *enqueue) error {
		if id <= 0 {
			return fmt.Errorf("InBatch: %d is not a batch's id", id)
		}
		e.links().In = int64(id)
		return nil
	}
}

func (e *enqueue) links() *store.Links {
	if e.job.Links == nil {
		e.job.Links = &store.Links{}
	}
	return e.job.Links
}

// checkLinks refuses links that do not go with each other, or with a time.
func (e *enqueue) checkLinks() error {
	l := e.job.Links
	switch {
	case l == nil:
		return nil
	case len(l.After) > maxAfter:
		return fmt.Errorf("After: %d jobs: 1 to %d are allowed", len(l.After), maxAfter)
	case e.job.Awaits() && e.job.Later():
		return errors.New("a job that starts when others have ended cannot have a time as well: leave out In or At")
	case l.OnFailure != "" && !e.job.Awaits():
		return errors.New("OnFailure is for jobs with After or AsBatch")
	}
	return nil
}

// Batch is a set of a tenant's jobs, and what runs when all of them have ended.
type Batch struct {
	// Then are the arguments of the completion job.
	Then job.Args
	// Options are those of the completion job, such as [OnFailure].
	Options []Option
	// Jobs are those of the batch; none is allowed. Their tenant is the batch's.
	Jobs []Entry
}

// EnqueueBatch adds a batch for the context's tenant in a transaction of its own: all of its jobs, and its
// completion job, whose id is the batch's. Jobs whose unique key is taken are not added. Duplicate: an
// unfinished job has the completion job's unique key, and nothing was added. See docs/batches.md.
func (c *Client) EnqueueBatch(ctx context.Context, b Batch) (_ Enqueued, err error) {
	ctx, span := c.beginEnqueue(ctx, "batch")
	defer func() { span.end(err) }()
	for begun, tries := time.Now(), 1; ; tries++ {
		tenant, pool, err := c.proc.ContextTenant(ctx)
		if err == nil {
			err = pool.Outage()
		}
		if err != nil {
			return Enqueued{}, fmt.Errorf("enqueue a batch: %w", err)
		}
		out, err := c.insertBatch(ctx, span, tenant, pool, b)
		switch {
		case err == nil:
			c.proc.Notifier.Notify(out.hint)
			return out.Enqueued, nil
		case !c.proc.MayFollow(ctx, err, begun, tries):
			return Enqueued{}, fmt.Errorf("enqueue a batch for tenant %q: %w", tenant.ID, err)
		}
	}
}

func (c *Client) insertBatch(ctx context.Context, span producing, tenant tenancy.Tenant, pool *routing.Pool, b Batch) (added, error) {
	then, err := c.buildJob(ctx, tenant, b.Then, append(slices.Clip(b.Options), AsBatch()))
	if err != nil {
		return added{}, sayWhich(err, b.Then, "the completion job")
	}
	jobs := make([]store.NewJob, len(b.Jobs))
	for i, e := range b.Jobs {
		if e.Tenant != "" && e.Tenant != tenant.ID {
			return added{}, &job.InputError{Err: fmt.Errorf("job %d: it is tenant %q's, and the batch is not: leave its tenant out", i, e.Tenant)}
		}
		if jobs[i], err = c.buildJob(ctx, tenant, e.Args, e.Options); err != nil {
			return added{}, sayWhich(err, e.Args, "job %d", i)
		}
		if l := jobs[i].Links; l != nil && l.In != 0 {
			return added{}, &job.InputError{Err: fmt.Errorf("job %d, kind %s: it is in this batch, and InBatch adds it to another: leave that out", i, e.Args.Kind())}
		}
	}
	span.many([]store.NewJob{then}, jobs)
	number, err := pool.Number()
	if err == nil {
		err = pool.Blame(store.AgainIfDeadlocked(func() error {
			return pgx.BeginTxFunc(ctx, pool.Jobs(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) error {
				return store.EnqueueBatch(ctx, tx, number, &then, jobs)
			})
		}))
	}
	if err != nil {
		c.countFailed(pool, err)
		return added{}, err
	}
	out := added{Enqueued{then.ID, then.Taken}, notify.Hint{Pool: pool.Name}}
	if !out.Duplicate {
		out.hint = hintOf(pool, jobs)
		out.hint.AddJob(&then, 0)
		c.enqueued.Add(pool.Name, then.Kind, 1)
		c.countEnqueued(pool, jobs)
	}
	return out, nil
}
