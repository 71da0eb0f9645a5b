package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)

// entriesShown is how many entries of the audit there are on a page.
const entriesShown = 50

type auditBody struct {
	Filter  tenure.AuditFilter
	JobID   string // of the filter; "": any
	Pools   []string
	Entries []auditRow
	Next    string // the cursor that the next page begins behind; "": there is none
}

type auditRow struct {
	tenure.AuditEntry
	Note string // what is known besides, as JSON; "": nothing
}

// auditPage shows what was done to what the visitor may see. What was done to a pool, or to all tenants, is for
// those who may see all tenants.
func auditPage(v *visit) (view, error) {
	f := tenure.AuditFilter{Pool: v.FormValue("pool"), Tenant: tenantID(v.FormValue("tenant")), Who: v.FormValue("who"), Action: v.FormValue("action"),
		After: v.FormValue("after"), Limit: entriesShown + 1}
	body := auditBody{JobID: v.FormValue("job"), Pools: v.pools("")}
	err := f.Validate()
	if err == nil && body.JobID != "" {
		f.Job, err = job.ParseID(body.JobID)
	}
	if err != nil {
		return view{}, &statusError{http.StatusBadRequest, err.Error()}
	}
	body.Filter = f
	entries := gather(v, f.Pool, string(f.Tenant), func(pool, tenant string) ([]tenure.AuditEntry, error) {
		of := f
		of.Pool, of.Tenant = pool, tenantID(tenant)
		return v.op.Audit(v.ctx, of)
	})
	slices.SortFunc(entries, tenure.CompareAudit)
	if len(entries) > entriesShown {
		entries = entries[:entriesShown]
		body.Next = entries[entriesShown-1].Cursor()
	}
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
