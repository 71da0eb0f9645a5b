package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

var tenantCommands = []spec{
	{
		name: "tenants list", short: "List the tenants of every pool", forms: list("/tenants"),
		long: "Lists the tenants under tenants.static, those that tenants.table.list names, those with unfinished\n" +
			"jobs, and those that were frozen or moved, or have a weight. States: active, frozen, moving (about to move to the other pool), held\n" +
			"(moving, while its own data is being copied), moved (lives in the other pool), arriving\n" +
			"(about to come from it), stray (lives elsewhere, but has jobs here that do not run;\n" +
			"move it to where it lives), and unknown: has jobs here, but no routing rule knows it.",
		columns: "tenant pool state weight other_pool=other",
	},
	{
		name: "tenants busy", short: "List the tenants whose jobs wait, those with the most first", forms: list("/busy-tenants"),
		long:    "Jobs that wait for their time do not count. Where some ten thousand wait in a pool, it is an estimate.",
		flags:   []flag{poolFlag("only of this `pool`"), flagOf("limit", 20, "how many at most").by(between(1, 1000))},
		columns: "tenant pool waiting oldest=oldest_seconds",
		cells:   map[string]cell{"oldest": of(func(_ *app, t *shownQueue) string { return t.oldest() })},
	},
	{
		name: "tenants why", args: "TENANT", short: "Say why a tenant's work waits, and what to do about it", forms: []form{{method: http.MethodGet, path: "/tenants/{tenant}/why", args: "tenant"}},
		long: "The first reason that is true, as the ledger of the tenant's pool has it. What only the node\n" +
			"knows that holds the pool's lock is told as waiting for its turn.",
		show: showWhy,
	},
	{
		name: "tenants freeze", args: "TENANT", short: "Start no jobs of a tenant until it is thawed; running jobs continue",
		forms: put(http.MethodPost, "/tenants/{tenant}/freeze", "tenant", ""), said: done("tenant", "is frozen; thaw it with: tenure tenants thaw %s"),
	},
	{
		name: "tenants thaw", args: "TENANT", short: "Let a frozen tenant's jobs run again",
		forms: put(http.MethodPost, "/tenants/{tenant}/thaw", "tenant", ""), said: done("tenant", "is thawed"),
	},
	{
		name: "tenants limit", args: "TENANT", hint: "[--max-running N] [--max-waiting N]", short: "Bound how many of a tenant's jobs run at a time, on all nodes together, and how many may wait",
		long: "In force within a second. Jobs that are running beyond it go on; those that are claimed and\n" +
			"wait for a worker count as running. While --max-waiting jobs wait or run, more are refused; the\n" +
			"holder of the pool's lock looks once a second, so that some more may come in. The limits are kept\n" +
			"with the tenant, and move with it.",
		flags: []flag{flagOf("max-running", 0, "1 or more; 0: any number, as at first").by(anyNumber), flagOf("max-waiting", 0, "1 or more; 0: any number, as at first").by(anyNumber)},
		rules: func(cmd *cobra.Command) { cmd.MarkFlagsOneRequired("max-running", "max-waiting") },
		forms: put(http.MethodPut, "/tenants/{tenant}/limits", "tenant", "*"),
		said: func(r *answer) string {
			var said []string
			for _, what := range []string{"running", "waiting"} {
				n, _ := r.cmd.Flags().GetInt("max-" + what)
				switch {
				case !r.given("max-" + what):
				case n == 0:
					said = append(said, "may have any number of jobs "+what)
				case what == "running":
					said = append(said, "may have "+plural.Count(n, "job", "jobs")+" running at a time")
				default:
					said = append(said, "may have "+plural.Count(n, "job", "jobs")+" waiting")
				}
			}
			return "tenant " + r.arg + " " + strings.Join(said, ", ")
		},
	},
	{
		name: "tenants weight", args: "TENANT N", short: "Give a tenant more of the workers than others of its pool, in proportion",
		long: "Of two tenants that have much to do, one of weight 3 has three times as much of the workers as\n" +
			"one of weight 1, which is what a tenant has at first. In force within a second, for what waits\n" +
			"already, too. It is kept with the tenant, and moves with it.",
		forms: put(http.MethodPut, "/tenants/{tenant}/weight", "tenant weight", ""),
		said:  func(r *answer) string { return "tenant " + r.args[0] + " has weight " + r.args[1] },
	},
	{
		name: "tenants clear", args: "TENANT", short: "Delete the schedules and dead letters of a tenant that has left, and cancel its jobs",
		long: "For a tenant that no routing rule knows any more: take it out of the configuration or the table first, so\n" +
			"that nothing adds jobs for it. Finished jobs, the cancelled among them, go after execution.retention. Its\n" +
			"schema is yours to drop, once this has ended. Whatever interrupts the command, run it again.",
		check: func(q *question) error {
			if err := checkTenant(q.args[0]); err != nil {
				return &usageError{err}
			}
			return nil
		},
		run: clearTenant, limit: manyLimit,
	},
	{
		name: "tenants reassign", args: "TENANT", hint: "--to TENANT", short: "Give the jobs of a tenant that no routing rule knows to another tenant",
		long: "For jobs that SQL has added for a mistyped tenant. Those in the pool of the other tenant go to\n" +
			"the end of its queues; dead letters and what is for later come along. What is in flight, what is encrypted, and\n" +
			"what has a unique key that the other tenant has stays. To end them instead: tenure tenants clear TENANT.",
		flags: []flag{textFlag("to", "the `tenant` that gets them").by(checked(checkTenant))},
		rules: func(cmd *cobra.Command) { _ = cmd.MarkFlagRequired("to") }, // fails for a flag that does not exist
		forms: put(http.MethodPost, "/tenants/{tenant}/reassign", "tenant", "to"),
		said: func(r *answer) string {
			var n struct{ Reassigned, Left int }
			_ = r.readInto(&n) // what cannot be read says nothing
			return fmt.Sprintf("%s of tenant %s %s tenant %s's now, %s left", plural.Count(n.Reassigned, "job", "jobs"), r.arg, plural.Which(n.Reassigned, "is", "are"), r.text("to"), plural.Count(n.Left, "is", "are"))
		},
	},
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
		id := tenancy.ID(args[0])
		if err := id.Validate(); err != nil {
			return &usageError{err}
		}
		if _, err := a.loadConfig(*to); err != nil {
			return err
		}
		return a.operate(cmd.Context(), moveLimit, true, func(ctx context.Context, o *operation) error {
			options := operate.MoveOptions{Wait: *wait, Hold: *hold}
			if *output == asTable {
				options.Progress = func(step string) { fmt.Fprintf(a.stderr, "tenant %s: %s\n", id, oneLine(step)) }
			}
			moved, err := o.Tenants().Move(ctx, id, *to, options)
			err = errors.Join(printMoved(a, *output, id, moved, err == nil), err)
			return a.unconcerned(o, err)
		})
	}
	return cmd
}

func printMoved(a *app, f format, id tenancy.ID, m operate.Moved, done bool) error {
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
	what := "this command had no jobs to move"
	if len(counts) > 0 {
		what = "jobs moved by this command: " + strings.Join(counts, ", ")
	}
	_, err := fmt.Fprintf(a.stdout, "tenant %s lives in pool %s; %s\n", id, m.To, what)
	return err
}

// clearTenant deletes what a tenant that has left would go on with, and waits until its jobs are cancelled.
func clearTenant(ctx context.Context, q *question, s *server) error {
	tenant := q.args[0]
	var lives struct{ Pool string }
	switch err := s.get(ctx, "/tenants/"+url.PathEscape(tenant), nil, &lives); {
	case err == nil:
		return &advised{fmt.Errorf("tenant %q has not left: a routing rule leads it to pool %q", tenant, lives.Pool), "take it out of the configuration or the table first"}
	case !errors.Is(err, tenure.ErrUnknownTenant) && !errors.Is(err, tenure.ErrNotFound):
		return err
	}
	schedules, err := s.clearSchedules(ctx, tenant)
	if err != nil {
		return err
	}
	var begun []string
	for _, path := range []string{"/jobs/cancel", "/dead-letters/delete"} {
		answer, err := s.ask(ctx, http.MethodPost, path, nil, map[string]any{"tenant": tenant})
		var more struct{ Operations []string }
		if err == nil {
			err = readAnswer(answer, &more)
		}
		if err != nil {
			return err
		}
		begun = append(begun, more.Operations...)
	}
	fmt.Fprintf(q.a.stderr, "tenant %s: %s deleted; nodes cancel its jobs and delete its dead letters: see tenure operations list\n", tenant, plural.Count(schedules, "schedule is", "schedules are"))
	done := map[string]int{}
	for _, id := range begun {
		if err := s.awaitOperation(ctx, id, done); err != nil {
			return err
		}
	}
	var running page
	if err := s.get(ctx, "/jobs", url.Values{"tenant": {tenant}, "state": {"running"}, "limit": {"1000"}}, &running); err != nil {
		return err
	}
	text := fmt.Sprintf("tenant %s: %s cancelled, %s deleted", tenant, plural.Count(done["cancel"], "job is", "jobs are"), plural.Count(done["delete"], "dead letter is", "dead letters are"))
	if n := len(running.Items); n > 0 {
		text += fmt.Sprintf("; %s still: see tenure jobs list --tenant %s --state running", plural.Count(n, "runs", "run"), tenant)
	}
	return say(q.a, text)
}

// clearSchedules deletes a tenant's schedules.
func (s *server) clearSchedules(ctx context.Context, tenant string) (n int, err error) {
	var all struct{ Items []struct{ Name string } }
	if err := errors.Join(s.get(ctx, "/schedules", url.Values{"tenant": {tenant}}, &all), errors.Join(s.failed...)); err != nil {
		return 0, err
	}
	for _, one := range all.Items {
		_, err := s.ask(ctx, http.MethodDelete, "/tenants/"+url.PathEscape(tenant)+"/schedules/"+url.PathEscape(one.Name), nil, nil)
		switch {
		case err == nil:
			n++
		case !errors.Is(err, operate.ErrNoSchedule) && !errors.Is(err, tenure.ErrNotFound): // else a node was faster
			return n, err
		}
	}
	return n, nil
}

// awaitOperation waits until an operation has ended in all pools, and counts what it has done.
func (s *server) awaitOperation(ctx context.Context, id string, done map[string]int) error {
	for {
		var parts struct {
			Items []struct {
				Action, State string
				Done          int
			}
		}
		if err := s.get(ctx, "/operations/"+id, nil, &parts); err != nil {
			return err
		}
		running, count := false, map[string]int{}
		for _, part := range parts.Items {
			running = running || part.State == "running"
			count[part.Action] += part.Done
		}
		if !running {
			for action, n := range count {
				done[action] += n
			}
			return nil
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("operation %s is not done yet, and goes on; run this again to keep waiting: %w", id, ctx.Err())
		case <-time.After(time.Second):
		}
	}
}
