package report

import (
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/wait"
)

// Delays gathers how long jobs took to start.
type Delays struct {
	mu  sync.Mutex
	all []time.Duration // guarded by mu
}

// Add takes one in.
func (d *Delays) Add(one time.Duration) {
	d.mu.Lock()
	d.all = append(d.all, one)
	d.mu.Unlock()
}

// Take returns what was gathered since the last call.
func (d *Delays) Take() []time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	all := d.all
	d.all = nil
	return all
}

// Measure returns what gathers for a while, says what it saw, and sets the 99th percentile
// in ms.
func (d *Delays) Measure(window time.Duration, what string, p99 *float64) func(context.Context) error {
	return func(ctx context.Context) (err error) {
		d.Take()
		if err = wait.For(ctx, window); err == nil {
			*p99, err = PrintDelays(d.Take(), what)
		}
		return err
	}
}

// Report says what was gathered since the last measurement, and returns the 99th percentile in ms.
func (d *Delays) Report(what string) (p99 float64, err error) { return PrintDelays(d.Take(), what) }

// Forget drops what was gathered.
func (d *Delays) Forget() { d.Take() }

// PrintDelays says how long jobs took to start, and returns the 99th percentile in ms.
func PrintDelays(all []time.Duration, what string) (p99 float64, err error) {
	if len(all) == 0 {
		return 0, errors.New(what + ": no job was started")
	}
	p99 = Percentile(all, 0.99)
	fmt.Fprintf(os.Stderr, "%s: %d jobs, started after %v ms (median), %v ms (99th percentile), %v ms (the last)\n", what, len(all), Percentile(all, 0.5), p99, Percentile(all, 1))
	return p99, nil
}

// Quantile of durations in seconds, rounded to milliseconds; 0 of none.
func Quantile(all []time.Duration, p float64) float64 { return Seconds(quantile(all, p)) }

// Milliseconds is a quantile of durations in whole milliseconds; 0 of none.
func Milliseconds(all []time.Duration, p float64) float64 { return math.Round(1000 * Quantile(all, p)) }

// Percentile is a quantile of durations in milliseconds, to two digits; 0 of none.
func Percentile(all []time.Duration, p float64) float64 {
	return Round(1000*quantile(all, p).Seconds(), 2)
}

func quantile(all []time.Duration, p float64) time.Duration {
	if len(all) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(all))
	return sorted[min(len(sorted)-1, int(p*float64(len(sorted))))]
}

// Seconds is a duration in seconds, to three digits.
func Seconds(d time.Duration) float64 { return Round(d.Seconds(), 3) }

// Round keeps so many digits behind the point.
func Round(x float64, digits int) float64 {
	unit := math.Pow10(digits)
	return math.Round(x*unit) / unit
}

// Share is part of whole, to three digits; 0 of nothing.
func Share(part, whole float64) float64 {
	if whole == 0 {
		return 0
	}
	return Round(part/whole, 3)
}

// Window is a time in which something is counted.
type Window struct{ From, To time.Time }

// Has tells whether a time is in the window.
func (w Window) Has(at time.Time) bool { return !at.Before(w.From) && at.Before(w.To) }

// Seconds is how long the window is.
func (w Window) Seconds() float64 { return w.To.Sub(w.From).Seconds() }
