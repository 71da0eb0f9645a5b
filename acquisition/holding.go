package acquisition

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// place is this node's in a pool: what is done there goes by these.
type place struct {
	pool    *routing.Pool
	keeper  *lease.Keeper
	log     *zap.Logger
	metrics *metrics
}

// holding is a pool's acquire lock in the hands of this node. It lasts for one term.
type holding struct {
	*lease.Lock
	session *lease.Session
	began   time.Time
	from    string // the member that the lock was taken from, as it did not renew it; "": it had been released
}

// verify finds out whether the lock of a pool is still this node's, under the same incarnation of
// the database.
func (h *holding) verify(ctx context.Context, p *routing.Pool) error {
	l, err := store.ReadLock(ctx, p.Jobs())
	if err != nil {
		return err
	}
	fence := h.Fence()
	if l.Session != fence.Session || l.Epoch != fence.Epoch || l.Paused || l.Remaining == 0 {
		return lease.ErrLockLost
	}
	incarnation, err := store.ReadIncarnation(ctx, p.Jobs())
	if err == nil && incarnation != fence.Incarnation {
		return store.ErrNewIncarnation
	}
	return err
}

// work is what a term knows of the jobs of its pool: of those that wait, and of those in flight. Parts
// that use more than one of these have all.
type work struct {
	lanes      *schedule.Lanes
	inFlight   *schedule.InFlight
	gates      *schedule.Gates
	keys       *schedule.Keys
	quarantine *schedule.Quarantine
}

// clearQuarantine forgets the jobs that wait in quarantine, to be read again.
func (w *work) clearQuarantine() {
	for q := range w.quarantine.Waiting() {
		w.keys.ReleaseWaiting(q.Run())
	}
	w.quarantine.Clear()
}

// idleness is since when nothing has been going on in a pool.
type idleness struct {
	*work
	cfg        Config
	session    *lease.Session
	operations *operations
	isCrowded  func() bool // whether pools wait for this node's connections

	inherited bool      // the last holder dozed, or there was none
	quiet     time.Time // since when
	dozed     bool      // the term was dozing when it ended
}

// mayDoze tells whether nothing has been going on for a while.
func (i *idleness) mayDoze(now time.Time) bool {
	at, quiet := i.dozeAt(now)
	return quiet && !now.Before(at)
}

// dozeAt is when the holder dozes if nothing comes until then; not quiet: something is going on. Where other pools
// wait for this node's connections, that is soon: each duty would open one anew.
func (i *idleness) dozeAt(now time.Time) (at time.Time, quiet bool) {
	if i.cfg.IdleWait < i.cfg.Lock.RenewEvery || i.lanes.HasUnclaimed() || i.gates.AnyParked() || i.keys.Any() || !i.quarantine.Empty() || i.inFlight.Any() || i.operations.some || i.session.HasClaims() {
		i.quiet = now
		return time.Time{}, false
	}
	if i.isCrowded() {
		return i.quiet.Add(burst), true
	}
	return i.quiet.Add(dozeAfter * i.cfg.IdleWait), true
}

// dozeAfter is after how many times acquire.idle_wait without work a holder dozes.
const dozeAfter = 5

// errUnsure ends a term: it is not known whether a claim was committed.
var errUnsure = errors.New("it is not known whether a claim was committed")

// errMoved ends a term: another node should have the lock.
var errMoved = errors.New("another node is elected")
