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
	"github.com/tenurehq/tenure/tenancy"
)

type timersOptions struct {
	jobs, tenants int
	every, window time.Duration
	disk          bool
}

type timersResult struct {
	Scenario       string  `json:"scenario"`
	Timers         int     `json:"timers"` // of one tenant, all due at once
	PerSecond      float64 `json:"jobs_per_second"`
	FirstLate      float64 `json:"first_late_ms"` // from when they were due to the first one's start
	Alone          float64 `json:"others_p99_alone_ms"`
	Beside         float64 `json:"others_p99_ms"` // while timers are fired
	Ratio          float64 `json:"others_p99_ratio"`
	DrainedSeconds float64 `json:"drained_seconds"` // from when they were due to the last one's end
	report.Outcome         // of the others, but lost is of all
}

func newTimers() *cobra.Command {
	var o timersOptions
	c := scenario("timers", "Have very many timers of one tenant come due at once, and measure how long other tenants' jobs wait", &o, timers)
	c.Flags().IntVar(&o.jobs, "jobs", 1_000_000, "timers of the one tenant")
	c.Flags().IntVar(&o.tenants, "tenants", 50, "other tenants")
	c.Flags().DurationVar(&o.every, "every", 5*time.Millisecond, "how often one of the others enqueues a job")
	c.Flags().DurationVar(&o.window, "window", 8*time.Second, "length of the measurement before")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return c
}

// timers runs one node with the default settings.
func timers(ctx context.Context, o timersOptions) (r timersResult, err error) {
	if o.jobs < 1 || o.tenants < 1 || o.every <= 0 || o.window <= 0 {
		return r, errors.New("jobs, tenants, every and window must be more than 0")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, 1, o.tenants+1)
	if err != nil {
		return r, err
	}
	defer b.Close()
	pool, big, others := b.Pools[0], b.Tenants[0], b.Tenants[1:]
	var seen report.Delays
	var first atomic.Int64 // when the first timer's job started
	registry := job.NewRegistry()
	job.Handle(registry, func(_ context.Context, j *job.Job[stamped]) error {
		if tenancy.ID(j.Tenant) != big {
			seen.Add(time.Since(j.Args.At))
		} else if first.Load() == 0 {
			first.CompareAndSwap(0, time.Now().UnixNano())
		}
		return nil
	})
	n, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()
	b.Tenants = others // for the load: the timers are made by themselves
	l := bed.StartLoad(b, n.Client(), o.every, func(int) job.Args { return stamped{time.Now()} })
	defer l.Stop()
	if err := inTurn(ctx, pause(warmUp), seen.Measure(o.window, "alone", &r.Alone)); err != nil {
		return r, err
	}

	due := time.Now().Add(10*time.Second + time.Duration(o.jobs)*40*time.Microsecond)
	err = b.Exec(ctx, pool, fmt.Sprintf(`INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
		SELECT '%s', 'default', '%s', '{"at": "2000-01-01T00:00:00Z"}', '%s' FROM generate_series(1, %d);
		ANALYZE tenure.timer_job; CHECKPOINT`, big, stamped{}.Kind(), due.Format(time.RFC3339Nano), o.jobs))
	if err != nil {
		return r, err
	}
	if err := wait.For(ctx, time.Until(due)); err != nil {
		return r, err
	}
	seen.Forget()
	// until asks until a query says yes, and returns how long after they were due that was.
	until := func(query string) (took time.Duration, err error) {
		err = wait.Until(ctx, 5*time.Minute, "no "+query, func() (yes bool, err error) {
			time.Sleep(20 * time.Millisecond) // asking must not be what is measured
			err = b.Ask(ctx, pool, query, &yes)
			return yes, err
		})
		return time.Since(due), err
	}
	fired, err := until("SELECT NOT EXISTS (SELECT FROM tenure.timer_job WHERE due_at <= now())")
	if err != nil {
		return r, err
	}
	if r.Beside, err = seen.Report("while timers are fired"); err != nil {
		return r, err
	}
	l.Stop()
	drained, err := until("SELECT NOT EXISTS (SELECT FROM tenure.job)")
	if err = errors.Join(err, l.Last); err == nil {
		err = end()
	}
	if err != nil {
		return r, err
	}
	if r.Outcome, _, err = l.Prove(ctx); err != nil {
		return r, err
	}
	var done int
	err = b.Ask(ctx, pool, "SELECT count(DISTINCT id) FROM tenure.completed_job WHERE tenant_id = '"+string(big)+"'", &done)
	r.Scenario, r.Timers, r.DrainedSeconds = "timers", o.jobs, report.Round(drained.Seconds(), 3)
	r.PerSecond = report.Round(float64(o.jobs)/fired.Seconds(), 0)
	r.FirstLate = float64(time.Unix(0, first.Load()).Sub(due).Microseconds()) / 1000
	r.Ratio = report.Round(r.Beside/r.Alone, 2)
	r.Lost += o.jobs - done
	return r, err
}
