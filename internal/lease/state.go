package lease

import (
	"context"
	"sync"
	"time"

	"github.com/google/uuid"
)

// state is what a keeper keeps at the moment. Its mutex is held for moments only, never
// during a call, and no other one is taken meanwhile.
type state struct {
	mu      sync.Mutex
	ctx     context.Context    // of run; written once, by Start; nil before
	cancel  context.CancelFunc // as ctx
	running bool               // guarded by mu; run is under way
	current *Session           // guarded by mu; nil: none is open
	lock    *Lock              // guarded by mu; nil: no lock is held
	dozing  bool               // guarded by mu; the term that holds it waits for something to come
	looks   int                // guarded by mu; renewals since it dozes
	wanted  time.Time          // guarded by mu; until then an idle session is kept open
	idled   idleEnd            // guarded by mu; the last session that was ended as nobody needed it
}

// idleEnd is a session that was ended because nobody needed it.
type idleEnd struct {
	session uuid.UUID
	at      time.Time
}

// currentSession is the open session; nil: none is.
func (s *state) currentSession() *Session {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.current
}

// trustLeft is for how long the lock is trusted, if it is held.
func (s *state) trustLeft() (left time.Duration, held bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.lock == nil {
		return 0, false
	}
	return s.lock.trust.left(), true
}

// isStopping tells whether there is no later, as this node stops.
func (s *state) isStopping() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.ctx != nil && s.ctx.Err() != nil
}

// isWanted tells whether somebody has lately asked for the session.
func (s *state) isWanted() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return time.Now().Before(s.wanted)
}
