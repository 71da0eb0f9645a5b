package store

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// What an operation does: to dead letters, or to jobs that have not ended.
const (
	RetryDeadLetters  = "retry"
	DeleteDeadLetters = "delete"
	CancelJobs        = "cancel"
)

// Operation is what somebody wants done to dead letters, or to jobs, of a pool in the background.
type Operation struct {
	ID        uuid.UUID
	Action    string     // RetryDeadLetters, DeleteDeadLetters or CancelJobs
	Filter    DeadFilter // of jobs to be cancelled their tenant and kind, and Before which they were made
	Jobs      ChosenJobs // what else chooses; of dead letters their tag and correlation id, which are not in Filter
	Group     string     // of the dead letters; "": of any
	PerSecond float64    // dead letters or jobs; 0: as many as that goes
	By        string     // who asked for it

	CreatedAt time.Time
	EndedAt   time.Time // zero: it is under way
	State     string    // running, done or cancelled
	Done      int64     // retried, or deleted
	KeyTaken  int64     // stay dead, because an unfinished job has their unique key
	Left      int64     // stay dead for other reasons
	Failure   string    // of the last step, which is tried again; "": it has not failed
}

// ChosenJobs is what chooses jobs; empty fields choose all.
type ChosenJobs struct{ Queue, State, Tag, CorrelationID string }

// AddOperation adds an operation, to be carried out by the holder of the pool's lock. Without a time in
// its filter it chooses what has died, or was made, before now.
func AddOperation(ctx context.Context, db DB, o Operation) error {
	f := o.Filter
	_, err := db.Exec(ctx, sqlOperationAdd, o.ID, o.Action, nullable(f.Tenant), nullable(f.Kind), nullable(strings.ToLower(f.Error)), nullable(o.Group),
		nullable(f.Before), nullable(o.PerSecond), o.By, nullable(o.Jobs.Queue), nullable(o.Jobs.State), nullable(o.Jobs.Tag), nullable(o.Jobs.CorrelationID))
	return explain(err, "add an operation")
}

// Operations lists operations, the newest first, at most so many; id chooses one.
func Operations(ctx context.Context, db DB, id uuid.UUID, most int) ([]Operation, error) {
	return list(ctx, db, "list operations", func(row pgx.CollectableRow) (o Operation, err error) {
		var ended *time.Time
		err = row.Scan(&o.ID, &o.Action, &o.Filter.Tenant, &o.Filter.Kind, &o.Filter.Error, &o.Group, &o.Filter.Before, &o.PerSecond,
			&o.Jobs.Queue, &o.Jobs.State, &o.Jobs.Tag, &o.Jobs.CorrelationID, &o.By, &o.CreatedAt, &o.State, &ended, &o.Done, &o.KeyTaken, &o.Left, &o.Failure)
		o.EndedAt = deref(ended)
		return o, err
	}, sqlOperationList, nullable(id), most)
}

// CancelOperation ends an operation and tells whether it was under way. ErrNotFound: it is not here.
func CancelOperation(ctx context.Context, db DB, id uuid.UUID) (running bool, err error) {
	err = db.QueryRow(ctx, sqlOperationCancel, id).Scan(&running)
	if errors.Is(err, pgx.ErrNoRows) {
		return false, ErrNotFound
	}
	return running, explain(err, "cancel an operation")
}

// TrimOperations forgets operations that ended long ago.
func TrimOperations(ctx context.Context, db DB, kept time.Duration) error {
	_, err := db.Exec(ctx, sqlOperationTrim, kept.Milliseconds())
	return explain(err, "forget operations")
}

// OperationsDue is what is to be done of operations.
type OperationsDue struct {
	Some  bool          // are under way
	Paced bool          // all of them have a rate
	In    time.Duration // until the next step
}

// OperationDue tells in what time the next step of an operation is due.
func OperationDue(ctx context.Context, db DB) (d OperationsDue, err error) {
	var due *int64
	err = db.QueryRow(ctx, sqlOperationDue).Scan(&due, &d.Paced)
	d.Some, d.In = due != nil, time.Duration(deref(due))*time.Millisecond
	return d, explain(err, "look for operations")
}

// NoteFailure keeps why the step whose turn it was has failed, for people to see; others go first then.
func NoteFailure(ctx context.Context, db DB, failure error) error {
	_, err := db.Exec(ctx, sqlOperationFail, strings.ToValidUTF8(strings.ReplaceAll(failure.Error(), "\x00", ""), ""))
	return explain(err, "note why an operation fails")
}

const (
	// operationPage is how many dead letters or jobs a step looks at.
	operationPage = 1000
	// OperationStep is how many it changes at most: what is added to a queue at once delays
	// others' jobs.
	OperationStep = 500
	// operationRhythm is into how many steps a second is divided where there is a rate.
	operationRhythm = 10
)

// Stepper is what steps of operations need to know of the node that carries them out.
type Stepper struct {
	Most    int                             // how many a step changes at most; 0: it passes one by
	Text    int                             // how many characters of an error InGroup needs
	InGroup func(d Dead, group string) bool // tells whether a dead letter is in a group
	Keep    bool                            // retain cancelled jobs among the finished ones
}

// place is how far an operation has got.
type place struct {
	pass  int   // of CancelPasses
	after int64 // the id there
}

// step is what came of one.
type step struct {
	lanes                 []Lane
	next                  place
	more                  bool // behind next
	tried, done, keyTaken int
}

// StepOperation does the next step of the operation whose turn it is, if one is due: it changes some dead letters
// or jobs, behind those of the step before, in one transaction with how far it is. So none is done
// twice, whichever node carries out which step. lanes are where jobs wait now. ErrLocked: somebody has locked
// a job, or a transaction that is open has taken a unique key that is needed; nothing was done.
func StepOperation(ctx context.Context, db Beginner, by Stepper) (lanes []Lane, err error) {
	err = pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
		var o Operation
		var at place
		err := tx.QueryRow(ctx, sqlOperationTake).Scan(&o.ID, &o.Action, &o.Filter.Tenant, &o.Filter.Kind, &o.Filter.Error, &o.Group, &o.Filter.Before, &o.Filter.Ahead, &o.PerSecond,
			&o.Jobs.Queue, &o.Jobs.State, &o.Jobs.Tag, &o.Jobs.CorrelationID, &at.pass, &at.after)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return err
		}
		size := by.Most
		if o.PerSecond > 0 {
			size = min(size, int(o.PerSecond/operationRhythm))
		}
		size = max(size, 1)
		var s step
		if o.Action == CancelJobs {
			s, err = stepJobs(ctx, tx, &o, at, size, by)
		} else {
			s, err = stepDead(ctx, tx, &o, at, size, by)
		}
		if err != nil {
			return err
		}
		var wait time.Duration
		if o.PerSecond > 0 {
			wait = time.Duration(float64(s.tried) / o.PerSecond * float64(time.Second))
		}
		lanes = s.lanes
		_, err = tx.Exec(ctx, sqlOperationStep, o.ID, s.next.after, s.done, s.keyTaken, s.tried-s.done-s.keyTaken, s.more, wait.Milliseconds(), s.next.pass)
		return err
	})
	if err != nil {
		return nil, explain(err, "carry out an operation")
	}
	return lanes, nil
}

// stepDead retries or deletes the next size dead letters at most.
func stepDead(ctx context.Context, tx pgx.Tx, o *Operation, at place, size int, by Stepper) (s step, err error) {
	if o.Group == "" {
		by.Text = 0
	}
	f := o.Filter
	f.Tag, f.CorrelationID = o.Jobs.Tag, o.Jobs.CorrelationID
	some, last, more, _, err := ReadDead(ctx, tx, f, at.after, operationPage, by.Text)
	if err != nil {
		return s, err
	}
	if o.Group != "" {
		some = slices.DeleteFunc(some, func(d Dead) bool { return !by.InGroup(d, o.Group) })
	}
	slices.SortFunc(some, func(a, b Dead) int { return cmp.Compare(a.ID, b.ID) })
	if len(some) > size {
		some = some[:size]
		last = int64(some[size-1].ID)
	}
	if !more {
		last = at.after
	}
	s = step{next: place{after: last}, more: more, tried: len(some)}
	switch {
	case by.Most == 0 || len(some) == 0:
	case o.Action == RetryDeadLetters:
		s.lanes, s.keyTaken, err = RetryDead(ctx, tx, some)
		s.done = len(s.lanes)
	case o.Action == DeleteDeadLetters:
		s.done, err = DeleteDead(ctx, tx, some)
	}
	return s, err
}

// CancelPasses are the tables that jobs are cancelled in, one after the other. Once those in tenure.job are asked
// for, none of them is tried again; what is resumed or fires meanwhile is found in a table behind.
var CancelPasses = []string{PlaceJob, PlaceSuspended, PlaceTimer, PlaceJob, PlaceExternal}

// stepJobs cancels the next size jobs at most.
func stepJobs(ctx context.Context, tx pgx.Tx, o *Operation, at place, size int, by Stepper) (s step, err error) {
	f := MovableFilter{Tenant: o.Filter.Tenant, Kind: o.Filter.Kind, Before: o.Filter.Before,
		Wanted: true, Queue: o.Jobs.Queue, State: o.Jobs.State, Tag: o.Jobs.Tag, CorrelationID: o.Jobs.CorrelationID}
	ids, last, more, _, err := ReadMovable(ctx, tx, CancelPasses[at.pass], f, at.after, operationPage)
	if err != nil {
		return s, err
	}
	slices.Sort(ids)
	if len(ids) > size {
		ids = ids[:size]
		last = ids[size-1]
	}
	s = step{next: place{at.pass, last}, more: true, tried: len(ids)}
	if !more {
		s.next = place{at.pass + 1, BeforeAllJobs}
		s.more = s.next.pass < len(CancelPasses)
	}
	if by.Most == 0 || len(ids) == 0 {
		return s, nil
	}
	err = briefly(ctx, tx, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&s.done) })
	}, sqlOperationCancelJobs, ids, by.Keep)
	if at.pass == 0 {
		s.tried = s.done // the others are come by once more
	}
	return s, explain(err, "cancel %d jobs", len(ids))
}
