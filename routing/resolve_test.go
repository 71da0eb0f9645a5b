package routing_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestResolve_static(t *testing.T) {
	t.Parallel()
	c := withPools(map[string]string{"a": "host=nowhere", "b": "host=nowhere"}) // a static map asks no database
	c.Tenants = routing.TenantsConfig{Schema: "t_{tenant}", Role: "{tenant}_app", Static: map[tenancy.ID]routing.TenantConfig{
		"acme":   {Pool: "a"},
		"globex": {Pool: "b", Schema: "g", Role: "r"},
	}}
	r := newRouter(t, c)
	for want, pool := range map[tenancy.Tenant]string{
		{ID: "acme", Pool: "a", Schema: "t_acme", Role: "acme_app"}: "a",
		{ID: "globex", Pool: "b", Schema: "g", Role: "r"}:           "b",
	} {
		got, p, err := r.Resolve(t.Context(), want.ID)
		require.NoError(t, err)
		require.Equal(t, want, got)
		require.Same(t, poolOf(t, r, pool), p)
	}
	_, p, err := r.Resolve(t.Context(), "ACME")
	require.ErrorIs(t, err, tenancy.ErrUnknownTenant)
	require.EqualError(t, err, `unknown tenant "ACME": it is not under tenants.static, and there is no tenants.table`)
	require.Nil(t, p)

	_, _, err = r.Resolve(t.Context(), " acme")
	require.ErrorContains(t, err, "begins or ends with white space")
	require.NotErrorIs(t, err, tenancy.ErrUnknownTenant)
}

const tenantTable = `
CREATE SCHEMA app;
CREATE TABLE app.tenant (id text, pool text, schema_name varchar(100), role_name name);
INSERT INTO app.tenant VALUES
	('full',      'eu', 's', 'r'),
	('patterns',  'eu', NULL, NULL),
	('empty',     ' eu ', '', ' '),
	('listed',    'eu', 'elsewhere', NULL),
	('twice',     'eu', NULL, NULL), ('twice', 'main', NULL, NULL),
	('moved',     'us', NULL, NULL),
	('nowhere',   NULL, NULL, NULL),
	('public',    'eu', NULL, NULL),
	('reserved',  'eu', 'pg_catalog', NULL),
	('nobody',    'eu', NULL, 'none'),
	('runtime',   'eu', NULL, 'postgres'),
	('guest',     'main', 't_listed', NULL);`

const fullQuery = "SELECT pool, schema_name, role_name FROM app.tenant WHERE id = $1"

// lookups returns a configuration whose table is asked with query.
func lookups(t testing.TB) func(query string, cache time.Duration) routing.Config {
	main, eu := storetest.DSN(t, "main", 1), storetest.DSN(t, "eu", 2)
	exec(t, main, tenantTable)
	return func(query string, cache time.Duration) routing.Config {
		c := withPools(map[string]string{"main": main, "eu": eu})
		c.Tenants = routing.TenantsConfig{
			Schema: "t_{tenant}", Role: "{tenant}_app",
			Static: map[tenancy.ID]routing.TenantConfig{"listed": {Pool: "main"}},
			Table:  &routing.TableConfig{Pool: "main", Query: query, Cache: cache},
		}
		return c
	}
}

func TestResolve_table(t *testing.T) {
	t.Parallel()
	with := lookups(t)
	full := started(t, with(fullQuery, time.Hour))
	for range 2 { // asked, and out of the cache
		for _, want := range []tenancy.Tenant{
			{ID: "full", Pool: "eu", Schema: "s", Role: "r"},
			{ID: "patterns", Pool: "eu", Schema: "t_patterns", Role: "patterns_app"},
			{ID: "empty", Pool: "eu", Schema: "t_empty", Role: "empty_app"},
			{ID: "public", Pool: "eu", Schema: "t_public", Role: "public_app"},
			{ID: "listed", Pool: "main", Schema: "t_listed", Role: "listed_app"}, // the map wins
		} {
			got, p, err := full.Resolve(t.Context(), want.ID)
			require.NoError(t, err)
			require.Equal(t, want, got)
			require.Same(t, poolOf(t, full, want.Pool), p)
		}
		for id, want := range map[tenancy.ID]string{
			"unheard":                  `unknown tenant "unheard": neither tenants.static nor tenants.table knows it`,
			`x' OR 'a' = 'a`:           `unknown tenant "x' OR 'a' = 'a": neither`,
			"twice":                    `tenants.table: more than one row for tenant "twice"`,
			"reserved":                 `tenants.table: tenant "reserved": schema "pg_catalog" is not a tenant's`,
			"nobody":                   `tenants.table: tenant "nobody": role "none" is reserved by Postgres`,
			"runtime":                  `tenant "runtime": its role "postgres" is the user that nodes connect to pool "eu" as, which has all tenants' jobs`,
			"guest":                    `tenants.table: tenants "listed" and "guest" share schema "t_listed" in pool "main": give each its own schema`,
			"moved":                    `tenant "moved" is routed to pool "us", which is not configured: add it under pools, or correct the row`,
			"nowhere":                  `tenant "nowhere" is routed to pool "", which is not configured`,
			"":                         "tenant id is empty",
			tenancy.ID("\x00full\x00"): "unprintable character",
		} {
			got, p, err := full.Resolve(t.Context(), id)
			require.ErrorContains(t, err, want)
			unknown, unusable := id == "unheard" || id == `x' OR 'a' = 'a`, new(routing.RouteError)
			require.Equal(t, unknown, errors.Is(err, tenancy.ErrUnknownTenant), "%v", err)
			require.Equal(t, !unknown && id.Validate() == nil, errors.As(err, &unusable), "%v", err)
			require.Zero(t, got)
			require.Nil(t, p)
		}
	}
}

func TestResolve_queries(t *testing.T) {
	t.Parallel()
	with := lookups(t)
	for name, tc := range map[string]struct {
		query string
		want  tenancy.Tenant
		err   string
	}{
		"the pool alone":         {query: "SELECT pool FROM app.tenant WHERE id = $1", want: tenancy.Tenant{Pool: "eu", Schema: "t_full", Role: "full_app"}},
		"pool and schema":        {query: "SELECT pool, schema_name FROM app.tenant WHERE id = $1", want: tenancy.Tenant{Pool: "eu", Schema: "s", Role: "full_app"}},
		"untyped":                {query: "SELECT 'eu', NULL, 'r' WHERE $1 = 'full'", want: tenancy.Tenant{Pool: "eu", Schema: "t_full", Role: "r"}},
		"the id of another type": {query: "SELECT 'eu' WHERE $1::name = 'full'", want: tenancy.Tenant{Pool: "eu", Schema: "t_full", Role: "full_app"}},
		"a number":               {query: "SELECT 1 WHERE $1 = 'full'", err: `is routed to pool "1"`}, // pgx reads it as text
		"a time":                 {query: "SELECT now() WHERE $1 = 'full'", err: "tenants.table: its columns must be text: pool, schema, role: "},
		"a wrong role":           {query: "SELECT 'eu', NULL, ARRAY['r'] WHERE $1 = 'full'", err: "tenants.table: its columns must be text: pool, schema, role: "},
		"too many columns":       {query: "SELECT pool, schema_name, role_name, id FROM app.tenant WHERE id = $1", err: "tenants.table: its columns must be text: pool, schema, role: "},
		"no column":              {query: "SELECT FROM app.tenant WHERE id = $1", err: `is routed to pool ""`},
		"no table":               {query: "SELECT pool FROM app.tenants WHERE id = $1", err: `look tenant "full" up in pool main: ERROR: relation "app.tenants" does not exist`},
		"no SQL":                 {query: "who is $1?", err: `look tenant "full" up in pool main: ERROR: syntax error`},
		"another argument":       {query: "SELECT $1::text, $2::text", err: `look tenant "full" up in pool main: `},
		"an id that is no id":    {query: "SELECT 'eu' WHERE $1 = 7", err: `look tenant "full" up in pool main: `},
		"an error half-way":      {query: "SELECT (1 / (length($1) - 4))::text", err: `look tenant "full" up in pool main: ERROR: division by zero`},
		"no row":                 {query: "SELECT 'eu' WHERE $1 = ''", err: `unknown tenant "full"`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := started(t, with(tc.query, time.Hour))
			got, _, err := r.Resolve(t.Context(), "full")
			if tc.err != "" {
				require.ErrorContains(t, err, tc.err)
				require.Equal(t, name == "no row", errors.Is(err, tenancy.ErrUnknownTenant))
				return
			}
			require.NoError(t, err)
			tc.want.ID = "full"
			require.Equal(t, tc.want, got)
		})
	}
}

func TestResolve_remembers(t *testing.T) {
	t.Parallel()
	with := lookups(t)
	long, none, short := started(t, with(fullQuery, time.Hour)), started(t, with(fullQuery, time.Nanosecond)), started(t, with(fullQuery, 50*time.Millisecond))
	where := func(r *routing.Router, id tenancy.ID) string {
		tenant, _, err := r.Resolve(t.Context(), id)
		if err != nil {
			return err.Error()
		}
		return tenant.Schema
	}
	const unknown = `unknown tenant "new": neither tenants.static nor tenants.table knows it`
	for _, r := range []*routing.Router{long, none, short} {
		require.Equal(t, "s", where(r, "full"))
		require.Equal(t, unknown, where(r, "new"))
		require.Contains(t, where(r, "twice"), "more than one row")
	}
	require.NoError(t, execTenants(t.Context(), poolOf(t, long, "main"),
		"UPDATE app.tenant SET schema_name = 'moved' WHERE id = 'full'; INSERT INTO app.tenant VALUES ('new', 'eu', 'n'); DELETE FROM app.tenant WHERE id = 'twice' AND pool = 'main'"))

	require.Eventually(t, func() bool { return where(long, "new") == "n" && where(long, "twice") == "t_twice" }, patience, 5*time.Millisecond,
		"not for long that it is unknown, or that its row cannot be used")
	require.Equal(t, "s", where(long, "full"))

	require.Equal(t, "moved", where(none, "full"))
	require.Equal(t, "n", where(none, "new"))
	require.Equal(t, "t_twice", where(none, "twice"))

	require.Eventually(t, func() bool {
		return where(short, "full") == "moved" && where(short, "new") == "n" && where(short, "twice") == "t_twice"
	}, patience, 5*time.Millisecond)
}

// Two tenants in one schema are refused however long ago the other one was looked up; what that one has left is free
// at once.
func TestResolve_refusesASharedSchemaWhateverIsRemembered(t *testing.T) {
	t.Parallel()
	r := started(t, lookups(t)(fullQuery, time.Nanosecond))
	set := func(sql string) { require.NoError(t, execTenants(t.Context(), poolOf(t, r, "main"), sql)) }
	set("INSERT INTO app.tenant VALUES ('second', 'eu', 's')")
	_, _, err := r.Resolve(t.Context(), "full")
	require.NoError(t, err)
	_, _, err = r.Resolve(t.Context(), "second")
	require.ErrorContains(t, err, `tenants "full" and "second" share schema "s" in pool "eu"`)
	set("UPDATE app.tenant SET schema_name = 'own' WHERE id = 'full'")
	second, _, err := r.Resolve(t.Context(), "second")
	require.NoError(t, err)
	require.Equal(t, "s", second.Schema)
	full, _, err := r.Resolve(t.Context(), "full")
	require.NoError(t, err)
	require.Equal(t, "own", full.Schema)
}

// That nobody knows a tenant is remembered for a moment; not having been able to ask is not.
func TestResolve_doesNotRememberAnOutage(t *testing.T) {
	t.Parallel()
	cfg := lookups(t)(fullQuery, time.Hour)
	r := started(t, cfg)
	away := shutterOf(t, cfg.Pools["main"].DSN)
	away.close(t)
	_, _, err := r.Resolve(t.Context(), "full")
	require.ErrorContains(t, err, `look tenant "full" up in pool main: `)
	require.NotErrorIs(t, err, tenancy.ErrUnknownTenant, "a tenant is not unknown because nobody could be asked")

	away.open(t)
	require.Eventually(t, func() bool { _, _, err = r.Resolve(t.Context(), "full"); return err == nil }, patience, 5*time.Millisecond, "%v", err)

	over, cancel := context.WithCancel(t.Context())
	cancel()
	_, _, err = r.Resolve(over, "patterns")
	require.ErrorIs(t, err, context.Canceled)
	_, _, err = r.Resolve(t.Context(), "patterns")
	require.NoError(t, err, "nor that the caller went away")
}

// oldAnswer starts a router behind a proxy that has once looked up where "full" lives, and
// has to ask again.
func oldAnswer(t *testing.T, cfg routing.Config) (*routing.Router, *faultproxy.Proxy, tenancy.Tenant) {
	proxy, err := faultproxy.New(cfg.Pools["main"].DSN)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, proxy.Close()) })
	main := cfg.Pools["main"]
	main.DSN = proxy.DSN()
	cfg.Pools["main"] = main
	r := started(t, cfg)
	was, _, err := r.Resolve(t.Context(), "full")
	require.NoError(t, err)
	time.Sleep(2 * cfg.Tenants.Table.Cache)
	return r, proxy, was
}

// Of those who look a tenant up in a table that does not answer, the first waits, and for a
// bounded time. Then one look at a time is made that nobody waits for, until one is answered.
func TestResolve_waitsForASilentTableOnce(t *testing.T) {
	t.Parallel()
	cfg := lookups(t)(fullQuery, time.Millisecond)
	r, proxy, was := oldAnswer(t, cfg)

	proxy.Hold(func(string) bool { return true })
	const bound = 2 * time.Second // of a look
	longest := func(id tenancy.ID, times int) (d time.Duration) {
		for range times {
			began := time.Now()
			now, _, err := r.Resolve(t.Context(), id)
			d = max(d, time.Since(began))
			if id == "full" {
				require.NoError(t, err)
				require.Equal(t, was, now, "where it lived last")
			} else {
				require.ErrorContains(t, err, `look tenant "patterns" up in pool main: `)
			}
			time.Sleep(10 * time.Millisecond)
		}
		return d
	}
	require.GreaterOrEqual(t, longest("full", 1), bound)
	for _, id := range []tenancy.ID{"full", "patterns"} {
		require.Less(t, longest(id, 300), bound, "in a time in which it was tried again")
	}
	proxy.Hold(nil)
	require.Eventually(t, func() bool { _, _, err := r.Resolve(t.Context(), "patterns"); return err == nil }, patience, 5*time.Millisecond)
}

// Somebody who waits for such a table for less than that shows as much, and only once.
func TestResolve_givesUpOnASilentTable(t *testing.T) {
	t.Parallel()
	cfg := lookups(t)(fullQuery, time.Millisecond)
	r, proxy, was := oldAnswer(t, cfg)
	proxy.Hold(func(string) bool { return true })
	impatient := func(patience time.Duration) (tenancy.Tenant, error) {
		ctx, cancel := context.WithTimeout(t.Context(), patience)
		defer cancel()
		got, _, err := r.Resolve(ctx, "full")
		return got, err
	}
	_, err := impatient(500 * time.Millisecond)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	for range 10 {
		got, err := impatient(1500 * time.Millisecond) // all of which it would need to ask the table
		require.NoError(t, err)
		require.Equal(t, was, got)
	}
	proxy.Hold(nil)
}

func TestResolve_concurrently(t *testing.T) {
	t.Parallel()
	r := started(t, lookups(t)("SELECT 'eu', 's_' || $1", time.Millisecond))
	errs := make([]error, 8)
	var group sync.WaitGroup
	for i := range errs {
		group.Go(func() {
			for n := range 50 {
				id := tenancy.ID(fmt.Sprint("t", n%10))
				tenant, _, err := r.Resolve(t.Context(), id)
				if err == nil && tenant.Schema != "s_"+string(id) {
					err = fmt.Errorf("tenant %s was given %v", id, tenant)
				}
				if err != nil {
					errs[i] = err
					return
				}
			}
		})
	}
	group.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
}

// Names that routing lets through stay names in SQL.
func TestResolve_namesReachPostgresWhole(t *testing.T) {
	t.Parallel()
	c := withPools(map[string]string{"main": storetest.DSN(t, "main", 1)})
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	ids := []tenancy.ID{`a","public`, `x'--`, "İ", "a b", "Acme", "select", "😀", `back\slash`, "%s{}", `""`, "a.b"}
	for _, id := range ids {
		c.Tenants.Static[id] = routing.TenantConfig{Pool: "main"}
	}
	r := started(t, c)
	p := poolOf(t, r, "main")
	for _, id := range ids {
		tenant, _, err := r.Resolve(t.Context(), id)
		require.NoError(t, err)
		require.NoError(t, execTenants(t.Context(), p, "CREATE SCHEMA "+pgx.Identifier{tenant.Schema}.Sanitize()))
		require.NoError(t, inTenantsTx(t, p, func(tx pgx.Tx) error {
			if _, err := tx.Exec(t.Context(), "SELECT tenure.enter_tenant($1, $2, $3)", tenant.Schema, tenant.Role, string(tenant.ID)); err != nil {
				return err
			}
			var first string
			var all []string
			if err := tx.QueryRow(t.Context(), "SELECT current_schema(), current_schemas(false)").Scan(&first, &all); err != nil {
				return err
			}
			require.Equal(t, string(id), first)
			require.Equal(t, []string{string(id)}, all)
			return nil
		}))
	}
}

// Two rows of the table give one schema: the second tenant is refused, as long as the
// first is remembered.
func TestResolve_sharedSchema(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	c := withPools(map[string]string{"main": dsn})
	c.Tenants = routing.TenantsConfig{Schema: "{tenant}", Table: &routing.TableConfig{Pool: "main", Query: "SELECT 'main', 'same' WHERE $1 <> ''", Cache: time.Hour}}
	r := started(t, c)
	_, _, err := r.Resolve(t.Context(), "first")
	require.NoError(t, err)
	_, _, err = r.Resolve(t.Context(), "second")
	require.ErrorContains(t, err, `tenants "first" and "second" share schema "same" in pool "main": give each its own schema`)
	_, _, err = r.Resolve(t.Context(), "first")
	require.NoError(t, err)
}
