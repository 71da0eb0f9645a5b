// Command peers measures River, the job queue on Postgres that comes closest to Tenure, and
// the queues of DBOS, at what `loadtest compare` measures of Tenure: it is built and started
// by that, for each measurement again, on an empty database. It is a module of its own, so
// that no user of Tenure inherits what it needs.
//
// Its last line is a JSON object.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"runtime/debug"
	"syscall"
	"time"
)

// options are what is to be measured.
type options struct {
	peer     string        // river or dbos
	what     string        // drain, enqueue, tx, latency, or insert: the other process of latency
	dsn      string        // of a database that is the peer's own
	defaults bool          // River's settings, instead of those that it does best with
	jobs     int           // of drain, enqueue and tx
	batch    int           // jobs that are inserted at once
	conns    int           // connections of the process
	apart    bool          // latency: jobs are inserted by another process
	every    time.Duration // latency: between two jobs
	warmUp   time.Duration // latency: before the window
	window   time.Duration // latency: in which jobs are inserted that count
}

// measured is what is printed.
type measured struct {
	Version   string  `json:"version"` // the peer's
	PerSecond float64 `json:"per_second,omitempty"`
	P50       float64 `json:"p50_ms,omitempty"`
	P99       float64 `json:"p99_ms,omitempty"`
}

func main() {
	var o options
	flag.StringVar(&o.peer, "peer", "river", "river or dbos")
	flag.StringVar(&o.what, "what", "", "drain, enqueue, tx, latency or insert")
	flag.StringVar(&o.dsn, "dsn", "", "database of the peer's own")
	flag.BoolVar(&o.defaults, "defaults", false, "River's default settings")
	flag.IntVar(&o.jobs, "jobs", 0, "jobs of drain, enqueue and tx")
	flag.IntVar(&o.batch, "batch", 20_000, "jobs that are inserted at once")
	flag.IntVar(&o.conns, "conns", 24, "connections of the process")
	flag.BoolVar(&o.apart, "apart", false, "latency: insert from another process")
	flag.DurationVar(&o.every, "every", 10*time.Millisecond, "latency: between two jobs")
	flag.DurationVar(&o.warmUp, "warm-up", 0, "latency: before the window")
	flag.DurationVar(&o.window, "window", time.Second, "latency: in which jobs count")
	flag.Parse()
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "peers:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) error {
	b, err := newBench(ctx, o)
	if err != nil {
		return err
	}
	defer b.pool.Close()
	var m measured
	switch o.what {
	case "drain", "tx":
		m.PerSecond, err = b.workOff(ctx)
	case "enqueue":
		m.PerSecond, err = b.enqueue(ctx)
	case "latency":
		m.P50, m.P99, err = b.latency(ctx)
	case "insert":
		err = b.insert(ctx)
	default:
		err = fmt.Errorf("-what %q: drain, enqueue, tx, latency or insert is wanted", o.what)
	}
	if err != nil {
		return err
	}
	m.Version = version(b.on.module())
	return json.NewEncoder(os.Stdout).Encode(m)
}

// version is a module's.
func version(module string) string {
	info, _ := debug.ReadBuildInfo() // nil only in a program that was not built by Go's modules
	for _, m := range info.Deps {
		if m.Path == module {
			return m.Version
		}
	}
	return "unknown"
}
