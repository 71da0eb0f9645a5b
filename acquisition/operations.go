package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/tenurehq/tenure/internal/deadletter"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// operations carries out what operators want done to many dead letters or jobs in the background, step by
// step. It is done by background queries; each step is a transaction that says how far it is, so that the next
// holder goes on behind it.
type operations struct {
	place
	lanes           *schedule.Lanes
	lookForUnwanted *duty // of the canceller

	stepDuty duty
	some     bool // are under way
}

// operationsKept is how long those that have ended can be looked at.
const operationsKept = 7 * 24 * 60 * sweepEvery

// listDuties are those of operations. Some may have been begun by the holder before.
func (o *operations) listDuties(now time.Time) []*duty {
	o.stepDuty = duty{name: "operations in the background", every: fixed(tendEvery), due: now.Add(burst), query: o.step}
	return []*duty{
		&o.stepDuty,
		{name: "operations to be forgotten", every: fixed(10 * sweepEvery), due: now.Add(sweepEvery), query: only(o.forget)},
	}
}

// step does the next step if one is due. While an operation goes on, it takes a tenth of the time at most, or half if it has
// a rate, without the time for which it has waited for locks.
func (o *operations) step(ctx context.Context) (use func(), err error) {
	var took time.Duration
	due, err := store.OperationDue(ctx, o.pool.Jobs())
	var lanes []store.Lane
	if err == nil && due.Some && due.In <= 0 {
		if lanes, took, err = o.doStep(ctx); err == nil {
			due, err = store.OperationDue(ctx, o.pool.Jobs())
		}
	}
	return func() {
		o.some = due.Some
		if took > 0 { // it may have asked for waiting jobs that no page shows, as no node has a handler
			o.lookForUnwanted.ask()
		}
		for _, l := range lanes {
			o.lanes.See(l)
		}
		if due.Some {
			o.stepDuty.due = time.Now().Add(max(min(due.In, tendEvery), restAfter(took, due.Paced)))
		}
	}, err
}

// restAfter is how long operations rest after a step: who has set a rate has half of the time, and others a tenth.
func restAfter(took time.Duration, paced bool) time.Duration {
	if paced {
		return took
	}
	return dutyFactor * took
}

// doStep does a step. One that needs a unique key that a transaction holds, or what cannot be read, is done in ever
// smaller ones, and what still needs that is passed by: what one job waits for must not keep the others.
func (o *operations) doStep(ctx context.Context) (lanes []store.Lane, took time.Duration, err error) {
	for most := store.OperationStep; ; most /= 2 {
		began := time.Now()
		lanes, err = store.StepOperation(ctx, o.pool.Jobs(), store.Stepper{Most: most, Keep: o.keeper.KeepsFinished(), Text: deadletter.MaxText,
			InGroup: func(d store.Dead, group string) bool {
				return deadletter.GroupID(d.Kind, deadletter.Pattern(d.Error)) == group
			}})
		took = time.Since(began)
		if most == 0 || !store.IsOfOne(err) {
			break
		}
	}
	if err != nil && ctx.Err() == nil {
		err = errors.Join(err, store.NoteFailure(ctx, o.pool.Jobs(), err))
	}
	return lanes, took, err
}

// forget forgets operations that ended long ago.
func (o *operations) forget(ctx context.Context) error {
	return store.TrimOperations(ctx, o.pool.Jobs(), operationsKept)
}
