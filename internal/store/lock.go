package store

import (
	"context"
	"fmt"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
)

// Lock is what the acquire_lock row says.
type Lock struct {
	Holder    string // member name; "" when nobody holds it
	Session   uuid.UUID
	Next      string // member it is reserved for
	Epoch     int64
	RenewSeq  int64
	Remaining time.Duration // until it expires, or, unheld, until its reservation ends
	Paused    bool
	Removals  int64
	TakenAt   time.Time
	Quiet     time.Duration // since the last renewal
	Beat      int64         // of the holder's session; set by ReadLock
	TTL       time.Duration // it was last taken or renewed for; set by ReadLock

	Incarnation int32 // of the database; set by TakeLock, for who has taken it
}

// Fence names a term of holding the lock. Statements that only the holder may
// run change nothing once the lock's row names another.
type Fence struct {
	Session     uuid.UUID
	Epoch       int64
	Incarnation int32 // of the database, in which the lock was taken; claims and renewals check it
}

// ReadLock reads the lock without touching it.
func ReadLock(ctx context.Context, db DB) (Lock, error) {
	var l Lock
	var holder, next *string
	var session *uuid.UUID
	var ms, quiet, ttl int64
	var taken *time.Time
	err := db.QueryRow(ctx, sqlLockRead).Scan(&holder, &next, &l.Epoch, &l.RenewSeq, &ms, &l.Paused, &l.Removals, &session, &taken, &quiet, &l.Beat, &ttl)
	if err != nil {
		return Lock{}, fmt.Errorf("read the acquire lock: %w", translate(err))
	}
	l.Holder, l.Next = deref(holder), deref(next)
	l.Remaining = time.Duration(ms) * time.Millisecond
	l.Quiet = time.Duration(quiet) * time.Millisecond
	l.TTL = time.Duration(ttl) * time.Millisecond
	l.Session, l.TakenAt = deref(session), deref(taken)
	return l, nil
}

// Claimant is who takes a lock, and what it knows about the present holder.
type Claimant struct {
	Session    uuid.UUID
	Member     string
	SeenSeq    int64 // the renew_seq it saw stand still; -1: none
	HolderGone bool  // gossip says that the holder is dead or left, or does not reach the database; or the lock was seen to stand still for too long
}

// TakeLock takes the lock if it is free for c, and tells who has it if not. Who takes it
// sees to it that an incarnation of the database has begun, in a transaction of its own.
func TakeLock(ctx context.Context, db DB, c Claimant, ttl time.Duration) (mine bool, l Lock, err error) {
	var holder, next *string
	var ms int64
	err = db.QueryRow(ctx, sqlLockTake, c.Session, c.Member, ttl.Milliseconds(), c.SeenSeq, c.HolderGone).
		Scan(&mine, &l.Epoch, &holder, &next, &l.RenewSeq, &ms, &l.Paused, &l.Removals, &l.Incarnation)
	if err != nil {
		return false, Lock{}, fmt.Errorf("take the acquire lock: %w", translate(err))
	}
	l.Holder, l.Next = deref(holder), deref(next)
	l.Remaining = time.Duration(ms) * time.Millisecond
	if mine && l.Incarnation == 0 {
		l.Incarnation, _, err = BeginIncarnation(ctx, db, false)
	}
	return mine && err == nil, l, err
}

// RenewLock renews a held lock and the session behind it in one transaction and one
// round trip, and says what BeatSession says. ErrFenced: the lock is lost, and the session
// is not. ErrNewIncarnation: it has to be taken anew. ErrSessionLost: the session is lost, too.
func RenewLock(ctx context.Context, db DB, f Fence, lockTTL, sessionTTL time.Duration) (clock time.Time, err error) {
	return renew(ctx, db, f, lockTTL, sessionTTL, nil)
}

// Idle is what was seen of an idle pool.
type Idle struct {
	Waiting bool           // some job waits
	Due     *time.Duration // until the next timer is due; nil: there is none
	Claimed bool           // there are claims, of whichever node
}

// LookIdle looks whether there is anything to do in a pool.
func LookIdle(ctx context.Context, db DB) (Idle, error) {
	var idle Idle
	if err := idle.scan(db.QueryRow(ctx, sqlIdleLook)); err != nil {
		return idle, fmt.Errorf("look whether the pool is idle: %w", translate(err))
	}
	return idle, nil
}

func (i *Idle) scan(row pgx.Row) error {
	var due *int64
	if err := row.Scan(&i.Waiting, &due, &i.Claimed); err != nil {
		return err
	}
	if due != nil {
		in := time.Duration(*due) * time.Millisecond
		i.Due = &in
	}
	return nil
}

// RenewIdle is RenewLock with a look whether anything has come.
func RenewIdle(ctx context.Context, db DB, f Fence, lockTTL, sessionTTL time.Duration) (idle Idle, clock time.Time, err error) {
	clock, err = renew(ctx, db, f, lockTTL, sessionTTL, &idle)
	return idle, clock, err
}

func renew(ctx context.Context, db DB, f Fence, lockTTL, sessionTTL time.Duration, idle *Idle) (clock time.Time, err error) {
	var b pgx.Batch
	b.Queue(sqlLockRenew, f.Session, f.Epoch, lockTTL.Milliseconds())
	b.Queue(sqlSessionBeat, f.Session, sessionTTL.Milliseconds())
	if idle != nil {
		b.Queue(sqlIdleLook)
	}
	r := db.SendBatch(ctx, &b)
	var incarnation int32
	renewErr := r.QueryRow().Scan(&incarnation)
	beatErr := r.QueryRow().Scan(&clock)
	if idle != nil {
		_ = idle.scan(r.QueryRow()) // an error is Close's to report
	}
	if err := r.Close(); err != nil {
		return time.Time{}, fmt.Errorf("renew the acquire lock: %w", translate(err))
	}
	switch {
	case beatErr == pgx.ErrNoRows:
		return time.Time{}, ErrSessionLost
	case renewErr == pgx.ErrNoRows:
		return clock, ErrFenced
	case renewErr != nil:
		return time.Time{}, fmt.Errorf("renew the acquire lock: %w", translate(renewErr))
	case incarnation != f.Incarnation:
		return clock, ErrNewIncarnation
	}
	return clock, nil
}

// OfferLock lets go of the lock, reserved for the member to for a moment; ""
// reserves it for nobody. Without the lock it does nothing.
func OfferLock(ctx context.Context, db DB, f Fence, to string, reserve time.Duration) error {
	if _, err := db.Exec(ctx, sqlLockOffer, f.Session, f.Epoch, nullable(to), reserve.Milliseconds()); err != nil {
		return fmt.Errorf("let go of the acquire lock: %w", translate(err))
	}
	return nil
}

// Freeze keeps everybody from claiming in the pool, or lets them again. When it
// returns no claim is being made; those that were go on.
func Freeze(ctx context.Context, db DB, frozen bool) error {
	var b pgx.Batch
	b.Queue(sqlRemovalLock)
	b.Queue(sqlLockFreeze, frozen)
	if err := db.SendBatch(ctx, &b).Close(); err != nil {
		return fmt.Errorf("freeze or thaw the pool: %w", translate(err))
	}
	return nil
}

func deref[T any](p *T) T {
	if p == nil {
		var zero T
		return zero
	}
	return *p
}
