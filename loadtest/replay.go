package main

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/traffic"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/loadtest/internal/bed"
	"github.com/tenurehq/tenure/loadtest/internal/report"
	"github.com/tenurehq/tenure/tenancy"
)

// replayed is one call of a recording.
type replayed struct {
	Function string        `json:"function"`
	Took     time.Duration `json:"took"`
	Enqueued time.Time     `json:"enqueued"` // just before the call to Enqueue
}

func (replayed) Kind() string { return "replay.call" }

type replayOptions struct {
	file         string
	speed        float64
	pools, limit int
}

type replayResult struct {
	Scenario   string  `json:"scenario"`
	File       string  `json:"file"`
	Speed      float64 `json:"speed"`
	Jobs       int     `json:"jobs"`
	Tenants    int     `json:"tenants"`
	Pools      int     `json:"pools"`
	Seconds    float64 `json:"seconds"`
	StartP50ms float64 `json:"start_p50_ms"` // call of Enqueue → handler starts
	StartP99ms float64 `json:"start_p99_ms"`
	Finished   int64   `json:"finished"`
	Lost       int64   `json:"lost"`
	Doubled    int     `json:"doubled"`
}

func newReplay() *cobra.Command {
	var o replayOptions
	c := scenario("replay FILE", "Replay a recorded trace with its arrivals and durations, faster", &o, replay)
	c.Long = "Replays a trace in the format of the Azure Functions Invocation Trace 2021 (an application is a tenant)\n" +
		"or of the Azure LLM Inference Trace 2023. Both are published by Microsoft under CC BY 4.0."
	c.Args = cobra.ExactArgs(1)
	c.PreRun = func(_ *cobra.Command, args []string) { o.file = args[0] }
	c.Flags().Float64Var(&o.speed, "speed", 60, "how many times faster than recorded")
	c.Flags().IntVar(&o.pools, "pools", 2, "databases; the tenants are spread over them")
	c.Flags().IntVar(&o.limit, "limit", 0, "replay at most this many calls (0: all)")
	return c
}

func (r replayResult) Fault() error { return report.Lost(r.Lost, r.Doubled) }

func replay(ctx context.Context, o replayOptions) (r replayResult, err error) {
	if !(o.speed > 0) || math.IsInf(o.speed, 0) {
		return r, fmt.Errorf("--speed %v: must be more than 0", o.speed)
	}
	calls, err := traffic.Read(o.file)
	if err != nil {
		return r, err
	}
	if o.limit > 0 {
		calls = calls[:min(o.limit, len(calls))]
	}
	names := traffic.Tenants(calls)
	b, err := bed.Start(ctx, devpg.Options{Durable: true}, o.pools, len(names))
	if err != nil {
		return r, err
	}
	defer b.Close()
	tenants := map[string]tenancy.ID{}
	for i, name := range names {
		tenants[name] = b.Tenants[i]
	}

	w := &watch{runs: map[job.ID]int{}}
	registry := job.NewRegistry()
	job.Handle(registry, w.handle)
	n, end, err := b.RunNode(ctx, registry)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, end()) }()
	if err := untilHeld(ctx, n); err != nil {
		return r, err
	}
	span := calls[len(calls)-1].At
	fmt.Fprintf(os.Stderr, "%d calls of %d tenants over %v, %g times faster\n", len(calls), len(names), span.Round(time.Second), o.speed)
	for i, c := range calls {
		calls[i].At, calls[i].Took = time.Duration(float64(c.At)/o.speed), time.Duration(float64(c.Took)/o.speed)
	}

	began := time.Now()
	err = traffic.Play(ctx, calls, func(ctx context.Context, _ int, call traffic.Call) error {
		args := replayed{Function: call.Kind, Took: call.Took, Enqueued: time.Now()}
		_, err := n.Client().Enqueue(tenancy.For(ctx, tenants[call.Tenant]), args)
		return err
	})
	if err == nil {
		err = b.UntilDone(ctx)
	}
	if err != nil {
		return r, err
	}
	r = replayResult{
		Scenario: "replay", File: o.file, Speed: o.speed, Jobs: len(calls), Tenants: len(names), Pools: o.pools,
		Seconds: report.Seconds(time.Since(began)), StartP50ms: report.Percentile(w.starts, 0.50), StartP99ms: report.Percentile(w.starts, 0.99),
		Doubled: w.doubled(),
	}
	counts, err := n.Operator().Pools().Count(ctx)
	for _, c := range counts {
		r.Finished += c.Finished
	}
	r.Lost = int64(len(calls)) - r.Finished
	return r, err
}

// untilHeld waits until the node holds every lock, so that its start is not measured.
func untilHeld(ctx context.Context, n *tenure.Node) error {
	return wait.Until(ctx, 30*time.Second, "the locks were not held", func() (bool, error) {
		held := true
		for _, l := range n.Locks() {
			held = held && l.Holding
		}
		return held, nil
	})
}

// watch is what the handlers saw.
type watch struct {
	mu     sync.Mutex
	runs   map[job.ID]int  // guarded by mu
	starts []time.Duration // guarded by mu; from Enqueue to the handler
}

func (w *watch) handle(ctx context.Context, j *job.Job[replayed]) error {
	late := time.Since(j.Args.Enqueued)
	w.mu.Lock()
	w.runs[j.ID]++
	w.starts = append(w.starts, late)
	w.mu.Unlock()
	return wait.For(ctx, j.Args.Took)
}

// doubled counts runs beyond the first of each job.
func (w *watch) doubled() (n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, runs := range w.runs {
		n += runs - 1
	}
	return n
}
