package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/tenancy"
)

func newTenants(a *app) *cobra.Command {
	return newGroup("tenants", "List tenants, freeze and thaw them, move them to another pool",
		newTenantsList(a), newTenantsFreeze(a), newTenantsThaw(a), newTenantsMove(a))
}

// jsonTenant is a tenant in a pool as -o json prints it.
type jsonTenant struct {
	Tenant string `json:"tenant"`
	Pool   string `json:"pool"`
	State  string `json:"state"`
	Other  string `json:"other_pool,omitempty"`
}

func newTenantsList(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use: "list", Short: "List the tenants of every pool", Args: cobra.NoArgs,
		Long: "Lists the tenants under tenants.static, those with unfinished jobs, and those that were\n" +
			"frozen or moved. States: active, frozen, moving (about to leave for the other pool), held\n" +
			"(moving, and its own data is being copied), moved (left for it), arriving (about to come\n" +
			"from it), and stray: has jobs here, which do not run, and lives elsewhere; move it to\n" +
			"where it lives.",
	}
	output := outputFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		cfg, err := a.loadConfig()
		if err != nil {
			return err
		}
		return a.read(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) (unanswered, err error) {
			tenants, unanswered := client.Tenants(ctx)
			list := []jsonTenant{}
			var rows [][]string
			for _, t := range tenants {
				one := jsonTenant{string(t.Tenant), t.Pool, t.State, t.Other}
				list = append(list, one)
				rows = append(rows, []string{one.Tenant, one.Pool, one.State, one.Other})
			}
			if *output == asJSON {
				return unanswered, printJSON(a.stdout, list)
			}
			return unanswered, printTable(a.stdout, []string{"TENANT", "POOL", "STATE", "OTHER POOL"}, rows)
		})
	}
	return cmd
}

func newTenantsFreeze(a *app) *cobra.Command {
	return a.onTenant(&cobra.Command{
		Use:   "freeze TENANT",
		Short: "Start no job of a tenant until it is thawed; what runs goes on",
	}, func(ctx context.Context, client *tenure.Client, id tenancy.ID) (string, error) {
		return "is frozen; thaw it with: tenure tenants thaw " + string(id), client.FreezeTenant(ctx, id)
	})
}

func newTenantsThaw(a *app) *cobra.Command {
	return a.onTenant(&cobra.Command{
		Use:   "thaw TENANT",
		Short: "Let a frozen tenant's jobs run again",
	}, func(ctx context.Context, client *tenure.Client, id tenancy.ID) (string, error) {
		return "goes on", client.ThawTenant(ctx, id)
	})
}

// onTenant makes cmd do something to the tenant that is its argument.
func (a *app) onTenant(cmd *cobra.Command, do func(ctx context.Context, client *tenure.Client, id tenancy.ID) (string, error)) *cobra.Command {
	cmd.Args = cobra.ExactArgs(1)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id := tenancy.ID(args[0])
		cfg, err := a.loadConfigFor(id)
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), cfg, func(ctx context.Context, client *tenure.Client) error {
			what, err := do(ctx, client, id)
			if err == nil {
				_, err = fmt.Fprintf(a.stdout, "tenant %s %s\n", id, what)
			}
			return err
		})
	}
	return cmd
}

// loadConfigFor checks a tenant's id first, which needs no file.
func (a *app) loadConfigFor(id tenancy.ID) (config.Config, error) {
	if err := id.Validate(); err != nil {
		return config.Config{}, &usageError{err}
	}
	return a.loadConfig()
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

func newTenantsMove(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "move TENANT --to POOL",
		Short: "Move a tenant's jobs to another pool, and let it live there",
		Long: `Moves a tenant's jobs of all states. Nothing is lost or doubled, and jobs can be enqueued
all the time; other tenants are not disturbed. The tenant's own data is copied with your own
tools, while the tenant is held:

  tenure tenants move acme --to new --hold             its jobs and transactions stop
  pg_dump -Fc --schema=acme -f acme.dump OLD && pg_restore -1 -d NEW acme.dump
  tenure tenants move acme --to new                    its jobs follow; all goes on there

--hold returns when no transaction is open any more that could write to the schema, and no
other can begin: HandleTx runs nothing, InTx waits two seconds and fails, and so does EnqueueTx
in a transaction of your own. It waits for every transaction of that database, first while
the tenant's go on. What writes to the schema by other ways must be stopped before, also
programs built with a version of Tenure that has no --hold. If --hold fails, nothing is held;
to give up afterwards, move the tenant to where it is: tenure tenants move acme --to old.

Drop or rename the schema in the old pool when all is done.

The command may be interrupted and run again at any point, and goes on where it was. While
it waits for running jobs it can be given up by moving the tenant to where it is. Run it,
too, when the configuration was changed and a tenant has jobs in its old pool.

The old pool keeps the new one's name and leads everybody on to it. A tenant under
tenants.static should be changed there at leisure, and must be before the old pool is taken
away; for others see tenants.table.move.`,
		Args: cobra.ExactArgs(1),
	}
	output := outputFlag(cmd)
	to := cmd.Flags().String("to", "", "the `pool` to move it to")
	wait := cmd.Flags().Duration("wait", 10*time.Minute, "how long to wait for running jobs, and for transactions that may still write")
	hold := cmd.Flags().Bool("hold", false, "stop the tenant's jobs and transactions, so that its data can be copied, and move nothing yet")
	_ = cmd.MarkFlagRequired("to") // fails for a flag that does not exist
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id := tenancy.ID(args[0])
		if *wait <= 0 {
			return usagef("--wait %v: must be above 0", *wait)
		}
		cfg, err := a.loadConfigFor(id)
		if err != nil {
			return err
		}
		if err := checkPools(cfg, *to); err != nil {
			return err
		}
		return a.actFor(cmd.Context(), moveLimit, cfg, func(ctx context.Context, client *tenure.Client) error {
			options := tenure.MoveOptions{Wait: *wait, Hold: *hold}
			if *output == asTable {
				options.Progress = func(step string) { fmt.Fprintf(a.stderr, "tenant %s: %s\n", id, oneLine(step)) }
			}
			moved, err := client.MoveTenant(ctx, id, *to, options)
			return errors.Join(a.printMoved(*output, id, moved, err == nil), err)
		})
	}
	return cmd
}

func (a *app) printMoved(f format, id tenancy.ID, m tenure.Moved, done bool) error {
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
	for _, state := range []string{"waiting", "scheduled", "external", "history", "suspended", "dead", "finished"} {
		if n := m.Jobs[state]; n > 0 {
			counts = append(counts, fmt.Sprintf("%d %s", n, state))
		}
	}
	what := "no jobs were left to be moved"
	if len(counts) > 0 {
		what = "jobs moved: " + strings.Join(counts, ", ")
	}
	_, err := fmt.Fprintf(a.stdout, "tenant %s lives in pool %s; %s\n", id, m.To, what)
	return err
}
