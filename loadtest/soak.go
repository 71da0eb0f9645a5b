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
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type soakOptions struct {
	clusterOptions
	minutes, scale     float64
	every, sampleEvery time.Duration
}

type soakResult struct {
	clusterHead
	Minutes     float64    `json:"minutes"`
	Scale       float64    `json:"scale"`
	Samples     int        `json:"samples"`
	Goroutines  soakSeries `json:"goroutines"`     // of the node with the most
	Megabytes   soakSeries `json:"megabytes"`      // resident, of the node with the most
	Connections soakSeries `json:"connections"`    // of all nodes together
	LedgerMB    soakSeries `json:"ledger_mb"`      // the tables that jobs pass through, of all pools
	Moved       int        `json:"moved"`          // locks that changed hands
	EnqueueP99  [2]float64 `json:"enqueue_p99_ms"` // in the first half and in the second
	report.Outcome
}

// soakSeries is what was seen of one number in the second half of the time, when whatever
// fills once is full.
type soakSeries struct {
	Least   float64 `json:"least"`
	Most    float64 `json:"most"`
	PerHour float64 `json:"per_hour"` // slope of the line through all of it

	at, seen []float64 // hours, and the number
}

func newSoak() *cobra.Command {
	var o soakOptions
	c := scenario("soak", "Keep a cluster under a steady load, and report whether anything grows", &o, soak)
	o.clusterOptions.flags(c.Flags(), 3, 3)
	c.Flags().Float64Var(&o.minutes, "minutes", 0.7, "how long; a slope means something after an hour or more")
	c.Flags().DurationVar(&o.every, "every", 50*time.Millisecond, "how often a job is enqueued in each pool")
	c.Flags().DurationVar(&o.sampleEvery, "sample", 0, "time between measurements (0: sixty in all)")
	c.Flags().Float64Var(&o.scale, "scale", 1, "scales the TTLs of locks and sessions, and their renewals with them (1: the defaults)")
	return c
}

// soakTook is how long each job takes: some are always running.
const soakTook = 20 * time.Millisecond

func soak(ctx context.Context, o soakOptions) (r soakResult, err error) {
	span := time.Duration(o.minutes * float64(time.Minute))
	if o.nodes < 1 || o.pools < 1 || span <= 0 || o.every <= 0 || o.scale < 0.1 || o.scale > 1 {
		return r, errors.New("nodes, pools, minutes and every must be more than 0; --scale is 0.1 to 1")
	}
	if o.sampleEvery == 0 {
		o.sampleEvery = span / 60
	}
	c, err := newCluster(ctx, o.clusterOptions, devpg.Options{}, func(b *bed.Bed) error { b.ScaleTTLs(o.scale); return nil })
	if err != nil {
		return r, err
	}
	defer c.close()
	c.fleet.Silent = true
	if err := c.start(ctx); err != nil {
		return r, err
	}
	c.startLoad(o.every, fleet.MixedWork(soakTook))
	r = soakResult{clusterHead: o.head("soak"), Minutes: o.minutes, Scale: o.scale}
	err = r.watch(ctx, c, span, o.sampleEvery)
	if r.Outcome, _, err = c.load.Finish(ctx, err); err != nil {
		return r, err
	}
	took := c.load.Took
	half := len(took) / 2
	r.EnqueueP99 = [2]float64{report.Milliseconds(took[:half], 0.99), report.Milliseconds(took[half:], 0.99)}
	return r, nil
}

// watch measures again and again, and keeps what it sees in the second half.
func (r *soakResult) watch(ctx context.Context, c *cluster, span, every time.Duration) error {
	began := time.Now()
	epochs := int64(0)
	for n := 0; time.Since(began) < span; n++ {
		if err := wait.For(ctx, every); err != nil {
			return err
		}
		now, sum, err := look(ctx, c)
		if err != nil {
			return err
		}
		if n > 0 && sum != epochs {
			r.Moved++
		}
		epochs = sum
		fmt.Fprintf(os.Stderr, "%v: %v goroutines, %v MB, %v connections, %v MB of ledger\n",
			time.Since(began).Round(time.Second), now[0], now[1], now[2], now[3])
		if time.Since(began) < span/2 {
			continue
		}
		r.Samples++
		for i, s := range []*soakSeries{&r.Goroutines, &r.Megabytes, &r.Connections, &r.LedgerMB} {
			s.add(time.Since(began).Hours(), now[i])
		}
	}
	return nil
}

// look measures once: goroutines, resident megabytes, connections, megabytes of the ledger;
// and the sum of the locks' epochs.
func look(ctx context.Context, c *cluster) (now [4]float64, epochs int64, err error) {
	u, err := c.fleet.Usage()
	if err != nil {
		return now, 0, err
	}
	locks, err := c.fleet.Stats()
	if err != nil {
		return now, 0, err
	}
	now[0], now[1] = float64(u.Goroutines), report.Round(float64(u.Kilobytes)/1024, 1)
	if err := c.bed.Ask(ctx, c.bed.Pools[0], "SELECT count(*) FROM pg_stat_activity WHERE application_name LIKE 'tenure %'", &now[2]); err != nil {
		return now, 0, err
	}
	for _, pool := range c.bed.Pools {
		var mb float64
		err := c.bed.Ask(ctx, pool, "SELECT round(sum(pg_total_relation_size(oid)) / 1e6, 1)::float8 FROM pg_class WHERE relnamespace = 'tenure'::regnamespace AND relname IN ('job', 'claim', 'timer_job')", &mb)
		if err != nil {
			return now, 0, err
		}
		now[3] += mb
	}
	now[3] = report.Round(now[3], 1)
	return now, locks.Epochs, nil
}

func (s *soakSeries) add(at, seen float64) {
	if len(s.seen) == 0 {
		s.Least = seen
	}
	s.Least, s.Most = min(s.Least, seen), max(s.Most, seen)
	s.at, s.seen = append(s.at, at), append(s.seen, seen)
	s.PerHour = report.Round(slope(s.at, s.seen), 2)
}

// slope is that of the line with the least squares through the points; 0 of fewer than two.
func slope(x, y []float64) float64 {
	n := float64(len(x))
	var sx, sy, sxx, sxy float64
	for i := range x {
		sx, sy, sxx, sxy = sx+x[i], sy+y[i], sxx+x[i]*x[i], sxy+x[i]*y[i]
	}
	if d := n*sxx - sx*sx; d != 0 {
		return (n*sxy - sx*sy) / d
	}
	return 0
}
