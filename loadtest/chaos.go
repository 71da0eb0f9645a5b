package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

type chaosOptions struct {
	minutes               float64
	seed                  uint64
	nodes, servers, pools int
	every                 time.Duration
	lasts                 time.Duration
	scale                 float64
	only                  []string
	alone                 bool
	keep                  string
	plan                  bool
}

type chaosResult struct {
	Scenario     string  `json:"scenario"`
	Seed         uint64  `json:"seed"`
	Minutes      float64 `json:"minutes"`
	Nodes        int     `json:"nodes"`
	Servers      int     `json:"servers"`
	Pools        int     `json:"pools"`
	SessionTTL   float64 `json:"session_ttl_seconds"`
	GossipCuts   bool    `json:"gossip_cuts"` // whether the network could be cut between nodes
	Faults       int     `json:"faults"`
	FailedStarts int64   `json:"failed_starts"` // of nodes; tried again
	Enqueued     int     `json:"enqueued"`
	Unknown      int     `json:"unknown"`             // calls of Enqueue that failed: the job may exist or not
	TornOff      int     `json:"lost_with_a_primary"` // acknowledged, and not received by the standby that took over
	Starts       int     `json:"starts"`              // of handlers
	Finished     int     `json:"finished"`
	Dead         int     `json:"dead"`
	verdict
	After map[string]aftermath `json:"after,omitempty"` // with --alone, by kind of fault
}

func newChaos() *cobra.Command {
	var o chaosOptions
	c := &cobra.Command{
		Use:   "chaos",
		Short: "Break nodes, databases and the network by a schedule, and check every promise afterwards",
		Long: "Runs node processes and several Postgres servers behind fault proxies, and breaks them by a schedule that\n" +
			"follows from the seed. Then all is mended, every job must come to its end, and a checker goes through\n" +
			"effects, ledgers, and what handlers and databases wrote down. As root on Linux the gossip is cut as well,\n" +
			"in network namespaces of their own. The exit code is 1 if a promise was broken.",
		Args: cobra.NoArgs,
	}
	c.Flags().Float64Var(&o.minutes, "minutes", 0.4, "how long things go wrong")
	c.Flags().Uint64Var(&o.seed, "seed", 1, "of the schedule")
	c.Flags().IntVar(&o.nodes, "nodes", 4, "node processes")
	c.Flags().IntVar(&o.servers, "servers", 2, "Postgres servers")
	c.Flags().IntVar(&o.pools, "pools", 4, "databases, spread over the servers")
	c.Flags().DurationVar(&o.every, "every", 800*time.Millisecond, "a fault begins so often, on average")
	c.Flags().DurationVar(&o.lasts, "for", 0, "how long each fault lasts (0: as is drawn for its kind)")
	c.Flags().Float64Var(&o.scale, "scale", 0.2, "shortens the times to live of locks and sessions, and the faults with them; 1: the defaults")
	c.Flags().StringSliceVar(&o.only, "only", nil, "faults of these kinds alone: "+strings.Join(kindNames(), ", "))
	c.Flags().BoolVar(&o.alone, "alone", false, "one fault at a time: the next begins so long after the last has ended, and it is told how long each kept jobs from running")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
	c.Flags().BoolVar(&o.plan, "plan", false, "only print the schedule")
	return apart(scenario(c, func(ctx context.Context, _ []string) (chaosResult, error) { return runChaos(ctx, o) }))
}

// apart makes a command run in a network of its own, where that can be had.
func apart(c *cobra.Command) *cobra.Command {
	here := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if ran, err := inNetwork(); ran || err != nil {
			return err
		}
		return here(c, args)
	}
	return c
}

func (r chaosResult) fault() error {
	if r.broken() {
		return errors.New("a promise was broken")
	}
	return nil
}

// chaos is a cluster in trouble.
type chaos struct {
	bed     *bed
	fleet   *fleet
	proxies [][]*faultproxy.Proxy // by node and server; the last are the scenario's own
	load    *load
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

func runChaos(ctx context.Context, o chaosOptions) (r chaosResult, err error) {
	if o.nodes < 2 || o.servers < 1 || o.pools < o.servers || o.minutes <= 0 || o.every <= 0 || o.lasts < 0 || o.scale < 0.1 || o.scale > 1 {
		return r, errors.New("two nodes, a server, a pool for each server, and times above 0 are needed at least; --scale is 0.1 to 1")
	}
	for _, kind := range o.only {
		if !slices.Contains(kindNames(), kind) {
			return r, fmt.Errorf("--only %q: there is no such fault; there are %s", kind, strings.Join(kindNames(), ", "))
		}
	}
	w, err := newNetwork()
	if err != nil {
		return r, err
	}
	faults := plan(o, w != nil)
	if o.plan {
		for _, f := range faults {
			fmt.Fprintf(os.Stderr, "%8.2f s  %v\n", f.At.Seconds(), f)
		}
		return chaosResult{Scenario: "chaos", Seed: o.seed, Minutes: o.minutes, GossipCuts: w != nil, Faults: len(faults)}, nil
	}
	c := &chaos{began: time.Now(), out: os.Stderr, serving: make([]sync.Mutex, o.servers)}
	defer c.close()
	if err := c.build(ctx, o, w); err != nil {
		return r, err
	}
	client, err := c.fleet.client(ctx, c.bed.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	// Long ones outlive a session's time to live, and so the doubts about their node.
	long := time.Duration(float64(30*time.Second) * o.scale)
	c.load = c.bed.load(client, 30*time.Millisecond, func(n int) job.Args { return chaosJob(n, long) })
	c.load.start()
	err = c.perform(ctx, faults)
	c.load.stop()
	if err != nil {
		return r, err
	}
	c.say("all is mended; waiting for the last jobs")
	unfinished := c.load.untilDone(ctx)
	unclean := 0
	for _, n := range c.fleet.nodes {
		if err := n.stop(ctx); err != nil {
			c.say("%v", err)
			unclean++
		}
	}
	r = chaosResult{
		Scenario: "chaos", Seed: o.seed, Minutes: o.minutes, Nodes: o.nodes, Servers: o.servers, Pools: o.pools,
		SessionTTL: c.bed.cfg.Acquire.Session.TTL.Seconds(), GossipCuts: w != nil, Faults: len(faults), FailedStarts: c.failedStarts.Load(),
		Unknown: c.load.unknown, verdict: verdict{Unclean: unclean},
	}
	if unfinished != nil {
		c.say("%v", unfinished)
	}
	return r, c.check(ctx, faults, o.alone, &r)
}

// chaosJob is the n-th job of a pool: mostly short ones that write, some that only
// run, few that take long.
func chaosJob(n int, long time.Duration) job.Args {
	took := 2 * time.Duration(n*37%100) * time.Millisecond
	switch {
	case n%200 == 50:
		return plainWork{Took: long}
	case n%200 == 150:
		return txWork{Took: long / 2}
	case n%4 == 0:
		return plainWork{Took: took}
	}
	return txWork{Took: took}
}

// build starts servers, proxies and nodes.
func (c *chaos) build(ctx context.Context, o chaosOptions, w *network) error {
	var servers []*devpg.Server
	for range o.servers {
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
	b, err := newBedOn(ctx, servers, "", o.pools, 3*o.pools)
	if err != nil {
		return err
	}
	c.bed = b
	b.hurry(o.scale)
	for _, pool := range b.pools {
		if err := b.exec(ctx, pool, auditSQL); err != nil {
			return err
		}
	}
	if c.fleet, err = newFleet(b.cfg, o.nodes, "local", o.keep); err != nil {
		return err
	}
	c.fleet.network = w
	for _, n := range c.fleet.nodes {
		if n.cfg.Pools, err = c.behindProxies(); err != nil {
			return err
		}
	}
	if b.cfg.Pools, err = c.behindProxies(); err != nil { // undisturbed, but they follow a fail-over
		return err
	}
	if err := c.fleet.start(ctx); err != nil {
		return err
	}
	for _, n := range c.fleet.nodes {
		c.born(n.running())
	}
	return nil
}

// behindProxies is the pools as they are reached through fault proxies, one for each
// server, that nobody else uses.
func (c *chaos) behindProxies() (map[string]routing.PoolConfig, error) {
	address := "127.0.0.1:0"
	if c.fleet.network != nil {
		address = networkHome + ":0"
	}
	var proxies []*faultproxy.Proxy
	for _, s := range c.bed.servers {
		p, err := faultproxy.Listen(address, s.DSN("postgres"))
		if err != nil {
			return nil, err
		}
		proxies = append(proxies, p)
	}
	c.proxies = append(c.proxies, proxies)
	pools := maps.Clone(c.bed.cfg.Pools)
	for pool, pc := range pools {
		at, err := devpg.At(proxies[c.bed.serverOf(pool)].DSN())
		if err != nil {
			return nil, err
		}
		pc.DSN, pc.Insecure = at.DSN(pool), true // in a network namespace of its own
		pools[pool] = pc
	}
	return pools, nil
}

func (c *chaos) close() {
	if c.fleet != nil {
		c.fleet.close()
	}
	for _, node := range c.proxies {
		for _, p := range node {
			_ = p.Close() // its listener is of no more use to anybody
		}
	}
	if c.bed != nil {
		c.bed.close()
	}
}

// say tells what happens, and when.
func (c *chaos) say(format string, args ...any) {
	c.print(time.Now(), fmt.Sprintf(format, args...))
}

func (c *chaos) print(at time.Time, text string) {
	fmt.Fprintf(c.out, "%9.3f s  %s\n", at.Sub(c.began).Seconds(), text)
}

func (c *chaos) born(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.lives = append(c.lives, &life{member: p.member, born: time.Now()})
}

func (c *chaos) died(p *process) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, l := range c.lives {
		if l.member == p.member && l.died.IsZero() {
			l.died = time.Now()
		}
	}
}
