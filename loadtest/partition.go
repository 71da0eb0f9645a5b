package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/routing"
)

type partitionOptions struct {
	nodes, pools         int
	every                time.Duration
	before, split, after time.Duration
	disk                 bool
	profile              string
	keep                 string
}

type partitionResult struct {
	Scenario string  `json:"scenario"`
	Nodes    int     `json:"nodes"`
	Pools    int     `json:"pools"`
	Profile  string  `json:"profile"`
	Disk     bool    `json:"disk"`
	Noticed  float64 `json:"noticed_seconds"`              // until each side had given up the other
	Seconds  float64 `json:"split_seconds"`                // from then on
	Before   float64 `json:"reads_before_per_pool_second"` // of the lock, or tries to take it; of the pool with the most
	Reads    float64 `json:"reads_per_pool_second"`        // in the split
	Healed   float64 `json:"healed_seconds"`               // until every node sees every other again
	Moves    int     `json:"moves"`                        // how often a lock was taken, from the split until long after
	Enqueued int     `json:"enqueued"`
	Finished int     `json:"finished"`
	Lost     int     `json:"lost"`
	Doubled  int     `json:"doubled"`
}

func newPartition() *cobra.Command {
	var o partitionOptions
	c := &cobra.Command{
		Use: "partition", Short: "Split the gossip while every node reaches every database, and heal it",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes; less than half of them are on the lesser side")
	c.Flags().IntVar(&o.pools, "pools", 3, "databases; each has a lock of its own")
	c.Flags().DurationVar(&o.every, "every", 50*time.Millisecond, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.before, "before", 5*time.Second, "how long it is measured before the split")
	c.Flags().DurationVar(&o.split, "split", 15*time.Second, "how long it stays split, once both sides have noticed")
	c.Flags().DurationVar(&o.after, "after", 15*time.Second, "how long locks are watched after it has healed; some ten seconds on, nodes may let go of what is beyond their share")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return apart(scenario(c, func(ctx context.Context, _ []string) (partitionResult, error) { return partition(ctx, o) }))
}

func (r partitionResult) fault() error {
	var moved error
	if r.Moves > 0 {
		moved = fmt.Errorf("a split of the gossip moved %d locks", r.Moves)
	}
	return errors.Join(lost(int64(r.Lost), r.Doubled), moved)
}

func partition(ctx context.Context, o partitionOptions) (r partitionResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.every <= 0 || o.before <= 0 || o.split <= 0 {
		return r, errors.New("two nodes are needed at least, and pools, every, before and split must be more than 0")
	}
	net, err := newNetwork()
	if err != nil {
		return r, err
	}
	if net == nil {
		return r, errors.New("gossip is split between network namespaces, which needs root on Linux, and ip and nsenter")
	}
	w, err := newWatched(ctx, o.disk, o.pools, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer w.close()
	w.fleet.silent, w.fleet.network = true, net
	looks, unlook, err := w.countLooks()
	if err != nil {
		return r, err
	}
	defer unlook()
	if err := w.fleet.start(ctx); err != nil {
		return r, err
	}
	// Without gossip: over a client that is in no side's network both would hear of one another.
	c, err := tenure.NewClient(w.bed.cfg, tenure.WithLogger(stderrLog()))
	if err != nil {
		return r, err
	}
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	w.client = c
	if err := w.begin(ctx, w.fleet.nodes, o.every, soakTook); err != nil {
		return r, err
	}
	r = partitionResult{Scenario: "partition", Nodes: o.nodes, Pools: o.pools, Profile: o.profile, Disk: o.disk}
	p, err := w.end(ctx, r.splitAndHeal(ctx, w, looks, o))
	r.Enqueued, r.Finished, r.Lost, r.Doubled = w.load.enqueued(), p.finished, p.lost, p.doubled
	return r, err
}

// looks counts, by pool, statements with which nodes read a lock or try to take it.
type looks map[string]*atomic.Int64

// countLooks leads every node to its databases through proxies that count.
func (w *watched) countLooks() (counts looks, end func(), err error) {
	var proxies []*faultproxy.Proxy
	end = func() {
		for _, p := range proxies {
			_ = p.Close() // its listener is of no more use to anybody
		}
	}
	counts, pools := looks{}, maps.Clone(w.bed.cfg.Pools)
	for name, pool := range pools {
		p, err := faultproxy.Listen(networkHome+":0", pool.DSN)
		if err != nil {
			end()
			return nil, nil, err
		}
		proxies, counts[name] = append(proxies, p), &atomic.Int64{}
		p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
			if isLook(e.SQL) {
				counts[name].Add(1)
			}
			return faultproxy.Pass
		})
		pools[name] = routing.PoolConfig{DSN: p.DSN(), MaxConns: pool.MaxConns, Insecure: true} // in a network namespace of its own
	}
	for _, n := range w.fleet.nodes {
		n.cfg.Pools = pools
	}
	return counts, end, nil
}

// isLook tells whether a statement is the one that reads a lock or the one that tries to
// take it. Renewals and claims, which are the holder's, name the table in other ways.
func isLook(sql string) bool { return strings.Contains(sql, "FROM tenure.acquire_lock l\n") }

func (l looks) now() map[string]int64 {
	out := map[string]int64{}
	for pool, n := range l {
		out[pool] = n.Load()
	}
	return out
}

// measure is how many looks there are in a second, of the pool with the most.
func (l looks) measure(ctx context.Context, window time.Duration) (most float64, err error) {
	before, began := l.now(), time.Now()
	if err := wait(ctx, window); err != nil {
		return 0, err
	}
	for pool, n := range l.now() {
		most = max(most, float64(n-before[pool])/time.Since(began).Seconds())
	}
	return math.Round(100*most) / 100, nil
}

func (r *partitionResult) splitAndHeal(ctx context.Context, w *watched, looks looks, o partitionOptions) (err error) {
	for pool, n := range looks.now() {
		if n == 0 { // none can have been taken without one
			return fmt.Errorf("looks at the lock of %s were not recognised", pool)
		}
	}
	if r.Before, err = looks.measure(ctx, o.before); err != nil {
		return err
	}
	before, err := w.taken(ctx)
	if err != nil {
		return err
	}
	most := o.nodes/2 + 1
	var ways []way
	for i := range most {
		for k := most; k < o.nodes; k++ {
			ways = append(ways, way{i, k}, way{k, i})
		}
	}
	began := time.Now()
	mend := w.fleet.cut(ways)
	for _, side := range [][]*node{w.fleet.nodes[:most], w.fleet.nodes[most:]} {
		if err := untilJoined(ctx, side); err != nil {
			return err
		}
	}
	r.Noticed = seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "split after %v s\n", r.Noticed)
	began = time.Now()
	if r.Reads, err = looks.measure(ctx, o.split); err != nil {
		return err
	}
	r.Seconds = seconds(time.Since(began))
	began = time.Now()
	mend()
	if err := untilJoined(ctx, w.fleet.nodes); err != nil {
		return err
	}
	r.Healed = seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "healed after %v s\n", r.Healed)
	if err := wait(ctx, o.after); err != nil {
		return err
	}
	after, err := w.taken(ctx)
	r.Moves = after - before
	return err
}
