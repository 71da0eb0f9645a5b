package main

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/tenancy"
)

func newTenants(a *app) *cobra.Command {
	return newGroup("tenants", "List, explain, freeze, thaw, limit and weight tenants, move them to another pool, and reassign jobs",
		newTenantsList(a), newTenantsWhy(a), newTenantsFreeze(a), newTenantsThaw(a), newTenantsLimit(a), newTenantsWeight(a), newTenantsMove(a), newTenantsReassign(a))
}

// jsonTenant is a tenant in a pool as -o json prints it.
type jsonTenant struct {
	Tenant string `json:"tenant"`
	Pool   string `json:"pool"`
	State  string `json:"state"`
	Other  string `json:"other_pool,omitempty"`
	Weight int    `json:"weight"`
}

func newTenantsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the tenants of every pool",
		Long: "Lists the tenants under tenants.static, those with unfinished jobs, and those that were\n" +
			"frozen or moved, or have a weight. States: active, frozen, moving (about to move to the other pool), held\n" +
			"(moving, while its own data is being copied), moved (lives in the other pool), arriving\n" +
			"(about to come from it), stray (lives elsewhere, but has jobs here that do not run;\n" +
			"move it to where it lives), and unknown: has jobs here, but no routing rule knows it.",
	}
	head := []string{"TENANT", "POOL", "STATE", "WEIGHT", "OTHER POOL"}
	row := func(t jsonTenant) []string {
		return []string{t.Tenant, t.Pool, t.State, strconv.Itoa(t.Weight), t.Other}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonTenant, unanswered error) {
		tenants, unanswered := o.Tenants(ctx)
		for _, t := range tenants {
			all = append(all, jsonTenant{string(t.Tenant), t.Pool, t.State, t.Other, t.Weight})
		}
		return all, unanswered
	})
}

func newTenantsFreeze(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "freeze TENANT",
		Short: "Start no jobs of a tenant until it is thawed; running jobs continue",
		Args:  cobra.ExactArgs(1),
	}, "tenant", parseTenant, func(ctx context.Context, o *operation, id tenancy.ID) (string, error) {
		return "is frozen; thaw it with: tenure tenants thaw " + string(id), o.FreezeTenant(ctx, id)
	})
}

func newTenantsThaw(a *app) *cobra.Command {
	return onEach(a, &cobra.Command{
		Use:   "thaw TENANT",
		Short: "Let a frozen tenant's jobs run again",
		Args:  cobra.ExactArgs(1),
	}, "tenant", parseTenant, func(ctx context.Context, o *operation, id tenancy.ID) (string, error) {
		return "is thawed", o.ThawTenant(ctx, id)
	})
}

func newTenantsLimit(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "limit TENANT [--max-running N] [--max-waiting N]",
		Short: "Bound how many of a tenant's jobs run at a time, on all nodes together, and how many may wait",
		Long: "In force within a second. Jobs that are running beyond it go on; those that are claimed and\n" +
			"wait for a worker count as running. While --max-waiting jobs wait or run, more are refused; the\n" +
			"holder of the pool's lock looks once a second, so that some more may come in. The limits are kept\n" +
			"with the tenant, and move with it.",
		Args: cobra.ExactArgs(1),
	}
	most := cmd.Flags().Int("max-running", 0, "1 or more; 0: any number, as at first")
	waiting := cmd.Flags().Int("max-waiting", 0, "1 or more; 0: any number, as at first")
	cmd.MarkFlagsOneRequired("max-running", "max-waiting")
	return onEach(a, cmd, "tenant", parseTenant, func(ctx context.Context, o *operation, id tenancy.ID) (string, error) {
		var said []string
		if cmd.Flags().Changed("max-running") {
			if err := o.LimitTenant(ctx, id, *most); err != nil {
				return "", err
			}
			text := "may have any number of jobs running"
			if *most > 0 {
				text = "may have " + plural.Count(*most, "job", "jobs") + " running at a time"
			}
			said = append(said, text)
		}
		if cmd.Flags().Changed("max-waiting") {
			if err := o.LimitWaiting(ctx, id, *waiting); err != nil {
				return strings.Join(said, ", "), err
			}
			text := "may have any number of jobs waiting"
			if *waiting > 0 {
				text = "may have " + plural.Count(*waiting, "job", "jobs") + " waiting"
			}
			said = append(said, text)
		}
		return strings.Join(said, ", "), nil
	})
}

func newTenantsWeight(a *app) *cobra.Command {
	return &cobra.Command{
		Use:   "weight TENANT N",
		Short: "Give a tenant more of the workers than others of its pool, in proportion",
		Long: "Of two tenants that have much to do, one of weight 3 has three times as much of the workers as\n" +
			"one of weight 1, which is what a tenant has at first. In force within a second, for what waits\n" +
			"already, too. It is kept with the tenant, and moves with it.",
		Args: cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			id, err := parseTenant(args[0])
			if err != nil {
				return &usageError{err}
			}
			weight, err := strconv.Atoi(args[1])
			if err != nil {
				return usagef("weight %q: a whole number from 1 on is needed, such as 3", args[1])
			}
			return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
				if err := o.SetTenantWeight(ctx, id, weight); err != nil {
					return err
				}
				_, err := fmt.Fprintf(a.stdout, "tenant %s has weight %d\n", id, weight)
				return err
			})
		},
	}
}

func parseTenant(text string) (tenancy.ID, error) {
	id := tenancy.ID(text)
	return id, id.Validate()
}

// moveLimit bounds a move as a whole, so that one that is forgotten ends some day.
const moveLimit = 24 * time.Hour

// jsonMove is a move as -o json prints it.
type jsonMove struct {
	Tenant string         `json:"tenant"`
	From   []string       `json:"from"`
	To     string         `json:"to"`
	Done   bool           `json:"done"`
	Held   bool           `json:"held,omitempty"`
	Jobs   map[string]int `json:"jobs"`
}

func newTenantsReassign(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reassign TENANT --to TENANT",
		Short: "Give the jobs of a tenant that no routing rule knows to another tenant",
		Long: "For jobs that SQL has added for a mistyped tenant. Those in the pool of the other tenant go to\n" +
			"the end of its queues; dead letters and what is for later come along. What is in flight, what is encrypted, and\n" +
			"what has a unique key that the other tenant has stays. To delete them instead: tenure jobs cancel --tenant TENANT.",
		Args: cobra.ExactArgs(1),
	}
	to := cmd.Flags().String("to", "", "the `tenant` that gets them")
	_ = cmd.MarkFlagRequired("to") // fails for a flag that does not exist
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		from, err := parseTenant(args[0])
		if err != nil {
			return &usageError{err}
		}
		other, err := parseTenant(*to)
		if err != nil {
			return usagef("--to: %w", err)
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			n, left, err := o.Reassign(ctx, from, other)
			if n > 0 || err == nil {
				fmt.Fprintf(a.stdout, "%s of tenant %s %s tenant %s's now, %s left\n", plural.Count(n, "job", "jobs"), from, plural.Which(n, "is", "are"), other, plural.Count(left, "is", "are"))
			}
			return err
		})
	}
	return cmd
}

func newTenantsMove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move TENANT --to POOL",
		Short: "Move a tenant and its jobs to another pool",
		Long: `Moves a tenant's schedules, and its jobs in all states. Nothing is lost or doubled, jobs can be enqueued
throughout, and other tenants are not disturbed. Copy the tenant's own data with your own
tools while the tenant is held:

  tenure tenants move acme --to new --hold             its jobs and transactions stop
  pg_dump -Fc --schema=acme -f acme.dump OLD && pg_restore -1 -d NEW acme.dump
  tenure tenants move acme --to new                    its jobs follow, and run there

OLD and NEW are connection strings of a user who has the tenant's role on both servers and may
create a schema in NEW; a superuser is not needed. Before you copy, NEW must have the role and
everything that the schema uses from elsewhere, such as extensions, but not the schema itself.

--hold returns once no open transaction could still write to the schema and no new one can
begin: HandleTx runs nothing, InTx waits two seconds and fails, and so does EnqueueTx in a
transaction of your own. It waits for every transaction of that database; at first the
tenant's own still run. Stop whatever else writes to the schema beforehand, including
programs built with a version of Tenure without --hold. If --hold fails or is interrupted, the
tenant goes on where it is, unless an earlier command had stopped it already, or the command is
killed: then its jobs stay stopped until --hold is run again or the move is given up. To give
up, then or later, move the tenant to where it is: tenure tenants move acme --to old.

Drop or rename the schema in the old pool when everything is done.

The command may be interrupted at any point, and continues where it was when run again.
While it waits for running jobs, give the move up by moving the tenant to where it is. Run
it, too, after the configuration was changed while a tenant has jobs in its old pool.

The old pool keeps the new one's name and forwards to it. Change a tenant under
tenants.static there at leisure, but before the old pool is removed; for others see
tenants.table.move.`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	to := cmd.Flags().String("to", "", "the `pool` to move it to")
	wait := cmd.Flags().Duration("wait", 10*time.Minute, "how long to wait for running jobs and for transactions that may still write")
	hold := cmd.Flags().Bool("hold", false, "stop the tenant's jobs and transactions so that its data can be copied, and move nothing yet")
	_ = cmd.MarkFlagRequired("to") // fails for a flag that does not exist
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if *wait <= 0 {
			return usagef("--wait %v: must be more than 0", *wait)
		}
		id, err := parseTenant(args[0])
		if err != nil {
			return &usageError{err}
		}
		return a.act(cmd.Context(), moveLimit, func(ctx context.Context, o *operation) error {
			options := tenure.MoveOptions{Wait: *wait, Hold: *hold}
			if *output == asTable {
				options.Progress = func(step string) { fmt.Fprintf(a.stderr, "tenant %s: %s\n", id, oneLine(step)) }
			}
			moved, err := o.MoveTenant(ctx, id, *to, options)
			return errors.Join(printMoved(a, *output, id, moved, err == nil), err)
		}, *to)
	}
	return cmd
}

func printMoved(a *app, f format, id tenancy.ID, m tenure.Moved, done bool) error {
	if f == asJSON {
		return printJSON(a.stdout, jsonMove{Tenant: string(id), From: append([]string{}, m.From...), To: m.To, Done: done && !m.Held, Held: m.Held, Jobs: m.Jobs})
	}
	if !done {
		return nil
	}
	if m.Held {
		_, err := fmt.Fprintf(a.stdout, "tenant %[1]s is held: copy its data to pool %[2]s now, then run: tenure tenants move %[1]s --to %[2]s\n", id, m.To)
		return err
	}
	var counts []string
	for _, state := range []string{"waiting", "scheduled", "external", "history", "suspended", "dead", "finished", "schedules"} {
		if n := m.Jobs[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	what := "there were no jobs to move"
	if len(counts) > 0 {
		what = "jobs moved: " + strings.Join(counts, ", ")
	}
	_, err := fmt.Fprintf(a.stdout, "tenant %s lives in pool %s; %s\n", id, m.To, what)
	return err
}
