package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

func newMigrate(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "migrate",
		Short: "Bring the pools' ledgers to this version",
		Long: "Applies what is missing in schema tenure of each pool, and nothing else: nodes\n" +
			"never do that themselves. Nodes of the release before go on working meanwhile and\n" +
			"afterwards: migrate first, then restart them one by one.\n\n" +
			"Running it again, or on several machines at once, is safe: pools that are up to date\n" +
			"are skipped, so that is also how to go on after an interruption or a failure. A new\n" +
			"pool gets its number, for which all other pools must answer.\n\n" +
			"The configuration's DSNs lead in as the user that is to own the ledgers. Nodes and\n" +
			"clients may use another one: --grants gives it what they need, and no more, and\n" +
			"records the roles of the tenants. Users who were given a ledger once get what a\n" +
			"migration adds without being asked for it again.",
		Args: cobra.NoArgs,
	}
	var o tenure.MigrateOptions
	var users []string
	var grants, show bool
	cmd.Flags().StringArrayVar(&o.Pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	cmd.Flags().IntVar(&o.PerServer, "per-server", 8, "pools of one server at a time, one connection each")
	cmd.Flags().IntVar(&o.AtOnce, "at-once", 32, "pools of all servers at a time")
	cmd.Flags().BoolVar(&grants, "grants", false, "then grant what nodes and clients need of the ledgers")
	cmd.Flags().StringArrayVar(&users, "runtime", nil, "the `user` that nodes and clients connect as; may be repeated (default: those who have the ledger)")
	cmd.Flags().BoolVar(&show, "print", false, "print the GRANT statements that are missing, and change nothing")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.PerServer < 1 || o.AtOnce < 1 {
			return usagef("--per-server and --at-once must be 1 or more")
		}
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		if err := checkPools(cfg, o.Pools...); err != nil {
			return err
		}
		if (show || len(users) > 0) && !grants {
			return usagef("--runtime and --print go with --grants")
		}
		if grants && *output == asJSON {
			return usagef("--grants prints statements: leave -o json out")
		}
		if show {
			missing, err := tenure.MissingGrants(cmd.Context(), cfg, users, o.Pools...)
			a.printGrants(missing)
			return err
		}
		if err := a.migrate(cmd.Context(), cfg, o, *output); err != nil || !grants {
			return err
		}
		done, err := tenure.Grant(cmd.Context(), cfg, users, o.Pools...)
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

func (a *app) migrate(ctx context.Context, cfg config.Config, o tenure.MigrateOptions, output format) error {
	if len(o.Pools) == 0 {
		o.Pools = slices.Collect(maps.Keys(cfg.Pools))
	}
	o.Pools = slices.Compact(slices.Sorted(slices.Values(o.Pools)))
	show := newProgress(a.stderr, "migrated", len(o.Pools))
	o.Done = func(p tenure.MigratedPool) { show.add(p.Err != nil) }
	began := time.Now()
	pools, failure := tenure.MigrateAll(ctx, cfg, o)
	show.stop()
	var err error
	switch {
	case output == asJSON:
		err = printJSON(a.stdout, jsonMigrated(pools))
	case len(o.Pools) <= mostMigrated:
		a.printMigrated(pools)
	}
	if len(o.Pools) > mostMigrated {
		fmt.Fprintln(a.stderr, summary(pools, len(o.Pools), time.Since(began)))
	}
	if failure != nil {
		failure = errors.Join(failure, a.goOn(pools, len(o.Pools)))
	}
	return errors.Join(err, failure)
}

// mostMigrated is up to how many pools each gets a line of its own.
const mostMigrated = 50

// printMigrated prints what was done, also before a failure.
func (a *app) printMigrated(pools []tenure.MigratedPool) {
	for _, p := range pools {
		for _, s := range p.Steps {
			fmt.Fprintf(a.stdout, "%s: applied %s (%s)\n", p.Pool, s.Name, s.Took.Round(time.Millisecond))
		}
		if len(p.Steps) == 0 && p.Err == nil {
			fmt.Fprintf(a.stdout, "%s: up to date\n", p.Pool)
		}
	}
}

func summary(pools []tenure.MigratedPool, total int, took time.Duration) string {
	migrated, current, failed := 0, 0, 0
	for _, p := range pools {
		switch {
		case p.Err != nil:
			failed++
		case len(p.Steps) > 0:
			migrated++
		default:
			current++
		}
	}
	return fmt.Sprintf("%d of %d pools migrated, %d were up to date, %d failed, in %v", migrated, total, current, failed, took.Round(100*time.Millisecond))
}

// mostAgain is up to how many failed pools are named in the command to go on with.
const mostAgain = 5

// goOn says what to do after a failure.
func (a *app) goOn(pools []tenure.MigratedPool, total int) error {
	command := "tenure migrate"
	if a.config != "" {
		command += " --config " + a.config
	}
	var failed []string
	for _, p := range pools {
		if p.Err != nil {
			failed = append(failed, p.Pool)
		}
	}
	if len(failed) <= mostAgain && len(pools) == total {
		for _, pool := range failed {
			command += " --pool " + pool
		}
	}
	var what []string
	if len(failed) > 0 {
		what = append(what, fmt.Sprintf("%d of %d pools failed, the others are not affected: mend what is wrong", len(failed), total))
	}
	if rest := total - len(pools); rest > 0 {
		what = append(what, fmt.Sprintf("%d pools were not begun", rest))
	}
	return consequence(strings.Join(append(what, "go on with: "+command), "; "))
}

// jsonPoolMigrated is a pool as -o json prints it.
type jsonPoolMigrated struct {
	Pool    string     `json:"pool"`
	State   string     `json:"state"` // migrated, current (there was nothing to do) or failed
	Applied []jsonStep `json:"applied"`
	Seconds float64    `json:"seconds"`
	Error   string     `json:"error,omitempty"`
}

type jsonStep struct {
	Version int64   `json:"version"`
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

func jsonMigrated(pools []tenure.MigratedPool) []jsonPoolMigrated {
	all := []jsonPoolMigrated{}
	for _, p := range pools {
		j := jsonPoolMigrated{Pool: p.Pool, State: "current", Applied: []jsonStep{}, Seconds: p.Took.Seconds()}
		for _, s := range p.Steps {
			j.State = "migrated"
			j.Applied = append(j.Applied, jsonStep{s.Version, s.Name, s.Took.Seconds()})
		}
		if p.Err != nil {
			j.State, j.Error = "failed", oneLine(advise(p.Err).Error())
		}
		all = append(all, j)
	}
	return all
}
