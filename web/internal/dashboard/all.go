package dashboard

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// manyAction is what can be done to all jobs that a filter chooses.
type manyAction struct {
	title string
	count func(*operate.Jobs, context.Context, operate.Selection) (int64, error)
	do    func(*visit, operate.Selection) error // nil: it is an operation in the background
	next  func(operate.Selection) string        // the page that follows
}

// manyActions are all that there are. What all but the last had no time for is left, and done when it is asked for again.
var manyActions = map[string]manyAction{
	"suspend": {"Suspend jobs",
		(*operate.Jobs).CountSuspendable,
		func(v *visit, f operate.Selection) error {
			_, err := v.op.Jobs().SuspendAll(v.ctx, f, time.Time{})
			return err
		},
		func(f operate.Selection) string { return listAfter("suspended", f) }},
	"resume": {"Resume jobs",
		(*operate.Jobs).CountSuspended,
		func(v *visit, f operate.Selection) error {
			_, err := v.op.Jobs().ResumeAll(v.ctx, f)
			return err
		},
		func(f operate.Selection) string { return listAfter("", f) }},
	"retry": {"Run jobs now",
		(*operate.Jobs).CountRetryable,
		func(v *visit, f operate.Selection) error {
			_, err := v.op.Jobs().RetryAll(v.ctx, f, 0)
			return err
		},
		func(f operate.Selection) string { return listAfter("", f) }},
	"cancel": {"Cancel jobs", (*operate.Jobs).CountCancellable,
		nil, nil},
}

// manyFilters are what they take.
var manyFilters = []string{"pool", "tenant", "kind", "queue", "state", "before"}

// listAfter is the list of jobs in which those are that something was done to.
func listAfter(state string, f operate.Selection) string {
	return link("", "/jobs", "state", state, "pool", f.Pool, "tenant", f.Tenant, "kind", f.Kind, "queue", f.Queue, "said", "all")
}

type allBody struct {
	Action  string // of manyActions
	Filter  operate.Selection
	Count   int64
	AtLeast bool // there may be more than Count
}

// allPage says how many jobs there are that something would be done to.
func allPage(v *visit) (view, error) {
	if !v.grant.May(roleOfJobs) {
		return view{}, errNotAllowed
	}
	action, f, err := chosenAction(v)
	if err != nil {
		return view{}, err
	}
	body := allBody{Action: v.PathValue("action"), Filter: f}
	body.Filter.Before = time.Now() // what is made from then on is not counted, and left alone
	err = v.eachScope(f.Pool, f.Tenant, func(of scope) error {
		f := body.Filter
		f.Pool, f.Tenant = of.pool, of.tenant
		here, err := action.count(v.op.Jobs(), v.ctx, f)
		var input *job.InputError
		if errors.As(err, &input) {
			return err
		}
		body.Count += here
		body.AtLeast = body.AtLeast || err != nil || operate.More(here)
		v.missing(of.pool, err)
		return nil
	})
	return view{Page: "all", Title: action.title, Still: true, Body: body}, err
}

// chosenAction is what is to be done, and to which jobs.
func chosenAction(v *visit) (a manyAction, f operate.Selection, err error) {
	a, ok := manyActions[v.PathValue("action")]
	if !ok {
		return a, f, notFound("action")
	}
	if err := v.only(manyFilters...); err != nil {
		return a, f, err
	}
	f = operate.Selection{Pool: v.FormValue("pool"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Queue: v.FormValue("queue"), State: v.FormValue("state")}
	if before := v.FormValue("before"); before != "" {
		if f.Before, err = time.Parse(time.RFC3339Nano, before); err != nil {
			return a, f, &statusError{http.StatusBadRequest, "Up to when jobs were counted is missing: go back to the jobs."}
		}
	}
	return a, f, nil
}

// eachScope does something to all that the visitor may see of a pool and a tenant.
func (v *visit) eachScope(pool, tenant string, do func(scope) error) error {
	parts := v.scopes(pool, tenant)
	if len(parts) == 0 {
		return notFound("pool or tenant")
	}
	var errs []error
	for _, of := range parts {
		errs = append(errs, do(of))
	}
	return errors.Join(errs...)
}

// begin begins an operation in the background, one for all pools and tenants if the visitor may see them all, and
// returns the page that shows it.
func (v *visit) begin(pool, tenant string, do func(scope) (uuid.UUID, error)) (string, error) {
	to := "/operations?said=begun"
	return to, v.eachScope(pool, tenant, func(of scope) error {
		id, err := do(of)
		if err != nil && id != uuid.Nil {
			v.quiet.Warn("an operation has not begun in all pools", zap.Error(err))
			to, err = "/operations?said=partly", nil
		}
		return err
	})
}

// changeAll does something to all jobs that a filter chooses.
func changeAll(v *visit) (string, error) {
	action, f, err := chosenAction(v)
	if err != nil {
		return "", err
	}
	if action.do == nil {
		return v.begin(f.Pool, f.Tenant, func(of scope) (uuid.UUID, error) {
			f.Pool, f.Tenant = of.pool, of.tenant
			return v.op.Jobs().CancelInBackground(v.ctx, f, 0, v.grant.Who())
		})
	}
	next := action.next(f)
	return next, v.eachScope(f.Pool, f.Tenant, func(of scope) error {
		f.Pool, f.Tenant = of.pool, of.tenant
		return action.do(v, f)
	})
}
