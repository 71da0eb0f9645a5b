package lease

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Session is one life of this process in a pool: what its claims belong to. It is
// an execution.Owner, so its methods are called from all workers.
type Session struct {
	id      uuid.UUID
	ledger  poolLedger
	workers *execution.Workers
	events  Events

	completer *completer
	pending   pendingClaims // of claims; see sweep
	trust     trust
	kindsMark atomic.Uint32                  // of the kinds in its row
	told      atomic.Pointer[execution.Busy] // what its row says keeps the workers
	wanted    atomic.Pointer[time.Time]      // until then it is kept open, though it has no claims

	ctx    context.Context         // of every run; done when the session is lost
	cancel context.CancelCauseFunc // of ctx
}

var _ execution.Owner = (*Session)(nil)

func newSession(ledger poolLedger, workers *execution.Workers, events Events, lost prometheus.Counter, log *zap.Logger) *Session {
	s := &Session{id: ledger.session, ledger: ledger, workers: workers, events: events}
	s.told.Store(&execution.Busy{})
	s.ctx, s.cancel = context.WithCancelCause(context.Background())
	s.completer = newCompleter(ledger, events, lost, log.With(zap.Stringer("session", s.id)))
	return s
}

// ID names the session in the ledger.
func (s *Session) ID() uuid.UUID { return s.id }

// want keeps it open for a while, though it may have no claims.
func (s *Session) want(d time.Duration) {
	until := time.Now().Add(d)
	s.wanted.Store(&until)
}

// isWanted tells whether somebody has lately asked for it.
func (s *Session) isWanted() bool { return time.Now().Before(*s.wanted.Load()) }

// BeginClaim is called before a claim for this session is committed, and what it returns when
// the claim is known here.
func (s *Session) BeginClaim() (done func()) { return s.pending.beginClaim() }

// KindsMark tells the kinds that the ledger has of the session from others.
func (s *Session) KindsMark() uint32 { return s.kindsMark.Load() }

// HasClaims tells whether any claim is open; nil has none.
func (s *Session) HasClaims() bool { return s != nil && s.completer.hasClaims() }

// Claims lists the claims that are open.
func (s *Session) Claims() []int64 { return s.completer.listClaims() }

// Trusted tells whether the session may be believed to live.
func (s *Session) Trusted() bool { return s.trust.holds() }

// errClaimPending is returned by Sweep when a claim was being made all the time.
var errClaimPending = errors.New("a claim is being made")

// Sweep removes claims of this session that it does not know of: the reply to one got
// lost, or a fail-over that lost commits has brought it back. Nobody else would remove
// them, as long as the session lives. It waits for a claim that is just being made, but
// not longer than patience.
func (s *Session) Sweep(ctx context.Context, db store.DB, patience time.Duration) (int, error) {
	made, err := store.ClaimsMade(ctx, db, s.id)
	if err != nil {
		return 0, err
	}
	return s.SweepUnknown(ctx, db, made, patience)
}

// SweepUnknown sweeps for those who have read already which claims there are.
func (s *Session) SweepUnknown(ctx context.Context, db store.DB, made []int64, patience time.Duration) (int, error) {
	if len(made) == 0 {
		return 0, nil
	}
	waiting, cancel := context.WithTimeoutCause(ctx, patience, errClaimPending)
	defer cancel()
	var known []int64 // whatever is in made and not here will never be
	if err := s.pending.whenNone(waiting, func() { known = s.completer.listClaims() }); err != nil {
		return 0, err
	}
	unknown := slices.DeleteFunc(made, func(id int64) bool { return slices.Contains(known, id) })
	if len(unknown) == 0 {
		return 0, nil
	}
	return len(unknown), store.ReleaseClaims(ctx, db, s.id, unknown)
}

// OpenClaim notes a claim of n jobs.
func (s *Session) OpenClaim(claim int64, n int) {
	s.completer.start()
	s.completer.openClaim(claim, n)
}

// awaitIdle waits until no claim is open; false: ctx ended first.
func (s *Session) awaitIdle(ctx context.Context) bool {
	select {
	case <-s.completer.whenIdle():
		return true
	case <-ctx.Done():
		return false
	}
}

// end stops writing after a last try to write what waits.
func (s *Session) end(cause error) {
	s.cancel(cause)
	s.completer.end()
	s.workers.Forget(s)
}

// outlive ends a session that was declared dead once its last run has reported, or patience ends.
func (s *Session) outlive(patience context.Context) {
	if s.awaitIdle(patience) {
		s.completer.spareOutlived(patience)
	}
	s.end(errSessionLost)
}

// Context implements execution.Owner.
func (s *Session) Context() context.Context { return s.ctx }

// MayStart implements execution.Owner: a job must not begin when the session may
// already have been declared dead, nor while nobody could write how it ended.
func (s *Session) MayStart() bool {
	return s.trust.holds() && s.ctx.Err() == nil && !s.completer.failing.Load()
}

// Tenants implements execution.Owner.
func (s *Session) Tenants() execution.Conns { return s.ledger.pool.Tenants() }

// FinishInTx implements execution.Owner.
func (s *Session) FinishInTx(claims []*execution.ClaimedJob) string {
	return store.FinishInTx(EndInTx(claims, s.ledger.node, s.ledger.keep))
}

// EndInTx is the end of claims of one call in its transaction.
func EndInTx(claims []*execution.ClaimedJob, node string, keep bool) store.EndInTx {
	e := store.EndInTx{Turn: claims[0].Record.Turn, IDs: execution.IDs(claims), Keep: keep, Node: node, Took: claims[0].Age()}
	for _, c := range claims {
		if said, ok := c.Reporter().Take(); ok {
			e.Reports = append(e.Reports, store.Reported{Record: &c.Record, Age: e.Took, Report: said})
		}
	}
	return e
}

// FinishError implements execution.Owner.
func (s *Session) FinishError(err error) error {
	if store.IsDayAdded(err) {
		return fmt.Errorf("%w: %w", execution.ErrConflict, err)
	}
	return store.TranslateFinish(err)
}

// TryFinish implements execution.Owner.
func (s *Session) TryFinish(ctx context.Context, claims []*execution.ClaimedJob) error {
	return store.TryFinish(ctx, s.ledger.pool.Jobs(), claims[0].Record.Turn, execution.IDs(claims), s.ledger.node)
}

// FinishedInTx implements execution.Owner.
func (s *Session) FinishedInTx(c *execution.ClaimedJob) {
	s.completer.addEnded(Ended{Claim: c, How: RanInTx, Outcome: job.Outcome{State: job.Done}})
}

// Finish implements execution.Owner.
func (s *Session) Finish(c *execution.ClaimedJob, o job.Outcome) {
	s.completer.addEnded(Ended{Claim: c, Outcome: o, Took: c.Age()})
}

// Reported implements execution.Owner.
func (s *Session) Reported(c *execution.ClaimedJob) { s.completer.addReport(c) }

// DeadLetter sends a claimed job to the dead letters that was not read, as it is too large.
func (s *Session) DeadLetter(c *execution.ClaimedJob) {
	s.Finish(c, job.Outcome{State: job.Dead, Err: fmt.Errorf(
		"its arguments and meta come to more than %d bytes as Postgres prints them, so they were not read and it did not run: store the data elsewhere and pass its key", store.MaxJobBytes)})
}

// Return implements execution.Owner.
func (s *Session) Return(c *execution.ClaimedJob) {
	s.completer.addEnded(Ended{Claim: c, How: Unstarted})
}

// CapacityAvailable implements execution.Owner.
func (s *Session) CapacityAvailable() { s.events.CapacityAvailable() }
