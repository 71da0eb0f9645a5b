package routing

import (
	"cmp"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/store"
)

// ErrCrowded is returned while a pool's server has lately had no connection left and is not
// asked for another one yet.
var ErrCrowded = errors.New("its server had no connection left, and is asked again in a moment")

// crowdPolicy spaces out the connections that are asked for once a server has refused one.
// A refusal costs it a process all the same, and what wants a connection is work that can
// wait.
var crowdPolicy = backoff.Policy{First: time.Second, Longest: 4 * time.Second}

// crowdBreaker opens when a pool's server has no connection left for it, be it because of
// max_connections or of a limit of the database or the role. Then one caller at a time
// finds out whether that is over, and the others are told at once that there is none.
// The locks' connections are not held back: a lock or a session may hang on them; whether the
// database can be used at all is for [Breaker] to say.
type crowdBreaker struct {
	mu       sync.Mutex
	failures int       // guarded by mu; in a row; 0: closed
	until    time.Time // guarded by mu; nobody is let through before
	probing  bool      // guarded by mu; somebody has been let through since the last refusal
	cause    error     // guarded by mu
}

// trip notes that the server had none.
func (b *crowdBreaker) trip(why error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.cause = why
	if b.failures > 0 && !b.probing { // one that was asked for before
		return
	}
	b.probing = false
	b.failures++
	b.until = time.Now().Add(crowdPolicy.Wait(b.failures))
}

// allow lets everybody through while the server has connections, as far as is known. Once it
// has refused one, it lets one through after each wait, and returns ErrCrowded to the
// others until that one is served or refused, or has had the first wait for it: it may fail
// for reasons of its own, and never say.
func (b *crowdBreaker) allow() error {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	switch {
	case b.failures == 0:
		return nil
	case now.Before(b.until):
		return fmt.Errorf("%w: %w", ErrCrowded, b.cause)
	case now.Sub(b.until) > crowdPolicy.Longest: // nobody has asked for long, so nothing is known
		b.failures, b.probing = 0, false
		return nil
	}
	b.probing = true
	b.until = now.Add(crowdPolicy.First)
	return nil
}

// reset notes that there was one.
func (b *crowdBreaker) reset() {
	b.mu.Lock()
	b.failures, b.probing = 0, false
	b.mu.Unlock()
}

// shortFor is how long a server that had no connection left counts as short of them: idle
// connections of all nodes have been closed several times over by then.
const shortFor = 8 * maxConnIdle

// shortage is whether a server has fewer connections than all would like. Then nobody keeps
// one that it does not need just now. Safe for concurrent use.
type shortage struct {
	last atomic.Int64 // when it refused one, in nanoseconds since began; 0: never
}

func (s *shortage) noteRefusal() { s.last.Store(int64(time.Since(began))) }

func (s *shortage) holds() bool {
	last := s.last.Load()
	return last != 0 && time.Since(began)-time.Duration(last) < shortFor
}

// watchRefusals trips the breaker when the server has no connection left.
func watchRefusals(c *pgx.ConnConfig, b *crowdBreaker, s *shortage) {
	next := c.OnPgError
	c.OnPgError = func(pc *pgconn.PgConn, e *pgconn.PgError) bool {
		if store.NoConnectionLeft(e) && cmp.Or(e.SeverityUnlocalized, e.Severity) == "FATAL" { // else a statement's own doing
			b.trip(e)
			s.noteRefusal()
		}
		return next(pc, e)
	}
}
