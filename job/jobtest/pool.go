package jobtest

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// pool does by hand, and under the same fence, what an acquirer does in a loop.
type pool struct {
	*routing.Pool
	fence store.Fence
	kinds store.Kinds
}

// holdFor is how long a pool's lock is held: longer than any test runs.
const holdFor = 1000 * time.Hour

// takeOver opens a session in a pool and takes its acquire lock.
func takeOver(ctx context.Context, p *routing.Pool, registry *job.Registry) (*pool, error) {
	own := &pool{Pool: p, kinds: store.KindsOf(registry.Kinds())}
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
	if err := store.OfferLock(ctx, p.Jobs(), p.fence, "", 0); err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	if _, err := store.LeaveSession(ctx, p.Jobs(), p.fence.Session); err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return nil
}

// fire moves the timers that are due now to the waiting jobs.
func (p *pool) fire(ctx context.Context) error {
	const most = 1 << 30
	if _, err := store.FireTimers(ctx, p.Jobs(), p.fence, most); err != nil {
		return fmt.Errorf("pool %s: %w", p.Name, err)
	}
	return nil
}

// The two statements below stand here and not in the ledger's package, as nothing
// but a test may turn the clock or look at every row.

// advanceSQL turns the clock for all timers. $1 by how much, in µs.
const advanceSQL = "UPDATE tenure.timer_job SET due_at = due_at - $1::bigint * interval '1 microsecond'"

// advance makes timers due d sooner.
func (p *pool) advance(ctx context.Context, d time.Duration) error {
	if _, err := p.Jobs().Exec(ctx, advanceSQL, d.Microseconds()); err != nil {
		return fmt.Errorf("pool %s: advance the timers: %w", p.Name, err)
	}
	return nil
}

// busySQL counts the jobs that run, wait or are due.
const busySQL = `SELECT (SELECT count(*) FROM tenure.job)
	+ (SELECT count(*) FROM tenure.claim)
	+ (SELECT count(*) FROM tenure.timer_job WHERE due_at <= clock_timestamp())`

func (p *pool) busy(ctx context.Context) (n int, err error) {
	if err := p.Jobs().QueryRow(ctx, busySQL).Scan(&n); err != nil {
		return 0, fmt.Errorf("pool %s: count its jobs: %w", p.Name, err)
	}
	return n, nil
}

// claimed is a job that was claimed by hand.
type claimed struct {
	claim  int64
	record job.Record
}

// pickFunc reads waiting jobs and chooses one; nil: there is none to choose.
type pickFunc func(ctx context.Context, p *pool) (w *store.Waiting, removals int64, err error)

// claimTries bounds the repeats of a claim that is void because somebody cancelled
// a job between the reading and the claim.
const claimTries = 10

// claim claims the job that pick chooses; nil: it chose none.
func (p *pool) claim(ctx context.Context, pick pickFunc) (*claimed, error) {
	for range claimTries {
		w, removals, err := pick(ctx, p)
		if err != nil || w == nil {
			return nil, err
		}
		rec := w.Record
		made, err := store.InsertClaim(ctx, p.Jobs(), p.fence, removals, []int64{int64(rec.ID)}, []int32{rec.Turn})
		if errors.Is(err, store.ErrFenced) {
			continue
		}
		if err != nil {
			return nil, err
		}
		return &claimed{claim: made.ByTurn[rec.Turn], record: rec}, nil
	}
	return nil, fmt.Errorf("jobtest lost the acquire lock of pool %s: something else acquires there", p.Name)
}

// maxLanes bounds the lanes that are looked at.
const maxLanes = 100_000

// first picks the job to be run next: of the highest priority the one enqueued
// first.
func first(ctx context.Context, p *pool) (*store.Waiting, int64, error) {
	lanes, err := store.Lanes(ctx, p.Jobs(), maxLanes)
	if err != nil {
		return nil, 0, err
	}
	var req store.PageRequest
	for _, l := range lanes {
		req.Add(l, 0, 1)
	}
	page, err := store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false)
	if err != nil {
		return nil, 0, err
	}
	var best *store.Waiting
	for i := range page.Jobs {
		w := &page.Jobs[i]
		if best == nil || w.Record.Priority > best.Record.Priority ||
			w.Record.Priority == best.Record.Priority && w.Position < best.Position {
			best = w
		}
	}
	return best, page.Removals, nil
}

// pageSize is how much of a lane is read at a time.
const pageSize = 1000

// theOne picks the job with an id out of its lane.
func theOne(lane store.Lane, id job.ID) pickFunc {
	return func(ctx context.Context, p *pool) (*store.Waiting, int64, error) {
		after := int64(0)
		for {
			var req store.PageRequest
			req.Add(lane, after, pageSize)
			page, err := store.ReadPage(ctx, p.Jobs(), &req, p.kinds, false)
			if err != nil {
				return nil, 0, err
			}
			for i := range page.Jobs {
				if page.Jobs[i].Record.ID == id {
					return &page.Jobs[i], page.Removals, nil
				}
			}
			if len(page.Jobs) < pageSize {
				return nil, 0, nil
			}
			after = page.Jobs[len(page.Jobs)-1].Position
		}
	}
}
