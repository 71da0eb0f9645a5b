package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"
)

type resizeOptions struct {
	nodes, pools int
	every        time.Duration
	disk         bool
	profile      string
	keep         string
}

type resizeResult struct {
	Scenario  string  `json:"scenario"`
	Nodes     int     `json:"nodes"` // at most
	Pools     int     `json:"pools"`
	Profile   string  `json:"profile"`
	Disk      bool    `json:"disk"`
	Up        float64 `json:"up_seconds"`   // from the new nodes' start until every lock is held and no node holds more than its share
	Down      float64 `json:"down_seconds"` // from the signal to all but one until that one holds every lock
	MostHeld  int     `json:"most_held"`    // by one of the nodes
	Limit     int     `json:"limit"`        // its share
	MovesUp   int     `json:"moves_up"`     // how often a lock was taken
	HeldDown  int     `json:"held_down"`    // locks of the nodes that were stopped
	MovesDown int     `json:"moves_down"`
	Moves     int     `json:"moves"`
	Enqueued  int     `json:"enqueued"`
	Finished  int     `json:"finished"`
	Lost      int     `json:"lost"`
	Doubled   int     `json:"doubled"`
}

func newResize() *cobra.Command {
	var o resizeOptions
	c := &cobra.Command{
		Use: "resize", Short: "Add nodes to one, take them away again, and time how long locks take to follow",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 5, "node processes at most; it begins and ends with one")
	c.Flags().IntVar(&o.pools, "pools", 20, "databases; each has a lock of its own")
	c.Flags().DurationVar(&o.every, "every", 500*time.Millisecond, "how often a job is enqueued in each pool")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (resizeResult, error) { return resize(ctx, o) })
}

func (r resizeResult) fault() error { return lost(int64(r.Lost), r.Doubled) }

func resize(ctx context.Context, o resizeOptions) (r resizeResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.every <= 0 {
		return r, errors.New("two nodes are needed at least, and pools and every must be more than 0")
	}
	w, err := newWatched(ctx, o.disk, o.pools, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer w.close()
	w.fleet.silent = true
	first, others := w.fleet.nodes[:1], w.fleet.nodes[1:]
	if err := startTogether(ctx, first); err != nil {
		return r, err
	}
	if err := w.begin(ctx, first, o.every, soakTook); err != nil {
		return r, err
	}
	r = resizeResult{Scenario: "resize", Nodes: o.nodes, Pools: o.pools, Profile: o.profile, Disk: o.disk, Limit: w.share(o.nodes)}
	p, err := w.end(ctx, r.change(ctx, w, others))
	r.Moves = r.MovesUp + r.MovesDown
	r.Enqueued, r.Finished, r.Lost, r.Doubled = w.load.enqueued(), p.finished, p.lost, p.doubled
	return r, err
}

// change starts the others, and stops them.
func (r *resizeResult) change(ctx context.Context, w *watched, others []*node) error {
	if err := wait(ctx, warmUp); err != nil {
		return err
	}
	alone, err := w.taken(ctx)
	if err != nil {
		return err
	}
	began := time.Now()
	if err := startTogether(ctx, others); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "%d nodes more run after %v s\n", len(others), seconds(time.Since(began)))
	if r.MostHeld, err = w.untilSpread(ctx, w.fleet.nodes, r.Limit); err != nil {
		return err
	}
	r.Up = seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "the locks are spread after %v s\n", r.Up)
	if err := wait(ctx, warmUp); err != nil {
		return err
	}
	spread, err := w.taken(ctx)
	if err != nil {
		return err
	}
	held, _ := w.holders(ctx)
	for _, n := range others {
		r.HeldDown += held[n]
	}
	began = time.Now()
	if err := together(others, func(n *node) error { return n.stop(ctx) }); err != nil {
		return err
	}
	fmt.Fprintf(os.Stderr, "they have stopped after %v s\n", seconds(time.Since(began)))
	if _, err := w.untilSpread(ctx, w.fleet.nodes[:1], len(w.bed.pools)); err != nil {
		return err
	}
	r.Down = seconds(time.Since(began))
	fmt.Fprintf(os.Stderr, "one node holds every lock after %v s\n", r.Down)
	if err := wait(ctx, warmUp); err != nil {
		return err
	}
	gathered, err := w.taken(ctx)
	r.MovesUp, r.MovesDown = spread-alone, gathered-spread
	return err
}
