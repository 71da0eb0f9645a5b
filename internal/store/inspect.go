package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Status is a job as an operator sees it.
type Status struct {
	Pool string // of who asks several; the store leaves it empty

	ID            job.ID
	State         string // a word of internal/jobstate
	Tenant        string
	Queue         string
	Kind          string
	Priority      int16
	Attempt       int // runs so far, the running one not included
	MaxAttempts   int // 0: the kind's
	Losses        int
	CreatedAt     time.Time
	At            time.Time // claim started, due, suspended, died or finished, by state
	StartedAt     time.Time // of the last run of a finished job, or of the run of a running one that has reported; else zero
	Node          string    // of a claimed, running or finished job
	Error         string    // the last one
	Payload       []byte
	Meta          []byte
	UniqueKey     string
	ExclusiveKey  string
	CorrelationID string
	Timeout       time.Duration   // of each run; 0: the kind's
	Handled       bool            // whether some live node has a handler for it
	External      bool            // it is for workers outside the cluster; Node is the one that has locked it until At
	ResumeAt      time.Time       // when a suspended job is to be resumed; zero: when somebody says so
	ListedAt      time.Time       // by which lists are ordered, and then by ids: when it was made, or, of the unfinished ones, a little earlier
	CancelAsked   time.Time       // when somebody asked for it to be cancelled, which waits; zero: nobody did; of a single job only, not in lists
	Reports       []job.RunReport // what its runs said of themselves, in their order; of a single job only, not in lists
}

// Filter chooses jobs; empty fields choose all.
type Filter struct {
	State, Tenant, Kind, Queue string
	CorrelationID              string
	Tags                       []string // a job has all of them
	ID                         job.ID
	After                      Cursor    // only jobs behind it in the list; zero: all
	Since, Until               time.Time // only jobs made at Since or later, and before Until; zero: all
	Error                      string    // only dead letters whose error contains it; with that state
	Node                       string    // only jobs that are with it; with a state in which they are
	Limit                      int
}

// Inspect calls fn with a read-only transaction in which statements are planned for their
// arguments, and may scan tables: what an operator asks is not job SQL, for whose one plan
// its connections are set up. ErrLocked: somebody has locked a table for longer than two seconds; it says who.
func Inspect(ctx context.Context, db Beginner, fn func(DB) error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.ReadCommitted, AccessMode: pgx.ReadOnly})
	if err != nil {
		return translate(err)
	}
	defer tx.Rollback(ctx)
	if _, err := tx.Exec(ctx, sqlPlanFreely); err != nil {
		return translate(err)
	}
	err = fn(tx)
	if errors.Is(err, ErrLocked) && tx.Rollback(ctx) == nil {
		err = nameHolder(ctx, db, err)
	}
	return err
}

// nameHolder adds to an error with ErrLocked who has locked the ledger's tables.
func nameHolder(ctx context.Context, db Beginner, locked error) error {
	tx, err := db.BeginTx(ctx, pgx.TxOptions{AccessMode: pgx.ReadOnly})
	if err != nil {
		return locked
	}
	defer tx.Rollback(ctx)
	h, ok, err := FindTableHolder(ctx, tx, "")
	if err != nil || !ok {
		return locked
	}
	return fmt.Errorf("%v; if that is not meant: %s: %w", h, h.End(), locked)
}

// Errors lists a job's failed runs, oldest first.
func Errors(ctx context.Context, db DB, id job.ID) ([]job.RunError, error) {
	return list(ctx, db, fmt.Sprintf("list the errors of job %d", id), func(row pgx.CollectableRow) (e job.RunError, err error) {
		var began *time.Time
		err = row.Scan(&e.Attempt, &e.At, &e.Node, &e.Error, &e.Stack, &began)
		e.Began = deref(began)
		return e, err
	}, sqlJobErrors, int64(id))
}

// Counts is how many jobs stand where. Claimed ones are among Waiting until they
// are finished.
type Counts struct{ Waiting, Claimed, Timers, Awaiting, External, Suspended, Dead, Finished int64 }

// Count counts every job: a look at each row, so not for a hot path.
func Count(ctx context.Context, db DB) (c Counts, err error) {
	err = db.QueryRow(ctx, sqlJobCount).Scan(&c.Waiting, &c.Claimed, &c.Timers, &c.Awaiting, &c.External, &c.Suspended, &c.Dead, &c.Finished)
	return c, explain(err, "count jobs")
}

// JobWithKey is the job that has a tenant's unique key, or took it for a period that is not over; 0: none has.
func JobWithKey(ctx context.Context, db DB, tenant, key string) (id job.ID, err error) {
	all, err := list(ctx, db, "look for a unique key", pgx.RowTo[job.ID], sqlUniqueFind, tenant, key)
	if len(all) > 0 {
		id = all[0]
	}
	return id, err
}

// CancelAsked is when somebody asked for an unfinished job to be cancelled; zero: nobody did.
func CancelAsked(ctx context.Context, db DB, id job.ID) (at time.Time, err error) {
	all, err := list(ctx, db, fmt.Sprintf("see whether job %d is to be cancelled", id), pgx.RowTo[time.Time], sqlCancelAsked, int64(id))
	if len(all) > 0 {
		at = all[0]
	}
	return at, err
}

// AwaitedFailed is the first job that did not end well of those that another one awaited, and what became of it: dead or
// cancelled; 0: there is none.
func AwaitedFailed(ctx context.Context, db DB, id job.ID) (failed job.ID, outcome string, err error) {
	err = db.QueryRow(ctx, sqlAwaitedFailed, int64(id)).Scan(&failed, &outcome)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return failed, outcome, explain(err, "see what job %d awaited", id)
}

// Unhandled counts waiting jobs by kind that no live node has a handler for,
// among the first ten thousand.
func Unhandled(ctx context.Context, db DB) (map[string]int, error) {
	rows, _ := db.Query(ctx, sqlUnhandled) // its error is the rows', too
	out := map[string]int{}
	var kind string
	var n int
	_, err := pgx.ForEachRow(rows, []any{&kind, &n}, func() error { out[kind] = n; return nil })
	return out, explain(err, "count jobs without a handler")
}
