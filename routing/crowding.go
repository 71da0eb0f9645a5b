package routing

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/store"
)

// ErrCrowded is returned while a pool's server has lately had no connection left and is not
// asked for another one yet.
var ErrCrowded = errors.New("its server had no connection left, and is asked again in a moment")

// Waits between two connections that are asked for once a server has refused one, with up
// to half as much again of jitter. A refusal costs it a process all the same, and whoever
// wants a connection has work that can wait.
const (
	firstAsk = time.Second
	lastAsk  = 4 * time.Second
)

// crowding is that a pool's server has no connection left for it, be it because of
// max_connections or of a limit of the database or the role. Then one goroutine at a time
// finds out whether that is over, and the others are told at once that there is none.
// The locks' connections are not held back: a lock or a session may hang on them.
type crowding struct {
	mu      sync.Mutex
	wait    time.Duration // guarded by mu; 0: there was one at the last try
	until   time.Time     // guarded by mu; nobody asks before
	probing bool          // guarded by mu; somebody has been let through since the last refusal
	cause   error         // guarded by mu
}

// refused notes that the server had none.
func (c *crowding) refused(why error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.cause = why
	if c.wait > 0 && !c.probing { // one that was asked for before
		return
	}
	c.probing = false
	c.wait = min(max(2*c.wait, firstAsk), lastAsk)
	c.until = time.Now().Add(c.wait + rand.N(c.wait/2))
}

// ask lets everybody through while the server has connections, as far as is known. Once it
// has refused one, it lets one through after each wait, and returns ErrCrowded to the
// others until that one is served or refused, or has had firstAsk for it: it may fail for
// reasons of its own, and never say.
func (c *crowding) ask() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	switch {
	case c.wait == 0:
		return nil
	case now.Before(c.until):
		return fmt.Errorf("%w: %w", ErrCrowded, c.cause)
	case now.Sub(c.until) > lastAsk: // nobody has asked for long, so nothing is known
		c.wait, c.probing = 0, false
		return nil
	}
	c.probing = true
	c.until = now.Add(firstAsk)
	return nil
}

// served notes that there was one.
func (c *crowding) served() {
	c.mu.Lock()
	c.wait, c.probing = 0, false
	c.mu.Unlock()
}

// shortFor is how long a server that had no connection left counts as short of them.
const shortFor = 2 * time.Minute

// shortage is whether a server has fewer connections than all would like. Then nobody keeps
// one that it does not need just now. Safe for concurrent use.
type shortage struct {
	last atomic.Int64 // when it refused one, in nanoseconds since began; 0: never
}

func (s *shortage) note() { s.last.Store(int64(time.Since(began))) }

func (s *shortage) holds() bool {
	last := s.last.Load()
	return last != 0 && time.Since(began)-time.Duration(last) < shortFor
}

// Short tells whether the pool's server has fewer connections than all nodes would like to
// keep. A connection that is not needed just now should be closed then.
func (p *Pool) Short() bool { return p.door.short.holds() }

// heedRefusals has the pool learn of it when the server has no connection left.
func (p *Pool) heedRefusals(c *pgx.ConnConfig) {
	next := c.OnPgError
	c.OnPgError = func(pc *pgconn.PgConn, e *pgconn.PgError) bool {
		if store.NoConnectionLeft(e) && cmp.Or(e.SeverityUnlocalized, e.Severity) == "FATAL" { // else a statement's own doing
			p.crowding.refused(e)
			p.door.short.note()
		}
		return next(pc, e)
	}
}

// ask is for a connection that jobs or tenants want.
func (p *Pool) ask(ctx context.Context, _ *pgx.ConnConfig) error {
	if err := p.closedTo(ctx); err != nil {
		return err
	}
	if err := p.crowding.ask(); err != nil {
		return fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	return nil
}

// served is called with a connection that they have got.
func (p *Pool) served(ctx context.Context, c *pgx.Conn) error {
	p.crowding.served()
	return p.checkServer(ctx, c)
}
