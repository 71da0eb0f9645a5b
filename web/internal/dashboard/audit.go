package dashboard

import (
	"encoding/json"
	"net/http"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

type auditBody struct {
	Filter  tenure.AuditFilter
	JobID   string // of the filter; "": any
	Pools   []string
	Entries []auditRow
	Pages   pages
}

type auditRow struct {
	tenure.AuditEntry
	Note string // what is known besides, as JSON; "": nothing
}

// auditPage shows what was done to what the visitor may see. What was done to a pool, or to all tenants, is for
// those who may see all tenants.
func auditPage(v *visit) (view, error) {
	f := tenure.AuditFilter{Pool: v.FormValue("pool"), Tenant: tenantID(v.FormValue("tenant")), Who: v.FormValue("who"), Action: v.FormValue("action"),
		After: v.after(), Limit: rowsShown + 1}
	body := auditBody{JobID: v.FormValue("job"), Pools: v.pools("")}
	err := f.Validate()
	if err == nil && body.JobID != "" {
		f.Job, err = job.ParseID(body.JobID)
	}
	if err != nil {
		return view{}, &statusError{http.StatusBadRequest, err.Error()}
	}
	body.Filter = f
	found := gather(v, f.Pool, string(f.Tenant), func(pool, tenant string) ([]tenure.AuditEntry, error) {
		of := f
		of.Pool, of.Tenant = pool, tenantID(tenant)
		return v.op.Audit(v.ctx, of)
	})
	entries, next := firstPage(found, tenure.CompareAudit)
	body.Pages = v.newPages("/audit", len(entries), rowsShown, "", next, "pool", f.Pool, "who", f.Who, "action", f.Action, "tenant", f.Tenant, "job", body.JobID)
	for _, e := range entries {
		row := auditRow{AuditEntry: e}
		if len(e.Detail) > 0 {
			text, _ := json.Marshal(e.Detail) // it was read as JSON
			row.Note = string(text)
		}
		body.Entries = append(body.Entries, row)
	}
	return view{Page: "audit", Title: "Audit", Body: body}, nil
}
