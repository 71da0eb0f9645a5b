package acquisition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// timers moves jobs whose time has come to those that wait. However many are due, it fires them in slices, and
// jobs are claimed in between. Those that were due first go first, until a slice is full: then
// each tenant that has some due gets its share of every slice, so that another tenant's timers
// do not wait for a million of one.
type timers struct {
	place
	fence     store.Fence
	every     time.Duration
	lanes     *schedule.Lanes
	damaged   *damagedJobs
	schedules *schedules

	fireDuty, resumeDuty duty

	next    time.Time // when the next timer is due; zero: none known
	slice   slice
	tenants []string      // that share slices; none: those that were due first go first
	listed  time.Time     // when tenants was
	rest    time.Duration // until they are listed again
}

// maxTimerTenants bounds those that share a slice.
const maxTimerTenants = 1000

// listDuties are those of timers: in the loop, and beside it.
func (t *timers) listDuties(now time.Time) []*duty {
	t.fireDuty = duty{name: "timers and schedules", every: fixed(t.every), due: now.Add(burst), do: t.fire}
	t.resumeDuty = duty{name: "suspended jobs to be resumed", every: fixed(sweepEvery), due: firstSweep(now), query: t.resumeJobs}
	return []*duty{&t.fireDuty, &t.resumeDuty}
}

// expect notes that a timer is due then.
func (t *timers) expect(at time.Time) {
	if t.next.IsZero() || at.Before(t.next) {
		t.next = at
		t.fireDuty.dueBy(at)
	}
}

// fire fires one slice of due timers, and of due schedules what has been worked out, and finds out when the next
// one is due. What schedules that are due are to do is worked out beside the loop.
func (t *timers) fire(ctx context.Context) error {
	began := time.Now()
	n, more, err := t.fireSlice(ctx)
	if t.damaged.setAsideAll(err) {
		t.fireDuty.ask()
		return nil
	}
	if err != nil {
		return err
	}
	t.metrics.fired.WithLabelValues(t.pool.Name).Add(float64(n))
	if more {
		t.slice.resize(n, time.Since(began))
	}
	scheduled, err := t.schedules.fireSlice(ctx)
	if err != nil {
		return err
	}
	t.metrics.scheduled.WithLabelValues(t.pool.Name).Add(float64(scheduled))
	n += scheduled
	if more {
		t.fireDuty.ask()
		return nil
	}
	in, ok, err := store.NextTimer(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	t.next = time.Time{}
	if ok {
		switch s := t.schedules; {
		case in > 0:
			s.asked = false
		case scheduled > 0 || !s.asked: // it may be a schedule
			s.asked = true
			s.next.ask()
		case n == 0 && !s.beside.hasQuery(): // a suspended job, or somebody has locked its row
			s.asked = false
			t.resumeDuty.ask()
		}
		if in == 0 && n == 0 {
			in = recheckEvery
		}
		t.expect(time.Now().Add(in))
	}
	return nil
}

// fireSlice fires one slice; more tells that there may be another one.
func (t *timers) fireSlice(ctx context.Context) (n int, more bool, err error) {
	size := t.slice.most()
	if len(t.tenants) == 0 {
		fired, err := store.FireTimers(ctx, t.pool.Jobs(), t.fence, size)
		if n = t.seeFired(fired); err != nil || n < size {
			return n, false, err
		}
	}
	if now := time.Now(); now.Sub(t.listed) >= t.rest {
		if t.tenants, err = store.TimerTenants(ctx, t.pool.Jobs(), maxTimerTenants); err != nil {
			return n, true, err
		}
		t.listed, t.rest = time.Now(), dutyFactor*time.Since(now)
	}
	if len(t.tenants) == 0 {
		return n, true, nil
	}
	share := (size + len(t.tenants) - 1) / len(t.tenants)
	fired, err := store.FireTimersOf(ctx, t.pool.Jobs(), t.fence, t.tenants, share)
	if err != nil {
		return n, true, err
	}
	n += t.seeFired(fired)
	got := map[string]int{}
	for _, f := range fired {
		got[f.Lane.Tenant] += f.Count
	}
	t.tenants = slices.DeleteFunc(t.tenants, func(tenant string) bool { return got[tenant] < share })
	return n, true, nil
}

// seeFired has the lanes be read that jobs were moved into, and counts these.
func (t *timers) seeFired(fired []store.Fired) (n int) {
	for _, f := range fired {
		t.lanes.See(f.Lane)
		n += f.Count
	}
	return n
}

// resumeJobs resumes suspended jobs whose time has come. It is asked for when
// some are found to be due.
func (t *timers) resumeJobs(ctx context.Context) (use func(), err error) {
	resumed, err := store.ResumeDue(ctx, t.pool.Jobs(), maxSlice)
	if damaged := (*store.DamagedError)(nil); errors.As(err, &damaged) {
		return func() {
			t.damaged.setAsideAll(err)
			t.resumeDuty.ask()
		}, nil
	}
	return func() {
		for _, r := range resumed {
			if r.DueIn == nil {
				t.lanes.See(r.Lane)
			} else {
				t.expect(time.Now().Add(time.Duration(*r.DueIn) * time.Millisecond))
			}
		}
		if len(resumed) == maxSlice {
			t.resumeDuty.ask()
		}
	}, err
}
