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
package main

import (
	"context"
	"encoding/json"
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
	root.AddCommand(newDrain(), newReplay(), newFailover(), newScaleout(), newIdle(), newChaos(), newNode())
	if err := root.ExecuteContext(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "loadtest:", err)
		os.Exit(1)
	}
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
