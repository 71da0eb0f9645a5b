package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// noSchedule says where to look for one that is not there.
const noSchedule = "see: tenure schedules list"

// ofTenant and ofAll are the flags of whose schedule is meant, which are in the path.
var scheduleFlags = []flag{textFlag("tenant", "the tenant that has the schedule").by(checked(checkTenant)), flagOf("every-tenant", false, "the one that every tenant has")}

func scheduleRules(cmd *cobra.Command) { cmd.MarkFlagsMutuallyExclusive("tenant", "every-tenant") }

// onSchedule are the forms of a request about a tenant's schedule, or the one that every tenant has.
func onSchedule(method, behind, args, flags string) []form {
	return []form{
		{method: method, path: "/tenants/{tenant}/schedules/{name}" + behind, args: args, when: "tenant", flags: flags},
		{method: method, path: "/schedules/{name}" + behind, args: args, when: "every-tenant", flags: flags},
	}
}

// each is a command that does something to schedules.
func eachSchedule(name, short, long string, forms []form, said func(*answer) string) spec {
	return spec{name: "schedules " + name, args: "NAME...", short: short, long: long, flags: scheduleFlags, rules: scheduleRules, check: ofWhom, forms: forms, said: said, absent: noSchedule}
}

var scheduleCommands = []spec{
	{
		name: "schedules list", short: "List the schedules of every pool by tenant and name", forms: list("/schedules"), rules: scheduleRules,
		flags:   []flag{textFlag("tenant", "the tenant that has the schedule"), flagOf("every-tenant", false, "the one that every tenant has"), textFlag("name", "only schedules of this name")},
		columns: "tenant name state rule time_zone kind next last pool origin",
		cells:   map[string]cell{"tenant": of(func(_ *app, s *shownSchedule) string { return s.whose() }), "next": when("next"), "last": when("last")},
	},
	{
		name: "schedules show", args: "NAME", hint: "--tenant TENANT", short: "Show a schedule with its arguments", flags: scheduleFlags, rules: scheduleRules, check: ofWhom,
		forms: onSchedule(http.MethodGet, "", "name", ""), show: showSchedule, absent: noSchedule,
		columns: "name tenant state origin pool kind queue priority max_attempts run_by rule time_zone end missed_runs=missed waits jitter next last last_job",
		cells: map[string]cell{
			"tenant": of(func(_ *app, s *shownSchedule) string { return s.whose() }), "max_attempts": of(func(_ *app, s *shownSchedule) string { return cmp.Or(some(s.MaxAttempts), "by its kind") }),
			"run_by": of(func(_ *app, s *shownSchedule) string {
				return map[bool]string{true: "external workers", false: "nodes"}[s.External]
			}),
			"waits": of(func(_ *app, s *shownSchedule) string {
				return map[bool]string{true: "for the run before to end", false: "no"}[s.Wait]
			}),
			"jitter": of(func(_ *app, s *shownSchedule) string { return (time.Duration(s.JitterMS) * time.Millisecond).String() }),
		},
	},
	{
		name: "schedules set", args: "NAME KIND [JSON]", hint: "--tenant TENANT --rule RULE", short: "Add a schedule, or change the one of this name", output: true,
		long: `JSON is the arguments of each job; - reads them from standard input. RULE is one of

  0 7 * * 1-5                         cron: minute, hour, day of month, month, day of week
  @every 15m, PT15M, P1D              an interval, counted from now
  R3/2026-12-01T08:00:00Z/P1D         ISO 8601: how often, the first time, the period, and an end

A schedule that is set again replaces what it was. What is left out has its default then.`,
		example: "  tenure schedules set nightly report.build '{\"pages\": 3}' --tenant acme --rule '0 7 * * 1-5' --time-zone Europe/Amsterdam",
		flags: append(scheduleFlags[:2:2],
			textFlag("rule", "when it is due"), textFlag("time-zone", "the time `zone` whose clocks count, such as Europe/Amsterdam (default UTC)"),
			textFlag("end", "the last `time` at which it can be due, such as 2027-01-31T09:00:00Z").by(typedTime),
			flagOf("missed", string(operate.MissedOne), "what becomes of runs that nobody could make when they were due: skip, one, all"),
			flagOf("wait", false, "have a run wait until the job of the one before has ended"),
			flagOf("jitter", time.Duration(0), "with --every-tenant: over how long the tenants' runs are spread").as("jitter_ms").by(upToADay(inMS(0))),
			textFlag("queue", "the `queue` to put its jobs on (default the kind's own)"),
			flagOf("priority", 0, fmt.Sprintf("of its jobs, %d to %d", job.MinPriority, job.MaxPriority)).by(typedPriority),
			flagOf("max-attempts", 0, "most attempts of its jobs (default: as their kind says)").by(typedMaxAttempts),
			flagOf("external", false, "its jobs are for workers outside the cluster"),
			textFlag("meta", "a `JSON` object to store beside the arguments").by(typedObject)),
		rules: func(cmd *cobra.Command) {
			scheduleRules(cmd)
			_ = cmd.MarkFlagRequired("rule") // fails for a flag that does not exist
		},
		check: ofWhom, forms: onSchedule(http.MethodPut, "", "name kind args", "rule time-zone end missed wait jitter queue priority max-attempts external meta"), handled: true, show: showSet,
	},
	eachSchedule("pause", "Keep schedules from being due until they are resumed", "Jobs that they have added go on. With --every-tenant it is paused for all.",
		onSchedule(http.MethodPost, "/pause", "name", ""), done("schedule", "is paused")),
	eachSchedule("resume", "Let paused schedules be due again", "What was due while they were paused is left out.",
		onSchedule(http.MethodPost, "/resume", "name", ""), done("schedule", "goes on")),
	{
		name: "schedules run", args: "NAME...", hint: "--tenant TENANT", short: "Add the jobs of schedules now, for one tenant",
		long:  "When they are due next does not change. It works on paused schedules, too, and on those that every tenant has.",
		flags: scheduleFlags[:1], rules: func(cmd *cobra.Command) { _ = cmd.MarkFlagRequired("tenant") }, // fails for a flag that does not exist
		forms: onSchedule(http.MethodPost, "/run", "name", "")[:1], absent: noSchedule,
		said: func(r *answer) string {
			var added struct{ Job string }
			_ = r.readInto(&added) // what cannot be read says nothing
			return "schedule " + r.arg + " has added job " + added.Job
		},
	},
	eachSchedule("delete", "Delete schedules", "Jobs that they have added stay. With --every-tenant it is deleted for all. One that the\nconfiguration has made is deleted there.",
		onSchedule(http.MethodDelete, "", "name", ""), done("schedule", "is deleted")),
}

// shownSchedule is a schedule as the API answers it.
type shownSchedule struct {
	Tenant      string
	MaxAttempts int `json:"max_attempts"`
	Wait        bool
	External    bool
	JitterMS    int64           `json:"jitter_ms"`
	Args, Meta  json.RawMessage // as far as they are shown
	Reach       []struct {
		Pool                    string
		Has, Own, Lack, Unknown []string
	}
}

// whose is whose schedule it is.
func (s *shownSchedule) whose() string { return cmp.Or(s.Tenant, "(every tenant)") }

func showSchedule(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var s shownSchedule
	if err := r.readInto(&s); err != nil {
		return err
	}
	err := r.printTable()
	for _, reach := range s.Reach {
		fmt.Fprintf(r.a.stdout, "\nin pool %s it stands for tenants: %d\n", reach.Pool, len(reach.Has))
		for _, not := range []struct {
			ids []string
			why string
		}{
			{reach.Own, "have their own of that name instead"},
			{reach.Lack, "do not have it yet: the node that holds the pool's lock gives it to them within a minute"},
			{reach.Unknown, "have jobs and do not get it: neither tenants.static nor tenants.table knows them"},
		} {
			if len(not.ids) > 0 {
				fmt.Fprintf(r.a.stdout, "not for tenants that %s: %d: %s\n", not.why, len(not.ids), someOf(not.ids))
			}
		}
	}
	if s.Args != nil {
		printBlock(r.a.stdout, "args", pretty(s.Args))
	}
	if s.Meta != nil {
		printBlock(r.a.stdout, "meta", pretty(s.Meta))
	}
	return err
}

// someOf names the first ones of tenants.
func someOf(ids []string) string {
	const most = 20
	var out []string
	for _, id := range ids[:min(len(ids), most)] {
		out = append(out, fmt.Sprintf("%q", id))
	}
	if len(ids) > most {
		out = append(out, "…")
	}
	return strings.Join(out, ", ")
}

func showSet(r *answer) error {
	if r.format() == asJSON {
		return printJSON(r.a.stdout, r.body)
	}
	var set struct{ Next time.Time }
	if err := r.readInto(&set); err != nil {
		return err
	}
	what := "it has come to its end"
	switch {
	case !set.Next.IsZero():
		what = "due next " + r.a.now.stamp(set.Next)
	case r.given("every-tenant"):
		what = "each tenant has it within a minute"
	}
	return say(r.a, fmt.Sprintf("schedule %s is set; %s", r.arg, what))
}
