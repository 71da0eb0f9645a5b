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

// Use is what a user does with a ledger, and so how much of it is needed.
type Use string

const (
	ToRun     Use = "run"     // to run jobs, and to operate on them
	ToEnqueue Use = "enqueue" // only to add single jobs
)

// MissingGrants returns the statements that give a user, or with "" the connection's own,
// what a use of the ledger needs and the user has not. They are for the ledger's owner to
// execute. A database without a ledger lacks none.
func MissingGrants(ctx context.Context, db DB, user string, use Use) ([]string, error) {
	return statements(ctx, db, sqlGrantMissing, nullable(user), string(use))
}

// MissingRoles returns the statements that let a user take those of the roles that exist
// and that it cannot take yet. They are for anyone who administers the roles.
func MissingRoles(ctx context.Context, db DB, user string, roles []string) ([]string, error) {
	return statements(ctx, db, sqlGrantRoles, user, roles)
}

func statements(ctx context.Context, db DB, sql string, args ...any) ([]string, error) {
	return list(ctx, db, "look for privileges", pgx.RowTo[string], sql, args...)
}

// Grant gives a user what nodes need of the ledger, and returns the statements
// that were needed for it. It is the ledger's owner's to call.
func Grant(ctx context.Context, db Beginner, user string) (done []string, err error) {
	err = pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlGrantLock); err != nil {
			return err
		}
		if done, err = MissingGrants(ctx, tx, user, ToRun); err != nil {
			return err
		}
		for _, sql := range done {
			if _, err := tx.Exec(ctx, sql); err != nil {
				return fmt.Errorf("%s: %w", sql, err)
			}
		}
		left, err := MissingGrants(ctx, tx, user, ToRun)
		if err == nil && len(left) > 0 { // anyone who may not grant it was warned only
			err = fmt.Errorf("%s had no effect: connect as the ledger's owner", left[0])
		}
		return err
	})
	if err != nil {
		return nil, explain(err, "grant the ledger")
	}
	return done, nil
}

// GrantRoles lets a user take the roles that exist, and returns the statements that were
// needed for it and succeeded. It is for anyone who administers the roles to call.
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

// Regrant gives those users who have the ledger to work on what migrations have added, and
// returns the statements that were needed for it.
func Regrant(ctx context.Context, db interface {
	DB
	Beginner
}) (done []string, err error) {
	users, err := Grantees(ctx, db, nil)
	if err != nil {
		return nil, err
	}
	for _, user := range users {
		rights, err := Grant(ctx, db, user)
		if err != nil {
			return done, fmt.Errorf("user %s: %w", user, err)
		}
		done = append(done, rights...)
	}
	return done, nil
}

// lacking tells whether [Regrant] would have anything to give.
func lacking(ctx context.Context, db DB) (bool, error) {
	users, err := Grantees(ctx, db, nil)
	if err != nil {
		return false, err
	}
	for _, user := range users {
		if missing, err := MissingGrants(ctx, db, user, ToRun); err != nil || len(missing) > 0 {
			return err == nil, err
		}
	}
	return false, nil
}

// verifyGrants refuses a ledger that the connection's user may not use as it has to. It
// asks before anything fails for it: what fails late, such as a duty of the holder's, looks as if
// the database came and went.
func verifyGrants(ctx context.Context, db DB, pool string, use Use) error {
	missing, err := MissingGrants(ctx, db, "", use)
	if err != nil || len(missing) == 0 {
		return err
	}
	fix := "run, as the ledger's owner: "
	if use == ToRun {
		_, user, _ := strings.Cut(missing[0], " TO ")
		fix += fmt.Sprintf("tenure migrate --pool %s --grants --runtime %s; or: ", pool, user)
	}
	return &PoolError{pool, "its user lacks privileges on the ledger", fix + strings.Join(missing, "; ") + ";"}
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
	return tag.RowsAffected(), explain(err, "record tenants' roles")
}

// StaleRoles lists the tenants whose recorded role is contradicted by a configuration: by
// roles, by tenant, with "" for a tenant that has none, or, if these are all tenants that
// it knows of, by a tenant's absence there. It removes what is recorded if forget.
func StaleRoles(ctx context.Context, db DB, roles map[string]string, all, forget bool) ([]string, error) {
	tenants := slices.Sorted(maps.Keys(roles))
	names := make([]string, len(tenants))
	for i, tenant := range tenants {
		names[i] = roles[tenant]
	}
	return list(ctx, db, "compare the recorded roles of tenants", pgx.RowTo[string], sqlRoleForget, tenants, names, all, forget)
}
