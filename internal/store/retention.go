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

// ddlLockTimeout is how long a partition waits for the lock that adding or dropping it takes.
// All that finishes waits behind that meanwhile.
const ddlLockTimeout = 50 * time.Millisecond

// KeepDays makes the partitions of finished jobs for today and the days ahead,
// drops those whose last job is older than retention, and removes a batch of what
// only deleting can remove. It may be run by several nodes at once. Rights to make
// tables are needed; without them finished jobs go to the default partition and
// are deleted there. ErrLocked: somebody reads the tables, as a backup does for as long as
// it takes; what could not be done without waiting for that is to be tried again.
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
	if err := briefly(ctx, db, ddlLockTimeout, nil, "DROP TABLE IF EXISTS tenure."+partition(d)); err != nil {
		return fmt.Errorf("drop the finished jobs of %s: %w", d.Format(time.DateOnly), err)
	}
	return nil
}

// makeDay makes one day's partition. When jobs of that day already stand in the
// default partition it cannot be made; they stay there until they are deleted.
func makeDay(ctx context.Context, db DB, d time.Time) error {
	sql := fmt.Sprintf("CREATE TABLE IF NOT EXISTS tenure.%s PARTITION OF tenure.completed_job FOR VALUES FROM ('%s 00:00+00') TO ('%s 00:00+00')",
		partition(d), d.Format(time.DateOnly), d.AddDate(0, 0, 1).Format(time.DateOnly))
	err := briefly(ctx, db, ddlLockTimeout, nil, sql)
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

func partition(d time.Time) string { return "completed_job_" + d.Format("20060102") }
