package dashboard

import (
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

type auditBody struct {
	Filter  operate.AuditFilter
	JobID   string // of the filter; "": any
	Pools   []string
	Entries []auditRow
	Pages   pages
}

// auditRow is what one press did: in several pools, or to several tenants' jobs, that is several entries.
type auditRow struct {
	operate.AuditEntry
	Pools, Tenants []string
	Jobs           []any  // that were chosen one by one
	Done           string // to how many it has been done, if that is known
	Note           string // what is known besides, as JSON: what was chosen, and what became of it; "": nothing
}

// isPress says whether entries with the same subject are of one press.
func isPress(e operate.AuditEntry) bool {
	return strings.HasPrefix(e.Subject, "operation ") || strings.HasPrefix(e.Subject, "selection ")
}

// add adds one more entry of the same press.
func (r *auditRow) add(e operate.AuditEntry) {
	if !slices.Contains(r.Pools, e.Pool) {
		r.Pools = append(r.Pools, e.Pool)
	}
	if e.Tenant != "" && !slices.Contains(r.Tenants, e.Tenant) {
		r.Tenants = append(r.Tenants, e.Tenant)
	}
	ids, _ := e.Detail["ids"].([]any)
	r.Jobs = append(r.Jobs, ids...)
	if len(e.Detail) > 0 && ids == nil {
		text, _ := json.Marshal(e.Detail) // it was read as JSON
		if note := string(text); !strings.Contains(r.Note, note) {
			r.Note = strings.TrimSpace(note + " " + r.Note) // of one press the last of it comes first
		}
	}
}

// doneBy is to how many jobs the operations have done something that entries speak of, by their subjects.
func doneBy(v *visit, entries []operate.AuditEntry) map[string]int64 {
	done := map[string]int64{}
	if !slices.ContainsFunc(entries, func(e operate.AuditEntry) bool { return strings.HasPrefix(e.Subject, "operation ") }) {
		return done
	}
	all, err := v.op.Operations().List(v.ctx)
	v.missing("", err)
	for _, o := range all {
		if v.sees(o.Pool, o.Filter.Tenant) {
			done["operation "+o.ID.String()] += int64(o.Done)
		}
	}
	return done
}

// whoFroze says who froze what jobs wait for, if the visitor may see that in the audit.
func (v *visit) whoFroze(e *operate.AuditEntry) string {
	if e == nil || !v.sees(e.Pool, e.Tenant) {
		return ""
	}
	return "; " + e.Who + " froze it at " + e.At.UTC().Format(time.RFC3339)
}

// auditPage shows what was done to what the visitor may see. What was done to a pool, or to all tenants, is for
// those who may see all tenants.
func auditPage(v *visit) (view, error) {
	f := operate.AuditFilter{Pool: v.FormValue("pool"), Tenant: tenantID(v.FormValue("tenant")), Who: v.FormValue("who"), Action: v.FormValue("action"),
		After: v.after(), Limit: rowsShown + 1}
	body := auditBody{JobID: v.FormValue("job"), Pools: v.offeredPools()}
	err := f.Validate()
	if err == nil && body.JobID != "" {
		f.Job, err = job.ParseID(body.JobID)
	}
	if err != nil {
		return view{}, &statusError{http.StatusBadRequest, err.Error()}
	}
	body.Filter = f
	found := gather(v, f.Pool, string(f.Tenant), func(pool, tenant string) ([]operate.AuditEntry, error) {
		of := f
		of.Pool, of.Tenant = pool, tenantID(tenant)
		return v.op.Audit(v.ctx, of)
	})
	entries, next := firstPage(found, operate.CompareAudit)
	body.Pages = v.newPages("/audit", len(entries), rowsShown, "", next, "pool", f.Pool, "who", f.Who, "action", f.Action, "tenant", f.Tenant, "job", body.JobID)
	done := doneBy(v, entries)
	for _, e := range entries {
		i := slices.IndexFunc(body.Entries, func(r auditRow) bool { return isPress(e) && r.Subject == e.Subject && r.Action == e.Action })
		if i < 0 {
			row := auditRow{AuditEntry: e}
			if n, known := done[e.Subject]; known {
				row.Done = plural(n, "job")
			}
			i, body.Entries = len(body.Entries), append(body.Entries, row)
		}
		body.Entries[i].add(e)
	}
	return view{Page: "audit", Title: titled("Audit", "of", string(f.Tenant), "by", f.Who, "of action", f.Action, "of job", body.JobID, "in pool", f.Pool), Body: body}, nil
}
