package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/cmd/tenure/internal/demo"
)

// commands make the subcommands, in the order of the help.
var commands = []func(*app) *cobra.Command{
	newServe,
	newDemo,
	newDemoNode,
	newMigrate,
	newEnqueue,
	newJobs,
	newLocks,
	newPools,
	newTenants,
	newNodes,
	newConfig,
	newReload,
	newVersion,
}

func newDemo(*app) *cobra.Command     { return demo.Command() }
func newDemoNode(*app) *cobra.Command { return demo.NodeCommand() }

func main() {
	ctx := untilSignal(context.Background())
	os.Exit(run(ctx, os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// sameSignal is how long further signals are taken for the first one: a terminal and a
// supervisor send it to the whole group of processes, and each passes it on once more.
const sameSignal = time.Second

// untilSignal returns a context that the first SIGINT or SIGTERM ends. One that comes a
// second later or more ends the process, for whoever cannot wait for handlers to finish.
func untilSignal(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		heed(signals, cancel)
		fmt.Fprintln(os.Stderr, "tenure: second signal: ended without stopping; jobs that were running run again once this node's session expires")
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
