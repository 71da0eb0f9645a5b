package main

import (
	"cmp"
	"context"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

func newQueues(a *app) *cobra.Command {
	return newFreezing(a, "queue", (*tenure.Operator).FreezeQueue, (*tenure.Operator).ThawQueue)
}

func newKinds(a *app) *cobra.Command {
	return newFreezing(a, "kind", (*tenure.Operator).FreezeKind, (*tenure.Operator).ThawKind)
}

// newFreezing are the commands about what is frozen in all pools: queues, or kinds.
func newFreezing(a *app, noun string, freeze, thaw func(*tenure.Operator, context.Context, string) error) *cobra.Command {
	parse := func(name string) (string, error) { return name, job.ValidateKind(noun, name) }
	list := newFrozenList(a, noun)
	stop := onEach(a, &cobra.Command{
		Use:   "freeze " + strings.ToUpper(noun),
		Short: "Start no jobs of a " + noun + ", of all tenants in all pools, until it is thawed; running jobs continue",
		Long: "Jobs are enqueued meanwhile, and timers and schedules add to what waits; external workers acquire none,\n" +
			"either. If a pool does not answer the command says in which it holds: type it again, as after a pool\n" +
			"was added.",
		Args: cobra.ExactArgs(1),
	}, noun, parse, func(ctx context.Context, o *operation, name string) (string, error) {
		return "is frozen; thaw it with: tenure " + noun + "s thaw " + name, freeze(o.Operator, ctx, name)
	})
	goOn := onEach(a, &cobra.Command{
		Use:   "thaw " + strings.ToUpper(noun),
		Short: "Let the jobs of a frozen " + noun + " run again",
		Args:  cobra.ExactArgs(1),
	}, noun, parse, func(ctx context.Context, o *operation, name string) (string, error) {
		return "is thawed", thaw(o.Operator, ctx, name)
	})
	return newGroup(noun+"s", "List, freeze and thaw "+noun+"s in all pools", list, stop, goOn)
}

// jsonFrozen is what is frozen in a pool as -o json prints it.
type jsonFrozen struct {
	Queue string   `json:"queue,omitempty"`
	Kind  string   `json:"kind,omitempty"`
	Pool  string   `json:"pool"`
	Since jsonTime `json:"since"`
}

func newFrozenList(a *app, noun string) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the frozen " + noun + "s by pool, and since when"}
	row := func(f jsonFrozen) []string {
		return []string{cmp.Or(f.Queue, f.Kind), f.Pool, relatively(a, &f.Since)}
	}
	return list(a, cmd, []string{strings.ToUpper(noun), "POOL", "SINCE"}, row, func(ctx context.Context, o *operation) (all []jsonFrozen, unanswered error) {
		frozen, unanswered := o.Frozen(ctx)
		for _, f := range frozen {
			if f.Queue != "" == (noun == "queue") {
				all = append(all, jsonFrozen{f.Queue, f.Kind, f.Pool, jsonTime{f.Since}})
			}
		}
		return all, unanswered
	})
}

// queueWords are the queues that have jobs.
func queueWords(ctx context.Context, a *app) (names []string) {
	_ = a.operate(ctx, completeLimit, nil, func(ctx context.Context, o *operation) error {
		queues, _ := o.Queues(ctx, tenure.QueueFilter{})
		for _, q := range queues {
			names = append(names, q.Name)
		}
		return nil
	})
	return slices.Compact(slices.Sorted(slices.Values(names)))
}

// frozenWords are the queues, or kinds, that are frozen.
func frozenWords(noun string) words {
	return func(ctx context.Context, a *app) (names []string) {
		_ = a.operate(ctx, completeLimit, nil, func(ctx context.Context, o *operation) error {
			frozen, _ := o.Frozen(ctx)
			for _, f := range frozen {
				if f.Queue != "" == (noun == "queue") {
					names = append(names, cmp.Or(f.Queue, f.Kind))
				}
			}
			return nil
		})
		return slices.Compact(names)
	}
}
