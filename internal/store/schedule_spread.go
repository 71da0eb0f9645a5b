package store

import (
	"context"
	"time"

	"github.com/jackc/pgx/v5"
)

// ScheduleKey is which schedule of a pool is meant.
type ScheduleKey struct{ Tenant, Name string }

// SchedulesOf lists the schedules of an origin.
func SchedulesOf(ctx context.Context, db DB, origin string) ([]ScheduleKey, error) {
	return list(ctx, db, "list schedules by origin", pgx.RowToStructByPos[ScheduleKey], sqlScheduleOrigin, origin)
}

// HasChanged tells whether a schedule of the configuration is another one than in the ledger.
func HasChanged(ctx context.Context, db DB, s *Schedule) (changed bool, err error) {
	err = db.QueryRow(ctx, sqlScheduleChange, s.Tenant, s.Name, s.Kind, s.Queue, string(s.Payload), s.Priority, nullable(s.MaxAttempts),
		s.Spec, s.Zone, s.End, s.Missed, s.Waits, s.Jitter.Milliseconds(), s.KindsQueue, s.External).Scan(&changed)
	return changed, explain(err, "compare schedule %q", s.Name)
}

// StaleSchedules lists those of tenants who lack a schedule for every tenant, or whose copy of it is
// another one by now.
func StaleSchedules(ctx context.Context, db DB, name string, tenants []string) ([]string, error) {
	return list(ctx, db, "look for tenants without a schedule", pgx.RowTo[string], sqlScheduleStale, name, tenants)
}

// SpreadSchedule gives tenants their copy of a schedule for every tenant, each with its delay and
// the time when it is due next, if that schedule has not changed since.
func SpreadSchedule(ctx context.Context, db DB, name string, since time.Time, tenants []string, delays []int64, next []*time.Time) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlScheduleSpread, name, since, tenants, delays, next), "spread schedule %q", name)
}

// NoteSpread notes that tenants have a schedule for every tenant that was due at, unless it was set
// again since.
func NoteSpread(ctx context.Context, db DB, name string, at time.Time) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlScheduleSpreadDone, name, at), "note that schedule %q is spread", name)
}

// ForgetSchedules removes what tenants have of schedules for every tenant that there are no more.
func ForgetSchedules(ctx context.Context, db DB, tenants []string) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlScheduleForget, tenants), "remove schedules of tenants")
}

// BringForward has schedules be due at the next time of theirs after now, where their next one was worked out when
// the clock ran ahead; after the last one that they fired for, as none is to be fired for twice. So those that have
// fired for times that are still to come go on behind these. all is false where some are to be looked at again, as
// somebody has changed or locked them meanwhile.
func BringForward(ctx context.Context, db DB) (all bool, err error) {
	var tenants, names, versions []string
	var sooner []time.Time
	var t Times
	var tenant, name, version string
	var jitter int64
	var next, last *time.Time
	var now time.Time
	rows, _ := db.Query(ctx, sqlScheduleLater) // its error is the rows', too
	_, err = pgx.ForEachRow(rows, []any{&tenant, &name, &t.Spec, &t.Zone, &t.End, &t.Since, &jitter, &next, &last, &version, &now}, func() error {
		t.Jitter = time.Duration(jitter) * time.Millisecond
		after := now
		if last != nil && last.Add(t.Jitter).After(now) {
			after = last.Add(t.Jitter)
		}
		at, err := t.NextAfter(after)
		if err == nil && at != nil && (next == nil || at.Before(*next)) { // what cannot be read is told of when it is due
			tenants, names, versions, sooner = append(tenants, tenant), append(names, name), append(versions, version), append(sooner, *at)
		}
		return nil
	})
	if err != nil || len(names) == 0 {
		return err == nil, explain(err, "look for schedules to be brought forward")
	}
	tag, err := db.Exec(ctx, sqlScheduleSooner, tenants, names, versions, sooner)
	return err == nil && tag.RowsAffected() == int64(len(names)), explain(err, "bring schedules forward")
}
