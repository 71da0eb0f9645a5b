package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
)

type longTxOptions struct {
	open, window time.Duration
	every        time.Duration
	disk         bool
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
	Enqueued  int     `json:"enqueued"`
	Finished  int     `json:"finished"`
	Lost      int     `json:"lost"`
	Doubled   int     `json:"doubled"`
}

func newLongTx() *cobra.Command {
	var o longTxOptions
	c := &cobra.Command{
		Use: "longtx", Short: "Leave a transaction open beside a busy queue, and see whether jobs start later",
		Args: cobra.NoArgs,
	}
	c.Flags().DurationVar(&o.open, "open", 25*time.Second, "how long the transaction stays open")
	c.Flags().DurationVar(&o.window, "window", 7*time.Second, "how long each part is measured")
	c.Flags().DurationVar(&o.every, "every", 2*time.Millisecond, "how often a job is enqueued")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return scenario(c, func(ctx context.Context, _ []string) (longTxResult, error) { return longTx(ctx, o) })
}

func (r longTxResult) fault() error { return lost(int64(r.Lost), r.Doubled) }

// stamped is a job that knows when it was enqueued.
type stamped struct {
	At time.Time `json:"at"`
}

// Kind implements job.Args.
func (stamped) Kind() string { return "load.stamped" }

// delays gathers how long jobs took to start.
type delays struct {
	mu  sync.Mutex
	all []time.Duration // guarded by mu
}

func (d *delays) add(one time.Duration) {
	d.mu.Lock()
	d.all = append(d.all, one)
	d.mu.Unlock()
}

// take returns what was gathered since the last call.
func (d *delays) take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	return all
}

// measure gathers for a while, says what it saw, and returns the 99th percentile in ms.
func (d *delays) measure(ctx context.Context, window time.Duration, what string) (p99 float64, err error) {
	d.take()
	if err := wait(ctx, window); err != nil {
		return 0, err
	}
	return tellDelays(d.take(), what)
}

// tellDelays says how long jobs took to start, and returns the 99th percentile in ms.
func tellDelays(all []time.Duration, what string) (p99 float64, err error) {
	if len(all) == 0 {
		return 0, errors.New(what + ": no job was started")
	}
	slices.Sort(all)
	at := func(p float64) float64 { return math.Round(all[int(p*float64(len(all)))].Seconds()*1e5) / 100 }
	fmt.Fprintf(os.Stderr, "%s: %d jobs, started after %v ms (median), %v ms (99th percentile)\n", what, len(all), at(0.5), at(0.99))
	return at(0.99), nil
}

func longTx(ctx context.Context, o longTxOptions) (r longTxResult, err error) {
	if o.window <= 0 || o.open < o.window || o.every <= 0 {
		return r, errors.New("window and every must be more than 0, and open no less than window")
	}
	// Autovacuum comes as often as it can, so that what it cannot tidy shows.
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !o.disk, Settings: map[string]string{"autovacuum_naptime": "1s"}}, 1, 10)
	if err != nil {
		return r, err
	}
	defer b.close()
	pool := b.pools[0]
	var seen delays
	registry := job.NewRegistry()
	job.Handle(registry, func(_ context.Context, j *job.Job[stamped]) error {
		seen.add(time.Since(j.Args.At))
		return nil
	})
	n, err := b.node(registry)
	if err != nil {
		return r, err
	}
	if err := n.Start(ctx); err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, stop(n, b.cfg)) }()
	open, err := b.connect(ctx, pool)
	if err != nil {
		return r, err
	}
	defer open.Close(context.WithoutCancel(ctx))

	l := b.load(n.Client(), o.every, func(int) job.Args { return stamped{time.Now()} })
	l.start()
	measure := func(what string) (p99 float64) {
		if err == nil {
			p99, err = seen.measure(ctx, o.window, what)
		}
		return p99
	}
	err = wait(ctx, warmUp)
	r.Before = measure("before")
	began := time.Now()
	if err == nil { // it has seen something and drawn an id: so it holds up both tidying and the queue's floor
		_, err = open.Exec(ctx, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM tenure.job; SELECT txid_current()")
	}
	if err == nil {
		err = wait(ctx, o.open-o.window)
	}
	r.During = measure("with an open transaction")
	if err == nil {
		err = b.ask(ctx, pool, "SELECT n_dead_tup FROM pg_stat_user_tables WHERE schemaname = 'tenure' AND relname = 'job'", &r.Dead)
	}
	r.OpenFor = seconds(time.Since(began))
	if err == nil {
		_, err = open.Exec(ctx, "COMMIT")
	}
	r.After = measure("after it has ended")
	l.stop()
	if err == nil {
		err = l.untilDone(ctx)
	}
	if err != nil {
		return r, errors.Join(err, l.last)
	}
	p, err := l.prove(ctx)
	r.Scenario, r.PerSecond, r.Ratio = "longtx", 1/o.every.Seconds(), math.Round(100*r.During/r.Before)/100
	r.Enqueued, r.Finished, r.Lost, r.Doubled = l.enqueued(), p.finished, p.lost, p.doubled
	return r, err
}
