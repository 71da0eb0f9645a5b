package lease

import (
	"context"
	"sync"

	"github.com/jackc/pgx/v5"
)

// listening is how a keeper hears notifications on its connection between two calls. Anyone who
// wants to call, or has something for the keeper to do, interrupts it.
type listening struct {
	mu      sync.Mutex         // held for moments, with no other one taken meanwhile
	callers int                // guarded by mu; they wait for the connection
	stop    context.CancelFunc // guarded by mu; nil: nobody listens
}

// hearing is what a connection has been told about notifications.
type hearing struct {
	conn    *pgx.Conn
	asked   bool // to listen
	listens bool
}

// announce says that somebody is about to call.
func (l *listening) announce() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callers++
	if l.stop != nil {
		l.stop()
	}
}

// arrive says that one of them has the connection.
func (l *listening) arrive() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.callers--
}

// interrupt ends listening.
func (l *listening) interrupt() {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.stop != nil {
		l.stop()
	}
}

// begin says that stop ends listening from now on; false: somebody waits for the connection.
func (l *listening) begin(stop context.CancelFunc) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.callers > 0 {
		return false
	}
	l.stop = stop
	return true
}

func (l *listening) end() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.stop = nil
}
