package acquisition

import (
	"context"
	"errors"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/internal/store"
)

// schedules has jobs be added whose schedules are due, in slices, as [timers] does. Which those are
// is worked out here, as Postgres knows nothing of cron; that nothing was changed meanwhile, and
// that this is still the holder, is checked where they are added.
type schedules struct {
	*holding
	slice  slice
	unread map[[2]string]bool // schedules, by tenant and name, already logged as unreadable
}

// fireSlice fires one slice; more tells that there may be another one.
func (s *schedules) fireSlice(ctx context.Context) (n int, more bool, err error) {
	began := time.Now()
	size := s.slice.most()
	most := size + len(s.unread) // which are due all the time, and first
	due, now, err := store.DueSchedules(ctx, s.pool.Jobs(), most)
	if err != nil || len(due) == 0 {
		return 0, false, err
	}
	var firings store.Firings
	taken := 0
	for i := range due {
		if firings.Jobs() >= size { // some have much to make up for
			more = true
			break
		}
		d := &due[i]
		if d.Tenant == store.EveryTenant { // it has been set, and tenants are to have it
			s.agenda.spread.ask()
			continue
		}
		var runs []time.Time
		var next time.Time
		rule, err := d.Rule()
		if err == nil && d.Damage != "" {
			err = errors.New(d.Damage)
		}
		if err == nil {
			runs, next, err = rule.Due(d.At, now, recurrence.Missed(d.Missed), d.Waits)
		}
		if err != nil {
			s.report(d, err)
			continue
		}
		for i := range runs {
			runs[i] = runs[i].Add(-d.Jitter) // the time that it is for, rather than the one that it is fired at
		}
		firings.Add(d, runs, next)
		taken++
	}
	more = more || len(due) == most
	if taken == 0 {
		return 0, more, nil
	}
	fired, err := store.FireSchedules(ctx, s.pool.Jobs(), s.fence, &firings)
	if err != nil {
		return 0, false, err
	}
	for _, f := range fired {
		s.lanes.See(f.Lane)
		n += f.Count
	}
	s.slice.resize(taken, time.Since(began))
	return n, more, nil
}

// report says, once, that a schedule cannot be read here, although it could where it was set: by
// another program, or with other time zones.
func (s *schedules) report(d *store.DueSchedule, err error) {
	key := [2]string{d.Tenant, d.Name}
	if s.unread[key] {
		return
	}
	if s.unread == nil {
		s.unread = map[[2]string]bool{}
	}
	s.unread[key] = true
	s.log.Error("a schedule is due and is not fired, as this node cannot read it: set it again", zap.String("tenant", d.Tenant), zap.String("schedule", d.Name), zap.Error(err))
}
