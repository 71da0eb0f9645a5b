package dashboard

import (
	"net/http"
	"slices"

	"github.com/google/uuid"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// scheduleRow is a schedule; one for every tenant is in each pool, and shown once.
type scheduleRow struct {
	operate.ScheduleStatus
	Every bool
	May   bool // it may be paused and resumed by the visitor
}

func schedulesPage(v *visit) (view, error) {
	all, err := v.op.Schedules().List(v.ctx, operate.ScheduleFilter{})
	v.missing("", err)
	tenant := v.FormValue("tenant")
	var rows []scheduleRow
	for _, s := range all {
		row := scheduleRow{ScheduleStatus: s, Every: s.Tenant == operate.EveryTenant, May: v.grant.May(roleOfJobs)}
		if row.Every {
			s.Tenant = ""
			row.May = row.May && v.unlimited()
		}
		twice := row.Every && slices.ContainsFunc(rows, func(r scheduleRow) bool { return r.Every && r.Name == s.Name })
		if v.sees(s.Pool, string(s.Tenant)) && !twice && (tenant == "" || tenant == string(s.Tenant)) {
			rows = append(rows, row)
		}
	}
	return view{Page: "schedules", Title: titled("Schedules", "of", tenant), Body: rows}, nil
}

type batchesBody struct {
	Tenant string
	Rows   []operate.BatchStatus
	Pages  pages
}

func batchesPage(v *visit) (view, error) {
	f := operate.BatchFilter{Tenant: tenantID(v.FormValue("tenant")), After: v.after(), Limit: rowsShown + 1}
	if err := f.Validate(); err != nil {
		return view{}, &statusError{http.StatusBadRequest, err.Error()}
	}
	found := gather(v, "", string(f.Tenant), func(pool, tenant string) ([]operate.BatchStatus, error) {
		of := f
		of.Pool, of.Tenant = pool, tenantID(tenant)
		return v.op.Batches().List(v.ctx, of)
	})
	body := batchesBody{Tenant: string(f.Tenant)}
	var next string
	body.Rows, next = firstPage(found, operate.CompareBatches)
	body.Pages = v.newPages("/batches", len(body.Rows), rowsShown, "", next, "tenant", f.Tenant)
	return view{Page: "batches", Title: titled("Batches", "of", body.Tenant), Body: body}, nil
}

func cancelBatch(v *visit) (string, error) {
	id, err := job.ParseID(v.PathValue("id"))
	if err != nil {
		return "", notFound("batch")
	}
	b, err := v.op.Batches().Get(v.ctx, id)
	if err != nil {
		return "", err
	}
	if !v.sees(b.Pool, b.Tenant) {
		return "", notFound("batch")
	}
	_, err = v.op.Batches().Cancel(v.ctx, id)
	return "/batches?said=cancelled", err
}

// operationRow is an operation, with what it has done in all its pools that the visitor may see.
type operationRow struct {
	operate.OperationStatus
	Pools   []string
	Failing bool
}

func operationsPage(v *visit) (view, error) {
	all, err := v.op.Operations().List(v.ctx)
	v.missing("", err)
	var rows []*operationRow
	byID := map[uuid.UUID]*operationRow{}
	for _, o := range all {
		if !v.sees(o.Pool, o.Filter.Tenant) {
			continue
		}
		row := byID[o.ID]
		if row == nil {
			row = &operationRow{OperationStatus: o}
			row.Done, row.KeyTaken, row.Left = 0, 0, 0
			byID[o.ID] = row
			rows = append(rows, row)
		}
		row.Pools = append(row.Pools, o.Pool)
		row.Failing = row.Failing || o.Failure != ""
		row.Done, row.KeyTaken, row.Left = row.Done+o.Done, row.KeyTaken+o.KeyTaken, row.Left+o.Left
		if o.State == "running" || row.State == "done" { // what is under way anywhere is; what was cancelled anywhere was
			row.State = o.State
		}
	}
	for _, row := range rows {
		slices.Sort(row.Pools)
	}
	return view{Page: "operations", Title: "Operations in the background", Body: rows}, nil
}

// cancelOperation cancels one in all pools, so the visitor must be allowed to see all of it.
func cancelOperation(v *visit) (string, error) {
	id, err := uuid.Parse(v.PathValue("id"))
	if err != nil {
		return "", notFound("operation")
	}
	parts, err := v.op.Operations().Get(v.ctx, id)
	if err != nil {
		return "", err
	}
	if slices.ContainsFunc(parts, func(o operate.OperationStatus) bool { return !v.sees(o.Pool, o.Filter.Tenant) }) {
		return "", notFound("operation")
	}
	_, err = v.op.Operations().Cancel(v.ctx, id)
	return "/operations?said=cancelled", err
}
