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
	mostKeeping   = 8 // of those who have a lock or a session to keep: they shall not stand behind the others
	mostLooking   = 8 // of those who only look at locks
	mostVerifying = 4
	mostSpares    = 16
)

// door is where connections to one server are let in.
type door struct {
	keeping, looking, verifying queue

	spares queue // of connections with which pools were verified
	short  shortage

	answered atomic.Int64 // when a connection was last made, in nanoseconds since began
}

var began = time.Now()

func (d *door) note() { d.answered.Store(int64(time.Since(began))) }

// silentFor is how long no connection has been made, by a clock that is not set.
func (d *door) silentFor() time.Duration { return time.Since(began) - time.Duration(d.answered.Load()) }

// doors are those of all servers. Safe for concurrent use.
type doors struct {
	mu  sync.Mutex
	all map[string]*door // guarded by mu; by address
}

// to is the door of the server that a connection leads to.
func (d *doors) to(c *pgx.ConnConfig) *door {
	d.mu.Lock()
	defer d.mu.Unlock()
	addr := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	if d.all[addr] == nil {
		if d.all == nil {
			d.all = map[string]*door{}
		}
		d.all[addr] = &door{keeping: make(queue, mostKeeping), looking: make(queue, mostLooking), verifying: make(queue, mostVerifying), spares: make(queue, mostSpares)}
		d.all[addr].note() // nobody has tried yet
	}
	return d.all[addr]
}

// queue lets as many through at a time as it has places, first come, first served.
type queue chan struct{}

// ErrNoTurn is returned when a connection's turn did not come in time. It says nothing
// about the server, unless nobody else gets through either.
var ErrNoTurn = errors.New("other connections are being opened to its server")

// turn waits for a place, which is free again when done is called.
func (q queue) turn(ctx context.Context) (done func(), err error) {
	select {
	case q <- struct{}{}:
		return func() { <-q }, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("%d %w: %w", cap(q), ErrNoTurn, context.Cause(ctx))
	}
}

// Turn waits until this node may open one more connection to the pool's server, and
// holds the place until done is called: once the connection has answered. Whoever does
// what every node does for every pool waits here first, and bounds what follows only
// then, so that a crowd makes it late and not useless. keeps tells that a lock or a
// session hangs on it. The error wraps ErrNoTurn.
func (p *Pool) Turn(ctx context.Context, keeps bool) (done func(), err error) {
	q := p.door.looking
	if keeps {
		q = p.door.keeping
	}
	done, err = q.turn(ctx)
	if err != nil {
		return nil, fmt.Errorf("connect to pool %s: %w", p.Name, err)
	}
	return done, nil
}

// SilentFor is how long no lock's connection to the pool's server has been made.
func (p *Pool) SilentFor() time.Duration { return p.door.silentFor() }
