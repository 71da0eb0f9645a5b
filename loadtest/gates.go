package main

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/operate"
)

type gatesOptions struct {
	window  time.Duration
	running int
}

type gatesResult struct {
	Scenario string     `json:"scenario"`
	Gates    []gateUsed `json:"gates"`
}

// gateUsed is how much of a limit a backlog puts to use.
type gateUsed struct {
	Limit  string  `json:"limit"`
	TookMs float64 `json:"handler_ms"`
	Starts float64 `json:"starts_per_second"`
	Used   float64 `json:"used"` // of what the limit allows; 1: all
}

// Fault implements report.Result: none of what is measured here is a promise.
func (r gatesResult) Fault() error { return nil }

func newGates() *cobra.Command {
	var o gatesOptions
	c := scenario("gates", "Put a limit on the only kind of job that waits, and see how much of the limit is used", &o, gates)
	c.Flags().DurationVar(&o.window, "window", 8*time.Second, "how long each backlog takes if the limit is used wholly")
	c.Flags().IntVar(&o.running, "running", 1, "jobs that may run at once, where that is what is limited")
	return c
}

// gates has one node, whose default settings hold no limit back, work off a backlog under one limit after the other.
func gates(ctx context.Context, o gatesOptions) (r gatesResult, err error) {
	if o.window <= 0 || o.running < 1 {
		return r, errors.New("window must be more than 0, and running 1 or more")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, 1, 1)
	if err != nil {
		return r, err
	}
	defer b.Close()
	var took, starts atomic.Int64 // took is the handlers' time from now on
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, _ *job.Job[order]) error {
		starts.Add(1)
		return wait.For(ctx, time.Duration(took.Load()))
	})
	n, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()
	r.Scenario = "gates"
	tenant, limits := b.Tenants[0], n.Client().Operator().Limits()
	measure := func(name string, each time.Duration, allowed float64, l operate.Limit) error {
		l.Tenant, l.Kind = tenant, order{}.Kind()
		if err := limits.Set(ctx, l); err != nil {
			return err
		}
		jobs := int64(allowed * o.window.Seconds())
		took.Store(int64(each))
		starts.Store(0)
		began := time.Now()
		if err := b.Enqueue(ctx, b.Tenants, int(jobs), func(n int) job.Args { return newOrder(n) }); err != nil {
			return err
		}
		if err := wait.Until(ctx, 10*o.window, "jobs were left", func() (bool, error) { return starts.Load() == jobs, nil }); err != nil {
			return err
		}
		rate := float64(jobs) / time.Since(began).Seconds()
		r.Gates = append(r.Gates, gateUsed{name, 1000 * each.Seconds(), report.Round(rate, 1), report.Round(rate/allowed, 3)})
		return nil
	}
	for _, each := range []time.Duration{5 * time.Millisecond, 20 * time.Millisecond, 100 * time.Millisecond, 500 * time.Millisecond} {
		if err := measure(fmt.Sprintf("%d at once", o.running), each, float64(o.running)/each.Seconds(), operate.Limit{MaxRunning: o.running}); err != nil {
			return r, err
		}
	}
	for _, burst := range []int{1, 10} {
		for _, rate := range []int{50, 200, 500, 1000} {
			if err := measure(fmt.Sprintf("%d a second, burst %d", rate, burst), 0, float64(rate), operate.Limit{Rate: rate, Per: time.Second, Burst: burst}); err != nil {
				return r, err
			}
		}
	}
	return r, nil
}
