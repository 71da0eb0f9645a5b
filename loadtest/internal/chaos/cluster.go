package chaos

import (
	"context"
	"fmt"
	"io"
	"maps"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/routing"
)

// Cluster is a cluster in trouble.
type Cluster struct {
	Bed     *bed.Bed
	Fleet   *fleet.Fleet
	proxies [][]*faultproxy.Proxy // by node and server; the last are the scenario's own
	Client  *tenure.Client        // enqueues the load
	Load    *bed.Load
	serving []sync.Mutex // by server: held while something happens to it
	began   time.Time
	out     io.Writer // what happens, and when

	failedStarts atomic.Int64

	mu    sync.Mutex
	lives []*life // guarded by mu; of processes
}

// life is one process of a node.
type life struct {
	member string
	born   time.Time
	died   time.Time // zero: it lived to the end
}

// Start starts servers, proxies and nodes; nil for w: the network cannot be cut.
func Start(ctx context.Context, o Options, w *fleet.Network) (*Cluster, error) {
	c := &Cluster{began: time.Now(), out: os.Stderr, serving: make([]sync.Mutex, o.Servers)}
	if err := c.build(ctx, o, w); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

func (c *Cluster) build(ctx context.Context, o Options, w *fleet.Network) error {
	var servers []*devpg.Server
	for range o.Servers {
		// Only Postgres will crash here, not the system: what a commit has written is safe without fsync.
		s, err := devpg.Start(ctx, devpg.Options{Settings: map[string]string{"synchronous_commit": "on"}})
		if err != nil {
			for _, s := range servers {
				_ = s.Stop(ctx) // the first error says more
			}
			return err
		}
		servers = append(servers, s)
	}
	b, err := bed.NewOn(ctx, servers, "", o.Pools, 3*o.Pools)
	if err != nil {
		return err
	}
	c.Bed = b
	b.ScaleTTLs(o.Scale)
	if err := b.ExecAll(ctx, report.AuditSQL); err != nil {
		return err
	}
	if err := c.limitTenants(ctx); err != nil {
		return err
	}
	if c.Fleet, err = fleet.New(b.Config, o.Nodes, "local", o.Keep); err != nil {
		return err
	}
	c.Fleet.Network = w
	for _, n := range c.Fleet.Nodes {
		if n.Cfg.Pools, err = c.behindProxies(); err != nil {
			return err
		}
	}
	if b.Config.Pools, err = c.behindProxies(); err != nil { // undisturbed, but they follow a fail-over
		return err
	}
	if err := c.Fleet.Start(ctx); err != nil {
		return err
	}
	for _, n := range c.Fleet.Nodes {
		c.born(n.Running())
	}
	c.Client, err = c.Fleet.NewClient(ctx, b.Config)
	return err
}

// mostOfAKind is how many jobs of a kind a tenant may have in flight: more than the load has on average,
// and less than it has after an outage.
const mostOfAKind = 6

// The rate of each exclusive key: more than the load has on average, and less than is caught up with after
// an outage.
const (
	keyRate  = 4 // starts in a second
	keyBurst = 3
)

// limitTenants gives tenants limits and weights of their own. The audit says if a limit is exceeded.
func (c *Cluster) limitTenants(ctx context.Context) error {
	for i, id := range c.Bed.Tenants {
		sql := fmt.Sprintf("INSERT INTO tenure.tenant (tenant_id, weight) VALUES ('%s', %d)", id, 1+i%4)
		for _, kind := range []string{fleet.PlainWork{}.Kind(), fleet.TxWork{}.Kind()} {
			sql += fmt.Sprintf("; INSERT INTO tenure.job_limit (tenant_id, scope, name, max_running) VALUES ('%s', 'kind', '%s', %d)", id, kind, mostOfAKind)
		}
		sql += fmt.Sprintf("; INSERT INTO tenure.job_limit (tenant_id, scope, name, rate, per_ms, burst) VALUES ('%s', 'key', '', %d, 1000, %d)", id, keyRate, keyBurst)
		if err := c.Bed.Exec(ctx, c.Bed.Pools[i%len(c.Bed.Pools)], sql); err != nil {
			return err
		}
	}
	return nil
}

// behindProxies is the pools as they are reached through fault proxies, one for each
// server, that nobody else uses.
func (c *Cluster) behindProxies() (map[string]routing.PoolConfig, error) {
	address := "127.0.0.1:0"
	if c.Fleet.Network != nil {
		address = fleet.NetworkHome + ":0"
	}
	var proxies []*faultproxy.Proxy
	for _, s := range c.Bed.Servers {
		p, err := faultproxy.Listen(address, s.DSN("postgres"))
		if err != nil {
			return nil, err
		}
		proxies = append(proxies, p)
	}
	c.proxies = append(c.proxies, proxies)
	pools := maps.Clone(c.Bed.Config.Pools)
	for pool, pc := range pools {
		at, err := devpg.At(proxies[c.Bed.ServerOf(pool)].DSN())
		if err != nil {
			return nil, err
		}
		pc.DSN, pc.Insecure = at.DSN(pool), true // in a network namespace of its own
		pools[pool] = pc
	}
	return pools, nil
}

// StartLoad begins to enqueue jobs; those that take long outlive a session's time to live,
// and so the doubts about their node.
func (c *Cluster) StartLoad() {
	long := 2 * c.Bed.Config.Acquire.Session.TTL
	c.Load = bed.StartLoad(c.Bed, c.Client, 30*time.Millisecond, func(n int) job.Args { return newJob(n, long) }, keyOf)
}

// keyOf gives every seventh job of a pool, and so one of each tenant in turn, one of two exclusive keys.
func keyOf(n int) []tenure.Option {
	if n%7 != 3 {
		return nil
	}
	return []tenure.Option{tenure.Exclusive([]string{"k0", "k1"}[n/7%2])}
}

// Close ends everything.
func (c *Cluster) Close() {
	fleet.StopClient(c.Client)
	if c.Fleet != nil {
		c.Fleet.Close()
	}
	for _, node := range c.proxies {
		for _, p := range node {
			_ = p.Close() // its listener is of no more use to anybody
		}
	}
	if c.Bed != nil {
		c.Bed.Close()
	}
}

// Say tells what happens, and when.
func (c *Cluster) Say(format string, args ...any) {
	c.printAt(time.Now(), fmt.Sprintf(format, args...))
}

func (c *Cluster) printAt(at time.Time, text string) {
	fmt.Fprintf(c.out, "%9.3f s  %s\n", at.Sub(c.began).Seconds(), text)
}

func (c *Cluster) born(p *fleet.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives = append(c.lives, &life{member: p.Member, born: time.Now()})
}

func (c *Cluster) died(p *fleet.Process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lives {
		if l.member == p.Member && l.died.IsZero() {
			l.died = time.Now()
		}
	}
}
