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
	clock     dbClock

	nudge  chan struct{}   // one place: something to keep has come up
	losing sync.WaitGroup  // lost sessions whose last runs have not reported
	ctx    context.Context // of run; nil before start
	cancel context.CancelFunc
	group  sync.WaitGroup // run

	stopping sync.Once
	stopErr  error // written before ended is closed
	ended    chan struct{}
	patience context.Context // ends when a stop waits no longer
	giveUp   context.CancelFunc

	reconnected atomic.Bool // since ghosts were looked for

	connMu slot      // held during a call on conn
	conn   *pgx.Conn // guarded by connMu; nil: not connected

	opening sync.Mutex     // held while a session is looked for or opened; the acquirer and the assistant both may
	stray   *store.Session // guarded by opening; one that may have been opened, or will be, though no answer has come; nil: none

	mu      sync.Mutex
	current *session  // guarded by mu; nil: none is open
	held    *holding  // guarded by mu; nil: no lock is held
	running bool      // guarded by mu; run is under way
	dozing  bool      // guarded by mu; the term that holds it waits for something to come
	wanted  time.Time // guarded by mu; until then an idle session is kept open
	idled   idled     // guarded by mu; the last session that was ended as nobody needed it
}

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

// keepOpen is how long a session that is not needed stays open: less long, and its
// connection with it, where the server is short of connections.
func (k *keeper) keepOpen() time.Duration {
	if k.pool.Short() {
		return k.cfg.Session.TTL / 3
	}
	return 2 * k.cfg.Session.TTL
}

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
	sent := thisInstant()
	err := k.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := k.leaveStray(ctx, conn); err != nil {
			return err
		}
		k.stray = &row
		return store.OpenSession(ctx, conn, row, k.cfg.Session.TTL)
	})
	if err != nil {
		s.end(err)
		return nil, err
	}
	k.stray = nil
	s.trust.extend(sent, k.cfg.Session.TTL)
	k.mu.Lock()
	k.current = s
	k.attend()
	k.mu.Unlock()
	nudge(k.nudge)
	return s, nil
}

// leaveStray ends the session of which it is not known whether it was opened; opening is
// held. Postgres may be opening it still: to open it once more waits for that.
func (k *keeper) leaveStray(ctx context.Context, conn *pgx.Conn) error {
	if k.stray == nil {
		return nil
	}
	err := store.OpenSession(ctx, conn, *k.stray, k.cfg.Session.TTL)
	if err == nil {
		_, err = store.LeaveSession(ctx, conn, k.stray.ID)
	}
	if err == nil {
		k.stray = nil
	}
	return err
}

// opened is the open session; nil: none is.
func (k *keeper) opened() *session {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.current
}

// hold makes the keeper renew a lock that was taken when sent until the returned
// context ends or release is called.
func (k *keeper) hold(f store.Fence, sent instant) (ctx context.Context, h *holding) {
	ctx, lost := context.WithCancelCause(context.Background())
	h = &holding{fence: f, lost: lost}
	h.trust.extend(sent, k.cfg.Lock.TTL)
	k.mu.Lock()
	k.held = h
	gone := k.current == nil || k.current.id != f.Session
	k.mu.Unlock()
	if gone { // the session was lost meanwhile, and nobody renews for it
		lost(errLockLost)
	}
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
