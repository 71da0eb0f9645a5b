package api_test

import (
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// Whoever asks for what is in a database that is down is told that, and where; what cannot be counted is not there.
func TestADatabaseThatIsDown(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("globex")
	batch := b.do(http.MethodPost, "/batches", `{"tenant":"globex","jobs":[{"kind":"k","args":{}}],"then":{"kind":"k","args":{}}}`)["id"].(string)
	b.do(http.MethodPut, "/tenants/globex/schedules/hourly", `{"kind":"invoice.send","args":{},"rule":"PT1H"}`)
	operation := b.do(http.MethodPost, "/dead-letters/retry", `{"tenant":"globex","pool":"pool-2"}`)["operations"].([]any)[0].(string)
	acme, globex := b.env.Tenant(t, "acme"), b.env.Tenant(t, "globex")
	name := jobtest.Value[string](globex, "SELECT current_database()")
	acme.Exec(fmt.Sprintf(`ALTER DATABASE %q ALLOW_CONNECTIONS false`, name))
	acme.Exec("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = $1", name)
	lock := `{"job":"` + id + `","turn":1,"worker":"w"`
	for _, r := range []struct{ method, path, body string }{
		{http.MethodPost, "/jobs", `{"tenant":"globex","kind":"k","args":{}}`},
		{http.MethodPost, "/jobs/many", `{"jobs":[{"tenant":"globex","kind":"k","args":{}}]}`},
		{http.MethodPost, "/batches", `{"tenant":"globex","jobs":[],"then":{"kind":"k","args":{}}}`},
		{http.MethodGet, "/jobs/" + id, ""}, {http.MethodGet, "/jobs/" + id + "/why", ""}, {http.MethodGet, "/jobs/" + id + "/events", ""}, {http.MethodPatch, "/jobs/" + id, `{"priority":1}`},
		{http.MethodPost, "/jobs/" + id + "/cancel", ""}, {http.MethodPost, "/jobs/" + id + "/retry", ""}, {http.MethodPost, "/jobs/" + id + "/run", ""},
		{http.MethodPost, "/jobs/" + id + "/suspend", ""}, {http.MethodPost, "/jobs/" + id + "/resume", ""}, {http.MethodDelete, "/dead-letters/" + id, ""},
		{http.MethodGet, "/batches/" + batch, ""}, {http.MethodPost, "/batches/" + batch + "/cancel", ""}, {http.MethodPost, "/operations/" + operation + "/cancel", ""},
		{http.MethodGet, "/tenants/globex", ""}, {http.MethodPost, "/tenants/globex/freeze", ""}, {http.MethodPut, "/tenants/globex/weight", `{"weight":2}`}, {http.MethodPut, "/tenants/globex/limits", `{"max_running":2}`},
		{http.MethodPut, "/tenants/globex/schedules/hourly", `{"kind":"invoice.send","args":{},"rule":"PT1H"}`}, {http.MethodGet, "/tenants/globex/schedules/hourly", ""},
		{http.MethodPost, "/tenants/globex/schedules/hourly/pause", ""}, {http.MethodPost, "/tenants/globex/schedules/hourly/run", ""}, {http.MethodDelete, "/tenants/globex/schedules/hourly", ""},
		{http.MethodPut, "/limits", `{"tenant":"globex","max_running":3}`}, {http.MethodDelete, "/limits?tenant=globex", ""},
		{http.MethodPost, "/pools/pool-2/freeze", ""}, {http.MethodPost, "/pools/pool-2/thaw", ""}, {http.MethodGet, "/pools/pool-2/claims", ""}, {http.MethodPost, "/queues/mail/freeze", ""},
		{http.MethodPost, "/external/complete", lock + "}"}, {http.MethodPost, "/external/fail", lock + `,"error":"e"}`}, {http.MethodPost, "/external/release", lock + "}"},
	} {
		code, out := b.ask(admin, r.method, r.path, r.body)
		if r.path == "/pools/pool-2/claims" { // a list
			require.Equal(t, true, out["incomplete"])
			continue
		}
		require.Equal(t, http.StatusServiceUnavailable, code, "%s %s: %v", r.method, r.path, out)
		require.Contains(t, out["detail"], "pool-", "%s %s", r.method, r.path)
	}
	site, err := web.Handler(b.env.Client(), web.Settings{})
	require.NoError(t, err)
	for _, r := range []struct{ path, kind, body string }{ // and so are people and workers of another dialect
		{"/jobs/" + id + "/cancel", "application/x-www-form-urlencoded", ""}, {"/batches/" + batch + "/cancel", "application/x-www-form-urlencoded", ""}, {"/operations/" + operation + "/cancel", "application/x-www-form-urlencoded", ""}, {"/schedules/run", "application/x-www-form-urlencoded", "tenant=globex&name=hourly"}, {"/tenant/freeze", "application/x-www-form-urlencoded", "id=globex"},
		{"/external-job-api/acquire/jobs/" + id + "/complete", "application/json", `{"workerId":"w"}`},
	} {
		request := httptest.NewRequest(http.MethodPost, r.path, strings.NewReader(r.body))
		request.RemoteAddr, request.Host = "127.0.0.1:1", "localhost"
		request.Header.Set("Content-Type", r.kind)
		w := httptest.NewRecorder()
		site.ServeHTTP(w, request)
		require.Equal(t, http.StatusServiceUnavailable, w.Code, "%s: %s", r.path, w.Body)
	}
	for _, p := range items(b.do(http.MethodGet, "/pools", "")) {
		for _, count := range []string{"waiting", "running", "dead", "oldest_seconds"} {
			require.Equal(t, p["pool"] == "pool-1", p[count] != nil, "%s of %v", count, p)
		}
	}
	incomplete := b.do(http.MethodGet, "/jobs?tenant=globex", "")
	require.Equal(t, true, incomplete["incomplete"])
	require.Equal(t, []any{map[string]any{"pool": "pool-2", "state": "down"}}, incomplete["missing"])
	var failed []error
	w := httptest.NewRecorder()
	web.InProcess(b.env.Client(), web.Local{Who: "me", Look: 30 * time.Second, Failed: func(err error) { failed = append(failed, err) }}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/api/v1/jobs", nil))
	require.Equal(t, http.StatusOK, w.Code, w.Body)
	require.ErrorContains(t, errors.Join(failed...), "not currently accepting connections", "the process itself is told what the database said")
	code, out := b.ask(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"acme"}, Pools: []string{"pool-1"}}, http.MethodGet, "/jobs/"+id, "")
	require.Equal(t, http.StatusServiceUnavailable, code)
	require.NotContains(t, out["detail"], "pool-2", "it is not this token's to know")
}
