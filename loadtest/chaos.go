package main

import (
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenurehq/tenure/loadtest/internal/chaos"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
)

func newChaos() *cobra.Command {
	o := chaos.Options{Nodes: 4, Servers: 2, Pools: 4, Every: 800 * time.Millisecond}
	c := scenario("chaos", "Break nodes, databases and the network by a fault schedule, then check every promise", &o, chaos.Run)
	c.Long = "Runs node processes and several Postgres servers behind fault proxies, and breaks them by a schedule that\n" +
		"follows from the seed. Then all is mended, every job must come to its end, and a checker goes through\n" +
		"effects, ledgers, and what handlers and databases wrote down. As root on Linux the gossip is cut as well,\n" +
		"in network namespaces of their own. The exit code is 1 if a promise was broken."
	faultFlags(c.Flags(), &o)
	c.Flags().DurationVar(&o.Lasts, "for", 0, "how long each fault lasts (0: drawn from the range of its kind)")
	c.Flags().Float64Var(&o.Scale, "scale", 0.2, "scales the TTLs of locks and sessions, and the faults with them (1: the defaults)")
	c.Flags().StringSliceVar(&o.Only, "only", nil, "only faults of these kinds: "+strings.Join(chaos.Kinds(), ", "))
	c.Flags().BoolVar(&o.Alone, "alone", false, "one fault at a time, --every after the end of the one before; reports how long each kept jobs from running")
	c.Flags().BoolVar(&o.Plan, "plan", false, "print the schedule and stop")
	return apart(c)
}

// faultFlags are the flags that scenarios with a fault schedule share, with o as their defaults.
func faultFlags(f *pflag.FlagSet, o *chaos.Options) {
	f.Float64Var(&o.Minutes, "minutes", 0.4, "how long faults are injected")
	f.Uint64Var(&o.Seed, "seed", 1, "seed of the fault schedule")
	f.IntVar(&o.Nodes, "nodes", o.Nodes, "node processes")
	f.IntVar(&o.Servers, "servers", o.Servers, "Postgres servers")
	f.IntVar(&o.Pools, "pools", o.Pools, "databases, spread over the servers")
	f.DurationVar(&o.Every, "every", o.Every, "average time between the starts of two faults")
	f.StringVar(&o.Keep, "keep", "", "keep the nodes' logs and journals in this folder")
}

// apart makes a command run in a network of its own, where that can be had.
func apart(c *cobra.Command) *cobra.Command {
	here := c.RunE
	c.RunE = func(c *cobra.Command, args []string) error {
		if ran, err := fleet.RunInNetwork(); ran || err != nil {
			return err
		}
		return here(c, args)
	}
	return c
}
