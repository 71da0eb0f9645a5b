package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
	_ "time/tzdata" // schedules need time zones, which the image that this runs in may not have
)

func main() {
	ctx := untilSignal(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// sameSignal is how long further signals are taken for the first one: a terminal and a
// supervisor send it to the whole group of processes, and each passes it on once more.
const sameSignal = time.Second

// untilSignal returns a context that the first SIGINT or SIGTERM ends. One that comes a
// second later or more ends the process, for those who cannot wait for handlers to finish.
func untilSignal(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		heed(signals, cancel)
		fmt.Fprintln(os.Stderr, "tenure: second signal: exiting without a clean stop; running jobs will run again once this node's session has expired")
		os.Exit(exitFailed)
	}()
	return ctx
}

// heed calls stop at the first signal, and returns at one that is another.
func heed(signals <-chan os.Signal, stop func()) {
	<-signals
	first := time.Now()
	stop()
	for range signals {
		if time.Since(first) >= sameSignal {
			return
		}
	}
}
