// Command loadtest drives Tenure as a user would, measures it, and proves that
// nothing was lost. Each scenario brings its own Postgres, with the durability that
// Postgres has by default, and prints one JSON object as its last line with --json.
//
//	go run ./loadtest --help
//	go run ./loadtest drain --jobs 300000 --tenants 100 --json
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/loadtest/internal/fleet"
	"github.com/tenurehq/tenure/loadtest/internal/report"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root := &cobra.Command{
		Use: "loadtest", Short: "Measure Tenure and prove that nothing was lost",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newDrain(), newTx(), newReplay(), newFailover(), newScaleout(), newScale(), newIdle(), newChaos(), newSoak(), newOutage(), newLongTx(), newSnapshot(), newCrowd(), newFairness(), newTimers(), newSchedules(), newList(), newLimits(), newGates(), newMoves(),
		newRolling(), newResize(), newPartition(), newCrashers(), newStorm(), newMigrate(), newCompare(), newNode(), newMove())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

// newNode returns the command that every node process runs.
func newNode() *cobra.Command {
	return &cobra.Command{
		Use: "node", Hidden: true, Args: cobra.NoArgs,
		RunE: func(c *cobra.Command, _ []string) error { return fleet.RunNode(c.Context()) },
	}
}

// scenario is the command that runs a scenario with its options, once flags have set
// those, and prints what it measured.
func scenario[O any, R report.Result](use, short string, o *O, run func(context.Context, O) (R, error)) *cobra.Command {
	c := &cobra.Command{Use: use, Short: short, Args: cobra.NoArgs}
	asJSON := c.Flags().Bool("json", false, "print one JSON object as the last line")
	c.RunE = func(c *cobra.Command, _ []string) error {
		r, err := run(c.Context(), *o)
		if err != nil {
			return err
		}
		return errors.Join(report.Print(r, *asJSON), r.Fault())
	}
	return c
}

// step is a part of a scenario.
type step = func(context.Context) error

// inTurn does one step after the other until one fails.
func inTurn(ctx context.Context, steps ...step) error {
	for _, do := range steps {
		if err := do(ctx); err != nil {
			return err
		}
	}
	return nil
}

// pause is a step in which nothing is done.
func pause(d time.Duration) step {
	return func(ctx context.Context) error { return wait.For(ctx, d) }
}
