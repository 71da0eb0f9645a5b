package store

import (
	"cmp"
	"context"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/job"
)

// Cursor is a place in a list of jobs.
type Cursor struct {
	ListedAt time.Time // as of [Status]
	ID       job.ID
}

// Compare is negative if c comes before o in a list: those listed at a later time do, and of the
// same time those with a higher id.
func (c Cursor) Compare(o Cursor) int {
	return cmp.Or(o.ListedAt.Compare(c.ListedAt), cmp.Compare(o.ID, c.ID))
}

// CursorOf is a job's place in a list.
func CursorOf(s *Status) Cursor { return Cursor{s.ListedAt, s.ID} }

// args are the cursor's as a statement wants them, null for the zero cursor.
func (c Cursor) args() (at *time.Time, id *int64) {
	if c == (Cursor{}) {
		return nil, nil
	}
	n := int64(c.ID)
	return &c.ListedAt, &n
}

// spans are how long before its beginning a list of finished jobs looks for those that were made
// then: no index knows when they were, and the first of these spans needs few rows to be read. At last it
// looks at all: at once after longestChosen if an index leads to what the list is of.
var spans = []time.Duration{4 * time.Second, 32 * time.Second, 4 * time.Minute, 32 * time.Minute, 4 * time.Hour, 32 * time.Hour, 10 * 24 * time.Hour}

const longestChosen = 32 * time.Hour

// scanStatus reads a job of a list, parts/listed.sql.
func scanStatus(row pgx.CollectableRow) (s Status, err error) {
	var maxAttempts, timeout *int
	var at, began, resume *time.Time
	var node, errText, unique, correlation, exclusive *string
	err = row.Scan(
		&s.ID, &s.CreatedAt, nil, &timeout, &s.Priority, &s.Attempt, &maxAttempts, &s.Losses,
		&s.Tenant, &s.Queue, &s.Kind, &s.Payload, &s.Meta, &exclusive, &unique, &correlation,
		&s.State, &at, &node, &errText, &s.Handled, &began, &resume, &s.External, &s.ListedAt)
	s.MaxAttempts, s.At, s.StartedAt, s.Node, s.Error = deref(maxAttempts), deref(at), deref(began), deref(node), deref(errText)
	s.UniqueKey, s.CorrelationID, s.ResumeAt, s.ExclusiveKey = deref(unique), deref(correlation), deref(resume), deref(exclusive)
	s.Timeout = time.Duration(deref(timeout)) * time.Millisecond
	return s, err
}

// List returns jobs, the newest first: in the order of their cursors, behind that of the filter. A job
// that changes its state while page after page is read stays where it is.
func List(ctx context.Context, db DB, f Filter) ([]Status, error) {
	switch {
	case len(f.Tags) > 0:
		return listTagged(ctx, db, f)
	case f.ID != 0:
		return listOf(ctx, db, f, []int64{int64(f.ID)})
	}
	return listOf(ctx, db, f, nil)
}

// listOf returns those jobs of ids that f chooses; nil: of all.
func listOf(ctx context.Context, db DB, f Filter, ids []int64) (out []Status, err error) {
	isFinished := jobstate.Of(f.State).Stage == jobstate.Finished
	if !isFinished {
		out, err = listUnfinished(ctx, db, f, ids)
		if err != nil || f.ID != 0 && len(out) > 0 {
			return out, err
		}
	}
	if isFinished || f.State == "" {
		finished, err := listFinished(ctx, db, f, ids)
		if err != nil {
			return nil, err
		}
		out = append(finished, out...) // of one that has finished meanwhile the first is kept
	}
	slices.SortStableFunc(out, func(a, b Status) int { return CursorOf(&a).Compare(CursorOf(&b)) })
	seen := map[job.ID]bool{}
	out = slices.DeleteFunc(out, func(s Status) bool {
		twice := seen[s.ID]
		seen[s.ID] = true
		return twice
	})
	return out[:min(f.Limit, len(out))], nil
}

func listUnfinished(ctx context.Context, db DB, f Filter, ids []int64) ([]Status, error) {
	at, id := f.After.args()
	return list(ctx, db, "list jobs", scanStatus, sqlJobList, nullable(f.State), nullable(f.Tenant), nullable(f.Kind), nullable(f.Queue), ids, f.Limit,
		nullable(f.CorrelationID), at, id, nullable(strings.ToLower(f.Error)), nullable(f.Node), nullable(f.Since), nullable(f.Until))
}

func listFinished(ctx context.Context, db DB, f Filter, ids []int64) (out []Status, err error) {
	if until := (Cursor{ListedAt: f.Until}); !f.Until.IsZero() && (f.After == Cursor{} || f.After.Compare(until) < 0) {
		f.After = until
	}
	defer func() { // their order is that in which they were made
		if i := slices.IndexFunc(out, func(s Status) bool { return s.ListedAt.Before(f.Since) }); i >= 0 {
			out = out[:i]
		}
	}()
	at, id := f.After.args()
	some := func(from, before *time.Time) error {
		next, err := list(ctx, db, "list finished jobs", scanStatus, sqlJobListFinished, nullable(f.State), nullable(f.Tenant), nullable(f.Kind), nullable(f.Queue), ids, f.Limit-len(out),
			nullable(f.CorrelationID), at, id, from, before, nullable(len(f.Tags) > 0))
		out = append(out, next...)
		return err
	}
	if ids != nil || f.CorrelationID != "" { // an index knows them
		err = some(nil, nil)
		return out, err
	}
	begin := f.After.ListedAt
	if at == nil { // with a time that it is told the planner leaves out the days before
		if err := db.QueryRow(ctx, sqlScheduleClock).Scan(&begin); err != nil {
			return nil, explain(err, "list finished jobs")
		}
	}
	var before *time.Time
	chosen := f.Tenant != "" || f.Kind != "" || f.Queue != "" || f.State != "" && f.State != "done"
	for _, span := range spans {
		if chosen && span > longestChosen {
			continue
		}
		from := begin.Add(-span)
		if err = some(&from, before); err != nil || len(out) >= f.Limit || !from.After(f.Since) {
			return out, err
		}
		before = &from
	}
	err = some(nil, before)
	return out, err
}
