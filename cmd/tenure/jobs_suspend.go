package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/job"
)

// movable are the flags that choose jobs to be suspended or resumed, and cancellable those to be cancelled;
// --pool narrows what they choose.
var (
	movable     = []string{"tenant", "kind", "queue", "correlation"}
	cancellable = append(slices.Clone(movable), "state", "tag")
)

func toSuspend(f tenure.CancelFilter) tenure.SuspendFilter {
	return tenure.SuspendFilter{Pool: f.Pool, Tenant: f.Tenant, Kind: f.Kind, Queue: f.Queue, CorrelationID: f.CorrelationID}
}

func newJobsSuspend(a *app) *cobra.Command {
	var until string
	var at time.Time
	cmd := onEach(a, &cobra.Command{
		Use:   "suspend [ID...]",
		Short: "Put waiting, scheduled and retrying jobs aside until they are resumed",
		Long: "A suspended job keeps all that it is: its attempts, its unique key, and when it is due. A running\n" +
			"one is not suspended. With flags that choose jobs, and no id, all that wait when the command\n" +
			"begins are suspended; those that run go on, and may be retried. To keep new jobs from being\n" +
			"started, too, freeze the tenant or the pool. Whatever interrupts the command, run it again.",
		Example: "  tenure jobs suspend --tenant acme --kind mail.send --until 2027-01-31T09:00:00Z",
	}, "job", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		return "is suspended; resume it with: tenure jobs resume " + id.String(), notFound(o.Suspend(ctx, id, at), noSuchJob)
	})
	cmd.Flags().StringVar(&until, "until", "", "resume them at this `time`, such as 2027-01-31T09:00:00Z")
	cmd.PreRunE = func(*cobra.Command, []string) (err error) {
		if until == "" {
			return nil
		}
		if at, err = parseTime("until", until); err == nil && !at.After(a.now()) {
			err = usagef("--until %s: is in the past", until)
		}
		return err
	}
	return orMany(a, cmd, movable, func(ctx context.Context, o *operation, f tenure.CancelFilter) (string, error) {
		r, err := o.SuspendAll(ctx, toSuspend(f), at)
		text := plural.Count(r.Suspended, "job", "jobs") + " suspended"
		if r.Running > 0 {
			text += "; " + plural.Count(r.Running, "is running and goes on", "are running and go on")
		}
		if r.Left > 0 {
			text += "; " + plural.Count(r.Left, "stays, as somebody has locked it or its", "stay, as somebody has locked them or their") + " tenant is being moved: run it again"
		}
		return text, err
	})
}

func newJobsResume(a *app) *cobra.Command {
	cmd := onEach(a, &cobra.Command{
		Use:   "resume [ID...]",
		Short: "Put suspended jobs back where they were",
		Long: "A job that waited waits again, behind those that wait now; a scheduled or retrying one is due when\n" +
			"it was, and runs at once if that has passed. Whatever interrupts the command, run it again.",
	}, "job", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		return "is resumed", notFound(o.Resume(ctx, id), noSuchJob)
	})
	return orMany(a, cmd, movable, func(ctx context.Context, o *operation, f tenure.CancelFilter) (string, error) {
		n, err := o.ResumeAll(ctx, toSuspend(f))
		return plural.Count(n, "job", "jobs") + " resumed", err
	})
}

// orMany makes cmd do something to all jobs that some flags choose; with ids instead it does what it
// did before. extra are flags that go with those only.
func orMany(a *app, cmd *cobra.Command, choosing []string, do func(context.Context, *operation, tenure.CancelFilter) (string, error), extra ...string) *cobra.Command {
	var f tenure.CancelFilter
	flags := cmd.Flags()
	flags.StringVar(&f.Tenant, "tenant", "", "jobs of this tenant")
	flags.StringVar(&f.Kind, "kind", "", "jobs of this kind")
	flags.StringVar(&f.Queue, "queue", "", "jobs on this queue")
	flags.StringVar(&f.CorrelationID, "correlation", "", "jobs with this correlation `id`")
	if slices.Contains(choosing, "state") {
		flags.StringVar(&f.State, "state", "", "jobs in this state: "+strings.Join(tenure.CancelStates, ", "))
	}
	if slices.Contains(choosing, "tag") {
		flags.StringVar(&f.Tag, "tag", "", "jobs with this tag")
	}
	flags.StringVar(&f.Pool, "pool", "", "only jobs in this pool")
	all := flags.Bool("all", false, "all jobs")
	each := cmd.RunE
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		given := cmd.Flags().Changed
		chosen := slices.ContainsFunc(choosing, given)
		switch {
		case len(args) > 0 && (chosen || *all || given("pool") || slices.ContainsFunc(extra, given)):
			return usagef("give ids, or flags that choose jobs, and not both")
		case len(args) > 0:
			return each(cmd, args)
		case !chosen && !*all:
			return usagef("say which: --%s or --all, or ids", strings.Join(choosing, ", --"))
		case chosen && *all:
			return usagef("--all chooses all jobs: leave out --%s", strings.Join(choosing, ", --"))
		}
		if err := checkGiven(cmd, append(slices.Clone(choosing), "pool")); err != nil {
			return err
		}
		if err := f.Validate(); err != nil {
			return &usageError{err}
		}
		var pools []string
		if f.Pool != "" {
			pools = append(pools, f.Pool)
		}
		return a.act(cmd.Context(), manyLimit, func(ctx context.Context, o *operation) error {
			text, err := do(ctx, o, f)
			return errors.Join(say(a, text), err)
		}, pools...)
	}
	return cmd
}

func newJobsChange(a *app) *cobra.Command {
	var change tenure.JobChange
	cmd := onEach(a, &cobra.Command{
		Use:   "change ID...",
		Args:  cobra.MinimumNArgs(1),
		Short: "Change the priority, time, attempts or timeout of jobs that are not running",
		Long: "Changes waiting, scheduled, retrying and suspended jobs. A waiting one that gets another priority\n" +
			"goes behind those that have it; one that gets a time waits for that.",
		Example: "  tenure jobs change 140737488355331 --priority 10 --max-attempts 20",
	}, "job", job.ParseID, func(ctx context.Context, o *operation, id job.ID) (string, error) {
		return "is changed", notFound(o.ChangeJob(ctx, id, change), noSuchJob)
	})
	flags := cmd.Flags()
	priority := flags.Int("priority", 0, fmt.Sprintf("%d to %d; higher ones run first", tenure.MinPriority, tenure.MaxPriority))
	at := flags.String("at", "", "run it at this `time`, such as 2027-01-31T09:00:00Z")
	in := flags.String("in", "", "run it after this `duration`, such as 5m or PT5M; 0s: now, if it waits for a time")
	maxAttempts := flags.Int("max-attempts", 0, fmt.Sprintf("1 to %d, in all", job.MaxMaxAttempts))
	timeout := flags.Duration("timeout", 0, "how long each run may take")
	cmd.MarkFlagsMutuallyExclusive("at", "in")
	cmd.PreRunE = func(cmd *cobra.Command, _ []string) (err error) {
		given := cmd.Flags().Changed
		switch {
		case given("priority") && (*priority < tenure.MinPriority || *priority > tenure.MaxPriority):
			return usagef("--priority %d: %d to %d are allowed", *priority, tenure.MinPriority, tenure.MaxPriority)
		case given("max-attempts") && (*maxAttempts < 1 || *maxAttempts > job.MaxMaxAttempts):
			return usagef("--max-attempts %d: 1 to %d are allowed", *maxAttempts, job.MaxMaxAttempts)
		case given("timeout") && *timeout < time.Millisecond:
			return usagef("--timeout %v: must be 1ms or more", *timeout)
		}
		var due time.Time
		if given("at") {
			due, err = parseTime("at", *at)
		}
		if given("in") {
			var d time.Duration
			if d, err = job.ParseDuration(*in); err != nil {
				err = usagef("--in: %w", err)
			}
			due = a.now().Add(d)
		}
		if err != nil {
			return err
		}
		for flag, set := range map[string]func(){
			"priority":     func() { change.Priority = priority },
			"max-attempts": func() { change.MaxAttempts = maxAttempts },
			"timeout":      func() { change.Timeout = timeout },
			"at":           func() { change.DueAt = &due },
			"in":           func() { change.DueAt = &due },
		} {
			if given(flag) {
				set()
			}
		}
		if change == (tenure.JobChange{}) {
			return usagef("say what is to change: --priority, --at, --in, --max-attempts or --timeout")
		}
		return nil
	}
	return cmd
}
