package api_test

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/api"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

type bundle struct {
	t       *testing.T
	env     *jobtest.Env
	handler http.Handler
}

var admin = access.Grant{Name: "test", Role: access.Admin, Args: true}

// setup serves two tenants in two pools: acme in pool-1, globex in pool-2.
func setup(t *testing.T) *bundle {
	env := jobtest.New(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"), jobtest.Register(register))
	return &bundle{t, env, api.Handler(env.Client(), nil, zap.NewNop())}
}

func (b *bundle) ask(g access.Grant, method, path, body string, header ...string) (int, map[string]any) {
	b.t.Helper()
	r := httptest.NewRequest(method, "/api/v1"+path, strings.NewReader(body))
	r.Header.Set("Content-Type", "application/json")
	for i := 0; i < len(header); i += 2 {
		r.Header.Add(header[i], header[i+1])
	}
	w := httptest.NewRecorder()
	b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), g)))
	out := map[string]any{}
	if w.Body.Len() > 0 {
		require.NoError(b.t, json.Unmarshal(w.Body.Bytes(), &out), w.Body.String())
	}
	return w.Code, out
}

// enqueue adds a job and returns its id.
func (b *bundle) enqueue(tenant string, header ...string) string {
	b.t.Helper()
	code, out := b.ask(admin, http.MethodPost, "/jobs", `{"tenant":"`+tenant+`","kind":"invoice.send","args":{"n":9007199254740993}}`, header...)
	require.Equal(b.t, http.StatusOK, code, out)
	return out["id"].(string)
}

func TestJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme", "Idempotency-Key", "invoice:1")
	require.Equal(t, id, b.enqueue("acme", "Idempotency-Key", "invoice:1"), "the same key is the same job")
	b.enqueue("globex")
	code, out := b.ask(admin, http.MethodGet, "/jobs?tenant=acme", "")
	require.Equal(t, http.StatusOK, code)
	require.Len(t, out["items"], 1)
	for _, step := range []struct {
		do, state string
	}{{"suspend", "suspended"}, {"resume", "waiting"}, {"run", "waiting"}} {
		code, out = b.ask(admin, http.MethodPost, "/jobs/"+id+"/"+step.do, "")
		require.Equal(t, http.StatusNoContent, code, out)
		_, out = b.ask(admin, http.MethodGet, "/jobs/"+id, "")
		require.Equal(t, step.state, out["state"], step.do)
	}
	code, out = b.ask(admin, http.MethodPost, "/jobs/"+id+"/resume", "")
	require.Equal(t, http.StatusConflict, code, out)
	code, _ = b.ask(admin, http.MethodGet, "/jobs/"+id+"/why", "")
	require.Equal(t, http.StatusOK, code)
	code, out = b.ask(admin, http.MethodPost, "/jobs/"+id+"/cancel", "")
	require.Equal(t, http.StatusOK, code, out)
	code, _ = b.ask(admin, http.MethodGet, "/jobs/4711", "")
	require.Equal(t, http.StatusNotFound, code)
}

// What a request enqueues belongs to the trace that its header names, if it names one.
func TestRequestsMayBelongToATrace(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
	for header, want := range map[string]string{parent: parent, "nonsense": ""} {
		id, err := job.ParseID(b.enqueue("acme", "Traceparent", header))
		require.NoError(t, err)
		j, _, err := b.env.Client().Operator().Jobs().Get(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, want, jobmeta.Traceparent(j.Meta))
	}
}

func TestWhatAGrantDoesNotReachIsNotThere(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	for name, g := range map[string]access.Grant{
		"another tenant": {Role: access.Admin, Tenants: []tenancy.ID{"globex"}},
		"another pool":   {Role: access.Admin, Pools: []string{"pool-2"}},
	} {
		for _, r := range []struct{ method, path, body string }{
			{http.MethodGet, "/jobs/" + id, ""}, {http.MethodGet, "/jobs/" + id + "/why", ""},
			{http.MethodPost, "/jobs/" + id + "/cancel", ""}, {http.MethodPost, "/jobs/" + id + "/retry", ""},
			{http.MethodPost, "/jobs/" + id + "/suspend", ""}, {http.MethodPost, "/jobs/" + id + "/resume", ""},
			{http.MethodPost, "/jobs/" + id + "/run", ""}, {http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{}}`},
			{http.MethodGet, "/tenants/acme/why", ""}, {http.MethodPost, "/tenants/acme/freeze", ""}, {http.MethodPost, "/tenants/acme/thaw", ""},
			{http.MethodPut, "/tenants/acme/limits", `{"max_waiting":1}`}, {http.MethodPut, "/tenants/acme/weight", `{"weight":2}`},
			{http.MethodPost, "/pools/pool-1/freeze", ""}, {http.MethodPost, "/pools/pool-1/thaw", ""},
			{http.MethodPost, "/queues/mail/freeze", ""}, {http.MethodPost, "/kinds/mail.send/thaw", ""},
		} {
			code, out := b.ask(g, r.method, r.path, r.body)
			require.Equal(t, http.StatusNotFound, code, "%s: %s %s: %v", name, r.method, r.path, out)
		}
		_, out := b.ask(g, http.MethodGet, "/jobs", "")
		require.Empty(t, out["items"], name)
		_, out = b.ask(g, http.MethodGet, "/tenants", "")
		require.Len(t, out["items"], 1, name)
	}
}

func TestTenantsAndPools(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPost, "/tenants/acme/freeze", ""}, {http.MethodPost, "/tenants/acme/thaw", ""},
		{http.MethodPut, "/tenants/acme/limits", `{"max_running":5,"max_waiting":100}`}, {http.MethodPut, "/tenants/acme/weight", `{"weight":3}`},
		{http.MethodPost, "/pools/pool-2/freeze", ""}, {http.MethodPost, "/pools/pool-2/thaw", ""},
		{http.MethodPost, "/queues/mail/freeze", ""}, {http.MethodPost, "/kinds/mail.send/freeze", ""}, {http.MethodPost, "/queues/mail/thaw", ""},
	} {
		code, out := b.ask(admin, r.method, r.path, r.body)
		require.Equal(t, http.StatusNoContent, code, "%s: %v", r.path, out)
	}
	for _, path := range []string{"/pools", "/locks", "/nodes", "/tenants"} {
		code, out := b.ask(admin, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, code, "%s: %v", path, out)
		require.Contains(t, out, "items")
	}
	require.Len(t, items(b.do(http.MethodGet, "/kinds/frozen", "")), 2)
	code, _ := b.ask(admin, http.MethodPost, "/queues/%20/freeze", "")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	code, _ = b.ask(admin, http.MethodPost, "/pools/nowhere/freeze", "")
	require.Equal(t, http.StatusNotFound, code)
	code, _ = b.ask(admin, http.MethodGet, "/tenants/nobody/why", "")
	require.Equal(t, http.StatusNotFound, code)
}

// Who asks for what cannot be is told what is wrong with it.
func TestWhatIsWrongWithARequestIsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := strings.Repeat("k", 1025)
	for _, r := range []struct {
		path, body string
		header     []string
		says       string
	}{
		{"/jobs", `{"tenant":"acme","kind":"k","args":{},"queue":"no queue"}`, nil, "queue"},
		{"/jobs", `{"tenant":"acme","kind":"k","args":{}}`, []string{"Idempotency-Key", long}, "1024"},
		{"/external/acquire", `{"topic":"no topic","worker":"w","lock":60,"max":1}`, nil, "topic"},
		{"/external/acquire", `{"topic":"t","worker":"w\u0000","lock":60,"max":1}`, nil, "worker"},
		{"/external/error", `{"job":"1","turn":1,"worker":"w","code":"no code","message":"m"}`, nil, "code"},
	} {
		code, out := b.ask(admin, http.MethodPost, r.path, r.body, r.header...)
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s: %v", r.body, out)
		require.Contains(t, out["detail"], r.says)
		require.NotContains(t, out["detail"], "under id")
	}
}
