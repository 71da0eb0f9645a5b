package dashboard_test

import (
	"context"
	"errors"
	"html"
	"net"
	"net/http"
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/dashboard"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

const evil = `<script>alert("x")</script>`

type mail struct {
	To string `json:"to"`
}

func (mail) Kind() string { return "mail.send" }

type broken struct{ mail }

func (broken) Kind() string { return "mail.broken" }

// bed is a dashboard of two tenants.
type bed struct {
	t       *testing.T
	env     *jobtest.Env
	op      *operate.Operator
	handler http.Handler
	grant   access.Grant
}

func setup(t *testing.T, more ...jobtest.Option) *bed {
	env := jobtest.New(t, append(more, jobtest.Tenants("acme", "globex"), jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(context.Context, *job.Job[mail]) error { return nil })
		job.Handle(r, func(ctx context.Context, _ *job.Job[broken]) error {
			job.SetProgress(ctx, 3, 4, evil)
			return job.Discard(errors.New(evil))
		})
	}))...)
	op := env.Client().Operator()
	h, err := dashboard.Handler(op, dashboard.Settings{Prefix: "/ops/", TraceURL: "https://traces.example.com/{trace}?from=job"})
	require.NoError(t, err)
	return &bed{t, env, op, h, access.Grant{Name: "eve", Role: access.Admin}}
}

func (b *bed) as(g access.Grant) *bed {
	c := *b
	c.grant = g
	return &c
}

func (b *bed) do(method, path string, form url.Values) *httptest.ResponseRecorder {
	b.t.Helper()
	r := httptest.NewRequest(method, "/ops"+path, strings.NewReader(form.Encode()))
	if method == http.MethodPost {
		r.Header.Set("Content-Type", "application/x-www-form-urlencoded")
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), b.grant)))
	require.NotContains(b.t, w.Body.String(), evil)
	return w
}

// page gets a page, and checks what all pages promise.
func (b *bed) page(path string) string {
	b.t.Helper()
	w := b.do(http.MethodGet, path, nil)
	text := w.Body.String()
	require.Equal(b.t, http.StatusOK, w.Code, text)
	require.Contains(b.t, w.Header().Get("Content-Security-Policy"), "default-src 'self'")
	require.NotRegexp(b.t, `(?i)\sstyle=|\son\w+=|<style|ZgotmplZ`, text)
	require.Regexp(b.t, `Updated <time datetime="[^"]+">\d\d:\d\d:\d\d UTC</time>`, text)
	require.True(b.t, strings.HasSuffix(strings.TrimSpace(text), "</html>"))
	return text
}

// wholePage is page, again until the databases have answered in time: a busy machine gives them too little.
func (b *bed) wholePage(path string) (text string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		text = b.page(path)
		return !strings.Contains(text, "This page is not complete")
	}, time.Minute, time.Millisecond)
	return text
}

// until is page, again until it has a text: what it shows is shared, and may be as it was a moment ago.
func (b *bed) until(path, want string) (text string) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		text = b.page(path)
		return strings.Contains(text, want)
	}, time.Minute, 10*time.Millisecond)
	return text
}

// post does something, and returns where it leads to.
func (b *bed) post(path string, form url.Values) string {
	b.t.Helper()
	w := b.do(http.MethodPost, path, form)
	require.Equal(b.t, http.StatusSeeOther, w.Code, w.Body.String())
	return w.Header().Get("Location")
}

func (b *bed) enqueue(tenant tenancy.ID, args job.Args, options ...tenure.Option) job.ID {
	b.t.Helper()
	e, err := b.env.Client().Enqueue(tenancy.For(b.t.Context(), tenant), args, options...)
	require.NoError(b.t, err)
	return e.ID
}

func (b *bed) state(id job.ID) string {
	b.t.Helper()
	j, _, err := b.op.Jobs().Get(b.t.Context(), id)
	require.NoError(b.t, err)
	return j.State
}

func doing(id job.ID, action string) string { return "/jobs/" + id.String() + "/" + action }

// A job's page leads to the trace in which it was enqueued, whatever somebody has written there instead, and
// says that a cancel waits.
func TestJobsLeadToTheirTraces(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const link = "https://traces.example.com/0af7651916cd43dd8448eb211c80319c?from=job"
	for parent, leads := range map[string]bool{"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01": true, evil: false} {
		added, err := b.env.Client().Enqueue(tracing.NewContext(tenancy.For(b.t.Context(), "acme"), parent), mail{"x"})
		require.NoError(t, err)
		text := b.page("/jobs/" + added.ID.String())
		require.Equal(t, leads, strings.Contains(text, link))
		require.NotContains(t, text, "Cancel asked")
	}
}

func TestPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Contains(t, b.page("/dead"), "every job has ended well")
	dead := b.enqueue("acme", broken{mail{evil}})
	b.env.Drain(t)
	waiting := b.enqueue("globex", mail{evil})
	_, err := b.op.Schedules().Set(t.Context(), operate.Schedule{Tenant: "acme", Name: "nightly", Args: mail{"x"}, Rule: "0 7 * * *"})
	require.NoError(t, err)
	_, err = b.env.Client().EnqueueBatch(tenancy.For(t.Context(), "acme"), tenure.Batch{Then: mail{"then"}, Jobs: []tenure.Entry{{Args: mail{"one"}}}})
	require.NoError(t, err)
	require.NoError(t, b.op.Limits().Set(t.Context(), operate.Limit{Tenant: "acme", MaxRunning: 7, Kind: "mail.send"}))

	require.Contains(t, b.page("/"), "1 dead letter in pool")
	for _, path := range []string{"/cluster", "/pools", "/nodes", "/operations", "/jobs?state=done&kind=nothing"} {
		b.page(path)
	}
	require.Regexp(t, `data-label="Queue"><a href="/ops/jobs\?queue=default">default</a>.*\n?.*state=waiting">2<`, b.page("/queues"))
	require.Contains(t, b.page("/queues?pool="+b.op.Pools().Names()[0]), "default")
	require.Contains(t, b.page("/cluster"), "took the lock")
	require.Contains(t, b.page("/doctor"), "What mends it")
	require.Contains(t, b.page("/tenants"), "globex")
	require.NotContains(t, b.page("/tenants?q=acm"), "globex")
	require.Contains(t, b.page("/tenant?id=acme"), "kind mail.send")
	require.Contains(t, b.page("/schedules"), "nightly")
	require.Contains(t, b.page("/batches"), "0 of 1")
	require.Contains(t, b.page("/jobs?state=dead"), dead.String())
	require.NotContains(t, b.page("/jobs?state=dead"), waiting.String()+"<")
	b.until("/dead", "&lt;script&gt;")
	text := b.page("/jobs/" + dead.String())
	require.Regexp(t, `attempt 1 of 10</b> on [^ ]+: waited [\d.]+ m?s, began .*, ran .*, failed <`, text)
	require.Contains(t, text, "&lt;script&gt;")
	require.Contains(t, text, "3 of 4")
	for path, code := range map[string]int{"/jobs?state=no": 400, "/jobs?after=x": 400, "/jobs/7": 404, "/jobs/x": 404, "/no": 404, "/tenant?id=no": 404, "/static/style.css": 200} {
		require.Equal(t, code, b.do(http.MethodGet, path, nil).Code, path)
	}
}

// A job's life has each attempt once, with when it began and how long it took, if it said anything of itself; what is long
// is shown by its beginning, and in lists by its first line, until all of it is asked for.
func TestALifeInShort(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec := b.env.Tenant(t, "acme").Exec
	long := strings.Repeat("0123456789", 1000)
	id := b.enqueue("acme", mail{long + " the end of it"}, tenure.In(time.Hour))
	noon := time.Now().Truncate(time.Second)
	exec("UPDATE tenure.timer_job SET attempt = 3, max_attempts = 5, created_at = $1::timestamptz - interval '100 s'", noon)
	exec(`INSERT INTO tenure.job_error (job_id, attempt, at, node, error, stack)
		SELECT $1, n, $3::timestamptz - (4 - n) * interval '10 s', 'node-' || n, 'row ' || n || E' is bad\n' || $2 || ' the end of ' || n, 'stack ' || n FROM generate_series(1, 3) n`, int64(id), long, noon)
	exec(`INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at, done, total, note, output)
		SELECT $1, n, n, 'node-' || n, $3::timestamptz - (4 - n) * interval '10 s' - interval '1.5 s', now(), n, 9, 'note ' || n, to_jsonb($2::text || ' the end of output ' || n) FROM generate_series(1, 2) n`, int64(id), long, noon)
	exec("UPDATE tenure.job_error SET began = at - interval '2.5 s' WHERE attempt = 3")
	text := b.page("/jobs?state=retrying")
	require.Regexp(t, `data-label="Attempt">3 of 5<(.|\n)*class="line">due <time datetime="[^"]*">[^<]+</time>: row 3 is bad …</td>`, text)
	require.NotContains(t, text, "012345")

	text = b.page("/jobs/" + id.String())
	for attempt, life := range map[string]string{
		"1 of 5": `on node-1: waited 68 s, began <time[^<]*</time>, ran 1.5 s, failed <`, "2 of 5": `on node-2: began <time[^<]*</time>, ran 1.5 s, failed <`, "3 of 5": `on node-3: began <time[^<]*</time>, ran 2.5 s, failed <`} {
		require.Equal(t, 1, strings.Count(text, "<b>attempt "+attempt+"</b>"))
		require.Regexp(t, "<b>attempt "+attempt+"</b> "+life, text)
	}
	for _, want := range []string{"row 1 is bad …", "row 2 is bad …", "2 of 9: note 2", "stack 3", "Show the other"} {
		require.Contains(t, text, want)
	}
	for _, not := range []string{"the end of", "stack 1"} {
		require.NotContains(t, text, not)
	}
	require.Less(t, len(text), 30_000)
	require.NotContains(t, text, "the end of it")
	text = b.as(access.Grant{Role: access.Admin, Args: true}).page("/jobs/" + id.String() + "?whole=yes")
	for _, want := range []string{"the end of it", "the end of output 1", "the end of 1", "the end of 3", "stack 1", "stack 3"} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, text, "data-live", "it is not fetched again")
	require.Contains(t, b.as(access.Grant{Role: access.Admin, Args: true}).page("/jobs/"+id.String()), "Show the other")
}

// Jobs are found by what people have of them: an ID from a log, an order's number, tags. What is done to
// many jobs does not go by these, so it is not offered there: it would be done to others, too.
func TestFindingJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	one := b.enqueue("acme", mail{"x"}, tenure.Correlation("order 17"), tenure.Tags("spring", "blue"))
	other := b.enqueue("globex", mail{"x"}, tenure.Correlation("18"), tenure.Tags("spring"))
	for path, shown := range map[string][2]bool{"tag=spring": {true, true}, "tag=spring&tag=blue": {true, false}, "tag=": {true, true}, "find=order+17": {true, false}, "find=18": {false, true}, "correlation=18": {false, true}} {
		text := b.wholePage("/jobs?" + path)
		require.Equal(t, shown, [2]bool{strings.Contains(text, one.String()), strings.Contains(text, other.String())}, path)
		require.Equal(t, path == "tag=", strings.Contains(text, "/jobs/all/"), path)
	}
	text := b.page("/jobs/" + one.String())
	require.Contains(t, text, `href="/ops/jobs?tag=blue"`)
	require.Contains(t, text, `href="/ops/jobs?correlation=order&#43;17"`)
	require.Eventually(t, func() bool {
		return b.do(http.MethodGet, "/jobs?find=+"+one.String(), nil).Header().Get("Location") == "/ops/jobs/"+one.String()
	}, time.Minute, time.Millisecond)
	globex := b.as(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}})
	require.NotContains(t, globex.page("/jobs?find="+one.String()), ">"+one.String()+"<", "another tenant's job is as if it did not exist")
}

// beside is where a page leads to: the address of the next one, or the previous one; "": there is none.
func beside(which, page string) string {
	m := regexp.MustCompile(`href="/ops([^"]*)">` + which + ` page<`).FindStringSubmatch(page)
	if m == nil {
		return ""
	}
	return html.UnescapeString(m[1])
}

// Every job is on exactly one page, from which one can go on and back; the page says which of how many they are, and its
// title which jobs.
func TestJobsAreOnOnePageEach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 120 {
		b.enqueue("acme", mail{"x"})
	}
	row := regexp.MustCompile(`data-label="Job"><a href="[^"]*">(\d+)<`)
	seen := map[string]bool{}
	var texts []string
	for path := "/jobs?tenant=acme&state=waiting"; path != ""; path = beside("Next", texts[len(texts)-1]) {
		require.Less(t, len(texts), 3)
		text := b.wholePage(path)
		for _, m := range row.FindAllStringSubmatch(text, -1) {
			require.False(t, seen[m[1]])
			seen[m[1]] = true
		}
		texts = append(texts, text)
	}
	require.Len(t, seen, 120)
	require.Len(t, texts, 3)
	require.Contains(t, texts[0], "<title>Waiting jobs of acme · Tenure</title>")
	require.Empty(t, beside("Previous", texts[0]))
	for at := 1; at >= 0; at-- {
		before := b.wholePage(beside("Previous", texts[at+1]))
		require.Equal(t, row.FindAllString(texts[at], -1), row.FindAllString(before, -1))
		require.Equal(t, beside("Next", texts[at]), beside("Next", before))
	}
	b.until(beside("Next", texts[0]), "<span>51 to 100 of 120</span>")
	require.Contains(t, b.page("/jobs?tenant=globex&state=dead"), "No job is to be shown")
	require.Contains(t, b.page("/tenants"), "<span>1 to 2 of 2</span>")
	for path, title := range map[string]string{"/dead?tenant=acme&kind=mail.send": "Dead letters of acme of kind mail.send", "/audit?who=eve&action=job": "Audit by eve of action job", "/schedules?tenant=acme": "Schedules of acme",
		"/batches?tenant=acme": "Batches of acme", "/tenants?q=ac": "Tenants with ac", "/queues?pool=pool-1": "Queues in pool pool-1", "/jobs?state=business_error&queue=q&tag=a&tag=b": "Business error jobs in queue q tagged a, b"} {
		require.Contains(t, b.page(path), "<title>"+title+" · Tenure</title>")
	}
}

func TestActionsOnJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", mail{"x"})
	require.Contains(t, b.page("/jobs/"+id.String()), "/suspend")
	require.Equal(t, "/ops/jobs/"+id.String()+"?said=suspended", b.post(doing(id, "suspend"), nil))
	require.Equal(t, "suspended", b.state(id))
	require.Contains(t, b.page("/jobs/"+id.String()+"?said=suspended"), "until somebody resumes it")
	require.Equal(t, http.StatusConflict, b.do(http.MethodPost, doing(id, "retry"), nil).Code)
	b.post(doing(id, "resume"), nil)
	require.Equal(t, "waiting", b.state(id))
	b.post(doing(id, "run"), nil)
	b.post(doing(id, "cancel"), nil)
	require.Equal(t, "cancelled", b.state(id))
	require.Contains(t, b.page("/jobs/"+id.String()), ">Rerun</button>")
	require.Regexp(t, `^/ops/jobs/\d+\?said=rerun$`, b.post(doing(id, "rerun"), nil))
	require.Equal(t, "cancelled", b.state(id))
	later := b.enqueue("acme", mail{"x"}, tenure.In(time.Hour))
	require.Contains(t, b.page("/jobs/"+later.String()), doing(later, "reschedule"))
	require.Contains(t, b.post(doing(later, "reschedule"), url.Values{"in": {"P2D"}}), "said=rescheduled")
	j, _, err := b.op.Jobs().Get(t.Context(), later)
	require.NoError(t, err)
	require.WithinDuration(t, time.Now().Add(48*time.Hour), j.At, time.Minute)
	for in, code := range map[string]int{"": 400, "soon": 400, "P90000D": 400} {
		require.Equal(t, code, b.do(http.MethodPost, doing(later, "reschedule"), url.Values{"in": {in}}).Code, in)
	}
	b.post(doing(later, "retry"), nil)
	require.Equal(t, "waiting", b.state(later))
	require.Equal(t, http.StatusNotFound, b.do(http.MethodPost, doing(later, "explode"), nil).Code)
}

func TestActionsOnOthers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.op.Schedules().Set(t.Context(), operate.Schedule{Tenant: "acme", Name: "nightly", Args: mail{"x"}, Rule: "0 7 * * *"})
	require.NoError(t, err)
	form := url.Values{"tenant": {"acme"}, "name": {"nightly"}}
	b.post("/schedules/pause", form)
	require.Contains(t, b.page("/schedules"), "paused")
	b.post("/schedules/resume", form)
	require.NotContains(t, b.page("/schedules"), "paused")
	require.Regexp(t, `^/ops/jobs/\d+$`, b.post("/schedules/run", form))

	b.post("/tenant/freeze", url.Values{"id": {"acme"}})
	require.Contains(t, b.page("/tenant?id=acme"), "tenant acme is frozen")
	b.post("/tenant/thaw", url.Values{"id": {"acme"}})
	require.NotContains(t, b.page("/tenant?id=acme"), "is frozen")
	pool := b.op.Pools().Locks(t.Context())[0].Pool
	b.post("/pools/freeze", url.Values{"pool": {pool}})
	b.until("/", "the pool is frozen")
	b.post("/pools/thaw", url.Values{"pool": {pool}})
	require.NotContains(t, b.page("/pools"), ">frozen<")
	require.Contains(t, b.page("/queues"), "Freeze queue default</button>")
	b.post("/queues/freeze", url.Values{"queue": {"mail"}})
	require.NoError(t, b.op.Kinds().Freeze(t.Context(), "mail.send"))
	require.Regexp(t, `(?s)>queue mail<.*>kind mail.send<`, b.page("/queues"))
	require.NotContains(t, b.as(access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"acme"}}).page("/queues"), "mail<")
	b.post("/queues/thaw", url.Values{"queue": {"mail"}, "kind": {""}})
	b.post("/queues/thaw", url.Values{"queue": {""}, "kind": {"mail.send"}})
	require.NotContains(t, b.page("/queues"), "Frozen")
	require.Equal(t, http.StatusNotFound, b.do(http.MethodPost, "/queues/thaw", url.Values{"queue": {"mail"}}).Code, "it is not frozen")

	e, err := b.env.Client().EnqueueBatch(tenancy.For(t.Context(), "acme"), tenure.Batch{Then: mail{"then"}, Jobs: []tenure.Entry{{Args: mail{"one"}}}})
	require.NoError(t, err)
	b.post("/batches/"+e.ID.String()+"/cancel", nil)
	require.Equal(t, "cancelled", b.state(e.ID))
}

// The audit has what was done to what the visitor may see, each entry on one page, and by whom.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	require.Contains(t, b.page("/audit"), "Nothing is noted")
	own, other := b.enqueue("acme", mail{"x"}), b.enqueue("globex", mail{"x"})
	b.as(access.Grant{Name: evil, Role: access.Operate}).post(doing(own, "suspend"), nil)
	b.post(doing(other, "suspend"), nil)
	b.post("/pools/freeze", url.Values{"pool": b.op.Pools().Names()})
	text := b.page("/audit")
	for _, want := range []string{"&lt;script&gt;", "job.suspend", "pool.freeze", `<a href="/ops/jobs/` + own.String() + `">`, `<a href="/ops/audit?who=eve">eve</a>`} {
		require.Contains(t, text, want)
	}
	require.NotContains(t, b.page("/audit?who=eve"), own.String())
	require.NotContains(t, b.page("/audit?job="+other.String()), "pool.freeze")
	require.Contains(t, b.page("/audit?action=pool"), "pool.freeze")
	acme := b.as(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"acme"}}).page("/audit")
	require.Contains(t, acme, own.String())
	require.NotContains(t, acme, other.String())
	require.NotContains(t, acme, "pool.freeze")
	require.NotContains(t, b.as(access.Grant{Role: access.Read, Pools: []string{"elsewhere"}}).page("/audit"), "job.suspend")
	for path, code := range map[string]int{"/audit?after=x": 400, "/audit?job=x": 400, "/audit?tenant=no": 200} {
		require.Equal(t, code, b.do(http.MethodGet, path, nil).Code, path)
	}
	for range 60 {
		b.post(doing(own, "resume"), nil)
		b.post(doing(own, "suspend"), nil)
	}
	seen, path := 0, "/audit?job="+own.String()
	for path != "" {
		text := b.page(path)
		seen += strings.Count(text, `data-label="When"`)
		path = beside("Next", text)
	}
	require.Equal(t, 121, seen)
}

// All jobs of a filter are suspended, resumed and cancelled, once their number is known.
func TestManyJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own, other := b.enqueue("acme", mail{"x"}), b.enqueue("globex", mail{"x"})
	later := b.enqueue("acme", mail{"x"}, tenure.In(time.Hour))
	require.Contains(t, b.page("/jobs?state=waiting&kind=mail.send"), `href="/ops/jobs/all/suspend?kind=mail.send&amp;state=waiting"`)
	require.Contains(t, b.page("/jobs/all/suspend?kind=mail.send&state=waiting"), "<strong>2</strong> <strong>waiting</strong> jobs of kind")
	require.Contains(t, b.page("/jobs/all/suspend?kind=mail.send"), "<strong>3</strong> jobs of kind")
	acme := b.as(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"acme"}})
	require.Contains(t, acme.page("/jobs/all/suspend"), "<strong>2</strong>")
	require.Equal(t, "/ops/jobs?said=all&state=suspended", acme.post("/jobs/all/suspend", nil))
	require.Equal(t, []string{"suspended", "suspended", "waiting"}, []string{b.state(own), b.state(later), b.state(other)})
	require.Contains(t, acme.page("/jobs?state=suspended"), "/jobs/all/resume")
	require.Contains(t, b.page("/jobs/all/resume?tenant=globex"), "There is no such job")
	acme.post("/jobs/all/resume", url.Values{"tenant": {"acme"}})
	require.Equal(t, []string{"waiting", "scheduled"}, []string{b.state(own), b.state(later)})
	require.Contains(t, acme.page("/jobs?state=scheduled"), `href="/ops/jobs/all/cancel?state=scheduled"`)
	require.Contains(t, acme.page("/jobs?state=scheduled"), `href="/ops/jobs/all/retry?state=scheduled"`)
	require.Contains(t, acme.page("/jobs/all/retry?state=scheduled"), "<strong>1</strong> <strong>scheduled</strong> job will run now")
	require.Equal(t, http.StatusBadRequest, acme.do(http.MethodPost, "/jobs/all/retry", url.Values{"state": {"waiting"}}).Code)
	require.NotContains(t, acme.page("/jobs?state=done"), "Cancel all")
	require.Contains(t, acme.page("/jobs/all/cancel"), "<strong>2</strong> unfinished jobs")
	page := acme.page("/jobs/all/cancel?state=scheduled&kind=mail.send")
	require.Contains(t, page, "<strong>1</strong> <strong>scheduled</strong> job of kind")
	require.Contains(t, page, `name="state" value="scheduled"`)
	require.Equal(t, "/ops/operations?said=begun", acme.post("/jobs/all/cancel", url.Values{"state": {"scheduled"}, "kind": {"mail.send"}}))
	require.Contains(t, b.page("/operations"), "kind mail.send, tenant acme, scheduled")
	require.Equal(t, http.StatusBadRequest, acme.do(http.MethodPost, "/jobs/all/cancel", url.Values{"state": {"dead"}}).Code)
	require.Equal(t, http.StatusNotFound, acme.do(http.MethodPost, "/jobs/all/cancel", url.Values{"tenant": {"globex"}}).Code)
	require.Equal(t, http.StatusForbidden, b.as(access.Grant{Role: access.Read}).do(http.MethodPost, "/jobs/all/cancel", nil).Code)
	require.Equal(t, http.StatusNotFound, acme.do(http.MethodPost, "/jobs/all/suspend", url.Values{"tenant": {"globex"}}).Code)
	require.Equal(t, http.StatusNotFound, b.do(http.MethodGet, "/jobs/all/explode", nil).Code)
	require.Equal(t, http.StatusForbidden, b.as(access.Grant{Role: access.Read}).do(http.MethodGet, "/jobs/all/suspend", nil).Code)
}

// Jobs that somebody ticks in a list are retried, cancelled or deleted together, once their number is known: those to which
// that can be done, and none that is not to be seen. One press is one row in the audit, with its count.
func TestChosenJobs(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2))
	dead, dead2 := b.enqueue("acme", broken{}), b.enqueue("globex", broken{})
	b.env.Drain(t)
	own, other := b.enqueue("acme", mail{"x"}, tenure.In(time.Hour)), b.enqueue("globex", mail{"x"}, tenure.In(time.Hour))
	boxes := regexp.MustCompile(`type="checkbox" form="chosen" name="job" value="([^"]*)"`).FindAllStringSubmatch(b.wholePage("/jobs"), -1)
	require.Len(t, boxes, 4)
	query := url.Values{"tenant": {""}, "kind": {"mail.send"}}
	for _, box := range boxes {
		query.Add("job", html.UnescapeString(box[1]))
	}
	require.NotContains(t, b.as(access.Grant{Role: access.Read}).page("/jobs"), "checkbox")
	require.Equal(t, http.StatusForbidden, b.as(access.Grant{Role: access.Read}).do(http.MethodGet, "/jobs/chosen/cancel?"+query.Encode(), nil).Code)
	press := func(s *bed, action, button string) string {
		t.Helper()
		text := s.until("/jobs/chosen/"+action+"?"+query.Encode(), button)
		form := fields(text)
		form.Del("job")
		for _, m := range regexp.MustCompile(`name="job" value="([^"]*)"`).FindAllStringSubmatch(text, -1) {
			form.Add("job", html.UnescapeString(m[1]))
		}
		return s.post("/jobs/chosen/"+action, form)
	}
	acme := b.as(access.Grant{Name: "ann", Role: access.Operate, Tenants: []tenancy.ID{"acme"}})
	require.Equal(t, "/ops/jobs?done=1&kind=mail.send&of=1&said=chosen", press(acme, "delete", ">Delete 1</button>"))
	require.Equal(t, http.StatusNotFound, b.do(http.MethodGet, "/jobs/"+dead.String(), nil).Code)
	require.Equal(t, "dead", b.state(dead2))
	press(b, "retry", ">Retry 3</button>")
	for _, id := range []job.ID{own, other, dead2} {
		require.Equal(t, "waiting", b.state(id))
	}
	require.Contains(t, b.page("/jobs?said=chosen&done=2&of=3"), "It is done to 2 of the 3 that were chosen.")
	press(b, "cancel", ">Cancel 3</button>")
	require.Equal(t, "cancelled", b.state(dead2))
	require.Contains(t, b.page("/jobs/chosen/cancel?"+query.Encode()), "cannot be done")
	press(b, "rerun", ">Rerun 3</button>")
	again, err := b.op.Jobs().List(t.Context(), operate.JobFilter{Kind: "mail.send", State: "waiting", Limit: 10})
	require.NoError(t, err)
	require.Len(t, again, 2, "and one of another kind")
	for path, code := range map[string]int{"/jobs/chosen/cancel": 400, "/jobs/chosen/explode?job=1": 404, "/jobs/chosen/cancel?tag=x&job=1": 400, "/jobs/chosen/retry?" + strings.Repeat("job=1&job=2&", 1) + url.Values{"job": strings.Split(strings.Repeat("1 ", 60), " ")}.Encode(): 200} {
		require.Equal(t, code, b.do(http.MethodGet, path, nil).Code, path)
	}
	text := b.wholePage("/audit")
	require.Equal(t, 4, strings.Count(text, `data-label="When"`), "one for each press")
	require.Regexp(t, `>jobs.retry</td>`, b.wholePage("/audit?job="+own.String()), "a job's page leads here")
	for action, jobs := range map[string]string{"jobs.delete": "1 job", "jobs.retry": "3 jobs", "jobs.cancel": "3 jobs", "jobs.rerun": "3 jobs"} {
		require.Regexp(t, `>`+action+`</td>.*<summary>`+jobs+`</summary>`, text)
	}
	b.enqueue("globex", mail{"x"}, tenure.In(time.Hour))
	b.post("/jobs/all/suspend", nil)
	b.post("/jobs/all/cancel", nil)
	text = b.wholePage("/audit")
	require.Equal(t, 6, strings.Count(text, `data-label="When"`), "in both pools")
	require.Regexp(t, `operation [-0-9a-f]+, \d+ jobs? so far`, text)
	require.NotContains(t, acme.page("/audit"), other.String())
}

func TestDeadLettersInGroups(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 3 {
		b.enqueue("acme", broken{})
	}
	b.enqueue("globex", broken{})
	b.env.Drain(t)
	scoped := b.as(access.Grant{Name: "ann", Role: access.Operate, Tenants: []tenancy.ID{"acme"}})
	b.env.Tenant(t, "acme").Exec(`UPDATE tenure.dead_letter_job SET died_at = 'infinity' WHERE id = (SELECT min(id) FROM tenure.dead_letter_job WHERE tenant_id = 'acme')`)
	m := deleting.FindStringSubmatch(scoped.until("/dead", "/dead/confirm"))
	text := scoped.until(strings.ReplaceAll(m[1], "&amp;", "&"), "<strong>3</strong>")
	require.Contains(t, text, "at least 3</button>")
	form := fields(text)
	require.Equal(t, "asked", form.Get("before"), "one has died at a time that is still to come")
	require.Equal(t, "/ops/operations?said=begun", scoped.post("/dead/delete", form))
	operations, err := b.op.Operations().List(t.Context())
	require.NoError(t, err)
	require.Len(t, operations, 1)
	require.Equal(t, "acme", operations[0].Filter.Tenant)
	b.env.Tenant(t, "acme").Exec(`UPDATE tenure.operation SET failure = 'dial tcp 10.9.8.7: SELECT'`)
	text = b.page("/operations")
	require.Contains(t, text, "The last step failed")
	require.NotContains(t, text, "10.9.8.7", "what a database said is for the log")
	require.Equal(t, "ann", operations[0].By)
	require.Contains(t, scoped.page("/operations"), "/cancel")
	require.NotContains(t, b.as(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}}).page("/operations"), "ann")
	scoped.post("/operations/"+operations[0].ID.String()+"/cancel", nil)
	require.Contains(t, b.page("/operations"), ">cancelled<")
}

// deleting is where a page leads to that deletes dead letters.
var deleting = regexp.MustCompile(`/ops(/dead/confirm\?action=delete[^"]*)"`)

// fields are the hidden ones of a page's form.
func fields(page string) url.Values {
	form := url.Values{}
	for _, f := range regexp.MustCompile(`type="hidden" name="(\w+)" value="([^"]*)"`).FindAllStringSubmatch(page, -1) {
		form.Set(f[1], html.UnescapeString(f[2]))
	}
	return form
}

// The number on a button is the number that it does: of what the filter of the list chose, none that came later, and in all
// pools at once, by one operation with one id. What an action does not choose by is refused.
func TestTheNumberOnAButton(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2))
	retrying := b.enqueue("acme", mail{"x"}, tenure.In(time.Hour))
	b.env.Tenant(t, "acme").Exec("UPDATE tenure.timer_job SET attempt = 1")
	scheduled := b.enqueue("acme", mail{"x"}, tenure.In(time.Hour))
	require.Contains(t, b.page("/jobs?state=retrying"), `href="/ops/jobs/all/suspend?state=retrying"`)
	page := b.page("/jobs/all/suspend?state=retrying")
	require.Contains(t, page, "<strong>1</strong> <strong>retrying</strong> job ")
	b.post("/jobs/all/suspend", fields(page))
	require.Equal(t, []string{"suspended", "scheduled"}, []string{b.state(retrying), b.state(scheduled)})
	for _, refused := range []string{"tag=red", "correlation=x", "find=x", "group=x"} {
		require.Equal(t, http.StatusBadRequest, b.do(http.MethodGet, "/jobs/all/suspend?"+refused, nil).Code, refused)
		require.Equal(t, http.StatusBadRequest, b.do(http.MethodPost, "/jobs/all/cancel?"+refused, nil).Code, refused)
	}
	for _, path := range []string{"/dead?queue=q", "/dead/confirm?action=delete&group=x&state=dead", "/jobs/all/suspend?state=running", "/jobs/all/resume?state=waiting"} {
		require.Equal(t, http.StatusBadRequest, b.do(http.MethodGet, path, nil).Code, path)
	}
	require.NotContains(t, b.page("/jobs?state=dead&queue=q"), "Retry or delete many")

	page = b.page("/jobs/all/suspend?state=scheduled")
	late := b.enqueue("globex", mail{"x"}, tenure.In(time.Hour))
	b.post("/jobs/all/suspend", fields(page))
	require.Equal(t, []string{"suspended", "scheduled"}, []string{b.state(scheduled), b.state(late)}, "it was not counted")

	b.enqueue("acme", broken{})
	b.enqueue("globex", broken{})
	b.env.Drain(t)
	m := deleting.FindStringSubmatch(b.until("/dead", "/dead/confirm"))
	page = b.until(html.UnescapeString(m[1]), ">Delete 2</button>")
	b.post("/dead/delete", fields(page))
	b.post("/jobs/all/cancel", fields(b.page("/jobs/all/cancel")))
	all, err := b.op.Operations().List(t.Context())
	require.NoError(t, err)
	ids := map[string]int{}
	for _, o := range all {
		ids[o.ID.String()]++
	}
	require.Len(t, ids, 2, "one for each press")
	page = b.page("/operations")
	require.Equal(t, 2, strings.Count(page, "/cancel\""), "one cancel for each")
	require.Contains(t, page, ">"+strings.Join(b.op.Pools().Names(), ", ")+"<")
}

// What is wrong is on the first page what the doctor calls wrong, the worst first, and leads to it.
func TestTheOverviewSaysWhatTheDoctorSays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	exec := b.env.Tenant(t, "acme").Exec
	stuck := b.enqueue("acme", mail{"x"})
	b.enqueue("acme", mail{"x"})
	exec("SELECT tenure.enqueue('acme', 'nobodys', '{}')")
	exec("INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acmee', 'default', 'mail.send', '{}')") // mistyped
	exec(`INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, state, last_seen, expires_at)
		VALUES ('00000000-0000-0000-0000-000000000007', 'n', 'n', '', 'v', '{mail.send,mail.broken}', 'live', now(), now() + interval '1 h')`)
	exec(`INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) SELECT '00000000-0000-0000-0000-000000000007', turn, ARRAY[id], now() - interval '58 min' FROM tenure.job WHERE id = $1`, int64(stuck))
	exec(`INSERT INTO tenure.job_report (job_id, turn, attempt, node, started_at, written_at, done, total) SELECT id, turn, 1, 'n', now() - interval '58 min', now() - interval '57 min', 1, 2 FROM tenure.job WHERE id = $1`, int64(stuck))
	require.NoError(t, b.op.Tenants().Freeze(t.Context(), "globex"))
	require.NoError(t, b.op.Kinds().Freeze(t.Context(), "mail.send"))
	require.NoError(t, b.op.Queues().Freeze(t.Context(), "mail"))
	exec("SELECT tenure.enqueue_external('acme', 'print', '{}')")
	exec("UPDATE tenure.external_job SET ready_at = now() - interval '1 h'")

	found, err := b.op.Examine(t.Context(), time.Minute)
	require.NoError(t, err)
	said := map[string]bool{}
	for _, f := range found.Findings {
		if f.Check == "jobs" || f.Check == "lock" {
			said[regexp.MustCompile(`(for|ago|since) .*`).ReplaceAllString(f.What, "")] = true
		}
	}
	require.GreaterOrEqual(t, len(said), 6, "%v", found.Findings)
	text := html.UnescapeString(b.until("/", "nobodys"))
	for what := range said {
		require.Contains(t, text, what)
	}
	for _, leads := range []string{`href="/ops/jobs?kind=nobodys&pool=pool-1&state=waiting"`, `href="/ops/jobs/` + stuck.String() + `"`, `href="/ops/tenant?id=globex"`, `href="/ops/tenant?id=acmee"`, `href="/ops/jobs?kind=print&pool=pool-1&state=waiting"`} {
		require.Contains(t, text, leads)
	}
	require.Regexp(t, `<b>(60|61|62) min</b>oldest waits<`, text, "the oldest is on the first screen")
	require.Contains(t, text, "of runs fail<")
	require.Regexp(t, `longer than execution.timeout of 15m0s, and said last how far it is (5\dm|1h)`, text)
	require.Less(t, strings.Index(text, "nobodys"), strings.Index(text, "topic print"), "an error before a warning")
	require.Less(t, strings.Index(text, "topic print"), strings.Index(text, "tenant globex is frozen"), "a warning before a note")
	require.Regexp(t, `Running for</dt><dd>\d\d min</dd>(.|\n)*Last progress</dt><dd>.*<small>\d\d min ago`, b.page("/jobs/"+stuck.String()))
	acme := b.as(access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"acme"}})
	require.NotContains(t, acme.page("/"), "globex")
}

// A node that was started again is what it is now, also if the clock was set back since it began before.
func TestANodesLiveSessionCounts(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for state, began := range map[string]string{"dead": "1 day", "left": "1 h", "live": "0 s"} {
		b.env.Tenant(t, "acme").Exec(`INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, state, started_at, last_seen, expires_at)
			SELECT gen_random_uuid(), 'clocked', 'clocked', '', $1, '{}', $1, at, at, at + interval '1 h' FROM (SELECT clock_timestamp() + $2::text::interval AS at) s`, state, began)
	}
	require.Regexp(t, `>clocked<(.|\n)*?data-label="Version">live<`, b.page("/nodes"))
}

func TestRoles(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", mail{"secret@example.com"})
	none, read := b.as(access.Grant{}), b.as(access.Grant{Role: access.Read})
	operate := b.as(access.Grant{Role: access.Operate})
	require.Equal(t, http.StatusForbidden, none.do(http.MethodGet, "/", nil).Code)
	text := read.page("/jobs/" + id.String())
	require.NotContains(t, text, "secret@example.com")
	require.NotContains(t, text, "<form")
	require.NotContains(t, operate.page("/jobs/"+id.String()), "secret@example.com", "no role shows arguments")
	require.Contains(t, b.as(access.Grant{Role: access.Read, Args: true}).page("/jobs/"+id.String()), "secret@example.com")
	require.NotContains(t, operate.page("/tenant?id=acme"), "Freeze")
	require.NotContains(t, operate.page("/pools"), "Freeze")
	require.Contains(t, b.page("/pools"), "Freeze")
	require.Equal(t, http.StatusForbidden, read.do(http.MethodPost, doing(id, "cancel"), nil).Code)
	require.Equal(t, http.StatusForbidden, read.do(http.MethodGet, "/dead/confirm?action=delete&group=x", nil).Code)
	require.Equal(t, http.StatusForbidden, operate.do(http.MethodPost, "/tenant/freeze", url.Values{"id": {"acme"}}).Code)
	require.Equal(t, http.StatusForbidden, operate.do(http.MethodPost, "/pools/freeze", url.Values{"pool": {"x"}}).Code)
	require.Equal(t, "waiting", b.state(id))
}

// Why a job waits may be another tenant's secret.
func TestWhyNamesNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Pools(2))
	b.env.Tenant(t, "acme").Exec("INSERT INTO tenure.job (id, tenant_id, queue, kind, payload) VALUES (4711, 'globex', 'default', 'mail.send', '{}')") // who lives elsewhere
	require.Contains(t, b.page("/jobs/4711"), "lives in pool")
	text := b.as(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}}).page("/jobs/4711")
	require.Contains(t, text, "does not lead to this pool")
	require.NotContains(t, text, "lives in pool")
}

// What belongs to others is neither listed nor changed, and looks as if it were not there.
func TestScope(t *testing.T) {
	t.Parallel()
	b := setup(t)
	own, other := b.enqueue("acme", mail{"x"}), b.enqueue("globex", mail{"x"})
	_, err := b.op.Schedules().Set(t.Context(), operate.Schedule{Tenant: "globex", Name: "theirs", Args: mail{"x"}, Rule: "0 7 * * *"})
	require.NoError(t, err)
	for _, g := range []access.Grant{{Role: access.Admin, Tenants: []tenancy.ID{"acme"}}, {Role: access.Admin, Pools: []string{"elsewhere"}}} {
		s := b.as(g)
		for _, path := range []string{"/", "/jobs", "/jobs?tenant=globex", "/tenants", "/schedules", "/batches", "/dead", "/operations", "/audit"} {
			require.NotContains(t, strings.NewReplacer(`value="globex"`, "", "Jobs of globex", "").Replace(s.page(path)), "globex", path)
		}
		require.Equal(t, http.StatusNotFound, s.do(http.MethodGet, "/jobs/"+other.String(), nil).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodGet, "/tenant?id=globex", nil).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, doing(other, "cancel"), nil).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, "/tenant/freeze", url.Values{"id": {"globex"}}).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, "/schedules/run", url.Values{"tenant": {"globex"}, "name": {"theirs"}}).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, "/schedules/pause", url.Values{"name": {"theirs"}}).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, "/queues/thaw", url.Values{"queue": {"mail"}}).Code)
		require.Equal(t, http.StatusNotFound, s.do(http.MethodPost, "/pools/freeze", url.Values{"pool": {b.op.Pools().Locks(t.Context())[0].Pool}}).Code)
	}
	acme := b.as(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"acme"}})
	require.Contains(t, acme.page("/jobs"), own.String())
	require.Contains(t, acme.page("/queues"), `state=waiting">1<`)
	require.NotContains(t, acme.page("/"), "<svg", "charts are of everybody's jobs")
	require.NotContains(t, acme.page("/"), "/doctor")
	require.Equal(t, "waiting", b.state(other))
}

// Text that no database keeps is said to be that, and does not look as if a database were down.
func TestTextThatNoDatabaseKeeps(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, path := range []string{"/jobs?kind=%00", "/jobs?tag=%ff", "/schedules?name=%00", "/dead?error=%00", "/audit?who=%ff", "/tenant?id=%00", "/batches?tenant=%00", "/jobs/%00"} {
		w := b.do(http.MethodGet, path, nil)
		require.Equal(t, http.StatusUnprocessableEntity, w.Code, path)
		require.NotContains(t, w.Body.String(), "database cannot", path)
	}
	require.Equal(t, http.StatusUnprocessableEntity, b.do(http.MethodPost, "/schedules/run", url.Values{"tenant": {"acme"}, "name": {"\x00"}}).Code)
}

func TestFormsOfOtherSitesAreRefused(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", mail{"x"})
	r := httptest.NewRequest(http.MethodPost, "/ops"+doing(id, "cancel"), nil)
	r.Header.Set("Sec-Fetch-Site", "cross-site")
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), b.grant)))
	require.Equal(t, http.StatusForbidden, w.Code)
	require.Equal(t, "waiting", b.state(id))
	_, err := dashboard.Handler(b.op, dashboard.Settings{Prefix: "ops"})
	require.ErrorContains(t, err, "begins with /")
}

// A tenant that has jobs in a pool which it does not live in is told as the doctor tells it, and its row there counts those jobs.
func TestStrays(t *testing.T) {
	t.Parallel()
	cfg, other := config.Default(), storetest.DSN(t, "other", 2)
	cfg.Pools = map[string]routing.PoolConfig{"home": {DSN: storetest.DSN(t, "home", 1)}, "other": {DSN: other}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "home"}, "globex": {Pool: "home"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	h, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: "/ops"})
	require.NoError(t, err)
	b := &bed{t: t, op: client.Operator(), handler: h, grant: access.Grant{Role: access.Admin}}
	for range 7 {
		_, err := client.Enqueue(tenancy.For(t.Context(), "acme"), mail{"x"})
		require.NoError(t, err)
	}
	db, err := pgx.Connect(t.Context(), other)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = db.Exec(t.Context(), "SELECT tenure.enqueue(tenant => 'acme', kind => 'mail.send') FROM generate_series(1, 3)")
	require.NoError(t, err)
	require.Contains(t, b.page("/"), "1 tenant has jobs here, and is led to another pool, such as home: acme")
	rows := strings.Split(b.page("/tenants"), "<tr>")
	require.Len(t, rows, 5)
	require.Regexp(t, `(?s)>home<.*>7</a>.*no holder`, rows[2])
	require.Regexp(t, `(?s)>other<.*stray.*>3</a>.*tenant unknown`, rows[3])

	rows = strings.Split(b.page("/tenants?by=work"), "<tr>")
	require.Len(t, rows, 4, "globex, which has no jobs, is left out")
	require.Regexp(t, `(?s)>acme<.*>home<`, rows[2])
}

// A pool whose database takes connections and says nothing keeps no page, and the others' jobs are
// shown.
func TestPoolThatDoesNotAnswer(t *testing.T) {
	t.Parallel()
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer deaf.Close()
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{
		"good": {DSN: storetest.DSN(t, "good", 1)},
		"deaf": {DSN: "postgres://app@" + deaf.Addr().String() + "/app?sslmode=disable"},
	}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "good"}, "lost": {Pool: "deaf"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	h, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: "/ops"})
	require.NoError(t, err)
	b := &bed{t: t, op: client.Operator(), handler: h, grant: access.Grant{Role: access.Admin}}
	e, err := client.Enqueue(tenancy.For(t.Context(), "acme"), mail{"x"})
	require.NoError(t, err)
	for path, text := range map[string]string{
		"/": "Pool deaf does not answer", "/pools": ">down<", "/cluster": ">down<", "/jobs": e.ID.String(), "/jobs/" + e.ID.String(): "mail.send",
		"/tenants": "acme", "/tenant?id=lost": ">unknown<", "/dead": "Pool deaf", "/queues": "Pool deaf", "/schedules": "not complete", "/batches": "Pool deaf", "/nodes": "not complete", "/operations": "not complete",
	} {
		began := time.Now()
		require.Contains(t, b.page(path), text, path)
		require.Less(t, time.Since(began), 3*time.Second, path)
	}
	db, err := pgx.Connect(t.Context(), cfg.Pools["good"].DSN)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = db.Exec(t.Context(), `INSERT INTO tenure.dead_letter_job (turn, timeout_ms, priority, attempt, max_attempts, losses, tenant_id, queue, kind, payload, meta, origin, error, died_at)
		VALUES (7, 1500, 3, 5, 5, 2, 'acme', 'q', 'k', '{}', '{}', 'job', 'no', now())`)
	require.NoError(t, err)
	require.Contains(t, b.page("/jobs/all/cancel"), "all that match: at least 1</button>", "one pool did not say how many it has")
	m := deleting.FindStringSubmatch(b.until("/dead", "/dead/confirm"))
	b.until(html.UnescapeString(m[1]), "all that match: at least 1</button>")
}

// While no pool can be used nothing is counted as none, and it is said where the reason is.
func TestNoPoolCanBeUsed(t *testing.T) {
	t.Parallel()
	closed, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	require.NoError(t, closed.Close())
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: "postgres://app@" + closed.Addr().String() + "/app?sslmode=disable"}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	h, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: "/ops"})
	require.NoError(t, err)
	b := &bed{t: t, op: client.Operator(), handler: h, grant: access.Grant{Role: access.Admin}}
	page := b.until("/", "the node&#39;s log and tenure doctor say why")
	require.Contains(t, page, "How many there are is not known.")
	require.NotContains(t, page, "</b>waiting<")
}

// Jobs of a tenant that is in another one's schema do not run, and the first page and the doctor say so.
func TestARouteThatCannotBeUsed(t *testing.T) {
	t.Parallel()
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: storetest.DSN(t, "main", 1)}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}
	cfg.Tenants.Table = &routing.TableConfig{Pool: "main", Query: "SELECT 'main', 'acme' WHERE $1 = 'acmee'", Cache: time.Minute}
	client, err := tenure.NewClient(cfg)
	require.NoError(t, err)
	require.NoError(t, client.Start(t.Context()))
	defer func() { require.NoError(t, client.Stop(context.Background())) }()
	db, err := pgx.Connect(t.Context(), cfg.Pools["main"].DSN)
	require.NoError(t, err)
	defer db.Close(context.Background())
	_, err = db.Exec(t.Context(), "SELECT tenure.enqueue('acmee', 'mail.send', '{}')")
	require.NoError(t, err)
	h, err := dashboard.Handler(client.Operator(), dashboard.Settings{Prefix: "/ops"})
	require.NoError(t, err)
	const says = `tenant acmee has jobs here, and its route cannot be used: tenants.table: tenants "acme" and "acmee" share schema "acme" in pool "main"`
	b := &bed{t: t, op: client.Operator(), handler: h, grant: access.Grant{Role: access.Admin}}
	require.Contains(t, html.UnescapeString(b.until("/", "acmee")), says)
	found, err := client.Operator().Examine(t.Context(), time.Minute)
	require.NoError(t, err)
	require.True(t, slices.ContainsFunc(found.Findings, func(f operate.Finding) bool { return strings.HasPrefix(f.What, says) }), "%v", found.Findings)
}
