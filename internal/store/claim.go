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
	_, err := db.Exec(ctx, sqlClaimRelease, session, claims)
	return explain(err, "remove claims")
}

// ClaimRequest is jobs to be claimed, and who is to run them.
type ClaimRequest struct {
	removals  int64 // of the lock, when the jobs were read
	ids       []int64
	turns, to []int32
	peers     []uuid.UUID
	buckets   []Bucket
}

// NewClaimRequest returns one for so many jobs that were read when the lock's removals stood
// at the given count.
func NewClaimRequest(removals int64, jobs int) *ClaimRequest {
	return &ClaimRequest{removals: removals, ids: make([]int64, 0, jobs), turns: make([]int32, 0, jobs), to: make([]int32, 0, jobs), peers: []uuid.UUID{}}
}

// AddPeer has the jobs that are added from now on claimed for another node's session. Those
// before the first call are the holder's own.
func (r *ClaimRequest) AddPeer(session uuid.UUID) { r.peers = append(r.peers, session) }

// Add adds a job.
func (r *ClaimRequest) Add(id job.ID, turn int32) {
	r.ids, r.turns, r.to = append(r.ids, int64(id)), append(r.turns, turn), append(r.to, int32(len(r.peers)))
}

// Spend has the claim say how things stand with buckets that it takes tokens from.
func (r *ClaimRequest) Spend(buckets []Bucket) { r.buckets = buckets }

// Claimed is a claim that was made: all jobs of one session with one turn.
type Claimed struct {
	ID      int64
	Session uuid.UUID
	Turn    int32
	XID     int64 // of its transaction; anyone who had drawn a position before has a lower one
	First   job.ID
}

// InsertClaims claims jobs. A peer's session that has ended gets none. ErrFenced: nothing was
// claimed, as the lock is lost, jobs were taken away, or no peer lives.
func InsertClaims(ctx context.Context, db DB, f Fence, r *ClaimRequest) (made []Claimed, err error) {
	args := []any{f.Session, f.Epoch, r.removals, r.ids, r.turns, r.to, r.peers, f.Incarnation}
	what := fmt.Sprintf("claim %d jobs", len(r.ids))
	if len(r.buckets) == 0 {
		made, err = list(ctx, db, what, pgx.RowToStructByPos[Claimed], sqlClaimInsert, args...)
	} else {
		var b pgx.Batch // one transaction
		collectInto(b.Queue(sqlClaimInsert, args...), &made, pgx.RowToStructByPos[Claimed])
		tenants, scopes, names, full := splitBuckets(r.buckets)
		b.Queue(sqlLimitSpend, f.Session, f.Epoch, tenants, scopes, names, full)
		err = explain(db.SendBatch(ctx, &b).Close(), "%s", what)
	}
	if err == nil && len(made) == 0 {
		err = ErrFenced
	}
	return made, err
}

// Accepted is a claim that a session accepted.
type Accepted struct {
	ID      int64
	Jobs    []job.Record // none: they are all gone; without a payload: it is too large, or damaged
	Ready   []time.Time  // since when each could start, by the clock of this process
	Damaged []bool       // which of them cannot be read; nil: none
}

// AcceptClaims accepts every claim that was assigned to a session and is not among
// those it knows. It can be repeated after a lost answer.
func AcceptClaims(ctx context.Context, db DB, session uuid.UUID, known []int64) ([]Accepted, error) {
	accepted, err := readPrinted(ctx, func(ctx context.Context) ([]Accepted, error) {
		return acceptClaims(ctx, db, session, known, MaxJobBytes)
	}, func(ctx context.Context) ([]Accepted, error) {
		return acceptApart(ctx, db, session, known)
	})
	return accepted, explain(err, "accept claims")
}

// acceptClaims is AcceptClaims with the payload and meta of jobs that are stored, and
// printed, as no more than most bytes.
func acceptClaims(ctx context.Context, db DB, session uuid.UUID, known []int64, most int) ([]Accepted, error) {
	rows, err := db.Query(ctx, sqlClaimAccept, session, notNil(known), most)
	if err != nil {
		return nil, err
	}
	var out []Accepted
	at := map[int64]int{} // by id, into out
	for rows.Next() {
		var claim int64
		var id *job.ID
		var r job.Record
		var kind, tenant, queue, unique, correlation, exclusive *string
		var attempt, maxAttempts, losses, priority *int16
		var timeout *int32
		var created *time.Time
		var waited *float64
		if err := rows.Scan(&claim, &id, &r.Turn, &kind, &attempt, &maxAttempts, &losses, &timeout, &created,
			&r.Payload, &r.Meta, &unique, &correlation, &tenant, &queue, &priority, &exclusive, &waited); err != nil {
			rows.Close()
			return nil, err
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
		r.UniqueKey, r.CorrelationID, r.ExclusiveKey = deref(unique), deref(correlation), deref(exclusive)
		out[i].Jobs = append(out[i].Jobs, r)
		out[i].Ready = append(out[i].Ready, time.Now().Add(-time.Duration(*waited*float64(time.Second))))
	}
	return out, rows.Err()
}

// WithdrawClaims takes back what was assigned longer ago than patience and has not
// been accepted, and returns the claims. Those that somebody has locked stay.
func WithdrawClaims(ctx context.Context, db DB, f Fence, patience time.Duration) (withdrawn []int64, err error) {
	err = briefly(ctx, db, lockTimeout, func(q *pgx.QueuedQuery) {
		collectInto(q, &withdrawn, pgx.RowTo[int64])
	}, sqlClaimWithdraw, f.Session, f.Epoch, patience.Milliseconds())
	return withdrawn, explain(err, "withdraw claims")
}

// Standing is a claim in flight.
type Standing struct {
	ID   int64
	Jobs []job.ID // what it lists, if that was asked for; nil: it was not
}

// StandingClaims lists the claims in flight and, of those among claims that list another
// number of jobs than jobs says, pairwise, which.
func StandingClaims(ctx context.Context, db DB, claims []int64, jobs []int32) ([]Standing, error) {
	return list(ctx, db, "list claims", pgx.RowToStructByPos[Standing], sqlClaimStanding, claims, jobs)
}

// Claims lists what is in flight. Called after TakeLock it shows every claim that
// was ever committed before, because of the fence.
func Claims(ctx context.Context, db DB) ([]Claim, error) {
	return list(ctx, db, "list claims", pgx.RowToStructByPos[Claim], sqlClaimList)
}

// ReturnUnstarted gives jobs of a session back that never started: claims[i] loses
// jobs[i]. ErrLocked: somebody has locked a claim.
func ReturnUnstarted(ctx context.Context, db DB, session uuid.UUID, claims, jobs []int64) error {
	return explain(briefly(ctx, db, lockTimeout, nil, sqlClaimReturn, session, claims, jobs), "give %d unstarted jobs back", len(jobs))
}

// ClaimsMade lists the claims that a session must know of: those it made for itself,
// and those it has accepted. One that it does not know of is to be removed with
// ReleaseClaims, provided that no answer about it can still be on its way: its jobs were
// never started here. It is removed by its number, so that a statement which arrives
// late finds no claim that was made meanwhile.
func ClaimsMade(ctx context.Context, db DB, session uuid.UUID) ([]int64, error) {
	return list(ctx, db, "list the session's claims", pgx.RowTo[int64], sqlClaimMade, session)
}

// Spare takes back the loss that ReapClaims charged for runs of a session that was declared
// dead, by the process that ran them, which lives. turns are those of the runs, pairwise.
func Spare(ctx context.Context, db DB, ids []int64, turns []int32) error {
	_, err := db.Exec(ctx, sqlClaimSpare, ids, turns)
	return explain(err, "take losses back")
}

// SpareSuspect takes back the last loss of a job that waits or runs in quarantine, as others wait for it;
// one that has had that too often keeps it. ErrLocked: somebody has locked its row.
func SpareSuspect(ctx context.Context, db DB, id job.ID, turn int32) error {
	_, err := db.Exec(ctx, sqlQuarantineSpare, id, turn)
	return explain(err, "take back the loss of a job that others wait for")
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
		return Reaped{}, explain(err, "reap claims")
	}
	if fence == 0 {
		return Reaped{}, ErrFenced
	}
	return r, nil
}
