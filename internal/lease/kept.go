package lease

import (
	"sync/atomic"
	"time"
)

// kept is what a keeper keeps at the moment. Safe for concurrent use. A lock is stored after its
// session, so who compares the two loads the lock first. And a lock is stored before its session is
// looked for, as the session is removed before the lock is looked for: whichever comes second sees it.
type kept struct {
	lockTTL time.Duration
	session atomic.Pointer[Session] // nil: none is open
	lock    atomic.Pointer[Lock]    // nil: no lock is held
}

// boundCall is how long a call may take.
func (k *kept) boundCall(connected bool) time.Duration {
	d := CallTimeout
	if connected {
		d = askTimeout
	}
	d = min(d, k.lockTTL*3/4) // one call that hangs must not cost a lock that lives shorter
	if h := k.lock.Load(); h != nil && h.trust.holds() {
		// So that others learn soon that they may have it. An answer counts as long as the
		// lock lives, which is longer than it is trusted.
		d = min(d, max(h.trust.left()+marginOf(k.lockTTL)/2, CallTimeout/8)) // a call that comes almost too late is given a chance
	}
	return d
}
