package store

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// SuspendCount is what became of jobs that were to be suspended, of those that were found.
type SuspendCount struct {
	Suspended int
	Running   int // are claimed and go on
	Left      int // somebody has locked their row, or their tenant is between two pools
}

// Suspend puts waiting jobs and timers aside, until [Resume] or, unless it is zero, until a time.
// ErrLocked: until ctx ended somebody kept claims from being locked out, and nothing was changed.
func Suspend(ctx context.Context, db Beginner, ids []int64, until time.Time) (SuspendCount, error) {
	return suspend(ctx, db, ids, until, false)
}

// suspend is [Suspend]; with wait, locked rows are waited for, too, and that none was suspended is an error.
func suspend(ctx context.Context, db Beginner, ids []int64, until time.Time, wait bool) (n SuspendCount, err error) {
	var missing error
	err = lockedOut(ctx, db, fmt.Sprintf("suspend %d jobs", len(ids)), func(tx pgx.Tx) error {
		if err := tx.QueryRow(ctx, sqlSuspendJobs, ids, nullable(until), wait).Scan(&n.Suspended, &n.Running, &n.Left); err != nil {
			return err
		}
		var external SuspendCount
		err := tx.QueryRow(ctx, sqlExternalSuspend, ids, nullable(until), wait).Scan(&external.Suspended, &external.Running, &external.Left)
		n.Suspended, n.Running, n.Left = n.Suspended+external.Suspended, n.Running+external.Running, n.Left+external.Left
		if err == nil && wait && n.Suspended == 0 {
			missing = notHere(ctx, tx, job.ID(ids[0]))
			return missing
		}
		return err
	})
	if err = cmp.Or(missing, err); err != nil {
		return SuspendCount{}, err
	}
	return n, nil
}

// Resumed is where a job stands that was resumed or changed.
type Resumed struct {
	Lane
	DueIn *int64 // ms until its timer is due; nil: it waits, or is suspended
}

// SuspendJob is [Suspend] for one job, whose row it waits for. ErrNotFound: no waiting job, timer or
// suspended job has this id. ErrLocked: until ctx ended somebody had locked it.
func SuspendJob(ctx context.Context, db Beginner, id job.ID, until time.Time) error {
	_, err := suspend(ctx, db, []int64{int64(id)}, until, true)
	return err
}

// Resume puts suspended jobs back where they came from. Those stay whose row somebody has locked
// or whose tenant is between two pools.
func Resume(ctx context.Context, db DB, ids []int64) ([]Resumed, error) {
	return list(ctx, db, fmt.Sprintf("resume %d jobs", len(ids)), pgx.RowToStructByPos[Resumed], sqlResumeJobs, notNil(ids), len(ids))
}

// ResumeDue resumes up to max suspended jobs whose time has come, but for those whose row somebody
// has locked. [NextTimer] says when the next one's will have. [DamagedError]: call it again.
func ResumeDue(ctx context.Context, db DB, max int) ([]Resumed, error) {
	resumed, err := list(ctx, db, "resume jobs", pgx.RowToStructByPos[Resumed], sqlResumeJobs, nil, max)
	return resumed, putOff(err, func() ([]Damaged, error) {
		return list(ctx, db, "put damaged jobs off", pgx.RowToStructByPos[Damaged], sqlResumePutOff, max)
	})
}

// HurryCount counts what became of jobs that were to be due sooner.
type HurryCount struct{ Hurried, Left int }

// Hurry makes jobs that wait for their time due sooner, the first one after a time and each of the others a gap after the one before,
// but none later than it is. Those stay whose row somebody has locked or whose tenant is between two pools.
func Hurry(ctx context.Context, db DB, ids []int64, first, gap time.Duration) (n HurryCount, err error) {
	err = db.QueryRow(ctx, sqlHurryJobs, ids, first.Milliseconds(), float64(gap)/float64(time.Millisecond)).Scan(&n.Hurried, &n.Left)
	return n, explain(err, "retry %d jobs", len(ids))
}

// The tables that [ReadMovable] reads.
const (
	PlaceJob       = placeJob
	PlaceTimer     = "timer_job"
	PlaceExternal  = "external_job"
	PlaceSuspended = "suspended_job"
)

// MovableFilter chooses jobs; empty fields choose all.
type MovableFilter struct {
	Tenant, Kind, Queue, CorrelationID string
	State, Tag                         string
	Before                             time.Time // made before then, or at a time that is still to come
	Wanted                             bool      // only jobs that nobody wants cancelled
}

// ReadMovable looks at the next max jobs of a table behind an id and returns the ids of those that
// are chosen. last is the id to read on after; more is false behind the last job. now is the
// database's time.
func ReadMovable(ctx context.Context, db DB, place string, f MovableFilter, after int64, max int) (chosen []int64, last int64, more bool, now time.Time, err error) {
	rows, _ := db.Query(ctx, sqlSuspendRead, place, after, max, nullable(f.Tenant), nullable(f.Kind), nullable(f.Queue), nullable(f.CorrelationID), nullable(f.Before),
		nullable(f.State), nullable(f.Tag), f.Wanted) // its error is the rows', too
	var id *int64
	var job bool
	var at *time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &job, &at}, func() error {
		if job {
			chosen = append(chosen, *id)
		} else {
			last, more, now = deref(id), id != nil, *at
		}
		return nil
	})
	return chosen, last, more, now, explain(err, "read jobs")
}

// Change is what is to be different in a job; nil: stays as it is.
type Change struct {
	Priority    *int
	DueAt       *time.Time
	MaxAttempts *int
	Timeout     *time.Duration // whole milliseconds
}

// ChangeJob changes a job that is not running and returns where it stands. ErrNotFound: no
// waiting job, timer or suspended job has this id. ErrLocked: until ctx ended somebody had locked
// its row, or more.
func ChangeJob(ctx context.Context, db Beginner, id job.ID, c Change) (at Resumed, err error) {
	var timeout *int64
	if c.Timeout != nil {
		ms := c.Timeout.Milliseconds()
		timeout = &ms
	}
	var missing error
	err = lockedOut(ctx, db, fmt.Sprintf("change job %d", id), func(tx pgx.Tx) error {
		err := tx.QueryRow(ctx, sqlChangeJob, int64(id), c.Priority, c.DueAt, c.MaxAttempts, timeout).Scan(&at.Queue, &at.Tenant, &at.Priority, &at.DueIn)
		if errors.Is(err, pgx.ErrNoRows) {
			missing = notHere(ctx, tx, id)
			return missing
		}
		return err
	})
	if missing != nil {
		return at, missing
	}
	return at, err
}
