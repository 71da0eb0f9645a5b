package main

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"

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

// untilSignal returns a context that the first SIGINT or SIGTERM ends. The second
// ends the process, for whoever cannot wait for handlers to finish.
func untilSignal(parent context.Context) context.Context {
	ctx, cancel := context.WithCancel(parent)
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, os.Interrupt, syscall.SIGTERM)
	go func() {
		<-signals
		cancel()
		<-signals
		fmt.Fprintln(os.Stderr, "tenure: second signal: ended without stopping; jobs that were running run again once this node's session expires")
		os.Exit(exitFailed)
	}()
	return ctx
}
