package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"runtime/pprof"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

// order is a job of ordinary size: some 150 bytes of JSON.
type order struct {
	Order    int64   `json:"order"`
	Customer string  `json:"customer"`
	Lines    []int32 `json:"lines"`
	Note     string  `json:"note"`
}

func (order) Kind() string { return "order.ship" }

func newOrder(n int) order {
	return order{Order: int64(n), Customer: fmt.Sprintf("customer-%08d", n%10_000), Lines: []int32{1, 2, 3, 5, 8, 13},
		Note: "leave at the door of the neighbours if nobody is at home today"}
}

type drainOptions struct {
	jobs, tenants, workers, batch int
	keys, browsers                int
	cpuprofile                    string
}

type drainResult struct {
	Scenario      string  `json:"scenario"`
	Jobs          int     `json:"jobs"`
	Tenants       int     `json:"tenants"`
	Seconds       float64 `json:"seconds"`
	JobsPerSecond int     `json:"jobs_per_second"`
	EnqueueSecond int     `json:"enqueued_per_second"`
	NodeMs        float64 `json:"node_cpu_ms_per_job,omitempty"`
	NodeBytes     int     `json:"node_bytes_per_job"` // allocated
	PostgresMs    float64 `json:"postgres_cpu_ms_per_job,omitempty"`
	ClaimP99      float64 `json:"claim_p99_ms"` // reading a page of jobs and committing its claim
	Started       int64   `json:"handlers_started"`
	Finished      int64   `json:"finished"`
	Lost          int64   `json:"lost"`
	Keys          int     `json:"exclusive_keys,omitempty"`
	Overlaps      int64   `json:"overlaps,omitempty"`     // starts beside another job with the key
	Disordered    int64   `json:"out_of_order,omitempty"` // starts behind a later job with the key
	Browsers      int     `json:"browsers,omitempty"`
	Pages         int     `json:"pages,omitempty"` // that they were sent
}

func newDrain() *cobra.Command {
	var o drainOptions
	c := scenario("drain", "Work off a backlog of no-op jobs: one pool, one node, default settings", &o, drain)
	c.Flags().IntVar(&o.jobs, "jobs", 300_000, "jobs waiting when the node starts")
	c.Flags().IntVar(&o.tenants, "tenants", 100, "tenants that share the jobs equally")
	c.Flags().IntVar(&o.workers, "workers", 0, "concurrent handlers (0: the default)")
	c.Flags().IntVar(&o.batch, "batch", 0, "jobs per claim (0: the default)")
	c.Flags().IntVar(&o.keys, "exclusive-keys", 0, "give each job one of so many exclusive keys in turn (0: none)")
	c.Flags().IntVar(&o.browsers, "browsers", 0, "so many browsers have the node's dashboard open meanwhile")
	c.Flags().StringVar(&o.cpuprofile, "cpuprofile", "", "write a CPU profile of the drain to this file")
	return c
}

func (r drainResult) Fault() error {
	if r.Overlaps+r.Disordered > 0 {
		return fmt.Errorf("%d jobs ran beside another one with their exclusive key, %d behind a later one", r.Overlaps, r.Disordered)
	}
	return report.Lost(r.Lost, 0)
}

// keyWatch sees whether jobs with one exclusive key run one by one and in order.
type keyWatch struct {
	overlaps, disordered int64

	mu     sync.Mutex
	inside map[string]bool  // guarded by mu
	last   map[string]int64 // guarded by mu
}

// enter notes that a job begins, and returns what is to be called when it ends.
func (w *keyWatch) enter(j *job.Job[order]) (leave func()) {
	key := j.Tenant + "/" + j.ExclusiveKey
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.inside[key] {
		w.overlaps++
	}
	if last, ok := w.last[key]; ok && last > j.Args.Order {
		w.disordered++
	}
	w.inside[key], w.last[key] = true, j.Args.Order
	return func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.inside[key] = false
	}
}

func drain(ctx context.Context, o drainOptions) (r drainResult, err error) {
	if o.jobs < 1 || o.tenants < 1 || o.keys < 0 || o.browsers < 0 {
		return r, errors.New("jobs and tenants must be more than 0, and exclusive-keys and browsers not less")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, 1, o.tenants)
	if err != nil {
		return r, err
	}
	defer b.Close()
	return drainOn(ctx, b, o)
}

// drainOn enqueues, then starts a node and times it until the last job is finished
// in the database.
func drainOn(ctx context.Context, b *bed.Bed, o drainOptions) (r drainResult, err error) {
	if o.workers > 0 {
		b.Config.Execution.Workers = o.workers
	}
	if o.batch > 0 {
		b.Config.Acquire.Batch = o.batch
	}
	var started atomic.Int64
	allStarted := make(chan struct{})
	registry := job.NewRegistry()
	watch := keyWatch{inside: map[string]bool{}, last: map[string]int64{}}
	job.Handle(registry, func(_ context.Context, j *job.Job[order]) error {
		if o.keys > 0 {
			defer watch.enter(j)()
		}
		if started.Add(1) == int64(o.jobs) {
			close(allStarted)
		}
		return nil
	})

	began := time.Now()
	var options []func(n int) tenure.Option
	if o.keys > 0 {
		options = append(options, func(n int) tenure.Option { return tenure.Exclusive(fmt.Sprintf("k%d", n%o.keys)) })
	}
	if err := b.Enqueue(ctx, b.Tenants, o.jobs, func(n int) job.Args { return newOrder(n) }, options...); err != nil {
		return r, err
	}
	enqueued := time.Since(began)
	fmt.Fprintf(os.Stderr, "%d jobs enqueued in %v\n", o.jobs, enqueued.Round(time.Millisecond))
	if err := b.Exec(ctx, "pool-1", "ANALYZE; CHECKPOINT"); err != nil {
		return r, err
	}

	metrics := prometheus.NewRegistry()
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
	postgres, err := postmaster(ctx, b)
	if err != nil {
		return r, err
	}
	spend := measureFrom(postgres)
	n, end, err := b.RunNode(ctx, registry, tenure.WithMetrics(metrics))
	if err != nil {
		return r, err
	}
	look, err := openBrowsers(ctx, n, o.browsers)
	if err != nil {
		return r, errors.Join(err, end())
	}
	err = untilEmpty(ctx, b, allStarted, 10*time.Minute+time.Duration(o.jobs)*leastSpeed)
	cost := spend()
	pages, lookErr := look()
	if err = errors.Join(err, lookErr); err != nil {
		return r, errors.Join(err, end())
	}
	counts, err := n.Operator().Pools().Count(ctx)
	claims, gatherErr := report.ReadHistogram(metrics, "tenure_claim_seconds")
	if err = errors.Join(err, gatherErr, end()); err != nil {
		return r, err
	}
	finished := counts[0].Finished
	return drainResult{
		Scenario: "drain", Jobs: o.jobs, Tenants: o.tenants, Seconds: report.Seconds(cost.took),
		JobsPerSecond: cost.perSecond(o.jobs), EnqueueSecond: int(float64(o.jobs) / enqueued.Seconds()),
		NodeMs: cost.client(o.jobs), NodeBytes: cost.bytes(o.jobs), PostgresMs: cost.server(o.jobs),
		ClaimP99: claims.Quantile(0.99),
		Started:  started.Load(), Finished: finished, Lost: int64(o.jobs) - finished,
		Keys: o.keys, Overlaps: watch.overlaps, Disordered: watch.disordered,
		Browsers: o.browsers, Pages: pages,
	}, nil
}

// leastSpeed is how long a job may take in a drain that is not given up.
const leastSpeed = 200 * time.Microsecond

// untilEmpty waits until the handlers have all been started and then until no job
// stands in the ledger's job table any more, by the database's word.
func untilEmpty(ctx context.Context, b *bed.Bed, allStarted <-chan struct{}, within time.Duration) error {
	ctx, cancel := context.WithTimeoutCause(ctx, within, fmt.Errorf("not drained after %v", within))
	defer cancel()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-allStarted:
	}
	conn, err := pgx.Connect(ctx, b.Config.Pools["pool-1"].DSN)
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	for left := true; left; {
		err := conn.QueryRow(ctx, anyLeft).Scan(&left)
		if err != nil {
			return err
		}
	}
	return nil
}

// anyLeft tells whether a pool has jobs. It walks the primary key from its end, where the last jobs are, not
// through what a drain has left dead behind it.
const anyLeft = "SELECT EXISTS (SELECT FROM tenure.job ORDER BY id DESC LIMIT 1)"
