package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

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
		tenant, pool, err := c.contextTenant(ctx)
		if err == nil {
			err = pool.Outage()
		}
		if err != nil {
			return Enqueued{}, fmt.Errorf("enqueue a batch: %w", err)
		}
		out, err := c.insertBatch(ctx, span, tenant, pool, b)
		switch {
		case err == nil:
			c.notifier.Notify(out.hint)
			return out.Enqueued, nil
		case !c.mayFollow(ctx, err, begun, tries):
			return Enqueued{}, fmt.Errorf("enqueue a batch for tenant %q: %w", tenant.ID, err)
		}
	}
}

func (c *Client) insertBatch(ctx context.Context, span producing, tenant tenancy.Tenant, pool *routing.Pool, b Batch) (added, error) {
	then, err := c.buildJob(ctx, tenant, b.Then, append(slices.Clip(b.Options), AsBatch()))
	if err != nil {
		return added{}, sayWhich(err, "the completion job")
	}
	out := added{hint: notify.Hint{Pool: pool.Name}}
	out.hint.AddJob(&then, 0)
	jobs := make([]store.NewJob, len(b.Jobs))
	for i, e := range b.Jobs {
		if e.Tenant != "" && e.Tenant != tenant.ID {
			return added{}, &InputError{fmt.Errorf("job %d: it is tenant %q's, and the batch is not: leave its tenant out", i, e.Tenant)}
		}
		if jobs[i], err = c.buildJob(ctx, tenant, e.Args, e.Options); err != nil {
			return added{}, sayWhich(err, "job %d, kind %s", i, e.Args.Kind())
		}
		if l := jobs[i].Links; l != nil && l.In != 0 {
			return added{}, &InputError{fmt.Errorf("job %d, kind %s: it is in this batch, and InBatch adds it to another: leave that out", i, e.Args.Kind())}
		}
		out.hint.AddJob(&jobs[i], 0)
	}
	span.many([]store.NewJob{then}, jobs)
	number, err := pool.Number()
	if err != nil {
		return added{}, err
	}
	err = store.AgainIfDeadlocked(func() error {
		return pgx.BeginTxFunc(ctx, pool.Jobs(), pgx.TxOptions{IsoLevel: pgx.ReadCommitted}, func(tx pgx.Tx) (err error) {
			out.ID, out.Duplicate, _, err = store.EnqueueBatch(ctx, tx, number, &then, jobs)
			return err
		})
	})
	if err == nil && !out.Duplicate {
		c.enqueued.Add(pool.Name, then.Kind, 1)
		c.countEnqueued(pool, jobs)
	}
	return out, pool.Blame(err)
}

// Batches lists and cancels batches. It is safe for concurrent use.
type Batches struct{ *process }

// BatchStatus is a batch as an operator sees it, with how its jobs have ended so far.
type BatchStatus struct {
	Pool      string
	ID        job.ID // of its completion job, too
	Tenant    string
	OnFailure string // what becomes of the completion job when a job fails: wait, cancel or run
	CreatedAt time.Time
	ListedAt  time.Time // with its id its place in lists, as a job's: see Status
	ClosedAt  time.Time // when the completion job was let start, or cancelled; zero: the batch is open
	Jobs      int       // all that were added so far
	Done      int
	Dead      int // among the dead letters, or they were when the batch counted them as failed
	Cancelled int
	Unknown   int // ended by a node of an earlier release, and not kept
	// Open are up to 20 of the jobs that it still waits for, by id; a dead letter is one if it may
	// be retried. Only [Batches.Get] says so.
	Open []job.ID
}

// BatchFilter chooses batches; empty fields choose all.
type BatchFilter struct {
	Tenant tenancy.ID
	Pool   string
	After  string // the [BatchStatus.Cursor] of the last batch of the page before
	Limit  int    // 0: 100
}

// Validate says what of the filter cannot be, other than its pool, which [Batches.List] knows.
func (f BatchFilter) Validate() error {
	if _, err := parseCursor(f.After, "batches"); err != nil {
		return &InputError{err}
	}
	return nil
}

// Cursor is the batch's place in lists, for [BatchFilter].After. It means nothing to others.
func (b BatchStatus) Cursor() string { return cursorText(b.place()) }

// Unfinished is how many jobs of the batch have not ended; dead letters have.
func (b BatchStatus) Unfinished() int { return b.Jobs - b.Done - b.Dead - b.Cancelled - b.Unknown }

func (b BatchStatus) place() store.Cursor { return store.Cursor{ListedAt: b.ListedAt, ID: b.ID} }

// CompareBatches is negative if a comes before b in a list of [Batches.List].
func CompareBatches(a, b BatchStatus) int { return a.place().Compare(b.place()) }

// List lists batches over all pools, the newest first: open ones, and closed ones as long as their
// completion job is kept. Each batch is on one page. It reads a row for each job of those that it returns. When some pools do not
// answer, the others' are returned together with an error.
func (s *Batches) List(ctx context.Context, f BatchFilter) ([]BatchStatus, error) {
	after, err := parseCursor(f.After, "batches")
	if err != nil {
		return nil, &InputError{err}
	}
	pools, err := s.poolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, unanswered := inspectEach(ctx, pools, listBatches(store.BatchFilter{Tenant: string(f.Tenant), After: after, Limit: limit}))
	slices.SortStableFunc(out, CompareBatches)
	out = out[:min(limit, len(out))]
	counted, err := s.countJobs(ctx, out)
	return counted, errors.Join(unanswered, err)
}

// countJobs says how the jobs of batches have ended, and leaves out those of which it could not be seen.
func (s *Batches) countJobs(ctx context.Context, batches []BatchStatus) ([]BatchStatus, error) {
	ids := map[string][]int64{}
	for _, b := range batches {
		ids[b.Pool] = append(ids[b.Pool], int64(b.ID))
	}
	var pools []*routing.Pool
	for _, p := range s.router.Pools() {
		if ids[p.Name] != nil {
			pools = append(pools, p)
		}
	}
	counts, err := inspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]store.Batch, error) {
		return store.CountBatches(ctx, db, ids[p.Name])
	})
	out := batches[:0]
	for _, b := range batches {
		if i := slices.IndexFunc(counts, func(c store.Batch) bool { return c.ID == b.ID }); i >= 0 {
			c := counts[i]
			b.Jobs, b.Done, b.Dead, b.Cancelled, b.Unknown = c.Jobs, c.Done, c.Dead, c.Cancelled, c.Unknown
			out = append(out, b)
		}
	}
	return out, err
}

// openShown is how many of the jobs that a batch waits for are named.
const openShown = 20

// Get returns one batch. ErrNotFound: no pool that answered has it.
func (s *Batches) Get(ctx context.Context, id job.ID) (BatchStatus, error) {
	out, err := inspectEach(ctx, s.router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]BatchStatus, error) {
		out, err := listBatches(store.BatchFilter{ID: id, Limit: 1})(ctx, p, db)
		if err == nil && len(out) > 0 && out[0].ClosedAt.IsZero() {
			out[0].Open, err = store.OpenJobs(ctx, db, id, openShown)
		}
		return out, err
	})
	if len(out) == 0 {
		return BatchStatus{}, errors.Join(fmt.Errorf("batch %d: %w", id, ErrNotFound), err)
	}
	if out, err = s.countJobs(ctx, out[:1]); len(out) == 0 {
		return BatchStatus{}, fmt.Errorf("count the jobs of batch %d: %w", id, err)
	}
	return out[0], nil
}

func listBatches(f store.BatchFilter) func(context.Context, *routing.Pool, store.DB) ([]BatchStatus, error) {
	return func(ctx context.Context, p *routing.Pool, db store.DB) ([]BatchStatus, error) {
		rows, err := store.Batches(ctx, db, f)
		out := make([]BatchStatus, len(rows))
		for i, r := range rows {
			r.Pool = p.Name
			out[i] = BatchStatus(r)
		}
		return out, err
	}
}

// cancelBatchStep is how many jobs of a batch are cancelled in one transaction.
const cancelBatchStep = 500

// Cancel cancels a batch: its completion job, to which nothing can be added then, and all of its jobs
// that have not ended, with those of the batches whose completion jobs are among them. It returns how
// many of these. It waits for transactions that are just adding to a batch, for some seconds. Waiting
// jobs do not start, and end when their turn comes; running ones within a heartbeat of their node, as
// with [Operator.Cancel]. After an interruption the same call goes on. ErrNotFound: no pool that answered
// has the batch. StateError: all of it has ended.
func (s *Batches) Cancel(ctx context.Context, id job.ID) (jobs int, err error) {
	found, err := inspectEach(ctx, s.router.Pools(), listBatches(store.BatchFilter{ID: id, Limit: 1}))
	if len(found) == 0 {
		return 0, errors.Join(fmt.Errorf("batch %d: %w", id, ErrNotFound), err)
	}
	pool, err := s.findPool(found[0].Pool)
	if err != nil {
		return 0, err
	}
	deed := s.jobDeed(ctx, "batch.cancel", id, nil)
	deed.Tenant = found[0].Tenant
	if err := s.note(ctx, pool, deed); err != nil {
		return 0, fmt.Errorf("cancel batch %d: %w", id, routing.NamePool(pool.Name, err))
	}
	itself, jobs, err := s.cancelIn(ctx, pool, id)
	if err == nil && itself+jobs == 0 && !found[0].ClosedAt.IsZero() {
		state := "closed"
		if j, _, err := (&Operator{s.process}).JobIn(ctx, pool.Name, id); err == nil {
			state = j.State
		}
		return 0, fmt.Errorf("cancel batch %d: %w", id, &StateError{state, "cancel"})
	}
	return jobs, err
}

// cancelIn cancels a batch of a pool: its completion job, if that has not ended, and its jobs.
func (s *Batches) cancelIn(ctx context.Context, pool *routing.Pool, id job.ID) (itself, jobs int, err error) {
	_, err = (&Operator{s.process}).Cancel(ctx, id)
	switch {
	case err == nil:
		itself = 1
	case !errors.Is(err, ErrNotFound):
		return 0, 0, err
	}
	var inner []job.ID
	err = operate(ctx, pool, func(ctx context.Context, db *pgxpool.Conn) (err error) {
		inner, err = store.CloseBatch(ctx, db, id)
		return err
	})
	if err != nil {
		return itself, 0, err
	}
	for _, batch := range inner {
		one, all, err := s.cancelIn(ctx, pool, batch)
		jobs += one + all
		if err != nil {
			return itself, jobs, err
		}
	}
	for after := job.ID(-1 << 63); ; {
		err := operate(ctx, pool, func(ctx context.Context, db *pgxpool.Conn) error {
			n, next, err := store.CancelBatchJobs(ctx, db, id, after, cancelBatchStep, s.keep)
			jobs, after = jobs+n, next
			return err
		})
		if err != nil || after == 0 {
			return itself, jobs, err
		}
	}
}
