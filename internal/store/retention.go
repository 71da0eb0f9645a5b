package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
)

// daysAhead is how many days get their partition in advance.
const daysAhead = 2

// KeepDays makes the partitions of finished jobs for today and the days ahead,
// drops those whose last job is older than retention, and removes a batch of what
// only deleting can remove. It may be run by several nodes at once.
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
	have := map[string]bool{}
	for _, d := range days {
		have[d.Format(time.DateOnly)] = true
		if d.AddDate(0, 0, 1).Before(today.Add(-retention)) {
			if _, err := db.Exec(ctx, sqlRetentionDrop, d); err != nil {
				return fmt.Errorf("drop the finished jobs of %s: %w", d.Format(time.DateOnly), err)
			}
		}
	}
	for i := range daysAhead + 1 {
		d := today.AddDate(0, 0, i)
		if have[d.Format(time.DateOnly)] {
			continue
		}
		if err := makeDay(ctx, db, d); err != nil {
			return err
		}
	}
	if _, err := db.Exec(ctx, sqlRetentionTrim, retention.Milliseconds()); err != nil {
		return fmt.Errorf("remove old finished jobs: %w", translate(err))
	}
	return nil
}

// makeDay makes one day's partition. When jobs of that day already stand in the
// default partition it cannot be made; they stay there until they are deleted.
func makeDay(ctx context.Context, db DB, d time.Time) error {
	_, err := db.Exec(ctx, sqlRetentionMake, d)
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
