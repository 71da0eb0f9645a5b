package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// order is a job of ordinary size: some 150 bytes of JSON.
type order struct {
	Order    int64   `json:"order"`
	Customer string  `json:"customer"`
	Lines    []int32 `json:"lines"`
	Note     string  `json:"note"`
}

// Kind implements job.Args.
func (order) Kind() string { return "order.ship" }

func newOrder(n int) order {
	return order{Order: int64(n), Customer: fmt.Sprintf("customer-%08d", n%10_000), Lines: []int32{1, 2, 3, 5, 8, 13},
		Note: "leave at the door of the neighbours if nobody is at home today"}
}

type drainOptions struct {
	jobs, tenants, workers, batch int
	cpuprofile                    string
}

type drainResult struct {
	Scenario      string  `json:"scenario"`
	Jobs          int     `json:"jobs"`
	Tenants       int     `json:"tenants"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond int     `json:"jobs_per_second"`
	EnqueueSecond int     `json:"enqueued_per_second"`
	ClaimP99      float64 `json:"claim_p99_ms"` // reading a page of jobs and committing its claim
	Started       int64   `json:"handlers_started"`
	Finished      int64   `json:"finished"`
	Lost          int64   `json:"lost"`
}

func newDrain() *cobra.Command {
	var o drainOptions
	c := &cobra.Command{
		Use: "drain", Short: "Finish a backlog of jobs that do nothing: one pool, one node, default settings",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.jobs, "jobs", 300_000, "how many jobs wait when the node starts")
	c.Flags().IntVar(&o.tenants, "tenants", 100, "tenants they belong to, in equal shares")
	c.Flags().IntVar(&o.workers, "workers", 0, "handlers at a time (0: the default)")
	c.Flags().IntVar(&o.batch, "batch", 0, "jobs per claim (0: the default)")
	c.Flags().StringVar(&o.cpuprofile, "cpuprofile", "", "write a profile of the drain to this file")
	return scenario(c, func(ctx context.Context, _ []string) (drainResult, error) { return drain(ctx, o) })
}

func (r drainResult) fault() error { return lost(r.Lost, 0) }

// drain enqueues, then starts a node and times it until the last job is finished
// in the database.
func drain(ctx context.Context, o drainOptions) (r drainResult, err error) {
	if o.jobs < 1 || o.tenants < 1 {
		return r, errors.New("jobs and tenants must be more than 0")
	}
	b, err := newBed(ctx, 1, o.tenants)
	if err != nil {
		return r, err
	}
	defer b.close()
	if o.workers > 0 {
		b.cfg.Execution.Workers = o.workers
	}
	if o.batch > 0 {
		b.cfg.Acquire.Batch = o.batch
	}
	var started atomic.Int64
	allStarted := make(chan struct{})
	registry := job.NewRegistry()
	job.Handle(registry, func(context.Context, *job.Job[order]) error {
		if started.Add(1) == int64(o.jobs) {
			close(allStarted)
		}
		return nil
	})

	began := time.Now()
	if err := b.enqueue(ctx, b.tenants, o.jobs, func(n int) job.Args { return newOrder(n) }); err != nil {
		return r, err
	}
	enqueued := time.Since(began)
	fmt.Fprintf(os.Stderr, "%d jobs enqueued in %v\n", o.jobs, enqueued.Round(time.Millisecond))
	if err := b.exec(ctx, "pool-1", "ANALYZE; CHECKPOINT"); err != nil {
		return r, err
	}

	metrics := prometheus.NewRegistry()
	n, err := b.node(registry, tenure.WithMetrics(metrics))
	if err != nil {
		return r, err
	}
	if o.cpuprofile != "" {
		f, err := os.Create(o.cpuprofile)
		if err != nil {
			return r, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return r, err
		}
		defer pprof.StopCPUProfile()
	}
	began = time.Now()
	if err := n.Start(ctx); err != nil {
		return r, err
	}
	err = untilEmpty(ctx, b, allStarted, 10*time.Minute+time.Duration(o.jobs)*leastSpeed)
	took := time.Since(began)
	if err != nil {
		return r, errors.Join(err, stop(n, b.cfg))
	}
	counts, err := n.Client().Count(ctx)
	claims, gatherErr := readHistogram(metrics, "tenure_claim_seconds")
	if err = errors.Join(err, gatherErr, stop(n, b.cfg)); err != nil {
		return r, err
	}
	finished := counts[0].Finished
	return drainResult{
		Scenario: "drain", Jobs: o.jobs, Tenants: o.tenants, Seconds: math.Round(took.Seconds()*1000) / 1000,
		JobsPerSecond: int(float64(o.jobs) / took.Seconds()), EnqueueSecond: int(float64(o.jobs) / enqueued.Seconds()),
		ClaimP99: claims.quantile(0.99),
		Started:  started.Load(), Finished: finished, Lost: int64(o.jobs) - finished,
	}, nil
}

// leastSpeed is how long a job may take in a drain that is not given up.
const leastSpeed = 200 * time.Microsecond

// untilEmpty waits until the handlers have all been started and then until no job
// stands in the ledger's job table any more, by the database's word.
func untilEmpty(ctx context.Context, b *bed, allStarted <-chan struct{}, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not drained after %v", within))
	defer cancel()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-allStarted:
	}
	conn, err := pgx.Connect(ctx, b.cfg.Pools["pool-1"].DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for left := true; left; {
		// The primary key is walked from its end, where the last jobs are, not through
		// what the drain has left dead behind it.
		err := conn.QueryRow(ctx, "SELECT EXISTS (SELECT FROM tenure.job ORDER BY id DESC LIMIT 1)").Scan(&left)
		if err != nil {
			return err
		}
	}
	return nil
}
