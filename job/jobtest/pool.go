package jobtest

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// pool does by hand, and under the same fence, what an acquirer does in a loop.
type pool struct {
	*routing.Pool
	registry *job.Registry
	fence    store.Fence
	kinds    store.Kinds
}

// holdFor is how long a pool's lock is held: longer than any test runs.
const holdFor = 1000 * time.Hour

// takeOver opens a session in a pool and takes its acquire lock.
func takeOver(ctx context.Context, p *routing.Pool, registry *job.Registry) (*pool, error) {
	own := &pool{Pool: p, registry: registry, kinds: store.KindsOf(registry.Kinds())}
	s := store.Session{ID: uuid.New(), Node: name, Member: name, Kinds: own.kinds.List()}
	if err := store.OpenSession(ctx, p.Jobs(), s, holdFor); err != nil {
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	}
	mine, lock, err := store.TakeLock(ctx, p.Jobs(), store.Claimant{Session: s.ID, Member: name, SeenSeq: -1}, holdFor)
	switch {
	case err != nil:
		return nil, fmt.Errorf("pool %s: %w", p.Name, err)
	case !mine:
		return nil, fmt.Errorf("pool %s: %q holds the acquire lock of a new database", p.Name, lock.Holder)
	}
	own.fence = store.Fence{Session: s.ID, Epoch: lock.Epoch, Incarnation: lock.Incarnation}
	return own, nil
}

// letGo leaves the pool to real nodes.
func (p *pool) letGo(ctx context.Context) error {
	err := store.OfferLock(ctx, p.Jobs(), p.fence, "", 0)
	if err == nil {
		_, err = store.LeaveSession(ctx, p.Jobs(), p.fence.Session)
	}
	return routing.NamePool(p.Name, err)
}

// most is more jobs than a test has.
const most = 1 << 30

// fire moves the timers that are due now to the waiting jobs.
func (p *pool) fire(ctx context.Context) error {
	_, err := store.FireTimers(ctx, p.Jobs(), p.fence, most)
	return routing.NamePool(p.Name, err)
}

// settle makes jobs wait to run that await no others any more; ended says whether one that was
// awaited has ended since the last call.
func (p *pool) settle(ctx context.Context) (ended bool, err error) {
	s, err := store.SettleAwaited(ctx, p.Jobs(), p.fence, most, true)
	if err == nil && s.Started > 0 {
		_, err = p.Jobs().Exec(ctx, startSQL)
	}
	return s.Ends > 0, routing.NamePool(p.Name, err)
}

// The statements below stand here and not in the ledger's package, as nothing
// but a test may turn the clock, look at every row or start some timers before others.

// startSQL starts the jobs that await no others any more, and leaves every other timer alone: a
// second later a retry is due.
const startSQL = `SELECT tenure.retry(t.id) FROM tenure.timer_job t JOIN tenure.awaiting w ON w.job_id = t.id
	WHERE w.closed_at IS NOT NULL AND t.attempt = 0 AND t.due_at <= clock_timestamp()
	ORDER BY t.due_at, t.id`

// advanceSQL turns the clock for all timers, and for the periods of unique keys. $1 by how much, in µs.
const advanceSQL = `WITH keys AS (UPDATE tenure.unique_period SET free_at = free_at - $1::bigint * interval '1 microsecond')
	UPDATE tenure.timer_job SET due_at = due_at - $1 * interval '1 microsecond' WHERE due_at <> tenure.never()`

// advance makes timers due, and keys free, d sooner.
func (p *pool) advance(ctx context.Context, d time.Duration) error {
	if _, err := p.Jobs().Exec(ctx, advanceSQL, d.Microseconds()); err != nil {
		return fmt.Errorf("pool %s: advance the timers: %w", p.Name, err)
	}
	return nil
}

// busySQL counts the jobs that run, wait or are due, or may be.
const busySQL = `SELECT (SELECT count(*) FROM tenure.job)
	+ (SELECT count(*) FROM tenure.claim)
	+ (SELECT count(*) FROM tenure.timer_job WHERE due_at <= clock_timestamp())
	+ (SELECT count(*) FROM tenure.awaited_end)`

func (p *pool) busy(ctx context.Context) (n int, err error) {
	if err := p.Jobs().QueryRow(ctx, busySQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("pool %s: count its jobs: %w", p.Name, err)
	}
	return n, nil
}

// claimed is a job that was claimed by hand, or jobs of one kind, tenant and turn.
type claimed struct {
	claim   int64
	records []job.Record
}

// pickFunc reads waiting jobs and chooses some for a claim; none: there is none to choose.
type pickFunc func(ctx context.Context, p *pool) (jobs []store.Waiting, removals int64, err error)

// cancel ends the waiting jobs that somebody has cancelled, as who holds a lock does.
func (p *pool) cancel(ctx context.Context) error {
	for after := store.BeforeAllJobs; ; {
		found, err := store.FindUnwanted(ctx, p.Jobs(), after, pageSize)
		if err != nil || len(found.IDs) == 0 {
			return err
		}
		if _, err = store.CancelWaiting(ctx, p.Jobs(), p.fence, found, true); err != nil && !errors.Is(err, store.ErrFenced) {
			return err
		}
		after = found.IDs[len(found.IDs)-1]
	}
}

// claimTries bounds the repeats of a claim that is void because somebody cancelled
// a job between the reading and the claim.
const claimTries = 10

// claim claims the jobs that pick chooses; nil: it chose none.
func (p *pool) claim(ctx context.Context, pick pickFunc) (*claimed, error) {
	for range claimTries {
		if err := p.cancel(ctx); err != nil {
			return nil, err
		}
		jobs, removals, err := pick(ctx, p)
		if err != nil || len(jobs) == 0 {
			return nil, err
		}
		c := &claimed{}
		req := store.NewClaimRequest(removals, len(jobs))
		for _, w := range jobs {
			req.Add(w.Record.ID, w.Record.Turn)
			c.records = append(c.records, w.Record)
		}
		made, err := store.InsertClaims(ctx, p.Jobs(), p.fence, req)
		if errors.Is(err, store.ErrFenced) {
			continue
		}
		if err != nil {
			return nil, err
		}
		c.claim = made[0].ID
		return c, nil
	}
	return nil, fmt.Errorf("jobtest lost the acquire lock of pool %s: something else acquires there", p.Name)
}

// maxLanes bounds the lanes that are looked at.
const maxLanes = 100_000

// first picks what is to be run next: of the highest priority the job enqueued first and, if its
// handler gets batches, those of its kind in its lane.
func first(ctx context.Context, p *pool) ([]store.Waiting, int64, error) {
	lanes, err := store.Lanes(ctx, p.Jobs(), maxLanes)
	if err != nil {
		return nil, 0, err
	}
	var req store.PageRequest
	for _, l := range lanes {
		req.Add(l, 0, pageSize)
	}
	page, err := store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false)
	if err != nil {
		return nil, 0, err
	}
	slices.SortStableFunc(page.Jobs, func(a, b store.Waiting) int {
		return cmp.Or(cmp.Compare(b.Record.Priority, a.Record.Priority), cmp.Compare(a.Position, b.Position))
	})
	var best *store.Waiting
	for i := range page.Jobs {
		w := &page.Jobs[i]
		if w.Keyed {
			if w, err = p.keyHead(ctx, w); err != nil {
				return nil, 0, err
			}
		}
		if best = w; best != nil {
			break
		}
	}
	if best == nil {
		return nil, 0, nil
	}
	of := &best.Record
	spec, known := p.registry.Lookup(of.Kind)
	if !known || spec.HandleBatch == nil {
		return []store.Waiting{*best}, page.Removals, nil
	}
	req = store.PageRequest{}
	req.Add(store.Lane{Queue: of.Queue, Tenant: of.Tenant, Priority: of.Priority}, 0, pageSize)
	if page, err = store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false); err != nil {
		return nil, 0, err
	}
	if of.ExclusiveKey != "" { // its followers wait
		return []store.Waiting{*best}, page.Removals, nil
	}
	alike := slices.DeleteFunc(page.Jobs, func(w store.Waiting) bool {
		return w.Keyed || w.Record.Kind != of.Kind || w.Record.Turn != of.Turn
	})
	return alike[:min(len(alike), spec.MaxBatch)], page.Removals, nil
}

// keyHead is the job whose turn it is under a waiting job's exclusive key; nil: all of them wait.
func (p *pool) keyHead(ctx context.Context, w *store.Waiting) (*store.Waiting, error) {
	key := store.Key{Tenant: string(w.Record.Tenant), Name: w.Record.ExclusiveKey}
	heads, err := store.KeyHeads(ctx, p.Jobs(), []store.Key{key}, []int64{0})
	head, ok := heads[key]
	if err != nil || !ok || head.Retrying {
		return nil, err
	}
	return p.readHead(ctx, head.Lane, head.Position)
}

// readHead reads a job with an exclusive key whole; nil: it is gone.
func (p *pool) readHead(ctx context.Context, lane store.Lane, position int64) (*store.Waiting, error) {
	var req store.PageRequest
	req.AddHead(lane, position)
	page, err := store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false)
	if err != nil || len(page.Jobs) == 0 || page.Jobs[0].Position != position {
		return nil, err
	}
	return &page.Jobs[0], nil
}

// pageSize is how much of a lane is read at a time.
const pageSize = 1000

// theOne picks the job with an id out of its lane.
func theOne(lane store.Lane, id job.ID) pickFunc {
	return func(ctx context.Context, p *pool) ([]store.Waiting, int64, error) {
		after := int64(0)
		for {
			var req store.PageRequest
			req.Add(lane, after, pageSize)
			page, err := store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false)
			if err != nil {
				return nil, 0, err
			}
			for i := range page.Jobs {
				w := &page.Jobs[i]
				if w.Record.ID != id {
					continue
				}
				if !w.Keyed {
					return page.Jobs[i : i+1], page.Removals, nil
				}
				head, err := p.keyHead(ctx, w)
				if err != nil {
					return nil, 0, err
				}
				if head == nil || head.Record.ID != id {
					return nil, 0, fmt.Errorf("an earlier job has the same exclusive key, %q, and runs first: let Drain, or Advance and Drain, end it before, or give Run a key of its own", w.Record.ExclusiveKey)
				}
				return []store.Waiting{*head}, page.Removals, nil
			}
			if len(page.Jobs) < pageSize {
				return nil, 0, nil
			}
			after = page.Jobs[len(page.Jobs)-1].Position
		}
	}
}
