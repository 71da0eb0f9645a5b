package routing_test

import (
	"context"
	"maps"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// schemaOnly names what nothing protects where tenants have no role.
const schemaOnly = "tenants without a role run as this pool's user: their schema is searched first, and nothing more keeps them apart. " +
	"SQL that names another tenant's schema reaches its tables, and SQL that names schema tenure reaches all tenants' jobs, " +
	"where LOCK TABLE stops the pool for as long as the transaction may take; set tenants.role, or name roles, unless you trust all their SQL"

// What keeps no pool out of service is told when it gets in, and nothing is told of
// a pool in order.
func TestStart_warns(t *testing.T) {
	t.Parallel()
	servers := map[bool]*devpg.Server{} // by whether they are durable
	for _, durable := range []bool{false, true} {
		s := pgtest.Server(t, devpg.Options{Durable: durable, InMemory: true, SharedBuffers: "64MB"})
		require.NoError(t, s.CreateDatabase(t.Context(), "main"))
		require.NoError(t, storetest.Prepare(t.Context(), s.DSN("main"), "main", 1))
		exec(t, s.DSN("main"), "CREATE SCHEMA t; CREATE ROLE member; GRANT USAGE ON SCHEMA t TO member; CREATE ROLE outsider; CREATE ROLE mighty BYPASSRLS")
		servers[durable] = s
	}
	for name, tc := range map[string]struct {
		durable  bool
		maxConns int
		schema   string
		role     string
		query    string
		before   string
		warnings map[string]map[string]any
	}{
		"in order": {durable: true, maxConns: 5, schema: "t", role: "member", query: "SELECT nspname FROM pg_namespace WHERE nspname = $1", warnings: map[string]map[string]any{}},
		"with risks": {maxConns: 5, schema: "lost", role: "stranger", query: "SELECT pool FROM lost WHERE id = $1", warnings: map[string]map[string]any{
			"tenants.table cannot be asked, so that its tenants are unknown; correct its statements, or make what they name":       {"error": `ERROR: relation "lost" does not exist (SQLSTATE 42P01)`},
			"fsync is off on this server: a crash of its machine loses jobs or the whole database; turn it on":                     {},
			"full_page_writes is off on this server: a crash of its machine can damage the database; turn it on":                   {},
			"tenants have no schema in this pool, so that their jobs wait; create it, or correct tenants.static":                   {"count": int64(1), "schemas": []any{"lost"}, "statements": []any{"CREATE SCHEMA lost AUTHORIZATION stranger"}},
			"tenants' roles do not exist, or this pool's user is no member of them, so that their jobs wait; create or grant them": {"count": int64(1), "roles": []any{"stranger"}, "statements": []any{"CREATE ROLE stranger; GRANT stranger TO postgres"}},
		}},
		"without a role": {durable: true, maxConns: 5, schema: "t", query: "SELECT nspname FROM pg_namespace WHERE nspname = $1", warnings: map[string]map[string]any{
			"this pool's user is a superuser or bypasses row-level security, and so do the handlers of tenants that have no role of their own; use another user, or set tenants.role": {},
			schemaOnly: {},
		}},
		"without the right to its schema": {durable: true, maxConns: 5, schema: "t", role: "outsider", query: "SELECT nspname FROM pg_namespace WHERE nspname = $1", warnings: map[string]map[string]any{
			"tenants' roles, or this pool's user where they have none, may not use their schemas, so that their jobs wait; GRANT USAGE ON SCHEMA to them": {
				"count": int64(1), "roles": []any{"outsider in t"}, "grants": []any{"GRANT USAGE ON SCHEMA t TO outsider"}},
		}},
		"with a role that may not enqueue": {durable: true, maxConns: 5, schema: "t", role: "member", query: "SELECT nspname FROM pg_namespace WHERE nspname = $1",
			before: "REVOKE USAGE ON SCHEMA tenure FROM PUBLIC; REVOKE EXECUTE ON FUNCTION tenure.enqueue FROM PUBLIC", warnings: map[string]map[string]any{
				"tenants' roles may not enqueue in their transactions": {"count": int64(2), "grants": []any{
					"GRANT EXECUTE ON FUNCTION tenure.enqueue TO member", "GRANT USAGE ON SCHEMA tenure TO member"}},
			}},
		"with a role that bypasses everything": {durable: true, maxConns: 5, schema: "t", role: "mighty", query: "SELECT nspname FROM pg_namespace WHERE nspname = $1", warnings: map[string]map[string]any{
			"tenants' roles, or this pool's user where they have none, may not use their schemas, so that their jobs wait; GRANT USAGE ON SCHEMA to them": {
				"count": int64(1), "roles": []any{"mighty in t"}, "grants": []any{"GRANT USAGE ON SCHEMA t TO mighty"}},
			"tenants' roles are superusers or bypass row-level security, so that they keep no tenants apart; use other roles": {"count": int64(1), "roles": []any{"mighty"}},
		}},
	} {
		t.Run(name, func(t *testing.T) {
			s := servers[tc.durable]
			require.NoError(t, s.CloneDatabase(t.Context(), "main", name))
			dsn := s.DSN(name)
			exec(t, dsn, tc.before)
			core, logs := observer.New(zapcore.WarnLevel)
			c := withPools(map[string]string{"main": dsn})
			c.Pools["main"] = routing.PoolConfig{DSN: dsn, MaxConns: tc.maxConns}
			c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: tc.schema, Role: tc.role}}
			c.Tenants.Role = tc.role
			c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: tc.query}
			r, err := routing.New(c, zap.New(core))
			require.NoError(t, err)
			require.NoError(t, r.Start(t.Context()))
			requireUp(t, poolOf(t, r, "main"), 1)
			require.NoError(t, r.Stop(t.Context()))
			require.Equal(t, tc.warnings, warningsOf(t, logs))
		})
	}
}

// warningsOf takes what was logged of the pool main, by message.
func warningsOf(t *testing.T, logs *observer.ObservedLogs) map[string]map[string]any {
	t.Helper()
	got := map[string]map[string]any{}
	for _, l := range logs.TakeAll() {
		fields := l.ContextMap()
		require.Equal(t, "main", fields["pool"])
		delete(fields, "pool")
		got[l.Message] = fields
	}
	return got
}

// Tenants that come to a pool in service are looked at as those with which it began, and
// so is a lookup table that is named there; what was told before is not told again.
func TestApply_warns(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	exec(t, dsn, "CREATE SCHEMA t; CREATE SCHEMA u")
	core, logs := observer.New(zapcore.WarnLevel)
	c := withPools(map[string]string{"main": dsn})
	place := func(id tenancy.ID, schema, role string) {
		c.Tenants.Static = maps.Clone(c.Tenants.Static)
		c.Tenants.Static[id] = routing.TenantConfig{Pool: "main", Schema: schema, Role: role}
	}
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: "lost"}}
	r, err := routing.New(c, zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	requireUp(t, poolOf(t, r, "main"), 1)
	const (
		noSchema = "tenants have no schema in this pool, so that their jobs wait; create it, or correct tenants.static"
		noRole   = "tenants' roles do not exist, or this pool's user is no member of them, so that their jobs wait; create or grant them"
		mighty   = "this pool's user is a superuser or bypasses row-level security, and so do the handlers of tenants that have no role of their own; use another user, or set tenants.role"
		noTable  = "tenants.table cannot be asked, so that its tenants are unknown; correct its statements, or make what they name"
	)
	began := warningsOf(t, logs)
	require.Contains(t, began, noSchema)
	require.Contains(t, began, schemaOnly)

	told := func(want map[string]map[string]any) {
		t.Helper()
		_, err := r.Apply(t.Context(), c)
		require.NoError(t, err)
		require.Eventually(t, func() bool { return logs.Len() >= len(want) }, patience, time.Millisecond)
		require.Equal(t, want, warningsOf(t, logs))
	}
	user, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	lacks := func(role string) map[string]any {
		return map[string]any{"count": int64(1), "roles": []any{role}, "statements": []any{"CREATE ROLE " + role + "; GRANT " + role + " TO " + user.User}}
	}
	place("globex", "t", "stranger")
	told(map[string]map[string]any{noRole: lacks("stranger")})
	place("globex", "nowhere", "")
	told(map[string]map[string]any{noSchema: {"count": int64(1), "schemas": []any{"nowhere"}, "statements": []any{"CREATE SCHEMA nowhere"}}, mighty: {}})
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM lost WHERE id = $1"}
	told(map[string]map[string]any{noTable: {"error": `ERROR: relation "lost" does not exist (SQLSTATE 42P01)`}})
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT 'main' WHERE $1 = ''", Cache: time.Hour}
	c.Tenants.Role = "pattern" // which holds for those without a role of their own
	told(map[string]map[string]any{noSchema: {"count": int64(2), "schemas": []any{"lost", "nowhere"}, "statements": []any{"CREATE SCHEMA lost AUTHORIZATION pattern", "CREATE SCHEMA nowhere AUTHORIZATION pattern"}}, noRole: lacks("pattern")})
	place("initech", "u", "stranger")
	told(map[string]map[string]any{noRole: lacks("stranger")})
}

// Who may not ask the lookup table is told so at the start, and with each tenant, and what to execute.
func TestAUserWhoMayNotAskTheTable(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	exec(t, dsn, "CREATE SCHEMA app; CREATE TABLE app.customer (id bigint, pool text); INSERT INTO app.customer VALUES (7, 'main')")
	core, logs := observer.New(zapcore.WarnLevel)
	c := withPools(map[string]string{"main": storetest.AsRuntime(dsn)})
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM app.customer WHERE id = $1", Cache: time.Nanosecond}
	ask := func() error {
		r, err := routing.New(c, zap.New(core))
		require.NoError(t, err)
		require.NoError(t, r.Start(t.Context()))
		_, _, err = r.Resolve(t.Context(), "7")
		require.NoError(t, r.Stop(t.Context()))
		return err
	}
	const noTable = "tenants.table cannot be asked, so that its tenants are unknown; correct its statements, or make what they name"
	const grants = `GRANT USAGE ON SCHEMA app TO "tenure_test_app"; GRANT SELECT ON app.customer TO "tenure_test_app"`
	const mend = "ERROR: permission denied for schema app (SQLSTATE 42501): execute in pool main, as its owner: " + grants
	require.EqualError(t, ask(), `look tenant "7" up in pool main: `+mend)
	require.Equal(t, mend, warningsOf(t, logs)[noTable]["error"])
	exec(t, dsn, grants)
	require.NoError(t, ask())
	require.NotContains(t, warningsOf(t, logs), noTable)
}

// Nobody is advised to let nodes take the role of who may do anything: no tenant can have it.
func TestARoleThatNoTenantCanHave(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	owner, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	exec(t, dsn, "CREATE SCHEMA t_acme")
	core, logs := observer.New(zapcore.WarnLevel)
	c := withPools(map[string]string{"main": storetest.AsRuntime(dsn)})
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main", Schema: "t_acme", Role: owner.User}}
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT 'main', 't_' || $1, '" + owner.User + "' WHERE $1 = 'globex' UNION ALL SELECT 'main', 't_' || $1, 'nobody_is_called_so' WHERE $1 = 'initech'"}
	r, err := routing.New(c, zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	requireUp(t, poolOf(t, r, "main"), 1)
	warnings := warningsOf(t, logs)
	require.Equal(t, []any{`role "` + owner.User + `" is a superuser`}, warnings["tenants have roles that no tenant can have, as these would keep nobody apart, so that their jobs wait; name other roles"]["roles"])
	require.NotContains(t, warnings, "tenants' roles do not exist, or this pool's user is no member of them, so that their jobs wait; create or grant them")
	for range 2 { // asked, and remembered
		for _, id := range []tenancy.ID{"acme", "globex"} {
			require.Eventually(t, func() bool {
				_, _, err = r.Resolve(t.Context(), id)
				return err != nil // else the database could not be asked in time
			}, patience, time.Millisecond)
			require.ErrorAs(t, err, new(*routing.RouteError))
			require.EqualError(t, err, `tenant "`+string(id)+`": its role "`+owner.User+`" cannot be a tenant's in pool "main", as it would keep no tenants apart: it is a superuser: give the tenant another role`)
		}
		_, _, err = r.Resolve(t.Context(), "initech")
		require.NoError(t, err, "whose role may be made")
	}
}

// That a tenant runs as the pool's user is told when one does, and not of a table that has a role for each.
func TestATableWithRoles(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "main", 1)
	core, logs := observer.New(zapcore.WarnLevel)
	c := withPools(map[string]string{"main": dsn})
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT 'main', $1, CASE WHEN $1 = 'roled' THEN 'r' END"}
	r, err := routing.New(c, zap.New(core))
	require.NoError(t, err)
	require.NoError(t, r.Start(t.Context()))
	defer func() { require.NoError(t, r.Stop(context.WithoutCancel(t.Context()))) }()
	requireUp(t, poolOf(t, r, "main"), 1)
	for _, step := range []struct {
		tenant tenancy.ID
		told   int
	}{{"roled", 0}, {"bare", 1}, {"naked", 1}} {
		_, _, err = r.Resolve(t.Context(), step.tenant)
		require.NoError(t, err)
		require.Equal(t, step.told, logs.FilterMessage(schemaOnly).Len(), step.tenant)
	}
}
