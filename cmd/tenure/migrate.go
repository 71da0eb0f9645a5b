package main

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
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
			"safe. A new pool gets its number, for which all other pools must answer.\n\n" +
			"The configuration's DSNs lead in as the user that is to own the ledgers. Nodes and\n" +
			"clients may use another one: --grants gives it what they need, and no more, and\n" +
			"records the roles of the tenants. Users who were given a ledger once get what a\n" +
			"migration adds without being asked for it again.",
		Args: cobra.NoArgs,
	}
	var pools, users []string
	var grants, show bool
	cmd.Flags().StringArrayVar(&pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	cmd.Flags().BoolVar(&grants, "grants", false, "then grant what nodes and clients need of the ledgers")
	cmd.Flags().StringArrayVar(&users, "runtime", nil, "the `user` that nodes and clients connect as; may be repeated (default: those who have the ledger)")
	cmd.Flags().BoolVar(&show, "print", false, "print the GRANT statements that are missing, and change nothing")
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
		if (show || len(users) > 0) && !grants {
			return usagef("--runtime and --print go with --grants")
		}
		if show {
			missing, err := tenure.MissingGrants(cmd.Context(), cfg, users, pools...)
			a.printGrants(missing)
			return err
		}
		steps, err := tenure.Migrate(cmd.Context(), cfg, pools...)
		if err := a.printMigrations(pools, steps, err); err != nil || !grants {
			return err
		}
		done, err := tenure.Grant(cmd.Context(), cfg, users, pools...)
		a.printGrants(done)
		return err
	}
	return cmd
}

// printGrants prints statements as psql takes them.
func (a *app) printGrants(pools []tenure.PoolGrants) {
	for _, p := range pools {
		switch {
		case len(p.Users) == 0:
			fmt.Fprintf(a.stdout, "-- %s: nobody but its owner has this ledger; name a user with --runtime\n", p.Pool)
		case len(p.Statements) == 0:
			fmt.Fprintf(a.stdout, "-- %s: nothing is missing\n", p.Pool)
		default:
			fmt.Fprintf(a.stdout, "-- %s:\n%s;\n", p.Pool, strings.Join(p.Statements, ";\n"))
		}
	}
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
