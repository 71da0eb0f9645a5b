package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type crashersOptions struct {
	clusterOptions
	crashers            int
	steady, every, took time.Duration
}

// crashersResult: a job counts in the second in which it finished, so what a death delays is
// missing there and comes on top later. Over the whole window the ratio is what was lost for
// good; how bad it was in between, the worst second, the share of bad ones and the latency tell.
type crashersResult struct {
	clusterHead
	Crashers       int        `json:"crashers"`
	Deaths         int        `json:"deaths"`              // of node processes; 3 per crasher at most
	DeadLettered   float64    `json:"dead_letter_seconds"` // from enqueuing the crashers until the last was a dead letter
	Steady         float64    `json:"steady_per_second"`   // other jobs, before there were crashers
	During         float64    `json:"during_per_second"`   // other jobs, in the time of dead_letter_seconds
	Ratio          float64    `json:"ratio"`               // of the two
	Offered        [2]float64 `json:"offered_per_second"`  // other jobs that were enqueued, before and during: a machine that is busy enqueues less
	OwnPool        float64    `json:"ratio_own_pool"`      // the same of the jobs beside the crashers
	Elsewhere      float64    `json:"ratio_elsewhere"`     // of those in all other pools
	Worst          [2]int     `json:"worst_per_second"`    // jobs in the worst second, before and during
	Bad            float64    `json:"bad_seconds"`         // share of the seconds in which less than 0.8 of steady finished
	LatencyP50     [2]float64 `json:"latency_p50_ms"`      // from enqueuing to the end, of what was enqueued before and during
	LatencyP99     [2]float64 `json:"latency_p99_ms"`      //
	LatencyMax     [2]float64 `json:"latency_longest_ms"`  //
	Dead           int        `json:"innocent_dead"`
	report.Outcome            // crashers apart
}

func newCrashers() *cobra.Command {
	var o crashersOptions
	c := scenario("crashers", "Enqueue jobs that kill their node's process, and measure what that costs all other jobs", &o, crashers)
	o.clusterOptions.flags(c.Flags(), 3, 3)
	c.Flags().Lookup("nodes").Usage = "node processes; one that dies is restarted at once"
	c.Flags().IntVar(&o.crashers, "crashers", 2, "jobs that kill their process, all of one tenant: in turn by os.Exit, by a panic in their own goroutine, and by SIGKILL")
	c.Flags().DurationVar(&o.steady, "steady", 10*time.Second, "how long to measure before they are enqueued")
	c.Flags().DurationVar(&o.every, "every", loadEvery, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.took, "took", loadTook, "how long each job takes")
	return c
}

// mostLosses is how often a job may lose its node before it is dead-lettered.
const mostLosses = 3

func (r crashersResult) Fault() error {
	err := report.Lost(int64(r.Lost+r.Dead), r.Doubled)
	if r.Deaths > mostLosses*r.Crashers {
		err = errors.Join(err, fmt.Errorf("%d crashers ended %d processes", r.Crashers, r.Deaths))
	}
	return err
}

func crashers(ctx context.Context, o crashersOptions) (r crashersResult, err error) {
	if o.nodes < 1 || o.pools < 1 || o.crashers < 1 || o.steady < time.Second || o.every <= 0 {
		return r, errors.New("nodes, pools, crashers and every must be more than 0, and steady at least a second")
	}
	c, err := newCluster(ctx, o.clusterOptions, devpg.Options{}, nil)
	if err != nil {
		return r, err
	}
	defer c.close()
	if err := c.start(ctx); err != nil {
		return r, err
	}
	s := c.fleet.Supervise(ctx)
	defer s.Stop()

	c.startLoad(o.every, fleet.MixedWork(o.took))
	began := time.Now().Add(warmUp)
	calm := began.Add(o.steady)
	err = wait.For(ctx, time.Until(calm)+time.Second) // so that what was enqueued before has finished before
	enqueued := time.Now()
	if err == nil {
		err = enqueueCrashers(ctx, c, o.crashers)
	}
	deadLettered := time.Now()
	out, dead, err := c.load.Finish(ctx, err)
	if err = errors.Join(err, s.Stop()); err != nil {
		return r, err
	}
	r = crashersResult{clusterHead: o.head("crashers"), Crashers: o.crashers, Deaths: int(s.Deaths.Load()), DeadLettered: report.Round(deadLettered.Sub(enqueued).Seconds(), 1)}
	r.Outcome, r.Dead = out, dead
	err = r.compare(ctx, c.bed, [2]report.Window{{From: began, To: calm}, {From: enqueued, To: deadLettered}})
	return r, err
}

// enqueueCrashers has the first tenant enqueue crashers, and waits until all are dead letters.
func enqueueCrashers(ctx context.Context, c *cluster, crashers int) error {
	entries := make([]tenure.Entry, crashers)
	for i := range entries {
		entries[i] = tenure.Entry{Tenant: c.bed.Tenants[0], Args: fleet.CrasherWork{By: fleet.WaysToCrash[i%len(fleet.WaysToCrash)]}}
	}
	if _, err := c.client.EnqueueMany(ctx, entries); err != nil {
		return err
	}
	conn, err := c.bed.Connect(ctx, c.bed.Pools[0])
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	last := 0
	return wait.Until(ctx, 5*time.Minute, "the crashers were not dead-lettered", func() (bool, error) {
		var n, sum int
		err := conn.QueryRow(ctx, `SELECT count(*) FILTER (WHERE dead AND losses = $2), coalesce(sum(losses), 0) FROM (
			SELECT kind, losses, true AS dead FROM tenure.dead_letter_job UNION ALL SELECT kind, losses, false FROM tenure.job) AS j
			WHERE kind = $1`, fleet.CrasherWork{}.Kind(), mostLosses).Scan(&n, &sum)
		if sum != last {
			last = sum
			fmt.Fprintf(os.Stderr, "%d lost runs of crashers are in the ledger, %d crashers are dead letters\n", sum, n)
		}
		return n == crashers, errors.Join(err, wait.For(ctx, 20*time.Millisecond))
	})
}

// compare looks at when all other jobs finished: the databases run on this machine's clock.
func (r *crashersResult) compare(ctx context.Context, b *bed.Bed, windows [2]report.Window) error {
	var seconds [2][]int
	var own, elsewhere, all, offered [2]float64 // jobs per second
	var took [2][]time.Duration
	for i, w := range windows {
		seconds[i] = make([]int, int(w.Seconds()))
	}
	for _, pool := range b.Pools {
		jobs, err := b.Finished(ctx, pool)
		if err != nil {
			return err
		}
		for _, j := range jobs {
			for i, w := range windows {
				if w.Has(j.Created) {
					took[i] = append(took[i], j.Finished.Sub(j.Created))
					offered[i] += 1 / w.Seconds()
				}
				if !w.Has(j.Finished) {
					continue
				}
				if second := int(j.Finished.Sub(w.From).Seconds()); second < len(seconds[i]) { // the last is not a whole one
					seconds[i][second]++
				}
				all[i] += 1 / w.Seconds()
				if pool == b.Pools[0] {
					own[i] += 1 / w.Seconds()
				} else {
					elsewhere[i] += 1 / w.Seconds()
				}
			}
		}
	}
	r.Steady, r.During = report.Round(all[0], 1), report.Round(all[1], 1)
	r.Ratio, r.OwnPool, r.Elsewhere = report.Share(all[1], all[0]), report.Share(own[1], own[0]), report.Share(elsewhere[1], elsewhere[0])
	for i := range windows {
		r.Worst[i] = math.MaxInt
		for _, n := range seconds[i] {
			r.Worst[i] = min(r.Worst[i], n)
		}
		r.Offered[i] = report.Round(offered[i], 1)
		r.LatencyP50[i], r.LatencyP99[i], r.LatencyMax[i] = report.Milliseconds(took[i], 0.5), report.Milliseconds(took[i], 0.99), report.Milliseconds(took[i], 1)
	}
	bad := 0.0
	for _, n := range seconds[1] {
		if float64(n) < 0.8*all[0] {
			bad++
		}
	}
	r.Bad = report.Share(bad, float64(len(seconds[1])))
	return nil
}
