package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type failoverOptions struct {
	clusterOptions
	kills, stops int
}

type failoverResult struct {
	clusterHead
	Kills          int     `json:"kills"`
	Takeovers      int     `json:"takeovers"` // locks that killed nodes held
	TakeoverP50    float64 `json:"takeover_p50_seconds"`
	TakeoverP99    float64 `json:"takeover_p99_seconds"`
	Orphans        int     `json:"orphans"` // jobs that killed nodes had claimed and not finished
	RerunP50       float64 `json:"rerun_p50_seconds"`
	RerunP99       float64 `json:"rerun_p99_seconds"`
	Stops          int     `json:"stops"`
	Handovers      int     `json:"handovers"` // locks that nodes released because they were stopped or another node was elected
	GracefulGapP50 float64 `json:"graceful_gap_p50_ms"`
	GracefulGapP99 float64 `json:"graceful_gap_p99_ms"`
	EnqueueP50     float64 `json:"enqueue_p50_ms"` // what a commit takes on these servers, to compare with
	EnqueueP99     float64 `json:"enqueue_p99_ms"`
	Dead           int     `json:"dead"`
	report.Outcome
}

func newFailover() *cobra.Command {
	var o failoverOptions
	c := scenario("failover", "Kill and stop lock holders under load, and time how long no jobs are acquired", &o, failover)
	o.clusterOptions.flags(c.Flags(), 3, 3)
	c.Flags().IntVar(&o.kills, "kills", 1, "how often to kill (SIGKILL) the node with the most locks; each kill takes about 25 s")
	c.Flags().IntVar(&o.stops, "stops", 5, "how often to stop (SIGTERM) the node with the most locks")
	return c
}

// loadEvery is how often a job is enqueued in each pool, and loadTook how long it
// takes: a holder then always has some jobs claimed, and claims every 20 ms. Two cores
// have a third to spare then: what is timed is the cluster, not a queue for processors.
const (
	loadEvery = 20 * time.Millisecond
	loadTook  = 50 * time.Millisecond
)

func failover(ctx context.Context, o failoverOptions) (r failoverResult, err error) {
	if o.nodes < 2 || o.pools < 1 {
		return r, errors.New("at least two nodes and one pool are needed")
	}
	w, err := newWatched(ctx, o.clusterOptions, devpg.Options{}, nil)
	if err != nil {
		return r, err
	}
	defer w.close()
	if err := w.start(ctx); err != nil {
		return r, err
	}
	w.startLoad(loadEvery, func(int) job.Args { return fleet.TxWork{Took: loadTook} })
	h := &hunt{watched: w}
	for i := range o.kills {
		if err == nil {
			fmt.Fprintf(os.Stderr, "kill %d of %d\n", i+1, o.kills)
			err = h.kill(ctx)
		}
	}
	for range o.stops {
		if err == nil {
			err = h.stop(ctx)
		}
	}
	out, dead, err := w.load.Finish(ctx, err)
	if err != nil {
		return r, err
	}
	gaps, err := h.gaps(ctx)
	if err != nil {
		return r, err
	}
	reruns, err := h.reruns()
	if err != nil {
		return r, err
	}
	return failoverResult{
		clusterHead: o.head("failover"),
		Kills:       o.kills, Takeovers: len(h.takeovers), TakeoverP50: report.Quantile(h.takeovers, 0.5), TakeoverP99: report.Quantile(h.takeovers, 0.99),
		Orphans: len(reruns), RerunP50: report.Quantile(reruns, 0.5), RerunP99: report.Quantile(reruns, 0.99),
		Stops: o.stops, Handovers: len(gaps), GracefulGapP50: report.Milliseconds(gaps, 0.5), GracefulGapP99: report.Milliseconds(gaps, 0.99),
		EnqueueP50: report.Milliseconds(w.load.Took, 0.5), EnqueueP99: report.Milliseconds(w.load.Took, 0.99),
		Dead: dead, Outcome: out,
	}, nil
}

// hunt ends nodes and takes the times.
type hunt struct {
	*watched
	takeovers []time.Duration // from a kill until a claim of the next holder
	orphans   []orphan
}

// orphan is a job that a killed node had claimed.
type orphan struct {
	id     job.ID
	member string // the killed one
	killed time.Time
}

// find waits until every lock is held by a node that runs, and returns the node with the
// most and their epochs by pool, once it has claimed jobs under each of them.
func (h *hunt) find(ctx context.Context) (most *fleet.Node, epochs map[string]int64, err error) {
	err = wait.Until(ctx, time.Minute, "not every lock was held", func() (bool, error) {
		held, all := h.holders(ctx)
		epochs = nil
		for _, n := range h.fleet.Nodes { // in order, so that ties do not depend on chance
			if len(held[n]) > len(epochs) {
				most, epochs = n, held[n]
			}
		}
		return all, nil
	})
	for pool, epoch := range epochs {
		if err == nil {
			_, err = h.firstClaim(ctx, pool, epoch-1)
		}
	}
	return most, epochs, err
}

// kill ends the node with the most locks, waits until others acquire from its pools
// and until the jobs that it had claimed are finished, and has it back meanwhile.
func (h *hunt) kill(ctx context.Context) error {
	node, epochs, err := h.find(ctx)
	if err != nil {
		return err
	}
	victim, at := node.Running(), time.Now()
	victim.Kill()
	orphans := map[string][]job.ID{}
	for _, pool := range h.bed.Pools {
		if orphans[pool], err = h.claimed(ctx, pool, victim.Member); err != nil {
			return err
		}
		for _, id := range orphans[pool] {
			h.orphans = append(h.orphans, orphan{id, victim.Member, at})
		}
	}
	for pool, epoch := range epochs {
		first, err := h.firstClaim(ctx, pool, epoch)
		if err != nil {
			return err
		}
		h.takeovers = append(h.takeovers, first.Sub(at))
	}
	if err := node.Start(ctx); err != nil {
		return err
	}
	for pool, ids := range orphans {
		if err := h.untilGone(ctx, pool, ids); err != nil {
			return err
		}
	}
	return h.fleet.UntilJoined(ctx)
}

// stop ends the node with the most locks in order and has it back.
func (h *hunt) stop(ctx context.Context) error {
	node, epochs, err := h.find(ctx)
	if err == nil {
		err = node.Stop(ctx)
	}
	for pool, epoch := range epochs {
		if err == nil {
			_, err = h.firstClaim(ctx, pool, epoch)
		}
	}
	if err != nil {
		return err
	}
	return inTurn(ctx, node.Start, h.fleet.UntilJoined)
}

// gaps is how long it took each time that a lock was released while there were jobs, from
// the last claim of its holder to the first of the next.
func (h *hunt) gaps(ctx context.Context) (all []time.Duration, err error) {
	for _, pool := range h.bed.Pools {
		var gaps []float64
		err := h.ask(ctx, pool, `SELECT coalesce(array_agg(extract(epoch FROM next.at - last.at)::float8), '{}') FROM audit.event o,
			LATERAL (SELECT max(c.at) AS at FROM audit.event c WHERE c.what = 'claimed' AND c.epoch = o.epoch) last,
			LATERAL (SELECT min(c.at) AS at FROM audit.event c WHERE c.what = 'claimed' AND c.epoch > o.epoch) next
			WHERE o.what = 'offered' AND last.at IS NOT NULL AND next.at IS NOT NULL`, nil, &gaps)
		if err != nil {
			return nil, err
		}
		for _, seconds := range gaps {
			all = append(all, time.Duration(seconds*float64(time.Second)))
		}
	}
	return all, nil
}

// claimed lists the jobs of a pool that a member has claimed.
func (h *hunt) claimed(ctx context.Context, pool, member string) (ids []job.ID, err error) {
	err = h.ask(ctx, pool, `SELECT coalesce(array_agg(j.id), '{}') FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
		JOIN tenure.job j ON j.id = ANY (c.job_ids) AND j.turn = c.turn WHERE s.member = $1`, []any{member}, &ids)
	return ids, err
}

// firstClaim waits for the first claim of a later epoch, and says when it was made.
func (h *hunt) firstClaim(ctx context.Context, pool string, after int64) (at time.Time, err error) {
	err = wait.Until(ctx, time.Minute, "nobody acquired from "+pool, func() (bool, error) {
		var first *time.Time
		err := h.ask(ctx, pool, "SELECT min(at) FROM audit.event WHERE what = 'claimed' AND epoch > $1", []any{after}, &first)
		if first != nil {
			at = *first
		}
		return first != nil, err
	})
	return at, err
}

// untilGone waits until none of the jobs waits or runs any more.
func (h *hunt) untilGone(ctx context.Context, pool string, ids []job.ID) error {
	return wait.Until(ctx, 3*time.Minute, "the jobs of a killed node were not finished", func() (bool, error) {
		var left int
		err := h.ask(ctx, pool, "SELECT count(*) FROM tenure.job WHERE id = ANY ($1)", []any{ids}, &left)
		return left == 0, err
	})
}

func (h *hunt) ask(ctx context.Context, pool, sql string, args []any, answer any) error {
	return h.conns[pool].QueryRow(ctx, sql, args...).Scan(answer)
}

// reruns is how long after the kill each orphan started on another node, by the
// journals of the handlers.
func (h *hunt) reruns() (all []time.Duration, err error) {
	lines, err := report.ReadJournals(h.fleet.Dir)
	if err != nil {
		return nil, err
	}
	for _, o := range h.orphans {
		var first time.Time
		for _, l := range lines {
			if l.Job == o.id && l.What == "start" && l.Member != o.member && l.At.After(o.killed) && (first.IsZero() || l.At.Before(first)) {
				first = l.At
			}
		}
		if !first.IsZero() { // else its commit was already on its way when the node was killed
			all = append(all, first.Sub(o.killed))
		}
	}
	return all, nil
}
