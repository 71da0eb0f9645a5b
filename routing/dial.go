package routing

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
)

// A server spends more on the start of a connection than on all else that an idle pool
// asks of it. When a thousand pools of one server connect at once, each start takes
// longer than anybody waits for it: all are given up, what was spent on them is lost,
// and the next try is no better. So a node has few of them under way at a time, in the
// order in which they were asked for. That holds for each server by itself, for one that
// hangs must not hold up the others.
const (
	mostKeeping   = 8 // to keep a lock or a session: they shall not stand behind the others
	mostLooking   = 8 // only to look at a lock
	mostVerifying = 4
	mostBeginning = 8 // terms, until they have claimed their first jobs
	mostSpares    = 128
)

// server is what a node shares among all pools at one server's address: how many
// connections it opens there at a time, and how it has fared.
type server struct {
	keeping, looking, verifying, beginning dialLimiter

	spares   chan struct{} // one per connection with which a pool was verified and that is kept for the lock
	shortage shortage

	working  atomic.Int64 // connections that do job SQL just now
	answered atomic.Int64 // when a lock's connection was last made, in nanoseconds since began
}

var began = time.Now()

func (s *server) noteAnswer() { s.answered.Store(int64(time.Since(began))) }

// silentFor is how long no connection has been made, by a clock that is not set.
func (s *server) silentFor() time.Duration {
	return time.Since(began) - time.Duration(s.answered.Load())
}

// servers are all servers by address. Safe for concurrent use.
type servers struct {
	mu  sync.Mutex
	all map[string]*server // guarded by mu
}

// at is the server that a connection leads to.
func (s *servers) at(c *pgx.ConnConfig) *server {
	s.mu.Lock()
	defer s.mu.Unlock()
	addr := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if s.all[addr] == nil {
		if s.all == nil {
			s.all = map[string]*server{}
		}
		s.all[addr] = &server{keeping: make(dialLimiter, mostKeeping), looking: make(dialLimiter, mostLooking), verifying: make(dialLimiter, mostVerifying),
			beginning: make(dialLimiter, mostBeginning), spares: make(chan struct{}, mostSpares)}
		s.all[addr].noteAnswer() // nobody has tried yet
	}
	return s.all[addr]
}

// dialLimiter bounds how many connections are being opened at a time, first come, first
// served: its capacity.
type dialLimiter chan struct{}

// ErrDialLimit is returned when a connection could not be opened in time because too many others
// were being opened. It says nothing about the server, unless nobody else gets through either.
var ErrDialLimit = errors.New("other connections are being opened to its server")

// wait returns once a connection may be opened; done says that it is open, or will not be.
func (l dialLimiter) wait(ctx context.Context) (done func(), err error) {
	select {
	case l <- struct{}{}:
		return func() { <-l }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d %w: %w", cap(l), ErrDialLimit, context.Cause(ctx))
	}
}
