package store

import (
	"context"
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
		return Lock{}, explain(err, "read the acquire lock")
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
		return false, Lock{}, explain(err, "take the acquire lock")
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
// is not. ErrNewIncarnation: it has to be taken again. ErrSessionLost: the session is lost, too.
func RenewLock(ctx context.Context, db DB, f Fence, lockTTL, sessionTTL time.Duration) (clock time.Time, err error) {
	return renew(ctx, db, f, lockTTL, sessionTTL, nil)
}

// Idle is what was seen of an idle pool.
type Idle struct {
	Waiting bool           // some job waits
	Due     *time.Duration // until the next timer is due; nil: there is none
	Claimed bool           // there are claims, of whichever node
	Bottom  int64          // up to which position no job stands, or can appear, as was noted
}

// LookIdle looks whether there is anything to do in a pool.
func LookIdle(ctx context.Context, db DB) (idle Idle, err error) {
	err = idle.scan(db.QueryRow(ctx, sqlIdleLook))
	return idle, explain(err, "look whether the pool is idle")
}

func (i *Idle) scan(row pgx.Row) error {
	var due *int64
	if err := row.Scan(&i.Waiting, &due, &i.Claimed, &i.Bottom); err != nil {
		return err
	}
	if due != nil {
		in := time.Duration(*due) * time.Millisecond
		i.Due = &in
	}
	return nil
}

// RenewIdle is RenewLock with a look whether anything has come. The connection keeps the plans, which take it 0.4 MB: to
// make them anew each time costs the server of a thousand idle pools 0.4 of a processor (loadtest idle).
func RenewIdle(ctx context.Context, db DB, f Fence, lockTTL, sessionTTL time.Duration) (idle Idle, clock time.Time, err error) {
	if conn, ok := db.(*pgx.Conn); ok {
		for _, sql := range []string{sqlLockRenew, sqlSessionBeat, sqlIdleLook} {
			if _, err := conn.Prepare(ctx, sql, sql); err != nil { // once
				return idle, clock, explain(err, "prepare to renew the acquire lock")
			}
		}
	}
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
		return time.Time{}, explain(err, "renew the acquire lock")
	}
	switch {
	case beatErr == pgx.ErrNoRows:
		return time.Time{}, ErrSessionLost
	case renewErr == pgx.ErrNoRows:
		return clock, ErrFenced
	case renewErr != nil:
		return time.Time{}, explain(renewErr, "renew the acquire lock")
	case incarnation != f.Incarnation:
		return clock, ErrNewIncarnation
	}
	return clock, nil
}

// OfferLock lets go of the lock, reserved for the member to for a moment; ""
// reserves it for nobody. Without the lock it does nothing.
func OfferLock(ctx context.Context, db DB, f Fence, to string, reserve time.Duration) error {
	_, err := db.Exec(ctx, sqlLockOffer, f.Session, f.Epoch, nullable(to), reserve.Milliseconds())
	return explain(err, "let go of the acquire lock")
}

// Freeze keeps everybody from claiming and acquiring in the pool, or lets them again. When it
// returns no claim is being made; those that were go on. ErrLocked: until ctx ended somebody kept
// claims from being locked out, and nothing was changed.
func Freeze(ctx context.Context, db Beginner, frozen bool) error {
	return bothLockedOut(ctx, db, "freeze or thaw the pool", func(tx pgx.Tx) error {
		_, err := tx.Exec(ctx, sqlLockFreeze, frozen)
		return err
	})
}
