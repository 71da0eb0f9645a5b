package routing

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/tenancy"
)

// maxIdentifier is Postgres' limit in bytes. Longer names are cut without an
// error, so that two tenants could end up in one schema.
const maxIdentifier = 63

// place applies the patterns and refuses names that Postgres would cut, that
// belong to Postgres, or that would put a tenant into Tenure's own schema.
func (t TenantsConfig) place(id tenancy.ID, pool, schema, role string) (tenancy.Tenant, error) {
	if schema == "" {
		schema = strings.ReplaceAll(t.Schema, "{tenant}", string(id))
	}
	if role == "" {
		role = strings.ReplaceAll(t.Role, "{tenant}", string(id))
	}
	bad := wrongIdentifier(schema)
	if schema == "public" || schema == "tenure" || schema == "information_schema" || strings.HasPrefix(schema, "pg_") {
		bad = "is not a tenant's: give it a schema of its own"
	}
	if bad != "" {
		return tenancy.Tenant{}, &nameError{id, "schema", schema, bad}
	}
	if role != "" {
		bad = wrongIdentifier(role)
	}
	if strings.HasPrefix(role, "pg_") || role == "none" || role == "public" {
		bad = "is reserved by Postgres"
	}
	if bad != "" {
		return tenancy.Tenant{}, &nameError{id, "role", role, bad}
	}
	return tenancy.Tenant{ID: id, Pool: pool, Schema: schema, Role: role}, nil
}

// nameError is a schema or a role that no tenant can have.
type nameError struct {
	tenant     tenancy.ID
	what, name string
	fault      string
}

func (e *nameError) Error() string {
	return fmt.Sprintf("tenant %q: %s %q %s", e.tenant, e.what, e.name, e.fault)
}

// wrongIdentifier is what is wrong with a name, "" for nothing.
func wrongIdentifier(name string) string {
	switch {
	case name == "":
		return "is empty"
	case len(name) > maxIdentifier:
		return fmt.Sprintf("has %d bytes: Postgres would cut it after %d", len(name), maxIdentifier)
	case strings.ContainsRune(name, 0):
		return "holds a NUL byte"
	case name == "$user":
		return "means another schema for every role"
	}
	return ""
}

func isPoolName(name string) bool {
	ok := name != "" && len(name) <= maxIdentifier
	for i, c := range []byte(name) {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9'
		ok = ok && (letter || i > 0 && (c == '-' || c == '_' || c == '.'))
	}
	return ok
}

// choosePool is the fix for the name of a pool that there is not.
func choosePool(pools map[string]PoolConfig, name string) string {
	if len(pools) == 0 {
		return "there is no pool yet: name it under pools"
	}
	names := slices.Sorted(maps.Keys(pools))
	if fix := fault.DidYouMean(name, names); fix != "" {
		return fix
	}
	if len(names) > 8 {
		names = append(names[:8], "…")
	}
	return "pools are: " + strings.Join(names, ", ")
}

// listed is how tenants.static places a tenant, if it does.
func (t TenantsConfig) listed(id tenancy.ID) (placed tenancy.Tenant, ok bool) {
	s, ok := t.Static[id]
	if !ok {
		return placed, false
	}
	placed, err := t.place(id, s.Pool, s.Schema, s.Role)
	return placed, err == nil // else Validate has refused it
}

// TenantsOf are the tenants that tenants.static places in a pool.
func (c Config) TenantsOf(pool string) (tenants []tenancy.Tenant) {
	for _, id := range slices.Sorted(maps.Keys(c.Tenants.Static)) {
		if t, ok := c.Tenants.listed(id); ok && t.Pool == pool {
			tenants = append(tenants, t)
		}
	}
	return tenants
}

// Roles are the roles of a pool's tenants, by tenant, as far as they are under
// tenants.static, and under "" the pattern of the others'.
func (c Config) Roles(pool string) map[string]string {
	roles := map[string]string{store.PatternRole: c.Tenants.Role}
	for _, t := range c.TenantsOf(pool) {
		roles[string(t.ID)] = t.Role
	}
	return roles
}

// AllRoles are the roles of all tenants under tenants.static, by tenant, "" for none, and
// under "" the pattern of the others'; all: there are no others.
func (c Config) AllRoles() (roles map[string]string, all bool) {
	roles = map[string]string{}
	for pool := range c.Pools {
		maps.Copy(roles, c.Roles(pool))
	}
	return roles, c.Tenants.Table == nil
}

// validateSchemas refuses what tenants cannot have in common.
func (t TenantsConfig) validateSchemas(l *fault.List, path string, schemas []string) {
	for i, name := range schemas {
		path := fmt.Sprintf("%s[%d]", path, i)
		const fix = "write schemas of the application, such as [public]"
		bad := wrongIdentifier(name)
		switch {
		case bad != "":
			l.Add(path, fix, "%s", bad)
		case name == "tenure" || name == "information_schema" || strings.HasPrefix(name, "pg_"):
			l.Add(path, fix, "is not what tenants have in common, but Tenure's own or Postgres' own")
		case strings.ContainsFunc(name, func(r rune) bool { return r >= utf8.RuneSelf }):
			l.Add(path, "give it a name of ASCII letters", "is read in another way by clients of another encoding")
		case strings.Contains(name, "{tenant}"):
			l.Add(path, "write the name itself: a tenant's own schema is searched first in any case", "has {tenant}, which stands for another schema for each tenant")
		}
		for _, id := range slices.Sorted(maps.Keys(t.Static)) {
			if placed, ok := t.listed(id); ok && placed.Schema == name {
				l.Add(path, "put what tenants have in common into a schema of its own", "is tenant %q's", id)
				break
			}
		}
	}
}

// sharedBy are the schemas that a tenant in a pool has in common with others, as SQL.
func (c Config) sharedBy(id tenancy.ID, pool string) string {
	schemas := c.Tenants.Schemas
	if own := c.Pools[pool].Schemas; len(own) > 0 {
		schemas = own
	}
	if own := c.Tenants.Static[id].Schemas; len(own) > 0 {
		schemas = own
	}
	quoted := make([]string, len(schemas))
	for i, name := range schemas {
		quoted[i] = pgx.Identifier{name}.Sanitize()
	}
	return strings.Join(quoted, ", ")
}
