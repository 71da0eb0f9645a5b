package routing_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// waysToSet are those in which a tenant's transaction can give a setting of its own a value,
// app.hidden here, in database this; stays: its name is
// there afterwards, with no value.
var waysToSet = map[string]struct {
	sql   string
	stays bool
}{
	"SET":                               {"SET app.hidden = 'secret'", true},
	"SET LOCAL":                         {"BEGIN; SET LOCAL app.hidden = 'secret'; COMMIT", true},
	"SET in a transaction":              {"BEGIN; SET app.hidden = 'secret'; COMMIT", true},
	"SET, rolled back":                  {"BEGIN; SET app.hidden = 'secret'; ROLLBACK", true},
	"SET LOCAL over SET":                {"SET app.hidden = 'secret'; BEGIN; SET LOCAL app.hidden = 'secret, too'; COMMIT", true},
	"SET in a savepoint":                {"BEGIN; SAVEPOINT s; SET app.hidden = 'secret'; RELEASE s; COMMIT", true},
	"set_config":                        {"SELECT set_config('app.hidden', 'secret', false)", true},
	"set_config, local":                 {"BEGIN; SELECT set_config('app.hidden', 'secret', true); COMMIT", true},
	"set_config in a function":          {"SELECT tenant.hide()", true},
	"a function with a setting":         {"SELECT tenant.hides()", true},
	"a DO block":                        {"DO $$ BEGIN SET app.hidden = 'secret'; END $$", true},
	"ALTER ROLE, refused, too":          {"ALTER ROLE CURRENT_USER IN DATABASE this SET app.hidden = 'secret'", false},
	"ALTER ROLE of the tenant, refused": {"SET ROLE settings_tenant; ALTER ROLE settings_tenant SET app.hidden = 'secret'; RESET ROLE", false},
	"ALTER ROLE, refused":               {"SET ROLE settings_tenant; ALTER ROLE tenure_test_app IN DATABASE this SET app.hidden = 'secret'", false},
	"ALTER DATABASE, refused":           {"ALTER DATABASE this SET app.hidden = 'secret'", false},
	"ALTER SYSTEM, refused":             {"ALTER SYSTEM SET app.hidden = 'secret'", false},
	"a name that is kept quoted":        {`SET "app"."hidden" = 'secret'`, true},
}

// The value of a setting with a name of its own is never seen by the next user of a
// connection, nor in a session that begins later. That it has been set is: Postgres has no
// way to forget a name.
func TestScrub_customSettings(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	owner, err := pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(owner.Close)
	var database string
	require.NoError(t, owner.QueryRow(t.Context(), "SELECT quote_ident(current_database())").Scan(&database))
	_, err = owner.Exec(t.Context(), `CREATE SCHEMA tenant; GRANT USAGE ON SCHEMA tenant TO PUBLIC;
		CREATE FUNCTION tenant.hide() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM set_config(''app.hidden'', ''secret'', false); END';
		CREATE FUNCTION tenant.hides() RETURNS void LANGUAGE plpgsql SET app.hidden = 'secret' AS 'BEGIN END'`)
	require.NoError(t, err)
	storetest.Role(t, owner, "settings_tenant", "tenant")
	p := poolOf(t, started(t, withPools(map[string]string{"main": storetest.AsRuntime(dsn)})), "main")
	look := func(c *pgxpool.Conn) *string {
		t.Helper()
		var value *string
		require.NoError(t, c.QueryRow(t.Context(), "SELECT current_setting('app.hidden', true)").Scan(&value))
		return value
	}
	deref := func(s *string) string {
		if s == nil {
			return ""
		}
		return *s
	}
	destroy := func(c *pgxpool.Conn) { _, _ = c.Exec(t.Context(), "SELECT pg_terminate_backend(pg_backend_pid())") }
	for name, way := range waysToSet {
		before := use(t, p, func(c *pgxpool.Conn) {
			require.Nil(t, look(c), "%s: the connection is new", name)
			_, err := c.Exec(t.Context(), strings.ReplaceAll(way.sql, "DATABASE this", "DATABASE "+database))
			if strings.Contains(name, "refused") {
				require.ErrorContains(t, err, "(SQLSTATE 42501)", name)
			} else {
				require.NoError(t, err, name)
			}
		})
		after := use(t, p, func(c *pgxpool.Conn) {
			value := look(c)
			if !way.stays {
				require.Empty(t, deref(value), name) // what is refused may leave its name
				return
			}
			require.NotNil(t, value, "%s: its name can be forgotten: docs/guarantees.md says that it cannot", name)
			require.Empty(t, *value, name)
			for _, unset := range []string{
				"RESET app.hidden", "SET app.hidden TO DEFAULT", "SELECT set_config('app.hidden', NULL, false)",
				"RESET ALL", "DISCARD ALL", "BEGIN; SET LOCAL app.hidden TO DEFAULT; ROLLBACK",
			} {
				for _, one := range strings.Split(unset, "; ") { // DISCARD ALL must be alone
					_, err := c.Exec(t.Context(), one)
					require.NoError(t, err, unset)
				}
				value := look(c)
				require.NotNil(t, value, "%s takes the name away: the scrub can, too", unset)
				require.Empty(t, *value)
			}
			var shown int
			require.NoError(t, c.QueryRow(t.Context(), "SELECT count(*) FROM pg_settings WHERE name LIKE 'app.%'").Scan(&shown))
			require.Zero(t, shown)
		})
		require.Equal(t, before.pid, after.pid, name)
		use(t, p, destroy)
		use(t, p, func(c *pgxpool.Conn) {
			require.Nil(t, look(c), "%s: in a session that begins later", name)
			_, err := c.Exec(t.Context(), "SET ROLE settings_tenant")
			require.NoError(t, err)
			require.Nil(t, look(c), "%s: in a session that begins later, as the tenant", name)
		})
		use(t, p, destroy)
	}
}
