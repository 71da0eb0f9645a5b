package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// Fired is how many timers moved into a lane.
type Fired struct {
	Lane
	Count int
}

// FireTimers moves up to max due timers to the waiting jobs, those first that were due first, but
// for those whose row somebody has locked. ErrLocked: somebody has locked more than rows. [DamagedError]:
// call it again.
func FireTimers(ctx context.Context, db DB, f Fence, max int) (fired []Fired, err error) {
	return fire(ctx, db, sqlTimerFire, f, max, nil)
}

// FireTimersOf is [FireTimers] for some tenants; max is for each of them.
func FireTimersOf(ctx context.Context, db DB, f Fence, tenants []string, max int) (fired []Fired, err error) {
	return fire(ctx, db, sqlTimerShare, f, max, tenants)
}

func fire(ctx context.Context, db DB, sql string, f Fence, max int, tenants []string) (fired []Fired, err error) {
	args := []any{f.Session, f.Epoch, max}
	if tenants != nil {
		args = append(args, tenants)
	}
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		collectInto(q, &fired, pgx.RowToStructByPos[Fired])
	}, sql, args...)
	err = putOff(err, func() (damaged []Damaged, err error) {
		err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
			collectInto(q, &damaged, pgx.RowToStructByPos[Damaged])
		}, sqlTimerPutOff, f.Session, f.Epoch, max, tenants)
		return damaged, err
	})
	return fired, explain(err, "fire timers")
}

// TimerTenants lists tenants that have a timer due, at most so many.
func TimerTenants(ctx context.Context, db DB, max int) ([]string, error) {
	return list(ctx, db, "list tenants with due timers", pgx.RowTo[string], sqlTimerTenants, max)
}

// NextTimer is how long until the first timer or schedule is due, or the first suspended job is to
// be resumed; ok is false without one.
func NextTimer(ctx context.Context, db DB) (in time.Duration, ok bool, err error) {
	var ms int64
	err = db.QueryRow(ctx, sqlTimerNext).Scan(&ms)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, false, nil
	}
	return time.Duration(ms) * time.Millisecond, err == nil, explain(err, "find the next timer")
}
