package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/operate"
)

// completeLimit bounds what somebody waits for who has pressed the tab key.
const completeLimit = 2 * time.Second

// words are what may be typed in a place.
type words func(ctx context.Context, a *app) []string

// completed are the flags whose values the shell completes, in all commands.
var completed = map[string]words{
	"state":  func(context.Context, *app) []string { return operate.States },
	"action": func(context.Context, *app) []string { return operate.AuditActions },
	"pool":   poolWords,
	"to":     poolWords,
	"tenant": tenantWords,
	"kind":   kindWords,
	"output": func(context.Context, *app) []string { return []string{string(asTable), string(asJSON)} },
}

// completedArgs are the commands whose arguments it completes.
var completedArgs = map[string]words{
	"tenure pools freeze": poolWords, "tenure pools thaw": poolWords, "tenure pools drain": poolWords,
	"tenure tenants freeze": tenantWords, "tenure tenants thaw": tenantWords, "tenure tenants move": tenantWords,
	"tenure tenants limit": tenantWords, "tenure tenants why": tenantWords,
	"tenure queues freeze": queueWords, "tenure queues thaw": frozenQueueWords, "tenure kinds freeze": kindWords, "tenure kinds thaw": frozenKindWords,
	"tenure enqueue": kindWords,
}

// addCompletion has the shell complete what is typed behind cmd and the commands below it.
func addCompletion(a *app, cmd *cobra.Command) {
	function := func(list words) cobra.CompletionFunc {
		return func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			var fit []string
			for _, word := range list(cmd.Context(), a) {
				if strings.HasPrefix(word, begun) {
					fit = append(fit, word)
				}
			}
			return fit, cobra.ShellCompDirectiveNoFileComp
		}
	}
	cmd.Flags().VisitAll(func(f *pflag.Flag) {
		if list := completed[f.Name]; list != nil {
			_ = cmd.RegisterFlagCompletionFunc(f.Name, function(list)) // fails for a flag that does not exist
		}
	})
	if list := completedArgs[cmd.CommandPath()]; list != nil {
		complete := function(list)
		cmd.ValidArgsFunction = func(cmd *cobra.Command, args []string, begun string) ([]string, cobra.ShellCompDirective) {
			if len(args) > 0 { // the first one only
				return nil, cobra.ShellCompDirectiveNoFileComp
			}
			return complete(cmd, args, begun)
		}
	}
	for _, sub := range cmd.Commands() {
		addCompletion(a, sub)
	}
}

// configured is the configuration, or an empty one: a completion has nobody to complain to.
func configured(a *app) config.Config {
	cfg, _ := a.loadConfig()
	return cfg
}

// poolWords are those of the configuration, without a look at its databases, or what a node lists.
func poolWords(ctx context.Context, a *app) []string {
	if pools := configured(a).Pools; pools != nil {
		return slices.Sorted(maps.Keys(pools))
	}
	return listed("/pools", func(p *struct{ Pool string }) []string { return []string{p.Pool} })(ctx, a)
}

// tenantWords are those under tenants.static: of a table there may be any number.
func tenantWords(ctx context.Context, a *app) (ids []string) {
	if a.remote.address(a.config) != "" {
		return listed("/tenants", func(t *struct{ Tenant string }) []string { return []string{t.Tenant} })(ctx, a)
	}
	for _, id := range slices.Sorted(maps.Keys(configured(a).Tenants.Static)) {
		ids = append(ids, string(id))
	}
	return ids
}

// kindWords are the kinds that live nodes have handlers for.
var kindWords = listed("/nodes", liveKinds)

func liveKinds(n *shownSession) []string {
	if n.State != "live" {
		return nil
	}
	return n.Kinds
}

// queueWords are the queues.
var queueWords = listed("/queues", func(q *struct{ Queue string }) []string { return []string{q.Queue} })

// frozenQueueWords and frozenKindWords are the queues and kinds that are frozen.
var (
	frozenQueueWords = listed("/queues", func(q *shownQueue) []string {
		if q.FrozenSince == nil {
			return nil
		}
		return []string{q.Queue}
	})
	frozenKindWords = listed("/kinds/frozen", func(f *struct{ Kind string }) []string { return []string{f.Kind} })
)

// listed are the words that some list of the API has, each once.
func listed[T any](path string, wordsOf func(*T) []string) words {
	return func(ctx context.Context, a *app) (names []string) {
		root := &cobra.Command{}
		root.SetContext(ctx)
		_ = a.ask(&question{spec: &spec{limit: completeLimit}, a: a, cmd: root}, func(ctx context.Context, _ *question, s *server) error {
			var all struct{ Items []T }
			err := s.get(ctx, path, nil, &all)
			for i := range all.Items {
				names = append(names, wordsOf(&all.Items[i])...)
			}
			return err
		})
		return slices.Compact(slices.Sorted(slices.Values(names)))
	}
}
