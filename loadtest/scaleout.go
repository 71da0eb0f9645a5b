package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

type scaleoutOptions struct {
	nodes, workers int
	took, window   time.Duration
}

type scaleoutResult struct {
	Scenario string  `json:"scenario"`
	Workers  int     `json:"workers_per_node"`
	TookMs   float64 `json:"handler_ms"`
	Nodes    int     `json:"nodes"`
	Ratio    float64 `json:"ratio"`
	// PerSecond is by number of nodes, Possible what their workers could do.
	PerSecond map[int]float64 `json:"jobs_per_second"`
	Possible  map[int]float64 `json:"jobs_per_second_possible"`
	Enqueued  int             `json:"enqueued"`
	Finished  int64           `json:"finished"`
	Waiting   int64           `json:"waiting"`
	Lost      int64           `json:"lost"`
}

func newScaleout() *cobra.Command {
	var o scaleoutOptions
	c := scenario("scaleout", "Work off one busy pool with one node, then with several, each with few workers", &o, scaleout)
	c.Flags().IntVar(&o.nodes, "nodes", 4, "node processes in the second part")
	c.Flags().IntVar(&o.workers, "workers", 8, "concurrent handlers on each node; few, so that they, not the processor, are the limit")
	c.Flags().DurationVar(&o.took, "took", 10*time.Millisecond, "how long each job takes")
	c.Flags().DurationVar(&o.window, "window", 10*time.Second, "length of each measurement")
	return c
}

func (r scaleoutResult) Fault() error { return report.Lost(r.Lost, 0) }

// scaleout measures the parts on a pool each, so that neither meets what the other left.
func scaleout(ctx context.Context, o scaleoutOptions) (r scaleoutResult, err error) {
	if o.nodes < 1 || o.workers < 1 || o.took <= 0 || o.window <= 0 {
		return r, errors.New("nodes, workers, took and window must be more than 0")
	}
	const tenantsPerPart = 4
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, 2, 2*tenantsPerPart)
	if err != nil {
		return r, err
	}
	defer b.Close()
	b.Config.Execution.Workers = o.workers
	r = scaleoutResult{Scenario: "scaleout", Workers: o.workers, TookMs: 1000 * o.took.Seconds(), Nodes: o.nodes,
		PerSecond: map[int]float64{}, Possible: map[int]float64{}}
	for part, nodes := range []int{1, o.nodes} {
		possible := float64(nodes*o.workers) / o.took.Seconds()
		p := scaling{bed: b, pool: b.Pools[part], nodes: nodes, took: o.took, window: o.window,
			jobs: int(possible * (o.window + 2*warmUp).Seconds())}
		rate, err := p.measure(ctx)
		if err != nil {
			return r, err
		}
		fmt.Fprintf(os.Stderr, "%d nodes: %.0f jobs/s of %.0f possible\n", nodes, rate, possible)
		r.PerSecond[nodes], r.Possible[nodes] = report.Round(rate, 0), possible
		r.Ratio = report.Round(rate/r.PerSecond[1], 2)
		r.Enqueued += p.jobs
		r.Finished += p.left.Finished
		r.Waiting += p.left.Waiting
	}
	r.Lost = int64(r.Enqueued) - r.Finished - r.Waiting
	return r, nil
}

// warmUp is for the first claims, before the measuring begins.
const warmUp = 2 * time.Second

// scaling is one part: a backlog in one pool, and nodes.
type scaling struct {
	bed         *bed.Bed
	pool        string
	nodes, jobs int
	took        time.Duration
	window      time.Duration

	left operate.Counts // once the nodes have stopped
}

// measure returns how many jobs are finished in a second while more of them wait.
func (s *scaling) measure(ctx context.Context) (rate float64, err error) {
	cfg, tenants := s.alone()
	f, err := fleet.New(cfg, s.nodes, "lan", "")
	if err != nil {
		return 0, err
	}
	defer f.Close()
	f.Silent = true
	if err := f.Start(ctx); err != nil {
		return 0, err
	}
	if err := s.bed.Enqueue(ctx, tenants, s.jobs, func(int) job.Args { return fleet.PlainWork{Took: s.took} }); err != nil {
		return 0, err
	}
	client, err := f.NewClient(ctx, cfg)
	if err != nil {
		return 0, err
	}
	defer client.Stop(context.WithoutCancel(ctx))
	count := func(into *operate.Counts) step {
		return func(ctx context.Context) error {
			counts, err := client.Operator().Pools().Count(ctx)
			if err == nil {
				*into = counts[0]
			}
			return err
		}
	}
	var before, after operate.Counts
	if err := inTurn(ctx, pause(warmUp), count(&before)); err != nil {
		return 0, err
	}
	began := time.Now()
	err = inTurn(ctx, pause(s.window), count(&after))
	rate = float64(after.Finished-before.Finished) / time.Since(began).Seconds()
	if err == nil && after.Waiting == 0 {
		err = fmt.Errorf("%d jobs were too few for %d nodes: none were waiting at the end", s.jobs, s.nodes)
	}
	for _, n := range f.Nodes {
		if err == nil {
			err = n.Stop(ctx)
		}
	}
	if err == nil {
		err = count(&s.left)(ctx)
	}
	if err == nil && s.left.Claimed != 0 {
		err = fmt.Errorf("%d jobs are still claimed although every node has stopped cleanly", s.left.Claimed)
	}
	return rate, err
}

// alone is the bed's configuration without the other pools.
func (s *scaling) alone() (config.Config, []tenancy.ID) {
	cfg := s.bed.Config
	cfg.Pools = map[string]routing.PoolConfig{s.pool: cfg.Pools[s.pool]}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{}
	var tenants []tenancy.ID
	for _, id := range s.bed.Tenants {
		if t := s.bed.Config.Tenants.Static[id]; t.Pool == s.pool {
			cfg.Tenants.Static[id] = t
			tenants = append(tenants, id)
		}
	}
	return cfg, tenants
}
