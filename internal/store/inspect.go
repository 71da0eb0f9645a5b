package store

import (
	"context"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Status is a job as an operator sees it.
type Status struct {
	ID            job.ID
	State         string // waiting, running, scheduled, retrying, suspended, dead, done, cancelled
	Tenant        string
	Queue         string
	Kind          string
	Priority      int16
	Attempt       int // runs so far, the running one not included
	MaxAttempts   int // 0: the kind's
	Losses        int
	CreatedAt     time.Time
	At            time.Time // started, due, suspended, died or finished, by state
	Node          string    // of a running job
	Error         string    // the last one
	Payload       []byte
	Meta          []byte
	UniqueKey     string
	CorrelationID string
	Handled       bool // whether some live node has a handler for it
}

// Filter chooses jobs; empty fields choose all.
type Filter struct {
	State, Tenant, Kind, Queue string
	ID                         job.ID
	Limit                      int
}

// List returns jobs, newest first within each state.
func List(ctx context.Context, db DB, f Filter) ([]Status, error) {
	var id *int64
	if f.ID != 0 {
		n := int64(f.ID)
		id = &n
	}
	rows, err := db.Query(ctx, sqlJobList, nullable(f.State), nullable(f.Tenant), nullable(f.Kind), nullable(f.Queue), id, f.Limit)
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", translate(err))
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (s Status, err error) {
		var maxAttempts *int
		var at *time.Time
		var node, errText, unique, correlation *string
		err = row.Scan(&s.ID, &s.State, &s.Tenant, &s.Queue, &s.Kind, &s.Priority, &s.Attempt, &maxAttempts, &s.Losses,
			&s.CreatedAt, &at, &node, &errText, &s.Payload, &s.Meta, &unique, &correlation, &s.Handled)
		s.MaxAttempts, s.At, s.Node, s.Error = deref(maxAttempts), deref(at), deref(node), deref(errText)
		s.UniqueKey, s.CorrelationID = deref(unique), deref(correlation)
		return s, err
	})
	if err != nil {
		return nil, fmt.Errorf("list jobs: %w", translate(err))
	}
	return out, nil
}

// RunError is one failed run.
type RunError struct {
	Attempt int
	At      time.Time
	Node    string
	Error   string
	Stack   string
}

// Errors lists a job's failed runs, oldest first.
func Errors(ctx context.Context, db DB, id job.ID) ([]RunError, error) {
	rows, err := db.Query(ctx, sqlJobErrors, int64(id))
	if err != nil {
		return nil, fmt.Errorf("list the errors of job %d: %w", id, translate(err))
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (e RunError, err error) {
		err = row.Scan(&e.Attempt, &e.At, &e.Node, &e.Error, &e.Stack)
		return e, err
	})
	if err != nil {
		return nil, fmt.Errorf("list the errors of job %d: %w", id, translate(err))
	}
	return out, nil
}

// Counts is how many jobs stand where. Claimed ones are among Waiting until they
// are finished; a claim may still list some that are.
type Counts struct{ Waiting, Claimed, Timers, Suspended, Dead, Finished int64 }

// Count counts every job: a look at each row, so not for a hot path.
func Count(ctx context.Context, db DB) (c Counts, err error) {
	err = db.QueryRow(ctx, sqlJobCount).Scan(&c.Waiting, &c.Claimed, &c.Timers, &c.Suspended, &c.Dead, &c.Finished)
	if err != nil {
		return c, fmt.Errorf("count jobs: %w", translate(err))
	}
	return c, nil
}

// Unhandled counts waiting jobs by kind that no live node has a handler for,
// among the first ten thousand.
func Unhandled(ctx context.Context, db DB) (map[string]int, error) {
	rows, err := db.Query(ctx, sqlUnhandled)
	if err != nil {
		return nil, fmt.Errorf("count jobs without a handler: %w", translate(err))
	}
	out := map[string]int{}
	var kind string
	var n int
	if _, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error { out[kind] = n; return nil }); err != nil {
		return nil, fmt.Errorf("count jobs without a handler: %w", translate(err))
	}
	return out, nil
}
