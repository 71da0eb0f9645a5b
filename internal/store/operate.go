package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Cancel ends an unfinished job wherever it stands. A running one is asked to
// end: its session sees the request with its next heartbeat. keep retains it
// among the finished ones. ErrNotFound: no unfinished job has this id.
func Cancel(ctx context.Context, db Beginner, id job.ID, keep bool) (running bool, err error) {
	tx, err := db.BeginTx(ctx, readCommitted)
	if err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	defer tx.Rollback(ctx) // after a commit it does nothing
	if err := LockOutClaims(ctx, tx); err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	var cancelled, claimed int
	if err := tx.QueryRow(ctx, sqlCancelJob, int64(id), keep).Scan(&cancelled, &claimed); err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, translate(err))
	}
	if cancelled+claimed == 0 {
		return false, notHere(ctx, tx, id)
	}
	if err := tx.Commit(ctx); err != nil {
		return false, fmt.Errorf("cancel job %d: %w", id, err)
	}
	return claimed > 0, nil
}

// notHere says why a job was not found: because it is on its way to another pool, or
// not there.
func notHere(ctx context.Context, db DB, id job.ID) error {
	var between BetweenPoolsError
	err := db.QueryRow(ctx, sqlJobBetween, int64(id)).Scan(&between.Tenant, &between.Other)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return ErrNotFound
	case err != nil:
		return fmt.Errorf("look for job %d: %w", id, translate(err))
	}
	return &between
}

// BetweenPoolsError says that a job cannot be changed while its tenant is being moved.
type BetweenPoolsError struct{ Tenant, Other string }

func (e *BetweenPoolsError) Error() string {
	return fmt.Sprintf("its tenant %q is being moved between this pool and %s: let the move come to its end first", e.Tenant, e.Other)
}

// LockOutClaims begins the work of somebody who takes waiting jobs away from
// outside the acquire loop: until tx ends no claim commits, and claims made from
// what was read before are void.
func LockOutClaims(ctx context.Context, tx pgx.Tx) error {
	var removals int64
	if err := tx.QueryRow(ctx, sqlRemovalLock).Scan(&removals); err != nil {
		return translate(err)
	}
	_, err := tx.Exec(ctx, sqlRemovalCount)
	return translate(err)
}

// Retry makes a dead, retrying or scheduled job wait to run now. ErrNotFound: none
// of that id. KeyTakenError: another job has its unique key.
func Retry(ctx context.Context, db DB, id job.ID) (Lane, error) {
	var l Lane
	var taken *job.ID
	err := db.QueryRow(ctx, sqlRetryJob, int64(id)).Scan(&l.Tenant, &l.Queue, &l.Priority, &taken)
	switch {
	case errors.Is(err, pgx.ErrNoRows):
		return l, notHere(ctx, db, id)
	case err != nil:
		return l, fmt.Errorf("retry job %d: %w", id, translate(err))
	case taken != nil:
		return l, &KeyTakenError{By: *taken}
	}
	return l, nil
}

// KeyTakenError says that an unfinished job has the unique key of the dead one that
// was to be retried.
type KeyTakenError struct {
	By job.ID // 0: not known
}

func (e *KeyTakenError) Error() string {
	if e.By == 0 {
		return "another job has its unique key"
	}
	return fmt.Sprintf("job %d has its unique key", e.By)
}

// CancelRequests lists the running jobs that somebody wants ended.
func CancelRequests(ctx context.Context, db DB) ([]job.ID, error) {
	rows, err := db.Query(ctx, sqlCancelList)
	if err != nil {
		return nil, fmt.Errorf("list cancel requests: %w", translate(err))
	}
	ids, err := pgx.CollectRows(rows, pgx.RowTo[job.ID])
	if err != nil {
		return nil, fmt.Errorf("list cancel requests: %w", translate(err))
	}
	return ids, nil
}

// CancelWaiting ends jobs that wait and that somebody wanted cancelled while they were
// claimed, by the holder of the lock, which has read them when the lock's removals stood
// at the given count. Those whose row somebody has locked stay. keep retains them among
// the finished ones. ErrFenced: nothing was changed.
func CancelWaiting(ctx context.Context, db DB, f Fence, removals int64, ids []int64, turns []int32, keep bool) (cancelled int, err error) {
	var fence int
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error { return row.Scan(&fence, &cancelled) })
	}, sqlCancelWaiting, f.Session, f.Epoch, removals, ids, turns, keep)
	switch {
	case err != nil:
		return 0, fmt.Errorf("cancel %d waiting jobs: %w", len(ids), err)
	case fence == 0:
		return 0, ErrFenced
	}
	return cancelled, nil
}

// ForgetCancelRequests removes the requests whose job has ended otherwise.
func ForgetCancelRequests(ctx context.Context, db DB) error {
	if err := briefly(ctx, db, lockTimeout, nil, sqlCancelForget); err != nil {
		return fmt.Errorf("forget cancel requests: %w", err)
	}
	return nil
}
