package main

import (
	"context"
	"errors"
	"math"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

type crowdOptions struct {
	backlog, tenants int
	took             time.Duration
	every, window    time.Duration
	disk             bool
}

type crowdResult struct {
	Scenario string  `json:"scenario"`
	Backlog  int     `json:"backlog"` // jobs of the one tenant
	Tenants  int     `json:"tenants"` // the others
	TookMs   float64 `json:"took_ms"`
	Alone    float64 `json:"alone_p99_ms"` // from enqueuing to start, of the others' jobs
	Beside   float64 `json:"beside_p99_ms"`
	Ratio    float64 `json:"ratio"`
	ClaimP99 float64 `json:"claim_p99_ms"`    // reading a page of jobs and committing its claim
	Rate     float64 `json:"jobs_per_second"` // of the one tenant, meanwhile
	Enqueued int     `json:"enqueued"`        // by the others
	Finished int     `json:"finished"`
	Lost     int     `json:"lost"` // of all
	Doubled  int     `json:"doubled"`
}

func newCrowd() *cobra.Command {
	var o crowdOptions
	c := &cobra.Command{
		Use: "crowd", Short: "Let one tenant have very many jobs, and see how long the others' few have to wait",
		Args: cobra.NoArgs,
	}
	c.Flags().IntVar(&o.backlog, "backlog", 200_000, "jobs that one tenant has waiting")
	c.Flags().IntVar(&o.tenants, "tenants", 100, "other tenants")
	c.Flags().DurationVar(&o.took, "took", 20*time.Millisecond, "how long each job takes")
	c.Flags().DurationVar(&o.every, "every", 5*time.Millisecond, "how often one of the others enqueues a job")
	c.Flags().DurationVar(&o.window, "window", 12*time.Second, "how long each part is measured")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return scenario(c, func(ctx context.Context, _ []string) (crowdResult, error) { return crowd(ctx, o) })
}

func (r crowdResult) fault() error { return lost(int64(r.Lost), r.Doubled) }

// crowd runs one node with the default settings, first with the few jobs of many, then
// with all its workers wanted by one tenant besides.
func crowd(ctx context.Context, o crowdOptions) (r crowdResult, err error) {
	if o.backlog < 1 || o.tenants < 1 || o.took <= 0 || o.every <= 0 || o.window <= 0 {
		return r, errors.New("backlog, tenants, took, every and window must be more than 0")
	}
	b, err := startBed(ctx, devpg.Options{Durable: true, InMemory: !o.disk}, 1, o.tenants+1)
	if err != nil {
		return r, err
	}
	defer b.close()
	big, others := b.tenants[0], b.tenants[1:]
	var seen delays
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, j *job.Job[stamped]) error {
		if tenancy.ID(j.Tenant) != big {
			seen.add(time.Since(j.Args.At))
		}
		return wait(ctx, o.took)
	})
	metrics := prometheus.NewRegistry()
	n, err := b.node(registry, tenure.WithMetrics(metrics))
	if err != nil {
		return r, err
	}
	if err := n.Start(ctx); err != nil {
		return r, err
	}
	end := sync.OnceValue(func() error { return stop(n, b.cfg) })
	defer func() { err = errors.Join(err, end()) }()

	b.tenants = others // for the load: the backlog is enqueued by itself
	l := b.load(n.Client(), o.every, func(int) job.Args { return stamped{time.Now()} })
	l.start()
	defer l.stop()
	if err := wait(ctx, warmUp); err != nil {
		return r, err
	}
	if r.Alone, err = seen.measure(ctx, o.window, "alone"); err != nil {
		return r, err
	}
	if err := b.enqueue(ctx, []tenancy.ID{big}, o.backlog, func(int) job.Args { return stamped{} }); err != nil {
		return r, err
	}
	if err := b.exec(ctx, b.pools[0], "ANALYZE; CHECKPOINT"); err != nil {
		return r, err
	}
	claimedBefore, err := readHistogram(metrics, "tenure_claim_seconds")
	bigFinished := func() (n int) {
		if err == nil {
			err = b.ask(ctx, b.pools[0], "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = '"+string(big)+"'", &n)
		}
		return n
	}
	before, began := bigFinished(), time.Now()
	if err == nil {
		r.Beside, err = seen.measure(ctx, o.window, "beside one with many")
	}
	r.Rate = math.Round(float64(bigFinished()-before) / time.Since(began).Seconds())
	if err != nil {
		return r, err
	}
	claimed, err := readHistogram(metrics, "tenure_claim_seconds")
	if err != nil {
		return r, err
	}
	r.ClaimP99 = claimed.since(claimedBefore).quantile(0.99)
	l.stop()
	// What the others enqueued last is to be finished; the backlog need not be, but all of it there.
	err = until(ctx, time.Minute, "jobs of the others were left", func() (bool, error) {
		var left int
		err := b.ask(ctx, b.pools[0], "SELECT count(*) FROM tenure.job WHERE tenant_id <> '"+string(big)+"'", &left)
		return left == 0, err
	})
	if err = errors.Join(err, l.last); err == nil {
		err = end()
	}
	if err != nil {
		return r, err
	}
	p, err := l.prove(ctx)
	if err != nil {
		return r, err
	}
	var there int
	err = b.ask(ctx, b.pools[0], "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(DISTINCT id) FROM tenure.completed_job WHERE tenant_id = '"+string(big)+"')", &there)
	r.Scenario, r.Backlog, r.Tenants, r.TookMs = "crowd", o.backlog, o.tenants, 1000*o.took.Seconds()
	r.Ratio = math.Round(100*r.Beside/r.Alone) / 100
	r.Enqueued, r.Finished, r.Lost, r.Doubled = l.enqueued(), p.finished, p.lost+o.backlog-there, p.doubled
	return r, err
}
