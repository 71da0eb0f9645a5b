package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/routing"
)

type idleOptions struct {
	pools, nodes   int
	maxConns       int
	settle, window time.Duration
	profile, keep  string
}

type idleResult struct {
	Scenario      string  `json:"scenario"`
	Pools         int     `json:"pools"`
	Nodes         int     `json:"nodes"`
	CreateSeconds float64 `json:"create_seconds"`
	HeldSeconds   float64 `json:"held_seconds"`                 // from the nodes' start until every lock was held
	SettleSeconds float64 `json:"settle_seconds"`               // from then until it was measured
	Transactions  float64 `json:"transactions_per_pool_second"` // of all nodes together
	Connections   float64 `json:"connections_per_pool"`         // of all nodes together
	Goroutines    float64 `json:"goroutines_per_pool"`          // of the node with the most
	Kilobytes     float64 `json:"kilobytes_per_pool"`           // of the node with the most
	Server        float64 `json:"server_ms_per_pool_second"`    // of its processor
	Unheld        int     `json:"unheld"`                       // locks that nobody held in the end
}

func newIdle() *cobra.Command {
	var o idleOptions
	c := scenario("idle", "Leave a cluster with many empty pools idle, and measure what it costs", &o, idle)
	c.Flags().IntVar(&o.pools, "pools", 200, "empty databases; each takes 8 MB of memory, and each connection about 2 MB")
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes")
	c.Flags().IntVar(&o.maxConns, "max-connections", 0, "connections that the server allows (0: all that the nodes could ever open)")
	c.Flags().DurationVar(&o.settle, "settle", 32*time.Second, "measure once no lock has changed hands for this long; connections opened for such a change close after about 30 s")
	c.Flags().DurationVar(&o.window, "window", 10*time.Second, "length of the measurement")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return c
}

func (r idleResult) Fault() error {
	if r.Unheld != 0 {
		return fmt.Errorf("the locks of %d pools are not held", r.Unheld)
	}
	return nil
}

// perNode bounds what each node opens beside the locks' connections.
const perNode = 32

func idle(ctx context.Context, o idleOptions) (r idleResult, err error) {
	if o.pools < 1 || o.nodes < 1 || o.window <= 0 {
		return r, errors.New("pools, nodes and window must be more than 0")
	}
	if o.maxConns == 0 {
		o.maxConns = 50 + perNode*o.nodes + o.pools*min(o.nodes, 3)
	}
	// Nothing here depends on durability, and autovacuum would be counted as ours.
	server, err := devpg.Start(ctx, devpg.Options{MaxConnections: o.maxConns, Settings: map[string]string{"autovacuum": "off"}})
	if err != nil {
		return r, err
	}
	began := time.Now()
	b := bed.NewEmpty(server)
	b.Config.Connections = routing.ConnectionsConfig{PerNode: perNode, Nodes: o.nodes}
	defer b.Close()
	if err := b.ClonePools(ctx, o.pools); err != nil {
		return r, err
	}
	r = idleResult{Scenario: "idle", Pools: o.pools, Nodes: o.nodes, CreateSeconds: report.Seconds(time.Since(began))}
	fmt.Fprintf(os.Stderr, "created %d databases in %v s\n", o.pools, r.CreateSeconds)

	f, err := fleet.New(b.Config, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer f.Close()
	f.Silent = true
	began = time.Now()
	err = inTurn(ctx, f.Start,
		func(ctx context.Context) error { return r.settle(ctx, f, o, began) },
		func(ctx context.Context) error { return r.watch(ctx, server, o) })
	if err != nil {
		return r, err
	}
	u, err := f.Usage()
	if err != nil {
		return r, err
	}
	r.Goroutines, r.Kilobytes = per(u.Goroutines, o.pools), per(u.Kilobytes, o.pools)
	locks, err := f.Stats()
	r.Unheld = o.pools - locks.Held
	return r, err
}

// settle waits until every lock is held and none has changed hands for a while.
func (r *idleResult) settle(ctx context.Context, f *fleet.Fleet, o idleOptions, began time.Time) error {
	var moved time.Time
	var before fleet.Stats
	err := wait.Until(ctx, 10*time.Minute, "the locks did not come to rest", func() (bool, error) {
		locks, err := f.Stats()
		if err != nil {
			return false, err
		}
		if locks != before {
			moved, before = time.Now(), locks
		}
		if r.HeldSeconds == 0 && locks.Held == o.pools {
			r.HeldSeconds = report.Seconds(time.Since(began))
			fmt.Fprintf(os.Stderr, "every lock held after %v s\n", r.HeldSeconds)
		}
		return r.HeldSeconds > 0 && time.Since(moved) >= o.settle, wait.For(ctx, 100*time.Millisecond)
	})
	r.SettleSeconds = report.Round(report.Seconds(time.Since(began))-r.HeldSeconds, 3)
	return err
}

// watch measures what the server sees. Its own connection is to a database that is no pool.
func (r *idleResult) watch(ctx context.Context, server *devpg.Server, o idleOptions) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	count := func(sql string) (n int) {
		if err == nil {
			err = conn.QueryRow(ctx, sql).Scan(&n)
		}
		return n
	}
	const transactions = "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname LIKE 'pool-%'"
	var postgres int
	if err := conn.QueryRow(ctx, "SELECT split_part(pg_read_file('postmaster.pid'), E'\\n', 1)::int").Scan(&postgres); err != nil {
		return err
	}
	spend := measureFrom(postgres)
	before, began := count(transactions), time.Now()
	samples, connections := 0, 0
	for err == nil && time.Since(began) < o.window {
		samples, connections = samples+1, connections+count("SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'pool-%'")
		err = errors.Join(err, wait.For(ctx, min(time.Second, o.window)))
	}
	r.Server = report.Round(float64(spend().postgres.Microseconds())/1000/time.Since(began).Seconds()/float64(o.pools), 3)
	r.Transactions = report.Round(per(count(transactions)-before, o.pools)/time.Since(began).Seconds(), 3)
	r.Connections = report.Round(per(connections, samples)/float64(o.pools), 2)
	return err
}

func per(n, pools int) float64 { return report.Round(float64(n)/float64(pools), 2) }
