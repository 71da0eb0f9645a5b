package main

import (
	"cmp"
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"time"

	"github.com/spf13/cobra"
)

// ofWhom looks whether flags say whose a schedule or limit is.
func ofWhom(q *question) error {
	if err := checkTenant(q.text("tenant")); !q.given("every-tenant") && err != nil {
		return usagef("--tenant: %w: name the tenant, or pass --every-tenant", err)
	}
	return nil
}

var limitFlags = []flag{
	textFlag("tenant", "the tenant that has the limit"), flagOf("every-tenant", false, "each tenant has such a limit, unless one is set for itself"),
	textFlag("kind", "only for its jobs of this `kind`"), textFlag("queue", "only for its jobs on this `queue`"),
	textFlag("key", "only for its jobs with this exclusive `key`"), flagOf("each-key", false, "each of its exclusive keys has such a limit, unless one is set for that key"),
}

func limitRules(cmd *cobra.Command) {
	cmd.MarkFlagsMutuallyExclusive("tenant", "every-tenant")
	cmd.MarkFlagsMutuallyExclusive("kind", "queue", "key", "each-key")
}

var limitCommands = []spec{
	{
		name: "limits list", short: "List the limits of every pool", forms: list("/limits"),
		long: "Those that all tenants have together come first, by pool with its share of the whole, as the configuration has\nthem; then those for every tenant, and each tenant's own. RUNNING counts what is in flight:\nclaimed jobs that wait for a worker, too. NEXT: when the rate lets the next job start.\n" +
			"MAX WAITING: how many of the tenant's jobs may wait or run before more are refused, as tenure tenants limit sets it.",
		flags:   []flag{textFlag("tenant", "only those that bind this tenant").by(checked(checkTenant))},
		columns: "tenant queue kind key max_running running rate burst next=next_start max_waiting pool",
		cells: map[string]cell{
			"tenant": of(func(_ *app, l *shownLimit) string { return l.whose() }), "key": of(func(_ *app, l *shownLimit) string { return l.key() }),
			"max_running": of(func(_ *app, l *shownLimit) string { return l.most() }), "running": of(func(_ *app, l *shownLimit) string { return l.running() }),
			"rate": of(func(_ *app, l *shownLimit) string { return l.rate() }), "burst": of(func(_ *app, l *shownLimit) string { return some(l.Burst) }), "max_waiting": of(func(_ *app, l *shownLimit) string { return some(l.MaxWaiting) }), "next": when("next_start"),
		},
	},
	{
		name: "limits set", hint: "--tenant TENANT [--kind KIND | --queue QUEUE | --key KEY] [--max-running N] [--rate N --per PERIOD]", short: "Set a limit in the place of the one there was",
		long: "On all nodes together. Without --kind, --queue and --key it is for all of the tenant's jobs. In force\n" +
			"from the next claim on, for what waits already, too; what is running beyond it goes on. A limit is kept\n" +
			"with its tenant, and moves with it. A job must pass all limits that apply to it. Of an exclusive key\n" +
			"there is a rate only: of its jobs one runs at a time in any case.",
		example: "  tenure limits set --tenant acme --kind invoice.send --max-running 4\n" +
			"  tenure limits set --every-tenant --queue mail --rate 100 --per 1m --burst 10\n" +
			"  tenure limits set --tenant acme --each-key --rate 1 --per 5s",
		flags: append(slices.Clone(limitFlags), flagOf("max-running", 0, "so many jobs at a time (default any number)"), flagOf("rate", 0, "so many starts in each period (default any number)"),
			flagOf("per", time.Duration(0), "the period of --rate (default 1s)").as("per_ms").by(upToADay(inMS(1))), flagOf("burst", 0, "so many starts at once after a pause (default 1)")),
		rules: func(cmd *cobra.Command) { limitRules(cmd); cmd.MarkFlagsOneRequired("max-running", "rate") }, check: ofWhom,
		forms: put(http.MethodPut, "/limits", "", "*"), handled: true, said: func(r *answer) string { return "the limit of " + limitTyped(r.question) + " is set" },
	},
	{
		name: "limits delete", hint: "--tenant TENANT [--kind KIND | --queue QUEUE | --key KEY]", short: "Lift a limit",
		long:  "Of a tenant's own limit, one for every tenant takes the place, if there is one.",
		flags: limitFlags, rules: limitRules, check: ofWhom,
		forms: put(http.MethodDelete, "/limits", "", "*"), said: func(r *answer) string { return "the limit of " + limitTyped(r.question) + " is lifted" }, absent: "see: tenure limits list",
	},
}

// limitTyped says in a few words what a limit is about.
func limitTyped(q *question) string {
	out := "every tenant"
	if !q.given("every-tenant") {
		out = q.text("tenant")
	}
	switch {
	case q.given("kind"):
		out += " for kind " + q.text("kind")
	case q.given("queue"):
		out += " for queue " + q.text("queue")
	case q.given("key"):
		out += fmt.Sprintf(" for exclusive key %q", q.text("key"))
	case q.given("each-key"):
		out += " for each exclusive key"
	}
	return out
}

// shownLimit is a limit as the API answers it.
type shownLimit struct {
	Tenant, Key          string
	EveryTenant          bool `json:"every_tenant"`
	AllTenants           bool `json:"all_tenants"`
	EachKey              bool `json:"each_key"`
	MaxRunning           int  `json:"max_running"`
	MaxWaiting           int  `json:"max_waiting"`
	Running, Rate, Burst int
	PerMS                int64 `json:"per_ms"`
	Whole                *struct {
		MaxRunning int `json:"max_running"`
		Rate       int
		PerMS      int64 `json:"per_ms"`
	}
}

// some is a number that says something if it is not 0.
func some(n int) string {
	if n == 0 {
		return ""
	}
	return strconv.Itoa(n)
}

func (l *shownLimit) whose() string {
	if l.AllTenants {
		return "(all together)"
	}
	return cmp.Or(l.Tenant, "(every tenant)")
}

func (l *shownLimit) key() string {
	if l.EachKey {
		return "(each)"
	}
	return l.Key
}

func (l *shownLimit) most() string {
	switch {
	case l.MaxRunning < 0:
		return "none here"
	case l.Whole != nil && l.Whole.MaxRunning > 0:
		return fmt.Sprintf("%d of %d", l.MaxRunning, l.Whole.MaxRunning)
	}
	return some(l.MaxRunning)
}

func (l *shownLimit) running() string {
	if l.EveryTenant || l.key() != "" {
		return ""
	}
	return strconv.Itoa(l.Running)
}

func (l *shownLimit) rate() string {
	if l.Rate == 0 {
		return ""
	}
	out := fmt.Sprintf("%d per %v", l.Rate, time.Duration(l.PerMS)*time.Millisecond)
	if l.Whole != nil && l.Whole.Rate > 0 {
		out += fmt.Sprintf(" of %d per %v", l.Whole.Rate, time.Duration(l.Whole.PerMS)*time.Millisecond)
	}
	return out
}
