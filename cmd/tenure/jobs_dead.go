package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/google/uuid"
	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/job"
)

// manyLimit bounds what is done to many jobs, so that a command that is forgotten ends some day.
const manyLimit = 24 * time.Hour

// deadFlags choose dead letters.
type deadFlags struct {
	filter tenure.DeadFilter
	older  string
}

// choosing are the flags that choose dead letters; --pool narrows what they choose.
var choosing = []string{"group", "kind", "tenant", "error", "older"}

func (f *deadFlags) add(cmd *cobra.Command) {
	flags := cmd.Flags()
	flags.StringVar(&f.filter.Group, "group", "", "only dead letters of this `group`, as tenure jobs dead names it")
	flags.StringVar(&f.filter.Kind, "kind", "", "only dead letters of this kind")
	flags.StringVar(&f.filter.Tenant, "tenant", "", "only dead letters of this tenant")
	flags.StringVar(&f.filter.Error, "error", "", "only dead letters whose error contains this `text`, in upper or lower case")
	flags.StringVar(&f.older, "older", "", "only those that died at least so long ago, such as 1h or P2D")
	flags.StringVar(&f.filter.Pool, "pool", "", "only dead letters in this pool")
}

// read takes in what --older says, and that the pool is in the configuration.
func (f *deadFlags) read(a *app, cmd *cobra.Command) error {
	if err := checkGiven(cmd, choosing); err != nil {
		return err
	}
	if f.older != "" {
		d, err := job.ParseDuration(f.older)
		if err == nil && d < 0 {
			err = fmt.Errorf("%s is in the future", f.older)
		}
		if err != nil {
			return usagef("--older: %w", err)
		}
		f.filter.Before = a.now().Add(-d)
	}
	return a.checkPool(f.filter.Pool)
}

// checkGiven refuses flags that are given and empty: they would choose everything.
func checkGiven(cmd *cobra.Command, names []string) error {
	for _, name := range names {
		if given := cmd.Flags().Lookup(name); given.Changed && given.Value.String() == "" {
			return usagef("--%s is empty: leave it out, or say which", name)
		}
	}
	return nil
}

// jsonDeadGroup is a group of dead letters as -o json prints it.
type jsonDeadGroup struct {
	Group  string   `json:"group"`
	Kind   string   `json:"kind"`
	Count  int      `json:"count"`
	First  jsonTime `json:"first_died_at"`
	Last   jsonTime `json:"last_died_at"`
	Sample jsonID   `json:"sample"` // the one that died last
	Error  string   `json:"error"`  // without what differs
}

func newJobsDead(a *app) *cobra.Command {
	var f deadFlags
	cmd := &cobra.Command{
		Use: "dead", Short: "Group dead letters by kind and error",
		Long: "Groups the dead letters of all pools by their kind and what their errors have in common: #\n" +
			"stands for numbers, ids, times and quoted text. SAMPLE is the one that died last; see it with\n" +
			"tenure jobs show. Retry or delete a group by tenure jobs retry or delete --group GROUP.",
		PreRunE: func(cmd *cobra.Command, _ []string) error { return f.read(a, cmd) },
	}
	f.add(cmd)
	head := []string{"GROUP", "COUNT", "KIND", "FIRST", "LAST", "SAMPLE", "ERROR"}
	row := func(g jsonDeadGroup) []string {
		return []string{g.Group, fmt.Sprint(g.Count), g.Kind, a.now.stamp(g.First.Time), a.now.stamp(g.Last.Time), fmt.Sprint(g.Sample), g.Error}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonDeadGroup, unanswered error) {
		groups, unanswered := o.DeadLetters().Groups(ctx, f.filter)
		for _, g := range groups {
			all = append(all, jsonDeadGroup{g.ID, g.Kind, g.Count, jsonTime{g.First}, jsonTime{g.Last}, jsonID(g.Sample), g.Pattern})
		}
		return all, unanswered
	})
}

func newJobsDelete(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "delete",
		Args:  cobra.NoArgs,
		Short: "Delete dead letters, with their failed runs",
		Long: "Deletes the dead letters that the flags choose, those that die meanwhile not included. See\n" +
			"them first: tenure jobs dead. Nothing of them is kept; tenure jobs cancel ID ends a single\n" +
			"one and keeps it for execution.retention, as cancelled. Whatever interrupts the command, run\n" +
			"it again; or let nodes do it, with --background.",
		Example: "  tenure jobs delete --kind mail.send --older 720h",
	}
	return orDead(a, cmd, deadAction{"deleted", (*tenure.DeadLetters).Delete, (*tenure.DeadLetters).DeleteInBackground})
}

// deadAction is what is done to many dead letters.
type deadAction struct {
	done  string // what is said of those
	do    func(*tenure.DeadLetters, context.Context, tenure.DeadFilter, float64) (tenure.DeadResult, error)
	begin func(*tenure.DeadLetters, context.Context, tenure.DeadFilter, float64, string) (uuid.UUID, error)
}

// orDead makes cmd do something to all dead letters that flags choose; with ids instead it does
// what it did before, if it takes any.
func orDead(a *app, cmd *cobra.Command, action deadAction) *cobra.Command {
	var f deadFlags
	f.add(cmd)
	all := cmd.Flags().Bool("all", false, "all dead letters")
	rate := rateFlag(cmd)
	background := cmd.Flags().Bool("background", false, "have the nodes do it, each pool at this rate; see tenure operations")
	each := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		chosen := *all || slices.ContainsFunc(choosing, given)
		switch {
		case len(args) > 0 && (chosen || given("pool") || given("rate") || *background):
			return usagef("give ids, or flags that choose dead letters, and not both")
		case len(args) > 0:
			return each(cmd, args)
		case !chosen:
			return usagef("say which: --%s or --all%s", strings.Join(choosing, ", --"), map[bool]string{true: ", or ids"}[each != nil])
		case *all && slices.ContainsFunc(choosing, given):
			return usagef("--all goes with --pool, --rate and --background only")
		}
		if err := checkRate(cmd, *rate); err != nil {
			return err
		}
		if err := f.read(a, cmd); err != nil {
			return err
		}
		if *background {
			return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
				id, err := action.begin(o.DeadLetters(), ctx, f.filter, *rate, whoAsks())
				return errors.Join(say(a, underWay(id)), err)
			})
		}
		return a.act(cmd.Context(), manyLimit, func(ctx context.Context, o *operation) error {
			r, err := action.do(o.DeadLetters(), ctx, f.filter, *rate)
			return errors.Join(printDead(a, action.done, r), err)
		})
	}
	return cmd
}

func printDead(a *app, done string, r tenure.DeadResult) error {
	text := plural.Count(r.Done, "dead letter ", "dead letters ") + done
	if r.KeyTaken > 0 {
		text += "; " + plural.Count(r.KeyTaken, "stays: an unfinished job has its unique key", "stay: unfinished jobs have their unique keys")
	}
	if r.Left > 0 {
		text += "; " + plural.Count(r.Left, "stays: its", "stay: their") + " tenant is being moved, or somebody has locked or changed " + plural.Which(r.Left, "it", "them") + "; run this again later"
	}
	return say(a, text)
}
