package store

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// ExternalStatus is an unfinished job of external workers.
type ExternalStatus struct {
	ExternalLock           // Worker is "" while nobody has locked it
	Until        time.Time // when the lock expires, or has: who asks for the topic next frees the job then; zero: it is not locked
	Tenant       string
	Queue        string
	Topic        string
	Attempt      int // runs so far
	MaxAttempts  int // 0: those of the policy
	CreatedAt    time.Time
	Due          time.Time // it is not acquired before; zero: at once
	Correlation  string
	Error        string // the last one
}

// ExternalFilter chooses and sorts unfinished jobs of external workers; empty fields choose all.
type ExternalFilter struct {
	Job         job.ID
	Tenants     []string
	Topic       string
	Worker      string // that has locked them
	Correlation string
	Locked      *bool
	Failed      *bool  // whether they have failed before
	Sort        string // created or tenant; "": id, of which a page is read by an index
	Descending  bool
	Limit       int
	Count       int // up to where those that there are are counted
}

// FindExternal returns an unfinished job of external workers; ErrNotFound: this pool has none of that id.
func FindExternal(ctx context.Context, db DB, id job.ID) (s ExternalStatus, err error) {
	err = scanExternal(db.QueryRow(ctx, sqlExternalFind, int64(id)), &s)
	if errors.Is(err, pgx.ErrNoRows) {
		return s, ErrNotFound
	}
	return s, explain(err, "look for job %d of external workers", id)
}

// ListExternal lists jobs, and says how many there are. Run it within [Inspect], as each filter needs a
// plan of its own.
func ListExternal(ctx context.Context, db DB, f ExternalFilter) (found []ExternalStatus, count int, err error) {
	found, err = list(ctx, db, "list jobs of external workers", func(row pgx.CollectableRow) (s ExternalStatus, err error) {
		err = scanExternal(row, &s, &count)
		return s, err
	}, sqlExternalList, f.Tenants, nullable(f.Topic), nullable(f.Worker), f.Locked, nullable(f.Correlation), f.Failed, f.Sort, f.Descending, f.Limit, f.Count, nullable(int64(f.Job)))
	return found, count, err
}

func scanExternal(row pgx.Row, s *ExternalStatus, more ...any) error {
	var worker, correlation, errText *string
	var until, due *time.Time
	var most *int
	err := row.Scan(append([]any{&s.Job, &s.Turn, &worker, &until, &s.Tenant, &s.Queue, &s.Topic, &s.Attempt, &most, &s.CreatedAt, &due, &correlation, &errText}, more...)...)
	s.Worker, s.Until, s.MaxAttempts, s.Due = deref(worker), deref(until), deref(most), deref(due)
	s.Correlation, s.Error = deref(correlation), deref(errText)
	return err
}
