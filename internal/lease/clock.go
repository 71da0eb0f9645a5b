package lease

import (
	"sync"
	"time"
)

// databaseClock notices when a database's clock jumps. Nothing is lost or doubled by that, as
// nobody is taken for dead by a clock alone, but timers fire at wrong times and locks are
// re-acquired, for a reason that is not in Tenure. Safe for concurrent use.
type databaseClock struct {
	mu        sync.Mutex
	read      time.Time // guarded by mu; the last reading; zero: none yet
	sent, got Instant   // guarded by mu; between which it was made
}

// A clock may run an eighth too fast or too slow while it is being corrected, which is
// more than any daemon does, and be off by a little more.
const (
	clockSlew  = 8
	clockSlack = 2 * time.Second
)

// noteReading takes a reading that was made between two instants, and returns by how much, at
// least, the clock has jumped since the last one.
func (c *databaseClock) noteReading(read time.Time, sent, got Instant) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	if sent.at.Before(c.got.at) { // one made at the same time
		return 0
	}
	before, least, most := c.read, sent.since(c.got), got.since(c.sent)
	c.read, c.sent, c.got = read, sent, got
	if before.IsZero() {
		return 0
	}
	went, slack := read.Sub(before), clockSlack+most/clockSlew
	switch {
	case went > most+slack:
		return went - most
	case went < least-slack:
		return went - least
	}
	return 0
}

// since is the time from an earlier instant, the machine's sleep included.
func (i Instant) since(earlier Instant) time.Duration {
	return i.at.Sub(earlier.at) + i.asleep - earlier.asleep
}
