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

type longTxOptions struct {
	open, window, every time.Duration
	disk                bool
}

type longTxResult struct {
	Scenario  string  `json:"scenario"`
	PerSecond float64 `json:"jobs_per_second"`
	OpenFor   float64 `json:"open_seconds"`
	Dead      int     `json:"dead_rows"`     // of the queue, that could not be tidied away in that time
	Before    float64 `json:"before_p99_ms"` // from a job's enqueuing to its start
	During    float64 `json:"during_p99_ms"` // in the last part of that time
	After     float64 `json:"after_p99_ms"`  // once the transaction has ended
	Ratio     float64 `json:"ratio"`         // of during to before
	report.Outcome
}

func newLongTx() *cobra.Command {
	var o longTxOptions
	c := scenario("longtx", "Leave a transaction open beside a busy queue, and measure whether jobs start later", &o, longTx)
	c.Flags().DurationVar(&o.open, "open", 25*time.Second, "how long the transaction stays open")
	c.Flags().DurationVar(&o.window, "window", 7*time.Second, "length of each measurement")
	c.Flags().DurationVar(&o.every, "every", 2*time.Millisecond, "how often a job is enqueued")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return c
}

// stamped is a job that knows when it was enqueued.
type stamped struct {
	At time.Time `json:"at"`
}

func (stamped) Kind() string { return "load.stamped" }

func longTx(ctx context.Context, o longTxOptions) (r longTxResult, err error) {
	if o.window <= 0 || o.open < o.window || o.every <= 0 {
		return r, errors.New("window and every must be more than 0, and open at least as long as window")
	}
	// Autovacuum comes as often as it can, so that what it cannot tidy shows.
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: !o.disk, Settings: map[string]string{"autovacuum_naptime": "1s"}}, 1, 10)
	if err != nil {
		return r, err
	}
	defer b.Close()
	pool := b.Pools[0]
	var seen report.Delays
	registry := job.NewRegistry()
	job.Handle(registry, func(_ context.Context, j *job.Job[stamped]) error {
		seen.Add(time.Since(j.Args.At))
		return nil
	})
	n, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()
	open, err := b.Connect(ctx, pool)
	if err != nil {
		return r, err
	}
	defer open.Close(context.WithoutCancel(ctx))

	l := bed.StartLoad(b, n.Client(), o.every, func(int) job.Args { return stamped{time.Now()} })
	exec := func(sql string) step {
		return func(ctx context.Context) error { _, err := open.Exec(ctx, sql); return err }
	}
	err = inTurn(ctx, pause(warmUp), seen.Measure(o.window, "before", &r.Before))
	began := time.Now()
	if err == nil { // it has seen something and drawn an id: so it holds up both tidying and the queue's floor
		err = inTurn(ctx, exec("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.job; SELECT txid_current()"),
			pause(o.open-o.window), seen.Measure(o.window, "with an open transaction", &r.During))
	}
	if err == nil {
		err = b.Ask(ctx, pool, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'job'", &r.Dead)
	}
	r.OpenFor = report.Seconds(time.Since(began))
	if err == nil {
		err = inTurn(ctx, exec("COMMIT"), seen.Measure(o.window, "after it has ended", &r.After))
	}
	r.Outcome, _, err = l.Finish(ctx, err)
	r.Scenario, r.PerSecond, r.Ratio = "longtx", 1/o.every.Seconds(), report.Round(r.During/r.Before, 2)
	return r, err
}
