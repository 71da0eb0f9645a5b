package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type resizeOptions struct {
	clusterOptions
	every time.Duration
}

type resizeResult struct {
	clusterHead
	Up        float64 `json:"up_seconds"`   // from the new nodes' start until every lock is held and no node holds more than its share
	Down      float64 `json:"down_seconds"` // from the signal to all but one until that one holds every lock
	MostHeld  int     `json:"most_held"`    // by one of the nodes
	Limit     int     `json:"limit"`        // its share
	MovesUp   int     `json:"moves_up"`     // how often a lock was taken
	HeldDown  int     `json:"held_down"`    // locks of the nodes that were stopped
	MovesDown int     `json:"moves_down"`
	Moves     int     `json:"moves"`
	report.Outcome
}

func newResize() *cobra.Command {
	var o resizeOptions
	c := scenario("resize", "Grow a cluster from one node and shrink it again, and time how long the locks take to follow", &o, resize)
	o.clusterOptions.flags(c.Flags(), 5, 20)
	c.Flags().Lookup("nodes").Usage = "most node processes; the cluster begins and ends with one"
	c.Flags().DurationVar(&o.every, "every", 500*time.Millisecond, "how often a job is enqueued in each pool")
	return c
}

func resize(ctx context.Context, o resizeOptions) (r resizeResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.every <= 0 {
		return r, errors.New("at least two nodes are needed, and pools and every must be more than 0")
	}
	w, err := newWatchedLocks(ctx, o.clusterOptions)
	if err != nil {
		return r, err
	}
	defer w.close()
	w.fleet.Silent = true
	first, others := w.fleet.Nodes[:1], w.fleet.Nodes[1:]
	if err := fleet.StartTogether(ctx, first); err != nil {
		return r, err
	}
	if err := w.begin(ctx, first, o.every, soakTook); err != nil {
		return r, err
	}
	r = resizeResult{clusterHead: o.head("resize"), Limit: w.share(o.nodes)}
	err = wait.For(ctx, warmUp)
	if err == nil {
		r.MovesUp, err = w.taken(ctx, func(ctx context.Context) error { return r.grow(ctx, w, others) }, pause(warmUp))
	}
	if err == nil {
		r.MovesDown, err = w.taken(ctx, func(ctx context.Context) error { return r.shrink(ctx, w, others) }, pause(warmUp))
	}
	r.Moves = r.MovesUp + r.MovesDown
	r.Outcome, _, err = w.load.Finish(ctx, err)
	return r, err
}

// grow starts the others.
func (r *resizeResult) grow(ctx context.Context, w *watched, others []*fleet.Node) (err error) {
	began := time.Now()
	if err := fleet.StartTogether(ctx, others); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d more nodes are running after %v s\n", len(others), report.Seconds(time.Since(began)))
	r.MostHeld, err = w.untilSpread(ctx, w.fleet.Nodes, r.Limit)
	r.Up = report.Seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "the locks are spread after %v s\n", r.Up)
	return err
}

// shrink stops them.
func (r *resizeResult) shrink(ctx context.Context, w *watched, others []*fleet.Node) error {
	held, _ := w.holders(ctx)
	for _, n := range others {
		r.HeldDown += len(held[n])
	}
	began := time.Now()
	if err := fleet.Together(others, func(n *fleet.Node) error { return n.Stop(ctx) }); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "they are stopped after %v s\n", report.Seconds(time.Since(began)))
	err := w.untilHeld(w.fleet.Nodes[:1])(ctx)
	r.Down = report.Seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "one node holds every lock after %v s\n", r.Down)
	return err
}
