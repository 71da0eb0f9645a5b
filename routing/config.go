package routing

import (
	"cmp"
	"errors"
	"io/fs"
	"maps"
	"net/netip"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/tenancy"
)

// Config says which pools there are and which tenant lives in which.
type Config struct {
	// Pools by name.
	Pools map[string]PoolConfig `yaml:"pools"`
	// Tenants: how a tenant's id leads to its pool, schema and role.
	Tenants TenantsConfig `yaml:"tenants"`
	// Connections: how many may be open.
	Connections ConnectionsConfig `yaml:"connections"`
	// TenantShare is how much of a pool's connections for tenants' transactions those of one tenant may
	// have, in percent, as of the workers. It is read when a process starts. 0: all of them.
	TenantShare int `yaml:"-"`
}

// ConnectionsConfig bounds connections beyond what each pool's MaxConns does. It is read
// when a process starts.
type ConnectionsConfig struct {
	// PerNode bounds this process' connections to all pools together, the locks' own apart; 0: it does not.
	PerNode int `yaml:"per_node"`
	// Nodes is how many processes there are with this configuration, at most: so many times what one of them may
	// open must fit into each server.
	Nodes int `yaml:"nodes"`
	// LockTimeout is how long a statement of a tenant's transaction waits for a lock before it fails.
	LockTimeout time.Duration `yaml:"lock_timeout"`
	// TransactionTimeout bounds a statement of a tenant's transaction, and how long that may stand idle, if its
	// context has no deadline. One that has, such as any job, has until then, and as long as it takes to cancel it.
	TransactionTimeout time.Duration `yaml:"transaction_timeout"`
}

// PoolConfig is one Postgres database that hosts tenants.
type PoolConfig struct {
	// DSN is a URL or a keyword/value string as libpq reads it. Keep passwords out of the file: ${env:NAME} or ${file:/path}.
	DSN string `yaml:"dsn"`
	// TenantDSN is another way to the same database, for tenants' transactions only, which may lead through
	// PgBouncer or another pooler in transaction mode. Empty: DSN is the way for them, too. Handlers get no bare
	// connection there.
	TenantDSN string `yaml:"tenant_dsn"`
	// MaxConns bounds this node's connections to the pool, the lock's own included.
	MaxConns int `yaml:"max_conns"`
	// Insecure allows a DSN that does not insist on TLS although the server is on another network.
	Insecure bool `yaml:"insecure"`
	// Schemas are those of its tenants instead of TenantsConfig.Schemas. Default: those.
	Schemas []string `yaml:"schemas,omitempty"`
}

// TenantsConfig maps tenants. Static entries win over the table.
type TenantsConfig struct {
	// Static maps a tenant's id to its pool, as a name or as {pool, schema, role}.
	Static map[tenancy.ID]TenantConfig `yaml:"static"`
	// Table is asked for tenants that Static does not list.
	Table *TableConfig `yaml:"table"`
	// Schema is the pattern of a tenant's schema; {tenant} stands for its id.
	Schema string `yaml:"schema"`
	// Role is the pattern of the role that a tenant's transactions take; empty keeps the pool's user.
	Role string `yaml:"role"`
	// Schemas are what all tenants have in common, such as public with the types of extensions: they are searched behind
	// a tenant's own schema, in this order. Default: none.
	Schemas []string `yaml:"schemas,omitempty"`
}

// TenantConfig places one tenant. Empty Schema and Role follow the patterns, and empty Schemas are its pool's, or all
// tenants'.
type TenantConfig struct {
	Pool    string   `yaml:"pool"`
	Schema  string   `yaml:"schema"`
	Role    string   `yaml:"role"`
	Schemas []string `yaml:"schemas,omitempty"`
}

// TableConfig is a lookup table of the application's own.
type TableConfig struct {
	// Pool whose database holds the table.
	Pool string `yaml:"pool"`
	// Query takes the tenant's id as $1 and returns one row: pool, schema, role. Schema and role may be left
	// out or be null or empty; the patterns hold then. No row: the tenant is unknown.
	Query string `yaml:"query"`
	// List takes a pool's name as $1 and returns the ids of the tenants that live there. With it schedules for every
	// tenant reach those, too, that have had no job.
	List string `yaml:"list"`
	// Move is run when a tenant was moved: it takes the tenant's id as $1 and the pool's name as $2. Without it,
	// the pool that the tenant left goes on to lead to where it is.
	Move string `yaml:"move"`
	// Cache is how long it is believed where a tenant lives; that one is unknown for a second at most. While the table cannot be asked, a
	// tenant goes on living where it lived last.
	Cache time.Duration `yaml:"cache"`
}

// DefaultConfig has no pools; a file must name at least one.
func DefaultConfig() Config {
	return Config{Tenants: TenantsConfig{Schema: "{tenant}"}, Connections: ConnectionsConfig{}.withDefaults()}
}

// defaultMaxConns and defaultCache stand in for settings left at zero.
const (
	defaultMaxConns = 20
	minMaxConns     = 4 // lock, claims, completion, and one for handlers
	defaultCache    = 30 * time.Second
)

// longestTimeout is more than anything takes, and fits into Postgres' settings.
const longestTimeout = 168 * time.Hour

// WithDefaults fills what the file left out.
func (c Config) WithDefaults() Config {
	c.Connections = c.Connections.withDefaults()
	c.Pools = maps.Clone(c.Pools)
	for name, p := range c.Pools {
		p.MaxConns = cmp.Or(p.MaxConns, defaultMaxConns)
		c.Pools[name] = p
	}
	if c.Tenants.Table != nil {
		t := *c.Tenants.Table
		t.Cache = cmp.Or(t.Cache, defaultCache)
		c.Tenants.Table = &t
	}
	return c
}

func (c ConnectionsConfig) withDefaults() ConnectionsConfig {
	c.Nodes = cmp.Or(c.Nodes, 1)
	c.LockTimeout = cmp.Or(c.LockTimeout, 10*time.Second)
	c.TransactionTimeout = cmp.Or(c.TransactionTimeout, 15*time.Minute)
	return c
}

// Validate returns every fault of c, joined.
func (c Config) Validate() error {
	var l fault.List
	c = c.WithDefaults()
	if len(c.Pools) == 0 {
		l.Add("pools", "name at least one:  pools: {main: {dsn: postgres://…}}", "there is no pool")
	}
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		p := c.Pools[name]
		path := "pools." + name
		if !isPoolName(name) {
			l.Add(path, "", "is not a name: 1 to %d letters, digits and . _ - are allowed, beginning with a letter or a digit", maxIdentifier)
		}
		validateDSN(&l, path+".dsn", p.DSN, p.Insecure)
		if p.TenantDSN != "" {
			validateTenantDSN(&l, path+".tenant_dsn", p)
		}
		if p.MaxConns < minMaxConns || p.MaxConns > 1000 {
			l.Add(path+".max_conns", "", "%d connections: %d to 1000 are allowed", p.MaxConns, minMaxConns)
		}
	}
	if c.Connections.PerNode != 0 && (c.Connections.PerNode < minMaxConns || c.Connections.PerNode > 100_000) {
		l.Add("connections.per_node", "leave it out for no bound", "%d connections: %d to 100000 are allowed", c.Connections.PerNode, minMaxConns)
	}
	if c.Connections.Nodes < 1 || c.Connections.Nodes > 10_000 {
		l.Add("connections.nodes", "", "%d nodes: 1 to 10000 are allowed", c.Connections.Nodes)
	}
	validateTimeout(&l, "connections.lock_timeout", c.Connections.LockTimeout)
	validateTimeout(&l, "connections.transaction_timeout", c.Connections.TransactionTimeout)
	c.Tenants.validate(&l, c.Pools)
	return l.Err()
}

func validateTimeout(l *fault.List, path string, d time.Duration) {
	if d < 100*time.Millisecond || d > longestTimeout {
		l.Add(path, "", "%v: 100ms to 168h are allowed", d)
	}
}

func validateTenantDSN(l *fault.List, path string, p PoolConfig) {
	validateDSN(l, path, p.TenantDSN, p.Insecure)
	if p.TenantDSN == p.DSN {
		l.Add(path, "leave it out; or have it lead to the pooler, and dsn to Postgres itself", "is the same as dsn")
	}
	if cfg, err := pgx.ParseConfig(p.TenantDSN); err == nil && cfg.RuntimeParams["options"] != "" {
		l.Add(path, "write each setting by itself, such as statement_timeout=5000 for options='-c statement_timeout=5000'", "sets options, which a pooler does not pass on")
	}
}

func validateDSN(l *fault.List, path, dsn string, insecure bool) {
	if dsn == "" {
		l.Add(path, "write dsn: ${env:NAME} or dsn: ${file:/path}", "is empty")
		return
	}
	cfg, err := pgx.ParseConfig(dsn)
	if err != nil {
		if file := (*fs.PathError)(nil); errors.As(err, &file) {
			l.Add(path, "correct its sslrootcert, sslcert, sslkey or servicefile, or let this node read the file", "names a file that cannot be read: %v", file.Err)
			return
		}
		l.Add(path, "write postgres://user@host:5432/database?sslmode=verify-full", "cannot be read as a Postgres connection string") // err may quote the password
		return
	}
	if hasStrayAt(cfg) { // and the part of the host in front of it is a part of the password
		l.Add(path, "write %40 for each @ in the user's name or the password, or point passfile at a file", "has more than one @, so that it cannot be told where its host begins")
		return
	}
	if isPlain(cfg) && !insecure {
		l.Add(path, "add sslmode=verify-full, or set insecure: true beside it if nobody else is on the network",
			"does not insist on TLS, so that anybody on the way can read and change what the server is sent")
	}
	for _, name := range slices.Sorted(maps.Keys(cfg.RuntimeParams)) {
		if !settingName.MatchString(name) || strings.EqualFold(name, "host") || strings.EqualFold(name, "server") { // and all that was written is taken for settings of a session on this machine
			l.Add(path, "write postgres://user@host:5432/database?sslmode=verify-full", "is no connection string of Postgres' own, but one of another library's, as for JDBC or .NET")
			return
		}
		if fix, ok := unknownParams[strings.ToLower(name)]; ok {
			l.Add(path, fix, "sets %s, which is not known here, and the server would refuse", strings.ToLower(name))
			continue
		}
		switch value := cfg.RuntimeParams[name]; {
		case strings.HasPrefix(name, "pool_"): // pgxpool's, and set here
			l.Add(path, "use max_conns", "sets a pool_… of pgxpool, which has no effect")
		case strings.EqualFold(name, "client_encoding") && !isUTF8(value):
			l.Add(path, "leave it out", "sets client_encoding, and this program writes and reads UTF-8")
		}
	}
}

// settingName is how a setting of a session may be called.
var settingName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_$]*(\.[A-Za-z_][A-Za-z0-9_$]*)?$`)

const leaveOut = "leave it out"

// unknownParams are parameters of libpq (https://www.postgresql.org/docs/17/libpq-connect.html) and of other libraries that pgx
// takes for settings of the session, and what to write instead.
var unknownParams = map[string]string{
	"hostaddr": "write the address as the host, with sslmode=verify-ca if its certificate does not name it", "fallback_application_name": "write application_name",
	"keepalives": leaveOut, "keepalives_idle": "write tcp_keepalives_idle", "keepalives_interval": "write tcp_keepalives_interval", "keepalives_count": "write tcp_keepalives_count",
	"gssencmode": leaveOut, "gsslib": leaveOut, "gssdelegation": leaveOut, "requirepeer": leaveOut, "replication": leaveOut,
	"sslcompression": leaveOut, "sslkeylogfile": leaveOut, "ssl_min_protocol_version": leaveOut, "ssl_max_protocol_version": leaveOut,
	"sslcrl": leaveOut, "sslcrldir": leaveOut, "load_balance_hosts": leaveOut,
	"ssl": "write sslmode=verify-full", "sslfactory": leaveOut, "schema": "the ledger's is tenure, a tenant's stands under tenants", "currentschema": "the ledger's is tenure, a tenant's stands under tenants",
	"sockettimeout": leaveOut, "preparethreshold": leaveOut, "pgbouncer": "point tenant_dsn at PgBouncer, and dsn at Postgres itself",
}

// usersOf are the users that connect by these DSNs, as far as they can be read.
func usersOf(dsns ...string) (users []string) {
	for _, dsn := range dsns {
		if cfg, err := pgx.ParseConfig(dsn); err == nil && dsn != "" {
			users = append(users, cfg.User)
		}
	}
	return users
}

// isUTF8 tells whether Postgres knows UTF-8 by this name.
func isUTF8(name string) bool {
	name = strings.NewReplacer("-", "", "_", "").Replace(strings.ToLower(name))
	return name == "utf8" || name == "unicode"
}

// hasStrayAt tells whether an @ was read as part of a host. Only a socket without a
// file has one, in front.
func hasStrayAt(cfg *pgx.ConnConfig) bool {
	return slices.ContainsFunc(hostsOf(cfg), func(h *pgconn.FallbackConfig) bool { return strings.LastIndex(h.Host, "@") > 0 })
}

// hostsOf are the hosts that a connection may lead to, the one that is tried first among them.
func hostsOf(cfg *pgx.ConnConfig) []*pgconn.FallbackConfig {
	return append([]*pgconn.FallbackConfig{{Host: cfg.Host, Port: cfg.Port, TLSConfig: cfg.TLSConfig}}, cfg.Fallbacks...)
}

// isPlain tells whether a host on another network would be spoken to without TLS, if
// only when it offers none. A name without a dot is a neighbour's, as in a compose file
// or a Kubernetes namespace.
func isPlain(cfg *pgx.ConnConfig) bool {
	plain := func(host string, tls bool) bool {
		if tls || host == "" || host == "localhost" || filepath.IsAbs(host) || strings.HasPrefix(host, "@") {
			return false
		}
		if ip, err := netip.ParseAddr(host); err == nil {
			return !ip.IsLoopback()
		}
		return strings.Contains(host, ".")
	}
	return slices.ContainsFunc(hostsOf(cfg), func(h *pgconn.FallbackConfig) bool { return plain(h.Host, h.TLSConfig != nil) })
}

// placeholder is what stands for something else in a pattern, or was meant to.
var placeholder = regexp.MustCompile(`\{[^{}]*\}?|\}`)

func (t TenantsConfig) validate(l *fault.List, pools map[string]PoolConfig) {
	if t.Schema == "" {
		l.Add("tenants.schema", `write a pattern such as "t_{tenant}"`, "is empty")
	}
	for path, pattern := range map[string]string{"tenants.schema": t.Schema, "tenants.role": t.Role} {
		if placeholder.MatchString(strings.ReplaceAll(pattern, "{tenant}", "")) {
			l.Add(path, "did you mean {tenant}?", "has a placeholder that stands for nothing")
		}
	}
	t.validateSchemas(l, "tenants.schemas", t.Schemas)
	for _, name := range slices.Sorted(maps.Keys(pools)) {
		t.validateSchemas(l, "pools."+name+".schemas", pools[name].Schemas)
	}
	place := map[[2]string]tenancy.ID{} // pool, schema
	folded := map[string]tenancy.ID{}
	for _, id := range slices.Sorted(maps.Keys(t.Static)) {
		path := "tenants.static." + string(id)
		if err := id.Validate(); err != nil {
			l.Add(path, "", "%v", err)
			continue
		}
		if other, dup := folded[strings.ToLower(string(id))]; dup {
			l.Add(path, "rename one of them", "differs from tenant %q only in case", other)
		}
		folded[strings.ToLower(string(id))] = id
		entry := t.Static[id]
		if entry.Pool == "" {
			l.Add(path+".pool", "name one of pools", "is empty")
		} else if _, ok := pools[entry.Pool]; !ok {
			l.Add(path+".pool", choosePool(pools, entry.Pool), "is not under pools")
		}
		t.validateSchemas(l, path+".schemas", entry.Schemas)
		for key, name := range map[string]string{"schema": entry.Schema, "role": entry.Role} {
			if placeholder.MatchString(name) {
				l.Add(path+"."+key, "write the name itself, or leave it out to have the pattern tenants."+key, "has a placeholder, which is replaced in tenants.%s only", key)
			}
		}
		tenant, err := t.place(id, entry.Pool, entry.Schema, entry.Role)
		if bad := (*nameError)(nil); errors.As(err, &bad) {
			l.Add(path, "", "has a %s that %s", bad.what, bad.fault)
			continue
		}
		if p := pools[entry.Pool]; tenant.Role != "" && slices.Contains(usersOf(p.DSN, p.TenantDSN), tenant.Role) {
			l.Add(path, "give the tenant another role, or have nodes connect as another user", "has the role that nodes connect to its pool as, which has all tenants' jobs")
		}
		key := [2]string{tenant.Pool, tenant.Schema}
		if other, dup := place[key]; dup {
			l.Add(path, "give each its own schema", "has the schema of tenant %q, in the same pool", other)
		}
		place[key] = id
	}
	if t.Table == nil {
		return
	}
	if t.Schema != "" && !strings.Contains(t.Schema, "{tenant}") {
		l.Add("tenants.schema", `write a pattern such as "t_{tenant}"`, "has no {tenant}: tenants to whom the table gives no schema would share one")
	}
	if _, ok := pools[t.Table.Pool]; !ok {
		l.Add("tenants.table.pool", choosePool(pools, t.Table.Pool), "is not under pools")
	}
	if strings.TrimSpace(t.Table.Query) == "" {
		l.Add("tenants.table.query", "such as: SELECT pool, schema_name FROM app.tenant WHERE id = $1", "is empty")
	} else if !strings.Contains(t.Table.Query, "$1") {
		l.Add("tenants.table.query", "such as: SELECT pool, schema_name FROM app.tenant WHERE id = $1", "does not use $1, the tenant's id")
	}
	if s := strings.TrimSpace(t.Table.List); s != "" && !strings.Contains(s, "$1") {
		l.Add("tenants.table.list", "such as: SELECT id FROM app.tenant WHERE pool = $1", "does not use $1, the pool")
	}
	if m := strings.TrimSpace(t.Table.Move); m != "" && (!strings.Contains(m, "$1") || !strings.Contains(m, "$2")) {
		l.Add("tenants.table.move", "such as: UPDATE app.tenant SET pool = $2 WHERE id = $1", "does not use both $1, the tenant's id, and $2, the pool")
	}
	if t.Table.Cache < 0 {
		l.Add("tenants.table.cache", "", "%v is negative", t.Table.Cache)
	}
}
