package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
)

func newMigrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the pools' ledgers to this version",
		Long: "Applies what is missing in schema tenure of each pool, and nothing else: nodes\n" +
			"never do that themselves. Running it again, or on several machines at once, is\n" +
			"safe. A new pool gets its number, for which all other pools must answer.",
		Args: cobra.NoArgs,
	}
	var pools []string
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if err := checkPools(cfg, pools...); err != nil {
			return err
		}
		if len(pools) == 0 {
			pools = slices.Sorted(maps.Keys(cfg.Pools))
		}
		slices.Sort(pools)
		pools = slices.Compact(pools)
		steps, err := tenure.Migrate(cmd.Context(), cfg, pools...)
		return a.printMigrations(pools, steps, err)
	}
	return cmd
}

const errMigrateAgain = consequence("the other pools, if any, are done: mend what is wrong and run migrate again")

// printMigrations prints what was done, also before a failure.
func (a *app) printMigrations(pools []string, steps []tenure.Migration, failure error) error {
	changed := map[string]bool{}
	for _, s := range steps {
		changed[s.Pool] = true
		fmt.Fprintf(a.stdout, "%s: applied %s (%s)\n", s.Pool, s.Name, s.Took.Round(time.Millisecond))
	}
	if failure != nil {
		return errors.Join(failure, errMigrateAgain)
	}
	for _, p := range pools {
		if !changed[p] {
			fmt.Fprintf(a.stdout, "%s: up to date\n", p)
		}
	}
	return nil
}
