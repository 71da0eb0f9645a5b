package store

import (
	"context"
	"fmt"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
)

// Claim is a batch in flight.
type Claim struct {
	ID      int64
	Session uuid.UUID
	Turn    int32
	Jobs    []job.ID
}

// InsertClaim claims jobs that were read when the lock's removals stood at the
// given count, and returns the claim of each turn among them. ErrFenced: nothing
// was claimed.
func InsertClaim(ctx context.Context, db DB, f Fence, removals int64, ids []int64, turns []int32) (byTurn map[int32]int64, err error) {
	rows, err := db.Query(ctx, sqlClaimInsert, f.Session, f.Epoch, removals, ids, turns)
	if err != nil {
		return nil, fmt.Errorf("claim %d jobs: %w", len(ids), translate(err))
	}
	byTurn = make(map[int32]int64, 1)
	var id int64
	var turn int32
	_, err = pgx.ForEachRow(rows, []any{&id, &turn}, func() error {
		byTurn[turn] = id
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("claim %d jobs: %w", len(ids), translate(err))
	case len(byTurn) == 0:
		return nil, ErrFenced
	}
	return byTurn, nil
}

// Claims lists what is in flight. Called after TakeLock it shows every claim that
// was ever committed before, because of the fence.
func Claims(ctx context.Context, db DB) ([]Claim, error) {
	rows, err := db.Query(ctx, sqlClaimList)
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", translate(err))
	}
	out, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claim, err error) {
		err = row.Scan(&c.ID, &c.Session, &c.Turn, &c.Jobs)
		return c, err
	})
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", translate(err))
	}
	return out, nil
}

// ReturnUnstarted gives jobs back that never started: claims[i] loses jobs[i].
func ReturnUnstarted(ctx context.Context, db DB, claims, jobs []int64) error {
	if _, err := db.Exec(ctx, sqlClaimReturn, claims, jobs); err != nil {
		return fmt.Errorf("give %d unstarted jobs back: %w", len(jobs), translate(err))
	}
	return nil
}

// SweepClaims removes claims of a session that it does not know of, because the
// answer to its InsertClaim got lost. The caller must have taken the lock anew
// since, so that no such INSERT can still be on its way.
func SweepClaims(ctx context.Context, db DB, session uuid.UUID, known []int64) (int, error) {
	tag, err := db.Exec(ctx, sqlClaimSweep, session, notNil(known))
	if err != nil {
		return 0, fmt.Errorf("remove claims without an owner: %w", translate(err))
	}
	return int(tag.RowsAffected()), nil
}

// Reaped counts what a call of ReapClaims took back.
type Reaped struct{ Claims, Back, Dead int }

// ReapClaims takes back a bounded number of claims of ended sessions; call it
// until Claims is 0. A job that has lost its node maxLosses times goes to the dead
// letters. ErrFenced: nothing was changed.
func ReapClaims(ctx context.Context, db DB, f Fence, maxLosses int) (Reaped, error) {
	var r Reaped
	var fence int
	err := db.QueryRow(ctx, sqlClaimReap, f.Session, f.Epoch, maxLosses).Scan(&fence, &r.Claims, &r.Back, &r.Dead)
	if err != nil {
		return Reaped{}, fmt.Errorf("reap claims: %w", translate(err))
	}
	if fence == 0 {
		return Reaped{}, ErrFenced
	}
	return r, nil
}
