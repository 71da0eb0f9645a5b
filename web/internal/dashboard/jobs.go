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

	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/jobstate"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

type jobsBody struct {
	Filter operate.JobFilter
	States []string
	Pools  []string
	Jobs   []jobRow
	Pages  pages

	Filtered    bool
	Marked      bool // only jobs with some tags or a correlation ID are shown, by which nothing is done to many
	Finished    bool // some may have finished, as far as their state tells
	Cancellable bool // there are some that can be cancelled, as far as their state tells
}

// Fields are what a form says of the list that it is on.
func (b jobsBody) Fields() map[string]string {
	return map[string]string{"state": b.Filter.State, "tenant": b.Filter.Tenant, "kind": b.Filter.Kind, "queue": b.Filter.Queue, "pool": b.Filter.Pool}
}

// jobRow is a job in a list.
type jobRow struct {
	operate.JobStatus
	Attempts string
	Stands   string    // how it stands, and, unless At is zero,
	At       time.Time // since when, or until when
}

func newJobRow(v *visit, j operate.JobStatus) jobRow {
	r := jobRow{JobStatus: j, Attempts: attemptOf(v, j, attemptsBegun(j))}
	r.Stands, r.At = standing(j)
	return r
}

// attemptsBegun is how many attempts of a job have begun.
func attemptsBegun(j operate.JobStatus) int {
	if jobstate.Of(j.State).Stage == jobstate.InFlight {
		return j.Attempt + 1
	}
	return j.Attempt
}

// attemptOf says which attempt of how many one is, as far as that is known here.
func attemptOf(v *visit, j operate.JobStatus, n int) string {
	if most := v.op.Jobs().MaxAttempts(j); most > 0 {
		return fmt.Sprintf("%s of %s", number(int64(n)), number(int64(most)))
	}
	return number(int64(n))
}

// standing is how a job stands, and since when, or until when; zero: that says no time.
func standing(j operate.JobStatus) (string, time.Time) {
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
	case "claimed":
		return "handed out", j.At
	case "running":
		return "runs for " + span(time.Since(j.At)) + ", since", j.At
	case "locked":
		return "with " + j.Node + " until", j.At
	case "done":
		return ran + "ended", j.At
	}
	return ran + jobstate.Of(j.State).Since, j.At
}

func jobsPage(v *visit) (view, error) {
	f := operate.JobFilter{State: v.FormValue("state"), Tenant: v.FormValue("tenant"), Kind: v.FormValue("kind"), Queue: v.FormValue("queue"), Pool: v.FormValue("pool"),
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
	body := jobsBody{Filter: f, States: operate.States, Pools: v.offeredPools(), Marked: len(f.Tags) > 0 || f.CorrelationID != ""}
	body.Filtered = body.Marked || f.Pool != "" || f.State != "" || f.Tenant != "" || f.Kind != "" || f.Queue != ""
	var found []operate.JobStatus
	var total string
	together(func() { found = listJobs(v, f) }, func() { total = totalOf(v, f) })
	jobs, next := firstPage(found, operate.CompareJobs)
	for _, j := range jobs {
		body.Jobs = append(body.Jobs, newJobRow(v, j))
	}
	chosen := []any{"pool", f.Pool, "state", f.State, "tenant", f.Tenant, "kind", f.Kind, "queue", f.Queue, "correlation", f.CorrelationID}
	for _, tag := range f.Tags {
		chosen = append(chosen, "tag", tag)
	}
	body.Pages = v.newPages("/jobs", len(jobs), rowsShown, total, next, chosen...)
	body.Finished = f.State == "" || jobstate.Of(f.State).Stage == jobstate.Finished
	body.Cancellable = len(body.Jobs) > 0 && (f.State == "" || slices.Contains(operate.CancelStates, f.State))
	return view{Page: "jobs", Title: titleOf(f), Body: body}, nil
}

// titleOf says which jobs are listed.
func titleOf(f operate.JobFilter) string {
	title := "Jobs"
	if f.State != "" {
		title = strings.ToUpper(f.State[:1]) + strings.ReplaceAll(f.State[1:], "_", " ") + " jobs"
	}
	return titled(title, "of", f.Tenant, "of kind", f.Kind, "in queue", f.Queue, "in pool", f.Pool, "with ID", f.CorrelationID, "tagged", strings.Join(f.Tags, ", "))
}

// titled is a title with what its list is of, in pairs; those without a value are left out.
func titled(title string, of ...string) string {
	for i := 0; i+1 < len(of); i += 2 {
		if of[i+1] != "" {
			title += " " + of[i] + " " + of[i+1]
		}
	}
	return title
}

// totalOf is how many jobs a filter chooses, for people; "": that is not known yet, or would have to be counted among all
// that have finished.
func totalOf(v *visit, f operate.JobFilter) string {
	if len(f.Tags) > 0 || f.CorrelationID != "" {
		return ""
	}
	ctx, cancel := context.WithTimeout(v.ctx, patience)
	defer cancel()
	var n int64
	more := false
	switch {
	case slices.Contains(operate.CancelStates, f.State):
		for _, of := range v.scopes(f.Pool, f.Tenant) {
			c := v.counts.of(ctx, operate.Selection{Pool: of.pool, Tenant: of.tenant, Kind: f.Kind, Queue: f.Queue, State: f.State})
			if !c.known() {
				return ""
			}
			n, more = n+c.found, more || operate.More(c.found) || c.err != nil
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
func listJobs(v *visit, f operate.JobFilter) []operate.JobStatus {
	return gather(v, f.Pool, f.Tenant, func(pool, tenant string) ([]operate.JobStatus, error) {
		of := f
		of.Pool, of.Tenant = pool, tenant
		return v.op.Jobs().List(v.ctx, of)
	})
}

// attempt is one of a job's runs.
type attempt struct {
	Which        string // of how many
	Node         string
	Began, Ended time.Time // zero: that is not known, or it has not ended
	State        string    // what became of it, or that it is running
	Error        string
	Report       *job.RunReport // nil: it has said nothing
	// What is long is shown of the last attempt, and of the last one that failed.
	Whole, Stack, Log, Output excerpt
}

// Ran is how long it took; zero: that is not known.
func (a *attempt) Ran() time.Duration {
	if a.Began.IsZero() || a.Ended.IsZero() {
		return 0
	}
	return max(a.Ended.Sub(a.Began), 1)
}

// at is when it ended, which one that is running has not.
func (a *attempt) at() time.Time {
	if a.Ended.IsZero() {
		return time.Now()
	}
	return a.Ended
}

// excerpt is a text, or its beginning.
type excerpt struct {
	Text string
	Left int // how many bytes of it are left out
}

// textShown is how much of each text there is on a job's page, in bytes, which is fetched again every two seconds.
const textShown = 4 << 10

// excerptOf is as much of a text as is shown, unless all of it is asked for.
func (v *visit) excerptOf(text string) excerpt {
	if len(text) <= textShown || v.FormValue("whole") != "" {
		return excerpt{Text: text}
	}
	shown := strings.ToValidUTF8(text[:textShown], "")
	return excerpt{shown, len(text) - len(shown)}
}

type jobBody struct {
	operate.JobStatus
	Which     string // attempt, of how many
	Attempts  []attempt
	Folded    bool                 // of some attempts only the beginning of what they said is shown
	Stands    string               // how it stands after all attempts; "": the last one says it
	Since     time.Time            // or until when; zero: that says no time
	Why       *operate.Explanation // nil: it was not answered in time
	Args      excerpt
	ArgsError string    // why they cannot be shown
	Said      time.Time // when the run that is under way has last said something of itself; zero: it has not
	Tags      []string
	May       map[string]bool
	TraceURL  string // of the trace in which it was enqueued; "": that is not known
	Whole     bool   // nothing is left out
}

func jobPage(v *visit) (view, error) {
	id, err := job.ParseID(v.PathValue("id"))
	if err != nil {
		return view{}, notFound("job")
	}
	var body jobBody
	var group sync.WaitGroup
	group.Go(func() {
		if why, err := v.op.Jobs().Explain(v.ctx, id); err == nil {
			body.Why = &why
		}
	})
	j, errs, err := findJob(v, id)
	group.Wait()
	if err != nil {
		return view{}, err
	}
	body.JobStatus, body.Which, body.Tags, body.Whole = j, attemptOf(v, j, attemptsBegun(j)), jobmeta.Tags(j.Meta), v.FormValue("whole") != ""
	body.Attempts = attemptsOf(v, j, errs)
	if n := len(body.Attempts); n == 0 || body.Attempts[n-1].State != j.State {
		body.Stands, body.Since = standing(j)
	}
	body.Folded = v.tell(j, body.Attempts)
	if body.Why != nil {
		*body.Why = asSeen(v, body.Why.Reason, *body.Why)
		body.Why.Text += v.whoFroze(body.Why.Frozen)
	}
	if in, ok := tracing.Parse(jobmeta.Traceparent(j.Meta)); ok && v.traceURL != "" {
		body.TraceURL = strings.ReplaceAll(v.traceURL, "{trace}", in.TraceID().String())
	}
	if v.grant.May(roleOfJobs) {
		body.May = actionsOn(j.State)
	}
	var args string
	args, body.ArgsError = openArgs(v, j)
	body.Args = v.excerptOf(args)
	for _, r := range j.Reports {
		if j.State == "running" && !r.StartedAt.Before(j.StartedAt) {
			body.Said = r.WrittenAt
		}
	}
	return view{Page: "job", Title: "Job " + id.String(), Still: body.Whole, Body: body}, nil
}

// findJob is a job that the visitor may see. That another one exists is not told.
func findJob(v *visit, id job.ID) (operate.JobStatus, []job.RunError, error) {
	var unanswered *operate.UnansweredError
	j, errs, err := v.op.Jobs().Get(v.ctx, id)
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

func openArgs(v *visit, j operate.JobStatus) (args, failure string) {
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
	case "done", "cancelled", "business_error":
		allow("rerun")
	}
	return may
}

// attemptsOf are a job's runs in their order, each once: those that failed, the last one, and others that have said
// something of themselves.
func attemptsOf(v *visit, j operate.JobStatus, errs []job.RunError) (all []attempt) {
	reports := j.Reports
	// report takes the first report that fits.
	report := func(fits func(job.RunReport) bool) *job.RunReport {
		i := slices.IndexFunc(reports, fits)
		if i < 0 {
			return nil
		}
		r := reports[i]
		reports = slices.Delete(slices.Clone(reports), i, i+1)
		return &r
	}
	add := func(n int, a attempt) {
		a.Which = attemptOf(v, j, n)
		if a.Report != nil && a.Began.IsZero() {
			a.Began = a.Report.StartedAt
		}
		all = append(all, a)
	}
	noted := false // the job's end is one of its errors
	for _, e := range errs {
		a := attempt{Node: e.Node, Began: e.Began, Ended: e.At, State: "failed", Error: e.Error, Stack: excerpt{Text: e.Stack}}
		a.Report = report(func(r job.RunReport) bool { return r.Attempt == e.Attempt && !r.StartedAt.After(e.At) })
		if s := jobstate.Of(j.State); s.Stage == jobstate.Finished && s.Failed() && e.At.Equal(j.At) {
			noted, a.State, a.Began = true, j.State, j.StartedAt
		}
		add(e.Attempt, a)
	}
	if n := attemptsBegun(j); !noted && (j.State == "running" || !j.StartedAt.IsZero()) {
		a := attempt{Node: j.Node, Began: j.StartedAt, State: j.State}
		if j.State != "running" {
			a.Ended = j.At
		}
		a.Report = report(func(r job.RunReport) bool {
			return r.Attempt == n && (a.Ended.IsZero() || !r.StartedAt.After(a.Ended))
		})
		add(n, a)
	}
	for len(reports) > 0 { // it was put off, handed back, or lost
		r := report(func(job.RunReport) bool { return true })
		add(r.Attempt, attempt{Node: r.Node, Began: r.StartedAt, State: "said last", Ended: r.WrittenAt, Report: r})
	}
	slices.SortStableFunc(all, func(a, b attempt) int { return a.at().Compare(b.at()) })
	return all
}

// tell has the last attempt, and the last one that failed, tell all that they said, as far as that is shown; or all of
// them, if that is asked for. It says whether some were to tell more.
func (v *visit) tell(j operate.JobStatus, all []attempt) (folded bool) {
	failed := false
	for i := range slices.Backward(all) {
		a := &all[i]
		told := v.FormValue("whole") != "" || i == len(all)-1 || a.Error != "" && !failed
		failed = failed || a.Error != ""
		stack := a.Stack.Text
		a.Stack = excerpt{}
		if !told {
			folded = folded || stack != "" || a.Report != nil || firstLine(a.Error) != a.Error
			continue
		}
		if firstLine(a.Error) != strings.TrimSpace(a.Error) {
			a.Whole = v.excerptOf(a.Error)
		}
		a.Stack = v.excerptOf(stack)
		if r := a.Report; r != nil {
			var log strings.Builder
			if r.LeftOut > 0 {
				fmt.Fprintf(&log, "(%s lines before these were left out)\n", number(int64(r.LeftOut)))
			}
			for _, l := range r.Lines {
				fmt.Fprintf(&log, "%s  %s\n", span(l.After), l.Text)
			}
			a.Log = v.excerptOf(log.String())
			a.Output = v.excerptOf(pretty(v.reveal.Output(v.Context(), j.Kind, r.Output)))
		}
	}
	return folded
}
