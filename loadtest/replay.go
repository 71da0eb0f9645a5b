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

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/traffic"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// replayed is one call of a recording.
type replayed struct {
	Function string        `json:"function"`
	Took     time.Duration `json:"took"`
	Enqueued time.Time     `json:"enqueued"` // just before the call to Enqueue
}

// Kind implements job.Args.
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
	c := &cobra.Command{
		Use:   "replay FILE",
		Short: "Replay a recorded trace: arrivals and durations as they were, faster",
		Long: "Replays a trace in the format of the Azure Functions Invocation Trace 2021 (an application is a tenant)\n" +
			"or of the Azure LLM Inference Trace 2023. Both are published by Microsoft under CC BY 4.0.",
		Args: cobra.ExactArgs(1),
	}
	c.Flags().Float64Var(&o.speed, "speed", 60, "how many times faster than it was recorded")
	c.Flags().IntVar(&o.pools, "pools", 2, "databases that the tenants are spread over")
	c.Flags().IntVar(&o.limit, "limit", 0, "replay only so many calls (0: all)")
	return scenario(c, func(ctx context.Context, args []string) (replayResult, error) {
		o.file = args[0]
		return replay(ctx, o)
	})
}

func (r replayResult) fault() error { return lost(r.Lost, r.Doubled) }

func replay(ctx context.Context, o replayOptions) (r replayResult, err error) {
	if !(o.speed > 0) || math.IsInf(o.speed, 0) {
		return r, fmt.Errorf("--speed %v: more than 0 is needed", o.speed)
	}
	calls, err := traffic.Read(o.file)
	if err != nil {
		return r, err
	}
	if o.limit > 0 {
		calls = calls[:min(o.limit, len(calls))]
	}
	names := traffic.Tenants(calls)
	b, err := newBed(ctx, o.pools, len(names))
	if err != nil {
		return r, err
	}
	defer b.close()
	tenants := map[string]tenancy.ID{}
	for i, name := range names {
		tenants[name] = b.tenants[i]
	}

	w := &watch{runs: map[job.ID]int{}}
	registry := job.NewRegistry()
	job.Handle(registry, w.handle)
	n, err := b.node(registry)
	if err != nil {
		return r, err
	}
	if err := n.Start(ctx); err != nil {
		return r, err
	}
	if err := untilHeld(ctx, n); err != nil {
		return r, errors.Join(err, stop(n, b.cfg))
	}
	span := calls[len(calls)-1].At
	fmt.Fprintf(os.Stderr, "%d calls of %d tenants over %v, %g times faster\n", len(calls), len(names), span.Round(time.Second), o.speed)

	began := time.Now()
	err = replayCalls(ctx, n.Client(), calls, tenants, o.speed)
	if err == nil {
		err = untilFinished(ctx, n.Client(), int64(len(calls)))
	}
	took := time.Since(began)
	finished := int64(0)
	counts, countErr := n.Client().Count(ctx)
	for _, c := range counts {
		finished += c.Finished
	}
	if err = errors.Join(err, countErr, stop(n, b.cfg)); err != nil {
		return r, err
	}
	return replayResult{
		Scenario: "replay", File: o.file, Speed: o.speed, Jobs: len(calls), Tenants: len(names), Pools: o.pools,
		Seconds: math.Round(took.Seconds()*1000) / 1000, StartP50ms: w.percentile(0.50), StartP99ms: w.percentile(0.99),
		Finished: finished, Lost: int64(len(calls)) - finished, Doubled: w.doubled(),
	}, nil
}

// untilHeld waits until the node holds every lock, so that its start is not measured.
func untilHeld(ctx context.Context, n *tenure.Node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 30*time.Second, errors.New("the locks were not held after 30 s"))
	defer cancel()
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for {
		held := true
		for _, l := range n.Locks() {
			held = held && l.Holding
		}
		if held {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
}

// replayers is how many enqueue at a time, so that bursts arrive as bursts.
const replayers = 8

func replayCalls(ctx context.Context, c *tenure.Client, calls []traffic.Call, tenants map[string]tenancy.ID, speed float64) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	due := make(chan traffic.Call)
	var group sync.WaitGroup
	for range replayers {
		group.Go(func() {
			for call := range due {
				args := replayed{Function: call.Kind, Took: scaled(call.Took, speed), Enqueued: time.Now()}
				if _, err := c.Enqueue(tenancy.For(ctx, tenants[call.Tenant]), args); err != nil {
					cancel(err)
				}
			}
		})
	}
	began := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
feed:
	for _, call := range calls {
		timer.Reset(scaled(call.At, speed) - time.Since(began))
		select {
		case <-timer.C:
		case <-ctx.Done():
			break feed
		}
		select {
		case due <- call:
		case <-ctx.Done():
			break feed
		}
	}
	close(due)
	group.Wait()
	return context.Cause(ctx)
}

func scaled(d time.Duration, speed float64) time.Duration {
	return time.Duration(float64(d) / speed)
}

// untilFinished waits until as many jobs are finished as were enqueued.
func untilFinished(ctx context.Context, c *tenure.Client, want int64) error {
	ctx, cancel := context.WithTimeoutCause(ctx, 10*time.Minute, errors.New("not finished after 10 minutes"))
	defer cancel()
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	for {
		counts, err := c.Count(ctx)
		if err != nil {
			return err
		}
		done := int64(0)
		for _, n := range counts {
			done += n.Finished + n.Dead
		}
		if done >= want {
			return nil
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-tick.C:
		}
	}
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
	t := time.NewTimer(j.Args.Took)
	defer t.Stop()
	select {
	case <-t.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
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

// percentile of the times to start, in ms.
func (w *watch) percentile(p float64) float64 {
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.starts) == 0 {
		return 0
	}
	slices.Sort(w.starts)
	at := w.starts[min(len(w.starts)-1, int(p*float64(len(w.starts))))]
	return math.Round(float64(at.Microseconds())/10) / 100
}
