package acquisition

import (
	"sync/atomic"
	"time"
)

// trust is until when this process may believe that a lock or a session is still
// its own: the time before the last successful renewal was sent, plus the
// time-to-live, less a margin. It can only be too short. The idea is River's
// leadership term. Safe for concurrent use.
type trust struct {
	until atomic.Pointer[instant]
}

// instant is a time by both clocks, and for how long, at least, the machine had been
// suspended by then.
type instant struct {
	at, wall time.Time
	asleep   time.Duration
}

func thisInstant() instant {
	now := time.Now()
	return instant{now, wall(now), asleep(false)}
}

// asleep is suspended and wall the time by the wall clock, but for tests.
var (
	asleep = suspended
	wall   = func(now time.Time) time.Time { return now.Round(0) }
)

// parted is more than what a wall clock is slewed by while something is trusted.
const parted = 50 * time.Millisecond

// extend trusts for ttl less the margin from the instant a request was sent.
func (t *trust) extend(sent instant, ttl time.Duration) {
	d := ttl - marginOf(ttl)
	t.until.Store(&instant{sent.at.Add(d), sent.wall.Add(d), sent.asleep})
}

// stands tells whether the trust has not run out.
func (t *trust) stands() bool { return t.left() > 0 }

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
