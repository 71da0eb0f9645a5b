package acquisition

import (
	"sync"
	"time"

	"go.uber.org/zap"
)

// dbClock notices when a database's clock jumps. Nothing is lost or doubled by that, as
// nobody is taken for dead by a clock alone, but timers fire at wrong times and locks are
// taken anew, and who looks for the reason finds none in Tenure. Safe for concurrent use.
type dbClock struct {
	mu        sync.Mutex
	read      time.Time // guarded by mu; the last reading; zero: none yet
	sent, got instant   // guarded by mu; between which it was made
}

// A clock may run an eighth too fast or too slow while it is being corrected, which is
// more than any daemon does, and be off by a little more.
const (
	clockSlew  = 8
	clockSlack = 2 * time.Second
)

// see takes a reading that was made between two instants, and returns by how much, at
// least, the clock has jumped since the last one.
func (c *dbClock) see(read time.Time, sent, got instant) time.Duration {
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
func (i instant) since(earlier instant) time.Duration {
	return i.at.Sub(earlier.at) + i.asleep - earlier.asleep
}

// heedClock takes in what the database's clock said in answer to something sent; zero: it
// did not answer.
func (k *keeper) heedClock(sent instant, clock time.Time) {
	if clock.IsZero() {
		return
	}
	by := k.clock.see(clock, sent, thisInstant())
	if by == 0 {
		return
	}
	k.metrics.clockJumps.WithLabelValues(k.pool.Name).Inc()
	k.log.Warn("the clock of the pool's database has jumped, or this node's machine has stood still: timers fire as much too early, or too late if it went back; see to the clock of its host",
		zap.Duration("by", by.Round(time.Millisecond)), zap.Time("to", clock))
}
