package main

import (
	"context"
	"time"

	"github.com/spf13/pflag"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
)

// clusterOptions are the flags that scenarios with node processes share.
type clusterOptions struct {
	nodes, pools  int
	disk          bool
	profile, keep string
}

func (o *clusterOptions) flags(f *pflag.FlagSet, nodes, pools int) {
	f.IntVar(&o.nodes, "nodes", nodes, "node processes")
	f.IntVar(&o.pools, "pools", pools, "databases; each has a lock of its own")
	f.BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	f.StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	f.StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
}

// clusterHead is what the result of such a scenario begins with.
type clusterHead struct {
	Scenario string `json:"scenario"`
	Nodes    int    `json:"nodes"`
	Pools    int    `json:"pools"`
	Profile  string `json:"profile"`
	Disk     bool   `json:"disk"` // else the databases are in memory
}

func (o clusterOptions) head(scenario string) clusterHead {
	return clusterHead{Scenario: scenario, Nodes: o.nodes, Pools: o.pools, Profile: o.profile, Disk: o.disk}
}

// cluster is node processes over pools of a bed, and the load that a client puts on them.
type cluster struct {
	bed    *bed.Bed
	fleet  *fleet.Fleet
	client *tenure.Client // nil: it is not connected yet
	load   *bed.Load      // nil: nothing has been enqueued yet
}

// newCluster makes pools with three tenants each, and nodes, none of which is started.
// prepare may change the configuration and the databases before the nodes are made.
func newCluster(ctx context.Context, o clusterOptions, pg devpg.Options, prepare func(*bed.Bed) error) (*cluster, error) {
	pg.Durable, pg.InMemory = true, !o.disk
	b, err := bed.Start(ctx, pg, o.pools, 3*o.pools)
	if err != nil {
		return nil, err
	}
	c := &cluster{bed: b}
	if prepare != nil {
		err = prepare(b)
	}
	if err == nil {
		c.fleet, err = fleet.New(b.Config, o.nodes, o.profile, o.keep)
	}
	if err != nil {
		c.close()
		return nil, err
	}
	return c, nil
}

// start starts every node, and connects the client.
func (c *cluster) start(ctx context.Context) error {
	return inTurn(ctx, c.fleet.Start, c.connect)
}

func (c *cluster) connect(ctx context.Context) (err error) {
	if c.client == nil {
		c.client, err = c.fleet.NewClient(ctx, c.bed.Config)
	}
	return err
}

// startLoad begins to enqueue a job in each pool every so often.
func (c *cluster) startLoad(every time.Duration, args func(n int) job.Args) {
	c.load = bed.StartLoad(c.bed, c.client, every, args)
}

func (c *cluster) close() {
	fleet.StopClient(c.client)
	if c.fleet != nil {
		c.fleet.Close()
	}
	c.bed.Close()
}
