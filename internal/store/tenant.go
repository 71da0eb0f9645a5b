package store

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/tenancy"
)

// TenantsWithJobs lists tenants that have unfinished jobs, dead letters among them, or schedules:
// those of among, or with nil any that have more schedules than all have; at most max of each state.
func TenantsWithJobs(ctx context.Context, db DB, max int, among []string) ([]string, error) {
	return list(ctx, db, "list tenants with jobs", pgx.RowTo[string], sqlTenantWithJobs, max, among)
}

// NoteFinished notes whose jobs have finished, going on where it last ended: of so long a time at most. more tells
// whether later ones were not looked at. It forgets tenants whose jobs are kept no more.
func NoteFinished(ctx context.Context, db DB, most time.Duration) (more bool, err error) {
	var since, until time.Time
	if err := db.QueryRow(ctx, sqlSeenNext, most.Milliseconds()).Scan(&since, &until, &more); err != nil {
		return false, explain(err, "look whose jobs have finished")
	}
	err = briefly(ctx, db, lockTimeout, nil, sqlSeenNote, since, until)
	if err == nil && !more {
		_, err = db.Exec(ctx, sqlSeenTrim)
	}
	return more, explain(err, "note whose jobs have finished")
}

// SeenTenants lists tenants whose jobs have finished, as far as [NoteFinished] has noted it, or who were frozen or
// moved or have a weight: at most max.
func SeenTenants(ctx context.Context, db DB, max int) ([]string, error) {
	return list(ctx, db, "list tenants whose jobs have finished", pgx.RowTo[string], sqlSeenList, max)
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

// TenantBusyError says that a tenant is being moved to or from this pool.
type TenantBusyError struct{ TenantRow }

func (e *TenantBusyError) Error() string {
	return fmt.Sprintf("tenant %q is %s here, the other pool is %s", e.Tenant, e.State, e.Other)
}

// ReadTenant returns a tenant's row, or that of an active one.
func ReadTenant(ctx context.Context, db DB, tenant string) (TenantRow, error) {
	rows, err := list(ctx, db, fmt.Sprintf("read tenant %q", tenant), pgx.RowToStructByPos[TenantRow], sqlTenantRead, tenant)
	if err != nil {
		return TenantRow{}, err
	}
	if len(rows) == 0 {
		return TenantRow{Tenant: tenant, State: TenantActive}, nil
	}
	return rows[0], nil
}

// TenantSettings are a tenant's row, or that of an active one, and what was set for it.
type TenantSettings struct {
	TenantRow
	Weight, MaxRunning, MaxWaiting int // the last two 0: any number
}

// ReadTenantSettings reads a tenant's settings.
func ReadTenantSettings(ctx context.Context, db DB, tenant string) (TenantSettings, error) {
	s := TenantSettings{TenantRow: TenantRow{Tenant: tenant, State: TenantActive}, Weight: 1}
	err := db.QueryRow(ctx, sqlTenantSettings, tenant).Scan(&s.State, &s.Other, &s.Frozen, &s.Held, &s.Weight, &s.MaxRunning, &s.MaxWaiting)
	if errors.Is(err, pgx.ErrNoRows) {
		err = nil
	}
	return s, explain(err, "read the settings of tenant %q", tenant)
}

// TenantRows lists the tenants that have a row: those that were frozen or moved.
func TenantRows(ctx context.Context, db DB) ([]TenantRow, error) {
	return list(ctx, db, "list tenants", pgx.RowToStructByPos[TenantRow], sqlTenantList)
}

// FullTenants lists the tenants of whom more jobs are refused, as the most that may wait do.
func FullTenants(ctx context.Context, db DB) ([]string, error) {
	return list(ctx, db, "list tenants that have reached their quota", pgx.RowTo[string], sqlTenantFull)
}

// TenantsOnTheirWay lists the tenants whose place another pool decides, too.
func TenantsOnTheirWay(ctx context.Context, db DB) ([]TenantRow, error) {
	return list(ctx, db, "list moved tenants", pgx.RowToStructByPos[TenantRow], sqlTenantForwards)
}

// LeftBehind lists tenants that have left the pool and have jobs waiting there, or what their jobs await.
func LeftBehind(ctx context.Context, db DB) ([]TenantRow, error) {
	return list(ctx, db, "look for jobs of moved tenants", pgx.RowToStructByPos[TenantRow], sqlLaneLeft)
}

// HasJobs tells whether a tenant has unfinished jobs in the pool.
func HasJobs(ctx context.Context, db DB, tenant string) (has bool, err error) {
	err = db.QueryRow(ctx, sqlTenantStray, tenant).Scan(&has)
	return has, explain(err, "look for jobs of tenant %q", tenant)
}

// FreezeTenant keeps a tenant's jobs from being claimed and its timers from firing, or
// lets them again. When it returns no claim on them is being made; those that were go
// on. TenantBusyError: the tenant is being moved.
func FreezeTenant(ctx context.Context, db Beginner, tenant string, frozen bool) error {
	return bothLockedOut(ctx, db, fmt.Sprintf("freeze or thaw tenant %q", tenant), func(tx pgx.Tx) error {
		return changeTenant(ctx, tx, tenant, sqlTenantFreeze, tenant, frozen)
	})
}

// Reassign gives jobs of a tenant that nobody routes to another one of the pool, so many at most, and returns how many,
// and how many are left: also what cannot be given, as it is in flight, or encrypted, or the other one has its unique key.
func Reassign(ctx context.Context, db Beginner, from, to string, most int) (n, left int, err error) {
	err = bothLockedOut(ctx, db, fmt.Sprintf("give jobs of tenant %q to tenant %q", from, to), func(tx pgx.Tx) error {
		row, err := ReadTenant(ctx, tx, to)
		if err == nil && row.State != TenantActive {
			err = &TenantBusyError{row}
		}
		if err != nil {
			return err
		}
		return tx.QueryRow(ctx, sqlReassign, from, to, most).Scan(&n, &left)
	})
	return n, left, err
}

// QuotaError says that as many jobs of a tenant wait as may, or did when the holder of its pool's acquire
// lock looked last.
type QuotaError struct {
	Tenant tenancy.ID
	Most   int
}

// ErrQuota is what a QuotaError is, for errors.Is.
var ErrQuota = errors.New("the tenant has as many jobs waiting as it may")

func (e *QuotaError) Error() string {
	return fmt.Sprintf("tenant %q has %d jobs waiting, as many as it may: try again when some have run, or raise the quota: tenure tenants limit %s --max-waiting N", e.Tenant, e.Most, e.Tenant)
}

// Is makes it an [ErrQuota].
func (e *QuotaError) Is(target error) bool { return target == ErrQuota }

// SetQuota bounds how many jobs of a tenant may wait before more are refused; 0 lifts the bound.
// TenantBusyError: the tenant is being moved.
func SetQuota(ctx context.Context, db DB, tenant string, most int) error {
	return explain(changeTenant(ctx, db, tenant, sqlTenantQuota, tenant, nullable(most)), "set the quota of tenant %q", tenant)
}

// CheckQuotas notes of which tenants as many jobs wait as may, and of which no longer.
func CheckQuotas(ctx context.Context, db DB) error {
	_, err := db.Exec(ctx, sqlQuotaCheck)
	return explain(err, "check the quotas of tenants")
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
