package execution

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// errUnavailable is returned when the pool's database could not do what every job needs. The
// job is not to blame: it is deferred, and no attempt is charged.
var errUnavailable = errors.New("the pool's database cannot run jobs now")

// errNoPlace is returned when the database refused to open a tenant's transaction for what the tenant is. The
// job is not to blame: it is deferred until somebody has mended that, and no attempt is charged.
var errNoPlace = errors.New("the tenant's transaction cannot be opened")

// suspicion is an error of a transaction that its database may be to blame for, rather than the job.
// Tenants can raise any SQLSTATE, and end their own connections, so that the ledger is asked; see
// ledgerFails.
type suspicion struct{ error }

func (s *suspicion) Unwrap() error { return s.error }

func isSuspicion(err error) bool {
	var s *suspicion
	return errors.As(err, &s)
}

// ErrConflict is returned when the transaction lost to another one that ran at the same time: a
// serialization failure, a deadlock, or what the owner of its claim calls one. Nothing is wrong with the job: the same in a fresh
// transaction, as Postgres advises, will do.
var ErrConflict = errors.New("the transaction conflicted with another one")

// outages are the SQLSTATEs, and classes of them, that are about the server rather than a statement:
// connection_exception, read_only_sql_transaction, insufficient_resources, operator_intervention
// without query_canceled, system_error.
var outages = []string{"08", codeReadOnly, "53", "57P", "58"}

const (
	codeReadOnly = "25006"
	codeNoRight  = "42501" // insufficient_privilege: the job's SQL lacks one, unless the ledger's lacks one, too
)

func tellsOutage(code string) bool {
	return slices.ContainsFunc(outages, func(o string) bool { return strings.HasPrefix(code, o) })
}

// tellsConflict: serialization_failure, deadlock_detected.
func tellsConflict(code string) bool { return code == "40001" || code == "40P01" }

// sqlState is that of an error of Postgres, or of what was read of one; else "".
func sqlState(err error) string {
	var state interface{ SQLState() string }
	if errors.As(err, &state) {
		return state.SQLState()
	}
	return ""
}

// failure is what of a job's transaction has failed.
type failure struct {
	statement  bool // some statement
	connection bool // not by the end of the run's context
}

// classify adds to an error of the job's own transaction what its database may have to do with it.
func classify(err error, f failure) error {
	code := sqlState(err)
	switch {
	case errors.Is(err, errUnavailable):
		return err
	case f.connection, f.statement && (tellsOutage(code) || code == codeNoRight):
		return &suspicion{err}
	case f.statement && tellsConflict(code):
		return errors.Join(ErrConflict, err)
	}
	return err
}

// ledgerTimeout bounds the question whether the ledger can be written to.
const ledgerTimeout = 2 * releaseTimeout

// ledgerFails tells whether an outage, or a right that was taken away, keeps the ledger, too, from ending the jobs of a call. If it does
// not answer, an outage does.
func ledgerFails(ctx context.Context, c *ClaimedJob) bool {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), ledgerTimeout) // the run may have timed out meanwhile
	defer cancel()
	err := c.Owner.TryFinish(ctx, slices.Collect(c.call()))
	return err != nil && (!isAboutStatement(err) || sqlState(err) == codeNoRight)
}

// isAboutStatement tells whether an error is the server's about a statement, rather than about itself
// or the way to it.
func isAboutStatement(err error) bool {
	var pg *pgconn.PgError
	return errors.As(err, &pg) && cmp.Or(pg.SeverityUnlocalized, pg.Severity) == "ERROR" && !tellsOutage(pg.Code)
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
	return isAboutStatement(err) && !tellsConflict(pg.Code)
}

// failed tells what of the transaction has failed. While another goroutine, which the handler has left
// behind, is in a call, nobody knows.
func (h *handle) failed(ctx context.Context) failure {
	if !h.revoked {
		select {
		case h.lock <- struct{}{}:
			defer func() { <-h.lock }()
		default:
			return failure{}
		}
	}
	pc := h.conn.PgConn()
	return failure{
		statement:  h.revoked || h.rolledBack || pc.IsClosed() || pc.TxStatus() == 'E', // revoked: that of the end
		connection: pc.IsClosed() && ctx.Err() == nil,
	}
}
