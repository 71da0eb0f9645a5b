package store

import (
	"context"
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

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
	Begin(ctx context.Context) (pgx.Tx, error)
}

var (
	// ErrWrongPool: the statement ran on another database than the one meant.
	ErrWrongPool = errors.New("wrong pool")
	// ErrNotMigrated: the database has no ledger.
	ErrNotMigrated = errors.New("the ledger is not installed in this database")
	// ErrFenced: the caller does not hold the acquire lock any more, or somebody
	// took waiting jobs away since it read them.
	ErrFenced = errors.New("the acquire lock moved on")
	// ErrSessionLost: the session was reaped; its jobs are somebody else's now.
	ErrSessionLost = errors.New("the session was declared dead")
	// ErrTenantArrives: the tenant's jobs are just coming into this pool.
	ErrTenantArrives = errors.New("the tenant is being moved into this pool; try again when it has arrived")
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
	codeUniqueViolation = "23505"
	codeAborted         = "25P02" // current transaction is aborted
	codeLockTimeout     = "55P03" // lock_not_available
	codeBadPassword     = "28P01"
	codeNotLetIn        = "28000" // the role does not exist or may not log in, or pg_hba.conf refuses it
	codeNoDatabase      = "3D000"
	codeNoPrivilege     = "42501"
	codeTooMany         = "53300" // connections, for the server, the database or the role
)

// translate turns error codes into this package's errors, keeping the chain.
func translate(err error) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return err
	}
	switch pg.Code {
	case codeClaimLost:
		return job.ErrClaimLost
	case codeUndefinedTable, codeUndefinedSchema:
		return fmt.Errorf("%w: %s", ErrNotMigrated, pg.Message)
	}
	return err
}

// IsAborted tells whether err says that the transaction had failed before.
func IsAborted(err error) bool { return hasCode(err, codeAborted) }

// NoConnectionLeft tells whether err says that the server let nobody in for want of a
// connection.
func NoConnectionLeft(err error) bool { return hasCode(err, codeTooMany) }

func hasCode(err error, code string) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && pg.Code == code
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
