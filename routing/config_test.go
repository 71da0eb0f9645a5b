package routing_test

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// good is a configuration without a fault, that never connects.
func good() routing.Config {
	c := routing.DefaultConfig()
	c.Pools = map[string]routing.PoolConfig{
		"main": {DSN: "postgres://app@db1/app"},
		"eu-1": {DSN: "host=db2 user=app dbname=app password=hunter2", MaxConns: 4},
	}
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}, "globex": {Pool: "eu-1", Schema: "g", Role: "g"}}
	c.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT pool FROM app.tenant WHERE id = $1"}
	return c
}

func TestConfig_defaults(t *testing.T) {
	t.Parallel()
	c := good()
	require.NoError(t, c.Validate())
	filled := c.WithDefaults()
	require.Equal(t, 20, filled.Pools["main"].MaxConns)
	require.Equal(t, 4, filled.Pools["eu-1"].MaxConns)
	require.Equal(t, 30*time.Second, filled.Tenants.Table.Cache)
	require.Equal(t, "{tenant}", filled.Tenants.Schema)
	require.Equal(t, good(), c, "the caller's own is as it was")

	c.Tenants.Table = nil
	require.Nil(t, c.WithDefaults().Tenants.Table)
	require.NoError(t, c.Validate())
}

func TestConfig_Validate(t *testing.T) {
	t.Parallel()
	pool := func(name string, p routing.PoolConfig) func(*routing.Config) {
		return func(c *routing.Config) { c.Pools[name] = p }
	}
	maxConns := func(n int) func(*routing.Config) {
		return pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app", MaxConns: n})
	}
	tenant := func(id tenancy.ID, entry routing.TenantConfig) func(*routing.Config) {
		return func(c *routing.Config) { c.Tenants.Static[id] = entry }
	}
	table := func(change func(*routing.TableConfig)) func(*routing.Config) {
		return func(c *routing.Config) { change(c.Tenants.Table) }
	}
	const badName = ": is not a name: 1 to 63 letters, digits and . _ - are allowed, beginning with a letter or a digit"
	const goodQuery = "; such as: SELECT pool, schema_name FROM app.tenant WHERE id = $1"
	const pools = "pools are: eu-1, main"
	for name, tc := range map[string]struct {
		change func(*routing.Config)
		want   []string
	}{
		"no pool": {
			func(c *routing.Config) { *c = routing.DefaultConfig() },
			[]string{"pools: there is no pool; name at least one:  pools: {main: {dsn: postgres://…}}"},
		},
		"an empty pool name":       {pool("", routing.PoolConfig{DSN: "host=db"}), []string{"pools." + badName}},
		"a pool name with a space": {pool("eu 1", routing.PoolConfig{DSN: "host=db"}), []string{"pools.eu 1" + badName}},
		"a pool name from a dot":   {pool(".eu", routing.PoolConfig{DSN: "host=db"}), []string{"pools..eu" + badName}},
		"a pool name in Cyrillic":  {pool("ею", routing.PoolConfig{DSN: "host=db"}), []string{"pools.ею" + badName}},
		"a pool name of 64 bytes": {
			pool(strings.Repeat("p", 64), routing.PoolConfig{DSN: "host=db"}),
			[]string{"pools." + strings.Repeat("p", 64) + badName},
		},
		"the longest pool name": {pool(strings.Repeat("P", 61)+".1", routing.PoolConfig{DSN: "host=db"}), nil},
		"an @ in a password": {pool("main", routing.PoolConfig{DSN: "postgres://app:hunter@2.example@db/x"}),
			[]string{"pools.main.dsn: has more than one @, so that it cannot be told where its host begins; write %40 for each @ in the user's name or the password, or point passfile at a file"}},
		"an @ in a password, two hosts": {pool("main", routing.PoolConfig{DSN: "postgres://app:hunter2@db,b@b/x"}),
			[]string{"pools.main.dsn: has more than one @, so that it cannot be told where its host begins; write %40 for each @ in the user's name or the password, or point passfile at a file"}},
		"no dsn": {pool("main", routing.PoolConfig{}), []string{"pools.main.dsn: is empty; write dsn: ${env:NAME} or dsn: ${file:/path}"}},
		"a setting of pgxpool": {
			pool("main", routing.PoolConfig{DSN: "postgres://app:hunter2@db1/app?pool_min_conns=2&pool_max_conns=50"}),
			[]string{"pools.main.dsn: sets a pool_… of pgxpool, which has no effect; use max_conns", "pools.main.dsn: sets a pool_… of pgxpool, which has no effect; use max_conns"},
		},
		"text that is not UTF-8": {
			pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app?Client_Encoding=latin1"}),
			[]string{`pools.main.dsn: sets client_encoding, and this program writes and reads UTF-8; leave it out`},
		},
		"text that is":             {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app?client_encoding=utf-8"}), nil},
		"a setting of the server":  {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app?statement_timeout=5s"}), nil},
		"too few connections":      {maxConns(3), []string{"pools.main.max_conns: 3 connections: 4 to 1000 are allowed"}},
		"less than no connections": {maxConns(-1), []string{"pools.main.max_conns: -1 connections: 4 to 1000 are allowed"}},
		"too many connections":     {maxConns(1001), []string{"pools.main.max_conns: 1001 connections: 4 to 1000 are allowed"}},
		"the most connections":     {maxConns(1000), nil},
		"a pooler that is none": {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app", TenantDSN: "postgres://app@db1/app"}),
			[]string{"pools.main.tenant_dsn: is the same as dsn; leave it out; or have it lead to the pooler, and dsn to Postgres itself"}},
		"a pooler on another network": {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app", TenantDSN: "postgres://app@10.0.0.7:6432/app?sslmode=prefer"}),
			[]string{"pools.main.tenant_dsn: does not insist on TLS, so that anybody on the way can read and change what the server is sent; add sslmode=verify-full, or set insecure: true beside it if nobody else is on the network"}},
		"options for a pooler": {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app", TenantDSN: "postgres://app@db1:6432/app?options=-c%20work_mem%3D8MB"}),
			[]string{"pools.main.tenant_dsn: sets options, which a pooler does not pass on; write each setting by itself, such as statement_timeout=5000 for options='-c statement_timeout=5000'"}},
		"a pooler's DSN that is none": {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app", TenantDSN: "postgres://app:hunter2@db1:x/app"}),
			[]string{"pools.main.tenant_dsn: cannot be read as a Postgres connection string; write postgres://user@host:5432/database?sslmode=verify-full"}},
		"JDBC's": {pool("main", routing.PoolConfig{DSN: "jdbc:postgresql://db1/app?user=app&password=hunter2"}),
			[]string{"pools.main.dsn: is no connection string of Postgres' own, but one of another library's, as for JDBC or .NET; write postgres://user@host:5432/database?sslmode=verify-full"}},
		".NET's": {pool("main", routing.PoolConfig{DSN: "Host=db1;Database=app;Username=app;Password=hunter2"}),
			[]string{"pools.main.dsn: is no connection string of Postgres' own, but one of another library's, as for JDBC or .NET; write postgres://user@host:5432/database?sslmode=verify-full"}},
		"what only libpq knows": {pool("main", routing.PoolConfig{DSN: "postgres://app@db1/app?keepalives_idle=5&sslcrl=x"}), []string{
			"pools.main.dsn: sets keepalives_idle, which is not known here, and the server would refuse; write tcp_keepalives_idle",
			"pools.main.dsn: sets sslcrl, which is not known here, and the server would refuse; leave it out"}},
		"a short lock timeout": {func(c *routing.Config) { c.Connections.LockTimeout = time.Millisecond },
			[]string{"connections.lock_timeout: 1ms: 100ms to 168h are allowed"}},
		"a long transaction timeout": {func(c *routing.Config) { c.Connections.TransactionTimeout = 169 * time.Hour },
			[]string{"connections.transaction_timeout: 169h0m0s: 100ms to 168h are allowed"}},

		"no schema pattern": {
			func(c *routing.Config) { c.Tenants.Schema, c.Tenants.Static = "", nil },
			[]string{`tenants.schema: is empty; write a pattern such as "t_{tenant}"`},
		},
		"one schema for all of the table": {
			func(c *routing.Config) { c.Tenants.Schema = "app" },
			[]string{`tenants.schema: has no {tenant}: tenants to whom the table gives no schema would share one; write a pattern such as "t_{tenant}"`},
		},
		"one schema, one tenant": {
			func(c *routing.Config) {
				c.Tenants = routing.TenantsConfig{Schema: "app", Static: map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}}
			},
			nil,
		},
		"one schema, two tenants": {
			func(c *routing.Config) {
				c.Tenants = routing.TenantsConfig{Schema: "app", Static: map[tenancy.ID]routing.TenantConfig{"a": {Pool: "main"}, "b": {Pool: "main"}, "c": {Pool: "eu-1"}}}
			},
			[]string{`tenants.static.b: has the schema of tenant "a", in the same pool; give each its own schema`},
		},
		"an impossible id":    {tenant("a\nb", routing.TenantConfig{Pool: "main"}), []string{"tenants.static.a\nb: tenant id \"a\\nb\" has the unprintable character U+000A"}},
		"two that look alike": {tenant("ACME", routing.TenantConfig{Pool: "main"}), []string{`tenants.static.acme: differs from tenant "ACME" only in case; rename one of them`}},
		"a tenant in no pool": {tenant("x", routing.TenantConfig{}), []string{"tenants.static.x.pool: is empty; name one of pools"}},
		"a tenant in an unknown pool": {
			tenant("x", routing.TenantConfig{Pool: "eu-2"}),
			[]string{`tenants.static.x.pool: is not under pools; did you mean eu-1?`},
		},
		"a reserved schema": {tenant("x", routing.TenantConfig{Pool: "main", Schema: "pg_catalog"}), []string{`tenants.static.x: has a schema that is not a tenant's: give it a schema of its own`}},
		"a reserved role":   {tenant("x", routing.TenantConfig{Pool: "main", Role: "none"}), []string{`tenants.static.x: has a role that is reserved by Postgres`}},
		"schemas in common": {
			func(c *routing.Config) {
				c.Tenants.Schemas = []string{"public", "tenure", "acme", "t_{tenant}", ""}
			},
			[]string{
				`tenants.schemas[1]: is not what tenants have in common, but Tenure's own or Postgres' own; write schemas of the application, such as [public]`,
				`tenants.schemas[2]: is tenant "acme"'s; put what tenants have in common into a schema of its own`,
				`tenants.schemas[3]: has {tenant}, which stands for another schema for each tenant; write the name itself: a tenant's own schema is searched first in any case`,
				`tenants.schemas[4]: is empty; write schemas of the application, such as [public]`,
			},
		},
		"the nodes' own user":             {tenant("x", routing.TenantConfig{Pool: "main", Role: "app"}), []string{`tenants.static.x: has the role that nodes connect to its pool as, which has all tenants' jobs; give the tenant another role, or have nodes connect as another user`}},
		"a schema twice":                  {tenant("x", routing.TenantConfig{Pool: "main", Schema: "acme"}), []string{`tenants.static.x: has the schema of tenant "acme", in the same pool; give each its own schema`}},
		"the same schema in another pool": {tenant("x", routing.TenantConfig{Pool: "eu-1", Schema: "acme"}), nil},

		"a table in an unknown pool": {table(func(c *routing.TableConfig) { c.Pool = "eu-2" }), []string{`tenants.table.pool: is not under pools; did you mean eu-1?`}},
		"a table in no pool":         {table(func(c *routing.TableConfig) { c.Pool = "" }), []string{`tenants.table.pool: is not under pools; ` + pools}},
		"no query":                   {table(func(c *routing.TableConfig) { c.Query = " \n" }), []string{"tenants.table.query: is empty" + goodQuery}},
		"a query about nobody":       {table(func(c *routing.TableConfig) { c.Query = "SELECT 'main'" }), []string{"tenants.table.query: does not use $1, the tenant's id" + goodQuery}},
		"a move to nowhere": {table(func(c *routing.TableConfig) { c.Move = "UPDATE t SET pool = 'x' WHERE id = $1" }),
			[]string{"tenants.table.move: does not use both $1, the tenant's id, and $2, the pool; such as: UPDATE app.tenant SET pool = $2 WHERE id = $1"}},
		"a negative time": {table(func(c *routing.TableConfig) { c.Cache = -time.Second }), []string{"tenants.table.cache: -1s is negative"}},
		"many pools, but not a list of them all": {
			func(c *routing.Config) {
				for i := range 100 {
					c.Pools[fmt.Sprintf("p%02d", i)] = routing.PoolConfig{DSN: "host=db"}
				}
				c.Tenants.Table.Pool = "x"
			},
			[]string{`tenants.table.pool: is not under pools; pools are: eu-1, main, p00, p01, p02, p03, p04, p05, …`},
		},
		"several at once, in order": {
			func(c *routing.Config) {
				c.Pools["main"], c.Pools["eu-1"] = routing.PoolConfig{MaxConns: 1}, routing.PoolConfig{}
				c.Tenants.Static["acme"] = routing.TenantConfig{Pool: "x", Role: "pg_x"}
				c.Tenants.Table.Query, c.Tenants.Table.Cache = "", -1
			},
			[]string{
				"pools.eu-1.dsn: is empty; write dsn: ${env:NAME} or dsn: ${file:/path}",
				"pools.main.dsn: is empty; write dsn: ${env:NAME} or dsn: ${file:/path}",
				"pools.main.max_conns: 1 connections: 4 to 1000 are allowed",
				`tenants.static.acme.pool: is not under pools; ` + pools,
				`tenants.static.acme: has a role that is reserved by Postgres`,
				"tenants.table.query: is empty" + goodQuery,
				"tenants.table.cache: -1ns is negative",
			},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := good()
			tc.change(&c)
			err := c.Validate()
			var got []string
			for _, f := range fault.All(err) {
				require.NotEmpty(t, f.Path)
				got = append(got, f.Error())
			}
			require.Equal(t, tc.want, got)
			if err != nil {
				require.NotContains(t, err.Error(), "hunter2")
				r, newErr := routing.New(c, zap.NewNop())
				require.Nil(t, r)
				require.EqualError(t, newErr, err.Error())
			}
		})
	}
}

func TestConfig_neverTellsADSN(t *testing.T) {
	t.Parallel()
	for name, dsn := range map[string]string{
		"a bad port":           "postgres://app:hunter2@db.internal:port/app",
		"no end of the host":   "postgres://app:hunter2@[::1/app",
		"a bad escape":         "postgres://app:hunter2%zz@db.internal/app",
		"no end of the quotes": "host=db.internal password='hunter2",
		"no value":             "host=db.internal password hunter2",
		"an unknown sslmode":   "postgres://app:hunter2@db.internal/app?sslmode=hunter2",
		"only a password":      "hunter2",
		"a bad timeout":        "host=db.internal password=hunter2 connect_timeout=soon",
		"a bad mode of pgx":    "host=db.internal password=hunter2 default_query_exec_mode=hunter2",
		"a bad target":         "host=db.internal password=hunter2 target_session_attrs=hunter2",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			c := good()
			c.Pools["main"] = routing.PoolConfig{DSN: dsn}
			_, newErr := routing.New(c, zap.NewNop())
			for _, err := range []error{c.Validate(), newErr} {
				require.EqualError(t, err, "pools.main.dsn: cannot be read as a Postgres connection string; write postgres://user@host:5432/database?sslmode=verify-full")
			}
		})
	}
}

// The file is named, and so is what is wrong with it; the rest of the DSN is not.
func TestDSNNamesAFileThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for _, option := range []string{"sslrootcert", "sslcert"} {
		c := good()
		c.Pools["main"] = routing.PoolConfig{DSN: "postgres://app:hunter2@db.internal/app?sslmode=verify-full&sslkey=/etc/none&" + option + "=/etc/none"}
		require.EqualError(t, c.Validate(), "pools.main.dsn: names a file that cannot be read: no such file or directory; correct its sslrootcert, sslcert, sslkey or servicefile, or let this node read the file")
	}
}

func TestNew_preparesPoolsByName(t *testing.T) {
	t.Parallel()
	r, err := routing.New(good(), zap.NewNop())
	require.NoError(t, err)
	var names []string
	for _, p := range r.Pools() {
		names = append(names, p.Name)
		_, err := p.Number()
		require.ErrorIs(t, err, routing.ErrPoolDown)
		require.EqualError(t, err, "pool is down: not reached yet; its node or client must have been started")
		same, ok := r.Pool(p.Name)
		require.True(t, ok)
		require.Same(t, p, same)
	}
	require.Equal(t, slices.Sorted(maps.Keys(good().Pools)), names)
	_, ok := r.Pool("eu-2")
	require.False(t, ok)
}
