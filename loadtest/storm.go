package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type stormOptions struct {
	nodes, pools, serverConns, outsider int
	told, perNode, maxConns             int
	steady, fault, every, took          time.Duration
	keep                                string
}

type stormResult struct {
	Scenario    string        `json:"scenario"`
	Nodes       int           `json:"nodes"`
	Pools       int           `json:"pools"`
	Server      int           `json:"max_connections"`
	Told        int           `json:"connections_nodes"`
	PerNode     int           `json:"connections_per_node"`
	MaxConns    int           `json:"max_conns"`
	Budget      int           `json:"budget"`           // what all processes may open by that, or by max_conns
	Connections int           `json:"connections"`      // the most that were open at a time
	Locks       int           `json:"lock_connections"` // those for locks and sessions, which connections.per_node does not bound
	Opened      float64       `json:"opened_per_second"`
	Steady      stormTries    `json:"steady"`
	Crowded     stormTries    `json:"crowded_out"` // while an outsider has nearly all connections
	Down        stormTries    `json:"down"`        // while the server does not run
	Recovered   stormRecovery `json:"recovered_from_crowd"`
	Back        stormRecovery `json:"recovered_from_down"`
	Unknown     int           `json:"unknown"` // calls of Enqueue that failed
	Dead        int           `json:"dead"`
	report.Outcome
}

// stormTries counts connections that nodes asked the server for in vain.
type stormTries struct {
	PerSecond   float64 `json:"per_second"`    // of all nodes and pools
	PerPair     float64 `json:"per_pair"`      // and second, of a node and a pool, on average
	WorstPair   float64 `json:"worst_pair"`    // and second, of the node and the pool with most
	WorstSecond int     `json:"worst_second"`  // the most of a node and a pool within a second
	Locks       float64 `json:"locks"`         // share of those for locks and sessions; 0: not known
	Client      float64 `json:"client_second"` // of the client that enqueues, all pools together
}

// stormRecovery is counted from the end of a fault.
type stormRecovery struct {
	First   float64 `json:"first_seconds"`  // until a job of every pool has finished
	Behind  float64 `json:"behind_seconds"` // until all jobs have finished that were enqueued before
	PerPair float64 `json:"per_pair"`       // connections that the server refused in the half minute after, as in stormTries
}

func newStorm() *cobra.Command {
	var o stormOptions
	c := scenario("storm", "Take away a server's connections from a cluster with many pools, then the server, and count the connection attempts", &o, storm)
	c.Flags().IntVar(&o.nodes, "nodes", 5, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 20, "databases, all on one server")
	c.Flags().IntVar(&o.serverConns, "max-connections", 100, "max_connections of the server")
	c.Flags().IntVar(&o.outsider, "outsider", 90, "how many of them another program takes")
	c.Flags().IntVar(&o.told, "told", 0, "connections.nodes (0: the number of processes, the client included)")
	c.Flags().IntVar(&o.perNode, "per-node", 0, "connections.per_node (0: the most that the check at start-up allows)")
	c.Flags().IntVar(&o.maxConns, "max-conns", 20, "max_conns of every pool")
	c.Flags().DurationVar(&o.steady, "steady", 10*time.Second, "how long to measure without a fault")
	c.Flags().DurationVar(&o.fault, "fault", 20*time.Second, "how long each fault lasts")
	c.Flags().DurationVar(&o.every, "every", time.Second, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.took, "took", 20*time.Millisecond, "how long each job takes")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return c
}

func (r stormResult) Fault() error { return report.Lost(int64(r.Lost+r.Dead), r.Doubled) }

// reservedSlots are those of superusers, by Postgres' default.
const reservedSlots = 3

// stormOwner owns the databases. Every process has a role of its own in it, so that the
// server's log tells who asked; none is a superuser, who would have slots of his own.
const stormOwner, stormClient = "app", "client"

func storm(ctx context.Context, o stormOptions) (r stormResult, err error) {
	if o.nodes < 1 || o.pools < 1 || o.steady < time.Second || o.fault < time.Second || o.every <= 0 || o.outsider >= o.serverConns-reservedSlots {
		return r, errors.New("nodes, pools and every must be more than 0, steady and fault at least a second, and the outsider must leave some connections")
	}
	if o.told == 0 {
		o.told = o.nodes + 1
	}
	locks := o.pools * min(o.told, 3)
	if o.perNode == 0 {
		o.perNode = (o.serverConns - reservedSlots - locks) / o.told
	}
	r = stormResult{Scenario: "storm", Nodes: o.nodes, Pools: o.pools, Server: o.serverConns, Told: o.told, PerNode: o.perNode, MaxConns: o.maxConns}
	r.Budget = min(o.perNode*o.told+locks, o.maxConns*o.pools*o.told)
	server, err := devpg.Start(ctx, devpg.Options{Durable: true, InMemory: true, MaxConnections: o.serverConns, Settings: map[string]string{
		"logging_collector": "on", "log_directory": "log", "log_filename": stormLog, "log_rotation_age": "0", "log_rotation_size": "0",
		"log_connections": "on", "log_line_prefix": "%n %u@%d ",
	}})
	if err != nil {
		return r, err
	}
	roles := []string{stormClient}
	for i := range o.nodes {
		roles = append(roles, fmt.Sprintf("node-%d", i+1))
	}
	sql := fmt.Sprintf("CREATE ROLE %q LOGIN;", stormOwner)
	for _, role := range roles {
		sql += fmt.Sprintf("CREATE ROLE %q LOGIN IN ROLE %q; ALTER ROLE %q SET role = %q;", role, stormOwner, role, stormOwner)
	}
	if err := bed.ExecOn(ctx, server.DSN("postgres"), sql); err != nil {
		return r, errors.Join(err, server.Stop(ctx))
	}
	b, err := bed.NewOn(ctx, []*devpg.Server{server}, stormOwner, o.pools, 2*o.pools)
	if err != nil {
		return r, err
	}
	c := &cluster{bed: b}
	defer c.close()
	b.Config.Connections.Nodes, b.Config.Connections.PerNode = o.told, o.perNode
	if c.fleet, err = fleet.New(b.Config, o.nodes, "lan", o.keep); err != nil {
		return r, err
	}
	c.fleet.Silent = true
	as := func(role string) {
		b.Config.Pools = maps.Clone(b.Config.Pools)
		for name, p := range b.Config.Pools {
			p.DSN, p.MaxConns = bed.AsUser(p.DSN, role), o.maxConns
			b.Config.Pools[name] = p
		}
	}
	for i, n := range c.fleet.Nodes {
		as(roles[i+1])
		n.Cfg.Pools = b.Config.Pools
	}
	as(stormClient)
	if err := c.start(ctx); err != nil {
		return r, err
	}
	as("postgres") // for counting

	c.startLoad(o.every, fleet.MixedWork(o.took))
	faults := &faultSchedule{bed: b, server: server, nodes: o.nodes, fault: o.fault, outsider: o.outsider}
	if r.Outcome, r.Dead, err = c.load.Finish(ctx, faults.run(ctx, o.steady)); err != nil {
		return r, err
	}
	r.Unknown = c.load.Unknown
	if err := faults.readLog(ctx); err != nil {
		return r, err
	}
	r.Connections, r.Locks = faults.most, faults.locks
	opened := 0
	for _, t := range faults.opened {
		if faults.steady.Has(t.at) {
			opened++
		}
	}
	r.Opened = report.Round(float64(opened)/faults.steady.Seconds(), 1)
	r.Steady, r.Crowded, r.Down = faults.tries(faults.steady), faults.tries(faults.crowded), faults.tries(faults.down)
	if r.Recovered, err = faults.recovery(ctx, faults.left); err != nil {
		return r, err
	}
	r.Back, err = faults.recovery(ctx, faults.back)
	return r, err
}

const stormLog = "storm.log"
