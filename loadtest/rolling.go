package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type rollingOptions struct {
	clusterOptions
	rounds              int
	rate                float64
	took, steady, pause time.Duration
}

type rollingResult struct {
	clusterHead
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
	report.Outcome
}

func newRolling() *cobra.Command {
	var o rollingOptions
	c := scenario("rolling", "Restart one node after another under load, and measure which locks move and how long jobs wait", &o, rolling)
	o.clusterOptions.flags(c.Flags(), 5, 5)
	c.Flags().Float64Var(&o.rate, "rate", 500, "jobs enqueued per second, over all pools")
	c.Flags().DurationVar(&o.took, "took", 5*time.Millisecond, "how long each job takes")
	c.Flags().DurationVar(&o.steady, "steady", 12*time.Second, "how long to measure before the first restart")
	c.Flags().DurationVar(&o.pause, "pause", time.Second, "pause between two restarts, once the node is back and every lock is held")
	c.Flags().IntVar(&o.rounds, "rounds", 1, "how often every node is restarted")
	return c
}

func (r rollingResult) Fault() error {
	var tooMany error
	if r.Most > 1 {
		tooMany = fmt.Errorf("one restart moved %d more locks than the node held", r.Most)
	}
	return errors.Join(r.Outcome.Fault(), tooMany)
}

// rollingWarmUp is until every node has the connections that it needs: they cost two
// processors more than the load.
const rollingWarmUp = 3 * warmUp

func rolling(ctx context.Context, o rollingOptions) (r rollingResult, err error) {
	if o.nodes < 2 || o.pools < 1 || o.rate <= 0 || o.steady <= 0 || o.rounds < 1 {
		return r, errors.New("at least two nodes are needed, and pools, rate, steady and rounds must be more than 0")
	}
	w, err := newWatchedLocks(ctx, o.clusterOptions)
	if err != nil {
		return r, err
	}
	defer w.close()
	if err := w.fleet.Start(ctx); err != nil {
		return r, err
	}
	every := time.Duration(float64(o.pools) / o.rate * float64(time.Second))
	if err := w.begin(ctx, w.fleet.Nodes, every, o.took); err != nil {
		return r, err
	}
	r = rollingResult{clusterHead: o.head("rolling"), Restarts: o.rounds * o.nodes}
	steady := time.Now().Add(rollingWarmUp)
	err = wait.For(ctx, rollingWarmUp+o.steady)
	rolled := time.Now()
	for i := range r.Restarts {
		if err == nil {
			err = r.restart(ctx, w, w.fleet.Nodes[i%o.nodes], o.pause)
		}
	}
	back := time.Now()
	if r.Outcome, _, err = w.load.Finish(ctx, err); err != nil {
		return r, err
	}
	before, during, err := w.startedAfter(steady, rolled, back)
	if err != nil {
		return r, err
	}
	if r.Steady, err = report.PrintDelays(before, "steady"); err != nil {
		return r, err
	}
	if r.Rolling, err = report.PrintDelays(during, "rolling"); err != nil {
		return r, err
	}
	r.Ratio, r.Worst, r.Seconds = report.Round(r.Rolling/r.Steady, 2), report.Milliseconds(during, 1), report.Seconds(back.Sub(rolled))
	r.PerSecond = report.Round(float64(len(before)+len(during))/back.Sub(steady).Seconds(), 0)
	return r, nil
}

// restart stops a node in order and has it back. What moves is counted until all is well
// again and the pause is over.
func (r *rollingResult) restart(ctx context.Context, w *watched, n *fleet.Node, rest time.Duration) error {
	untilHeld := w.untilHeld(w.fleet.Nodes)
	if err := untilHeld(ctx); err != nil {
		return err
	}
	locks, _ := w.holders(ctx)
	moves, err := w.taken(ctx, n.Stop, n.Start, w.fleet.UntilJoined, untilHeld, pause(rest))
	if err != nil {
		return err
	}
	held := len(locks[n])
	fmt.Fprintf(os.Stderr, "%s: held %d locks, %d were taken\n", n.Name, held, moves)
	if r.Held == 0 && r.Moves == 0 {
		r.Most = moves - held
	}
	r.Held, r.Moves, r.Most = r.Held+held, r.Moves+moves, max(r.Most, moves-held)
	return nil
}

// startedAfter is how long jobs took from the call of Enqueue to the first start of their
// handler: of those enqueued from a time on until another, and from then on until a third.
func (w *watched) startedAfter(from, until, end time.Time) (before, during []time.Duration, err error) {
	started, err := firstStarts(w.fleet.Dir)
	if err != nil {
		return nil, nil, err
	}
	for id, asked := range w.load.Asked {
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

// firstStarts is when each job's handler started first, by the journals of a folder.
func firstStarts(dir string) (map[job.ID]time.Time, error) {
	lines, err := report.ReadJournals(dir)
	started := map[job.ID]time.Time{}
	for _, l := range lines {
		if first, ok := started[l.Job]; l.What == "start" && (!ok || l.At.Before(first)) {
			started[l.Job] = l.At
		}
	}
	return started, err
}
