package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/jackc/pgx/v5"
)

// MissingGrants returns the statements that give a user, or with "" the connection's own,
// what nodes and clients need of the ledger and the user has not. They are for the ledger's
// owner to execute. A database without a ledger lacks none.
func MissingGrants(ctx context.Context, db DB, user string) ([]string, error) {
	return statements(ctx, db, sqlGrantMissing, nullable(user))
}

// MissingRoles returns the statements that let a user take those of the roles that exist
// and that it cannot take yet. They are for whoever administers the roles.
func MissingRoles(ctx context.Context, db DB, user string, roles []string) ([]string, error) {
	return statements(ctx, db, sqlGrantRoles, user, roles)
}

func statements(ctx context.Context, db DB, sql string, args ...any) ([]string, error) {
	rows, err := db.Query(ctx, sql, args...)
	if err == nil {
		var out []string
		if out, err = pgx.CollectRows(rows, pgx.RowTo[string]); err == nil {
			return out, nil
		}
	}
	return nil, fmt.Errorf("look for privileges: %w", translate(err))
}

// Grant gives a user what nodes and clients need of the ledger, and returns the statements
// that were needed for it. It is the ledger's owner's to call.
func Grant(ctx context.Context, db Beginner, user string) (done []string, err error) {
	err = pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlGrantLock); err != nil {
			return err
		}
		if done, err = MissingGrants(ctx, tx, user); err != nil {
			return err
		}
		for _, sql := range done {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		left, err := MissingGrants(ctx, tx, user)
		if err == nil && len(left) > 0 { // whoever may not grant it was warned only
			err = fmt.Errorf("%s had no effect: connect as the ledger's owner", left[0])
		}
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("grant the ledger: %w", translate(err))
	}
	return done, nil
}

// GrantRoles lets a user take the roles that exist, and returns the statements that were
// needed for it and succeeded. It is for whoever administers the roles to call.
func GrantRoles(ctx context.Context, db DB, user string, roles []string) (done []string, err error) {
	missing, err := MissingRoles(ctx, db, user, roles)
	if err != nil {
		return nil, err
	}
	var failed []error
	for _, sql := range missing {
		if _, err := db.Exec(ctx, sql); err != nil {
			failed = append(failed, fmt.Errorf("have who administers the roles execute %s: %w", sql, err))
			continue
		}
		done = append(done, sql)
	}
	return done, errors.Join(failed...)
}

// Grantees are the users who are to have the ledger to work on: those named, which must
// exist, or, when none is, those who have it.
func Grantees(ctx context.Context, db DB, named []string) ([]string, error) {
	holders, err := statements(ctx, db, sqlGrantHolders)
	if err != nil || len(named) == 0 {
		return holders, err
	}
	unknown, err := statements(ctx, db, sqlGrantUnknown, named)
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("user %q does not exist on this server: create it first", unknown[0])
	}
	return named, err
}

// Regrant gives those users who have the ledger to work on what migrations have added.
func Regrant(ctx context.Context, db interface {
	DB
	Beginner
}) error {
	users, err := Grantees(ctx, db, nil)
	if err != nil {
		return err
	}
	for _, user := range users {
		if _, err := Grant(ctx, db, user); err != nil {
			return fmt.Errorf("user %s: %w", user, err)
		}
	}
	return nil
}

// verifyGrants refuses a ledger that the connection's user may not work on as nodes and
// clients have to. It asks before anything fails for it: what fails late, such as a
// renewal's chore, looks as if the database came and went.
func verifyGrants(ctx context.Context, db DB, pool string) error {
	missing, err := MissingGrants(ctx, db, "")
	if err != nil || len(missing) == 0 {
		return err
	}
	_, user, _ := strings.Cut(missing[0], " TO ")
	return &PoolError{pool, "its user lacks privileges on the ledger",
		fmt.Sprintf("run, as the ledger's owner: tenure migrate --pool %s --grants --runtime %s; or: %s;", pool, user, strings.Join(missing, "; "))}
}

// PatternRole is the tenant under which [LearnRoles] records the pattern of the roles of
// all tenants that are not recorded themselves; {tenant} in it stands for the tenant's id.
const PatternRole = ""

// LearnRoles records which role, by tenant, may enqueue for it, and returns how many of
// them are news to the ledger. A tenant without a role is left out.
func LearnRoles(ctx context.Context, db DB, roles map[string]string) (news int64, err error) {
	var tenants, names []string
	for _, tenant := range slices.Sorted(maps.Keys(roles)) {
		if role := roles[tenant]; role != "" {
			tenants, names = append(tenants, tenant), append(names, role)
		}
	}
	if len(tenants) == 0 {
		return 0, nil
	}
	tag, err := db.Exec(ctx, sqlRoleLearn, tenants, names)
	if err != nil {
		return 0, fmt.Errorf("record tenants' roles: %w", translate(err))
	}
	return tag.RowsAffected(), nil
}
