package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

func (k *keeper) start() {
	ctx, cancel := context.WithCancel(context.Background())
	k.mu.Lock()
	defer k.mu.Unlock()
	k.ctx, k.cancel = ctx, cancel
	k.attend()
}

// attend has run started if there is a session to keep; mu is held.
func (k *keeper) attend() {
	if k.running || k.current == nil || k.ctx == nil || k.ctx.Err() != nil {
		return
	}
	k.running = true
	k.group.Go(func() { k.run(k.ctx) })
}

// run beats and renews as long as there is a session to keep.
func (k *keeper) run(ctx context.Context) {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-k.nudge:
		case <-timer.C:
		}
		wait := k.tick(ctx)
		k.mu.Lock()
		if k.current == nil {
			k.running = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
		timer.Reset(wait)
	}
}

// tick does what is due and returns when to come back.
func (k *keeper) tick(ctx context.Context) time.Duration {
	k.mu.Lock()
	s, h, wanted := k.current, k.held, k.wanted
	k.mu.Unlock()
	if h != nil && (s == nil || s.id != h.fence.Session) { // the session that took the lock is lost
		h.lost(errLockLost)
		h = nil
	}
	switch {
	case h != nil:
		return k.renew(ctx, s, h)
	case s == nil:
		return time.Hour // until the next nudge
	case s.completer.busy() || time.Now().Before(wanted):
		if err := k.beat(ctx, s); err != nil && !errors.Is(err, store.ErrSessionLost) {
			return k.again(s.trust.left(), err)
		}
		return k.cfg.Session.HeartbeatEvery
	}
	idle := true
	left, err := k.leave(ctx, s, func() bool { idle = !k.isWanted(); return idle })
	switch {
	case err != nil, !idle: // if the database does not answer, the session goes on until it does
		return k.cfg.Session.HeartbeatEvery
	case !left:
		k.log.Warn("idle session has claims in the ledger that it does not know of; they are taken back when it expires")
	default:
		k.idle(ctx, s)
	}
	k.drop(s)
	return time.Hour
}

// again is how soon to retry: soon while some trust is left, and it may help.
func (k *keeper) again(left time.Duration, err error) time.Duration {
	rest := k.reach.rest(time.Now())
	switch {
	case errors.Is(err, routing.ErrReplaced):
		return poolRetry
	case rest > 0:
		return rest
	case left <= 0:
		return min(poolRetry, k.cfg.Lock.RenewEvery)
	}
	wait := k.cfg.Lock.RenewEvery / 4
	return max(50*time.Millisecond, min(wait+rand.N(wait/4), left/3))
}

// renew renews the lock together with the session.
func (k *keeper) renew(ctx context.Context, s *session, h *holding) time.Duration {
	ttl, every := k.cfg.Lock.TTL, k.cfg.Lock.RenewEvery
	k.mu.Lock()
	dozing := k.dozing
	k.mu.Unlock()
	if dozing {
		ttl, every = dozeFactor*ttl, dozeFactor*every
	}
	sent := thisInstant()
	var clock time.Time
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if !dozing {
			clock, err = store.RenewLock(ctx, conn, h.fence, ttl, k.cfg.Session.TTL)
			return err
		}
		var seen store.Idle
		seen, clock, err = store.RenewIdle(ctx, conn, h.fence, ttl, k.cfg.Session.TTL)
		if err == nil {
			k.wakeFor(seen)
		}
		return err
	})
	k.heedClock(sent, clock)
	switch {
	case err == nil:
		h.trust.extend(sent, ttl)
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.lookForGhosts(ctx, s)
		k.heedCancels(ctx, s)
		if k.reach.failing() { // they have found out that the connection is no good
			break
		}
		return every
	case errors.Is(err, store.ErrSessionLost):
		h.lost(errLockLost)
		k.lose(s)
	case errors.Is(err, store.ErrFenced):
		s.trust.extend(sent, k.cfg.Session.TTL) // the heartbeat beside it was accepted
		h.lost(errLockLost)
	case errors.Is(err, store.ErrNewIncarnation):
		s.trust.extend(sent, k.cfg.Session.TTL)
		h.lost(err)
	default:
		k.abandonRuns(s, err)
		k.complain("acquire lock could not be renewed", err, zap.Duration("trusted_for", h.trust.left()))
		switch {
		case errors.Is(err, routing.ErrReplaced):
			h.lost(err)
		case !h.trust.stands():
			h.lost(errTrustOver)
		}
	}
	return k.again(h.trust.left(), err)
}

// doze makes renewing slower, or quick again, and at once.
func (k *keeper) doze(on bool) {
	k.mu.Lock()
	k.dozing = on
	k.mu.Unlock()
	nudge(k.nudge)
}

// wakeFor wakes a term that dozes, if there is something to do.
func (k *keeper) wakeFor(seen store.Idle) {
	switch {
	case seen.Waiting:
		k.inbox.hint(Hint{Pool: k.pool.Name})
	case seen.Due != nil && *seen.Due < dozeFactor*dozeFactor*k.cfg.Lock.RenewEvery: // before the next look, or a little later
		k.inbox.hint(Hint{Pool: k.pool.Name, DueIn: max(*seen.Due, time.Nanosecond)})
	}
}

// beat says that the session lives.
func (k *keeper) beat(ctx context.Context, s *session) error {
	sent := thisInstant()
	var clock time.Time
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		clock, err = store.BeatSession(ctx, conn, s.id, k.cfg.Session.TTL)
		return err
	})
	k.heedClock(sent, clock)
	switch {
	case err == nil:
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.lookForGhosts(ctx, s)
		k.heedCancels(ctx, s)
	case errors.Is(err, store.ErrSessionLost):
		k.lose(s)
	default:
		k.abandonRuns(s, err)
		k.complain("heartbeat failed", err, zap.Duration("trusted_for", s.trust.left()))
	}
	return err
}

// abandonRuns takes the workers away from transactions on a database that was replaced, or
// has not answered for as long as a session may be silent.
func (k *keeper) abandonRuns(s *session, err error) {
	if !s.trust.stands() || errors.Is(err, routing.ErrReplaced) {
		k.workers.GiveUp(s)
	}
}

// ghostPatience is how long the keeper waits for a claim that is being made.
const ghostPatience = 100 * time.Millisecond

// lookForGhosts removes claims that a fail-over has brought back, once after each time
// the connection was made anew: the server may be another one than before.
func (k *keeper) lookForGhosts(ctx context.Context, s *session) {
	if !k.reconnected.Swap(false) {
		return
	}
	n := 0
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if n, err = s.sweep(ctx, conn, ghostPatience); errors.Is(err, errClaiming) {
			k.reconnected.Store(true)
			return nil
		}
		return err
	})
	switch {
	case err != nil:
		k.reconnected.Store(true)
		k.log.Warn("claims that nobody knows of could not be looked for", zap.Error(err))
	case n > 0:
		k.log.Warn("claims removed that nobody knew of: an answer was lost, or a fail-over has brought them back", zap.Int("claims", n))
	}
}

// heedCancels cancels runs that somebody wants ended.
func (k *keeper) heedCancels(ctx context.Context, s *session) {
	if !s.completer.busy() {
		return
	}
	var asked []job.ID
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		asked, err = store.CancelRequests(ctx, conn)
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
