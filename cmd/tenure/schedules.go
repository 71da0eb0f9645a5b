package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/cmd/tenure/internal/handlers"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

func newSchedules(a *app) *cobra.Command {
	return newGroup("schedules", "List, set, pause, run and delete schedules",
		newSchedulesList(a), newSchedulesShow(a), newSchedulesSet(a), newSchedulesPause(a), newSchedulesResume(a), newSchedulesRun(a), newSchedulesDelete(a))
}

// jsonSchedule is a schedule as -o json prints it.
type jsonSchedule struct {
	Name        string          `json:"name"`
	Tenant      string          `json:"tenant,omitempty"`
	EveryTenant bool            `json:"every_tenant,omitempty"`
	Pool        string          `json:"pool"`
	State       string          `json:"state"`  // active, paused, ended
	Origin      string          `json:"origin"` // set, config, every: a tenant's own of one for every tenant
	Kind        string          `json:"kind"`
	Queue       string          `json:"queue"`
	Priority    int16           `json:"priority"`
	MaxAttempts int             `json:"max_attempts,omitempty"`
	Payload     json.RawMessage `json:"payload"`
	Meta        json.RawMessage `json:"meta,omitempty"`
	Rule        string          `json:"rule"`
	TimeZone    string          `json:"time_zone"`
	End         *jsonTime       `json:"end,omitempty"`
	Missed      string          `json:"missed"`
	Wait        bool            `json:"wait"`
	JitterMS    int64           `json:"jitter_ms,omitempty"`
	Since       jsonTime        `json:"since"`
	Next        *jsonTime       `json:"next,omitempty"`
	Last        *jsonTime       `json:"last,omitempty"`
	LastJob     jsonID          `json:"last_job,omitempty"`
	Reach       []jsonReach     `json:"reach,omitempty"` // of show, of one for every tenant
}

// jsonReach is for whom a schedule for every tenant stands in a pool, as -o json prints it.
type jsonReach struct {
	Pool    string       `json:"pool"`
	Has     []tenancy.ID `json:"has"`
	Own     []tenancy.ID `json:"own"`     // have one of that name by themselves
	Lack    []tenancy.ID `json:"lack"`    // have none yet
	Unknown []tenancy.ID `json:"unknown"` // have jobs, but no rule knows them
}

func newJSONSchedule(s tenure.ScheduleStatus) jsonSchedule {
	at := func(t time.Time) *jsonTime {
		if t.IsZero() {
			return nil
		}
		return &jsonTime{t}
	}
	out := jsonSchedule{Name: s.Name, Tenant: string(s.Tenant), Pool: s.Pool, State: "active", Origin: s.Origin, Kind: s.Kind, Queue: s.Queue, Priority: s.Priority,
		MaxAttempts: s.MaxAttempts, Payload: handlers.Redact(s.Kind, s.Payload), Meta: s.Meta, Rule: s.Rule, TimeZone: cmp.Or(s.TimeZone, "UTC"), End: at(s.End), Missed: string(s.Missed), Wait: s.Wait,
		JitterMS: s.Jitter.Milliseconds(), Since: jsonTime{s.Since}, Next: at(s.Next), Last: at(s.Last), LastJob: jsonID(s.LastJob)}
	if s.Tenant == tenure.EveryTenant {
		out.Tenant, out.EveryTenant = "", true
	}
	switch {
	case s.Paused:
		out.State = "paused"
	case s.Next.IsZero() && !out.EveryTenant:
		out.State = "ended"
	}
	return out
}

// whose is whose schedule it is.
func (s jsonSchedule) whose() string { return cmp.Or(s.Tenant, "(every tenant)") }

// relatively is when something is or was; "": never.
func relatively(a *app, t *jsonTime) string {
	if t == nil {
		return ""
	}
	return a.now.relative(t.Time)
}

// scheduleOf is which schedule is meant, as flags of a command say: whose it is.
type scheduleOf struct {
	tenant string
	every  bool
}

func (f *scheduleOf) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.tenant, "tenant", "", "the tenant that has the schedule")
	cmd.Flags().BoolVar(&f.every, "every-tenant", false, "the one that every tenant has")
	cmd.MarkFlagsMutuallyExclusive("tenant", "every-tenant")
}

func (f *scheduleOf) id() (tenancy.ID, error) {
	if f.every {
		return tenure.EveryTenant, nil
	}
	id := tenancy.ID(f.tenant)
	if err := id.Validate(); err != nil {
		return "", usagef("--tenant: %w: name the tenant, or pass --every-tenant", err)
	}
	return id, nil
}

func newSchedulesList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List the schedules of every pool by tenant and name"}
	var of scheduleOf
	of.add(cmd)
	var name string
	cmd.Flags().StringVar(&name, "name", "", "only schedules of this name")
	head := []string{"TENANT", "NAME", "STATE", "RULE", "TIME ZONE", "KIND", "NEXT", "LAST", "POOL", "ORIGIN"}
	row := func(s jsonSchedule) []string {
		return []string{s.whose(), s.Name, s.State, s.Rule, s.TimeZone, s.Kind, relatively(a, s.Next), relatively(a, s.Last), s.Pool, s.Origin}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonSchedule, unanswered error) {
		f := tenure.ScheduleFilter{Tenant: tenancy.ID(of.tenant), Name: name}
		if of.every {
			f.Tenant = tenure.EveryTenant
		}
		schedules, unanswered := o.Schedules().List(ctx, f)
		for _, s := range schedules {
			all = append(all, newJSONSchedule(s))
		}
		return all, unanswered
	})
}

func newSchedulesShow(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "show NAME --tenant TENANT", Short: "Show a schedule with its arguments", Args: cobra.ExactArgs(1)}
	output := outputFlag(cmd)
	var of scheduleOf
	of.add(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		id, err := of.id()
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			found, err := o.Schedules().List(ctx, tenure.ScheduleFilter{Tenant: id, Name: args[0]})
			if len(found) == 0 {
				return noSchedule(errors.Join(fmt.Errorf("schedule %q: %w", args[0], tenure.ErrNoSchedule), err))
			}
			s := newJSONSchedule(found[0])
			var unanswered error
			if id == tenure.EveryTenant {
				var reach []tenure.ScheduleReach
				reach, unanswered = o.Schedules().Reach(ctx, args[0])
				for _, r := range reach {
					s.Reach = append(s.Reach, jsonReach(r))
				}
			}
			if *output == asJSON {
				return errors.Join(printJSON(a.stdout, s), unanswered)
			}
			return errors.Join(printSchedule(a, s), unanswered)
		})
	}
	return cmd
}

func printSchedule(a *app, s jsonSchedule) error {
	stamp := func(t *jsonTime) string {
		if t == nil {
			return ""
		}
		return a.now.stamp(t.Time)
	}
	attempts, lastJob, wait := "by its kind", "", "no"
	if s.MaxAttempts > 0 {
		attempts = fmt.Sprint(s.MaxAttempts)
	}
	if s.LastJob != 0 {
		lastJob = fmt.Sprint(s.LastJob)
	}
	if s.Wait {
		wait = "for the run before to end"
	}
	err := printTable(a.stdout, []string{"name", s.Name}, [][]string{
		{"tenant", s.whose()}, {"state", s.State}, {"origin", s.Origin}, {"pool", s.Pool}, {"kind", s.Kind}, {"queue", s.Queue}, {"priority", fmt.Sprint(s.Priority)},
		{"max attempts", attempts}, {"rule", s.Rule}, {"time zone", s.TimeZone}, {"end", stamp(s.End)}, {"missed runs", s.Missed}, {"waits", wait},
		{"jitter", (time.Duration(s.JitterMS) * time.Millisecond).String()}, {"next", stamp(s.Next)}, {"last", stamp(s.Last)}, {"last job", lastJob},
	})
	for _, r := range s.Reach {
		fmt.Fprintf(a.stdout, "\nin pool %s it stands for tenants: %d\n", r.Pool, len(r.Has))
		for _, not := range []struct {
			ids []tenancy.ID
			why string
		}{
			{r.Own, "have their own of that name instead"},
			{r.Lack, "do not have it yet: the node that holds the pool's lock gives it to them within a minute"},
			{r.Unknown, "have jobs and do not get it: neither tenants.static nor tenants.table knows them"},
		} {
			if len(not.ids) > 0 {
				fmt.Fprintf(a.stdout, "not for tenants that %s: %d: %s\n", not.why, len(not.ids), someOf(not.ids))
			}
		}
	}
	printBlock(a.stdout, "payload", pretty(s.Payload))
	if s.Meta != nil {
		printBlock(a.stdout, "meta", pretty(s.Meta))
	}
	return err
}

// someOf names the first ones of tenants.
func someOf(ids []tenancy.ID) string {
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

// setFlags are what somebody typed about a schedule.
type setFlags struct {
	scheduleOf
	rule, zone, end, missed, queue, meta string
	wait                                 bool
	jitter                               time.Duration
	priority, maxAttempts                int
}

func newSchedulesSet(a *app) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set NAME KIND [JSON] --tenant TENANT --rule RULE",
		Short: "Add a schedule, or change the one of this name",
		Long: `JSON is the arguments of each job; - reads them from standard input. RULE is one of

  0 7 * * 1-5                         cron: minute, hour, day of month, month, day of week
  @every 15m, PT15M, P1D              an interval, counted from now
  R3/2026-12-01T08:00:00Z/P1D         ISO 8601: how often, the first time, the period, and an end

A schedule that is set again replaces what it was. What is left out has its default then.`,
		Example: "  tenure schedules set nightly report.build '{\"pages\": 3}' --tenant acme --rule '0 7 * * 1-5' --time-zone Europe/Amsterdam",
		Args:    cobra.RangeArgs(2, 3),
	}
	output := outputFlag(cmd)
	var f setFlags
	f.add(cmd)
	flags := cmd.Flags()
	flags.StringVar(&f.rule, "rule", "", "when it is due")
	flags.StringVar(&f.zone, "time-zone", "", "the time `zone` whose clocks count, such as Europe/Amsterdam (default UTC)")
	flags.StringVar(&f.end, "end", "", "the last `time` at which it can be due, such as 2027-01-31T09:00:00Z")
	flags.StringVar(&f.missed, "missed", string(tenure.MissedOne), "what becomes of runs that nobody could make when they were due: skip, one, all")
	flags.BoolVar(&f.wait, "wait", false, "have a run wait until the job of the one before has ended")
	flags.DurationVar(&f.jitter, "jitter", 0, "with --every-tenant: over how long the tenants' runs are spread")
	flags.StringVar(&f.queue, "queue", "", "the `queue` to put its jobs on (default the kind's own)")
	flags.IntVar(&f.priority, "priority", 0, fmt.Sprintf("of its jobs, %d to %d", tenure.MinPriority, tenure.MaxPriority))
	flags.IntVar(&f.maxAttempts, "max-attempts", 0, "most attempts of its jobs (default: as their kind says)")
	flags.StringVar(&f.meta, "meta", "", "a `JSON` object to store beside the arguments")
	_ = cmd.MarkFlagRequired("rule") // fails for a flag that does not exist
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		s, err := f.schedule(a, append(args, "{}"))
		if err != nil {
			return err
		}
		return a.act(cmd.Context(), operateLimit, func(ctx context.Context, o *operation) error {
			next, err := o.Schedules().Set(ctx, s)
			if err != nil {
				return err
			}
			return printSet(a, *output, s, next)
		})
	}
	return cmd
}

func (f *setFlags) schedule(a *app, args []string) (s tenure.Schedule, err error) {
	id, err := f.id()
	if err != nil {
		return s, err
	}
	raw, err := rawArgs(a, args[1], args[2])
	if err != nil {
		return s, err
	}
	s = tenure.Schedule{Tenant: id, Name: args[0], Args: raw, Options: []tenure.Option{tenure.Priority(f.priority)},
		Rule: f.rule, TimeZone: f.zone, Missed: tenure.Missed(f.missed), Wait: f.wait, Jitter: f.jitter}
	if f.queue != "" {
		s.Options = append(s.Options, tenure.OnQueue(f.queue))
	}
	if f.maxAttempts != 0 {
		s.Options = append(s.Options, tenure.MaxAttempts(f.maxAttempts))
	}
	if f.end != "" {
		if s.End, err = time.Parse(time.RFC3339, f.end); err != nil {
			return s, usagef("--end: %q is not a time: write one such as 2027-01-31T09:00:00Z or 2027-01-31T09:00:00+01:00", f.end)
		}
	}
	if f.meta != "" {
		meta, err := metaObject(f.meta)
		if err != nil {
			return s, err
		}
		s.Options = append(s.Options, tenure.Meta(meta))
	}
	return s, nil
}

func printSet(a *app, f format, s tenure.Schedule, next time.Time) error {
	if f == asJSON {
		out := struct {
			Name string    `json:"name"`
			Next *jsonTime `json:"next,omitempty"`
		}{Name: s.Name}
		if !next.IsZero() {
			out.Next = &jsonTime{next}
		}
		return printJSON(a.stdout, out)
	}
	what := "each tenant has it within a minute"
	if s.Tenant != tenure.EveryTenant {
		what = "it has come to its end"
	}
	if !next.IsZero() {
		what = "due next " + a.now.stamp(next)
	}
	_, err := fmt.Fprintf(a.stdout, "schedule %s is set; %s\n", s.Name, what)
	return err
}

func newSchedulesPause(a *app) *cobra.Command {
	return onSchedules(a, &cobra.Command{
		Use: "pause NAME...", Short: "Keep schedules from being due until they are resumed",
		Long: "Jobs that they have added go on. With --every-tenant it is paused for all.",
	}, func(ctx context.Context, o *operation, id tenancy.ID, name string) (string, error) {
		return "is paused", o.Schedules().Pause(ctx, id, name)
	})
}

func newSchedulesResume(a *app) *cobra.Command {
	return onSchedules(a, &cobra.Command{
		Use: "resume NAME...", Short: "Let paused schedules be due again",
		Long: "What was due while they were paused is left out.",
	}, func(ctx context.Context, o *operation, id tenancy.ID, name string) (string, error) {
		return "goes on", o.Schedules().Resume(ctx, id, name)
	})
}

func newSchedulesRun(a *app) *cobra.Command {
	return onSchedules(a, &cobra.Command{
		Use: "run NAME...", Short: "Add the jobs of schedules now",
		Long: "When they are due next does not change. It works on paused schedules, too.",
	}, func(ctx context.Context, o *operation, id tenancy.ID, name string) (string, error) {
		added, err := o.Schedules().Run(ctx, id, name)
		return "has added job " + added.String(), err
	})
}

func newSchedulesDelete(a *app) *cobra.Command {
	return onSchedules(a, &cobra.Command{
		Use: "delete NAME...", Short: "Delete schedules",
		Long: "Jobs that they have added stay. With --every-tenant it is deleted for all. One that the\nconfiguration has made is deleted there.",
	}, func(ctx context.Context, o *operation, id tenancy.ID, name string) (string, error) {
		return "is deleted", o.Schedules().Delete(ctx, id, name)
	})
}

// onSchedules makes cmd do something to each of the schedules that are its arguments, and say what.
func onSchedules(a *app, cmd *cobra.Command, do func(context.Context, *operation, tenancy.ID, string) (string, error)) *cobra.Command {
	cmd.Args = cobra.MinimumNArgs(1)
	var of scheduleOf
	of.add(cmd)
	parse := func(name string) (string, error) {
		if _, err := of.id(); err != nil {
			return "", err
		}
		return name, job.ValidateKind("name", name)
	}
	return onEach(a, cmd, "schedule", parse, func(ctx context.Context, o *operation, name string) (string, error) {
		id, err := of.id()
		if err != nil {
			return "", err
		}
		what, err := do(ctx, o, id, name)
		return what, noSchedule(err)
	})
}

// noSchedule adds to the error that there is no such schedule where to look.
func noSchedule(err error) error {
	if errors.Is(err, tenure.ErrNoSchedule) {
		return &advised{err, "see: tenure schedules list"}
	}
	return err
}
