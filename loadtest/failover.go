package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type failoverOptions struct {
	nodes, pools, kills, stops int
	profile, keep              string
	disk                       bool
}

type failoverResult struct {
	Scenario       string  `json:"scenario"`
	Nodes          int     `json:"nodes"`
	Pools          int     `json:"pools"`
	Profile        string  `json:"profile"`
	Disk           bool    `json:"disk"` // else the databases are in memory
	Kills          int     `json:"kills"`
	Takeovers      int     `json:"takeovers"` // locks that killed nodes held
	TakeoverP50    float64 `json:"takeover_p50_seconds"`
	TakeoverP99    float64 `json:"takeover_p99_seconds"`
	Orphans        int     `json:"orphans"` // jobs that killed nodes had claimed and not finished
	RerunP50       float64 `json:"rerun_p50_seconds"`
	RerunP99       float64 `json:"rerun_p99_seconds"`
	Stops          int     `json:"stops"`
	Handovers      int     `json:"handovers"` // locks that nodes let go of, because they were stopped or others elected
	GracefulGapP50 float64 `json:"graceful_gap_p50_ms"`
	GracefulGapP99 float64 `json:"graceful_gap_p99_ms"`
	EnqueueP50     float64 `json:"enqueue_p50_ms"` // what a commit takes on these servers, to compare with
	EnqueueP99     float64 `json:"enqueue_p99_ms"`
	Enqueued       int     `json:"enqueued"`
	Finished       int     `json:"finished"`
	Dead           int     `json:"dead"`
	Lost           int     `json:"lost"`
	Doubled        int     `json:"doubled"`
}

func newFailover() *cobra.Command {
	var o failoverOptions
	c := &cobra.Command{
		Use: "failover", Short: "Kill and stop holders of locks under load, and time how long nobody acquires",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes")
	c.Flags().IntVar(&o.pools, "pools", 3, "databases; each has a lock of its own")
	c.Flags().IntVar(&o.kills, "kills", 1, "how often to kill (SIGKILL) the node with the most locks; each takes some 25 s")
	c.Flags().IntVar(&o.stops, "stops", 5, "how often to stop (SIGTERM) the node with the most locks")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk: its pauses are then part of the gaps")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (failoverResult, error) { return failover(ctx, o) })
}

func (r failoverResult) fault() error { return lost(int64(r.Lost), r.Doubled) }

// loadEvery is how often a job is enqueued in each pool, and loadTook how long it
// takes: a holder then always has some jobs claimed, and claims every 20 ms. Two cores
// have a third to spare then: what is timed is the cluster, not a queue for processors.
const (
	loadEvery = 20 * time.Millisecond
	loadTook  = 50 * time.Millisecond
)

func failover(ctx context.Context, o failoverOptions) (r failoverResult, err error) {
	if o.nodes < 2 || o.pools < 1 {
		return r, errors.New("two nodes and a pool are needed at least")
	}
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, o.pools, 3*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
	for _, pool := range b.pools {
		if err := b.exec(ctx, pool, auditSQL); err != nil {
			return r, err
		}
	}
	f, err := newFleet(b.cfg, o.nodes, o.profile, o.keep)
	if err != nil {
		return r, err
	}
	defer f.close()
	if err := f.start(ctx); err != nil {
		return r, err
	}
	client, err := f.client(ctx, b.cfg)
	if err != nil {
		return r, err
	}
	defer client.Stop(context.WithoutCancel(ctx))

	l := b.load(client, loadEvery, func(int) job.Args { return txWork{Took: loadTook} })
	l.start()
	h := &hunt{bed: b, fleet: f, client: client, conns: map[string]*pgx.Conn{}}
	for _, pool := range b.pools {
		if h.conns[pool], err = b.connect(ctx, pool); err != nil {
			return r, err
		}
		defer h.conns[pool].Close(context.WithoutCancel(ctx))
	}
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
	l.stop()
	if err == nil {
		err = h.measureGaps(ctx)
	}
	if err == nil {
		err = l.untilDone(ctx)
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	p, err := l.prove(ctx)
	if err != nil {
		return r, err
	}
	reruns, err := h.reruns()
	if err != nil {
		return r, err
	}
	return failoverResult{
		Scenario: "failover", Nodes: o.nodes, Pools: o.pools, Profile: o.profile, Disk: o.disk,
		Kills: o.kills, Takeovers: len(h.takeovers), TakeoverP50: quantile(h.takeovers, 0.5), TakeoverP99: quantile(h.takeovers, 0.99),
		Orphans: len(reruns), RerunP50: quantile(reruns, 0.5), RerunP99: quantile(reruns, 0.99),
		Stops: o.stops, Handovers: len(h.gaps), GracefulGapP50: milliseconds(h.gaps, 0.5), GracefulGapP99: milliseconds(h.gaps, 0.99),
		EnqueueP50: milliseconds(l.took, 0.5), EnqueueP99: milliseconds(l.took, 0.99),
		Enqueued: l.enqueued(), Finished: p.finished, Dead: p.dead, Lost: p.lost, Doubled: p.doubled,
	}, nil
}

// hunt ends nodes and takes the times.
type hunt struct {
	bed    *bed
	fleet  *fleet
	client *tenure.Client
	conns  map[string]*pgx.Conn // by pool

	takeovers []time.Duration // from a kill until a claim of the next holder
	gaps      []time.Duration // between the last claim of a holder that let go and the first of the next
	orphans   []orphan
}

// orphan is a job that a killed node had claimed.
type orphan struct {
	id     job.ID
	member string // the killed one
	killed time.Time
}

// quarry is a node and the epochs of the locks that it holds.
type quarry struct {
	node   *node
	proc   *process
	epochs map[string]int64 // by pool
}

// find waits until every lock is held by a node that runs, and returns the node with
// the most, once it has claimed jobs under each of them.
func (h *hunt) find(ctx context.Context) (most quarry, err error) {
	err = until(ctx, time.Minute, "not every lock was held", func() (bool, error) {
		all := map[*node]quarry{}
		for _, l := range h.client.LockStatuses(ctx) {
			n := h.fleet.of(l.Holder)
			if l.Err != nil || n == nil || n.running().member != l.Holder {
				return false, nil
			}
			if all[n].node == nil {
				all[n] = quarry{n, n.running(), map[string]int64{}}
			}
			all[n].epochs[l.Pool] = l.Epoch
		}
		most = quarry{}
		for _, n := range h.fleet.nodes { // in order, so that ties do not depend on chance
			if q := all[n]; len(q.epochs) > len(most.epochs) {
				most = q
			}
		}
		return true, nil
	})
	for pool, epoch := range most.epochs {
		if err == nil {
			_, err = h.firstClaim(ctx, pool, epoch-1)
		}
	}
	return most, err
}

// kill ends the node with the most locks, waits until others acquire from its pools
// and until the jobs that it had claimed are finished, and has it back meanwhile.
func (h *hunt) kill(ctx context.Context) error {
	q, err := h.find(ctx)
	if err != nil {
		return err
	}
	at := time.Now()
	q.proc.kill()
	orphans := map[string][]int64{}
	for _, pool := range h.bed.pools {
		ids, err := h.claimed(ctx, pool, q.proc.member)
		if err != nil {
			return err
		}
		orphans[pool] = ids
		for _, id := range ids {
			h.orphans = append(h.orphans, orphan{job.ID(id), q.proc.member, at})
		}
	}
	for pool, epoch := range q.epochs {
		first, err := h.firstClaim(ctx, pool, epoch)
		if err != nil {
			return err
		}
		h.takeovers = append(h.takeovers, first.Sub(at))
	}
	if err := q.node.start(ctx); err != nil {
		return err
	}
	for pool, ids := range orphans {
		if err := h.untilGone(ctx, pool, ids); err != nil {
			return err
		}
	}
	return untilJoined(ctx, h.fleet.nodes)
}

// stop ends the node with the most locks in order and has it back.
func (h *hunt) stop(ctx context.Context) error {
	q, err := h.find(ctx)
	if err != nil {
		return err
	}
	if err := q.node.stop(ctx); err != nil {
		return err
	}
	for pool, epoch := range q.epochs {
		if _, err := h.firstClaim(ctx, pool, epoch); err != nil {
			return err
		}
	}
	if err := q.node.start(ctx); err != nil {
		return err
	}
	return untilJoined(ctx, h.fleet.nodes)
}

// measureGaps looks at every time that a lock was let go of while there were jobs.
func (h *hunt) measureGaps(ctx context.Context) error {
	for _, pool := range h.bed.pools {
		var gaps []float64
		err := h.ask(ctx, pool, `SELECT coalesce(array_agg(extract(epoch FROM next.at - last.at)::float8), '{}') FROM audit.event o,
			LATERAL (SELECT max(c.at) AS at FROM audit.event c WHERE c.what = 'claimed' AND c.epoch = o.epoch) last,
			LATERAL (SELECT min(c.at) AS at FROM audit.event c WHERE c.what = 'claimed' AND c.epoch > o.epoch) next
			WHERE o.what = 'offered' AND last.at IS NOT NULL AND next.at IS NOT NULL`, nil, &gaps)
		if err != nil {
			return err
		}
		for _, seconds := range gaps {
			h.gaps = append(h.gaps, time.Duration(seconds*float64(time.Second)))
		}
	}
	return nil
}

// claimed lists the jobs of a pool that a member has claimed.
func (h *hunt) claimed(ctx context.Context, pool, member string) (ids []int64, err error) {
	err = h.ask(ctx, pool, `SELECT coalesce(array_agg(j.id), '{}') FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
		JOIN tenure.job j ON j.id = ANY (c.job_ids) AND j.turn = c.turn WHERE s.member = $1`, []any{member}, &ids)
	return ids, err
}

// firstClaim waits for the first claim of a later epoch, and says when it was made.
func (h *hunt) firstClaim(ctx context.Context, pool string, after int64) (at time.Time, err error) {
	err = until(ctx, time.Minute, "nobody acquired from "+pool, func() (bool, error) {
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
func (h *hunt) untilGone(ctx context.Context, pool string, ids []int64) error {
	return until(ctx, 3*time.Minute, "the jobs of a killed node were not finished", func() (bool, error) {
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
	lines, err := readJournals(h.fleet.dir)
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

func milliseconds(all []time.Duration, p float64) float64 { return math.Round(1000 * quantile(all, p)) }
