package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type killersOptions struct {
	nodes, pools, killers int
	steady, every, took   time.Duration
	profile, keep         string
	disk                  bool
}

// killersResult: a job counts in the second in which it finished, so what a death delays is
// missing there and comes on top later. Over the whole window the ratio is what was lost for
// good; how bad it was in between, the worst second, the share of bad ones and the latency tell.
type killersResult struct {
	Scenario   string     `json:"scenario"`
	Nodes      int        `json:"nodes"`
	Pools      int        `json:"pools"`
	Killers    int        `json:"killers"`
	Deaths     int        `json:"deaths"`             // of node processes; 3 per killer at most
	Buried     float64    `json:"buried_seconds"`     // from enqueuing the killers until the last was a dead letter
	Steady     float64    `json:"steady_per_second"`  // other jobs, before there were killers
	During     float64    `json:"during_per_second"`  // other jobs, in the time of buried_seconds
	Ratio      float64    `json:"ratio"`              // of the two
	Offered    [2]float64 `json:"offered_per_second"` // other jobs that were enqueued, before and during: a machine that is busy enqueues less
	OwnPool    float64    `json:"ratio_own_pool"`     // the same of the jobs beside the killers
	Elsewhere  float64    `json:"ratio_elsewhere"`    // of those in all other pools
	Worst      [2]int     `json:"worst_per_second"`   // jobs in the worst second, before and during
	Bad        float64    `json:"bad_seconds"`        // share of the seconds in which less than 0.8 of steady finished
	LatencyP50 [2]float64 `json:"latency_p50_ms"`     // from enqueuing to the end, of what was enqueued before and during
	LatencyP99 [2]float64 `json:"latency_p99_ms"`     //
	LatencyMax [2]float64 `json:"latency_longest_ms"` //
	Enqueued   int        `json:"enqueued"`           // killers apart, as all that follows
	Finished   int        `json:"finished"`
	Dead       int        `json:"innocent_dead"`
	Lost       int        `json:"lost"`
	Doubled    int        `json:"doubled"`
}

func newKillers() *cobra.Command {
	var o killersOptions
	c := &cobra.Command{
		Use: "killers", Short: "Enqueue jobs that kill their node's process, and see what that costs all other jobs",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.nodes, "nodes", 3, "node processes; one that dies is started again at once")
	c.Flags().IntVar(&o.pools, "pools", 3, "databases; each has a lock of its own")
	c.Flags().IntVar(&o.killers, "killers", 2, "jobs that kill, all of one tenant: by os.Exit, by a panic in a goroutine of their own, by SIGKILL, and so on")
	c.Flags().DurationVar(&o.steady, "steady", 10*time.Second, "how long to measure without them")
	c.Flags().DurationVar(&o.every, "every", loadEvery, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.took, "took", loadTook, "how long each takes")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the databases on disk")
	c.Flags().StringVar(&o.profile, "profile", "lan", "timing of the gossip: local, lan or wan")
	c.Flags().StringVar(&o.keep, "keep", "", "keep the nodes' logs and journals in this folder")
	return scenario(c, func(ctx context.Context, _ []string) (killersResult, error) { return killers(ctx, o) })
}

// mostLosses is how often a node is lost to one job before it is buried.
const mostLosses = 3

func (r killersResult) fault() error {
	err := lost(int64(r.Lost+r.Dead), r.Doubled)
	if r.Deaths > mostLosses*r.Killers {
		err = errors.Join(err, fmt.Errorf("%d killers ended %d processes", r.Killers, r.Deaths))
	}
	return err
}

func killers(ctx context.Context, o killersOptions) (r killersResult, err error) {
	if o.nodes < 1 || o.pools < 1 || o.killers < 1 || o.steady < time.Second || o.every <= 0 {
		return r, errors.New("nodes, pools, killers and every must be more than 0, and steady a second at least")
	}
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, o.pools, 3*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
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
	s := f.supervise(ctx)
	defer s.stop()

	l := b.load(client, o.every, func(n int) job.Args {
		if n%2 == 0 {
			return plainWork{Took: o.took}
		}
		return txWork{Took: o.took}
	})
	l.start()
	err = wait(ctx, warmUp)
	began := time.Now()
	if err == nil {
		err = wait(ctx, o.steady)
	}
	calm := time.Now()
	if err == nil {
		err = wait(ctx, time.Second) // so that what was enqueued before has finished before
	}
	enqueued := time.Now()
	if err == nil {
		err = bury(ctx, b, client, o.killers)
	}
	buried := time.Now()
	l.stop()
	if err == nil {
		err = l.untilDone(ctx)
	}
	if err == nil {
		err = s.err()
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	r = killersResult{Scenario: "killers", Nodes: o.nodes, Pools: o.pools, Killers: o.killers, Deaths: int(s.deaths.Load()), Buried: tenths(buried.Sub(enqueued).Seconds())}
	if err := r.compare(ctx, b, [2]window{{began, calm}, {enqueued, buried}}); err != nil {
		return r, err
	}
	p, err := l.prove(ctx)
	r.Enqueued, r.Finished, r.Dead, r.Lost, r.Doubled = l.enqueued(), p.finished, p.dead, p.lost, p.doubled
	return r, err
}

// bury has the first tenant enqueue killers, and waits until all are dead letters.
func bury(ctx context.Context, b *bed, client *tenure.Client, killers int) error {
	entries := make([]tenure.Entry, killers)
	for i := range entries {
		entries[i] = tenure.Entry{Tenant: b.tenants[0], Args: killerWork{By: waysToKill[i%len(waysToKill)]}}
	}
	if _, err := client.EnqueueMany(ctx, entries); err != nil {
		return err
	}
	conn, err := b.connect(ctx, b.pools[0])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	last := 0
	return until(ctx, 5*time.Minute, "the killers were not buried", func() (bool, error) {
		var n, sum int
		err := conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE dead AND losses = $2), coalesce(sum(losses), 0) FROM (
			SELECT kind, losses, true AS dead FROM tenure.dead_letter_job UNION ALL SELECT kind, losses, false FROM tenure.job) AS j
			WHERE kind = $1`, killerWork{}.Kind(), mostLosses).Scan(&n, &sum)
		if sum != last {
			last = sum
			fmt.Fprintf(os.Stderr, "%d runs of killers are in the ledger as lost, %d killers are buried\n", sum, n)
		}
		return n == killers, errors.Join(err, wait(ctx, 20*time.Millisecond))
	})
}

// window is a time in which something is counted.
type window struct{ from, to time.Time }

func (w window) has(at time.Time) bool { return !at.Before(w.from) && at.Before(w.to) }

func (w window) seconds() float64 { return w.to.Sub(w.from).Seconds() }

// compare looks at when all other jobs finished: the databases run on this machine's clock.
func (r *killersResult) compare(ctx context.Context, b *bed, windows [2]window) error {
	var seconds [2][]int
	var own, elsewhere, all, offered [2]float64 // jobs per second
	var took [2][]time.Duration
	for i, w := range windows {
		seconds[i] = make([]int, int(w.seconds()))
	}
	for _, pool := range b.pools {
		jobs, err := b.finished(ctx, pool)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			for i, w := range windows {
				if w.has(j.created) {
					took[i] = append(took[i], j.finished.Sub(j.created))
					offered[i] += 1 / w.seconds()
				}
				if !w.has(j.finished) {
					continue
				}
				if second := int(j.finished.Sub(w.from).Seconds()); second < len(seconds[i]) { // the last is not a whole one
					seconds[i][second]++
				}
				all[i] += 1 / w.seconds()
				if pool == b.pools[0] {
					own[i] += 1 / w.seconds()
				} else {
					elsewhere[i] += 1 / w.seconds()
				}
			}
		}
	}
	r.Steady, r.During = tenths(all[0]), tenths(all[1])
	r.Ratio, r.OwnPool, r.Elsewhere = share(all[1], all[0]), share(own[1], own[0]), share(elsewhere[1], elsewhere[0])
	for i := range windows {
		r.Worst[i] = math.MaxInt
		for _, n := range seconds[i] {
			r.Worst[i] = min(r.Worst[i], n)
		}
		r.Offered[i] = tenths(offered[i])
		r.LatencyP50[i], r.LatencyP99[i], r.LatencyMax[i] = milliseconds(took[i], 0.5), milliseconds(took[i], 0.99), milliseconds(took[i], 1)
	}
	bad := 0.0
	for _, n := range seconds[1] {
		if float64(n) < 0.8*all[0] {
			bad++
		}
	}
	r.Bad = share(bad, float64(len(seconds[1])))
	return nil
}

// finishedJob is when a job came and when it was done.
type finishedJob struct{ created, finished time.Time }

// finished reads those of a pool.
func (b *bed) finished(ctx context.Context, pool string) (all []finishedJob, err error) {
	conn, err := b.connect(ctx, pool)
	if err != nil {
		return nil, err
	}
	defer conn.Close(ctx)
	rows, err := conn.Query(ctx, "SELECT created_at, finished_at FROM tenure.completed_job")
	if err != nil {
		return nil, err
	}
	defer rows.Close()
	for rows.Next() {
		var j finishedJob
		if err := rows.Scan(&j.created, &j.finished); err != nil {
			return nil, err
		}
		all = append(all, j)
	}
	return all, rows.Err()
}

// supervisor starts every node again that ends.
type supervisor struct {
	fleet  *fleet
	ctx    context.Context
	cancel context.CancelFunc
	group  sync.WaitGroup
	deaths atomic.Int64
	failed atomic.Pointer[error] // why a node could not be started again
}

func (f *fleet) supervise(ctx context.Context) *supervisor {
	s := &supervisor{fleet: f}
	s.ctx, s.cancel = context.WithCancel(ctx)
	for _, n := range f.nodes {
		s.group.Go(func() { s.run(n) })
	}
	return s
}

func (s *supervisor) run(n *node) {
	for {
		p := n.running()
		select {
		case <-s.ctx.Done():
			return
		case <-p.exited:
		}
		s.deaths.Add(1)
		fmt.Fprintf(os.Stderr, "%s has ended: %v\n", p.member, p.err)
		if err := n.start(s.ctx); err != nil && s.ctx.Err() == nil && n.running() == p { // else it has died on the way
			s.failed.Store(&err)
			return
		}
	}
}

// stop leaves the nodes as they are.
func (s *supervisor) stop() {
	s.cancel()
	s.group.Wait()
}

func (s *supervisor) err() error {
	if err := s.failed.Load(); err != nil {
		return *err
	}
	return nil
}

func tenths(x float64) float64 { return math.Round(10*x) / 10 }

// share is part of whole, to three digits; 0 of nothing.
func share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return math.Round(1000*part/whole) / 1000
}
