package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
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

type limitsOptions struct {
	jobs, tenants int
	took          time.Duration
	takeEvery     time.Duration
}

type limitsResult struct {
	Scenario string  `json:"scenario"`
	Jobs     int     `json:"jobs"` // in each of the two parts
	Tenants  int     `json:"tenants"`
	TookMs   float64 `json:"handler_ms"`
	Without  float64 `json:"jobs_per_second_without_limits"` // until half of the jobs had started
	With     float64 `json:"jobs_per_second_with_limits"`
	Ratio    float64 `json:"ratio"`
	Starts   int64   `json:"starts_with_limits"`
	Exceeded int64   `json:"starts_beyond_a_limit"`
	Takes    int64   `json:"locks_taken_again"`
	Lost     int64   `json:"lost"`
	Jain     float64 `json:"jain_index_of_weighted_shares"`
}

func newLimits() *cobra.Command {
	var o limitsOptions
	c := scenario("limits", "Work off a backlog of many tenants, some with much more than others, without limits and then with one for each, while the lock is taken again and again; and see how some share by weight", &o, limits)
	c.Flags().IntVar(&o.jobs, "jobs", 100_000, "jobs in each part")
	c.Flags().IntVar(&o.tenants, "tenants", 1000, "tenants in each part; the n-th has in proportion to 1/n of the jobs")
	c.Flags().DurationVar(&o.took, "took", 2*time.Millisecond, "how long each job takes")
	c.Flags().DurationVar(&o.takeEvery, "take-every", 10*time.Second, "how often the lock is taken from its holder")
	return c
}

func (r limitsResult) Fault() error {
	if r.Exceeded > 0 {
		return fmt.Errorf("%d jobs ran beyond a limit of their tenant's", r.Exceeded)
	}
	if r.Jain < leastJain {
		return fmt.Errorf("tenants do not share by weight: Jain's index of what each got for its weight is %v, and not %v at least", r.Jain, leastJain)
	}
	return report.Lost(r.Lost, 0)
}

// leastJain is how equal what tenants got for their weights has to be; 1: all got the same.
const leastJain = 0.99

// limits has each part on a pool of its own, so that neither meets what the other left.
func limits(ctx context.Context, o limitsOptions) (r limitsResult, err error) {
	if o.jobs < 2 || o.tenants < 1 || o.took <= 0 || o.takeEvery <= 0 {
		return r, errors.New("jobs must be 2 or more, and tenants, took and take-every more than 0")
	}
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, 2, 2*o.tenants)
	if err != nil {
		return r, err
	}
	defer b.Close()
	r = limitsResult{Scenario: "limits", Jobs: o.jobs, Tenants: o.tenants, TookMs: 1000 * o.took.Seconds()}
	for part, rate := range []*float64{&r.Without, &r.With} {
		p := limited{bed: b, pool: b.Pools[part], limits: part == 1, most: map[tenancy.ID]int64{}, running: map[tenancy.ID]*atomic.Int64{}, half: make(chan struct{})}
		for i := part; i < 2*o.tenants; i += 2 {
			p.tenants = append(p.tenants, b.Tenants[i])
		}
		if *rate, err = p.measure(ctx, o); err != nil {
			return r, err
		}
		fmt.Fprintf(os.Stderr, "%s: %.0f jobs/s\n", p.pool, *rate)
		var finished int64
		if err := b.Ask(ctx, p.pool, "SELECT count(DISTINCT id) FROM tenure.completed_job", &finished); err != nil {
			return r, err
		}
		r.Lost += int64(o.jobs) - finished
		r.Starts, r.Exceeded, r.Takes = p.starts.Load(), p.exceeded.Load(), p.takes.Load()
	}
	r.Ratio = report.Round(r.With/r.Without, 3)
	w := weighted{bed: b, pool: b.Pools[0], weights: map[tenancy.ID]int64{}, started: map[tenancy.ID]*atomic.Int64{}}
	for i := 0; i < len(b.Tenants) && len(w.tenants) < mostWeighted; i += 2 {
		w.tenants = append(w.tenants, b.Tenants[i])
	}
	r.Jain, err = w.measure(ctx)
	return r, err
}

// limited is one part.
type limited struct {
	bed     *bed.Bed
	pool    string
	tenants []tenancy.ID
	limits  bool

	most    map[tenancy.ID]int64
	running map[tenancy.ID]*atomic.Int64
	half    chan struct{}

	starts, exceeded, takes atomic.Int64
}

// measure returns how many jobs are started in a second while more than half of them wait.
func (p *limited) measure(ctx context.Context, o limitsOptions) (rate float64, err error) {
	rng := rand.New(rand.NewPCG(1, 2))
	zipf := rand.NewZipf(rng, 1.01, 1, uint64(len(p.tenants)-1))
	drawn := make([]tenancy.ID, o.jobs)
	for i := range drawn {
		drawn[i] = p.tenants[zipf.Uint64()]
	}
	rows := make([]string, len(p.tenants))
	for i, id := range p.tenants {
		p.most[id], p.running[id] = 1+rng.Int64N(8), &atomic.Int64{}
		rows[i] = fmt.Sprintf("('%s', 'kind', 'order.ship', %d)", id, p.most[id])
	}
	if p.limits {
		if err := p.bed.Exec(ctx, p.pool, "INSERT INTO tenure.job_limit (tenant_id, scope, name, max_running) VALUES "+strings.Join(rows, ", ")); err != nil {
			return 0, err
		}
	}
	if err := p.bed.Enqueue(ctx, drawn, o.jobs, func(n int) job.Args { return newOrder(n) }); err != nil {
		return 0, err
	}
	if err := p.bed.Exec(ctx, p.pool, "ANALYZE; CHECKPOINT"); err != nil {
		return 0, err
	}
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, j *job.Job[order]) error {
		id := tenancy.ID(j.Tenant)
		if n := p.running[id].Add(1); p.limits && n > p.most[id] {
			p.exceeded.Add(1)
		}
		defer p.running[id].Add(-1)
		if p.starts.Add(1) == int64(o.jobs/2) {
			close(p.half)
		}
		return wait.For(ctx, o.took)
	})
	began := time.Now()
	_, end, err := p.bed.RunNode(ctx, registry)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	stop := make(chan struct{})
	defer close(stop)
	failed := make(chan error, 1)
	go func() { failed <- p.takeLocks(ctx, o.takeEvery, stop) }()
	select {
	case <-p.half:
		rate = report.Round(float64(o.jobs/2)/time.Since(began).Seconds(), 0)
	case err := <-failed:
		return 0, err
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
	return rate, wait.Until(ctx, 30*time.Minute, "jobs were left", func() (bool, error) {
		var left bool
		err := p.bed.Ask(ctx, p.pool, "SELECT EXISTS (SELECT FROM tenure.job)", &left)
		return !left, err
	})
}

// takeLocks takes the lock from its holder now and then, in both parts, until stop is closed.
func (p *limited) takeLocks(ctx context.Context, every time.Duration, stop chan struct{}) error {
	for {
		select {
		case <-stop:
			return nil
		case <-time.After(every):
		}
		if err := p.bed.Exec(ctx, p.pool, "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)"); err != nil {
			return err
		}
		p.takes.Add(1)
	}
}
