package main

import (
	"context"
	"errors"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

type snapshotOptions struct {
	jobs, tenants int
	wait          time.Duration
	forget        bool
}

type snapshotResult struct {
	Scenario string  `json:"scenario"`
	Jobs     int     `json:"jobs"`
	Dead     int     `json:"dead_rows"`               // of the queue, that cannot be tidied away
	Drain    float64 `json:"drain_seconds"`           // all of them
	Takeover float64 `json:"takeover_seconds"`        // from the next node's start until it has started a job
	Waited   bool    `json:"still_waiting,omitempty"` // it had started none until then
}

func (r snapshotResult) Fault() error {
	if r.Waited {
		return errors.New("no job has started on the next node")
	}
	return nil
}

func newSnapshot() *cobra.Command {
	var o snapshotOptions
	c := scenario("snapshot", "Work off jobs beside a snapshot that keeps them from being vacuumed, and time how soon another node that takes the lock starts one", &o, snapshot)
	c.Flags().IntVar(&o.jobs, "jobs", 1_000_000, "jobs to work off")
	c.Flags().IntVar(&o.tenants, "tenants", 50, "tenants that share them equally")
	c.Flags().DurationVar(&o.wait, "wait", 2*time.Minute, "how long to wait for that start")
	c.Flags().BoolVar(&o.forget, "forget", false, "forget up to where the queue is empty before, for comparison")
	return c
}

func snapshot(ctx context.Context, o snapshotOptions) (r snapshotResult, err error) {
	if o.jobs < 1 || o.tenants < 1 {
		return r, errors.New("jobs and tenants must be at least 1")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: true, Settings: map[string]string{"autovacuum_naptime": "1s"}}, 1, o.tenants)
	if err != nil {
		return r, err
	}
	defer b.Close()
	started := make(chan time.Time, 1)
	registry := job.NewRegistry()
	job.Handle(registry, func(context.Context, *job.Job[order]) error { return nil })
	job.Handle(registry, func(context.Context, *job.Job[stamped]) error {
		started <- time.Now()
		return nil
	})
	open, err := b.Connect(ctx, b.Pools[0])
	if err != nil {
		return r, err
	}
	defer open.Close(context.WithoutCancel(ctx))
	if _, err := open.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.job"); err != nil {
		return r, err
	}
	_, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	began := time.Now()
	err = inTurn(ctx, func(ctx context.Context) error {
		return b.Enqueue(ctx, b.Tenants, o.jobs, func(n int) job.Args { return newOrder(n) })
	}, b.UntilDone)
	r.Scenario, r.Jobs, r.Drain = "snapshot", o.jobs, report.Seconds(time.Since(began))
	if err := errors.Join(err, pause(3*time.Second)(ctx), end()); err != nil { // it notes once a second how far it has come
		return r, err
	}
	if err := b.Ask(ctx, b.Pools[0], "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'job'", &r.Dead); err != nil {
		return r, err
	}
	if o.forget {
		if err := b.Exec(ctx, b.Pools[0], "UPDATE tenure.acquire_lock SET bottom = 0"); err != nil {
			return r, err
		}
	}
	if err := b.Enqueue(ctx, b.Tenants[:1], 1, func(int) job.Args { return stamped{time.Now()} }); err != nil {
		return r, err
	}
	began = time.Now()
	_, end, err = b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	select {
	case at := <-started:
		r.Takeover = report.Seconds(at.Sub(began))
	case <-time.After(o.wait):
		r.Takeover, r.Waited = report.Seconds(o.wait), true
	}
	return r, end()
}
