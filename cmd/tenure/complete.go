package main

import (
	"context"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// completeLimit bounds what somebody waits for who has pressed the tab key.
const completeLimit = 2 * time.Second

// words are what may be typed in a place.
type words func(ctx context.Context, a *app) []string

// completed are the flags whose values the shell completes, in all commands.
var completed = map[string]words{
	"state":  func(context.Context, *app) []string { return tenure.States },
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
	"tenure queues freeze": queueWords, "tenure queues thaw": frozenWords("queue"), "tenure kinds freeze": kindWords, "tenure kinds thaw": frozenWords("kind"),
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

func poolWords(_ context.Context, a *app) []string {
	return slices.Sorted(maps.Keys(configured(a).Pools))
}

// tenantWords are those under tenants.static: of a table there may be any number.
func tenantWords(_ context.Context, a *app) (ids []string) {
	for _, id := range slices.Sorted(maps.Keys(configured(a).Tenants.Static)) {
		ids = append(ids, string(id))
	}
	return ids
}

// kindWords are the kinds that live nodes have handlers for.
func kindWords(ctx context.Context, a *app) []string {
	kinds := map[string]bool{}
	_ = a.operate(ctx, completeLimit, nil, func(ctx context.Context, o *operation) error {
		sessions, _ := o.SessionStatuses(ctx)
		for _, s := range sessions {
			for _, kind := range s.Kinds {
				if s.State == "live" && !s.Expired {
					kinds[kind] = true
				}
			}
		}
		return nil
	})
	return slices.Sorted(maps.Keys(kinds))
}
