package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
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
	Unheld        int     `json:"unheld"`                       // locks that nobody held in the end
}

func newIdle() *cobra.Command {
	var o idleOptions
	c := &cobra.Command{
		Use: "idle", Short: "Leave a cluster with many empty pools alone, and see what it costs",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.pools, "pools", 200, "empty databases; each takes 8 MB of memory, and each connection to it some 2 MB")
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes")
	c.Flags().IntVar(&o.maxConns, "max-connections", 0, "what the server allows (0: as many as the nodes could ever open)")
	c.Flags().DurationVar(&o.settle, "settle", 32*time.Second, "how long no lock may have changed hands before it is measured: what was needed for that is closed after some thirty seconds")
	c.Flags().DurationVar(&o.window, "window", 10*time.Second, "how long to measure")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (idleResult, error) { return idle(ctx, o) })
}

func (r idleResult) fault() error {
	if r.Unheld != 0 {
		return fmt.Errorf("nobody holds the locks of %d pools", r.Unheld)
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
	b := &bed{servers: []*devpg.Server{server}, cfg: config.Default()}
	b.cfg.Connections = routing.ConnectionsConfig{PerNode: perNode, Nodes: o.nodes}
	defer b.close()
	if err := b.clonePools(ctx, o.pools); err != nil {
		return r, err
	}
	r = idleResult{Scenario: "idle", Pools: o.pools, Nodes: o.nodes, CreateSeconds: seconds(time.Since(began))}
	fmt.Fprintf(os.Stderr, "%d databases made in %v s\n", o.pools, r.CreateSeconds)

	f, err := newFleet(b.cfg, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer f.close()
	f.silent = true
	began = time.Now()
	if err := startTogether(ctx, f.nodes); err != nil {
		return r, err
	}
	if err := untilJoined(ctx, f.nodes); err != nil {
		return r, err
	}
	if err := r.settle(ctx, f, o, began); err != nil {
		return r, err
	}
	if err := r.watch(ctx, server, o); err != nil {
		return r, err
	}
	for _, n := range f.nodes {
		u, err := n.usage()
		if err != nil {
			return r, err
		}
		r.Goroutines = max(r.Goroutines, per(u.Goroutines, o.pools))
		r.Kilobytes = max(r.Kilobytes, per(u.Kilobytes, o.pools))
	}
	held, err := f.held()
	r.Unheld = o.pools - locks(held)
	return r, err
}

// clonePools makes many pools from one, as Postgres copies a database in a fraction
// of the time that its migration takes.
func (b *bed) clonePools(ctx context.Context, pools int) error {
	const template = "template"
	server := b.servers[0]
	if err := server.CreateDatabase(ctx, template); err != nil {
		return err
	}
	b.cfg.Pools = map[string]routing.PoolConfig{template: {DSN: server.DSN(template)}}
	if _, err := tenure.Migrate(ctx, b.cfg); err != nil {
		return err
	}
	b.cfg.Pools = map[string]routing.PoolConfig{}
	b.cfg.Node.Listen = "off"
	for p := range pools {
		name := fmt.Sprintf("pool-%d", p+1)
		b.pools = append(b.pools, name)
		b.cfg.Pools[name] = routing.PoolConfig{DSN: server.DSN(name)}
		if err := server.CloneDatabase(ctx, template, name); err != nil {
			return err
		}
	}
	return b.numberPools(ctx)
}

// numberPools does for clones what `tenure migrate` does for a new pool: a number and
// a name, and the number in the job ids. Eight at a time, as most of it is waiting.
func (b *bed) numberPools(ctx context.Context) error {
	next := make(chan int)
	errs := make(chan error, len(b.pools))
	var group sync.WaitGroup
	for range 8 {
		group.Go(func() {
			for p := range next {
				const firstOf = 47 // bits below the pool's number
				errs <- b.exec(ctx, b.pools[p], fmt.Sprintf("UPDATE tenure.pool SET number = %d, name = '%s'; SELECT setval('tenure.job_id', %d, false)",
					p+1, b.pools[p], int64(p+1)<<firstOf+1))
			}
		})
	}
	for p := range b.pools {
		next <- p
	}
	close(next)
	group.Wait()
	close(errs)
	var all []error
	for err := range errs {
		all = append(all, err)
	}
	return errors.Join(all...)
}

// settle waits until every lock is held and none has changed hands for a while.
func (r *idleResult) settle(ctx context.Context, f *fleet, o idleOptions, began time.Time) error {
	var moved time.Time
	var before []nodeStats
	err := until(ctx, 10*time.Minute, "the locks did not come to rest", func() (bool, error) {
		held, err := f.held()
		if err != nil {
			return false, err
		}
		if !slices.Equal(held, before) {
			moved, before = time.Now(), held
		}
		if r.HeldSeconds == 0 && locks(held) == o.pools {
			r.HeldSeconds = seconds(time.Since(began))
			fmt.Fprintf(os.Stderr, "every lock held after %v s\n", r.HeldSeconds)
		}
		return r.HeldSeconds > 0 && time.Since(moved) >= o.settle, wait(ctx, 100*time.Millisecond)
	})
	r.SettleSeconds = math.Round(1000*(seconds(time.Since(began))-r.HeldSeconds)) / 1000
	return err
}

// held is what each node says of the locks that it holds.
func (f *fleet) held() ([]nodeStats, error) {
	held := make([]nodeStats, len(f.nodes))
	for i, n := range f.nodes {
		s, err := n.stats()
		if err != nil {
			return nil, err
		}
		held[i] = s
	}
	return held, nil
}

func locks(held []nodeStats) (n int) {
	for _, s := range held {
		n += s.Held
	}
	return n
}

// watch measures what the server sees. Its own connection is to a database that is no pool.
func (r *idleResult) watch(ctx context.Context, server *devpg.Server, o idleOptions) error {
	conn, err := pgx.Connect(ctx, server.DSN("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	transactions := func() (n int, err error) {
		err = conn.QueryRow(ctx, "SELECT sum(xact_commit + xact_rollback) FROM pg_stat_database WHERE datname LIKE 'pool-%'").Scan(&n)
		return n, err
	}
	before, err := transactions()
	if err != nil {
		return err
	}
	began := time.Now()
	samples, connections := 0, 0
	for time.Since(began) < o.window {
		var n int
		if err := conn.QueryRow(ctx, "SELECT count(*) FROM pg_stat_activity WHERE datname LIKE 'pool-%'").Scan(&n); err != nil {
			return err
		}
		samples, connections = samples+1, connections+n
		if err := wait(ctx, min(time.Second, o.window)); err != nil {
			return err
		}
	}
	after, err := transactions()
	if err != nil {
		return err
	}
	r.Transactions = per(after-before, o.pools) / time.Since(began).Seconds()
	r.Transactions = math.Round(1000*r.Transactions) / 1000
	r.Connections = math.Round(100*per(connections, samples)/float64(o.pools)) / 100
	return nil
}

func per(n, pools int) float64 { return math.Round(100*float64(n)/float64(pools)) / 100 }

func seconds(d time.Duration) float64 { return math.Round(d.Seconds()*1000) / 1000 }
