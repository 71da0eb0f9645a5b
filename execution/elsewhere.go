package execution

import (
	"context"
	"errors"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/tenancy"
)

// The SQLSTATEs of tenure.begin_tenant; DETAIL is the other pool.
const (
	codeMoved = "TN003"
	codeHeld  = "TN004"
)

// elsewhereError turns the refusal of tenure.begin_tenant into a *tenancy.MovedError or a
// *tenancy.HeldError; nil: it is something else.
func elsewhereError(err error, id tenancy.ID) error {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return nil
	}
	switch pg.Code {
	case codeMoved:
		return &tenancy.MovedError{Tenant: id, To: pg.Detail}
	case codeHeld:
		return &tenancy.HeldError{Tenant: id, To: pg.Detail}
	}
	return nil
}

// leftPool tells whether a transaction was not opened because its tenant has left the
// pool or is about to.
func leftPool(err error) bool {
	var moved *tenancy.MovedError
	return errors.As(err, &moved) || errors.Is(err, tenancy.ErrHeld)
}

// HasTx tells whether ctx belongs to a tenant's transaction that has not ended.
func HasTx(ctx context.Context) bool {
	tx, ok := ctx.Value(txKey{}).(*tenantTx)
	if !ok {
		return false
	}
	select {
	case <-tx.handle.dead:
		return false
	default:
		return true
	}
}
