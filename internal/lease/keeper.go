package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// Keeper keeps this process' session in one pool alive, and the lock while a term
// holds it. A pool that this node has nothing to do with has no
// session and no connection.
type Keeper struct {
	node   *node
	pool   *routing.Pool
	events Events
	log    *zap.Logger

	kept    *kept
	conn    *connection
	hearing *hearing // on conn
	clock   databaseClock
	idled   atomic.Pointer[idleEnd] // the last session that was ended as nobody needed it; nil: none was

	queuesTold atomic.Pointer[told] // see TellQueues; nil: nothing was

	retired bool // guarded by the mu of the keepers

	started atomic.Bool
	running atomic.Bool     // run is under way
	life    context.Context // of run; over when it is stopped
	endLife context.CancelFunc
	group   sync.WaitGroup // run
	losing  sync.WaitGroup // lost sessions whose last runs have not reported
	ending  ending

	opening sync.Mutex     // held while a session is looked for or opened; the acquirer and the assistant both may
	stray   *store.Session // guarded by opening; one that may have been opened, or will be, though no reply has come; nil: none
}

func newKeeper(n *node, p *routing.Pool, events Events, log *zap.Logger) *Keeper {
	k := &Keeper{node: n, pool: p, events: events, log: log, kept: &kept{lockTTL: n.cfg.Lock.TTL}, ending: ending{done: make(chan struct{})}}
	k.life, k.endLife = context.WithCancel(context.Background())
	k.ending.patience, k.ending.giveUp = context.WithCancel(context.Background())
	k.hearing = &hearing{events: events, kept: k.kept, log: log}
	k.conn = &connection{pool: p, kept: k.kept, life: k.life, hearing: k.hearing, nudge: make(chan struct{}, 1), mu: make(callMutex, 1)}
	return k
}

// Member is this process' name in gossip.
func (k *Keeper) Member() string { return k.node.self.Member }

// NodeName is what this node is called.
func (k *Keeper) NodeName() string { return k.node.self.Node }

// Kept is for how long the ledger keeps jobs that have ended.
func (k *Keeper) Kept() Kept { return k.node.kept }

// KeepsFinished tells whether finished jobs are kept.
func (k *Keeper) KeepsFinished() bool { return k.node.kept.Finished > 0 }

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
		return k.node.cfg.Session.TTL / 3
	}
	return 2 * k.node.cfg.Session.TTL
}

// Session returns the open session, and opens one if there is none.
func (k *Keeper) Session(ctx context.Context) (*Session, error) {
	k.opening.Lock()
	defer k.opening.Unlock()
	if s := k.Current(); s != nil {
		s.want(k.keepOpen())
		if s.trust.holds() {
			return s, nil
		}
		if err := k.sendHeartbeat(ctx, s); err != nil { // it may have been declared dead: ask
			return nil, err
		}
		return s, nil
	}
	s := newSession(poolLedger{k.pool, uuid.New(), k.node.self.Node, k.KeepsFinished(), k.node.metrics.unwritten.WithLabelValues(k.pool.Name)}, k.node.workers, k.events, k.node.metrics.lost, k.log)
	s.want(k.keepOpen())
	kinds, mark := k.node.self.Kinds()
	s.kindsMark.Store(mark)
	row := store.Session{ID: s.id, Node: k.node.self.Node, Member: k.node.self.Member, GossipAddr: k.node.self.GossipAddr(), Version: k.node.self.Version, Kinds: kinds, PerTenant: k.node.workers.PerTenant()}
	sent := Now()
	err := k.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		if err := k.leaveStray(ctx, conn); err != nil {
			return err
		}
		k.stray = &row
		if err := store.OpenSession(ctx, conn, row, k.node.cfg.Session.TTL); err != nil {
			return err
		}
		k.TellQueues(ctx, conn)
		return nil
	})
	if err != nil {
		s.end(err)
		return nil, err
	}
	k.stray = nil
	k.pool.NoteWritten()
	s.trust.extend(sent, k.node.cfg.Session.TTL)
	k.kept.session.Store(s)
	k.ensureRunning()
	k.conn.interrupt()
	return s, nil
}

// leaveStray ends a session whose opening got no reply; opening is held. Postgres may be opening it still: to open it once more waits for that.
func (k *Keeper) leaveStray(ctx context.Context, conn *pgx.Conn) error {
	if k.stray == nil {
		return nil
	}
	err := store.OpenSession(ctx, conn, *k.stray, k.node.cfg.Session.TTL)
	if err == nil {
		_, err = store.LeaveSession(ctx, conn, k.stray.ID)
	}
	if err == nil {
		k.stray = nil
	}
	return err
}

// tellEvery is how often a node with a session tells what it has told already: so what a node of another release said goes with
// that.
const tellEvery = time.Minute

// told is which kinds a ledger was told the queues of, and when.
type told struct {
	mark uint32
	at   time.Time
}

// TellQueues tells the ledger in which queues this node's kinds have their jobs, for who enqueues without their handlers. Without
// a session it does so once.
func (k *Keeper) TellQueues(ctx context.Context, conn *pgx.Conn) {
	kinds, mark := k.node.self.Kinds()
	if was := k.queuesTold.Load(); len(kinds) == 0 || was != nil && was.mark == mark && (k.Current() == nil || time.Since(was.at) < tellEvery) {
		return
	}
	if err := store.TellQueues(ctx, conn, kinds, k.node.self.Queues(kinds)); err != nil {
		if ctx.Err() == nil {
			k.LogFailure("the ledger could not be told in which queues this node's kinds have their jobs; it is told later", err)
		}
		return
	}
	k.queuesTold.Store(&told{mark, time.Now()})
}

// Current is the open session; nil: none is.
func (k *Keeper) Current() *Session { return k.kept.session.Load() }

// Hold makes the keeper renew a lock that was taken when sent until the returned
// context ends or release is called.
func (k *Keeper) Hold(f store.Fence, sent Instant) (ctx context.Context, h *Lock) {
	ctx, lost := context.WithCancelCause(context.Background())
	h = &Lock{fence: f, lost: lost}
	h.trust.extend(sent, k.node.cfg.Lock.TTL)
	k.kept.lock.Store(h)
	if s := k.Current(); s == nil || s.id != f.Session { // the session was lost meanwhile, and nobody renews for it
		lost(ErrLockLost)
	}
	k.conn.interrupt()
	return ctx, h
}

// Release stops renewing; nothing is acquired any more when it is called.
func (k *Keeper) Release(h *Lock) {
	k.kept.lock.CompareAndSwap(h, nil)
	h.lost(ErrLockLost)
}

// HangUp closes the connection unless a session needs it, or is about to.
func (k *Keeper) HangUp() {
	if !k.opening.TryLock() {
		return
	}
	defer k.opening.Unlock()
	if k.Current() == nil {
		k.conn.close()
	}
}

// Call runs fn on the lock's connection, connecting if need be. While the database is down it is not
// tried as often as somebody wants something of it; RetryIn says when it is.
func (k *Keeper) Call(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	err := k.conn.call(ctx, fn)
	if (err == nil || answered(err)) && k.pool.Short() && k.Current() == nil { // only the lock is read, which can do without until the next time
		time.AfterFunc(briefly, k.HangUp)
	}
	return err
}

// RetryIn is when to call again after a call has failed.
func (k *Keeper) RetryIn() time.Duration {
	if rest := k.pool.Breaker.WaitLeft(time.Now()); rest > 0 {
		return rest
	}
	return retryEvery + rand.N(retryEvery)
}

// LogFailure logs that a call has failed: ever less often while the database is down for the
// same reason.
func (k *Keeper) LogFailure(what string, err error, fields ...zap.Field) {
	k.pool.DoubtRights(k.life, err)
	var pg *pgconn.PgError
	code := ""
	if errors.As(err, &pg) {
		code = pg.Code
	}
	level := zapcore.WarnLevel
	switch {
	case errors.Is(err, errDown):
		return
	case !k.pool.Breaker.IsNews(code):
		level = zapcore.DebugLevel
	}
	k.log.Log(level, what, append(fields, zap.Error(err))...)
}
