package main

import (
	"slices"
	"strings"

	"github.com/spf13/cobra"
)

// groups are the commands that only hold others, and what these are about.
var groups = []struct{ name, short, long string }{
	{"jobs", "List, show, explain, watch, run, retry, cancel, suspend and change jobs", ""},
	{"pools", "List, freeze, thaw and drain pools", "To add or remove a pool, or to change its settings, edit the configuration: running\n" +
		"nodes notice within seconds, or at once with `tenure reload` or SIGHUP."},
	{"queues", "List, freeze and thaw queues in all pools", ""},
	{"kinds", "List, freeze and thaw kinds in all pools", ""},
	{"tenants", "List, explain, freeze, thaw, limit and weight tenants, move them to another pool, reassign jobs, and clear tenants that have left", ""},
	{"schedules", "List, set, pause, run and delete schedules", ""},
	{"external", "Acquire and end jobs of workers outside the cluster", ""},
	{"batches", "List, show and cancel batches", ""},
	{"operations", "List, show and cancel what nodes do to many dead letters or jobs", ""},
	{"limits", "List, set and delete limits on how many jobs run at a time, and how often", ""},
}

// operating are the commands of operators, which ask the API.
var operating = slices.Concat(jobCommands, poolCommands, freezing("queue"), freezing("kind"), tenantCommands, scheduleCommands, externalCommands,
	batchCommands, operationCommands, limitCommands, []spec{topCommand})

// newOperating makes the commands of operators, those of a group below it.
func newOperating(a *app) (all []*cobra.Command) {
	at := map[string]*cobra.Command{}
	for _, g := range groups {
		at[g.name] = newGroup(g.name, g.short)
		at[g.name].Long = g.long
		all = append(all, at[g.name])
	}
	for i := range operating {
		c := &operating[i]
		cmd := c.build(a)
		if group, _, below := strings.Cut(c.name, " "); below {
			at[group].AddCommand(cmd)
			continue
		}
		at[c.name] = cmd
		all = append(all, cmd)
	}
	at["tenants"].AddCommand(newTenantsMove(a))
	return all
}
