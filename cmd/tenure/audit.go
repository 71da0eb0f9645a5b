package main

import (
	"cmp"
	"context"

	"github.com/spf13/cobra"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// jsonAudit is something that an operator did as -o json prints it.
type jsonAudit struct {
	At      jsonTime       `json:"at"`
	Pool    string         `json:"pool"`
	Who     string         `json:"who"`
	Action  string         `json:"action"`
	Tenant  string         `json:"tenant,omitempty"`
	Job     jsonID         `json:"job,omitempty"`
	Subject string         `json:"subject,omitempty"`
	Detail  map[string]any `json:"detail,omitempty"`
	Cursor  string         `json:"cursor"` // --after it is the next one
	text    string
}

func newAudit(a *app) *cobra.Command {
	var f tenure.AuditFilter
	var id string
	cmd := &cobra.Command{
		Use: "audit", Short: "List what operators have done, over all pools, the last of it first",
		Long: "Each pool notes what is done in it by this command, the API, the dashboard and programs, who did it,\nand when, and keeps that for ninety days. What fails is not noted, or not done in full.",
		PreRunE: func(*cobra.Command, []string) (err error) {
			if err := checkLimit(f.Limit); err != nil {
				return err
			}
			if id != "" {
				if f.Job, err = job.ParseID(id); err != nil {
					return usagef("--job: %w", err)
				}
			}
			if err := f.Validate(); err != nil {
				return &usageError{err}
			}
			return a.checkPool(f.Pool)
		},
	}
	flags := cmd.Flags()
	flags.StringVar(&f.Who, "who", "", "only what they `name` has done")
	flags.StringVar(&f.Action, "action", "", "only this `action`, such as job.cancel; job: all that was done to single jobs")
	flags.StringVar((*string)(&f.Tenant), "tenant", "", "only what was done to this tenant")
	flags.StringVar(&id, "job", "", "only what was done to the job with this `id`")
	flags.StringVar(&f.Pool, "pool", "", "only what was done in this pool")
	pageFlags(cmd, "entries", &f.Limit, &f.After)
	head := []string{"WHEN", "WHO", "ACTION", "TENANT", "POOL", "WHAT"}
	row := func(e jsonAudit) []string {
		return []string{a.now.stamp(e.At.Time), e.Who, e.Action, cmp.Or(e.Tenant, "-"), e.Pool, e.text}
	}
	return list(a, cmd, head, row, func(ctx context.Context, o *operation) (all []jsonAudit, unanswered error) {
		found, unanswered := o.Audit(ctx, f)
		for _, e := range found {
			all = append(all, jsonAudit{jsonTime{e.At}, e.Pool, e.Who, e.Action, e.Tenant, jsonID(e.Job), e.Subject, e.Detail, e.Cursor(), e.Text()})
		}
		sayMore(a, f.Limit, found)
		return all, unanswered
	})
}
