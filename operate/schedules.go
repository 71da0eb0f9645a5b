package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Schedule adds a job for a tenant, or for every tenant, whenever it is due. docs/schedules.md
// says what rules there are, and what happens where clocks are changed.
type Schedule struct {
	// Tenant has the schedule and the jobs. [EveryTenant]: all have it, also those that are added
	// later, each under the same name.
	Tenant tenancy.ID
	// Name tells it from the tenant's other schedules: 1 to 128 letters, digits and . _ : / -.
	Name string
	// Args are the arguments of each job, and its kind.
	Args job.Args
	// Queue is that of each job. Default: its kind's.
	Queue string
	// Priority is that of each job: job.MinPriority to job.MaxPriority, 0 by default.
	Priority int
	// MaxAttempts bounds how often each job is tried, 1 to job.MaxMaxAttempts. Default: its kind's.
	MaxAttempts int
	// Meta are values beside the arguments of each job, as of a job that is enqueued.
	Meta map[string]any
	// Rule says when it is due: cron (0 7 * * 1-5), an interval (@every 15m, PT15M), or an ISO 8601
	// repeat (R3/2026-12-01T08:00:00Z/P1D).
	Rule string
	// TimeZone has the clocks that count, such as Europe/Amsterdam. Default: UTC.
	TimeZone string
	// End is the last time at which it can be due. Zero: there is none.
	End time.Time
	// Missed says what becomes of runs that nobody could make when they were due. Default: MissedOne.
	Missed Missed
	// Wait has a run wait until the job of the one before has ended, be it as a dead letter. What is
	// due meanwhile counts as missed.
	Wait bool
	// Jitter spreads the runs of one for every tenant: each tenant's are that much later than the
	// rule says at most, and always as much. 0 to a day.
	Jitter time.Duration
	// External has workers outside the cluster run the jobs, as tenure.External does for a job.
	External bool
	// Elsewhere allows a kind that this program has no handler for, because another program's nodes
	// have one, as tenure.Elsewhere does for a job. A client that runs no jobs knows no kinds and allows all.
	Elsewhere bool
}

// EveryTenant is the tenant of a schedule for every tenant.
const EveryTenant = process.EveryTenant

// Missed says what becomes of a schedule's missed runs: those that were due while the tenant was
// frozen or moved, no node was there, or the run before had not ended.
type Missed string

// What can become of missed runs.
const (
	MissedSkip Missed = Missed(recurrence.Skip) // they are left out, unless one can still start within a minute of its time
	MissedOne  Missed = Missed(recurrence.One)  // one run stands for all of them
	MissedAll  Missed = Missed(recurrence.All)  // each is made up for, but for those beyond a hundred
)

// ScheduleStatus is a schedule as an operator sees it.
type ScheduleStatus struct {
	Pool        string
	Tenant      tenancy.ID // or EveryTenant
	Name        string
	Origin      string // set: by the API or the command line; config: by the configuration; every: a tenant's own, of one for every tenant
	Kind, Queue string
	Payload     []byte // of each job
	Meta        []byte
	Priority    int16
	MaxAttempts int  // 0: the kind's
	External    bool // workers outside the cluster run its jobs
	Rule        string
	TimeZone    string
	End         time.Time // zero: there is none
	Missed      Missed
	Wait        bool
	Jitter      time.Duration // how much later than the rule says; of one for every tenant, at most
	Since       time.Time     // when its times became what they are; intervals are counted from it
	Paused      bool
	Next        time.Time // when it is due; zero: never more, or it is for every tenant, each of which has its own
	Last        time.Time // what its last job was for; zero: there was none
	LastJob     job.ID    // 0: there was none
}

// Schedules sets, lists and changes schedules: see [Operator.Schedules]. Safe for concurrent use.
type Schedules struct{ proc *process.Process }

// ErrNoSchedule is returned when there is no schedule of that name.
var ErrNoSchedule = store.ErrNoSchedule

// Set adds a schedule, or changes the one of this name, and returns when it is due next. What of it
// is paused stays paused; if its times do not change, it is due when it was. Nothing is changed if
// something is wrong with it: the error names the field and says what is allowed. One that the
// configuration has made is changed there; a tenant may have its own instead of one for every tenant.
//
// One for every tenant is written to every pool. If some pools do not answer, the others have it,
// and the error says so: set it again, as for a pool that is added later. The time returned is zero.
func (s *Schedules) Set(ctx context.Context, d Schedule) (next time.Time, err error) {
	row, err := s.scheduleRow(d)
	if err != nil {
		return time.Time{}, fmt.Errorf("schedule %q: %w", d.Name, &job.InputError{Err: err})
	}
	err = s.onPools(ctx, d.Tenant, d.Name, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		row := row
		now, err := store.ScheduleClock(ctx, db)
		if err != nil {
			return err
		}
		row.Since = now
		due, err := row.NextAfter(now)
		if err != nil {
			return &job.InputError{Err: err}
		}
		if due == nil {
			return &job.InputError{Err: fmt.Errorf("rule: %.80q has no time left that comes after %s: nothing would ever be done", d.Rule, now.UTC().Format(time.RFC3339))}
		}
		row.NextAt = due
		if row.Tenant == store.EveryTenant {
			row.NextAt = &now // that is when tenants are to get it
		}
		var at *time.Time
		deed := s.proc.Deed(ctx, "schedule.set", d.Tenant, d.Name, given("kind", row.Kind, "rule", d.Rule, "time_zone", d.TimeZone))
		err = store.InNoted(ctx, db, deed, func(db store.DB) (err error) {
			at, err = store.SetSchedule(ctx, db, &row, store.ScheduleSet, store.ScheduleEvery)
			return err
		})
		if err != nil {
			return err
		}
		in := time.Millisecond
		if at != nil {
			in = max(at.Sub(now), in)
			if row.Tenant != store.EveryTenant {
				next = *at
			}
		}
		s.proc.Notifier.Notify(notify.Hint{Pool: p.Name, DueIn: in})
		return nil
	})
	return next, err
}

// scheduleRow is a schedule as the ledger has it, without what only a database's clock can tell.
func (s *Schedules) scheduleRow(d Schedule) (row store.Schedule, err error) {
	if err := job.ValidateKind("name", d.Name); err != nil {
		return row, err
	}
	if d.Tenant != EveryTenant {
		if err := d.Tenant.Validate(); err != nil {
			return row, fmt.Errorf("tenant: %w", err)
		}
	}
	if d.Args == nil {
		return row, errors.New("args: they are missing, and with them the kind")
	}
	j, err := d.job()
	if err != nil {
		return row, err
	}
	missed := cmp.Or(d.Missed, MissedOne)
	if !slices.Contains([]Missed{MissedSkip, MissedOne, MissedAll}, missed) {
		return row, fmt.Errorf("missed: %.40q is not one of %s, %s, %s", d.Missed, MissedSkip, MissedOne, MissedAll)
	}
	if d.Jitter < 0 || d.Jitter > acquisition.MaxJitter || d.Jitter > 0 && d.Tenant != EveryTenant {
		return row, fmt.Errorf("jitter: %v: 0 to %v are allowed, and only for every tenant", d.Jitter, acquisition.MaxJitter)
	}
	kindsQueue := j.Queue == ""
	known, err := s.proc.FillIn(&j)
	if err != nil {
		return row, err
	}
	if !known && !d.Elsewhere && !d.External && s.proc.Registry != nil {
		return row, fmt.Errorf("kind %q: no handler is registered for it in this program: register one before New, or set Elsewhere if another program's nodes have one", j.Kind)
	}
	row = store.Schedule{Tenant: ledgerTenant(d.Tenant), Name: d.Name, Origin: store.ScheduleSet, Kind: j.Kind, KindsQueue: kindsQueue, Queue: cmp.Or(j.Queue, job.DefaultQueue), Payload: j.Payload, Meta: j.Meta,
		Priority: j.Priority, MaxAttempts: j.MaxAttempts, External: j.External,
		Times: store.Times{Spec: d.Rule, Zone: d.TimeZone, Missed: string(missed), Waits: d.Wait, Jitter: d.Jitter.Truncate(time.Millisecond)}}
	if known && j.ExclusiveKey != "" {
		row.ExclusiveKey = &j.ExclusiveKey
	}
	if !d.End.IsZero() {
		row.End = &d.End
	}
	_, err = row.Rule()
	return row, err
}

// job is what the schedule says of each of its jobs.
func (d *Schedule) job() (j store.NewJob, err error) {
	j = store.NewJob{Tenant: string(d.Tenant), Kind: d.Args.Kind(), Queue: d.Queue, Priority: int16(d.Priority), MaxAttempts: d.MaxAttempts, External: d.External}
	switch {
	case d.Priority < job.MinPriority || d.Priority > job.MaxPriority:
		err = fmt.Errorf("priority %d: %d to %d are allowed", d.Priority, job.MinPriority, job.MaxPriority)
	case d.MaxAttempts < 0 || d.MaxAttempts > job.MaxMaxAttempts:
		err = fmt.Errorf("max attempts %d: 1 to %d are allowed", d.MaxAttempts, job.MaxMaxAttempts)
	}
	if err == nil && d.Queue != "" {
		err = job.ValidateKind("queue", d.Queue)
	}
	if err == nil {
		err = job.ValidateKind("kind", j.Kind)
	}
	if err == nil && len(d.Meta) > 0 {
		j.Meta, err = job.EncodeMeta(d.Meta)
	}
	if err == nil {
		j.Payload, err = job.Encode(d.Args)
	}
	return j, err
}

// ledgerTenant is what a ledger calls a tenant of a schedule.
func ledgerTenant(id tenancy.ID) string {
	if id == EveryTenant {
		return store.EveryTenant
	}
	return string(id)
}

// ScheduleFilter chooses schedules; empty fields choose all.
type ScheduleFilter struct {
	Tenant tenancy.ID // or EveryTenant
	Name   string
}

// List lists schedules over all pools, by tenant and name. One for every tenant is listed in every
// pool, and besides for each tenant. When some pools do not answer, the others' are returned
// together with an error.
func (s *Schedules) List(ctx context.Context, f ScheduleFilter) ([]ScheduleStatus, error) {
	var of store.ScheduleFilter
	if f.Tenant != "" {
		tenant := ledgerTenant(f.Tenant)
		of.Tenant = &tenant
	}
	if f.Name != "" {
		of.Name = &f.Name
	}
	out, err := process.InspectEach(ctx, s.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]ScheduleStatus, error) {
		rows, err := store.Schedules(ctx, db, of)
		out := make([]ScheduleStatus, len(rows))
		for i, r := range rows {
			out[i] = newScheduleStatus(p.Name, r)
		}
		return out, err
	})
	slices.SortStableFunc(out, func(a, b ScheduleStatus) int {
		return cmp.Or(cmp.Compare(ledgerTenant(a.Tenant), ledgerTenant(b.Tenant)), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Pool, b.Pool))
	})
	return out, err
}

// ScheduleReach says for whom a schedule for every tenant stands in a pool, of those that are known there: the
// configuration or tenants.table.list names them, or the ledger has a trace of them.
type ScheduleReach struct {
	Pool    string
	Has     []tenancy.ID // have it
	Own     []tenancy.ID // have another one of that name by themselves, which stands instead of it
	Lack    []tenancy.ID // have none, as the holder of the pool's lock has not given it to them yet
	Unknown []tenancy.ID // have jobs here and have none, as neither tenants.static nor tenants.table knows them
}

// Reach says for whom a schedule for every tenant stands, pool by pool. When some pools do not answer, the others' are
// returned together with an error.
func (s *Schedules) Reach(ctx context.Context, name string) ([]ScheduleReach, error) {
	return routing.AskEach(ctx, s.proc.Router.Pools(), process.AnswerWithin, func(ctx context.Context, p *routing.Pool) ([]ScheduleReach, error) {
		if _, err := p.Number(); err != nil {
			return nil, err
		}
		there, err := store.Schedules(ctx, p.Jobs(), store.ScheduleFilter{Name: &name})
		if err != nil {
			return nil, err
		}
		out, every := ScheduleReach{Pool: p.Name}, false
		seen := map[tenancy.ID]bool{}
		for _, r := range there {
			id := tenancy.ID(r.Tenant)
			seen[id] = true
			switch {
			case r.Tenant == store.EveryTenant:
				every = true
			case r.Origin == store.ScheduleEvery:
				out.Has = append(out.Has, id)
			default:
				out.Own = append(out.Own, id)
			}
		}
		if !every {
			return nil, nil
		}
		known, unasked := s.proc.Router.Known(ctx, p)
		for _, id := range known {
			if seen[id] {
				continue
			}
			seen[id] = true
			switch _, home, err := s.proc.Router.Resolve(ctx, id); {
			case errors.Is(err, tenancy.ErrUnknownTenant):
				out.Unknown = append(out.Unknown, id)
			case err != nil || home == p:
				out.Lack = append(out.Lack, id)
			}
		}
		slices.Sort(out.Lack)
		slices.Sort(out.Unknown)
		return []ScheduleReach{out}, unasked
	})
}

func newScheduleStatus(pool string, r store.Schedule) ScheduleStatus {
	timeOf := func(t *time.Time) time.Time {
		if t == nil {
			return time.Time{}
		}
		return *t
	}
	tenant := tenancy.ID(r.Tenant)
	if r.Tenant == store.EveryTenant {
		tenant, r.NextAt = EveryTenant, nil
	}
	return ScheduleStatus{Pool: pool, Tenant: tenant, Name: r.Name, Origin: r.Origin, Kind: r.Kind, Queue: r.Queue, Payload: r.Payload, Meta: r.Meta,
		Priority: r.Priority, MaxAttempts: r.MaxAttempts, External: r.External, Rule: r.Spec, TimeZone: r.Zone, End: timeOf(r.End), Missed: Missed(r.Missed), Wait: r.Waits,
		Jitter: r.Jitter, Since: r.Since, Paused: r.Paused, Next: timeOf(r.NextAt), Last: timeOf(r.LastAt), LastJob: r.LastJob}
}

// Pause keeps a schedule from being due until [Schedules.Resume]; jobs that it has added go on.
// One for every tenant is paused for all; a tenant's own of it can be paused by itself. It works
// for a tenant that no routing rule knows any more, too.
func (s *Schedules) Pause(ctx context.Context, tenant tenancy.ID, name string) error {
	return s.pause(ctx, tenant, name, true)
}

// Resume has a paused schedule be due again; one for every tenant, for all. What was due while it
// was paused is left out.
func (s *Schedules) Resume(ctx context.Context, tenant tenancy.ID, name string) error {
	return s.pause(ctx, tenant, name, false)
}

func (s *Schedules) pause(ctx context.Context, tenant tenancy.ID, name string, paused bool) error {
	on := s.onPools
	if paused {
		on = s.onLeaversPools
	}
	return on(ctx, tenant, name, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		id := ledgerTenant(tenant)
		now, err := store.ScheduleClock(ctx, db)
		if err != nil {
			return err
		}
		there, err := store.Schedules(ctx, db, store.ScheduleFilter{Name: &name})
		if err != nil {
			return err
		}
		tenants, next := []string{id}, []*time.Time{&now} // of one for every tenant: when they are to get what has changed
		for _, r := range there {
			ofEvery := id == store.EveryTenant && r.Origin == store.ScheduleEvery
			if r.Tenant == store.EveryTenant || r.Tenant != id && !ofEvery {
				continue
			}
			at, err := r.NextAfter(now)
			if err != nil && !paused {
				return &job.InputError{Err: err}
			}
			if ofEvery {
				tenants, next = append(tenants, r.Tenant), append(next, at)
			} else {
				next[0] = at
			}
		}
		action := "schedule.resume"
		if paused {
			action = "schedule.pause"
		}
		err = store.InNoted(ctx, db, s.proc.Deed(ctx, action, tenant, name, nil), func(db store.DB) error {
			return store.PauseSchedule(ctx, db, name, paused, tenants, next)
		})
		if err != nil {
			return err
		}
		s.proc.Notifier.Notify(notify.Hint{Pool: p.Name, DueIn: time.Millisecond})
		return nil
	})
}

// Run adds a schedule's job now, whether it is due, paused, or to wait for the one before, and
// returns its ID. When the schedule is due next does not change. It is one tenant's to be run.
func (s *Schedules) Run(ctx context.Context, tenant tenancy.ID, name string) (id job.ID, err error) {
	if tenant == EveryTenant {
		return 0, fmt.Errorf("run schedule %q: %w", name, &job.InputError{Err: errors.New("name the tenant to run it for")})
	}
	err = s.onPools(ctx, tenant, name, func(ctx context.Context, p *routing.Pool, db *pgxpool.Conn) error {
		var lane *store.Lane
		err := store.InNoted(ctx, db, s.proc.Deed(ctx, "schedule.run", tenant, name, nil), func(db store.DB) (err error) {
			id, lane, err = store.RunSchedule(ctx, db, string(tenant), name, s.proc.Give)
			return err
		})
		if err == nil && lane != nil {
			h := notify.Hint{Pool: p.Name}
			h.AddLane(*lane)
			s.proc.Notifier.Notify(h)
		}
		return err
	})
	return id, err
}

// Delete removes a schedule; jobs that it has added stay. One for every tenant is removed from
// every tenant; a tenant's copy of such a one, and one that the configuration has made, can be
// paused instead. Of a tenant that no routing rule knows any more it removes these, too.
func (s *Schedules) Delete(ctx context.Context, tenant tenancy.ID, name string) error {
	of := []string{store.ScheduleSet}
	if _, _, err := s.proc.Router.Resolve(ctx, tenant); tenant != EveryTenant && errors.Is(err, tenancy.ErrUnknownTenant) {
		of = append(of, store.ScheduleConfig, store.ScheduleEvery)
	}
	return s.onLeaversPools(ctx, tenant, name, func(ctx context.Context, _ *routing.Pool, db *pgxpool.Conn) error {
		return store.InNoted(ctx, db, s.proc.Deed(ctx, "schedule.delete", tenant, name, nil), func(db store.DB) error {
			return store.DeleteSchedule(ctx, db, ledgerTenant(tenant), name, of...)
		})
	})
}

// onLeaversPools is onPools or, for a tenant that no routing rule knows any more, does it in each pool that still has the
// schedule.
func (s *Schedules) onLeaversPools(ctx context.Context, tenant tenancy.ID, name string, do func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	unknown := s.onPools(ctx, tenant, name, do)
	if tenant == EveryTenant || !errors.Is(unknown, tenancy.ErrUnknownTenant) {
		return unknown
	}
	var errs []error
	done := false
	for _, p := range s.proc.Router.Pools() {
		busy := (*store.TenantBusyError)(nil)
		switch err := s.onPool(ctx, p, do); {
		case err == nil:
			done = true
		case errors.Is(err, ErrNoSchedule), errors.As(err, &busy) && busy.State == store.TenantMoved: // it is not here
		default:
			errs = append(errs, fmt.Errorf("schedule %q of tenant %q: %w", name, tenant, routing.NamePool(p.Name, err)))
		}
	}
	if !done && len(errs) == 0 {
		return unknown
	}
	return errors.Join(errs...)
}

// onPools does something to a schedule in the pool of its tenant, or, if it is for every tenant, in
// every pool.
func (s *Schedules) onPools(ctx context.Context, tenant tenancy.ID, name string, do func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	if tenant != EveryTenant {
		return s.onTenantsPool(ctx, tenant, name, do)
	}
	var errs []error
	done := 0
	for _, p := range s.proc.Router.Pools() {
		switch err := s.onPool(ctx, p, do); {
		case err == nil:
			done++
		default:
			errs = append(errs, routing.NamePool(p.Name, explainSchedule(err)))
		}
	}
	if done > 0 { // a pool that was added later has none of that name
		errs = slices.DeleteFunc(errs, func(err error) bool { return errors.Is(err, ErrNoSchedule) })
	}
	err := errors.Join(errs...)
	switch {
	case err == nil:
		return nil
	case done == 0 && !slices.ContainsFunc(errs, func(err error) bool { return !errors.As(err, new(*job.InputError)) && !errors.Is(err, ErrNoSchedule) }): // so again
		return fmt.Errorf("schedule %q for every tenant: %w", name, err)
	}
	return fmt.Errorf("schedule %q for every tenant: in %d of %d pools it was done; try again: %w", name, done, len(s.proc.Router.Pools()), err)
}

func (s *Schedules) onTenantsPool(ctx context.Context, tenant tenancy.ID, name string, do func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	for tries := 1; ; tries++ {
		_, pool, err := s.proc.ResolveTenant(ctx, tenant)
		if err != nil {
			return err
		}
		err = s.onPool(ctx, pool, do)
		busy := (*store.TenantBusyError)(nil)
		switch {
		case err == nil:
			return nil
		case errors.As(err, &busy) && busy.State == store.TenantMoved && tries <= process.MaxFollowed:
			s.proc.Router.Forget(tenant)
		case errors.As(err, &busy):
			return fmt.Errorf("schedule %q: tenant %q is being moved between pools %s and %s: try again when it has arrived", name, tenant, pool.Name, busy.Other)
		default:
			return fmt.Errorf("schedule %q of tenant %q: %w", name, tenant, routing.NamePool(pool.Name, explainSchedule(err)))
		}
	}
}

func (s *Schedules) onPool(ctx context.Context, p *routing.Pool, do func(context.Context, *routing.Pool, *pgxpool.Conn) error) error {
	ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
	defer cancel()
	return p.Operate(ctx, func(db *pgxpool.Conn) error { return do(ctx, p, db) })
}

// explainSchedule says what to do about a schedule that is not the caller's to change.
func explainSchedule(err error) error {
	if errors.Is(err, store.ErrScheduleElsewhere) {
		return &job.InputError{Err: fmt.Errorf("%w: by the configuration, where it can be changed, or for every tenant; or give this one another name; tenure schedules pause keeps the other one from being due", err)}
	}
	return err
}
