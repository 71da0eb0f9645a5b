package lease

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// callMutex is a mutex to be held for as long as a database likes to take. Waiting for it
// is waiting on a channel, which a test's clock can see: it stands still for a sync.Mutex.
type callMutex chan struct{}

func (m callMutex) Lock()   { m <- struct{}{} }
func (m callMutex) Unlock() { <-m }

// connection is the one that a keeper makes its calls on, apart from everything a handler or a
// slow query could block. There is one only while something is kept, or asked for. Safe for
// concurrent use.
type connection struct {
	pool *routing.Pool
	kept *kept           // what calls are made for; decides how long one may take
	life context.Context // over when the node leaves the pool

	fresh atomic.Bool   // it was made since its keeper looked for orphaned claims
	nudge chan struct{} // of size one: something to keep has come up

	callers  atomic.Int32                       // they wait for it
	stopHear atomic.Pointer[context.CancelFunc] // nil: nobody listens

	mu      callMutex // held during a call, and while somebody listens; see lock
	conn    *pgx.Conn // guarded by mu; nil: not connected
	hearing *hearing  // guarded by mu
}

// askTimeout bounds a call on an open one, which has nothing to open: as a lock is renewed
// every two seconds, its connection is known to have fallen silent within five, while the lock
// is still trusted.
// Another connection may pass. The server gives up a little earlier by itself, unless the
// lock lives shorter, or is about to expire.
const askTimeout = 2 * CallTimeout / 3

// retriesOf are the waits between tries of a database that is down. One that is back is worked
// on within three seconds, of which a retry with its jitter may take two, and a short outage
// costs no lock. And the first node to be back watches the others' sessions from then on: they
// must have tried, too, long before they look dead.
func retriesOf(cfg Config) backoff.Policy {
	return backoff.Policy{First: retryEvery, Longest: min(retryEvery*3/2, cfg.Lock.TTL/4, cfg.Session.TTL/6)}
}

// errDown is returned for a call that was not made, as the last ones have failed.
var errDown = errors.New("the database failed the last calls, and is tried again in a moment")

// lock takes the connection from a listen that is under way on it.
func (c *connection) lock() {
	c.callers.Add(1)
	c.stopHearing()
	c.mu.Lock()
	c.callers.Add(-1)
}

// call runs fn on the connection, connecting if need be. A connection on which a call
// failed is not used again: nobody knows what it would reply next. While the database is down
// it is not tried as often as somebody wants something of it.
func (c *connection) call(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.lock()
	defer c.mu.Unlock()
	err := c.tryCall(ctx, fn)
	c.noteOutcome(ctx, err) // before the next one may call
	return err
}

// noteOutcome takes in what a call has shown of the database; mu is held.
func (c *connection) noteOutcome(ctx context.Context, err error) {
	waited := errors.Is(err, routing.ErrDialLimit) && c.pool.SilentFor() < 2*CallTimeout // to be admitted, while others were
	if ctx.Err() != nil || waited || errors.Is(err, errDown) {                           // it was cut short here
		return
	}
	if answered(err) {
		err = nil
	}
	c.pool.Breaker.Note(err, time.Now())
	if h := c.kept.lock.Load(); err != nil && h != nil && !h.trust.holds() { // it was tried for long enough, and others may be able to
		c.pool.Breaker.MarkDown()
	}
}

// answered tells whether an error is the ledger's answer.
func answered(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrSessionLost)
}

// tryCall calls without learning from how that ends; mu is held.
func (c *connection) tryCall(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	connected := c.conn != nil && !c.conn.IsClosed()
	patience := c.kept.boundCall(connected)
	if connected {
		if err := c.pool.Current(c.conn); err != nil {
			c.dropConn()
			return err
		}
	}
	if !connected && c.life.Err() == nil && c.pool.Breaker.WaitLeft(time.Now()) > 0 {
		return errDown
	}
	if !connected {
		admission, cancel, keeps := ctx, func() {}, c.kept.session.Load() != nil
		if keeps { // else there is time to wait
			admission, cancel = context.WithTimeout(ctx, patience)
		}
		defer cancel()
		done, err := c.pool.AwaitDial(admission, keeps)
		if err != nil {
			return err
		}
		defer done()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("pool %s did not answer within %v", c.pool.Name, patience))
	defer cancel()
	if !connected {
		conn, err := c.pool.ConnectLock(ctx)
		if err != nil {
			return err
		}
		c.conn = conn
		c.fresh.Store(true)
	}
	err := fn(ctx, c.conn)
	if err != nil && !answered(err) {
		c.dropConn()
	}
	return err
}

// dropConn closes the connection; mu is held.
func (c *connection) dropConn() {
	if c.conn == nil {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), retryEvery)
	defer cancel()
	_ = c.conn.Close(ctx)
	c.conn = nil
}

// close closes the connection, until the next call.
func (c *connection) close() {
	c.lock()
	defer c.mu.Unlock()
	c.dropConn()
}

// await waits until it is next, something has come up or ctx ends, and hears notifications
// meanwhile if there is a connection that listens.
func (c *connection) await(ctx context.Context, next time.Time) {
	timer := time.NewTimer(time.Until(next))
	defer timer.Stop()
	free := c.mu // to be had while nobody calls; nil: there is nothing to hear
	for {
		select {
		case <-ctx.Done():
			return
		case <-c.nudge:
			return
		case <-timer.C:
			return
		case free <- struct{}{}:
			if !c.listen(ctx, next) {
				free = nil
			}
			c.mu.Unlock()
		}
	}
}

// interrupt ends a wait, also one that is about to begin.
func (c *connection) interrupt() {
	wake(c.nudge)
	c.stopHearing()
}

// stopHearing takes the connection from a listen that is under way.
func (c *connection) stopHearing() {
	if stop := c.stopHear.Load(); stop != nil {
		(*stop)()
	}
}

// listen hears notifications until next, or until it is interrupted; mu is held. false: there is
// no connection that does.
func (c *connection) listen(ctx context.Context, next time.Time) bool {
	ctx, stop := context.WithDeadline(ctx, next)
	defer stop()
	c.stopHear.Store(&stop)
	defer c.stopHear.Store(nil)
	return c.hearing.hear(ctx, c.conn, func() bool { return c.callers.Load() > 0 || len(c.nudge) > 0 }) // who came before it could stop this; in this order, as the channel's length orders nothing
}
