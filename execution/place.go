package execution

import (
	"errors"
	"fmt"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/tenancy"
)

// The SQLSTATEs of a tenant's place that is not as a transaction needs it.
const (
	codeNoPlace     = "TN002" // tenure.begin_tenant: there is no such schema, or the role may not use it
	codeNoRole      = "22023" // invalid_parameter_value, of role
	codeNotAllowed  = "42501" // insufficient_privilege: the user is no member of the role
	correctTheRoute = "; or correct where the tenant is routed to"
)

// placeMend is the SQL that makes a tenant's schema and role as err says they are not, with what
// leads to it; "": err says something else.
func placeMend(err error, t tenancy.Tenant, who string) string {
	var pg *pgconn.PgError
	if !errors.As(err, &pg) {
		return ""
	}
	schema, role, user := quoteName(t.Schema), quoteName(t.Role), quoteName(who)
	switch {
	case pg.Code == codeNoPlace:
		if t.Role == "" {
			role = user
		}
		return fmt.Sprintf(": execute in pool %s: CREATE SCHEMA IF NOT EXISTS %s; GRANT USAGE ON SCHEMA %[2]s TO %s", t.Pool, schema, role) + correctTheRoute
	case pg.Code == codeNoRole && t.Role != "":
		return fmt.Sprintf(": execute on its server: CREATE ROLE %s; GRANT %[1]s TO %s", role, user) + correctTheRoute
	case pg.Code == codeNotAllowed && t.Role != "":
		return fmt.Sprintf(": execute on its server: GRANT %s TO %s", role, user) + correctTheRoute
	}
	return ""
}

func quoteName(name string) string { return pgx.Identifier{name}.Sanitize() }
