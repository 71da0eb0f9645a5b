package store

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TenantsWithJobs lists tenants that have unfinished jobs, dead letters among them: those
// of among, or with nil any. Of each state at most max jobs of theirs are looked at.
func TenantsWithJobs(ctx context.Context, db DB, max int, among []string) ([]string, error) {
	rows, err := db.Query(ctx, sqlTenantWithJobs, max, among)
	if err == nil {
		var out []string
		if out, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("list tenants with jobs: %w", translate(err))
}

// What a tenant's row says about its place.
const (
	TenantActive   = "active"   // its jobs run here, unless it is frozen
	TenantMoving   = "moving"   // it is about to leave; jobs are taken in and not claimed
	TenantMoved    = "moved"    // it has left; jobs are refused
	TenantArriving = "arriving" // it is about to come; jobs are taken in and not claimed
)

// TenantRow is what a pool's ledger says about a tenant.
type TenantRow struct {
	Tenant string
	State  string
	Other  string // the other pool of a move; arriving, "" means that it lives here already
	Frozen bool
	Held   bool // moving, and its own data is being copied: it must not be written
}

// TenantMovedError says that a tenant has left the pool.
type TenantMovedError = tenancy.MovedError

// TenantBusyError says that a tenant is being moved to or from this pool.
type TenantBusyError struct{ TenantRow }

func (e *TenantBusyError) Error() string {
	return fmt.Sprintf("tenant %q is %s here, the other pool is %s", e.Tenant, e.State, e.Other)
}

// ReadTenant returns a tenant's row, or that of an active one.
func ReadTenant(ctx context.Context, db DB, tenant string) (TenantRow, error) {
	rows, err := tenantRows(ctx, db, sqlTenantRead, tenant)
	if err != nil {
		return TenantRow{}, fmt.Errorf("read tenant %q: %w", tenant, err)
	}
	if len(rows) == 0 {
		return TenantRow{Tenant: tenant, State: TenantActive}, nil
	}
	return rows[0], nil
}

// TenantRows lists the tenants that have a row: those that were frozen or moved.
func TenantRows(ctx context.Context, db DB) ([]TenantRow, error) {
	rows, err := tenantRows(ctx, db, sqlTenantList)
	if err != nil {
		return nil, fmt.Errorf("list tenants: %w", err)
	}
	return rows, nil
}

// TenantLimit is how many jobs of a tenant may be in flight at a time, and which are.
type TenantLimit struct {
	Tenant  string
	Most    int // 1 at least
	Claimed []job.ID
	Turns   []int32 // theirs
}

// TenantLimits lists the tenants that have a limit (max_running).
func TenantLimits(ctx context.Context, db DB) ([]TenantLimit, error) {
	rows, err := db.Query(ctx, sqlTenantLimits)
	if err == nil {
		var out []TenantLimit
		if out, err = pgx.CollectRows(rows, pgx.RowToStructByPos[TenantLimit]); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("read the limits of tenants: %w", translate(err))
}

// TenantsOnTheirWay lists the tenants whose place another pool decides, too.
func TenantsOnTheirWay(ctx context.Context, db DB) ([]TenantRow, error) {
	rows, err := tenantRows(ctx, db, sqlTenantForwards)
	if err != nil {
		return nil, fmt.Errorf("list moved tenants: %w", err)
	}
	return rows, nil
}

// LeftBehind lists tenants that have left the pool and have jobs waiting there.
func LeftBehind(ctx context.Context, db DB) ([]TenantRow, error) {
	rows, err := tenantRows(ctx, db, sqlLaneLeft)
	if err != nil {
		return nil, fmt.Errorf("look for jobs of moved tenants: %w", err)
	}
	return rows, nil
}

func tenantRows(ctx context.Context, db DB, sql string, args ...any) ([]TenantRow, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err != nil {
		return nil, translate(err)
	}
	out, err := pgx.CollectRows(rows, pgx.RowToStructByPos[TenantRow])
	return out, translate(err)
}

// HasJobs tells whether a tenant has unfinished jobs in the pool.
func HasJobs(ctx context.Context, db DB, tenant string) (has bool, err error) {
	if err := db.QueryRow(ctx, sqlTenantStray, tenant).Scan(&has); err != nil {
		return false, fmt.Errorf("look for jobs of tenant %q: %w", tenant, translate(err))
	}
	return has, nil
}

// FreezeTenant keeps a tenant's jobs from being claimed and its timers from firing, or
// lets them again. When it returns no claim on them is being made; those that were go
// on. TenantBusyError: the tenant is being moved.
func FreezeTenant(ctx context.Context, db Beginner, tenant string, frozen bool) error {
	return lockedOut(ctx, db, fmt.Sprintf("freeze or thaw tenant %q", tenant), func(tx pgx.Tx) error {
		return changeTenant(ctx, tx, tenant, sqlTenantFreeze, tenant, frozen)
	})
}

// lockedOut changes something while no claim is made, and makes claims void that are
// made from what was read before.
func lockedOut(ctx context.Context, db Beginner, what string, fn func(pgx.Tx) error) error {
	err := pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
		if err := LockOutClaims(ctx, tx); err != nil {
			return err
		}
		return fn(tx)
	})
	if err != nil {
		return fmt.Errorf("%s: %w", what, translate(err))
	}
	return nil
}

// changeTenant runs a statement that returns a row if the tenant's state allowed it.
func changeTenant(ctx context.Context, db DB, tenant, sql string, args ...any) error {
	tag, err := db.Exec(ctx, sql, args...)
	if err != nil {
		return translate(err)
	}
	if tag.RowsAffected() > 0 {
		return nil
	}
	row, err := ReadTenant(ctx, db, tenant)
	if err != nil {
		return err
	}
	return &TenantBusyError{row}
}
