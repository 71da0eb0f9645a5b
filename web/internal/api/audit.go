package api

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type auditIn struct {
	Pool   string `query:"pool"`
	Tenant string `query:"tenant"`
	Who    string `query:"who"`
	Action string `query:"action" doc:"such as job.cancel, or a word of one: job is all that was done to single jobs, freeze all that was frozen"`
	Job    int64  `query:"job" minimum:"0"`
	After  string `query:"after" doc:"the next of the page before"`
	Limit  int    `query:"limit" minimum:"1" maximum:"1000" default:"100"`
}

type auditOut struct {
	At      time.Time      `json:"at"`
	Pool    string         `json:"pool"`
	Who     string         `json:"who"`
	Action  string         `json:"action"`
	Tenant  string         `json:"tenant,omitempty" doc:"none: it was done to all, or to a pool"`
	Job     string         `json:"job,omitempty"`
	Subject string         `json:"subject,omitempty" doc:"the name of what it was done to, if that is no job"`
	Detail  map[string]any `json:"detail,omitempty"`
	Chosen  bool           `json:"chosen,omitempty" doc:"of one job: it was done to all that a filter chose, which fits this job; whether it was among them is not noted"`
	Text    string         `json:"text" doc:"what it was done to, and how, in words"`
}

// listAudit lists what operators have done to what the grant reaches.
func listAudit(ctx context.Context, s *server, in *auditIn) (*list[auditOut], error) {
	found, err := gather(ctx, in.Tenant, in.Pool, s.limits.look, func(ctx context.Context, of scope) ([]operate.AuditEntry, error) {
		return s.operator.Audit(ctx, operate.AuditFilter{Pool: of.pool, Tenant: tenancy.ID(of.tenant), Who: in.Who, Action: in.Action, Job: job.ID(in.Job), After: in.After, Limit: in.Limit + 1})
	})
	return pageOf(found, err, in.Limit, operate.CompareAudit, newAudit)
}

func newAudit(e *operate.AuditEntry) auditOut {
	out := auditOut{e.At, e.Pool, e.Who, e.Action, e.Tenant, "", e.Subject, e.Detail, e.Chosen, e.Text()}
	if e.Job != 0 {
		out.Job = e.Job.String()
	}
	return out
}

// seenDeed is a deed as far as the audit would list it for the grant: what was done to all tenants is not for all.
func seenDeed(ctx context.Context, e *operate.AuditEntry) *auditOut {
	if e == nil || !sees(ctx, tenancy.ID(e.Tenant), e.Pool) {
		return nil
	}
	out := newAudit(e)
	return &out
}
