package acquisition

import (
	"sync"
	"time"
)

// balance decides when this node passes some of its locks on: only while it
// holds more than its share, and a part of the surplus at a time. Otherwise a holder
// keeps its lock, no matter who is elected: members that come and go, a partition, gossip that
// flaps must move no lock. Safe for concurrent use.
type balance struct {
	mu       sync.Mutex
	held     int       // guarded by mu
	released int       // guarded by mu; released since since
	since    time.Time // guarded by mu
}

// balancePart is which part of the surplus may go every tendEvery: a node that is alone with ten
// thousand locks when four others come has released what is theirs within the minute.
const balancePart = 8

// count counts locks that were taken or, below 0, are held no more.
func (b *balance) count(locks int) {
	b.mu.Lock()
	b.held += locks
	b.mu.Unlock()
}

// mayRelease tells whether one more lock may go now, and counts it.
func (b *balance) mayRelease(share int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	surplus := b.held - share
	if surplus <= 0 {
		return false
	}
	if now.Sub(b.since) >= tendEvery {
		b.since, b.released = now, 0
	}
	if b.released >= (surplus+balancePart-1)/balancePart {
		return false
	}
	b.released++
	return true
}
