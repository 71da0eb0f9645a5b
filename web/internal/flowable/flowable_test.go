package flowable_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/flowable"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

type bundle struct {
	t       *testing.T
	client  *tenure.Client
	handler http.Handler
}

var admin = access.Grant{Name: "test", Role: access.Admin, Args: true}

// setup serves two tenants in two pools: acme in pool-1, globex in pool-2.
func setup(t *testing.T) *bundle {
	env := jobtest.New(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"))
	return &bundle{t, env.Client(), flowable.Handler(env.Client(), "/tenure", zap.NewNop())}
}

// enqueue adds a job of topic print, and returns its id.
func (b *bundle) enqueue(tenant tenancy.ID, payload string, opts ...tenure.Option) string {
	b.t.Helper()
	return b.enqueueAs("print", tenant, payload, opts...)
}

func (b *bundle) enqueueAs(topic string, tenant tenancy.ID, payload string, opts ...tenure.Option) string {
	b.t.Helper()
	added, err := b.client.Enqueue(tenancy.For(b.t.Context(), tenant), job.RawArgs{Name: topic, Payload: json.RawMessage(payload)}, append(opts, tenure.External())...)
	require.NoError(b.t, err)
	return strconv.FormatInt(int64(added.ID), 10)
}

// ask sends a request as a worker does, and returns what was answered: an object, a list or nothing.
func (b *bundle) ask(g access.Grant, method, path, body string) (int, any) {
	b.t.Helper()
	r := httptest.NewRequest(method, flowable.Path+path, strings.NewReader(body))
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), g)))
	if w.Body.Len() == 0 {
		return w.Code, nil
	}
	require.Equal(b.t, "application/json", w.Header().Get("Content-Type"), w.Body.String())
	var out any
	require.NoError(b.t, json.Unmarshal(w.Body.Bytes(), &out), w.Body.String())
	return w.Code, out
}

func (b *bundle) post(path, body string) (int, any) { return b.ask(admin, http.MethodPost, path, body) }

// acquire has worker w lock a job of topic print.
func (b *bundle) acquire() map[string]any {
	b.t.Helper()
	code, out := b.post("/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w"}`)
	require.Equal(b.t, http.StatusOK, code, out)
	require.Len(b.t, out, 1)
	return out.([]any)[0].(map[string]any)
}

// job is what the ledger has of a job, and its last output.
func (b *bundle) job(id string) (j operate.JobStatus, output string) {
	b.t.Helper()
	n, err := strconv.ParseInt(id, 10, 64)
	require.NoError(b.t, err)
	j, _, err = b.client.Operator().Jobs().Get(b.t.Context(), job.ID(n))
	require.NoError(b.t, err)
	for _, r := range j.Reports {
		output = string(r.Output)
	}
	return j, output
}

func TestAcquire_asFlowableDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", `{"n": 7, "big": 4294967296, "price": 30.3, "name": "a", "on": true, "none": null, "who": {"first": "Kermit"}}`, tenure.Correlation("order-7"), tenure.MaxAttempts(3))
	got := b.acquire()
	require.Regexp(t, `^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$`, got["lockExpirationTime"])
	require.Regexp(t, `Z$`, got["createTime"])
	delete(got, "lockExpirationTime")
	delete(got, "createTime")
	v := func(name, kind string, value any) any {
		if kind == "" {
			return map[string]any{"name": name, "value": value}
		}
		return map[string]any{"name": name, "type": kind, "value": value}
	}
	require.Equal(t, map[string]any{
		"id": id, "url": "http://example.com/tenure/external-job-api/jobs/" + id, "correlationId": "order-7", "processInstanceId": "order-7", "executionId": id,
		"processDefinitionId": nil, "scopeId": nil, "subScopeId": nil, "scopeDefinitionId": nil, "scopeType": nil,
		"elementId": "print", "elementName": "print", "retries": 3.0, "exceptionMessage": nil, "dueDate": nil, "tenantId": "acme", "lockOwner": "w",
		"variables": []any{v("big", "long", 4294967296.0), v("n", "integer", 7.0), v("name", "string", "a"), v("none", "", nil), v("on", "boolean", true),
			v("price", "double", 30.3), v("who", "json", map[string]any{"first": "Kermit"})},
	}, got)

	code, out := b.post("/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "v", "numberOfTasks": 5, "numberOfRetries": 5, "scopeType": null}`)
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, []any{}, out, "nothing is left")
}

// What is wrong is said with the status and the words that clients know.
func TestMistakes_asFlowableAnswersThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", `{}`)
	bad, forbidden, missing := http.StatusBadRequest, http.StatusForbidden, http.StatusNotFound
	for _, c := range []struct {
		path, body string
		code       int
		says       string
	}{
		{"/acquire/jobs", `{}`, bad, "topic is required"},
		{"/acquire/jobs", `{"topic": "print"}`, bad, "lockDuration is required"},
		{"/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M"}`, bad, "workerId is required"},
		{"/acquire/jobs", `{"topic": "print", "lockDuration": "10m", "workerId": "w"}`, bad, `the body cannot be read: "10m" is no duration of ISO 8601: write PT30M or PT10S`},
		{"/acquire/jobs", `{"topic": "print", "lockDuration": "P2D", "workerId": "w"}`, bad, "lockDuration: 100ms to 24h0m0s are allowed"},
		{"/acquire/jobs", `{"topic": "print", "lockDuration": "PT1M", "workerId": "w", "numberOfTasks": 0}`, bad, "numberOfTasks: at least 1"},
		{"/acquire/jobs", `{"topic": "print", "lockDuration": "PT1M", "workerId": "w", "scopeType": "x"}`, bad, `scopeType "x": bpmn and cmmn are known`},
		{"/acquire/jobs", `[`, bad, "the body cannot be read: unexpected end of JSON input"},
		{"/unacquire/jobs", `{}`, bad, "worker id is required"},
		{"/acquire/jobs", `{"topic": "print", "TOPIC": "other", "lockDuration": "PT1M", "workerId": "w"}`, bad, "the body cannot be read: TOPIC: there is no such field; topic is one"},
		{"/acquire/jobs", `{"topic": "print", "topic": "other", "lockDuration": "PT1M", "workerId": "w"}`, bad, "the body cannot be read: topic: it is there twice"},
		{"/acquire/jobs/" + id + "/fail", `{"workerId": "w\u0000"}`, bad, "the body cannot be read: workerId: this has the character U+0000, which no database keeps"},
		{"/acquire/jobs/" + id + "/fail", "{\"workerId\": \"w\", \"errorDetails\": \"\xff\"}", bad, "the body cannot be read: this is no UTF-8"},
		{"/acquire/jobs/%00/fail", `{"workerId": "w"}`, bad, "the path: this has the character U+0000, which no database keeps"},
		{"/acquire/jobs/invalid/fail", `{}`, bad, "workerId is required"},
		{"/acquire/jobs/invalid/complete", `{"workerId": "w"}`, missing, "Could not find external worker job with id 'invalid'."},
		{"/acquire/jobs/4711/bpmnError", `{"workerId": "w"}`, missing, "Could not find external worker job with id '4711'."},
		{"/acquire/jobs/" + id + "/complete", `{"workerId": "w"}`, forbidden, "w does not hold a lock on the requested job"},
	} {
		code, out := b.post(c.path, c.body)
		require.Equal(t, c.code, code, c.path)
		require.Equal(t, map[string]any{"message": map[int]string{bad: "Bad request", forbidden: "Forbidden", missing: "Not found"}[c.code], "exception": c.says}, out, c.body)
	}
	require.Equal(t, id, b.acquire()["id"])
	for _, end := range []string{"acquire/jobs/" + id + "/complete", "acquire/jobs/" + id + "/bpmnError", "acquire/jobs/" + id + "/cmmnTerminate", "acquire/jobs/" + id + "/fail", "unacquire/jobs/" + id} {
		code, out := b.post("/"+end, `{"workerId": "v"}`)
		require.Equal(t, forbidden, code, "%s: %v", end, out)
	}
	for variable, says := range map[string]string{
		`{"type": "string", "value": "x"}`:                      "Variable name is required.",
		`{"name": "x", "type": "serializable", "value": "x"}`:   "Variable 'x' has unsupported type: 'serializable'.",
		`{"name": "x", "type": "integer", "value": "7"}`:        "Variable 'x' has a value that is no integer.",
		`{"name": "x", "type": "date", "value": "yesterday"}`:   "Variable 'x' has a value that is no date.",
		`{"name": "x", "type": "short", "value": 40000}`:        "Variable 'x' has a value that is no short.",
		`{"name": "x", "type": "bigInteger", "value": "1e999"}`: "Variable 'x' has a value that is no bigInteger.",
	} {
		code, out := b.post("/acquire/jobs/"+id+"/complete", `{"workerId": "w", "variables": [`+variable+`]}`)
		require.Equal(t, bad, code, variable)
		require.Equal(t, says, out.(map[string]any)["exception"])
	}
	code, out := b.post("/acquire/jobs/"+id+"/bpmnError", `{"workerId": "w", "errorCode": "no address"}`)
	require.Equal(t, bad, code, out)
	j, _ := b.job(id)
	require.Equal(t, "locked", j.State, "nothing of this has changed it")
}

func TestComplete_keepsVariables(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", `[1]`)
	require.Equal(t, []any{map[string]any{"name": "payload", "type": "json", "value": []any{1.0}}}, b.acquire()["variables"])
	code, out := b.post("/acquire/jobs/"+id+"/complete", `{"workerId": "w", "variables": [
		{"name": "pages", "type": "integer", "value": 3}, {"name": "pages", "type": "long", "value": 4294967296, "valueUrl": null},
		{"name": "at", "type": "date", "value": "2026-05-04T09:25:45.583Z"}, {"name": "day", "type": "localDate", "value": "2026-05-04"},
		{"name": "noon", "type": "localDateTime", "value": "2026-05-04T12:00:00"}, {"name": "now", "type": "instant", "value": "2026-05-04T09:25:45.583Z"},
		{"name": "who", "type": "json", "value": {"first": "Kermit"}}, {"name": "small", "type": "short", "value": 3}, {"name": "sum", "type": "double", "value": 3},
		{"name": "ok", "type": "boolean", "value": true}, {"name": "huge", "type": "bigInteger", "value": "123456789012345678901234567890"},
		{"name": "exact", "type": "bigDecimal", "value": "0.10"}, {"name": "none", "type": "string", "value": null}, {"name": "untyped", "value": "x"}]}`)
	require.Equal(t, http.StatusNoContent, code, out)
	j, output := b.job(id)
	require.Equal(t, "done", j.State)
	require.JSONEq(t, `{"pages": 4294967296, "at": "2026-05-04T09:25:45.583Z", "day": "2026-05-04", "noon": "2026-05-04T12:00:00", "now": "2026-05-04T09:25:45.583Z",
		"who": {"first": "Kermit"}, "small": 3, "sum": 3, "ok": true, "huge": "123456789012345678901234567890", "exact": "0.10", "none": null, "untyped": "x"}`, output)
	code, _ = b.post("/acquire/jobs/"+id+"/complete", `{"workerId": "w", "variables": null}`)
	require.Equal(t, http.StatusNotFound, code, "it has ended")
}

// Retries are the attempts that are left, in what is acquired as in what is failed.
func TestFail_asFlowableDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", `{}`)
	require.Equal(t, 10.0, b.acquire()["retries"])
	code, out := b.post("/acquire/jobs/"+id+"/fail", `{"workerId": "w", "errorMessage": "no \u0000paper", "errorDetails": "at Printer.java", "retries": 2, "retryTimeout": "PT0S"}`)
	require.Equal(t, http.StatusNoContent, code, out)
	_, shown := b.ask(admin, http.MethodGet, "/jobs/"+id, "")
	require.Equal(t, "no paper", shown.(map[string]any)["exceptionMessage"])
	require.Nil(t, shown.(map[string]any)["lockOwner"])
	require.Eventually(t, func() bool {
		code, out = b.post("/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w"}`)
		return len(out.([]any)) > 0
	}, 10*time.Second, 10*time.Millisecond)
	require.Equal(t, 2.0, out.([]any)[0].(map[string]any)["retries"])
	code, out = b.post("/acquire/jobs/"+id+"/fail", `{"workerId": "w", "retries": -1, "retryTimeout": "PT1H"}`)
	require.Equal(t, http.StatusNoContent, code, out)
	j, _ := b.job(id)
	require.Equal(t, "retrying", j.State)
	_, shown = b.ask(admin, http.MethodGet, "/jobs/"+id, "")
	require.Equal(t, 1.0, shown.(map[string]any)["retries"])
	require.NotNil(t, shown.(map[string]any)["dueDate"])

	id = b.enqueue("acme", `{}`)
	b.acquire()
	code, out = b.post("/acquire/jobs/"+id+"/fail", `{"workerId": "w", "errorMessage": "no printer", "retries": 0}`)
	require.Equal(t, http.StatusNoContent, code, out)
	j, _ = b.job(id)
	require.Equal(t, "dead", j.State)
	require.Equal(t, "no printer", j.Error)
}

func TestErrorsOfTheBusiness_asFlowableHasThem(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for body, says := range map[string]string{
		`{"workerId": "w", "errorCode": "no_address", "variables": [{"name": "why", "type": "string", "value": "moved"}]}`: "no_address: raised by an external worker",
		`{"workerId": "w", "errorCode": null, "variables": [{"name": "why", "type": "string", "value": "moved"}]}`:         "bpmn_error: raised by an external worker",
	} {
		id := b.enqueue("acme", `{}`)
		b.acquire()
		code, out := b.post("/acquire/jobs/"+id+"/bpmnError", body)
		require.Equal(t, http.StatusNoContent, code, out)
		j, output := b.job(id)
		require.Equal(t, []string{"business_error", says}, []string{j.State, j.Error})
		require.JSONEq(t, `{"why": "moved"}`, output)
	}

	id := b.enqueue("acme", `{}`)
	code, out := b.post("/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w", "scopeType": "cmmn"}`)
	require.Equal(t, http.StatusOK, code)
	shown := out.([]any)[0].(map[string]any)
	require.Equal(t, []any{nil, id, "cmmn"}, []any{shown["processInstanceId"], shown["scopeId"], shown["scopeType"]})
	code, out = b.post("/acquire/jobs/"+id+"/cmmnTerminate", `{"workerId": "w", "variables": null}`)
	require.Equal(t, http.StatusNoContent, code, out)
	j, _ := b.job(id)
	require.Equal(t, []string{"business_error", "terminated: by an external worker"}, []string{j.State, j.Error})
}

func TestUnacquire_asFlowableDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	first, second := b.enqueue("acme", `{}`), b.enqueue("globex", `{}`)
	state := func(id string) string {
		j, _ := b.job(id)
		return j.State
	}
	take := func() {
		_, out := b.post("/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w", "numberOfTasks": 2000}`)
		require.Len(t, out, 2)
	}
	take()
	code, out := b.post("/unacquire/jobs", `{"workerId": "w", "tenantId": "acme"}`)
	require.Equal(t, http.StatusBadRequest, code, "it has jobs of another tenant: %v", out)
	code, _ = b.post("/unacquire/jobs", `{"workerId": "v"}`)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, "locked", state(first))
	code, _ = b.post("/unacquire/jobs/"+first, `{"workerId": "w"}`)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, []string{"waiting", "locked"}, []string{state(first), state(second)})
	code, _ = b.post("/unacquire/jobs", `{"workerId": "w", "tenantId": "globex"}`)
	require.Equal(t, http.StatusNoContent, code)
	take()
	code, _ = b.post("/unacquire/jobs", `{"workerId": "w"}`)
	require.Equal(t, http.StatusNoContent, code)
	require.Equal(t, []string{"waiting", "waiting"}, []string{state(first), state(second)})
}

func TestListJobs_asFlowableDoes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ids []any
	for _, tenant := range []tenancy.ID{"acme", "acme", "globex"} {
		ids = append(ids, b.enqueue(tenant, `{}`))
	}
	b.acquire()
	get := func(query string) (map[string]any, []any) {
		t.Helper()
		code, out := b.ask(admin, http.MethodGet, "/jobs"+query, "")
		require.Equal(t, http.StatusOK, code, out)
		page := out.(map[string]any)
		var found []any
		for _, j := range page["data"].([]any) {
			found = append(found, j.(map[string]any)["id"])
		}
		return page, found
	}
	page, found := get("")
	require.ElementsMatch(t, ids, found)
	delete(page, "data")
	require.Equal(t, map[string]any{"total": 3.0, "start": 0.0, "sort": "id", "order": "asc", "size": 3.0}, page)
	page, found = get("?tenantId=acme&sort=createTime&order=desc&start=1&size=1")
	require.Equal(t, ids[:1], found)
	require.Equal(t, 2.0, page["total"])
	for query, n := range map[string]int{"?locked=true": 1, "?unlocked=true": 2, "?locked=false": 3, "?elementId=print": 3, "?elementId=x": 0, "?id=x": 0,
		"?id=" + ids[2].(string): 1, "?withException=true": 0} {
		_, found := get(query)
		require.Len(t, found, n, query)
	}
	for _, query := range []string{"?sort=retries", "?order=up", "?size=x", "?size=0", "?start=-1", "?start=9999&size=9999", "?locked=maybe", "?tenantIdLike=a"} {
		code, _ := b.ask(admin, http.MethodGet, "/jobs"+query, "")
		require.Equal(t, http.StatusBadRequest, code, query)
	}
	code, _ := b.ask(admin, http.MethodGet, "/jobs/"+ids[0].(string), "")
	require.Equal(t, http.StatusOK, code)
	code, _ = b.ask(admin, http.MethodGet, "/jobs/0", "")
	require.Equal(t, http.StatusNotFound, code)
}

func TestWorkersHaveOnlyWhatTheirGrantReaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", `{}`)
	b.acquire()
	code, _ := b.ask(access.Grant{Role: access.Operate}, http.MethodPost, "/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w"}`)
	require.Equal(t, http.StatusForbidden, code, "arguments are not for it")
	for name, g := range map[string]access.Grant{
		"another tenant": {Role: access.Operate, Tenants: []tenancy.ID{"globex"}, Args: true},
		"another pool":   {Role: access.Operate, Pools: []string{"pool-2"}, Args: true},
	} {
		for _, path := range []string{"acquire/jobs/" + id + "/complete", "acquire/jobs/" + id + "/bpmnError", "acquire/jobs/" + id + "/cmmnTerminate", "acquire/jobs/" + id + "/fail", "unacquire/jobs/" + id} {
			code, out := b.ask(g, http.MethodPost, "/"+path, `{"workerId": "w"}`)
			require.Equal(t, http.StatusNotFound, code, "%s: %s: %v", name, path, out)
		}
		code, _ := b.ask(g, http.MethodGet, "/jobs/"+id, "")
		require.Equal(t, http.StatusNotFound, code, name)
		code, _ = b.ask(g, http.MethodPost, "/unacquire/jobs", `{"workerId": "w"}`)
		require.Equal(t, http.StatusNoContent, code, name)
		for _, query := range []string{"", "?tenantId=acme"} {
			_, out := b.ask(g, http.MethodGet, "/jobs"+query, "")
			require.Empty(t, out.(map[string]any)["data"], name)
		}
		_, out := b.ask(g, http.MethodPost, "/acquire/jobs", `{"topic": "print", "lockDuration": "PT10M", "workerId": "w"}`)
		require.Empty(t, out, name)
	}
	j, _ := b.job(id)
	require.Equal(t, "locked", j.State)
	code, _ = b.ask(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"acme"}, Pools: []string{"pool-1"}}, http.MethodPost, "/acquire/jobs/"+id+"/complete", `{"workerId": "w"}`)
	require.Equal(t, http.StatusNoContent, code)
}
