package lease

import (
	"context"
	"strconv"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// listening is how a keeper hears notifications on its connection between two calls. Anyone who
// wants to call, or has something for the keeper to do, interrupts it.
type listening struct {
	mu      sync.Mutex         // held for moments, with no other one taken meanwhile
	callers int                // guarded by mu; they wait for the connection
	stop    context.CancelFunc // guarded by mu; nil: nobody listens
}

// hearing is what a connection was asked to hear, and what of it is still to be looked up.
type hearing struct {
	conn    *pgx.Conn
	asked   bool // to listen
	listens bool
	missed  bool // since it listened last, as there was too much to hear

	jobs   []job.ID  // somebody says that they were enqueued
	look   bool      // somebody says something else
	looked time.Time // when they were looked up last
	second time.Time // when the second began
	count  int       // in which so many notifications were heard
}

const (
	// lookUpEvery is how often jobs are looked up: those of the time between together.
	lookUpEvery = 2 * time.Millisecond
	// mostLookedUp bounds how many jobs are looked up at a time.
	mostLookedUp = 1000
	// mostHeard bounds the notifications that are heard in a second. Everybody who can connect may send them, and a
	// renewal's answer waits behind them. Ten thousand cost a twentieth of a processor.
	mostHeard = 10_000
	// deafLogEvery is how often the log says that there were more.
	deafLogEvery = 10 * time.Minute
	// timerLook is how soon the timers are looked at when nobody says which one was set.
	timerLook = 50 * time.Millisecond
)

// note takes in a notification; false: there are too many.
func (h *hearing) note(payload string, now time.Time) bool {
	if now.Sub(h.second) >= time.Second {
		h.second, h.count = now, 0
	}
	h.count++
	if id, err := strconv.ParseInt(payload, 10, 64); err == nil && id > 0 {
		h.jobs = append(h.jobs, job.ID(id))
	} else {
		h.look = true
	}
	return h.count <= mostHeard
}

// hasNews tells whether something has to be looked up.
func (h *hearing) hasNews() bool { return h.look || len(h.jobs) > 0 }

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
