package chaos

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
)

type Options struct {
	Minutes               float64
	Seed                  uint64
	Nodes, Servers, Pools int
	Every                 time.Duration
	Lasts                 time.Duration
	Scale                 float64
	Only                  []string
	Alone                 bool
	Keep                  string
	Plan                  bool
}

type Result struct {
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
	After map[string]*aftermath `json:"after,omitempty"` // with --alone, by kind of fault
}

func (r Result) Fault() error {
	if r.broken() {
		return errors.New("a promise was broken")
	}
	return nil
}

func Run(ctx context.Context, o Options) (r Result, err error) {
	if o.Nodes < 2 || o.Servers < 1 || o.Pools < o.Servers || o.Minutes <= 0 || o.Every <= 0 || o.Lasts < 0 || o.Scale < 0.1 || o.Scale > 1 {
		return r, errors.New("at least two nodes, a server and a pool for each server are needed, times above 0, and --scale from 0.1 to 1")
	}
	for _, kind := range o.Only {
		if !slices.Contains(Kinds(), kind) {
			return r, fmt.Errorf("--only %q: there is no such kind of fault; choose from %s", kind, strings.Join(Kinds(), ", "))
		}
	}
	w, err := fleet.NewNetwork()
	if err != nil {
		return r, err
	}
	faults := Plan(o, w != nil)
	if o.Plan {
		for _, f := range faults {
			fmt.Fprintf(os.Stderr, "%8.2f s  %v\n", f.At.Seconds(), f)
		}
		return Result{Scenario: "chaos", Seed: o.Seed, Minutes: o.Minutes, GossipCuts: w != nil, Faults: len(faults)}, nil
	}
	c, err := Start(ctx, o, w)
	if err != nil {
		return r, err
	}
	defer c.Close()
	c.StartLoad()
	err = c.InjectAll(ctx, faults)
	c.Load.Stop()
	if err != nil {
		return r, err
	}
	c.Say("all faults are over; waiting for the last jobs")
	unfinished := c.Bed.UntilDone(ctx)
	unclean := 0
	for _, n := range c.Fleet.Nodes {
		if err := n.Stop(ctx); err != nil {
			c.Say("%v", err)
			unclean++
		}
	}
	r = Result{
		Scenario: "chaos", Seed: o.Seed, Minutes: o.Minutes, Nodes: o.Nodes, Servers: o.Servers, Pools: o.Pools,
		SessionTTL: c.Bed.Config.Acquire.Session.TTL.Seconds(), GossipCuts: w != nil, Faults: len(faults), FailedStarts: c.failedStarts.Load(),
		Unknown: c.Load.Unknown, verdict: verdict{Unclean: unclean},
	}
	if unfinished != nil {
		c.Say("%v", unfinished)
	}
	err = check(ctx, c, faults, o.Alone, &r)
	return r, err
}

// newJob is the n-th job of a pool: mostly short ones that write, some that only
// run, few that take long.
func newJob(n int, long time.Duration) job.Args {
	took := 2 * time.Duration(n*37%100) * time.Millisecond
	switch {
	case n%200 == 50:
		return fleet.PlainWork{Took: long}
	case n%200 == 150:
		return fleet.TxWork{Took: long / 2}
	case n%4 == 0:
		return fleet.PlainWork{Took: took}
	}
	return fleet.TxWork{Took: took}
}
