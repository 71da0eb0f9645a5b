package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/job"
)

type rollingOptions struct {
	nodes, pools int
	rate         float64
	took         time.Duration
	steady       time.Duration
	pause        time.Duration
	rounds       int
	disk         bool
	profile      string
	keep         string
}

type rollingResult struct {
	Scenario  string  `json:"scenario"`
	Nodes     int     `json:"nodes"`
	Pools     int     `json:"pools"`
	Profile   string  `json:"profile"`
	Disk      bool    `json:"disk"`
	PerSecond float64 `json:"jobs_per_second"` // enqueued
	Restarts  int     `json:"restarts"`
	Held      int     `json:"held"`                 // locks of the nodes that were stopped, all together
	Moves     int     `json:"moves"`                // how often a lock was taken meanwhile
	Most      int     `json:"moves_most_over_held"` // of one restart: beyond what the stopped node held
	Seconds   float64 `json:"rolling_seconds"`
	Steady    float64 `json:"steady_p99_ms"` // from the call of Enqueue to the handler's start
	Rolling   float64 `json:"rolling_p99_ms"`
	Ratio     float64 `json:"ratio"`
	Worst     float64 `json:"rolling_worst_ms"`
	Enqueued  int     `json:"enqueued"`
	Finished  int     `json:"finished"`
	Lost      int     `json:"lost"`
	Doubled   int     `json:"doubled"`
}

func newRolling() *cobra.Command {
	var o rollingOptions
	c := &cobra.Command{
		Use: "rolling", Short: "Restart one node after the other under load, and see what moves and who waits",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 5, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 5, "databases; each has a lock of its own")
	c.Flags().Float64Var(&o.rate, "rate", 500, "jobs that are enqueued in a second, in all pools together")
	c.Flags().DurationVar(&o.took, "took", 5*time.Millisecond, "how long each job takes")
	c.Flags().DurationVar(&o.steady, "steady", 12*time.Second, "how long it is measured before the first restart")
	c.Flags().DurationVar(&o.pause, "pause", time.Second, "between two restarts, once the node is back and every lock is held")
	c.Flags().IntVar(&o.rounds, "rounds", 1, "how often every node is restarted")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (rollingResult, error) { return rolling(ctx, o) })
}

func (r rollingResult) fault() error {
	var tooMany error
	if r.Most > 1 {
		tooMany = fmt.Errorf("one restart moved %d locks more than the node held", r.Most)
	}
	return errors.Join(lost(int64(r.Lost), r.Doubled), tooMany)
}

// rollingWarmUp is until every node has the connections that it needs: they cost two
// processors more than the load.
const rollingWarmUp = 3 * warmUp

func rolling(ctx context.Context, o rollingOptions) (r rollingResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.rate <= 0 || o.steady <= 0 || o.rounds < 1 {
		return r, errors.New("two nodes are needed at least, and pools, rate, steady and rounds must be more than 0")
	}
	w, err := newWatched(ctx, o.disk, o.pools, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer w.close()
	if err := startTogether(ctx, w.fleet.nodes); err != nil {
		return r, err
	}
	if err := untilJoined(ctx, w.fleet.nodes); err != nil {
		return r, err
	}
	every := time.Duration(float64(o.pools) / o.rate * float64(time.Second))
	if err := w.begin(ctx, w.fleet.nodes, every, o.took); err != nil {
		return r, err
	}
	r = rollingResult{Scenario: "rolling", Nodes: o.nodes, Pools: o.pools, Profile: o.profile, Disk: o.disk, Restarts: o.rounds * o.nodes}
	err = wait(ctx, rollingWarmUp)
	steady := time.Now()
	if err == nil {
		err = wait(ctx, o.steady)
	}
	rolled := time.Now()
	for i := range r.Restarts {
		if err == nil {
			err = r.restart(ctx, w, w.fleet.nodes[i%o.nodes], o.pause)
		}
	}
	back := time.Now()
	p, err := w.end(ctx, err)
	if err != nil {
		return r, err
	}
	before, during, err := w.startedAfter(steady, rolled, back)
	if err != nil {
		return r, err
	}
	if r.Steady, err = tellDelays(before, "steady"); err != nil {
		return r, err
	}
	if r.Rolling, err = tellDelays(during, "rolling"); err != nil {
		return r, err
	}
	r.Ratio, r.Worst, r.Seconds = math.Round(100*r.Rolling/r.Steady)/100, milliseconds(during, 1), seconds(back.Sub(rolled))
	r.PerSecond = math.Round(float64(len(before)+len(during)) / back.Sub(steady).Seconds())
	r.Enqueued, r.Finished, r.Lost, r.Doubled = w.load.enqueued(), p.finished, p.lost, p.doubled
	return r, nil
}

// restart stops a node in order and has it back. What moves is counted until all is well
// again and the pause is over.
func (r *rollingResult) restart(ctx context.Context, w *watched, n *node, pause time.Duration) error {
	if _, err := w.untilSpread(ctx, w.fleet.nodes, len(w.bed.pools)); err != nil {
		return err
	}
	locks, _ := w.holders(ctx)
	before, err := w.taken(ctx)
	if err != nil {
		return err
	}
	if err := n.stop(ctx); err != nil {
		return err
	}
	if err := n.start(ctx); err != nil {
		return err
	}
	if err := untilJoined(ctx, w.fleet.nodes); err != nil {
		return err
	}
	if _, err := w.untilSpread(ctx, w.fleet.nodes, len(w.bed.pools)); err != nil {
		return err
	}
	if err := wait(ctx, pause); err != nil {
		return err
	}
	after, err := w.taken(ctx)
	if err != nil {
		return err
	}
	held, moves := locks[n], after-before
	fmt.Fprintf(os.Stderr, "%s: held %d locks, %d were taken\n", n.name, held, moves)
	if r.Held == 0 && r.Moves == 0 {
		r.Most = moves - held
	}
	r.Held, r.Moves, r.Most = r.Held+held, r.Moves+moves, max(r.Most, moves-held)
	return nil
}

// startedAfter is how long jobs took from the call of Enqueue to the first start of their
// handler: of those enqueued from a time on until another, and from then on until a third.
func (w *watched) startedAfter(from, until, end time.Time) (before, during []time.Duration, err error) {
	lines, err := readJournals(w.fleet.dir)
	if err != nil {
		return nil, nil, err
	}
	started := map[job.ID]time.Time{}
	for _, l := range lines {
		if first, ok := started[l.Job]; l.What == "start" && (!ok || l.At.Before(first)) {
			started[l.Job] = l.At
		}
	}
	for id, asked := range w.load.asked {
		switch at := started[id]; {
		case at.IsZero() || asked.Before(from) || !asked.Before(end): // a job that never started is lost, or its journal is
		case asked.Before(until):
			before = append(before, at.Sub(asked))
		default:
			during = append(during, at.Sub(asked))
		}
	}
	return before, during, nil
}
