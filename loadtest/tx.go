package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"runtime/pprof"
	"slices"
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

type txOptions struct {
	jobs, batch int
	tenants     []int
	cpuprofile  string
}

type txResult struct {
	Scenario string  `json:"scenario"`
	Jobs     int     `json:"jobs"`
	Batch    int     `json:"batch"`
	Rows     []txRow `json:"rows"`
}

// txRow is what was measured with so many tenants.
type txRow struct {
	Tenants         int     `json:"tenants"`
	JobsPerSecond   int     `json:"jobs_per_second"`
	OfFirst         float64 `json:"ratio_to_first"`
	ClientMs        float64 `json:"client_cpu_ms_per_job,omitempty"`
	ClientBytes     int     `json:"client_bytes_per_job"` // allocated
	PostgresMs      float64 `json:"postgres_cpu_ms_per_job,omitempty"`
	JobsPerClaim    float64 `json:"jobs_per_claim"`
	JobsPerCall     float64 `json:"jobs_per_call"`
	LimitPerSecond  int     `json:"limit_per_second"` // the prototype's
	LimitClientMs   float64 `json:"limit_client_cpu_ms_per_job,omitempty"`
	LimitBytes      int     `json:"limit_client_bytes_per_job"`
	LimitPostgresMs float64 `json:"limit_postgres_cpu_ms_per_job,omitempty"`
	Ratio           float64 `json:"ratio_to_limit"`
	Lost            int64   `json:"lost"`
	Doubled         int     `json:"doubled"`
}

func (r txResult) Fault() (err error) {
	for _, row := range r.Rows {
		err = errors.Join(err, report.Lost(row.Lost, row.Doubled))
	}
	return err
}

func newTx() *cobra.Command {
	var o txOptions
	c := scenario("tx", "Work off jobs that insert one row of their tenant's in their transaction, beside a prototype", &o, runTx)
	c.Flags().IntVar(&o.jobs, "jobs", 30_000, "jobs of each of the two")
	c.Flags().IntSliceVar(&o.tenants, "tenants", []int{100}, "how many tenants share the jobs equally; of several numbers each is measured, with databases of its own")
	c.Flags().IntVar(&o.batch, "batch", 1, "jobs of a tenant that may share a transaction; 1: the handler is one of single jobs")
	c.Flags().StringVar(&o.cpuprofile, "cpuprofile", "", "write a CPU profile of the node to this file, of the last number of tenants")
	return c
}

// runTx has the same jobs worked off by each number of tenants.
func runTx(ctx context.Context, o txOptions) (r txResult, err error) {
	if o.jobs < 1 || len(o.tenants) == 0 || slices.Min(o.tenants) < 1 || o.batch < 1 {
		return r, errors.New("jobs, tenants and batch must be more than 0")
	}
	r = txResult{Scenario: "tx", Jobs: o.jobs, Batch: o.batch}
	for _, tenants := range o.tenants {
		row, err := measureTx(ctx, o, tenants)
		if err != nil {
			return r, err
		}
		r.Rows = append(r.Rows, row)
		r.Rows[len(r.Rows)-1].OfFirst = math.Round(100*float64(row.JobsPerSecond)/float64(r.Rows[0].JobsPerSecond)) / 100
	}
	return r, nil
}

// measureTx runs the prototype first, then a node: one pool, default settings.
func measureTx(ctx context.Context, o txOptions, tenants int) (r txRow, err error) {
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, 1, tenants)
	if err != nil {
		return r, err
	}
	defer b.Close()
	postgres, err := postmaster(ctx, b)
	if err != nil {
		return r, err
	}
	if err := prepareTx(ctx, b, o.jobs); err != nil {
		return r, err
	}
	limit, err := measure(postgres, func() error { return prototypeTx(o.jobs, o.batch, tenants).run(ctx, b) })
	if err != nil {
		return r, err
	}
	ours, per, err := nodeTx(ctx, b, postgres, o)
	if err != nil {
		return r, err
	}
	kept, effects, err := countEnded(ctx, b)
	if err != nil {
		return r, err
	}
	all := int64(2 * o.jobs)
	return txRow{
		Tenants:       tenants,
		JobsPerSecond: ours.perSecond(o.jobs), ClientMs: ours.client(o.jobs), ClientBytes: ours.bytes(o.jobs), PostgresMs: ours.server(o.jobs),
		JobsPerClaim: per.claim, JobsPerCall: per.call,
		LimitPerSecond: limit.perSecond(o.jobs), LimitClientMs: limit.client(o.jobs), LimitBytes: limit.bytes(o.jobs), LimitPostgresMs: limit.server(o.jobs),
		Ratio: math.Round(100*limit.took.Seconds()/ours.took.Seconds()) / 100,
		Lost:  max(all-kept, all-effects, 0), Doubled: int(max(effects-all, 0)),
	}, nil
}

// countEnded counts the finished jobs, and the rows that handlers have inserted.
func countEnded(ctx context.Context, b *bed.Bed) (kept, effects int64, err error) {
	conn, err := b.Connect(ctx, b.Pools[0])
	if err != nil {
		return 0, 0, err
	}
	defer conn.Close(ctx)
	err = conn.QueryRow(ctx, "SELECT count(*) FROM tenure.completed_job").Scan(&kept)
	for _, t := range b.Tenants {
		var n int64
		err = errors.Join(err, conn.QueryRow(ctx, fmt.Sprintf("SELECT count(*) FROM %s.effect", t)).Scan(&n))
		effects += n
	}
	return kept, effects, err
}

// nodeTx has a node do it.
func nodeTx(ctx context.Context, b *bed.Bed, postgres int, o txOptions) (s spent, per jobsPer, err error) {
	if err := prepareTx(ctx, b, o.jobs); err != nil {
		return s, per, err
	}
	var ended atomic.Int64
	allEnded := make(chan struct{})
	registry := job.NewRegistry()
	end := func(jobs int, err error) error {
		if err == nil && ended.Add(int64(jobs)) == int64(o.jobs) {
			close(allEnded)
		}
		return err
	}
	if o.batch > 1 {
		tenure.HandleBatchTx(registry, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[order]) error {
			ids := make([]job.ID, len(batch.Jobs))
			for i, j := range batch.Jobs {
				ids[i] = j.ID
			}
			_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) SELECT unnest($1::bigint[])", ids)
			return end(len(ids), err)
		}, job.MaxBatch(o.batch))
	} else {
		tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, j *job.Job[order]) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
			return end(1, err)
		})
	}
	metrics := prometheus.NewRegistry()
	if o.cpuprofile != "" {
		f, err := os.Create(o.cpuprofile)
		if err != nil {
			return s, per, err
		}
		defer f.Close()
		if err := pprof.StartCPUProfile(f); err != nil {
			return s, per, err
		}
		defer pprof.StopCPUProfile()
	}
	var stop func() error
	s, err = measure(postgres, func() (err error) {
		if _, stop, err = b.RunNode(ctx, registry, tenure.WithMetrics(metrics)); err != nil {
			return err
		}
		return untilEmpty(ctx, b, allEnded, 10*time.Minute)
	})
	if stop != nil {
		err = errors.Join(err, stop())
	}
	if err != nil {
		return s, per, err
	}
	for name, of := range map[string]*float64{"tenure_claim_seconds": &per.claim, "tenure_job_run_seconds": &per.call} {
		times, err := report.ReadHistogram(metrics, name)
		if err != nil {
			return s, per, err
		}
		*of = math.Round(10*float64(o.jobs)/float64(max(times.Count(), 1))) / 10
	}
	return s, per, nil
}

// jobsPer is how many jobs a claim had, and a call of the handler.
type jobsPer struct{ claim, call float64 }

// prepareTx enqueues jobs, and has Postgres know how many there are.
func prepareTx(ctx context.Context, b *bed.Bed, jobs int) error {
	if err := b.Enqueue(ctx, b.Tenants, jobs, func(n int) job.Args { return newOrder(n) }); err != nil {
		return err
	}
	return b.Exec(ctx, "pool-1", "ANALYZE; CHECKPOINT")
}
