package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type stormOptions struct {
	nodes, pools, room, outsider int
	told, perNode, maxConns      int
	steady, fault                time.Duration
	every, took                  time.Duration
	keep                         string
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
	Enqueued    int           `json:"enqueued"`
	Unknown     int           `json:"unknown"` // calls of Enqueue that failed
	Finished    int           `json:"finished"`
	Dead        int           `json:"dead"`
	Lost        int           `json:"lost"`
	Doubled     int           `json:"doubled"`
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
	c := &cobra.Command{
		Use: "storm", Short: "Take a server's connections away from a cluster with many pools on it, then the server, and count how often it tries",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 5, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 20, "databases, all on one server")
	c.Flags().IntVar(&o.room, "max-connections", 100, "the server's")
	c.Flags().IntVar(&o.outsider, "outsider", 90, "how many of them somebody else takes")
	c.Flags().IntVar(&o.told, "told", 0, "connections.nodes (0: as many processes as there are, the client included)")
	c.Flags().IntVar(&o.perNode, "per-node", 0, "connections.per_node (0: the most that the check at the start allows)")
	c.Flags().IntVar(&o.maxConns, "max-conns", 20, "max_conns of every pool; that is its default")
	c.Flags().DurationVar(&o.steady, "steady", 10*time.Second, "how long to measure without a fault")
	c.Flags().DurationVar(&o.fault, "fault", 20*time.Second, "how long each fault lasts")
	c.Flags().DurationVar(&o.every, "every", time.Second, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.took, "took", 20*time.Millisecond, "how long each takes")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (stormResult, error) { return storm(ctx, o) })
}

func (r stormResult) fault() error { return lost(int64(r.Lost+r.Dead), r.Doubled) }

// reservedSlots are those of superusers, by Postgres' default.
const reservedSlots = 3

// stormOwner owns the databases. Every process has a role of its own in it, so that the
// server's log tells who asked; none is a superuser, who would have slots of his own.
const stormOwner, stormClient = "app", "client"

func storm(ctx context.Context, o stormOptions) (r stormResult, err error) {
	if o.nodes < 1 || o.pools < 1 || o.steady < time.Second || o.fault < time.Second || o.every <= 0 || o.outsider >= o.room-reservedSlots {
		return r, errors.New("nodes, pools and every must be more than 0, steady and fault a second at least, and the outsider must leave some connections")
	}
	if o.told == 0 {
		o.told = o.nodes + 1
	}
	locks := o.pools * min(o.told, 3)
	if o.perNode == 0 {
		o.perNode = (o.room - reservedSlots - locks) / o.told
	}
	r = stormResult{Scenario: "storm", Nodes: o.nodes, Pools: o.pools, Server: o.room, Told: o.told, PerNode: o.perNode, MaxConns: o.maxConns}
	r.Budget = min(o.perNode*o.told+locks, o.maxConns*o.pools*o.told)
	server, err := devpg.Start(ctx, devpg.Options{Durable: true, InMemory: true, MaxConnections: o.room, Settings: map[string]string{
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
	if err := execOn(ctx, server.DSN("postgres"), sql); err != nil {
		return r, errors.Join(err, server.Stop(ctx))
	}
	b, err := newBedOn(ctx, []*devpg.Server{server}, stormOwner, o.pools, 2*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
	b.cfg.Connections.Nodes, b.cfg.Connections.PerNode = o.told, o.perNode
	f, err := newFleet(b.cfg, o.nodes, "lan", o.keep)
	if err != nil {
		return r, err
	}
	defer f.close()
	f.silent = true
	as := func(role string) {
		b.cfg.Pools = maps.Clone(b.cfg.Pools)
		for name, p := range b.cfg.Pools {
			p.DSN, p.MaxConns = asUser(p.DSN, role), o.maxConns
			b.cfg.Pools[name] = p
		}
	}
	for i, n := range f.nodes {
		as(roles[i+1])
		n.cfg.Pools = b.cfg.Pools
	}
	if err := f.start(ctx); err != nil {
		return r, err
	}
	as(stormClient)
	client, err := f.client(ctx, b.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	as("postgres") // for whoever counts

	l := b.load(client, o.every, func(n int) job.Args {
		if n%2 == 0 {
			return plainWork{Took: o.took}
		}
		return txWork{Took: o.took}
	})
	l.start()
	w := &weather{bed: b, server: server, nodes: o.nodes, fault: o.fault, outsider: o.outsider}
	err = w.run(ctx, o.steady)
	l.stop()
	if err == nil {
		err = b.untilDone(ctx)
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	if err := w.readLog(ctx); err != nil {
		return r, err
	}
	r.Connections, r.Locks = w.most, w.locks
	opened := 0
	for _, t := range w.opened {
		if w.steady.has(t.at) {
			opened++
		}
	}
	r.Opened = tenths(float64(opened) / w.steady.seconds())
	r.Steady, r.Crowded, r.Down = w.tries(w.steady), w.tries(w.crowded), w.tries(w.down)
	if r.Recovered, err = w.recovery(ctx, w.left); err != nil {
		return r, err
	}
	if r.Back, err = w.recovery(ctx, w.back); err != nil {
		return r, err
	}
	p, err := l.prove(ctx)
	r.Enqueued, r.Unknown, r.Finished, r.Dead, r.Lost, r.Doubled = l.enqueued(), l.unknown, p.finished, p.dead, p.lost, p.doubled
	return r, err
}

const stormLog = "storm.log"

// untilDone waits until no job is left that may still run. It needs no connection of the
// client's, of which there may be none.
func (b *bed) untilDone(ctx context.Context) error {
	for _, pool := range b.pools {
		conn, err := b.connect(ctx, pool)
		if err != nil {
			return err
		}
		err = until(ctx, 6*time.Minute, "jobs were left in "+pool, func() (bool, error) {
			var left int
			err := conn.QueryRow(ctx, "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)").Scan(&left)
			return left == 0, errors.Join(err, wait(ctx, 100*time.Millisecond))
		})
		if err := errors.Join(err, conn.Close(ctx)); err != nil {
			return err
		}
	}
	return nil
}
