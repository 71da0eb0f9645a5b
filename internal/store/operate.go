package store

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Cancel ends an unfinished job wherever it stands. A running one is asked to
// end: its session sees the request with its next heartbeat. keep retains it
// among the finished ones. ErrNotFound: no unfinished job has this id. ErrLocked: until ctx
// ended somebody had locked its row, or more.
func Cancel(ctx context.Context, db Beginner, id job.ID, keep bool) (running bool, err error) {
	var missing error
	err = lockedOut(ctx, db, fmt.Sprintf("cancel job %d", id), func(tx pgx.Tx) error {
		var cancelled, claimed int
		if err := tx.QueryRow(ctx, sqlCancelJob, int64(id), keep).Scan(&cancelled, &claimed); err != nil {
			return err
		}
		if cancelled+claimed == 0 {
			if err := tx.QueryRow(ctx, sqlExternalCancel, int64(id), keep).Scan(&cancelled); err != nil {
				return err
			}
		}
		if cancelled+claimed == 0 {
			missing = notHere(ctx, tx, id)
		}
		running = claimed > 0
		if cancelled > 0 {
			_, err := tx.Exec(ctx, sqlAwaitedNote, arrayText([]int64{int64(id)}), "cancelled")
			return err
		}
		return missing
	})
	if missing != nil {
		return false, missing
	}
	return running, err
}

// notHere says why a job was not found: because it is on its way to another pool, or
// not there.
func notHere(ctx context.Context, db DB, id job.ID) error {
	between := BetweenPoolsError{Job: id}
	err := db.QueryRow(ctx, sqlJobBetween, int64(id)).Scan(&between.Tenant, &between.Other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return explain(err, "look for job %d", id)
	}
	return &between
}

// BetweenPoolsError says that a job cannot be changed while its tenant is being moved.
type BetweenPoolsError struct {
	Job           job.ID
	Tenant, Other string
}

func (e *BetweenPoolsError) Error() string {
	return fmt.Sprintf("its tenant %q is being moved between this pool and %s: let the move come to its end first", e.Tenant, e.Other)
}

// Pauses between the tries of anyone who locks claims out and meets somebody's lock: the
// holder of the acquire lock, which waits for each try, has most of the time for itself.
const (
	firstLockOut = 250 * time.Millisecond
	lastLockOut  = 2 * time.Second
)

// lockedOut takes waiting jobs away, or keeps them from being claimed, from outside the
// acquire loop: no claim commits while change works, and claims made from what was read
// before are void. Renewals of the lock wait meanwhile, too. So change may wait for
// somebody's lock for [lockTimeout] only; then everything is undone and tried again, until
// ctx ends. ErrLocked: it was in vain.
func lockedOut(ctx context.Context, db Beginner, what string, change func(pgx.Tx) error) error {
	return lockOut(ctx, db, what, lockOutClaims, change)
}

// bothLockedOut is [lockedOut] that keeps jobs from being acquired by external workers, too.
func bothLockedOut(ctx context.Context, db Beginner, what string, change func(pgx.Tx) error) error {
	return lockOut(ctx, db, what, func(ctx context.Context, tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlExternalShut, milliseconds(acquireEnds)); err != nil {
			return err
		}
		return lockOutClaims(ctx, tx)
	}, change)
}

// acquireEnds is how long who locks external workers out waits for those that acquire, while others
// that want to wait behind him.
const acquireEnds = 10 * lockTimeout

func lockOut(ctx context.Context, db Beginner, what string, begin func(context.Context, pgx.Tx) error, change func(pgx.Tx) error) error {
	began := time.Now()
	var locked error
	for pause := firstLockOut; ; pause = min(2*pause, lastLockOut) {
		err := translate(pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
			if err := begin(ctx, tx); err != nil {
				return err
			}
			return change(tx)
		}))
		if errors.Is(err, ErrLocked) {
			locked = err
			select {
			case <-ctx.Done():
			case <-time.After(pause + rand.N(pause/2)):
				continue
			}
		}
		switch {
		case err == nil:
			return nil
		case locked != nil && ctx.Err() != nil:
			return fmt.Errorf("%s: some session has kept what is needed locked for %v; end its transaction, or try again later: %w: %w",
				what, time.Since(began).Round(100*time.Millisecond), context.Cause(ctx), locked)
		}
		return fmt.Errorf("%s: %w", what, err)
	}
}

// lockOutClaims begins the transaction of [lockedOut].
func lockOutClaims(ctx context.Context, tx pgx.Tx) error {
	var removals int64
	if err := tx.QueryRow(ctx, sqlRemovalLock).Scan(&removals); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, sqlRemovalCount, milliseconds(lockTimeout))
	return err
}

// Retry is [RetryAs] with the priority that the job has.
func Retry(ctx context.Context, db DB, id job.ID) (Lane, error) { return RetryAs(ctx, db, id, nil) }

// RetryAs makes a dead, retrying or scheduled job wait to run now, with a priority; nil: as it is.
// ErrNotFound: none of that id. KeyTakenError: another job has its unique key.
func RetryAs(ctx context.Context, db DB, id job.ID, priority *int) (Lane, error) {
	var l Lane
	var taken *job.ID
	err := db.QueryRow(ctx, sqlRetryJob, int64(id), priority).Scan(&l.Tenant, &l.Queue, &l.Priority, &taken)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return l, notHere(ctx, db, id)
	case err != nil:
		return l, explain(err, "retry job %d", id)
	case taken != nil:
		return l, &job.KeyTakenError{By: *taken}
	}
	return l, nil
}

// Rerun adds a job that is what a finished one was. ErrNotFound: there is no such finished job. [job.KeyTakenError]: an unfinished job has its unique key. What
// else it is refused for is that of [Enqueue].
func Rerun(ctx context.Context, db DB, pool int, finished job.ID) (added job.ID, l Lane, err error) {
	var id *job.ID
	var duplicate *bool
	var refused, other *string
	err = db.QueryRow(ctx, sqlRerun, int64(finished), pool).Scan(&l.Tenant, &l.Queue, &l.Priority, &id, &duplicate, &refused, &other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return 0, l, ErrNotFound
	case err != nil:
		return 0, l, explainEnqueue(err)
	case refused != nil:
		return 0, l, refusal(*refused, l.Tenant, other)
	case id == nil || duplicate == nil:
		return 0, l, errNoID
	case *duplicate:
		return 0, l, &job.KeyTakenError{By: *id}
	}
	return *id, l, nil
}

// CancelRequests lists the jobs among a session's claims that somebody wants ended.
func CancelRequests(ctx context.Context, db DB, session uuid.UUID) ([]job.ID, error) {
	return list(ctx, db, "list cancel requests", pgx.RowTo[job.ID], sqlCancelList, session)
}

// Unwanted are jobs that wait and that somebody wants cancelled.
type Unwanted struct {
	Removals int64 // at which they were read
	IDs      []int64
	Turns    []int32
}

// Add adds a job.
func (u *Unwanted) Add(id job.ID, turn int32) {
	u.IDs, u.Turns = append(u.IDs, int64(id)), append(u.Turns, turn)
}

// FindUnwanted finds the next max jobs behind an id that somebody wants cancelled and that nobody
// has claimed, in one round trip, without a lock.
func FindUnwanted(ctx context.Context, db DB, after int64, max int) (u Unwanted, err error) {
	var b pgx.Batch
	b.Queue(sqlPageState).QueryRow(func(row pgx.Row) error {
		var s PageState
		err := s.scan(row)
		u.Removals = s.Removals
		return err
	})
	b.Queue(sqlCancelFind, after, max).Query(func(rows pgx.Rows) error {
		var id job.ID
		var turn int32
		_, err := pgx.ForEachRow(rows, []any{&id, &turn}, func() error { u.Add(id, turn); return nil })
		return err
	})
	return u, explain(db.SendBatch(ctx, &b).Close(), "find jobs to be cancelled")
}

// CancelWaiting ends jobs that wait and that somebody wants cancelled, by the holder of the lock,
// which has read them. Those stay whose row somebody has locked, or whose tenant is between two
// pools. keep retains them among the finished ones. ErrFenced: nothing was changed.
func CancelWaiting(ctx context.Context, db DB, f Fence, u Unwanted, keep bool) (cancelled int, err error) {
	var fence int
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&fence, &cancelled) })
	}, sqlCancelWaiting, f.Session, f.Epoch, u.Removals, u.IDs, u.Turns, keep)
	switch {
	case err != nil:
		return 0, explain(err, "cancel %d waiting jobs", len(u.IDs))
	case fence == 0:
		return 0, ErrFenced
	}
	return cancelled, nil
}

// ForgetCancelRequests removes the requests whose job has ended otherwise.
func ForgetCancelRequests(ctx context.Context, db DB) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlCancelForget), "forget cancel requests")
}
