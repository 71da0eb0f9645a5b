package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/tenancy"
)

// What the tenants that share by weight have to do: enough for it to show, whatever the other parts
// have. What is claimed ahead is a tenth of a second of work.
const (
	mostWeighted = 40 // tenants
	weightedJobs = 100_000
	weightedTook = 5 * time.Millisecond
)

// weighted is the part in which tenants that have as much to do as each other share by weight.
type weighted struct {
	bed     *bed.Bed
	pool    string
	tenants []tenancy.ID

	weights map[tenancy.ID]int64
	started map[tenancy.ID]*atomic.Int64
}

// measure returns Jain's index of what each tenant got for its weight while all of them had work.
func (w *weighted) measure(ctx context.Context) (jain float64, err error) {
	const heaviest = 5
	rng := rand.New(rand.NewPCG(3, 4))
	for _, id := range w.tenants {
		w.weights[id], w.started[id] = 1+rng.Int64N(heaviest), &atomic.Int64{}
		sql := fmt.Sprintf("INSERT INTO tenure.tenant (tenant_id, weight) VALUES ('%s', %d)", id, w.weights[id])
		if err := w.bed.Exec(ctx, w.pool, sql); err != nil {
			return 0, err
		}
	}
	if err := w.bed.Enqueue(ctx, w.tenants, weightedJobs, func(n int) job.Args { return newOrder(n) }); err != nil {
		return 0, err
	}
	var starts atomic.Int64
	var mu sync.Mutex
	before := map[tenancy.ID]int64{} // guarded by mu
	early := make(chan float64, 1)   // when none of them can have started all of its jobs
	registry := job.NewRegistry()
	job.Handle(registry, func(ctx context.Context, j *job.Job[order]) error {
		w.started[tenancy.ID(j.Tenant)].Add(1)
		switch starts.Add(1) {
		case weightedJobs / heaviest / 4: // from here on it is known how long a job takes
			mu.Lock()
			for id, n := range w.started {
				before[id] = n.Load()
			}
			mu.Unlock()
		case weightedJobs / heaviest:
			mu.Lock()
			early <- w.jain(before)
			mu.Unlock()
		}
		return wait.For(ctx, weightedTook)
	})
	_, end, err := w.bed.RunNode(ctx, registry)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, end()) }()
	select {
	case jain = <-early:
		return jain, nil
	case <-ctx.Done():
		return 0, context.Cause(ctx)
	}
}

func (w *weighted) jain(before map[tenancy.ID]int64) float64 {
	sum, squares := 0.0, 0.0
	for _, id := range w.tenants {
		x := float64(w.started[id].Load()-before[id]) / float64(w.weights[id])
		sum, squares = sum+x, squares+x*x
	}
	return report.Round(sum*sum/(float64(len(w.tenants))*squares), 4)
}
