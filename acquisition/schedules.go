package acquisition

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// schedules adds the jobs of schedules that are due, in slices, as [timers] does. Which those are,
// and what their kinds give them, is worked out here, as Postgres knows nothing of cron: beside the loop,
// as nobody knows how long that takes. That nothing was changed meanwhile, and that this is still the
// holder, is checked where they are added, by the loop.
type schedules struct {
	place
	fence  store.Fence
	every  time.Duration
	give   func(context.Context, *store.NewJob) (store.Given, error) // what its kind gives to a job
	lanes  *schedule.Lanes
	fire   *duty // of timers
	spread *duty // of the spreader

	beside *duties // looks, which no other query shall keep waiting
	next   duty    // the next look
	slice  slice
	ready  *store.Firings     // worked out, to be fired; nil: nothing is
	asked  bool               // for a look, as something is due
	unread map[[2]string]bool // schedules, by tenant and name, already logged as unreadable
}

// What working out one schedule may take, which may ask a key ring of the program's own, and all that are looked at.
const (
	workOutWithin = tendEvery
	lookWithin    = 3 * workOutWithin
)

// plan has it look, beside all else.
func (s *schedules) plan(now time.Time) {
	s.next = duty{name: "due schedules", every: fixed(s.every), due: now.Add(burst), prepare: s.look}
	s.beside.plan([]*duty{&s.next})
}

// look works out one slice.
func (s *schedules) look() query {
	size := s.slice.most()
	most := size + len(s.unread) // which are due all the time, and first
	return func(ctx context.Context) (use func(), err error) {
		due, now, err := store.DueSchedules(ctx, s.pool.Jobs(), most)
		if err != nil {
			return nil, err
		}
		// Those that could not be worked out before come last, as they are due all the time.
		slices.SortStableFunc(due, func(a, b store.DueSchedule) int { return cmp.Compare(s.rank(&a), s.rank(&b)) })
		patience, cancel := context.WithTimeout(ctx, lookWithin)
		defer cancel()
		hung := map[string]bool{} // kinds whose jobs' defaults do not come
		var firings store.Firings
		spread, taken := false, 0
		for i := range due {
			if firings.Jobs() >= size { // some have much to make up for
				break
			}
			d := &due[i]
			if d.Tenant == store.EveryTenant { // it has been set, and tenants are to have it
				spread = true
				continue
			}
			if hung[d.Job.Kind] {
				continue
			}
			err := s.workOut(patience, &firings, d, now)
			if ctx.Err() != nil {
				return nil, context.Cause(ctx)
			}
			if err != nil {
				hung[d.Job.Kind] = errors.Is(err, context.DeadlineExceeded)
				s.report(d, err)
				if patience.Err() != nil { // the rest is looked at the next time
					break
				}
				continue
			}
			delete(s.unread, [2]string{d.Tenant, d.Name})
			taken++
		}
		return func() {
			if spread {
				s.spread.ask()
			}
			if taken > 0 {
				s.ready = &firings
				s.fire.ask()
			}
		}, nil
	}
}

// rank is 1 of a schedule that could not be worked out, else 0.
func (s *schedules) rank(d *store.DueSchedule) int {
	if s.unread[[2]string{d.Tenant, d.Name}] {
		return 1
	}
	return 0
}

func (s *schedules) workOut(ctx context.Context, firings *store.Firings, d *store.DueSchedule, now time.Time) error {
	if d.Damage != "" {
		return errors.New(d.Damage)
	}
	rule, err := d.Rule()
	if err != nil {
		return err
	}
	runs, next, err := rule.Due(d.At, now, recurrence.Missed(d.Missed), d.Waits)
	if err != nil {
		return err
	}
	var given store.Given
	if len(runs) > 0 {
		ctx, cancel := context.WithTimeout(ctx, workOutWithin)
		defer cancel()
		if given, err = s.give(ctx, &d.Job); err != nil {
			return err
		}
	}
	for i := range runs {
		runs[i] = runs[i].Add(-d.Jitter) // the time that it is for, rather than the one that it is fired at
	}
	firings.Add(d, given, runs, next)
	return nil
}

// fireSlice fires what has been worked out, and returns how many jobs that added.
func (s *schedules) fireSlice(ctx context.Context) (n int, err error) {
	if s.ready == nil {
		return 0, nil
	}
	began := time.Now()
	ready := s.ready
	s.ready = nil
	fired, err := store.FireSchedules(ctx, s.pool.Jobs(), s.fence, ready)
	if err != nil {
		return 0, err
	}
	for _, f := range fired {
		if n += f.Count; f.Tenant != "" {
			s.lanes.See(f.Lane)
		}
	}
	s.slice.resize(ready.Schedules(), time.Since(began))
	return n, nil
}

// report says, once, that a schedule is set aside because it cannot be worked out here, although it could
// where it was set: by another program, or with other time zones. Only one look is under way at a time.
func (s *schedules) report(d *store.DueSchedule, err error) {
	key := [2]string{d.Tenant, d.Name}
	if s.unread[key] {
		return
	}
	if s.unread == nil {
		s.unread = map[[2]string]bool{}
	}
	s.unread[key] = true
	s.log.Error("a schedule is due and is not fired, as this node cannot work out its times or its jobs; others go on: set it again", zap.String("tenant", d.Tenant), zap.String("schedule", d.Name), zap.Error(err))
}
