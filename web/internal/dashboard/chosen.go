package dashboard

import (
	"net/http"
	"slices"
	"strings"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// chosenFilters are those of the list in which jobs were chosen, to go back to.
var chosenFilters = []string{"state", "tenant", "kind", "queue", "pool"}

type chosenBody struct {
	Action string
	Jobs   []operate.JobStatus // to which it can be done
	Others int                 // were chosen, and are left alone
	Fields map[string]string   // the filter of the list
}

// Does is the action in words.
func (b chosenBody) Does() string { return strings.ToUpper(b.Action[:1]) + b.Action[1:] }

// Ends tells whether nothing leads back from the action.
func (b chosenBody) Ends() bool {
	return b.Action == operate.CancelJobs || b.Action == operate.DeleteJobs
}

// List is the list in which they were chosen, as names and values in its address.
func (b chosenBody) List() (pairs []any) {
	for name, value := range b.Fields {
		pairs = append(pairs, name, value)
	}
	return pairs
}

// chosenPage says to which jobs of those that somebody has chosen in a list something would be done.
func chosenPage(v *visit) (view, error) {
	if !v.grant.May(roleOfJobs) {
		return view{}, errNotAllowed
	}
	body, err := chosenJobs(v)
	if err != nil {
		return view{}, err
	}
	return view{Page: "chosen", Title: body.Does() + " jobs", Still: true, Body: body}, nil
}

// changeChosen does it, in one deed.
func changeChosen(v *visit) (string, error) {
	body, err := chosenJobs(v)
	if err != nil {
		return "", err
	}
	done, err := v.op.Jobs().DoTo(v.ctx, body.Action, body.Jobs)
	if err != nil {
		v.quiet.Warn("not done to all jobs that were chosen", zap.Error(err))
	}
	return link("", "/jobs", append(body.List(), "said", "chosen", "done", done, "of", len(body.Jobs)+body.Others)...), nil
}

// chosenJobs are those that a form names, by their pools and ids, as they are by now.
func chosenJobs(v *visit) (body chosenBody, err error) {
	body.Action = v.PathValue("action")
	if !slices.Contains([]string{operate.RetryJobs, operate.RerunJobs, operate.CancelJobs, operate.DeleteJobs}, body.Action) {
		return body, notFound("action")
	}
	if err := v.only(append(chosenFilters, "job")...); err != nil {
		return body, err
	}
	body.Fields = map[string]string{}
	for _, name := range chosenFilters {
		body.Fields[name] = v.FormValue(name)
	}
	names := v.Form["job"]
	slices.Sort(names)
	names = slices.Compact(names)
	if len(names) == 0 || len(names) > rowsShown {
		return body, &statusError{http.StatusBadRequest, "Choose some jobs first: those that are ticked in the list, 50 at most."}
	}
	found := make([]*operate.JobStatus, len(names))
	var questions []func()
	for i, name := range names {
		text, pool, _ := strings.Cut(name, " ")
		questions = append(questions, func() {
			id, err := job.ParseID(text)
			if err != nil {
				return
			}
			if j, _, err := v.op.Jobs().GetIn(v.ctx, pool, id); err == nil && v.sees(j.Pool, j.Tenant) {
				found[i] = &j
			}
		})
	}
	together(questions...)
	for _, j := range found {
		switch {
		case j != nil && body.Action == operate.DeleteJobs && j.State == "dead", j != nil && body.Action != operate.DeleteJobs && actionsOn(j.State)[body.Action]:
			body.Jobs = append(body.Jobs, *j)
		default:
			body.Others++
		}
	}
	return body, nil
}
