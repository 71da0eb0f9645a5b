package store

import (
	"cmp"
	"context"
	"errors"
	"math"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
)

// tagPage is how many jobs with a tag are looked at together, at most.
const tagPage = 1000

// listTagged lists jobs that have all of f's tags: their index leads to ids, the newest first, of
// which f may choose some. A list that goes on passes over those before it.
func listTagged(ctx context.Context, db DB, f Filter) ([]Status, error) {
	var out []Status
	tags := slices.Compact(slices.Sorted(slices.Values(f.Tags)))
	var rarest string
	if err := db.QueryRow(ctx, sqlTagRarest, nullable(f.Tenant), tags).Scan(&rarest); err != nil {
		return nil, explain(err, "find jobs by their tags")
	}
	after, page := f.After, f
	page.After = Cursor{}
	size := tagPage
	if after == (Cursor{}) {
		size = min(f.Limit, tagPage) // which suffices, unless f chooses few of them
	}
	var listed time.Time
	for before := int64(math.MaxInt64); len(out) < f.Limit; size = tagPage {
		ids, err := list(ctx, db, "find jobs by their tags", pgx.RowTo[int64], sqlTagFind, nullable(f.Tenant), tags, before, size, rarest, nullable(f.State))
		if err != nil || len(ids) == 0 {
			return out, err
		}
		before, page.Limit = ids[len(ids)-1], len(ids)
		found, err := listOf(ctx, db, page, ids)
		if err != nil {
			return nil, err
		}
		slices.SortFunc(found, func(a, b Status) int { return cmp.Compare(b.ID, a.ID) })
		for _, s := range found {
			if listed.IsZero() || s.CreatedAt.Before(listed) { // in the order of ids over all tables, as they are found
				listed = s.CreatedAt
			}
			if epoch := time.Unix(0, 0); listed.Before(epoch) { // no cursor says so
				listed = epoch
			}
			if s.ListedAt = listed; after == (Cursor{}) || after.Compare(CursorOf(&s)) < 0 {
				out = append(out, s)
			}
		}
	}
	return out[:min(f.Limit, len(out))], nil
}

// TagPlace is up to where tags were looked at; the zero place is before all.
type TagPlace struct {
	Tenant, Tag string
	ID          int64
}

// TrimTags looks at so many tags after a place. Of those of jobs that are neither unfinished nor dead any
// more it notes that, and those of which it has noted it before the retention time, and a day, it
// removes. It returns up to where it came; the zero place: there were no more.
func TrimTags(ctx context.Context, db DB, after TagPlace, most int, retention time.Duration) (last TagPlace, err error) {
	scan := func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error {
			if err := row.Scan(&last.Tenant, &last.Tag, &last.ID); !errors.Is(err, pgx.ErrNoRows) {
				return err
			}
			return nil
		})
	}
	err = briefly(ctx, db, lockTimeout, scan, sqlTagTrim, after.Tenant, after.Tag, after.ID, most, retention.Milliseconds())
	return last, explain(err, "remove tags of jobs that are gone")
}

// TrimPeriods removes so many unique keys at most whose periods are over, and returns how many.
func TrimPeriods(ctx context.Context, db DB, most int) (n int, err error) {
	count := func(q *pgx.QueuedQuery) { q.QueryRow(func(row pgx.Row) error { return row.Scan(&n) }) }
	err = briefly(ctx, db, lockTimeout, count, sqlPeriodTrim, most)
	return n, explain(err, "free unique keys whose periods are over")
}

// movePeriods moves the tenant's unique keys that are taken for a period.
func movePeriods(ctx context.Context, m Move, e Ends, begin func(context.Context) error) error {
	for more := true; more; {
		err := pgx.BeginTxFunc(ctx, e.From, readCommitted, func(tx pgx.Tx) error {
			var keys, text []string
			rows, err := tx.Query(ctx, sqlMovePeriods, m.Tenant, moveBatch)
			if err != nil {
				return err
			}
			var key, line string
			_, err = pgx.ForEachRow(rows, []any{&key, &line}, func() error {
				keys, text = append(keys, key), append(text, line)
				return nil
			})
			if more = len(keys) > 0; err != nil || !more {
				return err
			}
			if err := begin(ctx); err != nil {
				return err
			}
			err = pgx.BeginTxFunc(ctx, e.To, readCommitted, func(tx pgx.Tx) error {
				if err := durable(ctx, tx); err != nil {
					return err
				}
				if err := m.step(ctx, tx, "add unique keys of", sqlMoveFence, m.Tenant, m.Mover); err != nil {
					return err
				}
				_, err := tx.Exec(ctx, sqlMovePeriodsAdd, text)
				return err
			})
			if err == nil {
				_, err = tx.Exec(ctx, sqlMovePeriodsDrop, m.Tenant, keys)
			}
			return err
		})
		if err != nil {
			return explain(err, "move unique keys of tenant %q", m.Tenant)
		}
	}
	return nil
}
