package acquisition

import (
	"context"
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

// mayDoze tells whether nothing has been going on for a while.
func (t *term) mayDoze(now time.Time) bool {
	if t.cfg.IdleWait < t.cfg.Lock.RenewEvery || t.lanes.hasWork() || !t.suspects.none() ||
		len(t.flight.own)+len(t.flight.older) > 0 || t.lanes.missed != [2]bool{} || t.session.completer.busy() {
		t.quiet = now
	}
	return now.Sub(t.quiet) >= dozeAfter*t.cfg.IdleWait
}

// doze waits until something has to be done.
func (t *term) doze(ctx context.Context) error {
	t.lanes.forget() // to be read from their start: a transaction may commit what stands behind the cursor
	t.keeper.doze(true)
	defer t.keeper.doze(false)
	for {
		until := t.chores.retention
		if !t.due.IsZero() {
			until = earlier(until, t.due)
		}
		timer := time.NewTimer(time.Until(until))
		select {
		case <-ctx.Done():
			timer.Stop()
			return context.Cause(ctx)
		case <-timer.C:
			return nil
		case <-t.keeper.inbox.nudge:
			timer.Stop()
			return nil
		case <-t.changed:
			timer.Stop()
		}
		// Others may have been elected, and count how long they have been so.
		if err := t.heedElection(ctx); err != nil {
			return err
		}
	}
}
