package acquisition

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	"github.com/cespare/xxhash/v2"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// spreader has the ledger have the schedules that the configuration makes, and each tenant those for
// every tenant. It writes what has changed, in a background query; that is not fenced, as it decides
// nothing about runs that are due.
type spreader struct {
	place
	router    *routing.Router
	settings  *settings
	termBegan time.Time
	fire      *duty // of timers

	spreadDuty duty
	began      time.Time                       // of the last query; zero: there was none in this term
	clock      time.Time                       // what the database's clock showed when the term began, as one may conclude from the last look at it; zero: schedules are to go on from now
	setBack    atomic.Bool                     // it was, as the keeper has seen
	told       map[store.ScheduleKey]bool      // of the configuration that are not in force, already logged
	step       time.Duration                   // of how long a time finished jobs are looked at for whose they are
	every      bool                            // there are schedules for every tenant, as the last query saw; changed by the loop
	watched    bool                            // tenants may be listed at any time, and are to have schedules; changed by the loop
	unasked    bool                            // tenants.table.list could not be asked, as was logged
	lacking    map[store.ScheduleKey]time.Time // since when this term's configuration lacks schedules, or their tenants, that are in the ledger
}

// goesOnFor is how long a schedule goes on that the configuration lacks: during a deploy the lock goes to nodes with
// the new file, with the old one, and with the new one again.
const goesOnFor = 10 * time.Minute

// What looking at finished jobs may take at a time, while there are more of them, and the time of theirs that one
// statement begins with.
const (
	noteFor   = 250 * time.Millisecond
	firstStep = time.Hour
)

// listDuties are those of the spreader.
func (s *spreader) listDuties(now time.Time) []*duty {
	s.spreadDuty = duty{name: "schedules of the configuration and of every tenant", every: fixed(sweepEvery), due: now.Add(burst), prepare: s.spread}
	return []*duty{&s.spreadDuty}
}

// isNeeded tells whether the configuration makes schedules, or tenants are listed that are to have some.
func (s *spreader) isNeeded() bool {
	return len(*s.settings.schedules.Load()) > 0 || s.router.ListsTenants()
}

// mayLack tells whether tenants that have come since a time may lack schedules: before the first query of a term, and
// where each tenant, or one that the configuration names, is to have some.
func (s *spreader) mayLack(since time.Time) bool {
	return s.began.IsZero() || (s.every || len(*s.settings.schedules.Load()) > 0) && s.began.Before(since)
}

func (s *spreader) spread() query {
	s.began = time.Now()
	configured := *s.settings.schedules.Load()
	return func(ctx context.Context) (use func(), err error) {
		refused, err := s.configure(ctx, configured) // why, by schedule
		var every, more bool
		if err == nil {
			every, more, err = s.copy(ctx, refused)
		}
		if err == nil {
			err = s.followClock(ctx)
		}
		return func() {
			s.report(refused)
			s.fire.ask() // what is due next may be another one
			s.every, s.watched = every, every && s.router.ListsTenants()
			if more {
				s.spreadDuty.dueBy(time.Now().Add(dutyFactor * noteFor))
			}
		}, err
	}
}

// followClock has schedules go on from now at the beginning of a term, and when the database's clock was set back.
// Only one query is under way at a time.
func (s *spreader) followClock(ctx context.Context) error {
	now, err := store.ScheduleClock(ctx, s.pool.Jobs())
	if err != nil {
		return err
	}
	clock := now.Add(-time.Since(s.termBegan))
	if setBack := s.setBack.Swap(false); !setBack && !s.clock.IsZero() && !clock.Before(s.clock.Add(-time.Second)) {
		s.clock = clock
		return nil
	}
	s.clock = time.Time{}
	all, err := store.BringForward(ctx, s.pool.Jobs())
	if all {
		s.clock = clock
	}
	return err
}

// configure has the ledger have what the configuration makes, and no more of it.
func (s *spreader) configure(ctx context.Context, configured map[string]ScheduleConfig) (refused map[store.ScheduleKey]error, err error) {
	db := s.pool.Jobs()
	there, err := store.SchedulesOf(ctx, db, store.ScheduleConfig)
	if err != nil {
		return nil, err
	}
	wanted, refused := map[store.ScheduleKey]bool{}, map[store.ScheduleKey]error{}
	for name, c := range configured {
		row := c.row(name)
		var tenants []string
		if c.EveryTenant {
			tenants = []string{store.EveryTenant}
		}
		for _, id := range c.Tenants {
			switch here, err := s.livesHere(ctx, string(id)); {
			case here:
				tenants = append(tenants, string(id))
			case errors.Is(err, tenancy.ErrUnknownTenant):
				refused[store.ScheduleKey{Tenant: string(id), Name: name}] = err
			}
		}
		for _, row.Tenant = range tenants {
			key := store.ScheduleKey{Tenant: row.Tenant, Name: name}
			wanted[key] = true
			bad := (*recurrence.Error)(nil)
			switch err := s.set(ctx, row); {
			case errors.As(err, &bad):
				refused[key] = err
			case errors.Is(err, store.ErrScheduleElsewhere):
				refused[key] = errors.New("one of its name was set by the API or the command line: delete that, or choose another name")
			case err != nil:
				return refused, err
			}
		}
	}
	for _, key := range there {
		here, err := s.livesHere(ctx, key.Tenant)
		if wanted[key] || key.Tenant != store.EveryTenant && !here && !errors.Is(err, tenancy.ErrUnknownTenant) {
			delete(s.lacking, key)
			continue
		}
		if err := s.remove(ctx, key, store.ScheduleConfig); err != nil {
			return refused, err
		}
	}
	return refused, nil
}

// remove removes a schedule of an origin once the configuration has lacked it, or its tenant, for a while, unless
// somebody else has. Until then it is due as ever.
func (s *spreader) remove(ctx context.Context, key store.ScheduleKey, origin string) error {
	since, known := s.lacking[key]
	if !known {
		since = time.Now()
		s.lacking[key] = since
		s.log.Info("the configuration of this node lacks a schedule or its tenant; it goes on for a while, and is deleted then", zap.String("tenant", key.Tenant), zap.String("schedule", key.Name), zap.Duration("for", goesOnFor))
	}
	if time.Since(since) < goesOnFor {
		return nil
	}
	deed := store.Deed{Who: "node " + s.keeper.NodeName(), Action: "schedule.delete", Tenant: key.Tenant, Subject: key.Name, Detail: map[string]any{"origin": origin, "why": "the configuration lacks it, or its tenant"}}
	err := store.InNoted(ctx, s.pool.Jobs(), deed, func(db store.DB) error {
		return store.DeleteSchedule(ctx, db, key.Tenant, key.Name, origin)
	})
	if err == nil {
		delete(s.lacking, key)
	}
	if errors.Is(err, store.ErrNoSchedule) || errors.Is(err, store.ErrScheduleElsewhere) {
		return nil
	}
	return unlessBusy(err)
}

// set writes a schedule of the configuration if it has changed.
func (s *spreader) set(ctx context.Context, row store.Schedule) error {
	db := s.pool.Jobs()
	changed, err := store.HasChanged(ctx, db, &row)
	if err != nil || !changed {
		return err
	}
	if row.Since, err = store.ScheduleClock(ctx, db); err != nil {
		return err
	}
	if row.Tenant != store.EveryTenant {
		if row.NextAt, err = row.NextAfter(row.Since); err != nil {
			return err
		}
	}
	_, err = store.SetSchedule(ctx, db, &row, store.ScheduleConfig, store.ScheduleEvery)
	return unlessBusy(err)
}

// unlessBusy is err, unless that is that a tenant is being moved: what is to be done is done where
// it is going to be.
func unlessBusy(err error) error {
	if busy := (*store.TenantBusyError)(nil); errors.As(err, &busy) {
		return nil
	}
	return err
}

// copy gives each tenant that lives here its copy of the schedules for every tenant, but for those that it adds to refused.
// every: there are such schedules; more: there are finished jobs that were not looked at for whose they are.
func (s *spreader) copy(ctx context.Context, refused map[store.ScheduleKey]error) (every, more bool, err error) {
	db := s.pool.Jobs()
	name := store.EveryTenant
	all, err := store.Schedules(ctx, db, store.ScheduleFilter{Tenant: &name})
	if err != nil {
		return false, false, err
	}
	copies, err := store.SchedulesOf(ctx, db, store.ScheduleEvery)
	if err != nil || len(all) == 0 && len(copies) == 0 {
		return false, false, err
	}
	if more, err = s.noteFinished(ctx); err != nil {
		if ctx.Err() != nil {
			return true, false, err
		}
		s.log.Warn("it could not be found out whose jobs have finished, for schedules for every tenant; a shorter time of them is looked at next", zap.Error(err))
		s.step, more = max(s.step/16, time.Minute), true
	}
	tenants, err := s.tenants(ctx, copies)
	if err != nil {
		return true, more, err
	}
	return true, more, s.copyAll(ctx, all, tenants, refused)
}

// noteFinished notes whose jobs have finished, for as long as it may take.
func (s *spreader) noteFinished(ctx context.Context) (more bool, err error) {
	began := time.Now()
	for more = true; more && err == nil && time.Since(began) < noteFor; {
		step := time.Now()
		ctx, cancel := context.WithTimeout(ctx, 8*noteFor)
		more, err = store.NoteFinished(ctx, s.pool.Jobs(), s.step)
		cancel()
		switch took := time.Since(step); {
		case took > noteFor:
			s.step = max(s.step/2, time.Minute)
		case took < noteFor/4:
			s.step = min(2*s.step, 32*24*time.Hour)
		}
	}
	return more, err
}

func (s *spreader) copyAll(ctx context.Context, all []store.Schedule, tenants []string, refused map[store.ScheduleKey]error) error {
	db := s.pool.Jobs()
	if err := store.ForgetSchedules(ctx, db, tenants); err != nil {
		return err
	}
	for i := range all {
		d := &all[i]
		bad := (*recurrence.Error)(nil)
		err := s.copyOne(ctx, d, tenants)
		if errors.As(err, &bad) { // the others are to be had all the same
			refused[store.ScheduleKey{Tenant: d.Tenant, Name: d.Name}] = err
			continue
		}
		if err != nil {
			return err
		}
		if d.NextAt != nil {
			if err := store.NoteSpread(ctx, db, d.Name, *d.NextAt); err != nil {
				return err
			}
		}
	}
	return nil
}

// tenants are those who live here, as far as they are known: see [routing.Router.Known], or they have copies.
func (s *spreader) tenants(ctx context.Context, copies []store.ScheduleKey) ([]string, error) {
	known, err := s.router.Known(ctx, s.pool)
	if err != nil && known == nil {
		return nil, err
	}
	if err != nil && !s.unasked {
		s.log.Warn("schedules for every tenant may not reach tenants that have had no job, as it cannot be asked who lives here", zap.Error(err))
	}
	s.unasked = err != nil
	for _, c := range copies {
		if _, err := s.livesHere(ctx, c.Tenant); errors.Is(err, tenancy.ErrUnknownTenant) { // it is one no more
			if err := s.remove(ctx, c, store.ScheduleEvery); err != nil {
				return nil, err
			}
			continue
		}
		delete(s.lacking, c)
		known = append(known, tenancy.ID(c.Tenant))
	}
	out := []string{}
	seen := map[tenancy.ID]bool{}
	for _, id := range known {
		if seen[id] {
			continue
		}
		seen[id] = true
		if here, _ := s.livesHere(ctx, string(id)); here {
			out = append(out, string(id))
		}
	}
	return out, nil
}

// livesHere tells whether a tenant lives in this pool, as far as that can be seen.
func (s *spreader) livesHere(ctx context.Context, tenant string) (bool, error) {
	_, pool, err := s.router.Resolve(ctx, tenancy.ID(tenant))
	return err == nil && pool == s.pool, err
}

func (s *spreader) copyOne(ctx context.Context, d *store.Schedule, tenants []string) error {
	db := s.pool.Jobs()
	stale, err := store.StaleSchedules(ctx, db, d.Name, tenants)
	if err != nil || len(stale) == 0 {
		return err
	}
	now, err := store.ScheduleClock(ctx, db)
	if err != nil {
		return err
	}
	delays, next := make([]int64, len(stale)), make([]*time.Time, len(stale))
	for i, tenant := range stale {
		own := d.Times
		own.Jitter = delayOf(tenant, d.Name, d.Jitter)
		delays[i] = own.Jitter.Milliseconds()
		if next[i], err = own.NextAfter(now); err != nil {
			return err
		}
	}
	return store.SpreadSchedule(ctx, db, d.Name, d.Since, stale, delays, next)
}

// delayOf is how much later than others a tenant has a schedule: always as much, of at most.
func delayOf(tenant, name string, most time.Duration) time.Duration {
	steps := uint64(most/time.Millisecond) + 1
	return time.Duration(xxhash.Sum64String(tenant+"\n"+name)%steps) * time.Millisecond
}

// report says once of each schedule of the configuration, or for every tenant, that is not in force why it is not.
func (s *spreader) report(refused map[store.ScheduleKey]error) {
	told := map[store.ScheduleKey]bool{}
	for key, why := range refused {
		if told[key] = true; !s.told[key] {
			s.log.Warn("a schedule of the configuration, or for every tenant, is not in force", zap.String("tenant", key.Tenant), zap.String("schedule", key.Name), zap.Error(why))
		}
	}
	s.told = told
}
