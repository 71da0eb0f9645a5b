package acquisition

import (
	"context"
	"math/rand/v2"
	"time"
)

// A term dozes when its pool has been idle for a while: it does no chores and needs no
// connection but the lock's, on which the keeper renews half as often and, in the same
// round trip, looks whether anything has come. A hint, or the next timer, wakes it at
// once. So a thousand idle pools cost a quarter of a transaction per second each, and
// the lock lives longer in proportion, so that those who watch it look less often too.
// A pool that is to be looked at more often than the lock is renewed never dozes.
const (
	dozeAfter  = 5 // times acquire.idle_wait
	dozeFactor = 2 // by which renewing slows down
)

// longestDoze bounds a doze, and half of it the shortest that nothing ends: finished
// jobs are to be tidied now and then where no more come, too.
const longestDoze = 2 * time.Hour

// mayDoze tells whether nothing has been going on for a while.
func (t *term) mayDoze(now time.Time) bool {
	if t.cfg.IdleWait < t.cfg.Lock.RenewEvery || t.lanes.hasWork() || !t.suspects.none() ||
		len(t.flight.own)+len(t.flight.older) > 0 || t.lanes.missed != [2]bool{} || t.session.completer.busy() {
		t.quiet = now
	}
	return now.Sub(t.quiet) >= dozeAfter*t.cfg.IdleWait
}

// doze waits until something has to be done.
func (t *term) doze(ctx context.Context) (err error) {
	t.lanes.forget(1)                        // to be read from their start: a transaction may commit what stands behind the cursor
	defer func() { t.dozing = err != nil }() // to be passed on with the lock
	t.keeper.doze(true)
	defer t.keeper.doze(false)
	defer func() { t.limits.known = false }() // they may be others by then
	longest := time.Now().Add(longestDoze/2 + rand.N(longestDoze/2))
	for {
		until := longest
		if !t.due.IsZero() {
			until = earlier(until, t.due)
		}
		wait := time.Until(until)
		if _, elsewhere := t.electedElsewhere(); elsewhere { // it must have been so for a while
			wait = min(wait, electionEvery)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-t.stop.Done():
			timer.Stop()
			return context.Cause(t.stop)
		case <-t.keeper.inbox.nudge:
			timer.Stop()
			return nil
		case <-timer.C:
			if !time.Now().Before(until) {
				return nil
			}
		case <-t.changed:
			timer.Stop()
		}
		if t.shouldMove() {
			return errMoved
		}
	}
}
