// Command loadtest drives Tenure as a user would, measures it, and proves that
// nothing was lost. Each scenario brings its own Postgres, with the durability that
// Postgres has by default, and prints one JSON object as its last line with --json.
//
//	go run ./loadtest drain --jobs 300000 --tenants 100 --json
//	go run ./loadtest replay FILE --speed 60 --json
//	go run ./loadtest failover --nodes 3 --kills 100 --json
//	go run ./loadtest scaleout --nodes 4 --json
//	go run ./loadtest idle --pools 1000 --json
//	go run ./loadtest chaos --minutes 10 --seed 7 --json
//	go run ./loadtest soak --minutes 480 --json
//	go run ./loadtest outage --json
//	go run ./loadtest longtx --open 30m --json
//	go run ./loadtest crowd --backlog 1000000 --json
//	go run ./loadtest moves --minutes 5 --json
//	go run ./loadtest rolling --json
//	go run ./loadtest resize --json
//	go run ./loadtest partition --json
//	go run ./loadtest killers --json
//	go run ./loadtest storm --json
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"

	"github.com/spf13/cobra"
)

func main() {
	ctx, cancel := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer cancel()
	root := &cobra.Command{
		Use: "loadtest", Short: "Measure Tenure and prove that nothing was lost",
		SilenceUsage: true, SilenceErrors: true,
	}
	root.AddCommand(newDrain(), newReplay(), newFailover(), newScaleout(), newIdle(), newChaos(), newSoak(), newOutage(), newLongTx(), newCrowd(), newMoves(),
		newRolling(), newResize(), newPartition(), newKillers(), newStorm(), newMigrate(), newNode(), newMove())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
}

// result is what a scenario measured.
type result interface {
	// fault is an error if something has happened that never must.
	fault() error
}

// scenario makes the command run a scenario and print what it measured.
func scenario[R result](c *cobra.Command, run func(ctx context.Context, args []string) (R, error)) *cobra.Command {
	var asJSON bool
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object as the last line")
	c.RunE = func(c *cobra.Command, args []string) error {
		r, err := run(c.Context(), args)
		if err != nil {
			return err
		}
		return errors.Join(report(r, asJSON), r.fault())
	}
	return c
}

// lost is an error unless both numbers are 0.
func lost(lost int64, doubled int) error {
	if lost == 0 && doubled == 0 {
		return nil
	}
	return fmt.Errorf("%d jobs were lost, and %d ran or took effect twice", lost, doubled)
}

// report prints a result: as one JSON object, or as lines.
func report(result any, asJSON bool) error {
	b, err := json.Marshal(result)
	if err != nil {
		return err
	}
	if asJSON {
		fmt.Println(string(b))
		return nil
	}
	var fields map[string]any
	if err := json.Unmarshal(b, &fields); err != nil {
		return err
	}
	pretty, err := json.MarshalIndent(fields, "", "  ")
	if err != nil {
		return err
	}
	fmt.Println(string(pretty))
	return nil
}
