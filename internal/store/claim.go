package store

import (
	"context"
	"fmt"
	"time"

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

// ReleaseClaims removes claims of a session whose jobs are all gone.
func ReleaseClaims(ctx context.Context, db DB, session uuid.UUID, claims []int64) error {
	if _, err := db.Exec(ctx, sqlClaimRelease, session, claims); err != nil {
		return fmt.Errorf("remove claims: %w", translate(err))
	}
	return nil
}

// Claimed is what InsertClaim has done.
type Claimed struct {
	ByTurn map[int32]int64 // the claim of each turn among the jobs
	XID    int64           // of its transaction; whoever had drawn a position before has a lower one
}

// InsertClaim claims jobs that were read when the lock's removals stood at the
// given count. ErrFenced: nothing was claimed.
func InsertClaim(ctx context.Context, db DB, f Fence, removals int64, ids []int64, turns []int32) (c Claimed, err error) {
	rows, err := db.Query(ctx, sqlClaimInsert, f.Session, f.Epoch, removals, ids, turns, f.Incarnation)
	if err != nil {
		return c, fmt.Errorf("claim %d jobs: %w", len(ids), translate(err))
	}
	c.ByTurn = make(map[int32]int64, 1)
	var id int64
	var turn int32
	_, err = pgx.ForEachRow(rows, []any{&id, &turn, &c.XID}, func() error {
		c.ByTurn[turn] = id
		return nil
	})
	switch {
	case err != nil:
		return Claimed{}, fmt.Errorf("claim %d jobs: %w", len(ids), translate(err))
	case len(c.ByTurn) == 0:
		return Claimed{}, ErrFenced
	}
	return c, nil
}

// Given is a claim that was made for another session.
type Given struct {
	ID      int64
	Session uuid.UUID
	Turn    int32
	XID     int64 // see Claimed
}

// GiveClaims claims jobs for other nodes' sessions: job i for sessions[to[i]]. A
// session that has ended gets none. It returns what was claimed; nothing means that
// the lock is lost, that jobs were taken away, or that no session lives.
func GiveClaims(ctx context.Context, db DB, f Fence, removals int64, ids []int64, turns, to []int32, sessions []uuid.UUID) ([]Given, error) {
	n := make([]int32, len(to))
	for i := range to {
		n[i] = to[i] + 1
	}
	rows, err := db.Query(ctx, sqlClaimGive, f.Session, f.Epoch, removals, ids, turns, n, sessions, f.Incarnation)
	if err != nil {
		return nil, fmt.Errorf("claim %d jobs for other nodes: %w", len(ids), translate(err))
	}
	given, err := pgx.CollectRows(rows, pgx.RowToStructByPos[Given])
	if err != nil {
		return nil, fmt.Errorf("claim %d jobs for other nodes: %w", len(ids), translate(err))
	}
	return given, nil
}

// Accepted is a claim that a session took over.
type Accepted struct {
	ID   int64
	Jobs []job.Record // none: they are all gone; without a payload: it is too large
}

// AcceptClaims takes over every claim that was given to a session and is not among
// those it knows. It can be repeated after a lost answer.
func AcceptClaims(ctx context.Context, db DB, session uuid.UUID, known []int64) ([]Accepted, error) {
	rows, err := db.Query(ctx, sqlClaimAccept, session, notNil(known), MaxJobBytes)
	if err != nil {
		return nil, fmt.Errorf("take claims over: %w", translate(err))
	}
	var out []Accepted
	at := map[int64]int{} // by id, into out
	for rows.Next() {
		var claim int64
		var id *job.ID
		var r job.Record
		var kind, tenant, queue, unique, correlation *string
		var attempt, maxAttempts, losses, priority *int16
		var timeout *int32
		var created *time.Time
		if err := rows.Scan(&claim, &id, &r.Turn, &kind, &attempt, &maxAttempts, &losses, &timeout, &created,
			&r.Payload, &r.Meta, &unique, &correlation, &tenant, &queue, &priority); err != nil {
			rows.Close()
			return nil, fmt.Errorf("take claims over: %w", translate(err))
		}
		i, seen := at[claim]
		if !seen {
			i = len(out)
			at[claim] = i
			out = append(out, Accepted{ID: claim})
		}
		if id == nil {
			continue
		}
		r.ID, r.Kind, r.Tenant, r.Queue, r.Priority = *id, *kind, *tenant, *queue, *priority
		r.Attempt, r.MaxAttempts, r.Losses = int(*attempt)+1, int(deref(maxAttempts)), int(*losses)
		r.Timeout, r.CreatedAt = time.Duration(deref(timeout))*time.Millisecond, *created
		r.UniqueKey, r.CorrelationID = deref(unique), deref(correlation)
		out[i].Jobs = append(out[i].Jobs, r)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("take claims over: %w", translate(err))
	}
	return out, nil
}

// WithdrawClaims takes back what was given longer ago than patience and has not
// been taken over, and returns the claims. Those that somebody has locked stay.
func WithdrawClaims(ctx context.Context, db DB, f Fence, patience time.Duration) (withdrawn []int64, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.Query(func(rows pgx.Rows) (err error) {
			withdrawn, err = pgx.CollectRows(rows, pgx.RowTo[int64])
			return err
		})
	}, sqlClaimWithdraw, f.Session, f.Epoch, patience.Milliseconds())
	if err != nil {
		return nil, fmt.Errorf("withdraw claims: %w", err)
	}
	return withdrawn, nil
}

// Standing is a claim in flight.
type Standing struct {
	ID   int64
	Jobs []job.ID // what it lists, if that was asked for; nil: it was not
}

// StandingClaims lists the claims in flight and, of those among claims that list another
// number of jobs than jobs says, pairwise, which.
func StandingClaims(ctx context.Context, db DB, claims []int64, jobs []int32) ([]Standing, error) {
	rows, err := db.Query(ctx, sqlClaimStanding, claims, jobs)
	if err == nil {
		var out []Standing
		if out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[Standing]); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("list claims: %w", translate(err))
}

func collectIDs(ctx context.Context, db DB, what, sql string, args ...any) ([]int64, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err == nil {
		var ids []int64
		if ids, err = pgx.CollectRows(rows, pgx.RowTo[int64]); err == nil {
			return ids, nil
		}
	}
	return nil, fmt.Errorf("%s: %w", what, translate(err))
}

// Claims lists what is in flight. Called after TakeLock it shows every claim that
// was ever committed before, because of the fence.
func Claims(ctx context.Context, db DB) ([]Claim, error) {
	rows, err := db.Query(ctx, sqlClaimList)
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", translate(err))
	}
	out, err := collectClaims(rows)
	if err != nil {
		return nil, fmt.Errorf("list claims: %w", translate(err))
	}
	return out, nil
}

func collectClaims(rows pgx.Rows) ([]Claim, error) {
	return pgx.CollectRows(rows, func(row pgx.CollectableRow) (c Claim, err error) {
		err = row.Scan(&c.ID, &c.Session, &c.Turn, &c.Jobs)
		return c, err
	})
}

// ReturnUnstarted gives jobs of a session back that never started: claims[i] loses
// jobs[i]. ErrLocked: somebody has locked a claim.
func ReturnUnstarted(ctx context.Context, db DB, session uuid.UUID, claims, jobs []int64) error {
	if err := briefly(ctx, db, lockTimeout, nil, sqlClaimReturn, session, claims, jobs); err != nil {
		return fmt.Errorf("give %d unstarted jobs back: %w", len(jobs), err)
	}
	return nil
}

// ClaimsMade lists the claims that a session must know of: those it made for itself,
// and those it has taken over. One that it does not know of is to be removed with
// ReleaseClaims, provided that no answer about it can still be on its way: its jobs were
// never started here. It is removed by its number, so that a statement which arrives
// late finds no claim that was made meanwhile.
func ClaimsMade(ctx context.Context, db DB, session uuid.UUID) ([]int64, error) {
	return collectIDs(ctx, db, "list the session's claims", sqlClaimMade, session)
}

// Spare takes back the loss that ReapClaims charged for runs of a session that was declared
// dead, by the process that ran them, which lives. turns are those of the runs, pairwise.
func Spare(ctx context.Context, db DB, ids []int64, turns []int32) error {
	if _, err := db.Exec(ctx, sqlClaimSpare, ids, turns); err != nil {
		return fmt.Errorf("take losses back: %w", translate(err))
	}
	return nil
}

// Reaped says what a call of ReapClaims came to.
type Reaped struct {
	Claims    int   // it looked at
	Last      int64 // of them
	Back      int   // jobs that wait again
	Dead      int   // jobs that went to the dead letters
	Cancelled int   // jobs that somebody had wanted cancelled
	Held      int   // jobs whose row somebody has locked; they are still in their claims
}

// ReapClaims takes back a bounded number of claims of ended sessions, those behind the
// claim after; call it with the last one until Claims is 0. It waits for no row: what
// somebody has locked is left for another time. A job that has lost its node maxLosses
// times goes to the dead letters. keep retains cancelled jobs. ErrFenced: nothing was
// changed. ErrLocked: neither was anything, as somebody has locked more than rows.
func ReapClaims(ctx context.Context, db DB, f Fence, maxLosses int, after int64, keep bool) (r Reaped, err error) {
	var fence int
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		q.QueryRow(func(row pgx.Row) error {
			return row.Scan(&fence, &r.Claims, &r.Last, &r.Back, &r.Dead, &r.Cancelled, &r.Held)
		})
	}, sqlClaimReap, f.Session, f.Epoch, maxLosses, after, keep)
	if err != nil {
		return Reaped{}, fmt.Errorf("reap claims: %w", err)
	}
	if fence == 0 {
		return Reaped{}, ErrFenced
	}
	return r, nil
}
