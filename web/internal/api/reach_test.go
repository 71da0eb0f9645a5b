package api_test

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Every operation of the document, streams among them, says to somebody whose grant does not reach a thing just what it
// says where there is no such thing, and no list names it.
func TestNoOperationTellsOfWhatAGrantDoesNotReach(t *testing.T) {
	t.Parallel()
	b := setup(t)
	text, err := os.ReadFile("openapi.json")
	require.NoError(t, err)
	var document struct {
		Paths map[string]map[string]struct {
			ID string `json:"operationId"`
		}
	}
	require.NoError(t, json.Unmarshal(text, &document))
	id := b.enqueue("acme")
	args := job.RawArgs{Name: "invoice.send", Payload: []byte("{}")}
	elsewhere := []tenure.Option{tenure.Elsewhere()}
	batch, err := b.env.Client().EnqueueBatch(tenancy.For(t.Context(), "acme"), tenure.Batch{Jobs: []tenure.Entry{{Args: args, Options: elsewhere}}, Then: args, Options: elsewhere})
	require.NoError(t, err)
	b.do(http.MethodPut, "/tenants/acme/schedules/hourly", `{"kind":"invoice.send","args":{},"rule":"PT1H"}`)
	b.do(http.MethodPut, "/schedules/daily", `{"kind":"invoice.send","args":{},"rule":"PT24H"}`)
	b.do(http.MethodPut, "/limits", `{"tenant":"acme","max_running":3}`)
	operation := b.do(http.MethodPost, "/dead-letters/retry", `{"tenant":"acme","pool":"pool-1"}`)["operations"].([]any)[0].(string)

	lock := func(job string) string { return `{"job":"` + job + `","turn":1,"worker":"w"}` }
	bodies := map[string]func(tenant, job string) string{
		"enqueue-job":  func(tenant, _ string) string { return `{"tenant":"` + tenant + `","kind":"k","args":{}}` },
		"enqueue-many": func(tenant, _ string) string { return `{"jobs":[{"tenant":"` + tenant + `","kind":"k","args":{}}]}` },
		"enqueue-batch": func(tenant, _ string) string {
			return `{"tenant":"` + tenant + `","jobs":[{"kind":"k","args":{}}],"then":{"kind":"k","args":{}}}`
		},
		"cancel-jobs":         func(tenant, _ string) string { return `{"tenant":"` + tenant + `"}` },
		"suspend-jobs":        func(tenant, _ string) string { return `{"tenant":"` + tenant + `"}` },
		"resume-jobs":         func(tenant, _ string) string { return `{"tenant":"` + tenant + `"}` },
		"retry-jobs":          func(tenant, _ string) string { return `{"tenant":"` + tenant + `","state":"retrying"}` },
		"retry-dead":          func(tenant, _ string) string { return `{"tenant":"` + tenant + `"}` },
		"delete-dead":         func(tenant, _ string) string { return `{"tenant":"` + tenant + `"}` },
		"set-limit":           func(tenant, _ string) string { return `{"tenant":"` + tenant + `","max_running":1}` },
		"limit-tenant":        func(string, string) string { return `{"max_waiting":1}` },
		"weigh-tenant":        func(string, string) string { return `{"weight":2}` },
		"reassign-jobs":       func(string, string) string { return `{"to":"globex"}` },
		"move-tenant":         func(string, string) string { return `{"to":"pool-2"}` },
		"change-job":          func(string, string) string { return `{"priority":1}` },
		"set-schedule":        func(string, string) string { return `{"kind":"k","args":{},"rule":"PT1H"}` },
		"set-schedule-of-all": func(string, string) string { return `{"kind":"k","args":{},"rule":"PT1H"}` },
		"acquire-external": func(tenant, _ string) string {
			return `{"topic":"k","worker":"w","lock":60,"max":1,"tenants":["` + tenant + `"]}`
		},
		"complete-external": func(_, job string) string { return lock(job) },
		"release-external":  func(_, job string) string { return lock(job) },
		"extend-external":   func(_, job string) string { return strings.Replace(lock(job), "{", `{"lock":60,`, 1) },
		"fail-external":     func(_, job string) string { return strings.Replace(lock(job), "{", `{"error":"e",`, 1) },
		"raise-external":    func(_, job string) string { return strings.Replace(lock(job), "{", `{"code":"c","message":"m",`, 1) },
	}
	known := []string{
		"get-schedule-of-all",    // its jobs are every tenant's
		"complete-many-external", // its answer has the ids that it was sent: TestExternalWorkersCompleteManyJobs
	}
	choosing := []string{"cancel-jobs", "suspend-jobs", "resume-jobs", "retry-jobs", "retry-dead", "delete-dead"} // of any tenant, in the pools that are reached
	ask := func(g access.Grant, method, path, body string) (int, string) {
		ctx, cancel := context.WithTimeout(access.With(t.Context(), g), 2*time.Second) // streams go on
		defer cancel()
		r := httptest.NewRequestWithContext(ctx, strings.ToUpper(method), path, strings.NewReader(body))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		b.handler.ServeHTTP(w, r)
		return w.Code, w.Body.String()
	}
	for name, g := range map[string]access.Grant{
		"another tenant": {Role: access.Admin, Args: true, Tenants: []tenancy.ID{"globex"}},
		"another pool":   {Role: access.Admin, Args: true, Pools: []string{"pool-2"}},
	} {
		asked := 0
		for path, methods := range document.Paths {
			for method, op := range methods {
				if slices.Contains(known, op.ID) || len(g.Pools) > 0 && slices.Contains(choosing, op.ID) {
					continue
				}
				asked++
				on := func(tenant, pool, job, batch, operation string) (int, string) {
					if strings.Contains(path, "/batches/") {
						job = batch
					}
					if strings.Contains(path, "/operations/") {
						job = operation
					}
					body := ""
					if of := bodies[op.ID]; of != nil {
						body = of(tenant, job)
					}
					p := strings.NewReplacer("{id}", job, "{tenant}", tenant, "{pool}", pool, "{name}", "hourly").Replace(path)
					if op.ID == "delete-limit" {
						p += "?tenant=" + tenant
					}
					return ask(g, method, p, body)
				}
				code, out := on("acme", "pool-1", id, batch.ID.String(), operation)
				if !strings.Contains(path, "{") && bodies[op.ID] == nil && op.ID != "delete-limit" {
					require.Contains(t, []int{http.StatusOK, http.StatusNotFound}, code, "%s: %s: %s", name, op.ID, out)
					require.NotContains(t, out, "acme", "%s: %s", name, op.ID)
					if len(g.Pools) > 0 {
						require.NotContains(t, out, "pool-1", "%s: %s", name, op.ID)
					}
					continue
				}
				require.Equal(t, http.StatusNotFound, code, "%s: %s: %s", name, op.ID, out)
				_, nothing := on("nobody", "nowhere", "4711", "4711", "0b0e1d1c-0000-4000-8000-000000000000")
				require.Equal(t, nothing, out, "%s: %s", name, op.ID)
			}
		}
		require.Greater(t, asked, 50, name)
	}
	require.Equal(t, "waiting", b.do(http.MethodGet, "/jobs/"+id, "")["state"])
}
