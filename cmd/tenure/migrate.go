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

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/operate"
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
			"clients may use another one: --grants --runtime USER grants it what they need, and no\n" +
			"more, and records the roles of the tenants. Users who were named once are granted what\n" +
			"a migration adds without naming them again. Others who have rights on a ledger are\n" +
			"given nothing, and printed with the command that names them and the SQL that takes\n" +
			"their rights away.",
		Args: cobra.NoArgs,
	}
	var o operate.MigrateOptions
	var users []string
	var grants, show bool
	cmd.Flags().StringArrayVar(&o.Pools, "pool", nil, "only this `pool`; may be repeated (default: all)")
	cmd.Flags().IntVar(&o.PerServer, "per-server", 8, "pools migrated at a time on one server, two connections each at most")
	cmd.Flags().IntVar(&o.AtOnce, "at-once", 32, "pools migrated at a time over all servers")
	cmd.Flags().BoolVar(&grants, "grants", false, "afterwards grant what nodes and clients need")
	cmd.Flags().StringArrayVar(&users, "runtime", nil, "the `user` that nodes and clients connect as; may be repeated (default: those named before)")
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
			missing, err := operate.MissingGrants(cmd.Context(), cfg, users, o.Pools...)
			printGrants(a.stdout, missing)
			return err
		}
		if err := migrate(cmd.Context(), a, cfg, o, *output, !grants); err != nil || !grants {
			return err
		}
		done, err := operate.Grant(cmd.Context(), cfg, users, o.Pools...)
		printGrants(a.stdout, done)
		return err
	}
	return cmd
}

// printGrants prints statements as psql takes them.
func printGrants(w io.Writer, pools []operate.PoolGrants) {
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
			fmt.Fprintf(w, "-- %s: nobody but its owner is to work on this ledger, unless you name a user with --runtime\n", p.Pool)
		case len(p.Statements) == 0:
			fmt.Fprintf(w, "-- %s: nothing is missing\n", p.Pool)
		default:
			fmt.Fprintf(w, "-- %s:\n%s;\n", p.Pool, strings.Join(p.Statements, ";\n"))
		}
		printHolders(w, "-- ", p.Pool, p.Holders)
	}
}

// printHolders prints who has rights on a pool's ledger and was not named, and what to do about each.
func printHolders(w io.Writer, prefix, pool string, holders []operate.LedgerHolder) {
	for _, h := range holders {
		name := h.Name(pool)
		fmt.Fprintf(w, "%s%s: %s\n", prefix, pool, h)
		if name != "" {
			fmt.Fprintf(w, "%s  if nodes or clients connect as this user: %s\n", prefix, name)
		}
		switch {
		case len(h.Revoke) > 0:
			fmt.Fprintf(w, "%s  to take its rights away: %s;\n", prefix, strings.Join(h.Revoke, "; "))
		case h.Tenant != nil:
			fmt.Fprintf(w, "%s  %s\n", prefix, h.Mend())
		}
	}
}

// migrate migrates; holders says whether it prints who has rights and was not named, as nobody is about to be.
func migrate(ctx context.Context, a *app, cfg config.Config, o operate.MigrateOptions, output format, holders bool) error {
	if len(o.Pools) == 0 {
		o.Pools = slices.Collect(maps.Keys(cfg.Pools))
	}
	o.Pools = slices.Compact(slices.Sorted(slices.Values(o.Pools)))
	show := newProgress(a.stderr, "migrated", len(o.Pools))
	o.Done = func(p operate.MigratedPool) { show.add(p.Err != nil) }
	o.Waits = func(pool, whom string) { show.print(fmt.Sprintf("%s: waits: %s", pool, whom)) }
	began := time.Now()
	pools, failure := operate.MigrateAll(ctx, cfg, o)
	show.stop()
	var err error
	switch {
	case output == asJSON:
		err = printJSON(a.stdout, jsonMigrated(pools))
	case len(o.Pools) <= mostMigrated:
		printMigrated(a.stdout, pools, holders)
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
func printMigrated(w io.Writer, pools []operate.MigratedPool, holders bool) {
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
		if holders {
			printHolders(w, "", p.Pool, p.Holders)
		}
	}
}

func summary(pools []operate.MigratedPool, total int, took time.Duration) string {
	count := map[string]int{} // by state
	held := 0
	for _, p := range jsonMigrated(pools) {
		count[p.State]++
		held += min(len(p.Holders), 1)
	}
	text := fmt.Sprintf("%d of %s migrated, %s up to date, %d failed, in %v",
		count["migrated"], plural.Count(total, "pool", "pools"), plural.Count(count["current"], "was", "were"), count["failed"], took.Round(100*time.Millisecond))
	if held > 0 {
		text += "; on " + plural.Count(held, "ledger", "ledgers") + " users have rights whom nobody has named, or were named and have none: tenure doctor says who"
	}
	return text
}

// mostAgain is up to how many failed pools are named in the command to go on with.
const mostAgain = 5

// adviceAfter says what to do after a failure.
func adviceAfter(config string, pools []operate.MigratedPool, total int) error {
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
		what = append(what, fmt.Sprintf("%d of %s failed, the others are not affected: fix the cause", len(failed), plural.Count(total, "pool", "pools")))
	}
	if rest := total - len(pools); rest > 0 {
		what = append(what, plural.Count(rest, "pool was", "pools were")+" not started")
	}
	return consequence(strings.Join(append(what, "continue with: "+command), "; "))
}

// jsonPoolMigrated is a pool as -o json prints it.
type jsonPoolMigrated struct {
	Pool    string     `json:"pool"`
	State   string     `json:"state"` // migrated, current (there was nothing to do) or failed
	Applied []jsonStep `json:"applied"`
	Granted []string   `json:"granted,omitempty"` // statements
	// Holders have rights on the ledger, and nobody has named them.
	Holders []jsonHolder `json:"holders,omitempty"`
	Seconds float64      `json:"seconds"`
	Error   string       `json:"error,omitempty"`
}

type jsonHolder struct {
	User   string   `json:"user"`
	Tenant *string  `json:"tenant,omitempty"` // whose role it is
	Name   string   `json:"name,omitempty"`   // the command that names it
	Revoke []string `json:"revoke"`
	Lost   bool     `json:"lost,omitempty"` // it was named, and has no rights any more
}

type jsonStep struct {
	Version int64   `json:"version"`
	Name    string  `json:"name"`
	Seconds float64 `json:"seconds"`
}

func jsonMigrated(pools []operate.MigratedPool) []jsonPoolMigrated {
	all := []jsonPoolMigrated{}
	for _, p := range pools {
		j := jsonPoolMigrated{Pool: p.Pool, State: "current", Applied: []jsonStep{}, Seconds: p.Took.Seconds()}
		for _, s := range p.Steps {
			j.State = "migrated"
			j.Applied = append(j.Applied, jsonStep{s.Version, s.Name, s.Took.Seconds()})
		}
		for _, h := range p.Holders {
			j.Holders = append(j.Holders, jsonHolder{h.User, h.Tenant, h.Name(p.Pool), h.Revoke, h.Lost})
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
