package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
)

// daysAhead is how many days get their partition in advance.
const daysAhead = 2

// KeepDays makes the partitions of finished jobs for today and the days ahead,
// and drops those whose last job is older than retention. It may be run by several nodes at once. deferred is what could
// not be done without waiting for somebody who reads the tables, as a backup does for as
// long as it takes: it is ErrLocked, and to be tried again. err is what failed otherwise.
func KeepDays(ctx context.Context, db DB, retention time.Duration) (deferred, err error) {
	var today time.Time
	if err := db.QueryRow(ctx, sqlRetentionToday).Scan(&today); err != nil {
		return nil, explain(err, "keep finished jobs")
	}
	days, err := list(ctx, db, "keep finished jobs", pgx.RowTo[time.Time], sqlRetentionDays)
	if err != nil {
		return nil, err
	}
	var locked, failed []error
	note := func(err error) {
		switch {
		case errors.Is(err, ErrLocked):
			locked = append(locked, err)
		case err != nil:
			failed = append(failed, err)
		}
	}
	have := map[string]bool{}
	for _, d := range days {
		have[d.Format(time.DateOnly)] = true
		if d.AddDate(0, 0, 1).Before(today.Add(-retention)) {
			note(dropDay(ctx, db, d))
		}
	}
	for i := range daysAhead + 1 {
		if d := today.AddDate(0, 0, i); !have[d.Format(time.DateOnly)] {
			note(makeDay(ctx, db, d))
		}
	}
	return errors.Join(locked...), errors.Join(failed...)
}

// SummarizeFinished brings the block range indexes up to date by which lists find what finished today or yesterday, of
// partitions that are not as large as when known was returned; nil: of both. What a partition lacks is left when somebody
// is at work there who keeps it locked, and looked at again: vacuum does the same. It may be run by several nodes at once.
func SummarizeFinished(ctx context.Context, db DB, known map[time.Time]int64) (sizes map[time.Time]int64, err error) {
	sizes = map[time.Time]int64{}
	var day time.Time
	var size int64
	rows, err := db.Query(ctx, sqlRetentionSizes)
	if err == nil {
		_, err = pgx.ForEachRow(rows, []any{&day, &size}, func() error {
			sizes[day] = size
			return nil
		})
	}
	if err != nil {
		return nil, explain(err, "look how many jobs have finished")
	}
	for day, size := range sizes {
		if known[day] == size {
			continue
		}
		if err := makeDay(ctx, db, day); errors.Is(err, ErrLocked) {
			delete(sizes, day)
		} else if err != nil {
			return nil, err
		}
	}
	return sizes, nil
}

// TrimFinished removes what only deleting can remove of what is older than retention: finished jobs that have no
// day's partition, and errors. It removes up to most of either, and more tells whether there may be more.
func TrimFinished(ctx context.Context, db DB, retention time.Duration, most int) (more bool, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&more) })
	}, sqlRetentionTrim, retention.Milliseconds(), most)
	return more, explain(err, "remove old finished jobs")
}

// dropDay removes one day's jobs, and then its partition. The first needs nothing that those
// want who finish jobs. The second does: under load it takes several calls to meet the moment
// between two of their transactions, and the empty partition harms nobody meanwhile.
func dropDay(ctx context.Context, db DB, d time.Time) error {
	err := briefly(ctx, db, lockTimeout, nil, sqlRetentionEmpty, d)
	if err == nil {
		err = briefly(ctx, db, lockTimeout, nil, sqlRetentionDrop, d)
	}
	return explain(err, "drop the finished jobs of %s", d.Format(time.DateOnly))
}

// makeDay makes one day's partition, or brings the indexes up to date of the one that is there.
func makeDay(ctx context.Context, db DB, d time.Time) error {
	err := briefly(ctx, db, lockTimeout, nil, sqlRetentionMake, d)
	const overlap = "42P17"
	if err == nil || hasCode(err, codeCheckViolation) || hasCode(err, codeDuplicateTable) || hasCode(err, codeDuplicateObject) || hasCode(err, overlap) || hasCode(err, codeUniqueViolation) {
		return nil
	}
	return explain(err, "make the partition for finished jobs of %s", d.Format(time.DateOnly))
}
