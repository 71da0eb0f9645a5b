package routing

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/tenancy"
)

func TestPlace(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		patterns     TenantsConfig
		id           tenancy.ID
		schema, role string // as the map or the table gives them
		want         tenancy.Tenant
	}{
		"the id itself":         {TenantsConfig{Schema: "{tenant}"}, "acme", "", "", tenancy.Tenant{Schema: "acme"}},
		"patterns":              {TenantsConfig{Schema: "t_{tenant}", Role: "{tenant}_app"}, "acme", "", "", tenancy.Tenant{Schema: "t_acme", Role: "acme_app"}},
		"twice in a pattern":    {TenantsConfig{Schema: "{tenant}_{tenant}"}, "a", "", "", tenancy.Tenant{Schema: "a_a"}},
		"one role for all":      {TenantsConfig{Schema: "{tenant}", Role: "app"}, "acme", "", "", tenancy.Tenant{Schema: "acme", Role: "app"}},
		"given, not by pattern": {TenantsConfig{Schema: "t_{tenant}", Role: "{tenant}"}, "acme", "s", "r", tenancy.Tenant{Schema: "s", Role: "r"}},
		"only the role given":   {TenantsConfig{Schema: "t_{tenant}"}, "acme", "", "r", tenancy.Tenant{Schema: "t_acme", Role: "r"}},
		"an id like a pattern":  {TenantsConfig{Schema: "t_{tenant}"}, "{tenant}", "", "", tenancy.Tenant{Schema: "t_{tenant}"}},
		"quotes":                {TenantsConfig{Schema: "{tenant}"}, `a","public`, "", "", tenancy.Tenant{Schema: `a","public`}},
		"an injection":          {TenantsConfig{Schema: "{tenant}"}, `x'--`, "", "", tenancy.Tenant{Schema: `x'--`}},
		"Turkish İ":             {TenantsConfig{Schema: "{tenant}", Role: "r_{tenant}"}, "İ", "", "", tenancy.Tenant{Schema: "İ", Role: "r_İ"}},
		"63 bytes":              {TenantsConfig{Schema: "t_{tenant}"}, tenancy.ID(strings.Repeat("x", 61)), "", "", tenancy.Tenant{Schema: "t_" + strings.Repeat("x", 61)}},
		"a role of 63 bytes":    {TenantsConfig{Schema: "{tenant}"}, "a", "", strings.Repeat("é", 31) + "e", tenancy.Tenant{Schema: "a", Role: strings.Repeat("é", 31) + "e"}},
		"not quite reserved":    {TenantsConfig{Schema: "{tenant}"}, "a", "pgx", "None", tenancy.Tenant{Schema: "pgx", Role: "None"}},
		"Public in quotes":      {TenantsConfig{Schema: "{tenant}"}, "a", "Public", "Public", tenancy.Tenant{Schema: "Public", Role: "Public"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tc.want.ID, tc.want.Pool = tc.id, "main"
			got, err := tc.patterns.place(tc.id, "main", tc.schema, tc.role)
			require.NoError(t, err)
			require.Equal(t, tc.want, got)
		})
	}
}

func TestPlace_refuses(t *testing.T) {
	t.Parallel()
	const notATenants = "is not a tenant's: give it a schema of its own"
	for name, tc := range map[string]struct {
		patterns     TenantsConfig
		id           tenancy.ID
		schema, role string
		want         string
	}{
		"no schema":              {TenantsConfig{}, "acme", "", "", `tenant "acme": schema "" is empty`},
		"public":                 {TenantsConfig{Schema: "{tenant}"}, "public", "", "", `tenant "public": schema "public" ` + notATenants},
		"our own":                {TenantsConfig{Schema: "{tenant}"}, "tenure", "", "", `schema "tenure" ` + notATenants},
		"our own by pattern":     {TenantsConfig{Schema: "ten{tenant}"}, "ure", "", "", `schema "tenure" ` + notATenants},
		"pg_catalog":             {TenantsConfig{Schema: "pg_{tenant}"}, "catalog", "", "", `schema "pg_catalog" ` + notATenants},
		"pg_temp":                {TenantsConfig{Schema: "{tenant}"}, "a", "pg_temp", "", `schema "pg_temp" ` + notATenants},
		"any pg_":                {TenantsConfig{Schema: "{tenant}"}, "a", "pg_mine", "", `schema "pg_mine" ` + notATenants},
		"information_schema":     {TenantsConfig{Schema: "{tenant}"}, "a", "information_schema", "", notATenants},
		"$user":                  {TenantsConfig{Schema: "${tenant}"}, "user", "", "", `schema "$user" means another schema for every role`},
		"64 bytes":               {TenantsConfig{Schema: "t_{tenant}"}, tenancy.ID(strings.Repeat("x", 62)), "", "", "has 64 bytes: Postgres would cut it after 63"},
		"64 bytes of é":          {TenantsConfig{Schema: "{tenant}"}, tenancy.ID(strings.Repeat("é", 32)), "", "", "has 64 bytes"},
		"NUL":                    {TenantsConfig{Schema: "{tenant}"}, "a", "a\x00b", "", "holds a NUL byte"},
		"a role of 64 bytes":     {TenantsConfig{Schema: "{tenant}"}, "a", "", strings.Repeat("r", 64), "role \"" + strings.Repeat("r", 64) + "\" has 64 bytes"},
		"a role by pattern":      {TenantsConfig{Schema: "s", Role: "role_of_{tenant}"}, tenancy.ID(strings.Repeat("x", 60)), "", "", "has 68 bytes"},
		"a role with NUL":        {TenantsConfig{Schema: "{tenant}"}, "a", "", "\x00", "role \"\\x00\" holds a NUL byte"},
		"the role none":          {TenantsConfig{Schema: "{tenant}"}, "a", "", "none", `role "none" is reserved by Postgres`},
		"the role none, pattern": {TenantsConfig{Schema: "s", Role: "{tenant}"}, "none", "", "", `role "none" is reserved by Postgres`},
		"the role public":        {TenantsConfig{Schema: "{tenant}"}, "a", "", "public", `role "public" is reserved by Postgres`},
		"pg_monitor":             {TenantsConfig{Schema: "{tenant}"}, "a", "", "pg_monitor", `role "pg_monitor" is reserved by Postgres`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			got, err := tc.patterns.place(tc.id, "main", tc.schema, tc.role)
			require.ErrorContains(t, err, tc.want)
			require.Zero(t, got)
		})
	}
}

// Whatever the tenant's id, it never leads into a schema that is not its own.
func TestPlace_anyID(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		patterns := TenantsConfig{
			Schema: rapid.SampledFrom([]string{"{tenant}", "t_{tenant}", "{tenant}_x", "pg{tenant}", "$us{tenant}"}).Draw(rt, "schema"),
			Role:   rapid.SampledFrom([]string{"", "app", "{tenant}"}).Draw(rt, "role"),
		}
		word := rapid.SampledFrom([]string{"public", "tenure", "pg_", "pg_toast", "er", "none", "é", `"`, "$user", "information_schema", "x"})
		id := func(label string) tenancy.ID {
			return tenancy.ID(strings.Join(rapid.SliceOfN(word, 1, 12).Draw(rt, label), ""))
		}
		one, other := id("one"), id("other")
		a, err := patterns.place(one, "main", "", "")
		if err != nil {
			return
		}
		require.NotEmpty(rt, a.Schema)
		require.LessOrEqual(rt, len(a.Schema), 63)
		require.LessOrEqual(rt, len(a.Role), 63)
		require.NotContains(rt, []string{"public", "tenure", "information_schema", "$user"}, a.Schema)
		require.False(rt, strings.HasPrefix(a.Schema, "pg_"), a.Schema)
		require.NotContains(rt, []string{"public", "none"}, a.Role)
		if b, err := patterns.place(other, "main", "", ""); err == nil && one != other {
			require.NotEqual(rt, a.Schema, b.Schema)
		}
	})
}
