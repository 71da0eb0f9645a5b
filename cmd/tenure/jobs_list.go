package main

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

func newJobsList(a *app) *cobra.Command {
	cmd := &cobra.Command{Use: "list", Short: "List jobs over all pools, newest first"}
	var f tenure.JobFilter
	flags := cmd.Flags()
	flags.StringVar(&f.State, "state", "", strings.Join(tenure.States, ", "))
	flags.StringVar(&f.Tenant, "tenant", "", "only jobs of this tenant")
	flags.StringVar(&f.Kind, "kind", "", "only jobs of this kind")
	flags.StringVar(&f.Queue, "queue", "", "only jobs on this queue")
	flags.StringSliceVar(&f.Tags, "tag", nil, "only jobs with this `tag`; said more than once: with all of them")
	flags.StringVar(&f.CorrelationID, "correlation", "", "only jobs with this correlation `ID`")
	flags.StringVar(&f.Pool, "pool", "", "only jobs in this pool")
	pageFlags(cmd, "jobs", &f.Limit, &f.After)
	cmd.PreRunE = func(*cobra.Command, []string) error {
		if f.State != "" && !slices.Contains(tenure.States, f.State) {
			return usagef("--state %q is not one of %s", f.State, strings.Join(tenure.States, ", "))
		}
		if err := checkLimit(f.Limit); err != nil {
			return err
		}
		for _, tag := range f.Tags {
			if err := job.ValidateTag(tag); err != nil {
				return usagef("--tag: %w", err)
			}
		}
		if err := f.Validate(); err != nil {
			return &usageError{err}
		}
		return a.checkPool(f.Pool)
	}
	head := []string{"ID", "STATE", "TENANT", "KIND", "QUEUE", "POOL", "ATTEMPTS", "CREATED", "DETAIL"}
	row := func(j jsonJob) []string {
		return []string{fmt.Sprint(j.ID), stateOf(j), j.Tenant, j.Kind, j.Queue, j.Pool, attempts(j), a.now.stamp(j.CreatedAt.Time), detailOf(a, j)}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonJob, unanswered error) {
		jobs, unanswered := o.Jobs(ctx, f)
		sayMore(a, f.Limit, jobs)
		for _, j := range jobs {
			row := newJSONJob(j)
			row.Cursor = j.Cursor()
			all = append(all, row)
		}
		return all, unanswered
	})
}

// maxDetail keeps an error in its row.
const maxDetail = 60

// detailOf is what matters about a job in its state.
func detailOf(a *app, j jsonJob) string {
	var parts []string
	if j.Node != "" {
		parts = append(parts, "on "+j.Node)
	}
	if ran := j.ran(); ran > 0 {
		parts = append(parts, "ran for "+ran.Round(time.Millisecond).String())
	}
	if j.State == "running" && !j.StartedAt.IsZero() {
		parts = append(parts, "started "+a.now.relative(j.StartedAt.Time))
	} else if what := atMeans[j.State]; what != "" && !j.At.IsZero() { // a claim that is not started yet has a node and no time
		parts = append(parts, what+" "+a.now.relative(j.At.Time))
	}
	if len(j.Tags) > 0 {
		parts = append(parts, "tags "+strings.Join(j.Tags, " "))
	}
	if j.ResumeAt != nil {
		parts = append(parts, "until "+a.now.relative(j.ResumeAt.Time))
	}
	if j.Error != "" {
		parts = append(parts, cut(oneLine(j.Error), maxDetail))
	}
	return strings.Join(parts, ", ")
}
