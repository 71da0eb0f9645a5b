package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/tenancy"
)

type crowdOptions struct {
	name                    string
	backlog, tenants, pools int
	heavy, queues, unfold   int
	took, others            time.Duration
	every, window           time.Duration
	disk                    bool
}

type crowdResult struct {
	Scenario       string  `json:"scenario"`
	Heavy          int     `json:"heavy"`   // tenants with a backlog
	Backlog        int     `json:"backlog"` // jobs of theirs
	Queues         int     `json:"queues"`  // that these are in
	Unfold         int     `json:"unfold_mib,omitempty"`
	Tenants        int     `json:"tenants"` // the others
	Pools          int     `json:"pools"`
	TookMs         float64 `json:"took_ms"`
	OthersTookMs   float64 `json:"others_took_ms"`
	Alone          float64 `json:"p99_alone_ms"` // from enqueuing to start, of the others' jobs
	Beside         float64 `json:"p99_ms"`       // beside those with a backlog
	Ratio          float64 `json:"p99_ratio"`
	ClaimP99       float64 `json:"claim_p99_ms"`    // reading a page of jobs and committing its claim
	Rate           float64 `json:"jobs_per_second"` // of those with a backlog, meanwhile
	report.Outcome         // of the others, but lost is of all
}

func newCrowd() *cobra.Command {
	o := crowdOptions{name: "crowd", heavy: 1, queues: 1, backlog: 200_000, tenants: 100, took: 20 * time.Millisecond, others: 20 * time.Millisecond}
	return crowdCommand("Give one tenant or more a huge backlog, and measure how long the other tenants' few jobs wait", &o)
}

func newFairness() *cobra.Command {
	o := crowdOptions{name: "fairness", heavy: 1, queues: 1, backlog: 100_000, tenants: 50, took: time.Second}
	return crowdCommand("Give one tenant or more a huge backlog of slow jobs, and measure how long the other tenants' instant jobs wait", &o)
}

func crowdCommand(short string, o *crowdOptions) *cobra.Command {
	c := scenario(o.name, short, o, crowd)
	c.Flags().IntVar(&o.backlog, "backlog", o.backlog, "waiting jobs, of the heavy tenants together")
	c.Flags().IntVar(&o.heavy, "heavy", o.heavy, "tenants with a huge backlog")
	c.Flags().IntVar(&o.queues, "queues", o.queues, "queues that each heavy tenant has its jobs in, one after another; 1: the default one")
	c.Flags().IntVar(&o.unfold, "unfold", 0, "MiB that each payload of a heavy tenant is printed as, added by SQL; 0: they are small")
	c.Flags().IntVar(&o.tenants, "tenants", o.tenants, "other tenants")
	c.Flags().IntVar(&o.pools, "pools", 1, "pools, over which the tenants are spread")
	c.Flags().DurationVar(&o.took, "took", o.took, "how long each job of a heavy tenant takes")
	c.Flags().DurationVar(&o.others, "others", o.others, "how long each job of the others takes")
	c.Flags().DurationVar(&o.every, "every", 5*time.Millisecond, "how often one of the others enqueues a job")
	c.Flags().DurationVar(&o.window, "window", 12*time.Second, "length of each measurement")
	c.Flags().BoolVar(&o.disk, "disk", false, "keep the database on disk")
	return c
}

// crowd runs one node with the default settings, first with the few jobs of many, then
// with all its workers wanted by the heavy ones besides.
func crowd(ctx context.Context, o crowdOptions) (r crowdResult, err error) {
	if o.backlog < 1 || o.heavy < 1 || o.queues < 1 || o.tenants < 1 || o.pools < 1 || o.took <= 0 || o.others < 0 || o.every <= 0 || o.window <= 0 {
		return r, errors.New("backlog, heavy, queues, tenants, pools, took, every and window must be more than 0, and others not less")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true, InMemory: !o.disk, MaxConnections: max(200, 40*o.pools)}, o.pools, o.tenants+o.heavy)
	if err != nil {
		return r, err
	}
	defer b.Close()
	heavy, others := b.Tenants[:o.heavy], b.Tenants[o.heavy:]
	var seen report.Delays
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, j *job.Job[stamped]) error {
		if slices.Contains(heavy, tenancy.ID(j.Tenant)) {
			return wait.For(ctx, o.took)
		}
		seen.Add(time.Since(j.Args.At))
		return wait.For(ctx, o.others)
	})
	metrics := prometheus.NewRegistry()
	n, end, err := b.RunNode(ctx, registry, tenure.WithMetrics(metrics))
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()

	first := o.heavy % o.pools
	b.Tenants, b.Pools = others, slices.Concat(b.Pools[first:], b.Pools[:first]) // for the load: the backlog is enqueued by itself
	l := bed.StartLoad(b, n.Client(), o.every*time.Duration(o.pools), func(int) job.Args { return stamped{time.Now()} })
	defer l.Stop()
	if err := inTurn(ctx, pause(warmUp), seen.Measure(o.window, "alone", &r.Alone)); err != nil {
		return r, err
	}
	if o.unfold > 0 {
		for i, id := range heavy {
			if err := b.Exec(ctx, b.Config.Tenants.Static[id].Pool, fmt.Sprintf(`INSERT INTO tenure.job (tenant_id, queue, kind, payload)
				SELECT '%s', 'default', '%s', jsonb_build_object('data', repeat('x', %d << 20)) FROM generate_series(%d, %d, %d)`,
				id, stamped{}.Kind(), o.unfold, i+1, o.backlog, o.heavy)); err != nil {
				return r, err
			}
		}
	} else if err := b.Enqueue(ctx, heavy, o.backlog, func(int) job.Args { return stamped{} }, func(i int) tenure.Option {
		if o.queues == 1 {
			return tenure.OnQueue(job.DefaultQueue)
		}
		return tenure.OnQueue(fmt.Sprintf("a%06d", i/o.heavy%o.queues)) // before that of the others
	}); err != nil {
		return r, err
	}
	for _, pool := range b.Pools {
		if err := b.Exec(ctx, pool, "ANALYZE; CHECKPOINT"); err != nil {
			return r, err
		}
	}
	claimedBefore, err := report.ReadHistogram(metrics, "tenure_claim_seconds")
	// count asks all pools for a number.
	count := func(sql string) (all int) {
		for _, pool := range b.Pools {
			var n int
			if err == nil {
				err = b.Ask(ctx, pool, sql, &n)
			}
			all += n
		}
		return all
	}
	names := make([]string, len(heavy))
	for i, id := range heavy {
		names[i] = "'" + string(id) + "'"
	}
	ofOthers := "tenant_id NOT IN (" + strings.Join(names, ", ") + ")"
	const finished = "SELECT count(DISTINCT id) FROM tenure.completed_job WHERE NOT "
	before, began := count(finished+ofOthers), time.Now()
	if err == nil {
		err = seen.Measure(o.window, "beside those with many", &r.Beside)(ctx)
	}
	r.Rate = report.Round(float64(count(finished+ofOthers)-before)/time.Since(began).Seconds(), 0)
	if err != nil {
		return r, err
	}
	claimed, err := report.ReadHistogram(metrics, "tenure_claim_seconds")
	if err != nil {
		return r, err
	}
	r.ClaimP99 = claimed.Since(claimedBefore).Quantile(0.99)
	l.Stop()
	// What the others enqueued last is to be finished; the backlog need not be, but all of it there.
	err = wait.Until(ctx, time.Minute, "jobs of the others were left", func() (bool, error) {
		return count("SELECT count(*) FROM tenure.job WHERE "+ofOthers) == 0, err
	})
	if err = errors.Join(err, l.Last); err == nil {
		err = end()
	}
	if err != nil {
		return r, err
	}
	if r.Outcome, _, err = l.Prove(ctx); err != nil {
		return r, err
	}
	there := count(finished+ofOthers) + count("SELECT count(*) FROM tenure.job") + count("SELECT count(*) FROM tenure.dead_letter_job")
	r.Unfold = o.unfold
	r.Scenario, r.Heavy, r.Backlog, r.Queues, r.Tenants, r.Pools = o.name, o.heavy, o.backlog, o.queues, o.tenants, o.pools
	r.TookMs, r.OthersTookMs = 1000*o.took.Seconds(), 1000*o.others.Seconds()
	r.Ratio = report.Round(r.Beside/r.Alone, 2)
	r.Lost += o.backlog - there
	return r, err
}
