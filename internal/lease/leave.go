package lease

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/store"
)

// loseSession ends a session that was declared dead: its runs are cancelled, and what
// they still report finds no row. Its completer goes on until the last of them has reported.
func (k *Keeper) loseSession(s *Session) {
	if !k.kept.session.CompareAndSwap(s, nil) {
		return
	}
	if h := k.kept.lock.Load(); h != nil && h.fence.Session == s.id { // it may have been taken since keepAlive read what is held
		h.lost(ErrLockLost)
	}
	k.node.metrics.sessionsLost.Inc()
	k.log.Error("session was declared dead, because its heartbeats did not arrive in time; its jobs are cancelled here and run again elsewhere",
		zap.Stringer("session", s.id), zap.Duration("session_ttl", k.node.cfg.Session.TTL))
	s.cancel(errSessionLost)
	k.losing.Go(func() { s.outlive(k.ending.patience) })
}

// leaveSession ends a session in the ledger; left is false while it has claims there, and
// when may, asked once nobody else can use the connection, says no. Who takes the
// lock has asked for the session before, so that it is not taken with one that leaves.
func (k *Keeper) leaveSession(ctx context.Context, s *Session, may func() bool) (left bool, err error) {
	err = k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if !may() {
			return nil
		}
		left, err = store.LeaveSession(ctx, conn, s.id)
		return err
	})
	return left, err
}

// noteIdle notes that a session was ended although this node lives.
func (k *Keeper) noteIdle(ctx context.Context, s *Session) {
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error { return store.IdleSession(ctx, conn, s.id, true) })
	if err != nil {
		k.log.Debug("could not say that this node lives; tenure nodes may show it as left", zap.Error(err))
	}
	k.idled.Store(&idleEnd{s.id, time.Now()})
}

// dropSession forgets a session on this side, and closes the connection.
func (k *Keeper) dropSession(s *Session) {
	k.kept.session.CompareAndSwap(s, nil)
	s.end(errSessionEnded)
	k.conn.close()
}

var errSessionEnded = errors.New("the session was ended")

// stopPatience is how long a stop waits for the last outcomes: half of what is left
// of its time, since what is stopped after the sessions needs some too.
func stopPatience(ctx context.Context) time.Duration {
	deadline, ok := ctx.Deadline()
	if !ok {
		return writeTimeout
	}
	return time.Until(deadline) / 2
}

// stop writes the last outcomes, ends the session and closes the connection. Nothing
// may be acquired or started any more. The first call does it; others wait for it, but
// no longer than they may.
func (k *Keeper) stop(ctx context.Context) error {
	if !k.started.Load() {
		return nil
	}
	first := false
	k.ending.once.Do(func() { first = true })
	if first {
		k.ending.err = k.stopKeeping(ctx)
		close(k.ending.done)
	}
	select {
	case <-k.ending.done:
	default:
		select {
		case <-k.ending.done:
		case <-ctx.Done():
			return fmt.Errorf("pool %s is still being left: %w", k.pool.Name, context.Cause(ctx))
		}
	}
	return k.ending.err
}

func (k *Keeper) stopKeeping(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, stopPatience(ctx))
	defer cancel()
	defer context.AfterFunc(patience, k.ending.giveUp)()
	s := k.Current()
	var err error
	if s != nil {
		s.awaitIdle(patience)
		if n := len(s.Claims()); n > 0 {
			err = fmt.Errorf("pool %s: %s could not be brought to an end; what is left is taken back when the session expires", k.pool.Name, plural.Count(n, "claim", "claims"))
		}
	}
	k.endLife()
	k.group.Wait()
	k.losing.Wait()
	if s == nil {
		k.endStray(ctx)
		k.conn.close()
		return nil
	}
	if err != nil {
		s.end(err) // the session's row stays: it expires, and its jobs are run by others
		return err
	}
	left, err := k.leaveSession(ctx, s, func() bool { return true })
	k.dropSession(s)
	switch {
	case err != nil:
		return fmt.Errorf("pool %s: end the session: %w", k.pool.Name, err)
	case !left:
		return fmt.Errorf("pool %s: claims are left in the ledger; they are taken back when the session expires", k.pool.Name)
	}
	return nil
}

// endStray ends a session whose opening the stop has cut short. It would keep this node
// among the live ones until it expires, and nothing worse.
func (k *Keeper) endStray(ctx context.Context) {
	k.opening.Lock()
	defer k.opening.Unlock()
	if k.stray == nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, CallTimeout) // with the wait for admission: a stop has other things to do
	defer cancel()
	if err := k.Call(ctx, k.leaveStray); err != nil {
		k.log.Warn("a session may be left behind unused; it expires", zap.Stringer("session", k.stray.ID), zap.Error(err))
	}
}
