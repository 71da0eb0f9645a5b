package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// Fired is how many timers moved into a lane.
type Fired struct {
	Lane  Lane
	Count int
}

// FireTimers moves up to max due timers to the waiting jobs, but for those whose row
// somebody has locked. ErrLocked: somebody has locked more than rows.
func FireTimers(ctx context.Context, db DB, f Fence, max int) (fired []Fired, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.Query(func(rows pgx.Rows) (err error) {
			fired, err = pgx.CollectRows(rows, func(row pgx.CollectableRow) (f Fired, err error) {
				err = row.Scan(&f.Lane.Queue, &f.Lane.Tenant, &f.Lane.Priority, &f.Count)
				return f, err
			})
			return err
		})
	}, sqlTimerFire, f.Session, f.Epoch, max)
	if err != nil {
		return nil, fmt.Errorf("fire timers: %w", err)
	}
	return fired, nil
}

// NextTimer is how long until the first timer is due; ok is false without one.
func NextTimer(ctx context.Context, db DB) (in time.Duration, ok bool, err error) {
	var ms int64
	err = db.QueryRow(ctx, sqlTimerNext).Scan(&ms)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, false, nil
	case err != nil:
		return 0, false, fmt.Errorf("find the next timer: %w", translate(err))
	}
	return time.Duration(ms) * time.Millisecond, true, nil
}
