package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// daysAhead is how many days get their partition in advance.
const daysAhead = 2

// dayLockTimeout is how long a partition waits for the lock that adding or dropping it takes.
// All that finishes waits behind that meanwhile.
const dayLockTimeout = 50 * time.Millisecond

// KeepDays makes the partitions of finished jobs for today and the days ahead,
// drops those whose last job is older than retention, and removes a batch of what
// only deleting can remove. It may be run by several nodes at once. ErrLocked: somebody
// reads the tables, as a backup does for as long as it takes; what could not be done without
// waiting for that is to be tried again.
func KeepDays(ctx context.Context, db DB, retention time.Duration) error {
	var today time.Time
	if err := db.QueryRow(ctx, sqlRetentionToday).Scan(&today); err != nil {
		return fmt.Errorf("keep finished jobs: %w", translate(err))
	}
	rows, err := db.Query(ctx, sqlRetentionDays)
	if err != nil {
		return fmt.Errorf("keep finished jobs: %w", translate(err))
	}
	days, err := pgx.CollectRows(rows, pgx.RowTo[time.Time])
	if err != nil {
		return fmt.Errorf("keep finished jobs: %w", translate(err))
	}
	var errs []error
	have := map[string]bool{}
	for _, d := range days {
		have[d.Format(time.DateOnly)] = true
		if d.AddDate(0, 0, 1).Before(today.Add(-retention)) {
			errs = append(errs, dropDay(ctx, db, d))
		}
	}
	for i := range daysAhead + 1 {
		if d := today.AddDate(0, 0, i); !have[d.Format(time.DateOnly)] {
			errs = append(errs, makeDay(ctx, db, d))
		}
	}
	if err := briefly(ctx, db, lockTimeout, nil, sqlRetentionTrim, retention.Milliseconds()); err != nil {
		errs = append(errs, fmt.Errorf("remove old finished jobs: %w", err))
	}
	return errors.Join(errs...)
}

// dropDay drops one day's partition. That takes an ACCESS EXCLUSIVE lock on the
// partitioned table, too, behind which all that finishes would wait.
func dropDay(ctx context.Context, db DB, d time.Time) error {
	if err := briefly(ctx, db, dayLockTimeout, nil, sqlRetentionDrop, d); err != nil {
		return fmt.Errorf("drop the finished jobs of %s: %w", d.Format(time.DateOnly), err)
	}
	return nil
}

// makeDay makes one day's partition. When jobs of that day already stand in the
// default partition it cannot be made; they stay there until they are deleted.
func makeDay(ctx context.Context, db DB, d time.Time) error {
	err := briefly(ctx, db, dayLockTimeout, nil, sqlRetentionMake, d)
	const (
		rowsInDefault  = "23514" // check_violation
		duplicateTable = "42P07"
		overlap        = "42P17"
	)
	if err == nil || hasCode(err, rowsInDefault) || hasCode(err, duplicateTable) || hasCode(err, overlap) || hasCode(err, codeUniqueViolation) {
		return nil
	}
	return fmt.Errorf("make the partition for finished jobs of %s: %w", d.Format(time.DateOnly), err)
}
