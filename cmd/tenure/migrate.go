package main

import (
	"context"
	"errors"
	"fmt"
	"io"
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
		Short: "Migrate the pools' ledgers to this version",
		Long: "Applies what is missing in schema tenure of each pool, and nothing else: nodes\n" +
			"never migrate. Nodes of the previous release keep working during and after it:\n" +
			"migrate first, then restart them one by one.\n\n" +
			"Running it again, or on several machines at once, is safe: pools that are up to date\n" +
			"are skipped, so run it again after an interruption or a failure. A new pool is given\n" +
			"its number, for which all other pools must answer.\n\n" +
			"The configuration's DSNs connect as the user that is to own the ledgers. Nodes and\n" +
			"clients may use another one: --grants grants it what they need, and no more, and\n" +
			"records the roles of the tenants. Users who were granted a ledger once are granted\n" +
			"what a migration adds without naming them again.",
		Args: cobra.NoArgs,
	}
	var o tenure.MigrateOptions
	var users []string
	var grants, show bool
	cmd.Flags().StringArrayVar(&o.Pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	cmd.Flags().IntVar(&o.PerServer, "per-server", 8, "pools migrated at a time on one server, two connections each at most")
	cmd.Flags().IntVar(&o.AtOnce, "at-once", 32, "pools migrated at a time over all servers")
	cmd.Flags().BoolVar(&grants, "grants", false, "afterwards grant what nodes and clients need")
	cmd.Flags().StringArrayVar(&users, "runtime", nil, "the `user` that nodes and clients connect as; may be repeated (default: those granted before)")
	cmd.Flags().BoolVar(&show, "print", false, "print the GRANT statements that are missing, and change nothing")
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if o.PerServer < 1 || o.AtOnce < 1 {
			return usagef("--per-server and --at-once must be 1 or more")
		}
		cfg, err := a.loadConfig(o.Pools...)
		if err != nil {
			return err
		}
		if (show || len(users) > 0) && !grants {
			return usagef("--runtime and --print go with --grants")
		}
		if grants && *output == asJSON {
			return usagef("--grants prints statements and cannot be combined with -o json")
		}
		if show {
			missing, err := tenure.MissingGrants(cmd.Context(), cfg, users, o.Pools...)
			printGrants(a.stdout, missing)
			return err
		}
		if err := migrate(cmd.Context(), a, cfg, o, *output); err != nil || !grants {
			return err
		}
		done, err := tenure.Grant(cmd.Context(), cfg, users, o.Pools...)
		printGrants(a.stdout, done)
		return err
	}
	return cmd
}

// printGrants prints statements as psql takes them.
func printGrants(w io.Writer, pools []tenure.PoolGrants) {
	for _, p := range pools {
		for _, tenant := range p.Forgotten {
			what := fmt.Sprintf("the role of tenant %q", tenant)
			if tenant == "" {
				what = "the pattern of tenants' roles"
			}
			fmt.Fprintf(w, "-- %s: %s in the ledger is not the configuration's, and goes\n", p.Pool, what)
		}
		switch {
		case len(p.Users) == 0:
			fmt.Fprintf(w, "-- %s: only its owner may use this ledger; name a user with --runtime\n", p.Pool)
		case len(p.Statements) == 0:
			fmt.Fprintf(w, "-- %s: nothing is missing\n", p.Pool)
		default:
			fmt.Fprintf(w, "-- %s:\n%s;\n", p.Pool, strings.Join(p.Statements, ";\n"))
		}
	}
}

func migrate(ctx context.Context, a *app, cfg config.Config, o tenure.MigrateOptions, output format) error {
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
		printMigrated(a.stdout, pools)
	}
	if len(o.Pools) > mostMigrated {
		fmt.Fprintln(a.stderr, summary(pools, len(o.Pools), time.Since(began)))
	}
	if failure != nil {
		failure = errors.Join(failure, adviceAfter(a.config, pools, len(o.Pools)))
	}
	return errors.Join(err, failure)
}

// mostMigrated is up to how many pools each gets a line of its own.
const mostMigrated = 50

// printMigrated prints what was done, also before a failure.
func printMigrated(w io.Writer, pools []tenure.MigratedPool) {
	for _, p := range pools {
		for _, s := range p.Steps {
			fmt.Fprintf(w, "%s: applied %s (%s)\n", p.Pool, s.Name, s.Took.Round(time.Millisecond))
		}
		for _, sql := range p.Grants {
			fmt.Fprintf(w, "%s: %s\n", p.Pool, sql)
		}
		if len(p.Steps)+len(p.Grants) == 0 && p.Err == nil {
			fmt.Fprintf(w, "%s: up to date\n", p.Pool)
		}
	}
}

func summary(pools []tenure.MigratedPool, total int, took time.Duration) string {
	count := map[string]int{} // by state
	for _, p := range jsonMigrated(pools) {
		count[p.State]++
	}
	return fmt.Sprintf("%d of %d pools migrated, %d were up to date, %d failed, in %v",
		count["migrated"], total, count["current"], count["failed"], took.Round(100*time.Millisecond))
}

// mostAgain is up to how many failed pools are named in the command to go on with.
const mostAgain = 5

// adviceAfter says what to do after a failure.
func adviceAfter(config string, pools []tenure.MigratedPool, total int) error {
	command := "tenure migrate"
	if config != "" {
		command += " --config " + config
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
		what = append(what, fmt.Sprintf("%d of %d pools failed, the others are not affected: fix the cause", len(failed), total))
	}
	if rest := total - len(pools); rest > 0 {
		what = append(what, fmt.Sprintf("%d pools were not started", rest))
	}
	return consequence(strings.Join(append(what, "continue with: "+command), "; "))
}

// jsonPoolMigrated is a pool as -o json prints it.
type jsonPoolMigrated struct {
	Pool    string     `json:"pool"`
	State   string     `json:"state"` // migrated, current (there was nothing to do) or failed
	Applied []jsonStep `json:"applied"`
	Granted []string   `json:"granted,omitempty"` // statements
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
		if len(p.Grants) > 0 {
			j.State, j.Granted = "migrated", p.Grants
		}
		if p.Err != nil {
			j.State, j.Error = "failed", oneLine(advise(p.Err).Error())
		}
		all = append(all, j)
	}
	return all
}
