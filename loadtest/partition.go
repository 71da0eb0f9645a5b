package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/routing"
)

type partitionOptions struct {
	clusterOptions
	every                time.Duration
	before, split, after time.Duration
}

type partitionResult struct {
	clusterHead
	Noticed float64 `json:"noticed_seconds"`              // until each side had given up the other
	Seconds float64 `json:"split_seconds"`                // from then on
	Before  float64 `json:"reads_before_per_pool_second"` // of the lock, or tries to take it; of the pool with the most
	Reads   float64 `json:"reads_per_pool_second"`        // in the split
	Healed  float64 `json:"healed_seconds"`               // until every node sees every other again
	Moves   int     `json:"moves"`                        // how often a lock was taken, from the split until long after
	report.Outcome
}

func newPartition() *cobra.Command {
	var o partitionOptions
	c := scenario("partition", "Split the gossip while every node reaches every database, and heal it", &o, partition)
	o.clusterOptions.flags(c.Flags(), 3, 3)
	c.Flags().Lookup("nodes").Usage = "node processes; fewer than half of them are on the smaller side"
	c.Flags().DurationVar(&o.every, "every", 50*time.Millisecond, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.before, "before", 5*time.Second, "how long to measure before the split")
	c.Flags().DurationVar(&o.split, "split", 15*time.Second, "how long the split lasts once both sides have noticed")
	c.Flags().DurationVar(&o.after, "after", 15*time.Second, "how long to watch the locks after it has healed; after about ten seconds nodes may release what exceeds their share")
	return apart(c)
}

func (r partitionResult) Fault() error {
	var moved error
	if r.Moves > 0 {
		moved = fmt.Errorf("a split of the gossip moved %d locks", r.Moves)
	}
	return errors.Join(r.Outcome.Fault(), moved)
}

func partition(ctx context.Context, o partitionOptions) (r partitionResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.every <= 0 || o.before <= 0 || o.split <= 0 {
		return r, errors.New("at least two nodes are needed, and pools, every, before and split must be more than 0")
	}
	net, err := fleet.NewNetwork()
	if err != nil {
		return r, err
	}
	if net == nil {
		return r, errors.New("splitting the gossip takes network namespaces: run as root on Linux, with ip and nsenter installed")
	}
	w, err := newWatchedLocks(ctx, o.clusterOptions)
	if err != nil {
		return r, err
	}
	defer w.close()
	w.fleet.Silent, w.fleet.Network = true, net
	looks, unlook, err := w.countLooks()
	if err != nil {
		return r, err
	}
	defer unlook()
	if err := w.fleet.Start(ctx); err != nil {
		return r, err
	}
	// Without gossip: over a client that is in no side's network both would hear of one another.
	c, err := tenure.NewClient(w.bed.Config, tenure.WithLogger(bed.Log(os.Stderr, zap.WarnLevel)))
	if err != nil {
		return r, err
	}
	if err := c.Start(ctx); err != nil {
		return r, err
	}
	w.client = c
	if err := w.begin(ctx, w.fleet.Nodes, o.every, soakTook); err != nil {
		return r, err
	}
	r = partitionResult{clusterHead: o.head("partition")}
	r.Outcome, _, err = w.load.Finish(ctx, r.splitAndHeal(ctx, w, looks, o))
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
	counts, pools := looks{}, maps.Clone(w.bed.Config.Pools)
	for name, pool := range pools {
		p, err := faultproxy.Listen(fleet.NetworkHome+":0", pool.DSN)
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
	for _, n := range w.fleet.Nodes {
		n.Cfg.Pools = pools
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
	if err := wait.For(ctx, window); err != nil {
		return 0, err
	}
	for pool, n := range l.now() {
		most = max(most, float64(n-before[pool])/time.Since(began).Seconds())
	}
	return report.Round(most, 2), nil
}

func (r *partitionResult) splitAndHeal(ctx context.Context, w *watched, looks looks, o partitionOptions) (err error) {
	for pool, n := range looks.now() {
		if n == 0 { // none can have been taken without one
			return fmt.Errorf("no reads of the lock of %s were recognised", pool)
		}
	}
	if r.Before, err = looks.measure(ctx, o.before); err != nil {
		return err
	}
	r.Moves, err = w.taken(ctx, func(ctx context.Context) error { return r.split(ctx, w, looks, o) }, pause(o.after))
	return err
}

func (r *partitionResult) split(ctx context.Context, w *watched, looks looks, o partitionOptions) (err error) {
	most := o.nodes/2 + 1
	var ways []fleet.Way
	for i := range most {
		for k := most; k < o.nodes; k++ {
			ways = append(ways, fleet.Way{From: i, To: k}, fleet.Way{From: k, To: i})
		}
	}
	began := time.Now()
	mend := w.fleet.CutGossip(ways)
	for _, side := range [][]*fleet.Node{w.fleet.Nodes[:most], w.fleet.Nodes[most:]} {
		if err := fleet.UntilJoined(ctx, side); err != nil {
			return err
		}
	}
	r.Noticed = report.Seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "split after %v s\n", r.Noticed)
	began = time.Now()
	if r.Reads, err = looks.measure(ctx, o.split); err != nil {
		return err
	}
	r.Seconds = report.Seconds(time.Since(began))
	began = time.Now()
	mend()
	err = w.fleet.UntilJoined(ctx)
	r.Healed = report.Seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "healed after %v s\n", r.Healed)
	return err
}
