package config

import (
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strconv"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/fault"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/membership"
	"github.com/tenurehq/tenure/routing"
)

// Config is everything a node can be told. Build it with [Load], or from
// [Default] in a program that embeds a node.
type Config struct {
	Node Node `yaml:"node"`
	// Cluster is nil on a single node, which then does not gossip.
	Cluster *membership.Config            `yaml:"cluster"`
	Pools   map[string]routing.PoolConfig `yaml:"pools"`
	Tenants routing.TenantsConfig         `yaml:"tenants"`
	// Connections bounds connections over all pools and nodes.
	Connections routing.ConnectionsConfig `yaml:"connections"`
	Acquire     acquisition.Config        `yaml:"acquire"`
	Execution   execution.Config          `yaml:"execution"`
	Handlers    Handlers                  `yaml:"handlers"`
	// Encryption of jobs' arguments.
	Encryption encryption.Config `yaml:"encryption"`
	// Schedules are what the nodes have tenants do again and again, by name.
	Schedules map[string]acquisition.ScheduleConfig `yaml:"schedules"`
	// Limits are of all tenants and pools together.
	Limits acquisition.LimitsConfig `yaml:"limits"`

	// File is the path that Load read; tenure's Node.Run reads it again when it changes.
	// Empty in a configuration that a program made itself.
	File string `yaml:"-"`

	// references by path, so that Show can print them. Never written to after Parse, hence shared by copies.
	references map[string]reference
}

// Handlers configures the handlers that the daemon brings along.
type Handlers struct {
	HTTPRequest HTTPRequest `yaml:"http_request"`
	SQLExec     SQLExec     `yaml:"sql_exec"`
}

// SQLExec configures the handler that runs a statement of the enqueuer's.
type SQLExec struct {
	// Enabled has the node run sql.exec. Off by default: anyone who may insert a job could
	// run SQL of their choice as the tenant's role, or as the pool's user without one.
	Enabled bool `yaml:"enabled"`
}

// HTTPRequest configures the handler that calls webhooks.
type HTTPRequest struct {
	// Allow lists the private and loopback networks that may be called. Empty:
	// none, since a tenant who chooses the URL could reach inside.
	Allow []netip.Prefix `yaml:"allow"`
}

// Minimal is the shortest file that makes a useful node.
const Minimal = `pools:
  main:
    dsn: ${env:DATABASE_URL}
tenants:
  static:
    acme: main
`

// Default is the configuration of a single node, without pools.
func Default() Config {
	return Config{
		Node:        DefaultNode(),
		Tenants:     routing.DefaultConfig().Tenants,
		Connections: routing.DefaultConfig().Connections,
		Acquire:     acquisition.DefaultConfig(),
		Execution:   execution.DefaultConfig(),
	}
}

// Gossip says whether the node joins a cluster.
func (c Config) Gossip() bool { return c.Cluster != nil }

// Routing is what package routing takes.
func (c Config) Routing() routing.Config {
	return routing.Config{Pools: c.Pools, Tenants: c.Tenants, Connections: c.Connections, TenantShare: c.Execution.TenantShare}
}

// Validate is for programs that build a Config themselves: the faults that
// [Parse] would find in a file of the same content, as an [*Error] without places.
func (c Config) Validate() error {
	e := &Error{}
	if c.Execution == (execution.Config{}) { // what else is wrong follows from that
		e.add(Fault{What: "this Config was not made from config.Default(), so that its times and sizes are 0", Fix: "start from config.Default(), and change what is to be different"})
		return e
	}
	for _, f := range c.faults() {
		e.add(Fault{Path: f.Path, What: f.What, Fix: f.Fix})
	}
	return e.err()
}

// faults asks every package, and adds the rules that concern several of them.
func (c Config) faults() []*fault.Fault {
	var l fault.List
	c.Node.validate(&l)
	c.validateAddresses(&l)
	c.validateDatabases(&l)
	c.validateScheduled(&l)
	for i, p := range c.Handlers.HTTPRequest.Allow {
		path := "handlers.http_request.allow[" + strconv.Itoa(i) + "]"
		switch {
		case !p.IsValid():
			l.Add(path, "write a network such as 10.20.0.0/16", "is not a network")
		case p.Bits() == 0:
			l.Add(path, "name the networks that webhooks need", "opens every network, a cloud's metadata service included")
		}
	}
	errs := []error{l.Err(), c.Routing().Validate(), c.Acquire.Validate(), c.Execution.Validate(), c.Encryption.Validate(), acquisition.ValidateSchedules(c.Schedules),
		acquisition.ValidateLimits(c.Limits, slices.Sorted(maps.Keys(c.Pools)))}
	if c.Cluster != nil {
		errs = append(errs, c.Cluster.Validate())
	}
	found := fault.All(errors.Join(errs...))
	for name, p := range c.Pools {
		for key, dsn := range map[string]string{".dsn": p.DSN, ".tenant_dsn": p.TenantDSN} {
			if path := "pools." + name + key; brokenPassword(dsn) { // pgx would look for a host and a port in it
				found = append(slices.DeleteFunc(found, func(f *fault.Fault) bool { return f.Path == path }), &fault.Fault{Path: path,
					What: "has a password with / ? or # in it, which end it there", Fix: "in the password, write / as %2F, ? as %3F and # as %23"})
			}
		}
	}
	return found
}

// validateAddresses refuses two listeners on one TCP port.
func (c Config) validateAddresses(l *fault.List) {
	if c.Cluster == nil {
		return
	}
	listen, err := c.Node.listenAddr()
	bind, bindErr := netip.ParseAddrPort(c.Cluster.Bind)
	if err != nil || bindErr != nil || listen.Port() == 0 || listen.Port() != bind.Port() {
		return
	}
	if listen.Addr() == bind.Addr() || listen.Addr().IsUnspecified() || bind.Addr().IsUnspecified() {
		l.Add("node.listen", "choose another port for one of them", "has the port of cluster.bind, where gossip listens")
	}
}

// validateScheduled refuses schedules of tenants that no rule can know: only a table may know others than the static ones.
func (c Config) validateScheduled(l *fault.List) {
	if c.Tenants.Table != nil {
		return
	}
	for _, name := range slices.Sorted(maps.Keys(c.Schedules)) {
		for i, id := range c.Schedules[name].Tenants {
			if _, known := c.Tenants.Static[id]; !known && id.Validate() == nil {
				l.Add("schedules."+name+".tenants["+strconv.Itoa(i)+"]", "add it to tenants.static, or remove it here", "%s is not under tenants.static, and there is no tenants.table that could know it", id)
			}
		}
	}
}

// validateDatabases refuses two names for one database: its jobs would be taken
// twice. Here only equal texts are found; what hides behind another host name or
// a proxy shows when the pools are opened and asked for their system identifier.
func (c Config) validateDatabases(l *fault.List) {
	first := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(c.Pools)) {
		dsn := c.Pools[name].DSN
		parsed, err := pgconn.ParseConfig(dsn)
		if dsn == "" || err != nil || brokenPassword(dsn) {
			continue // routing says so
		}
		// The fallbacks repeat a host with and without TLS, and name further hosts.
		hosts := []string{fmt.Sprintf("%s:%d", parsed.Host, parsed.Port)}
		for _, f := range parsed.Fallbacks {
			hosts = append(hosts, fmt.Sprintf("%s:%d", f.Host, f.Port))
		}
		slices.Sort(hosts)
		key := fmt.Sprintf("%q %q", slices.Compact(hosts), parsed.Database)
		if other, dup := first[key]; dup {
			l.Add("pools."+name+".dsn", "remove one of them", "is the same database as pool %s", other)
			continue
		}
		first[key] = name
	}
}
