package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Batches lists and cancels batches. It is safe for concurrent use.
type Batches struct{ proc *process.Process }

// BatchStatus is a batch as an operator sees it, with how its jobs have ended so far.
type BatchStatus struct {
	Pool      string
	ID        job.ID // of its completion job, too
	Tenant    string
	OnFailure string // what becomes of the completion job when a job fails: wait, cancel or run
	CreatedAt time.Time
	ListedAt  time.Time // with its id its place in lists, as a job's: see [JobStatus]
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
		return &job.InputError{Err: err}
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
		return nil, &job.InputError{Err: err}
	}
	pools, err := s.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	limit := cmp.Or(f.Limit, 100)
	out, unanswered := process.InspectEach(ctx, pools, listBatches(store.BatchFilter{Tenant: string(f.Tenant), After: after, Limit: limit}))
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
	for _, p := range s.proc.Router.Pools() {
		if ids[p.Name] != nil {
			pools = append(pools, p)
		}
	}
	counts, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]store.Batch, error) {
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

// Get returns one batch. ErrNotFound: no pool has it.
func (s *Batches) Get(ctx context.Context, id job.ID) (BatchStatus, error) {
	out, err := process.InspectEach(ctx, s.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]BatchStatus, error) {
		out, err := listBatches(store.BatchFilter{ID: id, Limit: 1})(ctx, p, db)
		if err == nil && len(out) > 0 && out[0].ClosedAt.IsZero() {
			out[0].Open, err = store.OpenJobs(ctx, db, id, openShown)
		}
		return out, err
	})
	if len(out) == 0 {
		return BatchStatus{}, fmt.Errorf("batch %d: %w", id, cmp.Or(err, store.ErrNotFound))
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
// with [Jobs.Cancel]. After an interruption the same call goes on. ErrNotFound: no pool has the
// batch. StateError: all of it has ended.
func (s *Batches) Cancel(ctx context.Context, id job.ID) (jobs int, err error) {
	found, err := process.InspectEach(ctx, s.proc.Router.Pools(), listBatches(store.BatchFilter{ID: id, Limit: 1}))
	if len(found) == 0 {
		return 0, fmt.Errorf("batch %d: %w", id, cmp.Or(err, store.ErrNotFound))
	}
	pool, err := s.proc.FindPool(found[0].Pool)
	if err != nil {
		return 0, err
	}
	deed := s.proc.JobDeed(ctx, "batch.cancel", id, nil)
	deed.Tenant = found[0].Tenant
	if err := s.proc.Note(ctx, pool, deed); err != nil {
		return 0, fmt.Errorf("cancel batch %d: %w", id, routing.NamePool(pool.Name, err))
	}
	itself, jobs, err := s.cancelIn(ctx, pool, id)
	if err == nil && itself+jobs == 0 && !found[0].ClosedAt.IsZero() {
		state := "closed"
		if j, _, err := (&Jobs{s.proc}).GetIn(ctx, pool.Name, id); err == nil {
			state = j.State
		}
		return 0, fmt.Errorf("cancel batch %d: %w", id, &StateError{state, "cancel"})
	}
	return jobs, err
}

// cancelIn cancels a batch of a pool: its completion job, if that has not ended, and its jobs.
func (s *Batches) cancelIn(ctx context.Context, pool *routing.Pool, id job.ID) (itself, jobs int, err error) {
	_, err = (&Jobs{s.proc}).cancelIn(ctx, []*routing.Pool{pool}, id)
	switch {
	case err == nil:
		itself = 1
	case !errors.Is(err, store.ErrNotFound):
		return 0, 0, err
	}
	var inner []job.ID
	err = process.Operate(ctx, pool, func(ctx context.Context, db *pgxpool.Conn) (err error) {
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
		err := process.Operate(ctx, pool, func(ctx context.Context, db *pgxpool.Conn) error {
			n, next, err := store.CancelBatchJobs(ctx, db, id, after, cancelBatchStep, s.proc.Keep)
			jobs, after = jobs+n, next
			return err
		})
		if err != nil || after == 0 {
			return itself, jobs, err
		}
	}
}
