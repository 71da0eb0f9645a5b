package acquisition

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// slot is a mutex to be held for as long as a database likes to take. Who waits for it
// waits on a channel, which a test's clock can see: it stands still for a sync.Mutex.
type slot chan struct{}

func (s slot) Lock()   { s <- struct{}{} }
func (s slot) Unlock() { <-s }

// callTimeout bounds a call on the lock's connection that is made anew for it.
const callTimeout = 4 * time.Second

// askTimeout bounds a call on an open one: as a lock is renewed every two seconds, its
// connection is known to have fallen silent within five, while the lock is still trusted.
// Another connection may pass. The server gives up a little earlier by itself, unless the
// lock lives shorter, or is about to expire.
const askTimeout = 2750 * time.Millisecond

// errLeftAlone is returned for a call that was not made, as the last ones have failed.
var errLeftAlone = errors.New("the database did not do what it was asked, and is tried again in a moment")

// linger is how long a connection is kept after a look if the server is short of them: the
// take that may follow it needs it at once.
const linger = 200 * time.Millisecond

// call runs fn on the lock's connection, connecting if need be. A connection on
// which a call failed is not used again: nobody knows what it would answer next.
// errLeftAlone: the database is down, and not tried as often as somebody wants something
// of it; retry says when it is.
func (k *keeper) call(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	k.connMu.Lock()
	defer k.connMu.Unlock()
	err := k.try(ctx, fn)
	k.heed(ctx, err) // before the next one may call
	return err
}

// heed takes in what a call has shown of the database; connMu is held.
func (k *keeper) heed(ctx context.Context, err error) {
	waited := errors.Is(err, routing.ErrNoTurn) && k.pool.SilentFor() < 2*callTimeout // for its turn, while others had theirs
	if ctx.Err() != nil || waited || errors.Is(err, errLeftAlone) {                   // it was cut short here
		return
	}
	ok := err == nil || answered(err)
	k.reach.note(ok, time.Now(), k.cfg.Lock.TTL/2)
	switch {
	case ok:
		k.pool.Heard()
		if !k.retired() {
			k.metrics.up.WithLabelValues(k.pool.Name).Set(1)
		}
	case spoke(err): // Postgres does not want to, which is for whoever asks it to find out
		k.pool.Heard()
	case k.reach.isDown() && !k.retired():
		k.pool.Lost(err)
		k.metrics.up.WithLabelValues(k.pool.Name).Set(0)
	}
	if left, held := k.trusted(); !ok && held && left <= 0 { // it was tried for long enough, and others may be able to
		k.reach.giveUp()
	}
}

// answered tells whether an error is the ledger's answer.
func answered(err error) bool {
	return errors.Is(err, store.ErrFenced) || errors.Is(err, store.ErrSessionLost)
}

// spoke tells whether an error is the server's own, and not that it is not there.
func spoke(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && !strings.HasPrefix(pg.Code, "57P0") // it shuts down, or starts
}

// retired tells whether the pool was taken out of the configuration, and there may be
// another of its name.
func (k *keeper) retired() bool {
	select {
	case <-k.pool.Gone():
		return true
	default:
		return false
	}
}

// try is call without what is learned from it; connMu is held.
func (k *keeper) try(ctx context.Context, fn func(ctx context.Context, conn *pgx.Conn) error) error {
	connected := k.conn != nil && !k.conn.IsClosed()
	patience := k.bound(connected)
	if connected {
		if err := k.pool.Current(k.conn); err != nil {
			k.disconnect()
			return err
		}
	}
	if !connected && !k.ends() && k.reach.rest(time.Now()) > 0 {
		return errLeftAlone
	}
	if !connected {
		turn, cancel, keeps := ctx, func() {}, k.opened() != nil
		if keeps { // else there is time to wait
			turn, cancel = context.WithTimeout(ctx, patience)
		}
		defer cancel()
		done, err := k.pool.Turn(turn, keeps)
		if err != nil {
			return err
		}
		defer done()
	}
	ctx, cancel := context.WithTimeoutCause(ctx, patience, fmt.Errorf("pool %s did not answer within %v", k.pool.Name, patience))
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
	switch {
	case err != nil && !answered(err):
		k.disconnect()
	case k.pool.Short() && k.opened() == nil: // whoever only looks can do without until the next look
		time.AfterFunc(linger, k.hangUp)
	}
	return err
}

// leastPatience is what a call is given that comes almost too late for the lock.
const leastPatience = 500 * time.Millisecond

// bound is how long a call may take.
func (k *keeper) bound(connected bool) time.Duration {
	d := callTimeout
	if connected {
		d = askTimeout
	}
	d = min(d, k.cfg.Lock.TTL*3/4) // one call that hangs must not cost a lock that lives shorter
	if left, held := k.trusted(); held && left > 0 {
		// So that others learn soon that they may have it. An answer counts as long as the
		// lock lives, which is longer than it is trusted.
		d = min(d, max(left+marginOf(k.cfg.Lock.TTL)/2, leastPatience))
	}
	return d
}

// trusted is for how long the lock is trusted, if it is held.
func (k *keeper) trusted() (left time.Duration, held bool) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.held == nil {
		return 0, false
	}
	return k.held.trust.left(), true
}

// ends tells whether there is no later, as this node stops.
func (k *keeper) ends() bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.ctx != nil && k.ctx.Err() != nil
}

// retry is when to call again after a call has failed.
func (k *keeper) retry() time.Duration {
	if rest := k.reach.rest(time.Now()); rest > 0 {
		return rest
	}
	return firstRetry + rand.N(firstRetry)
}

// complain logs that a call has failed: ever less often while the database is down for the
// same reason.
func (k *keeper) complain(what string, err error, fields ...zap.Field) {
	var pg *pgconn.PgError
	code := ""
	if errors.As(err, &pg) {
		code = pg.Code
	}
	level := zapcore.WarnLevel
	switch {
	case errors.Is(err, errLeftAlone):
		return
	case !k.reach.isNews(code):
		level = zapcore.DebugLevel
	}
	k.log.Log(level, what, append(fields, zap.Error(err))...)
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

// hangUp closes the connection unless a session needs it, or is about to.
func (k *keeper) hangUp() {
	if !k.opening.TryLock() {
		return
	}
	defer k.opening.Unlock()
	if k.opened() != nil {
		return
	}
	k.connMu.Lock()
	defer k.connMu.Unlock()
	k.disconnect()
}
