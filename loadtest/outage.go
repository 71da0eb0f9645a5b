package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

type outageOptions struct {
	pools  int
	took   time.Duration
	window time.Duration
}

type outageResult struct {
	Scenario   string  `json:"scenario"`
	Pools      int     `json:"pools"`
	TookMs     float64 `json:"handler_ms"`
	Before     float64 `json:"others_before_per_second"`
	First      float64 `json:"others_first_per_second"` // in the window that begins with the outage
	Later      float64 `json:"others_later_per_second"` // in the one after
	After      float64 `json:"others_after_per_second"` // when the database is back
	FirstRatio float64 `json:"first_ratio"`
	LaterRatio float64 `json:"later_ratio"`
	Goroutines [2]int  `json:"goroutines"` // before, and at most
	Enqueued   int     `json:"enqueued"`
	Finished   int64   `json:"finished"`
	Dead       int64   `json:"dead"`
	Lost       int64   `json:"lost"`
}

func newOutage() *cobra.Command {
	var o outageOptions
	c := &cobra.Command{
		Use: "outage", Short: "Let one of many databases fall silent under load, and see what that costs the others",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.pools, "pools", 20, "databases, of which one falls silent")
	c.Flags().DurationVar(&o.took, "took", 100*time.Millisecond, "how long each job takes; long enough that workers and not processors are the limit")
	c.Flags().DurationVar(&o.window, "window", 7*time.Second, "how long each part is measured")
	return scenario(c, func(ctx context.Context, _ []string) (outageResult, error) { return outage(ctx, o) })
}

func (r outageResult) fault() error { return lost(r.Lost+r.Dead, 0) }

// outage runs one node with the default settings, whose workers all pools want.
func outage(ctx context.Context, o outageOptions) (r outageResult, err error) {
	if o.pools < 2 || o.took <= 0 || o.window <= 0 {
		return r, errors.New("two pools are needed at least, and took and window must be more than 0")
	}
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: true, MaxConnections: 24*o.pools + 20}, o.pools, 2*o.pools)
	if err != nil {
		return r, err
	}
	defer b.close()
	const silent = "pool-1"
	direct := b.cfg.Pools[silent]
	proxy, err := faultproxy.New(direct.DSN)
	if err != nil {
		return r, err
	}
	defer proxy.Close()
	behind := direct
	behind.DSN = proxy.DSN()

	var others atomic.Int64
	registry := job.NewRegistry()
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[txWork]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID)); err != nil {
			return err
		}
		err := wait(ctx, j.Args.Took)
		if err == nil && b.cfg.Tenants.Static[tenancy.ID(j.Tenant)].Pool != silent {
			others.Add(1)
		}
		return err
	})
	r = outageResult{Scenario: "outage", Pools: o.pools, TookMs: 1000 * o.took.Seconds()}
	r.Enqueued = int(1.1 * float64(b.cfg.Execution.Workers) / o.took.Seconds() * (4*o.window + warmUp).Seconds())
	if err := b.enqueue(ctx, b.tenants, r.Enqueued, func(int) job.Args { return txWork{Took: o.took} }); err != nil {
		return r, err
	}
	b.cfg.Pools[silent] = behind
	n, err := b.node(registry)
	b.cfg.Pools[silent] = direct // for whoever counts
	if err != nil {
		return r, err
	}
	if err := n.Start(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop(n, b.cfg)) }()
	if err := wait(ctx, warmUp); err != nil {
		return r, err
	}
	r.Goroutines[0] = runtime.NumGoroutine()
	rate := func(what string, into *float64) {
		if err != nil {
			return
		}
		before, began := others.Load(), time.Now()
		for time.Since(began) < o.window && err == nil {
			err = wait(ctx, 100*time.Millisecond)
			r.Goroutines[1] = max(r.Goroutines[1], runtime.NumGoroutine())
		}
		*into = math.Round(float64(others.Load()-before) / time.Since(began).Seconds())
		fmt.Fprintf(os.Stderr, "%s: %.0f jobs/s of the others\n", what, *into)
	}
	rate("before", &r.Before)
	proxy.Hold(func(string) bool { return true })
	rate("the database falls silent", &r.First)
	rate("later", &r.Later)
	proxy.Hold(nil)
	rate("it is back", &r.After)
	if err != nil {
		return r, err
	}
	r.FirstRatio, r.LaterRatio = math.Round(1000*r.First/r.Before)/1000, math.Round(1000*r.Later/r.Before)/1000
	var left tenure.Counts
	err = until(ctx, 5*time.Minute, "jobs were left", func() (bool, error) {
		counts, err := n.Client().Count(ctx)
		err = errors.Join(err, wait(ctx, 200*time.Millisecond))
		left = tenure.Counts{}
		for _, c := range counts {
			left.Waiting, left.Timers = left.Waiting+c.Waiting+c.Claimed, left.Timers+c.Timers
			left.Finished, left.Dead = left.Finished+c.Finished, left.Dead+c.Dead
		}
		return left.Waiting+left.Timers == 0, err
	})
	r.Finished, r.Dead = left.Finished, left.Dead
	r.Lost = int64(r.Enqueued) - left.Finished - left.Dead
	return r, err
}
