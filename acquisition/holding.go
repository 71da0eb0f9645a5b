package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// holding is a pool's acquire lock in the hands of this node, with what the node knows of the
// jobs under it. It lasts for one term, whose parts share it; they run in its one goroutine.
type holding struct {
	*poolNode
	session *lease.Session
	lock    *lease.Lock
	fence   store.Fence
	began   time.Time
	from    string // the member that the lock was taken from, as it did not renew it; "": it had been released

	lanes      *schedule.Lanes
	inFlight   *schedule.InFlight
	gates      *schedule.Gates
	shared     *map[string][]store.Limit // with these of node.limits the gates were set
	keys       *schedule.Keys
	horizon    *schedule.Horizon
	quarantine *schedule.Quarantine

	duties  *duties
	claimed bool // some claim was committed
}

func newHolding(p *poolNode, s *lease.Session, l *lease.Lock, from string) *holding {
	h := &holding{
		poolNode: p, session: s, lock: l, fence: l.Fence(), began: time.Now(), from: from,
		lanes: schedule.NewLanes(p.queues.Load()), inFlight: schedule.NewInFlight(), horizon: schedule.NewHorizon(), quarantine: schedule.NewQuarantine(&p.quarantine, 3*tendEvery),
		duties: newDuties(p.log, &p.group, p.inbox.wake),
	}
	h.gates, h.keys, h.shared = schedule.NewGates(h.inFlight), schedule.NewKeys(h.inFlight), p.limits.Load()
	return h
}

// clearQuarantine forgets the jobs that wait in quarantine, to be read again.
func (h *holding) clearQuarantine() {
	for q := range h.quarantine.Waiting() {
		h.keys.ReleaseWaiting(q.Run())
	}
	h.quarantine.Clear()
}

// verifyLock finds out whether the lock is still this node's, under the same incarnation of
// the database.
func (h *holding) verifyLock(ctx context.Context) error {
	l, err := store.ReadLock(ctx, h.pool.Jobs())
	if err != nil {
		return err
	}
	if l.Session != h.fence.Session || l.Epoch != h.fence.Epoch || l.Paused || l.Remaining == 0 {
		return lease.ErrLockLost
	}
	incarnation, err := store.ReadIncarnation(ctx, h.pool.Jobs())
	if err == nil && incarnation != h.fence.Incarnation {
		return store.ErrNewIncarnation
	}
	return err
}

// idleness is since when nothing has been going on in a pool.
type idleness struct {
	*holding
	operations *operations
	inherited  bool      // the last holder dozed, or there was none
	quiet      time.Time // since when
	dozed      bool      // the term was dozing when it ended
}

// mayDoze tells whether nothing has been going on for a while.
func (i *idleness) mayDoze(now time.Time) bool {
	if i.cfg.IdleWait < i.cfg.Lock.RenewEvery || i.lanes.HasUnclaimed() || i.gates.AnyParked() || i.keys.Any() || !i.quarantine.Empty() || i.inFlight.Any() || i.operations.some || i.session.HasClaims() {
		i.quiet = now
	}
	return now.Sub(i.quiet) >= dozeAfter*i.cfg.IdleWait
}

// dozeAfter is after how many times acquire.idle_wait without work a holder dozes.
const dozeAfter = 5

// errUnsure ends a term: it is not known whether a claim was committed.
var errUnsure = errors.New("it is not known whether a claim was committed")

// errMoved ends a term: another node should have the lock.
var errMoved = errors.New("another node is elected")
