package execution

import (
	"cmp"
	"context"
	"errors"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// errUnavailable is returned when the pool's database could not do what every job needs. The
// job is not to blame: it is deferred, and no attempt is charged.
var errUnavailable = errors.New("the pool's database cannot run jobs now")

// errReadOnly is returned when a transaction could not write. Whether the database cannot,
// or the handler wanted it so, is found out afterwards.
var errReadOnly = errors.New("the transaction is read-only")

// ErrConflict is returned when the transaction lost to another one that ran at the same time: a
// serialization failure, a deadlock, or what the owner of its claim calls one. Nothing is wrong with the job: the same in a fresh
// transaction, as Postgres advises, will do.
var ErrConflict = errors.New("the transaction conflicted with another one")

// classify adds to an error of the job's own transaction what the database has to do with it;
// failed: a statement of that transaction has failed.
func classify(err error, failed bool) error {
	var state interface{ SQLState() string } // of Postgres, or what was read of it
	if !errors.As(err, &state) {
		return err
	}
	switch code := state.SQLState(); {
	case code == "25006": // read_only_sql_transaction
		return errors.Join(errReadOnly, err)
	case failed && (code == "53100" || code == "58030"): // disk_full, io_error
		return errors.Join(errUnavailable, err)
	case failed && (code == "40001" || code == "40P01"): // serialization_failure, deadlock_detected
		return errors.Join(ErrConflict, err)
	}
	return err
}

// readOnlyTimeout bounds the question whether a database can be written to.
const readOnlyTimeout = 2 * releaseTimeout

// isReadOnly asks whether transactions on db are read-only if nobody says otherwise. If it
// does not answer, they are.
func isReadOnly(ctx context.Context, db Conns) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readOnlyTimeout) // the run may have timed out meanwhile
	defer cancel()
	var on bool
	c, err := db.Acquire(ctx)
	if err == nil {
		defer c.Release()
		err = c.QueryRow(ctx, "SELECT current_setting('transaction_read_only')::boolean", pgx.QueryExecModeExec).Scan(&on)
	}
	return on || err != nil
}

// noConnectionError is that there is no connection for a job.
type noConnectionError struct{ error }

func (e *noConnectionError) Unwrap() error { return e.error }

// refusesTenant tells whether the database refused to open a tenant's transaction for what
// the tenant is: its schema or its role. Any other error is that there is no connection.
func refusesTenant(err error) bool {
	var pg *pgconn.PgError
	var none *noConnectionError
	if errors.As(err, &none) || !errors.As(err, &pg) {
		return false
	}
	switch pg.Code {
	case codeOtherDatabase, codeNoSchema, codeNoFunction: // a pooler leads elsewhere, where there may be no ledger
		return false
	}
	severity := cmp.Or(pg.SeverityUnlocalized, pg.Severity)
	return severity == "ERROR" && classify(err, true) == err
}

// hasFailed tells whether a statement of the transaction failed, or its connection. While
// another goroutine, which the handler has left behind, is in a call, nobody knows.
func (h *handle) hasFailed() bool {
	select {
	case h.lock <- struct{}{}:
		defer func() { <-h.lock }()
	default:
		return false
	}
	pc := h.conn.PgConn()
	return h.rolledBack || pc.IsClosed() || pc.TxStatus() == 'E'
}
