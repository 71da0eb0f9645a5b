package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/recurrence"
	"github.com/tenurehq/tenure/job"
)

// Where a schedule comes from.
const (
	ScheduleSet    = "set"    // by the API or the command line
	ScheduleConfig = "config" // from the configuration
	ScheduleEvery  = "every"  // a tenant's copy of one for every tenant
)

// EveryTenant is the tenant of a schedule for every tenant, which adds no jobs itself.
const EveryTenant = ""

// Times is when a schedule is due, as package recurrence reads it.
type Times struct {
	Spec, Zone string
	End        *time.Time    // nil: there is none
	Since      time.Time     // when these became its times
	Missed     string        // what becomes of missed runs: skip, one, all
	Waits      bool          // for the job before to end
	Jitter     time.Duration // how much later than its times; of one for every tenant, at most
}

// Rule is what they say.
func (t *Times) Rule() (recurrence.Rule, error) {
	r, err := recurrence.Parse(recurrence.Spec{Rule: t.Spec, Zone: t.Zone, End: deref(t.End), Since: t.Since})
	return r.Delayed(t.Jitter), err
}

// NextAfter is the first time after another one at which they are due; nil: there is none.
func (t *Times) NextAfter(after time.Time) (*time.Time, error) {
	r, err := t.Rule()
	if err != nil {
		return nil, err
	}
	next, err := r.Next(after)
	return nullable(next), err
}

// Schedule is a named schedule of a tenant.
type Schedule struct {
	Tenant, Name, Origin string
	Kind, Queue          string
	KindsQueue           bool    // the kind's own counts where that is known, and Queue elsewhere
	ExclusiveKey         *string // that the kind gives; nil: none, or not known
	Payload, Meta        []byte  // Meta nil: none
	Priority             int16
	MaxAttempts          int // 0: the kind's
	External             bool
	Times
	Paused  bool
	NextAt  *time.Time // nil: it is not due any more, or is for every tenant
	LastAt  *time.Time // what the last job was for; nil: there was none
	LastJob job.ID     // 0: there was none
}

// PausedSchedule is a schedule that somebody paused.
type PausedSchedule struct {
	Tenant, Name string     // Tenant EveryTenant: it is for every one
	Who          string     // "": the audit does not have it any more
	At           *time.Time // nil: likewise
}

// PausedSchedules lists the schedules that are paused, those of one for every tenant as that one.
func PausedSchedules(ctx context.Context, db DB) ([]PausedSchedule, error) {
	return list(ctx, db, "list paused schedules", pgx.RowToStructByPos[PausedSchedule], sqlSchedulePaused)
}

// DueSchedule is a schedule whose time has come.
type DueSchedule struct {
	Tenant, Name string
	Times
	At      time.Time
	Damage  string // why what its jobs are to have cannot be read; "": it can
	Job     NewJob // what its jobs have before their kind gives something: a queue of "" is the kind's
	version string
}

// Given is what the kind gives a schedule's jobs.
type Given struct{ queue, key, payload *string }

// GivenTo is what a job has that had no exclusive key, and this payload, before its kind gave it something; known:
// the kind is known here.
func GivenTo(j *NewJob, payload []byte, known bool) (g Given) {
	g.queue = nullable(j.Queue)
	if known {
		g.key = &j.ExclusiveKey
	}
	if text := string(j.Payload); text != string(payload) {
		g.payload = &text
	}
	return g
}

// DueSchedules lists schedules whose time has come by the database's clock, at most max, those
// first that were due first; now is what that clock shows.
func DueSchedules(ctx context.Context, db DB, max int) (due []DueSchedule, now time.Time, err error) {
	due, err = list(ctx, db, "list due schedules", func(row pgx.CollectableRow) (d DueSchedule, err error) {
		var jitter int64
		err = row.Scan(&d.Tenant, &d.Name, &d.Spec, &d.Zone, &d.End, &d.Since, &d.Missed, &d.Waits, &jitter, &d.At, &now,
			&d.Job.Kind, &d.Job.Queue, &d.Job.Payload, &d.version, &d.Damage, &d.Job.External)
		d.Jitter, d.Job.Tenant = time.Duration(jitter)*time.Millisecond, d.Tenant
		return d, err
	}, sqlScheduleDue, max)
	return due, now, err
}

// Firings are schedules that are to fire.
type Firings struct {
	tenants, names, versions []string
	seen, since              []time.Time
	next                     []*time.Time
	queues, keys, payloads   []*string
	of                       []int64
	at                       []time.Time
}

// Add has a schedule fire for the times at, with what its kind gives, and be due next then; zero: never.
func (f *Firings) Add(d *DueSchedule, g Given, at []time.Time, next time.Time) {
	f.tenants, f.names, f.versions = append(f.tenants, d.Tenant), append(f.names, d.Name), append(f.versions, d.version)
	f.queues, f.keys, f.payloads = append(f.queues, g.queue), append(f.keys, g.key), append(f.payloads, g.payload)
	f.seen, f.since, f.next = append(f.seen, d.At), append(f.since, d.Since), append(f.next, nullable(next))
	for _, t := range at {
		f.of, f.at = append(f.of, int64(len(f.names))), append(f.at, t)
	}
}

// Schedules is how many schedules fire.
func (f *Firings) Schedules() int { return len(f.names) }

// Jobs is how many jobs the firings add.
func (f *Firings) Jobs() int { return len(f.at) }

// FireSchedules adds the jobs of schedules and has these go on, all in one statement, but for
// those that have changed since they were read, or that somebody has locked. ErrLocked: somebody
// has locked more than rows. Jobs for workers outside the cluster are in no lane.
func FireSchedules(ctx context.Context, db DB, f Fence, due *Firings) ([]Fired, error) {
	var fired []Fired
	err := briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		collectInto(q, &fired, pgx.RowToStructByPos[Fired])
	}, sqlScheduleFire, f.Session, f.Epoch, due.tenants, due.names, due.seen, due.since, due.next, notNil(due.of), due.at,
		due.versions, due.queues, due.keys, due.payloads)
	return fired, explain(err, "fire schedules")
}

// ScheduleFilter chooses schedules; nil chooses all.
type ScheduleFilter struct{ Tenant, Name *string }

// Schedules lists schedules by tenant and name.
func Schedules(ctx context.Context, db DB, f ScheduleFilter) ([]Schedule, error) {
	return list(ctx, db, "list schedules", func(row pgx.CollectableRow) (s Schedule, err error) {
		var attempts *int
		var jitter int64
		var last *job.ID
		err = row.Scan(&s.Tenant, &s.Name, &s.Origin, &s.Kind, &s.Queue, &s.Payload, &s.Meta, &s.Priority, &attempts, &s.Spec, &s.Zone, &s.End,
			&s.Missed, &s.Waits, &jitter, &s.Since, &s.Paused, &s.NextAt, &s.LastAt, &last, &s.KindsQueue, &s.ExclusiveKey, &s.External)
		s.MaxAttempts, s.Jitter, s.LastJob = deref(attempts), time.Duration(jitter)*time.Millisecond, deref(last)
		return s, err
	}, sqlScheduleList, f.Tenant, f.Name)
}

// ScheduleClock is what time it is by the database's clock, which schedules go by.
func ScheduleClock(ctx context.Context, db DB) (now time.Time, err error) {
	err = db.QueryRow(ctx, sqlScheduleClock).Scan(&now)
	return now, explain(err, "ask for the time")
}

// ErrScheduleElsewhere: there is a schedule of that name, which is not the caller's to change.
var ErrScheduleElsewhere = errors.New("the schedule of this name was made elsewhere")

// ErrNoSchedule: there is no schedule of that name.
var ErrNoSchedule = errors.New("no such schedule")

// SetSchedule adds a schedule, or changes what one is whose origin is among over. If its times
// have not changed, s.Since and s.NextAt do not count. TenantBusyError: its tenant is not here, or
// not for long. ErrScheduleElsewhere: its origin is another one.
func SetSchedule(ctx context.Context, db DB, s *Schedule, over ...string) (next *time.Time, err error) {
	err = db.QueryRow(ctx, sqlScheduleSet, s.Tenant, s.Name, s.Origin, s.Kind, s.Queue, string(s.Payload), nullable(string(s.Meta)), s.Priority, nullable(s.MaxAttempts),
		s.Spec, s.Zone, s.End, s.Missed, s.Waits, s.Jitter.Milliseconds(), s.Since, s.NextAt, over, s.KindsQueue, s.ExclusiveKey, s.External).Scan(&next)
	if errors.Is(err, pgx.ErrNoRows) {
		err = whySchedule(ctx, db, s.Tenant, s.Name)
	}
	return next, explain(err, "set schedule %q", s.Name)
}

// whySchedule is why a statement about a schedule did nothing.
func whySchedule(ctx context.Context, db DB, tenant, name string) error {
	row, err := ReadTenant(ctx, db, tenant)
	if err != nil {
		return err
	}
	if row.State != TenantActive {
		return &TenantBusyError{row}
	}
	there, err := Schedules(ctx, db, ScheduleFilter{&tenant, &name})
	switch {
	case err != nil:
		return err
	case len(there) == 0:
		return ErrNoSchedule
	}
	return ErrScheduleElsewhere
}

// PauseSchedule keeps a schedule of tenants from being due, or has it be due next then, where it was
// paused. TenantBusyError: the first tenant is not here, or not for long. ErrNoSchedule.
func PauseSchedule(ctx context.Context, db DB, name string, paused bool, tenants []string, next []*time.Time) error {
	return changeSchedule(ctx, db, "pause or resume", tenants[0], name, sqlSchedulePause, name, paused, tenants, next)
}

// DeleteSchedule removes a schedule whose origin is among of. TenantBusyError: its tenant is not
// here, or not for long. ErrNoSchedule. ErrScheduleElsewhere: its origin is another one.
func DeleteSchedule(ctx context.Context, db DB, tenant, name string, of ...string) error {
	return changeSchedule(ctx, db, "delete", tenant, name, sqlScheduleDelete, tenant, name, of)
}

func changeSchedule(ctx context.Context, db DB, what, tenant, name, sql string, args ...any) error {
	tag, err := db.Exec(ctx, sql, args...)
	if err == nil && tag.RowsAffected() == 0 {
		err = whySchedule(ctx, db, tenant, name)
	}
	return explain(err, "%s schedule %q", what, name)
}

// RunSchedule adds the job of a schedule now, with what give says that its kind gives; it counts as its last
// one. db is a transaction. l is nil if workers outside the cluster run it. TenantBusyError: its tenant is not here, or not
// for long. ErrNoSchedule.
func RunSchedule(ctx context.Context, db DB, tenant, name string, give func(context.Context, *NewJob) (Given, error)) (id job.ID, l *Lane, err error) {
	j, g, into := NewJob{Tenant: tenant}, Given{}, Lane{}
	err = db.QueryRow(ctx, sqlScheduleTake, tenant, name).Scan(&j.Kind, &j.Queue, &j.Payload, &j.External)
	if err == nil {
		if g, err = give(ctx, &j); err != nil {
			return 0, nil, err
		}
		err = db.QueryRow(ctx, sqlScheduleRun, tenant, name, g.queue, g.key, g.payload).Scan(&id, &into.Queue, &into.Tenant, &into.Priority, &j.External)
	}
	if errors.Is(err, pgx.ErrNoRows) {
		err = whySchedule(ctx, db, tenant, name)
	}
	if !j.External {
		l = &into
	}
	return id, l, explain(err, "run schedule %q", name)
}

// placeSchedule is what [Move.Jobs] calls the schedules that it moves.
const placeSchedule = "schedule"

// schedules moves the tenant's schedules, as Jobs does its jobs.
func (m Move) schedules(ctx context.Context, e Ends, begin func(context.Context) error, moved func(string, int)) error {
	var names, text []string
	err := pgx.BeginTxFunc(ctx, e.From, readCommitted, func(tx pgx.Tx) error {
		rows, err := tx.Query(ctx, sqlMoveSchedules, m.Tenant)
		if err != nil {
			return err
		}
		var name, line string
		var common bool
		_, err = pgx.ForEachRow(rows, []any{&name, &line, &common}, func() error {
			if text = append(text, line); !common {
				names = append(names, name)
			}
			return nil
		})
		if err != nil || len(names) == 0 {
			return err
		}
		if err := begin(ctx); err != nil {
			return err
		}
		err = pgx.BeginTxFunc(ctx, e.To, readCommitted, func(tx pgx.Tx) error {
			if err := durable(ctx, tx); err != nil {
				return err
			}
			if err := m.step(ctx, tx, "add schedules of", sqlMoveFence, m.Tenant, m.Mover); err != nil {
				return err
			}
			_, err := tx.Exec(ctx, sqlMoveSchedulesAdd, text)
			return err
		})
		if err != nil {
			return err
		}
		_, err = tx.Exec(ctx, sqlMoveSchedulesDrop, m.Tenant, names)
		return err
	})
	if err == nil && len(names) > 0 {
		moved(placeSchedule, len(names))
	}
	return explain(err, "%s", fmt.Sprintf("move schedules of tenant %q", m.Tenant))
}
