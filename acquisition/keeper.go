package acquisition

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// keeper keeps this process' session in one pool alive, and the lock while a term
// holds it. It owns the connection for both, apart from everything a handler or a
// slow query could block. A pool that this node has nothing to do with has no
// session and no connection.
type keeper struct {
	pool      *routing.Pool
	cfg       Config
	retention time.Duration
	self      Self
	workers   *execution.Workers
	log       *zap.Logger
	metrics   *metrics
	inbox     *inbox
	errands   *errands
	reach     reach

	nudge  chan struct{}   // one place: something to keep has come up
	losing sync.WaitGroup  // lost sessions whose last runs have not reported
	ctx    context.Context // of run; nil before start
	cancel context.CancelFunc
	group  sync.WaitGroup // run

	stopping sync.Once
	stopErr  error           // written under stopping
	patience context.Context // ends when a stop waits no longer
	giveUp   context.CancelFunc

	reconnected atomic.Bool // since ghosts were looked for

	connMu slot      // held during a call on conn
	conn   *pgx.Conn // guarded by connMu; nil: not connected

	opening sync.Mutex // held while a session is looked for or opened; the acquirer and the assistant both may

	mu      sync.Mutex
	current *session  // guarded by mu; nil: none is open
	held    *holding  // guarded by mu; nil: no lock is held
	running bool      // guarded by mu; run is under way
	dozing  bool      // guarded by mu; the term that holds it waits for something to come
	wanted  time.Time // guarded by mu; until then an idle session is kept open
}

// slot is a mutex to be held for as long as a database likes to take. Who waits for it
// waits on a channel, which a test's clock can see: it stands still for a sync.Mutex.
type slot chan struct{}

func (s slot) Lock()   { s <- struct{}{} }
func (s slot) Unlock() { <-s }

// holding is a lock as the keeper renews it.
type holding struct {
	fence store.Fence
	trust trust
	lost  context.CancelCauseFunc // ends the term
}

// Causes that end a term.
var (
	errLockLost  = errors.New("the acquire lock was lost")
	errTrustOver = errors.New("the acquire lock could not be renewed in time")
)

// errSessionLost ends a session; it is what handlers see as the cause.
var errSessionLost = fmt.Errorf("the node's session was declared dead: %w", job.ErrClaimLost)

func (k *keeper) keep() bool { return k.retention > 0 }

// callTimeout bounds a call on the lock's connection; the server gives up a little
// earlier by itself.
const callTimeout = 4 * time.Second

// call runs fn on the lock's connection, connecting if need be. A connection on
// which a call failed is not used again: nobody knows what it would answer next.
func (k *keeper) call(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	err := k.try(ctx, fn)
	if ctx.Err() == nil && !errors.Is(err, routing.ErrNoTurn) { // else it was cut short here
		k.reach.note(err == nil || answered(err), time.Now(), k.cfg.Lock.TTL/2)
	}
	return err
}

// answered tells whether an error is the ledger's answer.
func answered(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrSessionLost)
}

func (k *keeper) try(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	patience := min(callTimeout, k.cfg.Lock.TTL*3/4) // one call that hangs must not cost a lock that lives shorter
	turn, cancel := ctx, func() {}
	if k.opened() != nil { // whoever keeps nothing has the time to wait for its turn
		turn, cancel = context.WithTimeout(ctx, patience)
	}
	defer cancel()
	k.connMu.Lock()
	defer k.connMu.Unlock()
	connected := k.conn != nil && !k.conn.IsClosed()
	if !connected {
		done, err := k.pool.Turn(turn)
		if err != nil {
			return err
		}
		defer done()
	}
	ctx, cancel = context.WithTimeoutCause(ctx, patience, fmt.Errorf("pool %s did not answer within %v", k.pool.Name, patience))
	defer cancel()
	if !connected {
		conn, err := k.pool.ConnectLock(ctx)
		if err != nil {
			return err
		}
		k.conn = conn
		k.reconnected.Store(true)
	}
	err := fn(ctx, k.conn)
	if err != nil && !answered(err) {
		k.disconnect()
	}
	return err
}

// disconnect closes the connection; connMu is held.
func (k *keeper) disconnect() {
	if k.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_ = k.conn.Close(ctx)
	k.conn = nil
}

// hangUp closes the connection unless a session needs it.
func (k *keeper) hangUp() {
	if k.opened() != nil {
		return
	}
	k.connMu.Lock()
	defer k.connMu.Unlock()
	k.disconnect()
}

// keepOpen is how long a session that is not needed stays open.
func (k *keeper) keepOpen() time.Duration { return 2 * k.cfg.Session.TTL }

// session returns the open session, and opens one if there is none.
func (k *keeper) session(ctx context.Context) (*session, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	k.mu.Lock()
	s := k.current
	k.wanted = time.Now().Add(k.keepOpen())
	k.mu.Unlock()
	if s != nil && s.trust.stands() {
		return s, nil
	}
	if s != nil { // nobody knows whether it still lives: ask
		if err := k.beat(ctx, s); err != nil {
			return nil, err
		}
		return s, nil
	}
	s = newSession(k)
	row := store.Session{ID: s.id, Node: k.self.Node, Member: k.self.Member, GossipAddr: k.self.GossipAddr(), Version: k.self.Version, Kinds: k.self.Kinds}
	sent := time.Now()
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.OpenSession(ctx, conn, row, k.cfg.Session.TTL)
	})
	if err != nil {
		s.end(err)
		return nil, err
	}
	s.trust.extend(sent, k.cfg.Session.TTL)
	k.mu.Lock()
	k.current = s
	k.attend()
	k.mu.Unlock()
	nudge(k.nudge)
	return s, nil
}

// opened is the open session; nil: none is.
func (k *keeper) opened() *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// hold makes the keeper renew a lock that was taken when sent until the returned
// context ends or release is called.
func (k *keeper) hold(f store.Fence, sent time.Time) (ctx context.Context, h *holding) {
	ctx, lost := context.WithCancelCause(context.Background())
	h = &holding{fence: f, lost: lost}
	h.trust.extend(sent, k.cfg.Lock.TTL)
	k.mu.Lock()
	k.held = h
	k.mu.Unlock()
	nudge(k.nudge)
	return ctx, h
}

// release stops renewing; nothing is acquired any more when it is called.
func (k *keeper) release(h *holding) {
	k.mu.Lock()
	if k.held == h {
		k.held = nil
	}
	k.mu.Unlock()
	h.lost(errLockLost)
}

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
			return k.again(s.trust.left())
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
	}
	k.drop(s)
	return time.Hour
}

// again is how soon to retry while some trust is left.
func (k *keeper) again(left time.Duration) time.Duration {
	return max(50*time.Millisecond, min(k.cfg.Lock.RenewEvery/4, left/3))
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
	sent := time.Now()
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if !dozing {
			return store.RenewLock(ctx, conn, h.fence, ttl, k.cfg.Session.TTL)
		}
		seen, err := store.RenewIdle(ctx, conn, h.fence, ttl, k.cfg.Session.TTL)
		if err == nil {
			k.wakeFor(seen)
		}
		return err
	})
	switch {
	case err == nil:
		h.trust.extend(sent, ttl)
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.lookForGhosts(ctx, s)
		k.heedCancels(ctx, s)
		return every
	case errors.Is(err, store.ErrSessionLost):
		h.lost(errLockLost)
		k.lose(s)
	case errors.Is(err, store.ErrFenced):
		s.trust.extend(sent, k.cfg.Session.TTL) // the heartbeat beside it was accepted
		h.lost(errLockLost)
	default:
		k.log.Warn("acquire lock could not be renewed", zap.Duration("trusted_for", h.trust.left()), zap.Error(err))
		if !h.trust.stands() {
			h.lost(errTrustOver)
		}
	}
	return k.again(h.trust.left())
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
	sent := time.Now()
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.BeatSession(ctx, conn, s.id, k.cfg.Session.TTL)
	})
	switch {
	case err == nil:
		s.trust.extend(sent, k.cfg.Session.TTL)
		k.lookForGhosts(ctx, s)
		k.heedCancels(ctx, s)
	case errors.Is(err, store.ErrSessionLost):
		k.lose(s)
	default:
		k.log.Warn("heartbeat failed", zap.Duration("trusted_for", s.trust.left()), zap.Error(err))
	}
	return err
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

// lose ends a session that was declared dead: its runs are cancelled, and what
// they still report finds no row.
func (k *keeper) lose(s *session) {
	k.mu.Lock()
	if k.current == s {
		k.current = nil
	}
	k.mu.Unlock()
	if !s.lost.CompareAndSwap(false, true) {
		return
	}
	k.metrics.sessionsLost.Inc()
	k.log.Error("session was declared dead, because its heartbeats did not arrive in time; its jobs are cancelled here and run again elsewhere",
		zap.Stringer("session", s.id), zap.Duration("session_ttl", k.cfg.Session.TTL))
	s.cancel(errSessionLost)
	// The completer goes on until the last run has reported, then it ends.
	k.losing.Go(func() {
		select {
		case <-s.completer.whenIdle():
		case <-k.patience.Done():
		}
		s.end(errSessionLost)
	})
}

// leave ends a session in the ledger; left is false while it has claims there, and
// when may, asked once nobody else can use the connection, says no. Whoever takes the
// lock has asked for the session before, so that it is not taken with one that leaves.
func (k *keeper) leave(ctx context.Context, s *session, may func() bool) (left bool, err error) {
	err = k.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if !may() {
			return nil
		}
		left, err = store.LeaveSession(ctx, conn, s.id)
		return err
	})
	return left, err
}

// isWanted tells whether somebody has lately asked for the session.
func (k *keeper) isWanted() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Now().Before(k.wanted)
}

// drop lets go of a session on this side, and of the connection.
func (k *keeper) drop(s *session) {
	k.mu.Lock()
	if k.current == s {
		k.current = nil
	}
	k.mu.Unlock()
	s.end(errSessionEnded)
	k.connMu.Lock()
	k.disconnect()
	k.connMu.Unlock()
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

// retire is stop for a pool that is left while the node goes on: handlers may finish,
// and are cancelled after that.
func (k *keeper) retire(ctx context.Context, finishWithin time.Duration) error {
	if s := k.opened(); s != nil {
		late := time.AfterFunc(finishWithin, func() { s.cancel(job.ErrStopping) })
		defer late.Stop()
	}
	return k.stop(ctx)
}

// stop writes the last outcomes, ends the session and closes the connection. Nothing
// may be acquired or started any more. The first call does it; others wait for it.
func (k *keeper) stop(ctx context.Context) error {
	if k.cancel == nil { // not started
		return nil
	}
	k.stopping.Do(func() { k.stopErr = k.end(ctx) })
	return k.stopErr
}

func (k *keeper) end(ctx context.Context) error {
	patience, cancel := context.WithTimeout(ctx, stopPatience(ctx))
	defer cancel()
	defer context.AfterFunc(patience, k.giveUp)()
	s := k.opened()
	var err error
	if s != nil {
		select {
		case <-s.completer.whenIdle():
		case <-patience.Done():
		}
		if n := len(s.completer.known()); n > 0 {
			err = fmt.Errorf("pool %s: %d claims could not be brought to an end; they are taken back when the session expires", k.pool.Name, n)
		}
	}
	k.cancel()
	k.group.Wait()
	k.losing.Wait()
	if s == nil {
		k.connMu.Lock()
		defer k.connMu.Unlock()
		k.disconnect()
		return nil
	}
	if err != nil {
		s.end(err) // the session's row stays: it expires, and its jobs are run by others
		return err
	}
	left, err := k.leave(ctx, s, func() bool { return true })
	k.drop(s)
	switch {
	case err != nil:
		return fmt.Errorf("pool %s: end the session: %w", k.pool.Name, err)
	case !left:
		return fmt.Errorf("pool %s: claims are left in the ledger; they are taken back when the session expires", k.pool.Name)
	}
	return nil
}
