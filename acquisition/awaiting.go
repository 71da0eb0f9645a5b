package acquisition

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// settler starts jobs that have awaited others, once those have ended. Who ends a job only notes
// that it has; the holder takes in what was noted, under its fence, so that ends do not wait for one
// another, however many jobs a batch has. It is done by background queries.
type settler struct {
	place
	fence  store.Fence
	every  time.Duration
	timers *timers

	settleDuty, missedDuty, completeDuty, forgetDuty duty

	some      bool                // there are jobs that await others
	cursor    store.AwaitedCursor // of the look for ends that were not noted
	lastOpen  job.ID              // up to which awaiting jobs were looked at
	forgotten store.ClosedPlace   // up to where what was awaited is forgotten
}

// listDuties are those of the settler. Ends may have been noted in vain before the term.
func (s *settler) listDuties(now time.Time) []*duty {
	s.settleDuty = duty{name: "ends of awaited jobs", every: fixed(s.every), due: now.Add(burst), query: s.settle}
	s.missedDuty = duty{name: "ends of awaited jobs that were not noted", every: fixed(sweepEvery), due: firstSweep(now), query: s.findMissed}
	s.completeDuty = duty{name: "jobs that await nothing any more", every: fixed(sweepEvery), due: firstSweep(now), query: s.completeDuty.byStep(s.findComplete)}
	s.forgetDuty = duty{name: "what jobs awaited that are gone", every: fixed(10 * sweepEvery), due: firstTidying(now), query: s.forgetDuty.byStep(s.forgetAwaited)}
	return []*duty{&s.settleDuty, &s.missedDuty, &s.completeDuty, &s.forgetDuty}
}

// noteEnds takes in that some jobs have ended, which others may await. More may, in a moment.
func (s *settler) noteEnds() {
	if s.some {
		s.settleDuty.dueBy(time.Now().Add(sliceTime))
	}
}

func (s *settler) settle(ctx context.Context) (use func(), err error) {
	done, err := store.SettleAwaited(ctx, s.pool.Jobs(), s.fence, maxSlice, s.keeper.KeepsFinished())
	return func() {
		s.some = done.Some
		if done.Started > 0 { // by a time that has come
			s.timers.expect(time.Now())
		}
		if done.Ends == maxSlice || done.Cancelled > 0 { // there is more, or was made
			s.settleDuty.ask()
		}
	}, err
}

// findMissed looks for ends that nobody noted, a step at a time. As those below it goes on after ten times
// what a step took while there is more.
func (s *settler) findMissed(ctx context.Context) (use func(), err error) {
	if !s.some {
		return nil, nil
	}
	began := time.Now()
	missed, next, err := store.NoteMissedEnds(ctx, s.pool.Jobs(), s.cursor, maxSlice)
	took := time.Since(began)
	return func() {
		if s.cursor = next; next != (store.AwaitedCursor{}) {
			s.missedDuty.dueBy(time.Now().Add(dutyFactor * took))
		}
		if missed > 0 {
			s.settleDuty.ask()
		}
	}, err
}

// findComplete looks for jobs that await nothing any more, of which nobody has said so.
func (s *settler) findComplete(ctx context.Context) (more bool, err error) {
	if !s.some {
		return false, nil
	}
	next, err := store.NoteAwaiting(ctx, s.pool.Jobs(), s.lastOpen, maxSlice)
	if err == nil {
		s.lastOpen = next
	}
	return next != 0, err
}

// forgetAwaited forgets what jobs awaited that are gone, so many rows in a statement: a batch may have
// millions.
func (s *settler) forgetAwaited(ctx context.Context) (more bool, err error) {
	next, more, err := store.TrimAwaited(ctx, s.pool.Jobs(), s.forgotten, maxSlice, s.keeper.Kept().Finished)
	if err == nil {
		s.forgotten = next
	}
	return more, err
}
