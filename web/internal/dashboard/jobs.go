package dashboard

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
)

type jobsBody struct {
	Filter tenure.JobFilter
	States []string
	Pools  []string
	Jobs   []jobRow
	Pages  pages

	Filtered    bool
	Marked      bool // only jobs with some tags or a correlation ID are shown, by which nothing is done to many
	Cancellable bool // there are some that can be cancelled, as far as their state tells
}

// jobRow is a job in a list.
type jobRow struct {
	tenure.JobStatus
	Attempts string
	Stands   string    // how it stands, and, unless At is zero,
	At       time.Time // since when, or until when
}

func newJobRow(v *visit, j tenure.JobStatus) jobRow {
	r := jobRow{JobStatus: j, Attempts: attemptOf(v, j, attemptsBegun(j))}
	r.Stands, r.At = standing(j)
	return r
}

// attemptsBegun is how many attempts of a job have begun.
func attemptsBegun(j tenure.JobStatus) int {
	switch j.State {
	case "claimed", "running", "locked":
		return j.Attempt + 1
	}
	return j.Attempt
}

// attemptOf says which attempt of how many one is, as far as that is known here.
func attemptOf(v *visit, j tenure.JobStatus, n int) string {
	if most := v.op.MaxAttempts(j); most > 0 {
		return fmt.Sprintf("%s of %s", number(int64(n)), number(int64(most)))
	}
	return number(int64(n))
}

// standing is how a job stands, and since when, or until when; zero: that says no time.
func standing(j tenure.JobStatus) (string, time.Time) {
	ran := ""
	if !j.StartedAt.IsZero() && j.State != "running" {
		ran = "ran " + lasted(j.At.Sub(j.StartedAt)) + ", "
		if j.Attempt <= 1 {
			ran = "waited " + lasted(j.StartedAt.Sub(j.CreatedAt)) + ", " + ran
		}
	}
	switch j.State {
	case "waiting":
		return "waits for its turn", time.Time{}
	case "awaiting":
		return "waits for other jobs", time.Time{}
	case "scheduled", "retrying":
		return "due", j.At
	case "claimed":
		return "handed out", j.At
	case "running":
		return "runs for " + span(time.Since(j.At)) + ", since", j.At
	case "locked":
		return "with " + j.Node + " until", j.At
	case "suspended":
		return "suspended", j.At
	case "dead":
		return "died", j.At
	case "cancelled":
		return ran + "cancelled", j.At
	}
	return ran + "finished", j.At
}

func jobsPage(v *visit) (view, error) {
	f := tenure.JobFilter{State: v.FormValue("state"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Queue: v.FormValue("queue"), Pool: v.FormValue("pool"),
		CorrelationID: v.FormValue("correlation"), After: v.after(), Limit: rowsShown + 1}
	for _, tag := range v.Form["tag"] {
		if tag != "" {
			f.Tags = append(f.Tags, tag)
		}
	}
	if find := strings.TrimSpace(v.FormValue("find")); find != "" {
		if id, err := job.ParseID(find); err == nil {
			if _, _, err = findJob(v, id); err == nil {
				return view{Elsewhere: "/jobs/" + id.String()}, nil
			}
		}
		f.CorrelationID = find
	}
	if err := f.Validate(); err != nil {
		return view{}, &statusError{http.StatusBadRequest, err.Error()}
	}
	body := jobsBody{Filter: f, States: tenure.States, Pools: v.pools(""), Marked: len(f.Tags) > 0 || f.CorrelationID != ""}
	body.Filtered = body.Marked || f.Pool != "" || f.State != "" || f.Tenant != "" || f.Kind != "" || f.Queue != ""
	var found []tenure.JobStatus
	var total string
	together(func() { found = listJobs(v, f) }, func() { total = totalOf(v, f) })
	jobs, next := firstPage(found, tenure.CompareJobs)
	for _, j := range jobs {
		body.Jobs = append(body.Jobs, newJobRow(v, j))
	}
	chosen := []any{"pool", f.Pool, "state", f.State, "tenant", f.Tenant, "kind", f.Kind, "queue", f.Queue, "correlation", f.CorrelationID}
	for _, tag := range f.Tags {
		chosen = append(chosen, "tag", tag)
	}
	body.Pages = v.newPages("/jobs", len(jobs), rowsShown, total, next, chosen...)
	body.Cancellable = len(body.Jobs) > 0 && (f.State == "" || slices.Contains(tenure.CancelStates, f.State))
	return view{Page: "jobs", Title: titleOf(f), Body: body}, nil
}

// titleOf says which jobs are listed.
func titleOf(f tenure.JobFilter) string {
	title := "Jobs"
	if f.State != "" {
		title = strings.ToUpper(f.State[:1]) + strings.ReplaceAll(f.State[1:], "_", " ") + " jobs"
	}
	for _, part := range [][2]string{{" of ", f.Tenant}, {" of kind ", f.Kind}, {" in queue ", f.Queue}, {" in pool ", f.Pool}, {" with ID ", f.CorrelationID}, {" tagged ", strings.Join(f.Tags, ", ")}} {
		if part[1] != "" {
			title += part[0] + part[1]
		}
	}
	return title
}

// totalOf is how many jobs a filter chooses, for people; "": that is not known yet, or would have to be counted among all
// that have finished.
func totalOf(v *visit, f tenure.JobFilter) string {
	if len(f.Tags) > 0 || f.CorrelationID != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	var n int64
	more := false
	switch {
	case slices.Contains(tenure.CancelStates, f.State):
		for _, of := range v.scopes(f.Pool, f.Tenant) {
			c := v.counts.of(ctx, tenure.CancelFilter{Pool: of.pool, Tenant: of.tenant, Kind: f.Kind, Queue: f.Queue, State: f.State})
			if !c.known() {
				return ""
			}
			n, more = n+c.found, more || tenure.More(c.found) || c.err != nil
		}
	case f.State == "dead" && f.Queue == "":
		for _, pool := range v.pools(f.Pool) {
			for _, tenant := range v.tenants(f.Tenant) {
				c := v.dead.of(ctx, scope{pool, tenant})
				if !c.known() {
					return ""
				}
				more = more || c.err != nil
				for _, g := range c.found {
					if f.Kind == "" || g.Kind == f.Kind {
						n += int64(g.Count)
					}
				}
			}
		}
	default:
		return ""
	}
	if more {
		return "at least " + number(n)
	}
	return number(n)
}

// listJobs lists jobs of all that the visitor may see.
func listJobs(v *visit, f tenure.JobFilter) []tenure.JobStatus {
	return gather(v, f.Pool, f.Tenant, func(pool, tenant string) ([]tenure.JobStatus, error) {
		of := f
		of.Pool, of.Tenant = pool, tenant
		return v.op.Jobs(v.ctx, of)
	})
}

// event is something that happened to a job.
type event struct {
	At   time.Time
	What string
	Now  bool // it is what the job is at
}

type jobBody struct {
	tenure.JobStatus
	Life      []event
	Errors    []tenure.RunError
	Why       *tenure.Explanation // nil: it was not answered in time
	Args      string
	ArgsError string    // why they cannot be shown
	Outputs   []string  // of Reports
	Said      time.Time // when the run that is under way has last said something of itself; zero: it has not
	Tags      []string
	May       map[string]bool
	TraceURL  string // of the trace in which it was enqueued; "": that is not known
}

func jobPage(v *visit) (view, error) {
	id, err := job.ParseID(v.PathValue("id"))
	if err != nil {
		return view{}, notFound("job")
	}
	var body jobBody
	var group sync.WaitGroup
	group.Go(func() {
		if why, err := v.op.ExplainJob(v.ctx, id); err == nil {
			body.Why = &why
		}
	})
	j, errs, err := findJob(v, id)
	group.Wait()
	if err != nil {
		return view{}, err
	}
	body.JobStatus, body.Errors, body.Life, body.Tags = j, errs, lifeOf(j, errs), job.TagsOf(j.Meta)
	if body.Why != nil && body.Why.Reason == tenure.WaitsForDatabase {
		body.Why.Text = "its pool's database does not answer, or cannot be used"
	}
	if in, ok := tracing.Parse(job.TraceparentOf(j.Meta)); ok && v.traceURL != "" {
		body.TraceURL = strings.ReplaceAll(v.traceURL, "{trace}", in.TraceID().String())
	}
	if v.grant.May(roleOfJobs) {
		body.May = actionsOn(j.State)
	}
	body.Args, body.ArgsError = openArgs(v, j)
	for _, r := range j.Reports {
		if j.State == "running" && !r.StartedAt.Before(j.StartedAt) {
			body.Said = r.WrittenAt
		}
		body.Outputs = append(body.Outputs, pretty(v.reveal.Output(v.Context(), j.Kind, r.Output)))
	}
	return view{Page: "job", Title: "Job " + id.String(), Body: body}, nil
}

// findJob is a job that the visitor may see. That another one exists is not told.
func findJob(v *visit, id job.ID) (tenure.JobStatus, []tenure.RunError, error) {
	var unanswered *tenure.UnansweredError
	j, errs, err := v.op.Job(v.ctx, id)
	switch {
	case errors.As(err, &unanswered) && v.unlimited():
		return j, nil, &statusError{http.StatusServiceUnavailable, "These pools did not answer, and the others do not have this job: " + strings.Join(unanswered.Pools, ", ") + "."}
	case errors.As(err, &unanswered):
		return j, nil, &statusError{http.StatusServiceUnavailable, "Some pools did not answer, and the others do not have this job."}
	case err != nil, !v.sees(j.Pool, j.Tenant):
		return j, nil, notFound("job")
	}
	return j, errs, nil
}

func openArgs(v *visit, j tenure.JobStatus) (args, failure string) {
	text, err := v.reveal.Args(v.Context(), j) // it asks no pool, whose time may be over
	if err != nil {
		v.quiet.Warn("arguments cannot be shown", zap.Stringer("job", j.ID), zap.Error(err))
		return "", "they are encrypted, and this node cannot decrypt them; its log says why."
	}
	return pretty(text), ""
}

// actionsOn are the actions that make sense in a state.
func actionsOn(state string) map[string]bool {
	may := map[string]bool{}
	allow := func(actions ...string) {
		for _, a := range actions {
			may[a] = true
		}
	}
	switch state {
	case "waiting":
		allow("run", "suspend", "reschedule", "cancel")
	case "scheduled", "retrying":
		allow("run", "retry", "suspend", "reschedule", "cancel")
	case "awaiting":
		allow("retry", "suspend", "cancel")
	case "dead":
		allow("run", "retry", "cancel")
	case "suspended":
		allow("resume", "cancel")
	case "claimed", "running", "locked":
		allow("cancel")
	}
	return may
}

// lifeOf tells a job's life, from when it was made to what it is at.
func lifeOf(j tenure.JobStatus, errs []tenure.RunError) []event {
	life := []event{{At: j.CreatedAt, What: "created"}}
	for _, e := range errs {
		life = append(life, event{At: e.At, What: fmt.Sprintf("attempt %d failed", e.Attempt)})
	}
	if !j.StartedAt.IsZero() {
		life = append(life, event{At: j.StartedAt, What: "last run began"})
	}
	slices.SortStableFunc(life, func(a, b event) int { return a.At.Compare(b.At) })
	now := event{At: j.At, What: j.State, Now: true}
	switch j.State {
	case "scheduled", "retrying":
		now.What += ", due"
	case "locked":
		now.What += " by a worker until"
	case "awaiting", "waiting": // they have no time of their own
		now.At = time.Time{}
	}
	return append(life, now)
}
