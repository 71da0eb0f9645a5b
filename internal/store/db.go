package store

import (
	"context"
	"errors"
	"fmt"
	"strings"
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
	ErrNotFound = job.ErrNotFound
)

// errKeyContended: others took and gave up a unique key all the while.
var errKeyContended = errors.New("the unique key was taken by a transaction that cannot be seen yet; try again")

// The SQLSTATEs that mean something to Tenure.
const (
	codeClaimLost       = "TN001" // tenure.require_claim
	codeNoPlace         = "TN002" // tenure.begin_tenant
	codeUndefinedTable  = "42P01"
	codeUndefinedSchema = "3F000"
	codeUndefinedFunc   = "42883"
	codeUniqueViolation = "23505"
	codeDuplicateTable  = "42P07"
	codeDuplicateSchema = "42P06"
	codeDuplicateObject = "42710" // such as the type of a table that another is just making
	codeCheckViolation  = "23514"
	codeNoPrivilege     = "42501"
	codeDeadlock        = "40P01"
	codeDependents      = "2BP01" // dependent_objects_still_exist
	codeUnsupported     = "0A000" // such as altering a table whose row type a column has
	codeAborted         = "25P02" // current transaction is aborted
	codeLockTimeout     = "55P03" // lock_not_available
	codeBadPassword     = "28P01"
	codeNotLetIn        = "28000" // the role does not exist or may not log in, or pg_hba.conf refuses it
	codeNoDatabase      = "3D000"
	codeInvalidSetting  = "22023" // invalid_parameter_value
	codeUnknownSetting  = "42704" // undefined_object
	codeTooMany         = "53300" // connections, for the server, the database or the role
	codeTooMuch         = "54000" // program_limit_exceeded: a text of more than 1 GB
	codeUntranslatable  = "22P05" // a character without an equivalent in the connection's encoding
	codeNotRepertoire   = "22021" // bytes that are none of the encoding's

	classTooMuch = "54" // that, or a value that is nested too deeply
	classCorrupt = "XX" // what is stored is damaged
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

// explain says what a statement was for that has failed, and gives its error the meaning
// that translate does; nil stays nil.
func explain(err error, what string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(what, args...), translate(err))
}

// list collects the rows of a query, whose error is about what.
func list[T any](ctx context.Context, db DB, what string, row pgx.RowToFunc[T], sql string, args ...any) ([]T, error) {
	rows, _ := db.Query(ctx, sql, args...) // its error is the rows', too
	all, err := pgx.CollectRows(rows, row)
	return all, explain(err, "%s", what)
}

// collectInto has the rows of a query in a batch collected in all.
func collectInto[T any](q *pgx.QueuedQuery, all *[]T, row pgx.RowToFunc[T]) {
	q.Query(func(rows pgx.Rows) (err error) {
		*all, err = pgx.CollectRows(rows, row)
		return err
	})
}

// lockTimeout is how long a statement waits for a lock that somebody else holds, if what
// others want of the caller must not wait behind that.
const lockTimeout = 100 * time.Millisecond

// briefly runs one statement in a transaction of its own. Rather than wait for a lock for
// longer than patience it changes nothing, and its error is explained as ErrLocked. The patience is set
// beforehand, in a round trip of its own, as the connection may have to prepare the
// statement, and that waits for locks, too. heed says what to do with the answer; nil:
// nothing.
func briefly(ctx context.Context, db DB, patience time.Duration, heed func(*pgx.QueuedQuery), sql string, args ...any) error {
	if pool, ok := db.(*pgxpool.Pool); ok {
		conn, err := pool.Acquire(ctx)
		if err != nil {
			return err
		}
		defer conn.Release()
		db = conn
	}
	if _, err := db.Exec(ctx, sqlLockPatience, milliseconds(patience), false); err != nil {
		return err
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
	return err
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

// NoPlace tells whether err says that the tenant has no such schema in the pool, or that its role may not use it.
func NoPlace(err error) bool { return hasCode(err, codeNoPlace) }

// NoConnectionLeft tells whether err says that the server let nobody in for want of a
// connection.
func NoConnectionLeft(err error) bool { return hasCode(err, codeTooMany) }

// NoPrivilege tells whether err says that the user may not do this.
func NoPrivilege(err error) bool { return hasCode(err, codeNoPrivilege) }

// IsUnreadable tells whether err says that a value which is stored cannot be read.
func IsUnreadable(err error) bool {
	return strings.HasPrefix(stateOf(err), classCorrupt) || hasCode(err, codeUntranslatable) || hasCode(err, codeNotRepertoire)
}

// IsOfOne tells whether err says that one of several rows kept a statement from changing the others: somebody has
// locked it, or it cannot be read.
func IsOfOne(err error) bool { return errors.Is(err, ErrLocked) || IsUnreadable(err) }

func hasCode(err error, code string) bool { return stateOf(err) == code }

// stateOf is the SQLSTATE of an error of the server's; "": it is none.
func stateOf(err error) string {
	var pg coded
	if errors.As(err, &pg) {
		return pg.SQLState()
	}
	return ""
}

// nullable turns a zero value into NULL.
func nullable[T comparable](v T) *T {
	var zero T
	if v == zero {
		return nil
	}
	return &v
}

// deref turns NULL into a zero value.
func deref[T any](p *T) (v T) {
	if p != nil {
		v = *p
	}
	return v
}

// notNil keeps an empty list from becoming NULL, with which nothing compares.
func notNil(ids []int64) []int64 {
	if ids == nil {
		return []int64{}
	}
	return ids
}
