package acquisition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// session is one life of this process in a pool: what its claims belong to. It is
// an execution.Owner, so its methods are called from all workers.
type session struct {
	id        uuid.UUID
	keeper    *keeper
	log       *zap.Logger
	trust     trust
	lost      atomic.Bool // it was declared dead
	completer *completer

	ctx    context.Context         // of every run; done when the session is lost
	cancel context.CancelCauseFunc // of ctx

	flushing context.Context // of the completer
	stop     context.CancelFunc
	started  sync.Once     // the completer, by the first claim
	making   gate          // of claims; see sweep
	stopped  chan struct{} // closed when the completer has ended
}

var _ execution.Owner = (*session)(nil)

func newSession(k *keeper) *session {
	s := &session{id: uuid.New(), keeper: k, stopped: make(chan struct{})}
	s.log = k.log.With(zap.Stringer("session", s.id))
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.flushing, s.stop = context.WithCancel(context.Background())
	s.completer = newCompleter(s)
	return s
}

// errClaiming is returned by sweep when a claim was being made all the time.
var errClaiming = errors.New("a claim is being made")

// sweep removes claims of this session that it does not know of: the answer to one got
// lost, or a fail-over that lost commits has brought it back. Nobody else would remove
// them, as long as the session lives. It waits for a claim that is just being made, but
// not longer than patience.
func (s *session) sweep(ctx context.Context, db store.DB, patience time.Duration) (int, error) {
	made, err := store.ClaimsMade(ctx, db, s.id)
	if err != nil {
		return 0, err
	}
	return s.sweepUnknown(ctx, db, made, patience)
}

// sweepUnknown is sweep for those who have read already which claims there are.
func (s *session) sweepUnknown(ctx context.Context, db store.DB, made []int64, patience time.Duration) (int, error) {
	if len(made) == 0 {
		return 0, nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, patience, errClaiming)
	defer cancel()
	var known []int64 // whatever is in made and not here will never be
	if err := s.making.whenClear(waiting, func() { known = s.completer.known() }); err != nil {
		return 0, err
	}
	unknown := slices.DeleteFunc(made, func(id int64) bool { return slices.Contains(known, id) })
	if len(unknown) == 0 {
		return 0, nil
	}
	return len(unknown), store.ReleaseClaims(ctx, db, s.id, unknown)
}

// open notes a claim of n jobs.
func (s *session) open(claim int64, n int) {
	s.started.Do(func() {
		go func() {
			defer close(s.stopped)
			s.completer.run(s.flushing)
		}()
	})
	s.completer.open(claim, n)
}

// end stops the completer after a last try to write what waits, and waits for it.
func (s *session) end(cause error) {
	s.cancel(cause)
	s.stop()
	s.started.Do(func() { close(s.stopped) }) // nothing was ever claimed
	<-s.stopped
	s.keeper.workers.Forget(s)
}

// Context implements execution.Owner.
func (s *session) Context() context.Context { return s.ctx }

// MayStart implements execution.Owner: a job must not begin when the session may
// already have been declared dead.
func (s *session) MayStart() bool { return s.trust.stands() && s.ctx.Err() == nil }

// Tenants implements execution.Owner.
func (s *session) Tenants() *pgxpool.Pool { return s.keeper.pool.Tenants() }

// QueueFinish implements execution.Owner.
func (s *session) QueueFinish(b *pgx.Batch, c *execution.Claim) {
	store.QueueFinishInTx(b, &c.Record, s.keeper.keep())
}

// FinishError implements execution.Owner.
func (s *session) FinishError(err error) error { return store.TranslateFinish(err) }

// FinishedInTx implements execution.Owner.
func (s *session) FinishedInTx(c *execution.Claim) {
	s.completer.add(ending{claim: c, how: ranInTx, outcome: job.Outcome{State: job.Done}})
}

// Finish implements execution.Owner.
func (s *session) Finish(c *execution.Claim, o job.Outcome) {
	s.completer.add(ending{claim: c, outcome: o})
}

// bury sends a claimed job to the dead letters that was not read, as it is too large.
func (s *session) bury(c *execution.Claim) {
	s.Finish(c, job.Outcome{State: job.Dead, Err: fmt.Errorf(
		"its arguments and meta come to more than %d bytes as Postgres prints them, so they were not read and it did not run: store the data elsewhere and pass its key", store.MaxJobBytes)})
}

// Return implements execution.Owner.
func (s *session) Return(c *execution.Claim) { s.completer.add(ending{claim: c, how: unstarted}) }

// Roomy implements execution.Owner.
func (s *session) Roomy() {
	s.keeper.inbox.roomy()
	nudge(s.keeper.errands.nudge)
}

// ended passes on to the term and to the assistant, if there are any, whose ends have
// been written, and which claims are at their end.
func (s *session) ended(batch []ending, over []int64) {
	s.keeper.inbox.endings(batch)
	s.keeper.errands.ended(batch, over)
}

func (s *session) writeOnce(ctx context.Context, runs []store.Finished, over, returnClaims, returnJobs []int64) (lost int, err error) {
	db := s.keeper.pool.Jobs()
	if len(returnJobs) > 0 {
		if err := store.ReturnUnstarted(ctx, db, s.id, returnClaims, returnJobs); err != nil {
			return 0, err
		}
	}
	if len(runs) == 0 && len(over) == 0 {
		return 0, nil
	}
	return store.Finish(ctx, db, store.Runner{Session: s.id, Node: s.keeper.self.Node}, s.keeper.keep(), runs, over)
}

func (s *session) heldJobs(ctx context.Context, runs []store.Finished) (map[job.ID]bool, error) {
	return store.HeldJobs(ctx, s.keeper.pool.Jobs(), runs)
}

// spare says of runs of a session that was declared dead that they did not end this
// process, which was cut off from the database, or stood still. It is tried once: that they
// stay charged costs their jobs some caution and, at the third time, a dead letter.
func (s *session) spare(ctx context.Context) {
	s.completer.mu.Lock()
	runs := s.completer.outlived
	s.completer.mu.Unlock()
	if len(runs) == 0 {
		return
	}
	ids, turns := make([]int64, len(runs)), make([]int32, len(runs))
	for i, r := range runs {
		ids[i], turns[i] = int64(r.id), r.turn
	}
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	if err := store.Spare(ctx, s.keeper.pool.Jobs(), ids, turns); err != nil {
		s.log.Warn("losses could not be taken back of jobs that this process has outlived", zap.Int("jobs", len(runs)), zap.Error(err))
	}
}

// margin is how much earlier than its time-to-live a lock or a session is given up
// on this side, for what the two clocks may drift apart in that time.
const margin = 1500 * time.Millisecond

// marginOf keeps the margin sensible for the short times that tests use.
func marginOf(ttl time.Duration) time.Duration { return min(margin, ttl/5) }
