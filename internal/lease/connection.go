package lease

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

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
	*shared
	state  *state // what calls are made for; decides how long one may take
	hangUp func() // closes the connection unless somebody needs it
	clock  databaseClock

	fresh atomic.Bool // it was made since orphaned claims were looked for

	listening listening
	mu        callMutex // held during a call, and while somebody listens; see lock
	conn      *pgx.Conn // guarded by mu; nil: not connected
	heard     hearing   // guarded by mu

	deafLogged time.Time // guarded by mu
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
	c.listening.announce()
	c.mu.Lock()
	c.listening.arrive()
}

// Call runs fn on the lock's connection, connecting if need be. A connection on which a call
// failed is not used again: nobody knows what it would reply next. While the database is down
// it is not tried as often as somebody wants something of it; RetryIn says when it is.
func (c *connection) Call(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
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
	if left, held := c.state.trustLeft(); err != nil && held && left <= 0 { // it was tried for long enough, and others may be able to
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
	patience := c.boundCall(connected)
	if connected {
		if err := c.pool.Current(c.conn); err != nil {
			c.dropConn()
			return err
		}
	}
	if !connected && !c.state.isStopping() && c.pool.Breaker.WaitLeft(time.Now()) > 0 {
		return errDown
	}
	if !connected {
		admission, cancel, keeps := ctx, func() {}, c.state.currentSession() != nil
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
	switch {
	case err != nil && !answered(err):
		c.dropConn()
	case c.pool.Short() && c.state.currentSession() == nil: // only the lock is read, which can do without until the next time
		time.AfterFunc(briefly, c.hangUp)
	}
	return err
}

// boundCall is how long a call may take.
func (c *connection) boundCall(connected bool) time.Duration {
	d := CallTimeout
	if connected {
		d = askTimeout
	}
	d = min(d, c.cfg.Lock.TTL*3/4) // one call that hangs must not cost a lock that lives shorter
	if left, held := c.state.trustLeft(); held && left > 0 {
		// So that others learn soon that they may have it. An answer counts as long as the
		// lock lives, which is longer than it is trusted.
		d = min(d, max(left+marginOf(c.cfg.Lock.TTL)/2, CallTimeout/8)) // a call that comes almost too late is given a chance
	}
	return d
}

// checkClock takes in what the database's clock said in answer to something sent; zero: it
// did not answer.
func (c *connection) checkClock(sent Instant, clock time.Time) {
	if clock.IsZero() {
		return
	}
	by := c.clock.noteReading(clock, sent, Now())
	if by == 0 {
		return
	}
	if by < 0 {
		c.events.ClockSetBack()
	}
	c.metrics.clockJumps.WithLabelValues(c.pool.Name).Inc()
	c.log.Warn("the clock of the pool's database has jumped, or this node's machine has stood still: timers fire as much too early, or too late if it went back; check the clock of its host",
		zap.Duration("by", by.Round(time.Millisecond)), zap.Time("to", clock))
}

// RetryIn is when to call again after a call has failed.
func (c *connection) RetryIn() time.Duration {
	if rest := c.pool.Breaker.WaitLeft(time.Now()); rest > 0 {
		return rest
	}
	return retryEvery + rand.N(retryEvery)
}

// LogFailure logs that a call has failed: ever less often while the database is down for the
// same reason.
func (c *connection) LogFailure(what string, err error, fields ...zap.Field) {
	var pg *pgconn.PgError
	code := ""
	if errors.As(err, &pg) {
		code = pg.Code
	}
	level := zapcore.WarnLevel
	switch {
	case errors.Is(err, errDown):
		return
	case !c.pool.Breaker.IsNews(code):
		level = zapcore.DebugLevel
	}
	c.log.Log(level, what, append(fields, zap.Error(err))...)
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

// closeConn closes the connection.
func (c *connection) closeConn() {
	c.lock()
	defer c.mu.Unlock()
	c.dropConn()
}

// listen hears notifications until next, or until it is interrupted, or wanted;
// mu is held. false: there is no connection that does.
func (c *connection) listen(ctx context.Context, next time.Time, wanted func() bool) bool {
	h := &c.heard
	if c.conn == nil || h.conn != c.conn || !h.listens || c.conn.IsClosed() {
		return false
	}
	ctx, stop := context.WithDeadline(ctx, next)
	defer stop()
	if !c.listening.begin(stop) {
		return true
	}
	defer c.listening.end()
	for !wanted() { // what came before it could interrupt
		if h.hasNews() && (len(h.jobs) >= mostLookedUp || time.Since(h.looked) >= lookUpEvery) {
			c.lookUp(ctx)
		}
		wait, done := ctx, context.CancelFunc(func() {})
		if h.hasNews() {
			wait, done = context.WithDeadline(ctx, h.looked.Add(lookUpEvery))
		}
		n, err := c.conn.WaitForNotification(wait)
		done()
		switch {
		case err == nil && !h.note(n.Payload, time.Now()):
			c.stopHearing(ctx)
			return false
		case err != nil && (ctx.Err() != nil || wait.Err() == nil):
			return !c.conn.IsClosed() // if it is, the next call finds out
		}
	}
	return true
}

// lookUp tells where the jobs wait that somebody says were enqueued; mu is held. What is told of no job, as by a program
// of another version, is taken to say that there is work somewhere.
func (c *connection) lookUp(ctx context.Context) {
	h := &c.heard
	jobs, look := h.jobs[:min(len(h.jobs), mostLookedUp)], h.look
	h.jobs, h.look, h.looked = h.jobs[len(jobs):], false, time.Now()
	if len(jobs) > 0 {
		// Who wants the connection interrupts a wait, and not this, which would cost the connection.
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.boundCall(true))
		defer cancel()
		lanes, dueIn, err := store.Notified(ctx, c.conn, jobs)
		if len(lanes) > 0 {
			c.events.WorkSeen(lanes, 0)
		}
		if dueIn > 0 {
			c.events.WorkSeen(nil, dueIn)
		}
		look = look || err != nil
	}
	if look {
		c.events.WorkSeen(nil, 0)
		c.events.WorkSeen(nil, timerLook)
	}
}

// stopHearing stops listening until the next renewal, as there is more to hear than helps anybody: until then, and
// then, the holder looks by itself; mu is held.
func (c *connection) stopHearing(ctx context.Context) {
	level := zapcore.DebugLevel
	if time.Since(c.deafLogged) >= deafLogEvery {
		level, c.deafLogged = zapcore.WarnLevel, time.Now()
	}
	c.log.Log(level, "notifications of enqueued jobs come too fast, and are not heard until the next renewal: jobs that SQL enqueues may start seconds later; look for who executes NOTIFY tenure_enqueued, or enqueue many jobs in a transaction",
		zap.Int("most_per_second", mostHeard))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.boundCall(true)) // as in lookUp
	defer cancel()
	err := store.Listen(ctx, c.conn, false)
	cancel()
	for err == nil { // what was sent before
		_, err = c.conn.WaitForNotification(ctx)
	}
	c.heard = hearing{conn: c.conn, missed: true}
	c.events.WorkSeen(nil, 0)
}

// setListening makes the server send notifications on the connection, or stop that; mu is held.
func (c *connection) setListening(ctx context.Context, conn *pgx.Conn, on bool) {
	if c.heard.conn != conn {
		c.heard = hearing{conn: conn}
	}
	if c.heard.asked == on {
		return
	}
	err := store.Listen(ctx, conn, on)
	c.heard.asked, c.heard.listens = on, on && err == nil // not to be tried, and logged, with every renewal
	if err != nil {
		c.log.Warn("what is enqueued by SQL alone may start seconds later: its notifications cannot be heard", zap.Error(err))
	}
	if on && c.heard.missed {
		c.heard.missed = false
		c.events.WorkSeen(nil, 0)
		c.events.WorkSeen(nil, timerLook)
	}
}
