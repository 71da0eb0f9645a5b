package store

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/job"
)

// Damaged is a job whose payload or meta cannot be read.
type Damaged struct {
	ID     job.ID
	Tenant string
	Damage string // what is wrong
}

// DamagedError says that nothing was moved, as some jobs cannot be read. They were put off for ten minutes, so
// that the others can be moved now.
type DamagedError struct{ Jobs []Damaged }

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%d jobs cannot be read, the first one %s: %s", len(e.Jobs), e.Jobs[0].ID, e.Jobs[0].Damage)
}

// putOff has find put off what cannot be read, if that is why err came about, and returns what is to be said.
func putOff(err error, find func() ([]Damaged, error)) error {
	if !IsUnreadable(err) {
		return err
	}
	jobs, later := find()
	if later != nil {
		return errors.Join(later, err)
	}
	if len(jobs) == 0 {
		return err
	}
	return &DamagedError{jobs}
}

// FindDamaged lists the jobs that cannot be read among the oldest that wait, the oldest timers, and the oldest
// of external workers, so many of each.
func FindDamaged(ctx context.Context, db DB, among int) ([]Damaged, error) {
	return list(ctx, db, "look for damaged jobs", pgx.RowToStructByPos[Damaged], sqlJobDamaged, among)
}

// settleDamaged makes what cannot be read no reason not to write the ends of runs: a job that was to run again stays
// where it is, to be set aside when it is read; one that has ended is without what cannot be
// read from now on. No run is changed: it returns those that are to be written.
func settleDamaged(ctx context.Context, db DB, runs []Finished) ([]Finished, error) {
	var c idColumns
	ends := make([]bool, len(runs))
	for i, r := range runs {
		c.add(r.Record)
		ends[i] = jobstate.Of(r.Outcome.State.String()).Ended()
	}
	var damaged []job.ID
	err := briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		collectInto(q, &damaged, pgx.RowTo[job.ID])
	}, sqlFinishDamaged, c.ids, c.turns, ends)
	runs = slices.Clone(runs)
	for i, r := range runs {
		if !ends[i] && slices.Contains(damaged, r.Record.ID) {
			runs[i].Outcome = job.Outcome{State: job.Returned}
		}
	}
	return runs, err
}
