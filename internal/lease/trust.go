package lease

import (
	"sync/atomic"
	"time"
)

// trust is until when this process may believe that a lock or a session is still
// its own: the time before the last successful renewal was sent, plus the
// time-to-live, less a margin. It can only be too short. The idea is River's
// leadership term. Safe for concurrent use.
type trust struct {
	until atomic.Pointer[Instant]
}

// Instant is a time by both clocks, and for how long, at least, the machine had been
// suspended by then.
type Instant struct {
	at, wall time.Time
	asleep   time.Duration
}

// Now is this instant.
func Now() Instant {
	now := time.Now()
	return Instant{now, wall(now), asleep(false)}
}

// asleep is suspended and wall the time by the wall clock, but for tests.
var (
	asleep = suspended
	wall   = func(now time.Time) time.Time { return now.Round(0) }
)

// parted is more than what a wall clock is slewed by while something is trusted, and little
// enough of the margin that what goes unnoticed does no harm.
const parted = margin / 30

// extend trusts for ttl less the margin from the instant a request was sent.
func (t *trust) extend(sent Instant, ttl time.Duration) {
	d := ttl - marginOf(ttl)
	t.until.Store(&Instant{sent.at.Add(d), sent.wall.Add(d), sent.asleep})
}

// holds tells whether the trust has not run out.
func (t *trust) holds() bool { return t.left() > 0 }

// left is how long the trust still stands.
func (t *trust) left() time.Duration {
	until := t.until.Load()
	if until == nil {
		return 0
	}
	now := time.Now()
	left := until.at.Sub(now)
	// The wall clock goes on while the machine is suspended, or is set when that is over.
	// So the clocks that tell suspensions, which are costly to read, need to be read only
	// when the two have parted.
	if d := left - until.wall.Sub(wall(now)); d.Abs() > parted {
		left -= asleep(true) - until.asleep
	}
	return left
}

// margin is how much earlier than its time-to-live a lock or a session is given up
// on this side, for what the two clocks may drift apart in that time.
const margin = 1500 * time.Millisecond

// marginOf keeps the margin sensible for the short times that tests use.
func marginOf(ttl time.Duration) time.Duration { return min(margin, ttl/5) }
