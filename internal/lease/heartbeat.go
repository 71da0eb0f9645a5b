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
	ctx, cancel := context.WithCancel(context.Background())
	k.state.mu.Lock()
	defer k.state.mu.Unlock()
	k.state.ctx, k.state.cancel = ctx, cancel
	k.ensureRunning()
}

// ensureRunning has run started if there is a session to keep; mu is held.
func (k *Keeper) ensureRunning() {
	if k.state.running || k.state.current == nil || k.state.ctx == nil || k.state.ctx.Err() != nil {
		return
	}
	k.state.running = true
	k.group.Go(func() { k.run(k.state.ctx) })
}

// run sends heartbeats and renews as long as there is a session to keep.
func (k *Keeper) run(ctx context.Context) {
	for ctx.Err() == nil {
		wait := k.keepAlive(ctx)
		k.state.mu.Lock()
		if k.state.current == nil {
			k.state.running = false
			k.state.mu.Unlock()
			return
		}
		k.state.mu.Unlock()
		k.await(ctx, time.Now().Add(wait))
	}
}

// wakeUp has run do at once what there is to do.
func (k *Keeper) wakeUp() {
	wake(k.nudge)
	k.listening.interrupt()
}

// await waits until it is next, something has come up or ctx ends, and hears notifications
// meanwhile if there is a connection that listens.
func (k *Keeper) await(ctx context.Context, next time.Time) {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	free := k.mu // to be had while nobody calls; nil: there is nothing to hear
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.nudge:
			return
		case <-timer.C:
			return
		case free <- struct{}{}:
			if !k.listen(ctx, next, func() bool { return len(k.nudge) > 0 }) {
				free = nil
			}
			k.mu.Unlock()
		}
	}
}

// keepAlive does what is due and returns when to come back.
func (k *Keeper) keepAlive(ctx context.Context) time.Duration {
	k.state.mu.Lock()
	s, h, wanted := k.state.current, k.state.lock, k.state.wanted
	k.state.mu.Unlock()
	if h != nil && (s == nil || s.id != h.fence.Session) { // the session that took the lock is lost
		h.lost(ErrLockLost)
		h = nil
	}
	switch {
	case h != nil:
		return k.renewLock(ctx, s, h)
	case s == nil:
		return time.Hour // until the next nudge
	case s.HasClaims() || time.Now().Before(wanted):
		if err := k.sendHeartbeat(ctx, s); err != nil && !errors.Is(err, store.ErrSessionLost) {
			return k.retryAfter(s.trust.left(), err)
		}
		return k.cfg.Session.HeartbeatEvery
	}
	idle := true
	left, err := k.leaveSession(ctx, s, func() bool { idle = !k.state.isWanted(); return idle })
	switch {
	case err != nil, !idle: // if the database does not answer, the session goes on until it does
		return k.cfg.Session.HeartbeatEvery
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
		return min(retryEvery, k.cfg.Lock.RenewEvery)
	}
	wait := k.cfg.Lock.RenewEvery / 4
	return max(50*time.Millisecond, min(wait+rand.N(wait/4), left/3))
}

// renewLock renews the lock together with the session.
func (k *Keeper) renewLock(ctx context.Context, s *Session, h *Lock) time.Duration {
	lock := k.cfg.Lock
	k.state.mu.Lock()
	dozing := k.state.dozing
	k.state.looks++
	looks := k.state.looks
	k.state.mu.Unlock()
	if dozing {
		lock = lock.Living(DozeFactor * lock.TTL)
	}
	sent := Now()
	var clock time.Time
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if dozing {
			var seen store.Idle
			seen, clock, err = store.RenewIdle(ctx, conn, h.fence, lock.TTL, k.cfg.Session.TTL)
			if err == nil {
				k.reportWork(seen)
			}
		} else {
			clock, err = store.RenewLock(ctx, conn, h.fence, lock.TTL, k.cfg.Session.TTL)
		}
		if err == nil {
			k.pool.NoteWritten()
			k.setListening(ctx, conn, true)
		}
		return err
	})
	k.checkClock(sent, clock)
	switch {
	case err == nil:
		h.trust.extend(sent, lock.TTL)
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.removeOrphans(ctx, s)
		k.tellKinds(ctx, s)
		k.cancelRequested(ctx, s)
		if k.pool.Breaker.IsFailing() { // they have found out that the connection is no good
			break
		}
		if dozing { // what comes soon after the last look, as when a node has just started, is found soon
			return backoff.Policy{First: briefly, Longest: lock.RenewEvery}.Exactly(looks)
		}
		return lock.RenewEvery
	case errors.Is(err, store.ErrSessionLost):
		h.lost(ErrLockLost)
		k.loseSession(s)
	case errors.Is(err, store.ErrFenced):
		s.trust.extend(sent, k.cfg.Session.TTL) // the heartbeat beside it was accepted
		h.lost(ErrLockLost)
	case errors.Is(err, store.ErrNewIncarnation):
		s.trust.extend(sent, k.cfg.Session.TTL)
		h.lost(err)
	default:
		k.abandonRuns(s, err)
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
	k.state.mu.Lock()
	k.state.dozing, k.state.looks = on, 0
	k.state.mu.Unlock()
	k.wakeUp()
}

// reportWork wakes a term that dozes, if there is something to do.
func (k *Keeper) reportWork(seen store.Idle) {
	switch {
	case seen.Waiting:
		k.events.WorkSeen(nil, 0)
	case seen.Due != nil && *seen.Due < DozeFactor*DozeFactor*k.cfg.Lock.RenewEvery: // before the next renewal, or a little later
		k.events.WorkSeen(nil, max(*seen.Due, time.Nanosecond))
	}
}

// sendHeartbeat says that the session lives.
func (k *Keeper) sendHeartbeat(ctx context.Context, s *Session) error {
	sent := Now()
	var clock time.Time
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		clock, err = store.BeatSession(ctx, conn, s.id, k.cfg.Session.TTL)
		if err == nil {
			k.pool.NoteWritten()
			k.setListening(ctx, conn, false)
		}
		return err
	})
	k.checkClock(sent, clock)
	switch {
	case err == nil:
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.removeOrphans(ctx, s)
		k.tellKinds(ctx, s)
		k.cancelRequested(ctx, s)
	case errors.Is(err, store.ErrSessionLost):
		k.loseSession(s)
	default:
		k.abandonRuns(s, err)
		k.LogFailure("heartbeat failed", err, zap.Duration("trusted_for", s.trust.left()))
	}
	return err
}

// abandonRuns takes the workers away from transactions on a database that was replaced, or
// has not answered for as long as a session may be silent.
func (k *Keeper) abandonRuns(s *Session, err error) {
	if !s.trust.holds() || errors.Is(err, routing.ErrReplaced) {
		k.workers.CancelTransactions(s)
	}
}

// removeOrphans removes claims that a fail-over has brought back, once after each time
// the connection was opened: the server may be another one than before.
func (k *Keeper) removeOrphans(ctx context.Context, s *Session) {
	if !k.fresh.Swap(false) {
		return
	}
	n := 0
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if n, err = s.Sweep(ctx, conn, briefly); errors.Is(err, errClaimPending) {
			k.fresh.Store(true)
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		k.fresh.Store(true)
		k.log.Warn("orphaned claims could not be searched for", zap.Error(err))
	case n > 0:
		k.log.Warn("removed orphaned claims: a reply was lost, or a fail-over has brought them back", zap.Int("claims", n))
	}
}

// tellKinds says in the ledger which kinds this node handles, if that has changed, and then has the
// holders told of it.
func (k *Keeper) tellKinds(ctx context.Context, s *Session) {
	kinds, mark := k.self.Kinds()
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

// cancelRequested cancels runs that somebody wants ended.
func (k *Keeper) cancelRequested(ctx context.Context, s *Session) {
	if !s.HasClaims() {
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
	for _, id := range asked {
		if k.workers.Cancel(id) {
			k.log.Info("running job cancelled on request", zap.Stringer("job", id))
		}
	}
}
