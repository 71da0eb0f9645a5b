package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

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

// MissingRoles returns the statements that let a user take those of the tenants' roles, by tenant, that exist
// and that it cannot take yet. They are for anyone who administers the roles. A role that has rights over more
// than its tenant's data is refused: a user who may take it is as mighty as that.
func MissingRoles(ctx context.Context, db DB, user string, tenants map[string]string) (missing []string, err error) {
	var refused []error
	roles, err := rolesToTake(ctx, db, user, slices.Collect(maps.Values(tenants)))
	for _, r := range roles {
		if r.refusal != "" {
			refused = append(refused, fmt.Errorf("role %q of tenant %q %s: it would keep no tenants apart, and is not given to user %q: name another role in tenants.static, or take that from it",
				r.name, tenantOf(r.name, tenants), r.refusal, user))
		} else {
			missing = append(missing, r.statement)
		}
	}
	return missing, errors.Join(append(refused, err)...)
}

// RefusedRoles says of which roles, that a user cannot take yet, it should not be able to for a tenant's sake, and why.
// "" is the connection's own user.
func RefusedRoles(ctx context.Context, db DB, user string, roles []string) (why map[string]string, err error) {
	why = map[string]string{}
	if !slices.ContainsFunc(roles, func(role string) bool { return role != "" }) {
		return why, nil
	}
	found, err := rolesToTake(ctx, db, user, roles)
	for _, r := range found {
		if r.refusal != "" {
			why[r.name] = r.refusal
		}
	}
	return why, err
}

// roleToTake is a role that a user cannot take yet: what would let it, and why that should not be.
type roleToTake struct{ name, statement, refusal string }

func rolesToTake(ctx context.Context, db DB, user string, roles []string) ([]roleToTake, error) {
	return list(ctx, db, "look for roles", func(row pgx.CollectableRow) (r roleToTake, err error) {
		err = row.Scan(&r.name, &r.statement, &r.refusal)
		return r, err
	}, sqlGrantRoles, nullable(user), roles)
}

func tenantOf(role string, tenants map[string]string) string {
	for _, tenant := range slices.Sorted(maps.Keys(tenants)) {
		if tenants[tenant] == role {
			return tenant
		}
	}
	return ""
}

func statements(ctx context.Context, db DB, sql string, args ...any) ([]string, error) {
	return list(ctx, db, "look for privileges", pgx.RowTo[string], sql, args...)
}

// MissingNamed returns the statements that name a user to work on the ledger and give it what nodes need, none
// if both was done. Nobody is named who is a tenant's role by the ledger or by tenants, or such a role's group.
func MissingNamed(ctx context.Context, db DB, user string, tenants map[string]string) ([]string, error) {
	if err := refuseRuntime(ctx, db, user, tenants); err != nil {
		return nil, err
	}
	name, err := statements(ctx, db, sqlGrantName, user)
	if err != nil {
		return nil, err
	}
	rights, err := MissingGrants(ctx, db, user, ToRun)
	return append(name, rights...), err
}

// refuseRuntime refuses a user whose rights a tenant would have.
func refuseRuntime(ctx context.Context, db DB, user string, tenants map[string]string) error {
	role, tenant := user, tenantOf(user, tenants)
	if tenant == "" {
		err := db.QueryRow(ctx, sqlGrantRefused, user).Scan(&role, &tenant)
		if errors.Is(err, pgx.ErrNoRows) {
			return nil
		}
		if err != nil {
			return explain(err, "look whose role %q is", user)
		}
	}
	if role != user {
		return fmt.Errorf("role %q of tenant %q is a member of user %q, and would have all that user's rights on every tenant's jobs: first execute REVOKE %s FROM %s",
			role, tenant, user, pgx.Identifier{user}.Sanitize(), pgx.Identifier{role}.Sanitize())
	}
	return fmt.Errorf("user %q is the role of tenant %q, which is to have no rights on other tenants' jobs: have nodes connect as another user, and name that one", user, tenant)
}

// grantPatience is how long who grants waits for others who do.
const grantPatience = 10 * time.Second

// Grant names a user to work on the ledger, which is remembered, and gives it what nodes need. It returns the
// statements that were needed for it. It is the ledger's owner's to call; a user who needs nothing any more
// is given nothing by anybody.
func Grant(ctx context.Context, db interface {
	DB
	Beginner
}, user string,
) (done []string, err error) {
	if done, err = MissingNamed(ctx, db, user, nil); err != nil || len(done) == 0 {
		return nil, explain(err, "grant the ledger")
	}
	err = pgx.BeginTxFunc(ctx, db, readCommitted, func(tx pgx.Tx) error {
		if _, err := tx.Exec(ctx, sqlLockPatience, milliseconds(grantPatience), true); err != nil {
			return err
		}
		if _, err := tx.Exec(ctx, sqlGrantLock); err != nil {
			return err
		}
		if done, err = MissingNamed(ctx, tx, user, nil); err != nil {
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
	switch {
	case hasCode(err, codeLockTimeout):
		err = fmt.Errorf("%s: %w", holderOf(ctx, db, "tenure.runtime_user"), err)
	case hasCode(err, codeNoPrivilege):
		err = fmt.Errorf("connect as the ledger's owner: %w", err)
	}
	if err != nil {
		return nil, explain(err, "grant the ledger")
	}
	return done, nil
}

// GrantRoles lets a user take the tenants' roles that exist, and returns the statements that were
// needed for it and succeeded. It is for anyone who administers the roles to call.
func GrantRoles(ctx context.Context, db DB, user string, tenants map[string]string) (done []string, err error) {
	missing, err := MissingRoles(ctx, db, user, tenants)
	failed := []error{err}
	for _, sql := range missing {
		if _, err := db.Exec(ctx, sql); err != nil {
			failed = append(failed, fmt.Errorf("have who administers the roles execute %s: %w", sql, err))
			continue
		}
		done = append(done, sql)
	}
	return done, errors.Join(failed...)
}

// Grantees are the users who are to have the ledger to work on: those named here, which must
// exist, or, when none is, those whom an operator has named before.
func Grantees(ctx context.Context, db DB, named []string) ([]string, error) {
	before, err := statements(ctx, db, sqlGrantNamed)
	if err != nil || len(named) == 0 {
		return before, err
	}
	unknown, err := statements(ctx, db, sqlGrantUnknown, named)
	if err == nil && len(unknown) > 0 {
		err = fmt.Errorf("user %q does not exist on this server: create it first", unknown[0])
	}
	return named, err
}

// Regrant gives the users whom an operator has named what migrations have added, and
// returns the statements that were needed for it. Nobody else is given anything.
func Regrant(ctx context.Context, db interface {
	DB
	Beginner
},
) (done []string, err error) {
	users, err := behind(ctx, db)
	for _, user := range users {
		rights, err := Grant(ctx, db, user)
		if err != nil {
			return done, fmt.Errorf("user %s: %w", user, err)
		}
		done = append(done, rights...)
	}
	return done, err
}

// behind are the users named to work on the ledger who were not given all that this program needs.
func behind(ctx context.Context, db DB) (users []string, err error) {
	named, err := Grantees(ctx, db, nil)
	for _, user := range named {
		missing, err := MissingGrants(ctx, db, user, ToRun)
		if err != nil {
			return nil, err
		}
		if len(missing) > 0 {
			users = append(users, user)
		}
	}
	return users, err
}

// Holder is somebody who has rights on a ledger, and whom no operator has named to work on it; or who was named, and has
// none any more.
type Holder struct {
	User   string   // PUBLIC: everybody has them
	Tenant *string  // whose role it is, "" of all; nil: no tenant's
	Revoke []string // the statements that take the rights away; none: nodes may run as this user
	Lost   bool     // it was named, and has no rights any more
}

// Holders lists who has rights on the ledger by nobody's naming: beyond what documents give to processes that
// only enqueue, and, of tenants' roles, beyond what everybody has.
func Holders(ctx context.Context, db DB) ([]Holder, error) {
	return list(ctx, db, "look for who has rights on the ledger", pgx.RowToStructByPos[Holder], sqlGrantHolders)
}

// String says who it is, and what is wrong.
func (h Holder) String() string {
	switch {
	case h.Tenant != nil && len(h.Revoke) == 0:
		return fmt.Sprintf("user %s, which nodes run as, is the role of tenant %q, too, whose transactions are refused: they would have rights on the ledger, which is all tenants'", h.User, *h.Tenant)
	case h.Tenant != nil:
		return fmt.Sprintf("role %s of tenant %q has rights on the ledger, which is all tenants'", h.User, *h.Tenant)
	case h.Lost:
		return fmt.Sprintf("user %s was named to work on the ledger, and has no rights there: it was restored without them, or another user has the name now", h.User)
	case h.User == "PUBLIC":
		return "everybody who can connect (PUBLIC) has rights on the ledger"
	default:
		return fmt.Sprintf("user %s has rights on the ledger, and nobody has named it to work there", h.User)
	}
}

// Mend is what takes the rights away, or what keeps them from a tenant whose role nodes run as.
func (h Holder) Mend() string {
	switch {
	case len(h.Revoke) > 0:
		return "as the ledger's owner: " + strings.Join(h.Revoke, "; ")
	case h.Tenant != nil:
		return fmt.Sprintf("give tenant %q another role, by tenants.static, tenants.table or another pattern tenants.role; or have nodes connect as another user", *h.Tenant)
	}
	return ""
}

// Name is the command that names the holder of a pool's ledger to work on it; "": it cannot be.
func (h Holder) Name(pool string) string {
	if h.Tenant != nil || h.User == "PUBLIC" {
		return ""
	}
	return fmt.Sprintf("tenure migrate --pool %s --grants --runtime %s", pool, h.User)
}

// VerifyRights refuses, as a [*PoolError], a ledger on which the connection's user lacks a right that nodes need.
func VerifyRights(ctx context.Context, db DB, pool string) error {
	return verifyGrants(ctx, db, pool, ToRun)
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
