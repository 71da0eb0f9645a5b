package lease

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Keeper keeps this process' session in one pool alive, and the lock while a term
// holds it. A pool that this node has nothing to do with has no
// session and no connection.
type Keeper struct {
	*connection

	nudge  chan struct{}  // of size one: something to keep has come up
	group  sync.WaitGroup // run
	losing sync.WaitGroup // lost sessions whose last runs have not reported
	ending ending

	opening sync.Mutex     // held while a session is looked for or opened; the acquirer and the assistant both may
	stray   *store.Session // guarded by opening; one that may have been opened, or will be, though no reply has come; nil: none
}

// ending is how a keeper is stopped.
type ending struct {
	once     sync.Once
	err      error           // written before done is closed
	done     chan struct{}   // closed at the end
	patience context.Context // ends when a stop waits no longer
	giveUp   context.CancelFunc
}

// errSessionLost ends a session; it is what handlers see as the cause.
var errSessionLost = fmt.Errorf("the node's session was declared dead: %w", job.ErrClaimLost)

// keepOpen is how long a session that is not needed stays open: less long, and its
// connection with it, where the server is short of connections.
func (k *Keeper) keepOpen() time.Duration {
	if k.pool.Short() {
		return k.cfg.Session.TTL / 3
	}
	return 2 * k.cfg.Session.TTL
}

// Session returns the open session, and opens one if there is none.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	k.state.mu.Lock()
	s := k.state.current
	k.state.wanted = time.Now().Add(k.keepOpen())
	k.state.mu.Unlock()
	if s != nil && s.trust.holds() {
		return s, nil
	}
	if s != nil { // it may have been declared dead: ask
		if err := k.sendHeartbeat(ctx, s); err != nil {
			return nil, err
		}
		return s, nil
	}
	s = k.newSession()
	kinds, mark := k.self.Kinds()
	s.kindsMark.Store(mark)
	row := store.Session{ID: s.id, Node: k.self.Node, Member: k.self.Member, GossipAddr: k.self.GossipAddr(), Version: k.self.Version, Kinds: kinds, PerTenant: k.workers.PerTenant()}
	sent := Now()
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
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
	k.pool.NoteWritten()
	s.trust.extend(sent, k.cfg.Session.TTL)
	k.state.mu.Lock()
	k.state.current = s
	k.ensureRunning()
	k.state.mu.Unlock()
	k.wakeUp()
	return s, nil
}

func (k *Keeper) newSession() *Session {
	own := poolLedger{pool: k.pool, session: uuid.New(), node: k.self.Node, keep: k.KeepsFinished()}
	return newSession(own, k.workers, k.events, k.metrics.lost, k.log)
}

// leaveStray ends a session whose opening got no reply; opening is held. Postgres may be opening it still: to open it once more waits for that.
func (k *Keeper) leaveStray(ctx context.Context, conn *pgx.Conn) error {
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

// Current is the open session; nil: none is.
func (k *Keeper) Current() *Session { return k.state.currentSession() }

// Hold makes the keeper renew a lock that was taken when sent until the returned
// context ends or release is called.
func (k *Keeper) Hold(f store.Fence, sent Instant) (ctx context.Context, h *Lock) {
	ctx, lost := context.WithCancelCause(context.Background())
	h = &Lock{fence: f, lost: lost}
	h.trust.extend(sent, k.cfg.Lock.TTL)
	k.state.mu.Lock()
	k.state.lock = h
	gone := k.state.current == nil || k.state.current.id != f.Session
	k.state.mu.Unlock()
	if gone { // the session was lost meanwhile, and nobody renews for it
		lost(ErrLockLost)
	}
	k.wakeUp()
	return ctx, h
}

// Release stops renewing; nothing is acquired any more when it is called.
func (k *Keeper) Release(h *Lock) {
	k.state.mu.Lock()
	if k.state.lock == h {
		k.state.lock = nil
	}
	k.state.mu.Unlock()
	h.lost(ErrLockLost)
}

// HangUp closes the connection unless a session needs it, or is about to.
func (k *Keeper) HangUp() {
	if !k.opening.TryLock() {
		return
	}
	defer k.opening.Unlock()
	if k.Current() != nil {
		return
	}
	k.closeConn()
}
