package acquisition

import (
	"sync"
	"time"
)

// balance decides when this node lets others have some of its locks: only while it
// holds more than its share, and a part of the surplus at a time. Otherwise a holder
// keeps its lock, whoever is elected: members that come and go, a partition, gossip that
// flaps must move no lock. Safe for concurrent use.
type balance struct {
	mu    sync.Mutex
	held  int       // guarded by mu
	given int       // guarded by mu; let go of since since
	since time.Time // guarded by mu
}

// balanceEvery is how often a part of the surplus may go, and balancePart which part: a
// node that is alone with ten thousand locks when four others come has let go of what is
// theirs within the minute.
const (
	balanceEvery = time.Second
	balancePart  = 8
)

func (b *balance) took() {
	b.mu.Lock()
	b.held++
	b.mu.Unlock()
}

func (b *balance) lost() {
	b.mu.Lock()
	b.held--
	b.mu.Unlock()
}

// mayGive tells whether one more lock may go now, and counts it.
func (b *balance) mayGive(share int, now time.Time) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	surplus := b.held - share
	if surplus <= 0 {
		return false
	}
	if now.Sub(b.since) >= balanceEvery {
		b.since, b.given = now, 0
	}
	if b.given >= (surplus+balancePart-1)/balancePart {
		return false
	}
	b.given++
	return true
}
