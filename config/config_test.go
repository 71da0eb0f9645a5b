package config

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

func TestParse(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte("\uFEFF"+`node:
  name: ${env:HOSTNAME}
  listen: off
  log: {level: "debug", format:}
cluster:
  keys: ['${env:KEY}']
pools:
  1: {dsn: '${env:DATABASE_URL}', max_conns: "${env:TEN}"}
  eu-2: {dsn: 'host=${env:HOSTNAME} dbname=x'}
tenants:
  static:
    acme: 1
    globex: {pool: eu-2, schema: s, role: r}
    null: eu-2
  table:
    pool: eu-2
    query: |
      SELECT pool
      FROM t WHERE id = $1 AND x <> '$${env:X}'
acquire:
  idle_wait: PT1M
  lock:
  queues: {weights: {mail: "${env:TEN}", reports: 2}}
execution:
  timeout: '${env:SHORT}'
  retention: 0
handlers: {http_request: {allow: [10.0.0.0/8, '::1/128']}}
`))
	require.NoError(t, err)
	require.Equal(t, "node-1", c.Node.Name)
	require.Empty(t, c.Node.Address())
	require.Equal(t, Log{Level: "debug", Format: "json"}, c.Node.Log)
	require.True(t, c.Gossip())
	cluster := membership.DefaultConfig()
	cluster.Keys = []string{os.Getenv("KEY")}
	require.Equal(t, cluster, *c.Cluster)
	require.Equal(t, map[string]routing.PoolConfig{
		"1":    {DSN: os.Getenv("DATABASE_URL"), MaxConns: 10},
		"eu-2": {DSN: "host=node-1 dbname=x", MaxConns: 20},
	}, c.Pools)
	require.Equal(t, routing.TenantsConfig{
		Static: map[tenancy.ID]routing.TenantConfig{
			"acme": {Pool: "1"}, "globex": {Pool: "eu-2", Schema: "s", Role: "r"}, "null": {Pool: "eu-2"},
		},
		Table:  &routing.TableConfig{Pool: "eu-2", Query: "SELECT pool\nFROM t WHERE id = $1 AND x <> '${env:X}'\n", Cache: 30 * time.Second},
		Schema: "{tenant}",
	}, c.Tenants)
	require.Equal(t, time.Minute, c.Acquire.IdleWait)
	require.Equal(t, Default().Acquire.Lock, c.Acquire.Lock)
	require.Equal(t, acquisition.QueueConfig{Weights: map[string]int{"mail": 10, "reports": 2}, AgeEvery: 10 * time.Second}, c.Acquire.Queues)
	require.Equal(t, 5*time.Second, c.Execution.Timeout)
	require.Zero(t, c.Execution.Retention)
	require.Equal(t, []netip.Prefix{netip.MustParsePrefix("10.0.0.0/8"), netip.MustParsePrefix("::1/128")}, c.Handlers.HTTPRequest.Allow)
	require.NoError(t, c.Validate())
}

// A secret with YAML's own characters is a value and nothing else.
func TestSecretsCannotChangeTheFile(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte(ok+"tenants: {table: {pool: main, query: \"SELECT $1 ${env:YAML}\"}}\n"))
	require.NoError(t, err)
	require.Equal(t, "SELECT $1 x: [1, *y]\n# \"z\"", c.Tenants.Table.Query)
}

func TestMinimal(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte(Minimal))
	require.NoError(t, err)
	require.False(t, c.Gossip())
	require.LessOrEqual(t, strings.Count(Minimal, "\n"), 6)
}

// A program that forgets the defaults is told that, and not what follows from it.
func TestValidateWithoutDefaults(t *testing.T) {
	t.Parallel()
	err := Config{Pools: map[string]routing.PoolConfig{"main": {DSN: "host=h"}}}.Validate()
	require.ErrorContains(t, err, "start from config.Default()")
	require.ErrorContains(t, err, "1 problem in the configuration")
}

// A program that builds its Config sees the same faults, by path.
func TestValidate(t *testing.T) {
	t.Parallel()
	c := Default()
	c.Node.Name = "n"
	c.Cluster = &membership.Config{Bind: "0.0.0.0:7946", Profile: "lan", Label: "x"}
	c.Pools = map[string]routing.PoolConfig{"eu-1": {DSN: "postgres://app:hunter2@h/a"}, "eu-2": {DSN: "host=h dbname=a user=b"}, "eu-3": {DSN: "postgres://app:p/q@h/a"}, "eu-4": {DSN: "postgres://app:/q@h/a"}}
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "eu1"}}
	c.Tenants.Table = &routing.TableConfig{Pool: "eu-5", Query: "SELECT $1"}
	c.Execution.Workers = 0
	c.Handlers.HTTPRequest.Allow = make([]netip.Prefix, 1)
	err := c.Validate()
	var faults *Error
	require.True(t, errors.As(err, &faults))
	require.Equal(t, `error: cluster.keys is empty, but cluster.bind 0.0.0.0 is not loopback: anybody who reaches it could join
      = make one with: openssl rand -base64 32; or set cluster.insecure: true if the network is trusted
error: execution.workers: 0 workers: 1 to 10000 are allowed
error: handlers.http_request.allow[0] is not a network
      = write a network such as 10.20.0.0/16
error: pools.eu-2.dsn is the same database as pool eu-1
      = remove one of them
error: pools.eu-3.dsn has a password with / ? or # in it, which end it there
      = in the password, write / as %2F, ? as %3F and # as %23
error: pools.eu-4.dsn has a password with / ? or # in it, which end it there
      = in the password, write / as %2F, ? as %3F and # as %23
error: tenants.static.acme.pool is not under pools
      = did you mean eu-1?
error: tenants.table.pool is not under pools
      = did you mean eu-1?
8 problems in the configuration`, err.Error())
	c.Pools = nil
	require.ErrorContains(t, c.Validate(), "pools: there is no pool")
}

func TestManyFaults(t *testing.T) {
	t.Parallel()
	var file strings.Builder
	for i := range 500 {
		fmt.Fprintf(&file, "key%d: x\n", i)
	}
	_, err := Parse("node.yaml", []byte(file.String()))
	require.ErrorContains(t, err, "\nmore than 100 problems in node.yaml")
}

func TestShow(t *testing.T) {
	t.Parallel()
	c, err := Parse("node.yaml", []byte(`node: {name: "${env:HOSTNAME}"}
cluster: {bind: '127.0.0.1:1234', label: '$${x', keys: ['${env:KEY}', AQIDBAUGBwgJCgsMDQ4PEA==]}
pools:
  a: {dsn: '${env:DATABASE_URL}', max_conns: "${env:TEN}"}
  b:
    dsn: 'postgres://app:hunter2@db/b'
    tenant_dsn: 'postgres://app:hunter2@pooler:6432/b'
  c: {dsn: 'host=db dbname=c password=hunter2'}
  d: {dsn: 'postgres://app:hun${env:TEN}@db/d'}
tenants: {static: {acme: a, globex: {pool: b, schema: s}}}
execution: {timeout: "${env:SHORT}"}
handlers: {http_request: {allow: [10.0.0.0/8]}}
`))
	require.NoError(t, err)
	shown, err := c.Show()
	require.NoError(t, err)
	require.Equal(t, `node:
  name: ${env:HOSTNAME}
  listen: ""
  insecure_listen: false
  tls_cert: ""
  tls_key: ""
  allowed_hosts: []
  tokens: {}
  trusted_proxies:
    networks: []
    user_header: X-Forwarded-User
    users: {}
  oidc:
    issuer: ""
    client_id: ""
    client_secret_file: ""
    redirect_url: ""
    scopes:
    - profile
    - email
    claim: groups
    roles: {}
    session: 8h0m0s
    cookie_key_file: ""
  pprof_listen: "off"
  tenant_metrics: top
  otlp_endpoint: ""
  trace_url: ""
  log:
    level: info
    format: json
cluster:
  bind: 127.0.0.1:1234
  advertise: ""
  join: []
  keys:
  - ${env:KEY}
  - ${env:TENURE_CLUSTER_KEY_2}
  label: $${x
  insecure: false
  profile: lan
pools:
  a:
    dsn: ${env:DATABASE_URL}
    tenant_dsn: ""
    max_conns: ${env:TEN}
    insecure: false
  b:
    dsn: postgres://app:***@db/b
    tenant_dsn: postgres://app:***@pooler:6432/b
    max_conns: 20
    insecure: false
  c:
    dsn: host=db dbname=c password=***
    tenant_dsn: ""
    max_conns: 20
    insecure: false
  d:
    dsn: postgres://app:***@db/d
    tenant_dsn: ""
    max_conns: 20
    insecure: false
tenants:
  static:
    acme:
      pool: a
      schema: ""
      role: ""
    globex:
      pool: b
      schema: s
      role: ""
  schema: '{tenant}'
  role: ""
connections:
  per_node: 0
  nodes: 1
  lock_timeout: 10s
  transaction_timeout: 15m0s
acquire:
  batch: 2000
  idle_wait: 2s
  lock:
    ttl: 8s
    renew_every: 2s
  session:
    ttl: 15s
    heartbeat_every: 3s
  queues:
    weights: {}
    age_every: 10s
execution:
  workers: 64
  tenant_share: 75
  timeout: ${env:SHORT}
  retry: exponential(10, 10s, 6h)
  retention: 24h0m0s
  dead_retention: 0s
  finish_within: 10s
  paused: false
handlers:
  http_request:
    allow:
    - 10.0.0.0/8
  sql_exec:
    enabled: false
encryption:
  kinds: []
  keys: []
  tenants: {}
schedules: {}
limits:
  kinds: {}
  queues: {}
`, string(shown))
	requireRoundTrip(t, c)

	c.Execution.Timeout = time.Minute // set by a program: the reference no longer holds
	shown, err = c.Show()
	require.NoError(t, err)
	require.Contains(t, string(shown), "timeout: 1m0s")

	c.Pools["a"] = routing.PoolConfig{DSN: "postgres://app:hunter2@db:port/a"} // cannot be read
	shown, err = c.Show()
	require.NoError(t, err)
	require.NotContains(t, string(shown), "hunter2")
}

// requireRoundTrip checks that what Show prints parses and shows the same again.
func requireRoundTrip(t *testing.T, c Config) {
	t.Helper()
	shown, err := c.Show()
	require.NoError(t, err)
	again, err := Parse("shown.yaml", shown)
	require.NoError(t, err, string(shown))
	shownAgain, err := again.Show()
	require.NoError(t, err)
	require.Equal(t, string(shown), string(shownAgain))
	require.Equal(t, c.Node, again.Node)
	require.Equal(t, c.Acquire, again.Acquire)
	require.Equal(t, c.Execution, again.Execution)
	require.Equal(t, c.Gossip(), again.Gossip())
	require.Len(t, again.Pools, len(c.Pools))
	require.Len(t, again.Tenants.Static, len(c.Tenants.Static))
	for id, tenant := range c.Tenants.Static {
		require.Equal(t, tenant, again.Tenants.Static[id])
	}
	require.Equal(t, c.Tenants.Table, again.Tenants.Table)
	require.Equal(t, c.Tenants.Schema, again.Tenants.Schema)
}

const referenceFile = "../deploy/node.yaml"

func TestReferenceFile(t *testing.T) {
	t.Parallel()
	c, err := Load(referenceFile)
	require.NoError(t, err)
	require.NoError(t, c.Validate())
	require.False(t, c.Gossip())
	require.Equal(t, Default().Acquire, c.Acquire)
	requireRoundTrip(t, c)
}

// setting is a line of the reference file that is a setting when the # is taken
// away: no space behind it, or an even number of them.
var setting = regexp.MustCompile(`(?m)^( *)#((?:  )*(?:[a-z_]+:|# |- |$).*)$`)

// Taking the # away from every setting must leave all keys there are, with their
// defaults; so the file can neither miss a key nor keep a dead one or a wrong value.
func TestReferenceFileIsComplete(t *testing.T) {
	t.Parallel()
	data, err := os.ReadFile(referenceFile)
	require.NoError(t, err)
	full := setting.ReplaceAll(data, []byte("$1$2"))
	c, err := Parse("node.yaml", full)
	require.NoError(t, err)

	d := newDocument("node.yaml")
	root, syntax := parseYAML(full)
	require.Nil(t, syntax)
	d.decode(root)
	user := regexp.MustCompile(`^(pools|tenants\.static|schedules|limits\.kinds|limits\.queues|encryption\.tenants|node\.tokens|node\.trusted_proxies\.users|node\.oidc\.roles)\.[^.]+`) // a name of the user's choice
	present := map[string]bool{}
	for path := range d.places {
		present[user.ReplaceAllString(path, "$1.<name>")] = true
	}
	for _, path := range allKeys() {
		require.True(t, present[path], "%s is missing in %s", path, referenceFile)
	}

	want := Default()
	want.Node.Name = "node-1"
	want.Node.Tokens = map[string]Token{"ops": {SHA256: strings.Repeat("0", 64), Role: "admin", Tenants: []tenancy.ID{}, Pools: []string{}}}
	anybody := Access{Role: "admin", Tenants: []tenancy.ID{}, Pools: []string{}}
	want.Node.TrustedProxies.Users = map[string]Access{"ann": anybody}
	want.Node.OIDC.Roles = map[string]Access{"operators": anybody}
	require.Equal(t, want.Node, c.Node)
	require.Equal(t, want.Acquire, c.Acquire)
	require.Equal(t, want.Execution, c.Execution)
	require.Empty(t, c.Handlers.HTTPRequest.Allow)
	cluster := membership.DefaultConfig()
	cluster.Join, cluster.Keys = []string{}, []string{}
	require.Equal(t, cluster, *c.Cluster)
	require.Equal(t, want.Tenants.Schema, c.Tenants.Schema)
	require.Equal(t, want.Tenants.Role, c.Tenants.Role)
	require.Equal(t, 20, c.Pools["main"].MaxConns)
	require.Equal(t, 30*time.Second, c.Tenants.Table.Cache)
	require.Equal(t, routing.Config{Pools: map[string]routing.PoolConfig{"x": {}}}.WithDefaults().Pools["x"].MaxConns, c.Pools["main"].MaxConns)
}

func FuzzParse(f *testing.F) {
	data, err := os.ReadFile(referenceFile)
	require.NoError(f, err)
	// Without comments: Go takes its time to minimise long inputs.
	f.Add(regexp.MustCompile(`(?m)^ *#.*\n|^\n`).ReplaceAll(setting.ReplaceAll(data, []byte("$1$2")), nil))
	f.Add([]byte(Minimal))
	for _, s := range []string{"pools: {a: {dsn: 'postgres://u:p@h/d'}}\ncluster: {keys: [AAECAwQFBgcICQoLDA0ODw==]}", "a: &x [*x]\n<<: *x", "pools:\n\t- a", "? {a: b}\n: c", "---\n...\n---\n", "a: !!binary x", "pools: {a: {dsn: 'postgres://: @'}}", "pools: {a: {dsn: \"$${x\", max_conns: 0x5}}"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("node.yaml", data)
		if err != nil {
			var faults *Error
			require.True(t, errors.As(err, &faults))
			require.NotEmpty(t, faults.Faults)
			return
		}
		require.NoError(t, c.Validate())
		requireRoundTrip(t, c)
	})
}

func allKeys() []string { return keyPaths(reflect.TypeFor[Config](), "") }

// What Load says of its file is where Run looks again.
func TestConfigurationKnowsItsFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "node.yaml")
	require.NoError(t, os.WriteFile(path, []byte("pools: {main: {dsn: 'postgres://localhost/x'}}\n"), 0o600))
	cfg, err := Load(path)
	require.NoError(t, err)
	require.Equal(t, path, cfg.File)
	require.Empty(t, Default().File)
}
