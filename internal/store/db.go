package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/job"
)

// DB is what the ledger runs its statements on: a *pgxpool.Pool, a *pgx.Conn or
// a pgx.Tx.
type DB interface {
	Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error)
	Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	QueryRow(ctx context.Context, sql string, args ...any) pgx.Row
	SendBatch(ctx context.Context, b *pgx.Batch) pgx.BatchResults
}

// Beginner opens transactions: a *pgxpool.Pool or a *pgx.Conn.
type Beginner interface {
	BeginTx(ctx context.Context, options pgx.TxOptions) (pgx.Tx, error)
}

// readCommitted is what the ledger's transactions are, whatever the database's default: a
// statement behind one that has waited has to see what it waited for.
var readCommitted = pgx.TxOptions{IsoLevel: pgx.ReadCommitted}

var (
	// ErrWrongPool: the statement ran on another database than the one meant.
	ErrWrongPool = errors.New("wrong pool")
	// ErrNotAllowed: the transaction's role is not that of the job's tenant.
	ErrNotAllowed = errors.New("the role in force may not enqueue for this tenant")
	// ErrNotMigrated: the database has no ledger.
	ErrNotMigrated = errors.New("the ledger is not installed in this database")
	// ErrFenced: the caller does not hold the acquire lock any more, or somebody
	// took waiting jobs away since it read them.
	ErrFenced = errors.New("the acquire lock moved on")
	// ErrNewIncarnation: the database has crashed, was restarted or replaced since the lock
	// was taken, and what its holder remembers of it may not be true any more.
	ErrNewIncarnation = errors.New("the database has begun a new incarnation since the acquire lock was taken")
	// ErrSessionLost: the session was reaped; its jobs are somebody else's now.
	ErrSessionLost = errors.New("the session was declared dead")
	// ErrTenantArrives: the tenant's jobs are just coming into this pool.
	ErrTenantArrives = errors.New("the tenant is being moved into this pool; try again when it has arrived")
	// ErrLocked: somebody else holds a lock that the statement would have had to wait for.
	ErrLocked = errors.New("somebody else has locked what is needed")
	// ErrNotFound: no job of that id stands where the call looked for it.
	ErrNotFound = errors.New("no such job")
)

// errKeyContended: others took and gave up a unique key all the while.
var errKeyContended = errors.New("the unique key was taken by a transaction that cannot be seen yet; try again")

// The SQLSTATEs that mean something to Tenure.
const (
	codeClaimLost       = "TN001" // tenure.require_claim
	codeUndefinedTable  = "42P01"
	codeUndefinedSchema = "3F000"
	codeUndefinedFunc   = "42883"
	codeUniqueViolation = "23505"
	codeNoPrivilege     = "42501"
	codeAborted         = "25P02" // current transaction is aborted
	codeLockTimeout     = "55P03" // lock_not_available
	codeBadPassword     = "28P01"
	codeNotLetIn        = "28000" // the role does not exist or may not log in, or pg_hba.conf refuses it
	codeNoDatabase      = "3D000"
	codeTooMany         = "53300" // connections, for the server, the database or the role
)

// coded is an error of the server's, from pgx or another driver of database/sql.
type coded interface {
	error
	SQLState() string
}

// translate turns error codes into this package's errors, keeping the chain.
func translate(err error) error {
	var pg coded
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.SQLState() {
	case codeClaimLost:
		return job.ErrClaimLost
	case codeUndefinedTable, codeUndefinedSchema:
		return fmt.Errorf("%w: %w", ErrNotMigrated, pg)
	case codeLockTimeout:
		return fmt.Errorf("%w: %w", ErrLocked, err)
	}
	return err
}

// lockTimeout is how long a statement waits for a lock that somebody else holds, if what
// others want of the caller must not wait behind that.
const lockTimeout = 100 * time.Millisecond

// briefly runs one statement in a transaction of its own. Rather than wait for a lock for
// longer than patience it changes nothing, and ends with ErrLocked. The patience is set
// beforehand, in a round trip of its own, as the connection may have to prepare the
// statement, and that waits for locks, too. heed says what to do with the answer; nil:
// nothing.
func briefly(ctx context.Context, db DB, patience time.Duration, heed func(*pgx.QueuedQuery), sql string, args ...any) error {
	if pool, ok := db.(*pgxpool.Pool); ok {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return translate(err)
		}
		defer conn.Release()
		db = conn
	}
	if _, err := db.Exec(ctx, sqlLockPatience, milliseconds(patience), false); err != nil {
		return translate(err)
	}
	var b pgx.Batch
	q := b.Queue(sql, args...)
	if heed != nil {
		heed(q)
	}
	b.Queue(sqlLockPatienceEnd)
	err := db.SendBatch(ctx, &b).Close()
	if err != nil {
		endPatience(db)
	}
	return translate(err)
}

// endPatience makes a connection, on which a statement has failed, wait for locks again.
func endPatience(db DB) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	_, err := db.Exec(ctx, sqlLockPatienceEnd)
	if conn, ok := db.(*pgxpool.Conn); ok && err != nil {
		_ = conn.Conn().Close(ctx) // its pool makes another one
	}
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%dms", d.Milliseconds()) }

// IsAborted tells whether err says that the transaction had failed before.
func IsAborted(err error) bool { return hasCode(err, codeAborted) }

// NoConnectionLeft tells whether err says that the server let nobody in for want of a
// connection.
func NoConnectionLeft(err error) bool { return hasCode(err, codeTooMany) }

func hasCode(err error, code string) bool {
	var pg coded
	return errors.As(err, &pg) && pg.SQLState() == code
}

// nullable turns the empty string into NULL.
func nullable(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// notNil keeps an empty list from becoming NULL, with which nothing compares.
func notNil(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}
