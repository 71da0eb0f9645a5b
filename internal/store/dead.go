package store

import (
	"context"
	"errors"
	"math"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// DeadFilter chooses dead letters; empty fields choose all.
type DeadFilter struct {
	Tenant, Kind string
	Error        string    // text that the error contains, in upper or lower case
	Before       time.Time // died before then
	Ahead        bool      // or at a time that is still to come: before a clock that ran ahead was put right

	Tag, CorrelationID string
}

// Dead is a dead letter as [ReadDead] shows it.
type Dead struct {
	ID     job.ID
	Turn   int32
	Kind   string
	Error  string // its beginning
	DiedAt time.Time
}

// BeforeAllJobs is the id to begin to read after.
const BeforeAllJobs int64 = math.MinInt64

// CountDead counts the dead letters. It takes some milliseconds, however many there are or were: beyond ten
// thousand, or where their table is large, it is Postgres' estimate.
func CountDead(ctx context.Context, db DB) (dead int64, err error) {
	err = db.QueryRow(ctx, sqlDeadCount, mostCounted+1).Scan(&dead)
	return dead, explain(err, "count the dead letters")
}

// DeadKind is the commonest kind of some dead letters.
type DeadKind struct {
	Kind string
	Dead int
	Of   int        // dead letters that were looked at
	Last *time.Time // when the last of them died; nil: not known
}

// CommonestDead is the kind that most of the newest dead letters are of, so many at most; none: zero.
func CommonestDead(ctx context.Context, db DB, newest int) (k DeadKind, err error) {
	err = db.QueryRow(ctx, sqlDeadCommonest, newest).Scan(&k.Kind, &k.Dead, &k.Of, &k.Last)
	if errors.Is(err, pgx.ErrNoRows) {
		return DeadKind{}, nil
	}
	return k, explain(err, "look at the dead letters' kinds")
}

// ReadDead looks at the next max dead letters behind an id and returns those that are chosen, in
// any order, with so many characters of their errors. last is the id to read on after; more is
// false behind the last dead letter. now is the database's time.
func ReadDead(ctx context.Context, db DB, f DeadFilter, after int64, max, text int) (chosen []Dead, last int64, more bool, now time.Time, err error) {
	rows, _ := db.Query(ctx, sqlDeadRead, after, max, nullable(f.Tenant), nullable(f.Kind), nullable(strings.ToLower(f.Error)), nullable(f.Before), text, f.Ahead, nullable(f.Tag), nullable(f.CorrelationID)) // its error is the rows', too
	var id *int64
	var turn *int32
	var kind, failure *string
	var died time.Time
	_, err = pgx.ForEachRow(rows, []any{&id, &turn, &kind, &failure, &died}, func() error {
		if kind == nil {
			last, more, now = deref(id), id != nil, died
			return nil
		}
		chosen = append(chosen, Dead{job.ID(*id), *turn, *kind, *failure, died})
		return nil
	})
	return chosen, last, more, now, explain(err, "read dead letters")
}

// RetryDead makes dead letters wait to run now, as they were read, with all their attempts again,
// and returns the lanes of those that do. taken counts those that stay because another job
// has their unique key. Others stay because somebody has changed or locked them, or because their
// tenant is between two pools. ErrLocked: a transaction that is open has taken one of their unique
// keys, and nothing was changed: meanwhile others would wait for the keys that this has taken.
func RetryDead(ctx context.Context, db DB, dead []Dead) (lanes []Lane, taken int, err error) {
	ids, turns := columnsOf(dead)
	var l Lane
	var rose bool
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.Query(func(rows pgx.Rows) error {
			_, err := pgx.ForEachRow(rows, []any{&l.Tenant, &l.Queue, &l.Priority, &rose}, func() error {
				if rose {
					lanes = append(lanes, l)
				} else {
					taken++
				}
				return nil
			})
			return err
		})
	}, sqlDeadRetry, ids, turns)
	return lanes, taken, explain(err, "retry %d dead letters", len(dead))
}

// DeleteDead deletes dead letters, as they were read, with what is kept of their runs. Those stay
// that somebody has changed or locked, or whose tenant is between two pools.
func DeleteDead(ctx context.Context, db DB, dead []Dead) (deleted int, err error) {
	ids, turns := columnsOf(dead)
	err = db.QueryRow(ctx, sqlDeadDelete, ids, turns).Scan(&deleted)
	return deleted, explain(err, "delete %d dead letters", len(dead))
}

// TrimDead deletes dead letters that died longer ago than that, the oldest first and at most so many.
func TrimDead(ctx context.Context, db DB, kept time.Duration, most int) (deleted int, err error) {
	old, err := list(ctx, db, "look for old dead letters", func(row pgx.CollectableRow) (d Dead, err error) {
		err = row.Scan(&d.ID, &d.Turn)
		return d, err
	}, sqlDeadOld, kept.Milliseconds(), most)
	if err != nil || len(old) == 0 {
		return 0, err
	}
	return DeleteDead(ctx, db, old)
}

func columnsOf(dead []Dead) (ids []int64, turns []int32) {
	for _, d := range dead {
		ids = append(ids, int64(d.ID))
		turns = append(turns, d.Turn)
	}
	return ids, turns
}
