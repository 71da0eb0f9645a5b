package lease

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Start has heartbeats sent and locks renewed from now on, as long as there is a session.
func (k *Keeper) Start() {
	k.started.Store(true)
	k.ensureRunning()
}

// ensureRunning starts run if there is a session to keep.
func (k *Keeper) ensureRunning() {
	if k.started.Load() && k.life.Err() == nil && k.Current() != nil && k.running.CompareAndSwap(false, true) {
		k.group.Go(func() { k.run(k.life) })
	}
}

// run sends heartbeats and renews as long as there is a session to keep.
func (k *Keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := k.keepAlive(ctx)
		if k.Current() == nil {
			k.running.Store(false)
			k.ensureRunning() // for one that was opened meanwhile
			return
		}
		k.conn.await(ctx, time.Now().Add(wait))
	}
}

// keepAlive does what is due and returns when to come back.
func (k *Keeper) keepAlive(ctx context.Context) time.Duration {
	h, s := k.kept.lock.Load(), k.Current()
	if h != nil && (s == nil || s.id != h.fence.Session) { // the session that took the lock is lost
		h.lost(ErrLockLost)
		h = nil
	}
	switch {
	case h != nil:
		return k.renewLock(ctx, s, h)
	case s == nil:
		return time.Hour // until the next nudge
	case s.HasClaims() || s.isWanted():
		if err := k.sendHeartbeat(ctx, s); err != nil && !errors.Is(err, store.ErrSessionLost) {
			return k.retryAfter(s.trust.left(), err)
		}
		return k.node.cfg.Session.HeartbeatEvery
	}
	idle := true
	left, err := k.leaveSession(ctx, s, func() bool { idle = !s.isWanted(); return idle })
	switch {
	case err != nil, !idle: // if the database does not answer, the session goes on until it does
		return k.node.cfg.Session.HeartbeatEvery
	case !left:
		k.log.Warn("idle session has claims in the ledger that it does not know of; they are taken back when it expires")
	default:
		k.noteIdle(ctx, s)
	}
	k.dropSession(s)
	return time.Hour
}

// retryAfter is how soon to retry: soon while some trust is left, and it may help.
func (k *Keeper) retryAfter(left time.Duration, err error) time.Duration {
	rest := k.pool.Breaker.WaitLeft(time.Now())
	switch {
	case errors.Is(err, routing.ErrReplaced):
		return retryEvery
	case rest > 0:
		return rest
	case left <= 0:
		return min(retryEvery, k.node.cfg.Lock.RenewEvery)
	}
	wait := k.node.cfg.Lock.RenewEvery / 4
	return max(50*time.Millisecond, min(wait+rand.N(wait/4), left/3))
}

// renewLock renews the lock together with the session.
func (k *Keeper) renewLock(ctx context.Context, s *Session, h *Lock) time.Duration {
	lock, look := k.node.cfg.Lock, h.countLook()
	if look > 0 {
		lock = lock.Living(DozeFactor * lock.TTL)
	}
	sent := Now()
	err := k.beat(ctx, s, sent, true, func(ctx context.Context, conn *pgx.Conn) (clock time.Time, err error) {
		if look > 0 {
			var seen store.Idle
			if seen, clock, err = store.RenewIdle(ctx, conn, h.fence, lock.TTL, k.node.cfg.Session.TTL); err == nil {
				k.reportWork(seen)
			}
		} else {
			clock, err = store.RenewLock(ctx, conn, h.fence, lock.TTL, k.node.cfg.Session.TTL)
		}
		if err == nil {
			h.trust.extend(sent, lock.TTL)
		}
		return clock, err
	})
	switch {
	case err == nil:
		if k.pool.Breaker.IsFailing() { // they have found out that the connection is no good
			break
		}
		if look > 0 { // what comes soon after the last look, as when a node has just started, is found soon
			return backoff.Policy{First: briefly, Longest: lock.RenewEvery}.Exactly(look)
		}
		return lock.RenewEvery
	case errors.Is(err, store.ErrSessionLost), errors.Is(err, store.ErrFenced):
		h.lost(ErrLockLost)
	case errors.Is(err, store.ErrNewIncarnation):
		h.lost(err)
	default:
		k.LogFailure("acquire lock could not be renewed", err, zap.Duration("trusted_for", h.trust.left()))
		switch {
		case errors.Is(err, routing.ErrReplaced):
			h.lost(err)
		case !h.trust.holds():
			h.lost(ErrTrustOver)
		}
	}
	return k.retryAfter(h.trust.left(), err)
}

// SetDozing has the lock renewed at once, and then slower and slower, or at its usual pace
// again.
func (k *Keeper) SetDozing(on bool) {
	if h := k.kept.lock.Load(); h != nil {
		h.doze(on)
	}
	k.conn.interrupt()
}

// reportWork wakes a term that dozes, if there is something to do.
func (k *Keeper) reportWork(seen store.Idle) {
	switch {
	case seen.Waiting:
		k.events.WorkSeen(nil, 0)
	case seen.Due != nil && *seen.Due < DozeFactor*DozeFactor*k.node.cfg.Lock.RenewEvery: // before the next renewal, or a little later
		k.events.WorkSeen(nil, max(*seen.Due, time.Nanosecond))
	}
}

// sendHeartbeat says that the session lives.
func (k *Keeper) sendHeartbeat(ctx context.Context, s *Session) error {
	err := k.beat(ctx, s, Now(), false, func(ctx context.Context, conn *pgx.Conn) (time.Time, error) {
		return store.BeatSession(ctx, conn, s.id, k.node.cfg.Session.TTL)
	})
	if err != nil && !errors.Is(err, store.ErrSessionLost) {
		k.LogFailure("heartbeat failed", err, zap.Duration("trusted_for", s.trust.left()))
	}
	return err
}

// beat says that the session lives, by a statement that returns the database's clock, and does what
// goes with a heartbeat. The connection listens from then on, or not.
func (k *Keeper) beat(ctx context.Context, s *Session, sent Instant, listens bool, send func(context.Context, *pgx.Conn) (time.Time, error)) error {
	var clock time.Time
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if clock, err = send(ctx, conn); err == nil {
			k.pool.NoteWritten()
			k.hearing.set(ctx, conn, listens)
			k.TellQueues(ctx, conn)
		}
		return err
	})
	k.checkClock(sent, clock)
	switch {
	case err == nil:
		s.trust.extend(sent, k.node.cfg.Session.TTL)
		k.removeOrphans(ctx, s)
		k.tellKinds(ctx, s)
		k.tellBusy(ctx, s)
		k.cancelRequested(ctx, s)
	case errors.Is(err, store.ErrSessionLost):
		k.loseSession(s)
	case errors.Is(err, store.ErrFenced), errors.Is(err, store.ErrNewIncarnation): // the heartbeat beside it was accepted
		s.trust.extend(sent, k.node.cfg.Session.TTL)
	default:
		k.abandonRuns(s, err)
	}
	return err
}

// checkClock takes in what the database's clock said in answer to something sent; zero: it
// did not answer.
func (k *Keeper) checkClock(sent Instant, clock time.Time) {
	if clock.IsZero() {
		return
	}
	by := k.clock.noteReading(clock, sent, Now())
	if by == 0 {
		return
	}
	if by < 0 {
		k.events.ClockSetBack()
	}
	k.node.metrics.clockJumps.WithLabelValues(k.pool.Name).Inc()
	k.log.Warn("the clock of the pool's database has jumped, or this node's machine has stood still: timers fire as much too early, or too late if it went back; check the clock of its host",
		zap.Duration("by", by.Round(time.Millisecond)), zap.Time("to", clock))
}

// abandonRuns takes the workers away from transactions on a database that was replaced, or
// has not answered for as long as a session may be silent.
func (k *Keeper) abandonRuns(s *Session, err error) {
	if !s.trust.holds() || errors.Is(err, routing.ErrReplaced) {
		k.node.workers.CancelTransactions(s)
	}
}

// removeOrphans removes claims that a fail-over has brought back, once after each time
// the connection was opened: the server may be another one than before.
func (k *Keeper) removeOrphans(ctx context.Context, s *Session) {
	if !k.conn.fresh.Swap(false) {
		return
	}
	n := 0
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if n, err = s.Sweep(ctx, conn, briefly); errors.Is(err, errClaimPending) {
			k.conn.fresh.Store(true)
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		k.conn.fresh.Store(true)
		k.log.Warn("orphaned claims could not be searched for", zap.Error(err))
	case n > 0:
		k.log.Warn("removed orphaned claims: a reply was lost, or a fail-over has brought them back", zap.Int("claims", n))
	}
}

// tellKinds says in the ledger which kinds this node handles, if that has changed, and then has the
// holders told of it.
func (k *Keeper) tellKinds(ctx context.Context, s *Session) {
	kinds, mark := k.node.self.Kinds()
	if mark == s.kindsMark.Load() {
		return
	}
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.SetKinds(ctx, conn, s.id, kinds)
	})
	if err != nil {
		k.log.Warn("the ledger could not be told which kinds this node handles; it is told with the next heartbeat", zap.Error(err))
		return
	}
	s.kindsMark.Store(mark)
	k.events.CapacityAvailable()
}

// tellBusy says in the ledger what keeps the workers, if that has changed.
func (k *Keeper) tellBusy(ctx context.Context, s *Session) {
	now := k.node.workers.Busy()
	if now.Equal(*s.told.Load()) {
		return
	}
	var busy *store.Busy
	if now.Workers > 0 {
		busy = &store.Busy{Workers: now.Workers, Kept: now.Kept, Rest: now.Full, Left: now.Left, Kinds: make([]store.BusyKind, len(now.Kinds))}
		for i, kind := range now.Kinds {
			busy.Kinds[i] = store.BusyKind(kind)
		}
	}
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.SetBusy(ctx, conn, s.id, busy)
	})
	if err != nil {
		k.log.Warn("the ledger could not be told what keeps the workers; it is told with the next heartbeat", zap.Error(err))
		return
	}
	s.told.Store(&now)
}

// cancelRequested cancels runs that somebody wants ended.
func (k *Keeper) cancelRequested(ctx context.Context, s *Session) {
	if !s.HasClaims() {
		k.node.workers.Withhold(s, nil)
		return
	}
	var asked []job.ID
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		asked, err = store.CancelRequests(ctx, conn, s.id)
		return err
	})
	if err != nil {
		k.log.Warn("cancel requests could not be read", zap.Error(err))
		return
	}
	k.node.workers.Withhold(s, asked) // those that have not begun
	for _, id := range asked {
		if k.node.workers.Cancel(id) {
			k.log.Info("running job cancelled on request", zap.Stringer("job", id))
		}
	}
}
