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
	until atomic.Pointer[time.Time] // with a monotonic reading
}

// extend trusts for ttl less the margin from the time a request was sent.
func (t *trust) extend(sent time.Time, ttl time.Duration) {
	until := sent.Add(ttl - marginOf(ttl))
	t.until.Store(&until)
}

// stands tells whether the trust has not run out.
func (t *trust) stands() bool { return t.left() > 0 }

// left is how long the trust still stands.
func (t *trust) left() time.Duration {
	until := t.until.Load()
	if until == nil {
		return 0
	}
	return time.Until(*until)
}
