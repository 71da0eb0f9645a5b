package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/tenurehq/tenure"
)

// manyAction is what can be done to all jobs that a filter chooses.
type manyAction struct {
	title string
	count func(*tenure.Operator, context.Context, tenure.CancelFilter) (int64, error)
	do    func(*visit, tenure.CancelFilter) error
	next  func(tenure.CancelFilter) string // the page that follows
}

// manyActions are all that there are. What the first two had no time for is left, and done when it is asked for again.
var manyActions = map[string]manyAction{
	"suspend": {"Suspend jobs",
		func(op *tenure.Operator, ctx context.Context, f tenure.CancelFilter) (int64, error) {
			return op.CountSuspendable(ctx, toSuspend(f))
		},
		func(v *visit, f tenure.CancelFilter) error {
			_, err := v.op.SuspendAll(v.ctx, toSuspend(f), time.Time{})
			return err
		},
		func(f tenure.CancelFilter) string { return listAfter("suspended", f) }},
	"resume": {"Resume jobs",
		func(op *tenure.Operator, ctx context.Context, f tenure.CancelFilter) (int64, error) {
			return op.CountSuspended(ctx, toSuspend(f))
		},
		func(v *visit, f tenure.CancelFilter) error {
			_, err := v.op.ResumeAll(v.ctx, toSuspend(f))
			return err
		},
		func(f tenure.CancelFilter) string { return listAfter("", f) }},
	"cancel": {"Cancel jobs", (*tenure.Operator).CountCancellable,
		func(v *visit, f tenure.CancelFilter) error {
			_, err := v.op.CancelInBackground(v.ctx, f, 0, v.grant.Name)
			return err
		},
		func(tenure.CancelFilter) string { return "/operations?said=begun" }},
}

// listAfter is the list of jobs in which those are that something was done to.
func listAfter(state string, f tenure.CancelFilter) string {
	return link("", "/jobs", "state", state, "pool", f.Pool, "tenant", f.Tenant, "kind", f.Kind, "queue", f.Queue, "said", "all")
}

// toSuspend chooses jobs in whatever state.
func toSuspend(f tenure.CancelFilter) tenure.SuspendFilter {
	return tenure.SuspendFilter{Pool: f.Pool, Tenant: f.Tenant, Kind: f.Kind, Queue: f.Queue}
}

type allBody struct {
	Action string // of manyActions
	Filter tenure.CancelFilter
	Count  int64
}

// allPage says how many jobs there are that something would be done to.
func allPage(v *visit) (view, error) {
	if !v.grant.May(roleOfJobs) {
		return view{}, errNotAllowed
	}
	action, ok := manyActions[v.PathValue("action")]
	if !ok {
		return view{}, notFound("action")
	}
	body := allBody{Action: v.PathValue("action"), Filter: manyFilter(v)}
	err := eachPart(v, body.Filter, func(f tenure.CancelFilter) error {
		here, err := action.count(v.op, v.ctx, f)
		body.Count += here
		v.missing(f.Pool, err)
		return nil
	})
	return view{Page: "all", Title: action.title, Still: true, Body: body}, err
}

func manyFilter(v *visit) tenure.CancelFilter {
	return tenure.CancelFilter{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Queue: v.FormValue("queue"), State: v.FormValue("state")}
}

// eachPart does something for each pool and tenant of a filter that the visitor may see.
func eachPart(v *visit, f tenure.CancelFilter, do func(tenure.CancelFilter) error) error {
	if err := f.Validate(); err != nil {
		return &statusError{http.StatusBadRequest, err.Error()}
	}
	var errs []error
	parts := 0
	for _, pool := range v.pools(f.Pool) {
		for _, tenant := range v.tenants(f.Tenant) {
			of := f
			of.Pool, of.Tenant = pool, tenant
			errs = append(errs, do(of))
			parts++
		}
	}
	if parts == 0 {
		return notFound("pool or tenant")
	}
	return errors.Join(errs...)
}

// changeAll does something to all jobs that a filter chooses.
func changeAll(v *visit) (string, error) {
	action, ok := manyActions[v.PathValue("action")]
	if !ok {
		return "", notFound("action")
	}
	f := manyFilter(v)
	return action.next(f), eachPart(v, f, func(f tenure.CancelFilter) error { return action.do(v, f) })
}
