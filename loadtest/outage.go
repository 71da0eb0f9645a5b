package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/tenancy"
)

type outageOptions struct {
	pools        int
	took, window time.Duration
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
	c := scenario("outage", "Make one of many databases stop answering under load, and measure what that costs the others", &o, outage)
	c.Flags().IntVar(&o.pools, "pools", 20, "databases; one of them stops answering")
	c.Flags().DurationVar(&o.took, "took", 100*time.Millisecond, "how long each job takes; long enough that workers, not processors, are the limit")
	c.Flags().DurationVar(&o.window, "window", 7*time.Second, "length of each measurement")
	return c
}

func (r outageResult) Fault() error { return report.Lost(r.Lost+r.Dead, 0) }

// outage runs one node with the default settings, whose workers all pools want.
func outage(ctx context.Context, o outageOptions) (r outageResult, err error) {
	if o.pools < 2 || o.took <= 0 || o.window <= 0 {
		return r, errors.New("at least two pools are needed, and took and window must be more than 0")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: true, MaxConnections: 24*o.pools + 20}, o.pools, 2*o.pools)
	if err != nil {
		return r, err
	}
	defer b.Close()
	const silent = "pool-1"
	direct := b.Config.Pools[silent]
	proxy, err := faultproxy.New(direct.DSN)
	if err != nil {
		return r, err
	}
	defer proxy.Close()
	behind := direct
	behind.DSN = proxy.DSN()

	var others atomic.Int64
	registry := job.NewRegistry()
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[fleet.TxWork]) error {
		if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID)); err != nil {
			return err
		}
		err := wait.For(ctx, j.Args.Took)
		if err == nil && b.Config.Tenants.Static[tenancy.ID(j.Tenant)].Pool != silent {
			others.Add(1)
		}
		return err
	})
	r = outageResult{Scenario: "outage", Pools: o.pools, TookMs: 1000 * o.took.Seconds()}
	r.Enqueued = int(1.1 * float64(b.Config.Execution.Workers) / o.took.Seconds() * (4*o.window + warmUp).Seconds())
	if err := b.Enqueue(ctx, b.Tenants, r.Enqueued, func(int) job.Args { return fleet.TxWork{Took: o.took} }); err != nil {
		return r, err
	}
	b.Config.Pools[silent] = behind
	n, end, err := b.RunNode(ctx, registry)
	b.Config.Pools[silent] = direct // for counting
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := wait.For(ctx, warmUp); err != nil {
		return r, err
	}
	r.Goroutines[0] = runtime.NumGoroutine()
	rate := func(what string, into *float64) {
		if err != nil {
			return
		}
		before, began := others.Load(), time.Now()
		for time.Since(began) < o.window && err == nil {
			err = wait.For(ctx, 100*time.Millisecond)
			r.Goroutines[1] = max(r.Goroutines[1], runtime.NumGoroutine())
		}
		*into = report.Round(float64(others.Load()-before)/time.Since(began).Seconds(), 0)
		fmt.Fprintf(os.Stderr, "%s: %.0f jobs/s of the others\n", what, *into)
	}
	rate("before", &r.Before)
	proxy.Hold(func(string) bool { return true })
	rate("the database stops answering", &r.First)
	rate("later", &r.Later)
	proxy.Hold(nil)
	rate("it is back", &r.After)
	if err != nil {
		return r, err
	}
	r.FirstRatio, r.LaterRatio = report.Share(r.First, r.Before), report.Share(r.Later, r.Before)
	if err := b.UntilDone(ctx); err != nil {
		return r, err
	}
	counts, err := n.Operator().Pools().Count(ctx)
	for _, c := range counts {
		r.Finished, r.Dead = r.Finished+c.Finished, r.Dead+c.Dead
	}
	r.Lost = int64(r.Enqueued) - r.Finished - r.Dead
	return r, err
}
