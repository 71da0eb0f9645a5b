package acquisition

import (
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
)

// poolEvents passes what a pool's lease keeper tells on to those that it concerns here.
type poolEvents struct {
	inbox    *inbox      // of the acquirer
	assigned *peerEvents // of the assistant
}

var _ lease.Events = (*poolEvents)(nil)

func newPoolEvents() *poolEvents { return &poolEvents{inbox: newInbox(), assigned: newPeerEvents()} }

func (e *poolEvents) Finished(batch []lease.Ended, over []int64) {
	e.inbox.addEnded(batch)
	e.assigned.addEnded(batch, over)
}

func (e *poolEvents) CapacityAvailable() {
	e.inbox.wake()
	nudge(e.assigned.nudge)
}

func (e *poolEvents) WorkSeen(lanes []store.Lane, dueIn time.Duration) {
	e.inbox.addHint(Hint{Lanes: lanes, DueIn: dueIn})
}

func (e *poolEvents) ClockSetBack() { e.inbox.noteSetBack() }

// peerEvents is what an assistant has to do, and to tell the holder. Safe for concurrent use.
type peerEvents struct {
	nudge chan struct{} // of size one; read by the assistant

	mu       sync.Mutex
	assigned bool           // guarded by mu; there are claims to be accepted
	accepted map[int64]bool // guarded by mu; claims that were accepted and are not at their end
	over     []int64        // guarded by mu; those that are, and the holder has not been told
	returned bool           // guarded by mu; some of their jobs wait again
	due      time.Time      // guarded by mu; some were deferred until then; zero: none
}

func newPeerEvents() *peerEvents {
	return &peerEvents{nudge: make(chan struct{}, 1), accepted: map[int64]bool{}}
}

// noteAssigned takes in that there are claims for this node.
func (e *peerEvents) noteAssigned() {
	e.mu.Lock()
	e.assigned = true
	e.mu.Unlock()
	nudge(e.nudge)
}

// addEnded takes in how runs ended; over are the claims that are at their end with them.
func (e *peerEvents) addEnded(batch []lease.Ended, over []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.accepted) == 0 {
		return
	}
	now := time.Now()
	for i := range batch {
		b := &batch[i]
		if !e.accepted[b.Claim.ID] {
			continue
		}
		e.returned = e.returned || b.WaitsAgain()
		if d, ok := b.DueIn(); ok {
			if at := now.Add(d); e.due.IsZero() || at.Before(e.due) {
				e.due = at
			}
		}
	}
	for _, id := range over {
		if e.accepted[id] {
			delete(e.accepted, id)
			e.over = append(e.over, id)
		}
	}
	nudge(e.nudge)
}

// forgetSession drops what was accepted in a session that has ended.
func (e *peerEvents) forgetSession() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.accepted)
	e.over = nil
}

// addAccepted notes a claim that is accepted.
func (e *peerEvents) addAccepted(id int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.accepted[id] = true
}

// takeAssigned tells once whether there are claims to be accepted.
func (e *peerEvents) takeAssigned() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	assigned := e.assigned
	e.assigned = false
	return assigned
}

// isIdle tells whether everything that was accepted is at its end, and told.
func (e *peerEvents) isIdle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.accepted) == 0 && len(e.over) == 0 && !e.assigned
}

// moveTo moves what the holder is to be told into a message; more: not all of it fitted.
func (e *peerEvents) moveTo(r *Capacity) (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.over), maxOver)
	r.Over, e.over = e.over[:n:n], e.over[n:]
	r.Returned, e.returned = e.returned, false
	if !e.due.IsZero() {
		r.DueIn = max(time.Until(e.due), time.Nanosecond)
		e.due = time.Time{}
	}
	return len(e.over) > 0
}
