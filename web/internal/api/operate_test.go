package api_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
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

type broken struct{}

func (broken) Kind() string { return "mail.broken" }

type mail struct{}

func (mail) Kind() string { return "mail.send" }

func register(r *job.Registry) {
	job.Handle(r, func(context.Context, *job.Job[mail]) error { return nil })
	job.Handle(r, func(ctx context.Context, _ *job.Job[broken]) error {
		job.SetProgress(ctx, 3, 4, "three of them")
		return job.Discard(errors.New("no such address: 17"))
	})
}

// do is a request that goes well.
func (b *bundle) do(method, path, body string, header ...string) map[string]any {
	b.t.Helper()
	code, out := b.ask(admin, method, path, body, header...)
	require.Less(b.t, code, 300, "%s %s: %v", method, path, out)
	return out
}

func items(out map[string]any) (all []map[string]any) {
	for _, i := range out["items"].([]any) {
		all = append(all, i.(map[string]any))
	}
	return all
}

// dead makes so many dead letters.
func (b *bundle) dead(tenant tenancy.ID, n int) {
	b.t.Helper()
	for range n {
		_, err := b.env.Client().Enqueue(tenancy.For(b.t.Context(), tenant), broken{})
		require.NoError(b.t, err)
	}
	b.env.Drain(b.t)
}

// pages are the ids of all that a list in pages has.
func (b *bundle) pages(g access.Grant, path string) (ids []string) {
	b.t.Helper()
	for next := ""; ; {
		code, out := b.ask(g, http.MethodGet, path+"&after="+next, "")
		require.Equal(b.t, http.StatusOK, code, out)
		for _, one := range items(out) {
			ids = append(ids, one["id"].(string))
		}
		if out["next"] == nil {
			return ids
		}
		next = out["next"].(string)
	}
}

// Every job of both pools is on one page, newest first.
func TestJobsComeInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for i := range 11 {
		want = append([]string{b.enqueue([]string{"acme", "globex"}[i%2])}, want...)
	}
	for name, g := range map[string]access.Grant{"all": admin, "both tenants": {Role: access.Read, Tenants: []tenancy.ID{"acme", "globex"}}} {
		require.Equal(t, want, b.pages(g, "/jobs?limit=4"), name)
	}
	code, out := b.ask(admin, http.MethodGet, "/jobs?after=x", "")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Contains(t, out["detail"], "no place in a list of jobs")
}

// Within a day an idempotency key stands for one job, also when that has ended.
func TestIdempotencyKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func() map[string]any {
		return b.do(http.MethodPost, "/jobs", `{"tenant":"acme","kind":"mail.send","args":{}}`, "Idempotency-Key", "order:1")
	}
	first := add()
	require.Equal(t, false, first["duplicate"])
	b.env.Drain(t)
	again := add()
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, first["id"], again["id"])
	code, out := b.ask(admin, http.MethodPost, "/jobs", `{"tenant":"acme","kind":"mail.send","args":{},"unique_key":"k"}`, "Idempotency-Key", "order:1")
	require.Equal(t, http.StatusUnprocessableEntity, code, out)
}

func TestEnqueueMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	out := b.do(http.MethodPost, "/jobs/many", `{"jobs":[
		{"tenant":"acme","kind":"mail.send","args":{},"unique_key":"a","priority":5,"tags":["x"],"meta":{"by":"me"}},
		{"tenant":"acme","kind":"mail.send","args":{},"unique_key":"a"},
		{"tenant":"globex","kind":"mail.send","args":{},"delay_ms":60000,"max_attempts":3,"timeout_ms":1500}]}`)
	require.EqualValues(t, 2, out["added"])
	j := items(b.do(http.MethodGet, "/jobs?tenant=globex", ""))[0]
	first := out["jobs"].([]any)[0].(map[string]any)["id"]
	require.Equal(t, []any{
		map[string]any{"id": first, "duplicate": false}, map[string]any{"id": first, "duplicate": true}, map[string]any{"id": j["id"], "duplicate": false},
	}, out["jobs"])
	require.Equal(t, "scheduled", j["state"])
	require.EqualValues(t, 1500, j["timeout_ms"])
	require.Equal(t, []any{"x"}, items(b.do(http.MethodGet, "/jobs?tag=x", ""))[0]["tags"])
	for body, want := range map[string]string{
		`{"jobs":[{"tenant":"acme","kind":"k","args":{}},{"tenant":"acme","kind":"no kind","args":{}}]}`: "entry 1",
		`{"jobs":[{"tenant":"acme","kind":"k","args":{},"delay_ms":1,"at":"2030-01-01T00:00:00Z"}]}`:     "job 0: send at or delay_ms",
		`{"jobs":[{"tenant":"acme","kind":"k","args":{},"batch":"x"}]}`:                                  "job 0: batch",
		`{"jobs":[{"tenant":"acme","kind":"k","args":{},"on_failure":"run"}]}`:                           "on_failure",
		`{"jobs":[{"tenant":"acme","kind":"k","args":{},"tenants":["x"]}]}`:                              "unexpected property",
		`{"jobs":[]}`: "array length",
	} {
		code, out := b.ask(admin, http.MethodPost, "/jobs/many", body)
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s: %v", body, out)
		require.Contains(t, fmt.Sprint(out), want)
	}
	code, out := b.ask(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"acme"}}, http.MethodPost, "/jobs/many",
		`{"jobs":[{"tenant":"acme","kind":"k","args":{}},{"tenant":"globex","kind":"k","args":{}}]}`)
	require.Equal(t, http.StatusNotFound, code, out)
	require.Len(t, items(b.do(http.MethodGet, "/jobs", "")), 2, "what was refused has changed nothing")
	for range 2 { // sent again when its jobs have ended
		out = b.do(http.MethodPost, "/jobs/many", `{"jobs":[{"tenant":"acme","kind":"mail.send","args":{}},{"tenant":"acme","kind":"mail.send","args":{}}]}`, "Idempotency-Key", "import")
		b.env.Drain(t)
	}
	require.EqualValues(t, 0, out["added"])
}

func TestChangeAndSuspendJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	b.enqueue("globex")
	b.do(http.MethodPatch, "/jobs/"+id, `{"priority":7,"max_attempts":4,"timeout_ms":2000,"due_at":"2040-01-01T00:00:00Z"}`)
	out := b.do(http.MethodGet, "/jobs/"+id, "")
	require.Equal(t, "scheduled", out["state"])
	require.EqualValues(t, 7, out["priority"])
	require.EqualValues(t, 4, out["max_attempts"])
	require.EqualValues(t, 2000, out["timeout_ms"])
	code, out := b.ask(admin, http.MethodPatch, "/jobs/"+id, `{}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, out)

	code, out = b.ask(admin, http.MethodPost, "/jobs/suspend", `{}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, out)
	code, out = b.ask(admin, http.MethodPost, "/jobs/suspend", `{"all":true,"kind":"k"}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, out)
	out = b.do(http.MethodPost, "/jobs/suspend", `{"tenant":"acme"}`)
	require.EqualValues(t, 1, out["suspended"])
	require.Equal(t, true, out["complete"])
	code, out = b.ask(access.Grant{Role: access.Operate, Pools: []string{"pool-2"}}, http.MethodPost, "/jobs/suspend", `{"all":true}`)
	require.Equal(t, http.StatusOK, code)
	require.EqualValues(t, 1, out["suspended"], "only what the token reaches")
	out = b.do(http.MethodPost, "/jobs/resume", `{"all":true}`)
	require.EqualValues(t, 2, out["resumed"])
	b.do(http.MethodPost, "/jobs/"+id+"/suspend?until=2040-01-01T00:00:00Z", "")
	require.Equal(t, "2040-01-01T00:00:00Z", b.do(http.MethodGet, "/jobs/"+id, "")["resume_at"])
}

// Jobs that are chosen are cancelled in the background, as far as the token reaches.
func TestCancelManyJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, tenant := range []string{"acme", "globex"} {
		b.do(http.MethodPost, "/jobs", `{"tenant":"`+tenant+`","kind":"mail.send","args":{},"delay_ms":60000,"tags":["red"],"queue":"slow"}`)
		b.do(http.MethodPost, "/jobs", `{"tenant":"`+tenant+`","kind":"mail.send","args":{}}`)
	}
	for path, body := range map[string]string{"/jobs/suspend": `{"kind":"mail.send","state":"dead"}`, "/jobs/resume": `{"kind":"mail.send","state":"suspended"}`, "/jobs/retry": `{"kind":"mail.send"}`,
		"/jobs/suspend?state=retrying": `{"kind":"mail.send"}`, "/dead-letters/delete": `{"kind":"mail.send","queue":"slow"}`, "/jobs/cancel?state=retrying": `{"kind":"mail.send"}`} {
		code, out := b.ask(admin, http.MethodPost, path, body)
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s %s: a filter that it does not take: %v", path, body, out)
	}
	for _, body := range []string{`{}`, `{"all":true,"kind":"k"}`, `{"state":"dead"}`, `{"tags":["red"]}`} {
		code, out := b.ask(admin, http.MethodPost, "/jobs/cancel", body)
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s: %v", body, out)
	}
	acme := access.Grant{Name: "acme's", Role: access.Operate, Tenants: []tenancy.ID{"acme"}}
	code, out := b.ask(acme, http.MethodPost, "/jobs/cancel", `{"tenant":"globex","kind":"mail.send"}`)
	require.Equal(t, http.StatusNotFound, code, out)
	code, out = b.ask(acme, http.MethodPost, "/jobs/cancel", `{"state":"scheduled","tag":"red","queue":"slow","kind":"mail.send","per_second":100}`)
	require.Equal(t, http.StatusOK, code, out)
	require.Len(t, out["operations"], 1)
	require.Equal(t, false, out["incomplete"])
	id := out["operations"].([]any)[0].(string)
	parts := items(b.do(http.MethodGet, "/operations/"+id, ""))
	require.NotEmpty(t, parts)
	for _, p := range parts {
		require.Equal(t, []any{"cancel", "running", "acme", "mail.send", "slow", "scheduled", "red", "acme's"},
			[]any{p["action"], p["state"], p["tenant"], p["kind"], p["queue"], p["job_state"], p["tag"], p["asked_by"]})
		require.NotContains(t, p, "died_before")
		require.Contains(t, p, "made_before")
	}
	_, out = b.ask(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}}, http.MethodGet, "/operations", "")
	require.Empty(t, out["items"])
	audit := items(b.do(http.MethodGet, "/audit?action=jobs.cancel", ""))
	require.NotEmpty(t, audit)
	require.Equal(t, "operation "+id, audit[0]["subject"])
	b.do(http.MethodPost, "/operations/"+id+"/cancel", "")
	require.Equal(t, "cancelled", items(b.do(http.MethodGet, "/operations/"+id, ""))[0]["state"])
}

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead("acme", 3)
	b.dead("globex", 2)
	groups := items(b.do(http.MethodGet, "/dead-letters/groups", ""))
	require.Len(t, groups, 1)
	require.EqualValues(t, 5, groups[0]["count"])
	require.Equal(t, "discard: no such address: #", groups[0]["error"])
	code, out := b.ask(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}}, http.MethodGet, "/dead-letters/groups", "")
	require.Equal(t, http.StatusOK, code)
	require.EqualValues(t, 2, items(out)[0]["count"])

	sample := groups[0]["sample"].(string)
	out = b.do(http.MethodGet, "/jobs/"+sample, "")
	require.EqualValues(t, 3, out["reports"].([]any)[0].(map[string]any)["done"])
	require.Len(t, out["errors"], 1)
	b.do(http.MethodDelete, "/dead-letters/"+sample, "")
	code, _ = b.ask(admin, http.MethodGet, "/jobs/"+sample, "")
	require.Equal(t, http.StatusNotFound, code)
	waiting := b.enqueue("acme")
	code, out = b.ask(admin, http.MethodDelete, "/dead-letters/"+waiting, "")
	require.Equal(t, http.StatusConflict, code)
	require.Contains(t, out["detail"], "no dead letter")

	code, _ = b.ask(admin, http.MethodPost, "/dead-letters/retry", `{}`)
	require.Equal(t, http.StatusUnprocessableEntity, code)
	begun := b.do(http.MethodPost, "/dead-letters/retry", `{"group":"`+groups[0]["group"].(string)+`","per_second":0.5}`)
	id := begun["operations"].([]any)[0].(string)
	parts := items(b.do(http.MethodGet, "/operations/"+id, ""))
	require.Len(t, parts, 2)
	require.Equal(t, "test", parts[0]["asked_by"])
	require.Equal(t, "running", parts[0]["state"])
	require.Contains(t, parts[0], "died_before")
	require.NotContains(t, parts[0], "made_before")
	require.Len(t, items(b.do(http.MethodGet, "/operations", "")), 2)
	some := access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"acme"}}
	_, out = b.ask(some, http.MethodGet, "/operations", "")
	require.Empty(t, out["items"])
	for _, path := range []string{"GET /operations/" + id, "POST /operations/" + id + "/cancel"} {
		method, path, _ := strings.Cut(path, " ")
		code, _ := b.ask(some, method, path, "")
		require.Equal(t, http.StatusNotFound, code, path)
	}
	b.do(http.MethodPost, "/operations/"+id+"/cancel", "")
	require.Equal(t, "cancelled", items(b.do(http.MethodGet, "/operations/"+id, ""))[0]["state"])
	retried := b.do(http.MethodPost, "/dead-letters/retry", `{"tenant":"globex","now":true,"before":"2000-01-01T00:00:00Z"}`)
	require.Empty(t, retried["operations"])
	require.Equal(t, map[string]any{"done": 0.0, "key_taken": 0.0, "left": 0.0, "complete": true, "before": "2000-01-01T00:00:00Z"}, retried["now"])
	done := b.do(http.MethodPost, "/dead-letters/retry", `{"tenant":"globex","now":true}`)["now"].(map[string]any)
	require.Equal(t, []any{1.0, true}, []any{done["done"], done["complete"]}, "without a node")
	_, out = b.ask(some, http.MethodPost, "/dead-letters/delete", `{"all":true}`)
	require.Len(t, out["operations"], 1)
	require.Equal(t, "acme", items(b.do(http.MethodGet, "/operations/"+out["operations"].([]any)[0].(string), ""))[0]["tenant"])
}

func TestSchedules(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const one, all = "/tenants/acme/schedules/nightly%2Freport", "/schedules/hourly"
	out := b.do(http.MethodPut, one, `{"kind":"mail.send","args":{"n":1},"rule":"0 7 * * 1-5","time_zone":"Europe/Amsterdam","missed":"skip","wait":true}`)
	require.NotEmpty(t, out["next"])
	b.do(http.MethodPut, all, `{"kind":"mail.send","args":{},"rule":"PT1H","jitter_ms":60000}`)
	out = b.do(http.MethodGet, one, "")
	require.Equal(t, "nightly/report", out["name"])
	require.Equal(t, "active", out["state"])
	require.Equal(t, "skip", out["missed"])
	require.Contains(t, out, "args")
	_, out = b.ask(access.Grant{Role: access.Read}, http.MethodGet, one, "")
	require.NotContains(t, out, "args")
	require.Equal(t, true, b.do(http.MethodGet, all, "")["every_tenant"])
	require.Len(t, items(b.do(http.MethodGet, "/schedules?every_tenant=true", "")), 2, "one in each pool")
	require.Len(t, items(b.do(http.MethodGet, "/schedules?tenant=acme", "")), 1)
	for _, path := range []string{one, all} {
		b.do(http.MethodPost, path+"/pause", "")
		require.Equal(t, "paused", b.do(http.MethodGet, path, "")["state"])
		b.do(http.MethodPost, path+"/resume", "")
	}
	id := b.do(http.MethodPost, one+"/run", "")["job"].(string)
	require.Equal(t, "waiting", b.do(http.MethodGet, "/jobs/"+id, "")["state"])
	for body, want := range map[string]string{
		`{"kind":"mail.send","args":{},"rule":"sometimes"}`:                 "sometimes",
		`{"kind":"mail.send","args":{},"rule":"PT1H","missed":"never"}`:     "missed",
		`{"kind":"mail.send","args":{},"rule":"PT1H","jitter_ms":1000}`:     "jitter",
		`{"kind":"mail.send","args":{},"rule":"PT1H","zone":"Europe/Oslo"}`: "unexpected property",
	} {
		code, out := b.ask(admin, http.MethodPut, one, body)
		require.Equal(t, http.StatusUnprocessableEntity, code, body)
		require.Contains(t, fmt.Sprint(out), want)
	}
	some := access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"globex"}}
	for _, r := range [][2]string{{http.MethodGet, one}, {http.MethodDelete, one}, {http.MethodPost, one + "/run"}, {http.MethodPost, one + "/pause"}, {http.MethodDelete, all}, {http.MethodPost, all + "/pause"}} {
		code, out := b.ask(some, r[0], r[1], "")
		require.Equal(t, http.StatusNotFound, code, "%v: %v", r, out)
	}
	code, _ := b.ask(some, http.MethodPut, all, `{"kind":"mail.send","args":{},"rule":"PT1H"}`)
	require.Equal(t, http.StatusNotFound, code)
	_, out = b.ask(some, http.MethodGet, "/schedules", "")
	require.Len(t, items(out), 1, "those for every tenant concern them")
	require.Empty(t, items(out)[0]["pool"], "and not which pools there are")
	for _, path := range []string{one, all} {
		b.do(http.MethodDelete, path, "")
		code, _ := b.ask(admin, http.MethodDelete, path, "")
		require.Equal(t, http.StatusNotFound, code)
		code, _ = b.ask(admin, http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, code)
	}

	const left = "/tenants/left/schedules/nightly" // no routing rule knows the tenant any more
	b.env.Tenant(t, "globex").Exec("INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('left', 'moved', 'pool-1')")
	for _, origin := range []string{"set", "config", "every"} {
		b.env.Tenant(t, "acme").Exec("INSERT INTO tenure.schedule (tenant_id, name, kind, queue, spec, next_at, origin) VALUES ('left', 'nightly', 'k', 'q', 'PT1H', now(), $1)", origin)
		b.do(http.MethodPost, left+"/pause", "")
		require.Equal(t, "paused", b.do(http.MethodGet, left, "")["state"])
		for _, action := range []string{"/resume", "/run"} {
			code, _ := b.ask(admin, http.MethodPost, left+action, "")
			require.Equal(t, http.StatusNotFound, code, action)
		}
		b.do(http.MethodDelete, left, "")
		code, _ := b.ask(admin, http.MethodDelete, left, "")
		require.Equal(t, http.StatusNotFound, code)
	}
}

func TestLimitsAndSettings(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.do(http.MethodPut, "/limits", `{"tenant":"acme","kind":"mail.send","max_running":3,"rate":10,"per_ms":60000,"burst":2}`)
	b.do(http.MethodPut, "/limits", `{"every_tenant":true,"queue":"mail","max_running":9}`)
	all := items(b.do(http.MethodGet, "/limits", ""))
	require.Len(t, all, 3)
	require.Equal(t, true, all[0]["every_tenant"])
	require.EqualValues(t, 60000, all[2]["per_ms"])
	some := access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"globex"}}
	_, out := b.ask(some, http.MethodGet, "/limits", "")
	require.Len(t, out["items"], 1, "those for every tenant concern them, in their pool")
	for body, code := range map[string]int{`{"tenant":"acme","max_running":1}`: 404, `{"every_tenant":true,"max_running":1}`: 404, `{"max_running":1}`: 422, `{"tenant":"globex"}`: 422} {
		got, out := b.ask(some, http.MethodPut, "/limits", body)
		require.Equal(t, code, got, "%s: %v", body, out)
	}
	b.do(http.MethodDelete, "/limits?tenant=acme&kind=mail.send", "")
	b.do(http.MethodDelete, "/limits?every_tenant=true&queue=mail", "")
	require.Empty(t, items(b.do(http.MethodGet, "/limits", "")))
	b.do(http.MethodPut, "/limits", `{"tenant":"acme","key":"account-7","rate":10}`)
	b.do(http.MethodPut, "/limits", `{"every_tenant":true,"each_key":true,"rate":5}`)
	all = items(b.do(http.MethodGet, "/limits", ""))
	require.NotEmpty(t, all)
	for _, l := range all {
		require.True(t, l["each_key"] == true || l["key"] == "account-7", l)
	}
	b.do(http.MethodDelete, "/limits?tenant=acme&key=account-7", "")
	b.do(http.MethodDelete, "/limits?every_tenant=true&each_key=true", "")
	require.Empty(t, items(b.do(http.MethodGet, "/limits", "")))

	out = b.do(http.MethodGet, "/tenants/acme", "")
	require.EqualValues(t, 1, out["weight"])
	require.EqualValues(t, 0, out["max_running"])
	b.do(http.MethodPut, "/tenants/acme/limits", `{"max_running":5,"max_waiting":100}`)
	b.do(http.MethodPut, "/tenants/acme/weight", `{"weight":3}`)
	b.do(http.MethodPost, "/tenants/acme/freeze", "")
	out = b.do(http.MethodGet, "/tenants/acme", "")
	require.Equal(t, map[string]any{"tenant": "acme", "pool": "pool-1", "state": "frozen", "weight": 3.0, "max_running": 5.0, "max_waiting": 100.0}, out)
	code, _ := b.ask(some, http.MethodGet, "/tenants/acme", "")
	require.Equal(t, http.StatusNotFound, code)
}

func TestBatches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	added, err := b.env.Client().EnqueueBatch(tenancy.For(t.Context(), "acme"), tenure.Batch{Then: mail{}, Jobs: []tenure.Entry{{Args: mail{}}, {Args: mail{}}}})
	require.NoError(t, err)
	id := added.ID.String()
	b.do(http.MethodPost, "/jobs", `{"tenant":"acme","kind":"mail.send","args":{},"batch":"`+id+`"}`)
	out := b.do(http.MethodGet, "/batches/"+id, "")
	require.EqualValues(t, 3, out["unfinished"])
	require.Len(t, out["open"], 3)
	require.Len(t, items(b.do(http.MethodGet, "/batches?tenant=acme", "")), 1)
	some := access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"globex"}}
	_, out = b.ask(some, http.MethodGet, "/batches", "")
	require.Empty(t, out["items"])
	code, _ := b.ask(some, http.MethodPost, "/batches/"+id+"/cancel", "")
	require.Equal(t, http.StatusNotFound, code)
	require.EqualValues(t, 3, b.do(http.MethodPost, "/batches/"+id+"/cancel", "")["jobs"])
	require.Equal(t, "cancelled", b.do(http.MethodGet, "/jobs/"+id, "")["state"])
}

// A batch is added by one request, once for each idempotency key, or not at all; its completion job starts when
// the others have ended.
func TestEnqueueABatch(t *testing.T) {
	t.Parallel()
	b := setup(t)
	add := func() map[string]any {
		return b.do(http.MethodPost, "/batches", `{"tenant":"acme","then":{"kind":"mail.send","args":{},"on_failure":"run","priority":3},
			"jobs":[{"kind":"mail.send","args":{}},{"kind":"mail.broken","args":{},"max_attempts":1},{"kind":"mail.send","args":{},"unique_key":"u"},{"kind":"mail.send","args":{},"unique_key":"u"}]}`,
			"Idempotency-Key", "month:1")
	}
	added := add()
	require.Equal(t, false, added["duplicate"])
	id := added["id"].(string)
	batch := b.do(http.MethodGet, "/batches/"+id, "")
	require.Equal(t, "run", batch["on_failure"])
	require.EqualValues(t, 3, batch["unfinished"], "one of the two with the key")
	again := add()
	require.Equal(t, true, again["duplicate"])
	require.Equal(t, id, again["id"])
	require.Len(t, items(b.do(http.MethodGet, "/jobs?tenant=acme", "")), 4, "nothing was added again")
	require.Equal(t, "awaiting", b.do(http.MethodGet, "/jobs/"+id, "")["state"])

	for body, want := range map[string]string{
		`{"tenant":"acme","then":{"kind":"k","args":{}},"jobs":[{"kind":"k","args":{},"batch":"1"}]}`:                            "leave that out",
		`{"tenant":"acme","then":{"kind":"k","args":{}},"jobs":[{"kind":"k","args":{},"on_failure":"run"}]}`:                     "job 0: on_failure",
		`{"tenant":"acme","then":{"kind":"k","args":{},"delay_ms":1},"jobs":[]}`:                                                 "the completion job",
		`{"tenant":"acme","then":{"kind":"k","args":{},"after":["x"]},"jobs":[]}`:                                                "then.after[0]",
		`{"tenant":"acme","then":{"kind":"k","args":{}},"jobs":[{"kind":"k","args":{}},{"kind":"no kind","args":{}}]}`:           "job 1",
		`{"tenant":"acme","then":{"kind":"k","args":{},"on_failure":"hope"},"jobs":[]}`:                                          "expected value to be one of",
		`{"tenant":"acme","then":{"kind":"k","args":{}},"jobs":[{"tenant":"globex","kind":"k","args":{}}]}`:                      "unexpected property",
		`{"tenant":"","then":{"kind":"k","args":{}},"jobs":[]}`:                                                                  "length",
		`{"tenant":"acme","then":{"kind":"k","args":{},"unique_key":"k"},"jobs":[{"kind":"k","args":{}},{"kind":"k","args":1}]}`: "not both",
	} {
		code, out := b.ask(admin, http.MethodPost, "/batches", body, "Idempotency-Key", "other")
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s: %v", body, out)
		require.Contains(t, fmt.Sprint(out), want)
	}
	code, out := b.ask(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"globex"}}, http.MethodPost, "/batches", `{"tenant":"acme","then":{"kind":"k","args":{}},"jobs":[]}`)
	require.Equal(t, http.StatusNotFound, code, out)
	require.Len(t, items(b.do(http.MethodGet, "/jobs", "")), 4, "what was refused has changed nothing")
}

// Every batch of both pools is on one page, newest first.
func TestBatchesComeInPages(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var want []string
	for i := range 9 {
		out := b.do(http.MethodPost, "/batches", `{"tenant":"`+[]string{"acme", "globex"}[i%2]+`","then":{"kind":"k","args":{}},"jobs":[{"kind":"k","args":{}}]}`)
		want = append([]string{out["id"].(string)}, want...)
	}
	for name, g := range map[string]access.Grant{"all": admin, "both tenants": {Role: access.Read, Tenants: []tenancy.ID{"acme", "globex"}}} {
		require.Equal(t, want, b.pages(g, "/batches?limit=2"), name)
	}
	code, out := b.ask(admin, http.MethodGet, "/batches?after=x", "")
	require.Equal(t, http.StatusUnprocessableEntity, code)
	require.Contains(t, out["detail"], "no place in a list of batches")
}

// What cannot be is answered with a problem that says so, and changes nothing.
func TestProblems(t *testing.T) {
	t.Parallel()
	b := setup(t)
	long := `{"tenant":"acme","kind":"k","args":"` + strings.Repeat("x", 1<<20) + `"}`
	for _, r := range []struct {
		method, path, body string
		code               int
		says               string
	}{
		{http.MethodGet, "/nowhere", "", 404, "/api/openapi.json"},
		{http.MethodDelete, "/jobs", "", 405, "GET and POST are allowed"},
		{http.MethodGet, "/jobs?colour=red", "", 422, "colour"},
		{http.MethodGet, "/jobs?state=lost", "", 422, "waiting claimed running"},
		{http.MethodGet, "/jobs?pool=nowhere", "", 404, "not configured"},
		{http.MethodGet, "/jobs?limit=100000", "", 422, "limit"},
		{http.MethodGet, "/jobs/x", "", 422, "id"},
		{http.MethodPost, "/jobs", long, 413, "too large"},
		{http.MethodPost, "/jobs", `{"tenant":`, 400, ""},
		{http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{},"colour":"red"}`, 422, "unexpected property"},
		{http.MethodPost, "/jobs", `{"tenant":"nobody","kind":"k","args":{}}`, 404, "no routing rule"},
		{http.MethodGet, "/operations/x", "", 422, "UUID"},
	} {
		code, out := b.ask(admin, r.method, r.path, r.body)
		require.Equal(t, r.code, code, "%s %s: %v", r.method, r.path, out)
		require.EqualValues(t, r.code, out["status"], "%s %s: %v", r.method, r.path, out)
		require.Contains(t, fmt.Sprint(out), r.says)
	}
	require.Empty(t, items(b.do(http.MethodGet, "/jobs", "")))
}

// A question with the version that is known is answered as soon as there is another one.
func TestWaitForAJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	known := b.do(http.MethodGet, "/jobs/"+id, "")["version"].(string)
	require.Equal(t, "waiting", b.do(http.MethodGet, "/jobs/"+id+"?wait=1&known="+known, "")["state"])
	changed := make(chan map[string]any, 1)
	go func() {
		_, out := b.ask(admin, http.MethodGet, "/jobs/"+id+"?wait=20&known="+known, "")
		changed <- out
	}()
	b.do(http.MethodPost, "/jobs/"+id+"/suspend", "")
	require.Equal(t, "suspended", (<-changed)["state"])

	// Meanwhile it may have become another tenant's.
	known = b.do(http.MethodGet, "/jobs/"+id, "")["version"].(string)
	acme := access.Grant{Role: access.Read, Tenants: []tenancy.ID{"acme"}}
	go func() {
		_, out := b.ask(acme, http.MethodGet, "/jobs/"+id+"?wait=20&known="+known, "")
		changed <- out
	}()
	b.env.Tenant(t, "acme").Exec("UPDATE tenure.suspended_job SET tenant_id = 'globex'")
	require.EqualValues(t, http.StatusNotFound, (<-changed)["status"])
}

// Why a job or a tenant's work waits may be another one's secret: who may not see all reads the reason alone.
func TestWhyNamesNobodyElse(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.env.Tenant(t, "acme").Exec("INSERT INTO tenure.job (id, tenant_id, queue, kind, payload) VALUES (4711, 'globex', 'default', 'mail.send', '{}')") // who lives elsewhere
	why := func(g access.Grant) (reason, text, advice any) {
		code, out := b.ask(g, http.MethodGet, "/jobs/4711/why", "")
		require.Equal(t, http.StatusOK, code)
		return out["reason"], out["text"], out["advice"]
	}
	reason, text, advice := why(admin)
	require.Equal(t, "tenant unknown", reason)
	require.Contains(t, text, "pool-2")
	require.Contains(t, advice, "pool-2")
	reason, text, advice = why(access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}})
	require.Equal(t, "tenant unknown", reason)
	require.NotContains(t, text, "pool-")
	require.Empty(t, advice)
}

// serve serves the API as a node does, to a caller who may do everything.
func (b *bundle) serve() string {
	s := httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), admin)))
	}))
	s.Config.ReadTimeout, s.Config.WriteTimeout = time.Second, time.Second
	s.Start()
	b.t.Cleanup(s.Close)
	return s.URL + "/api/v1"
}

// follow opens a stream, and returns its events; it is closed when the stream ends.
func (b *bundle) follow(url, known string) (int, <-chan map[string]any) {
	b.t.Helper()
	r, err := http.NewRequestWithContext(b.t.Context(), http.MethodGet, url, nil)
	require.NoError(b.t, err)
	r.Header.Set("Last-Event-ID", known)
	answer, err := http.DefaultClient.Do(r)
	require.NoError(b.t, err)
	events := make(chan map[string]any)
	go func() {
		defer close(events)
		defer answer.Body.Close()
		for lines := bufio.NewScanner(answer.Body); lines.Scan(); {
			if data, ok := strings.CutPrefix(lines.Text(), "data: "); ok {
				var out map[string]any
				if json.Unmarshal([]byte(data), &out) == nil {
					events <- out
				}
			}
		}
	}()
	return answer.StatusCode, events
}

// A stream tells a job's life, for longer than other requests may take, and ends with it.
func TestJobEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	url := b.serve()
	added, err := b.env.Client().Enqueue(tenancy.For(t.Context(), "acme"), broken{})
	require.NoError(t, err)
	code, events := b.follow(url+"/jobs/"+added.ID.String()+"/events", "")
	require.Equal(t, http.StatusOK, code)
	require.Equal(t, "waiting", (<-events)["state"])
	b.do(http.MethodPost, "/jobs/"+added.ID.String()+"/suspend", "")
	require.Equal(t, "suspended", (<-events)["state"])
	select {
	case e, open := <-events:
		t.Fatal("nothing had changed", e, open)
	case <-time.After(3 * time.Second): // as the server's time limits are
	}
	b.do(http.MethodPost, "/jobs/"+added.ID.String()+"/resume", "")
	require.Equal(t, "waiting", (<-events)["state"])
	b.env.Drain(t)
	var last map[string]any
	for e := range events {
		last = e
	}
	require.Equal(t, "dead", last["state"])
	require.Contains(t, last["error"], "no such address")
	code, _ = b.follow(url+"/jobs/"+added.ID.String()+"/events", last["version"].(string))
	require.Equal(t, http.StatusNoContent, code, "there is nothing to come back for")
	code, _ = b.follow(url+"/jobs/4711/events", "")
	require.Equal(t, http.StatusNotFound, code)
}

func TestLockEvents(t *testing.T) {
	t.Parallel()
	b := setup(t)
	code, events := b.follow(b.serve()+"/locks/events", "")
	require.Equal(t, http.StatusOK, code)
	until := func(shows func(locks []map[string]any) bool) {
		for locks := items(<-events); !shows(locks); locks = items(<-events) {
			require.Len(t, locks, 2)
			require.Equal(t, "pool-1", locks[0]["pool"])
		}
	}
	until(func(locks []map[string]any) bool { return locks[0]["holder"] != nil })
	b.do(http.MethodPost, "/pools/pool-2/freeze", "")
	until(func(locks []map[string]any) bool { return locks[1]["frozen"] == true })
	known := b.do(http.MethodGet, "/locks", "")["version"].(string)
	require.Len(t, items(b.do(http.MethodGet, "/locks?wait=1&known="+known, "")), 2)
}

// No more requests of one caller wait than may; when one ends there is room for another.
func TestFewRequestsWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	known := b.do(http.MethodGet, "/jobs/"+id, "")["version"].(string)
	var ends []context.CancelFunc
	ask := func() (int, http.Header) {
		ctx, end := context.WithCancel(access.With(t.Context(), admin))
		ends = append(ends, end)
		w := &begun{header: http.Header{}, code: make(chan int, 1)}
		r := httptest.NewRequest(http.MethodGet, "/api/v1/jobs/"+id+"/events", nil).WithContext(ctx)
		r.Header.Set("Last-Event-ID", known)
		go b.handler.ServeHTTP(w, r)
		return <-w.code, w.header
	}
	for range 32 {
		code, _ := ask()
		require.Equal(t, http.StatusOK, code)
	}
	code, header := ask()
	require.Equal(t, http.StatusTooManyRequests, code)
	require.NotEmpty(t, header.Get("Retry-After"))
	code, _ = b.ask(access.Grant{Name: "another", Role: access.Read}, http.MethodGet, "/jobs/"+id+"?wait=1&known="+known, "")
	require.NotEqual(t, http.StatusTooManyRequests, code, "others may")
	ends[0]()
	require.Eventually(t, func() bool { code, _ := ask(); return code == http.StatusOK }, 10*time.Second, 20*time.Millisecond)
	for _, end := range ends {
		end()
	}
}

// begun is an answer of which the status is told as soon as it is there.
type begun struct {
	header http.Header
	code   chan int
	told   bool
}

func (b *begun) Header() http.Header { return b.header }

func (b *begun) WriteHeader(code int) {
	if !b.told {
		b.told = true
		b.code <- code
	}
}

func (b *begun) Write(p []byte) (int, error) {
	b.WriteHeader(http.StatusOK)
	return len(p), nil
}

func (b *begun) Flush() {}

func TestQueuesAndPools(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue("acme")
	b.do(http.MethodPost, "/jobs", `{"tenant":"globex","kind":"mail.send","args":{},"queue":"mail"}`)
	of := func(queue string) []map[string]any {
		return slices.DeleteFunc(items(b.do(http.MethodGet, "/queues", "")), func(q map[string]any) bool { return q["queue"] != queue })
	}
	require.Len(t, of("mail"), 1)
	require.EqualValues(t, 1, of("mail")[0]["waiting"])
	b.do(http.MethodPost, "/queues/mial/freeze", "")
	require.Len(t, of("mial"), 2, "one in each pool")
	require.NotNil(t, of("mial")[1]["frozen_since"])
	some := access.Grant{Role: access.Admin, Tenants: []tenancy.ID{"globex"}}
	b.env.Tenant(t, "globex").Exec("INSERT INTO tenure.kind_queue VALUES ('merger', 'mail')")
	require.Equal(t, []any{"merger"}, of("mail")[0]["kinds"])
	_, out := b.ask(some, http.MethodGet, "/queues", "")
	require.Len(t, out["items"], 1)
	require.Empty(t, items(out)[0]["kinds"], "they are those of all tenants")
	for _, path := range []string{"/queues?tenant=acme", "/locks/changes", "/pools/pool-1/claims", "/doctor", "/kinds/frozen"} {
		code, _ := b.ask(some, http.MethodGet, path, "")
		require.Equal(t, http.StatusNotFound, code, path)
	}
	b.do(http.MethodPost, "/pools/pool-2/freeze", "")
	pools := items(b.do(http.MethodGet, "/pools", ""))
	require.Equal(t, []any{"up", "frozen"}, []any{pools[0]["state"], pools[1]["state"]})
	changes := items(b.do(http.MethodGet, "/locks/changes?pool=pool-2", ""))
	require.Equal(t, "frozen", changes[0]["change"])
	require.Empty(t, items(b.do(http.MethodGet, "/pools/pool-2/claims", "")))
	out = b.do(http.MethodGet, "/doctor", "")
	require.Len(t, out["examined"], 2)
	_, out = b.ask(access.Grant{Role: access.Admin, Pools: []string{"pool-1"}}, http.MethodGet, "/doctor", "")
	require.Equal(t, []any{"pool-1"}, out["examined"])
}

func TestMoveATenant(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	move := func(g access.Grant, body string) (int, map[string]any) {
		return b.ask(g, http.MethodPost, "/tenants/acme/move", body)
	}
	code, out := move(access.Grant{Role: access.Admin, Pools: []string{"pool-1"}}, `{"to":"pool-2"}`)
	require.Equal(t, http.StatusNotFound, code, out)
	code, out = move(admin, `{"to":"pool-3"}`)
	require.Equal(t, http.StatusNotFound, code, out)
	code, out = move(admin, `{"to":"pool-2","hold":true}`)
	require.Equal(t, http.StatusOK, code, out)
	require.Equal(t, true, out["held"])
	require.Equal(t, "held", b.do(http.MethodGet, "/tenants/acme", "")["state"])
	code, out = move(admin, `{"to":"pool-1"}`)
	require.Equal(t, http.StatusOK, code, out)
	require.Equal(t, true, out["done"])
	require.Equal(t, "waiting", b.do(http.MethodGet, "/jobs/"+id, "")["state"])
}

// Everything that changes something is noted, with the token that it was done with, and seen by who sees
// what it was done to.
func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.dead("globex", 1)
	id := b.enqueue("acme")
	added, err := b.env.Client().EnqueueBatch(tenancy.For(t.Context(), "acme"), tenure.Batch{Then: mail{}, Jobs: []tenure.Entry{{Args: mail{}}}})
	require.NoError(t, err)
	var want []string
	for _, r := range [][4]string{
		{"job.suspend", "POST", "/jobs/" + id + "/suspend", ""},
		{"job.resume", "POST", "/jobs/" + id + "/resume", ""},
		{"job.change", "PATCH", "/jobs/" + id, `{"due_at":"2040-01-01T00:00:00Z"}`},
		{"job.retry", "POST", "/jobs/" + id + "/retry", ""},
		{"job.cancel", "POST", "/jobs/" + id + "/cancel", ""},
		{"jobs.suspend", "POST", "/jobs/suspend", `{"tenant":"acme","pool":"pool-1"}`},
		{"jobs.resume", "POST", "/jobs/resume", `{"tenant":"acme","pool":"pool-1"}`},
		{"dead_letters.retry", "POST", "/dead-letters/retry", `{"pool":"pool-2"}`},
		{"tenant.freeze", "POST", "/tenants/acme/freeze", ""},
		{"tenant.thaw", "POST", "/tenants/acme/thaw", ""},
		{"tenant.limit", "PUT", "/tenants/acme/limits", `{"max_running":5}`},
		{"tenant.limit", "PUT", "/tenants/acme/limits", `{"max_waiting":5}`},
		{"tenant.weight", "PUT", "/tenants/acme/weight", `{"weight":5}`},
		{"pool.freeze", "POST", "/pools/pool-2/freeze", ""},
		{"pool.thaw", "POST", "/pools/pool-2/thaw", ""},
		{"limit.set", "PUT", "/limits", `{"tenant":"acme","kind":"k","max_running":5}`},
		{"limit.delete", "DELETE", "/limits?tenant=acme&kind=k", ""},
		{"schedule.set", "PUT", "/tenants/acme/schedules/s", `{"kind":"mail.send","args":{},"rule":"PT1H"}`},
		{"schedule.pause", "POST", "/tenants/acme/schedules/s/pause", ""},
		{"schedule.resume", "POST", "/tenants/acme/schedules/s/resume", ""},
		{"schedule.run", "POST", "/tenants/acme/schedules/s/run", ""},
		{"schedule.delete", "DELETE", "/tenants/acme/schedules/s", ""},
	} {
		b.do(r[1], r[2], r[3])
		want = append([]string{r[0]}, want...)
		if strings.HasPrefix(r[0], "jobs.") { // what became of them is noted, too
			want = append([]string{r[0]}, want...)
		}
	}
	actions := func(g access.Grant, query string) (got []string) {
		code, out := b.ask(g, http.MethodGet, "/audit"+query, "")
		require.Equal(t, http.StatusOK, code, out)
		for _, e := range items(out) {
			require.Equal(t, "test", e["who"])
			got = append(got, e["action"].(string))
		}
		return got
	}
	require.Equal(t, want, actions(admin, ""))
	globex := access.Grant{Role: access.Read, Tenants: []tenancy.ID{"globex"}}
	require.Empty(t, actions(globex, ""))
	require.Len(t, actions(access.Grant{Role: access.Read, Pools: []string{"pool-2"}}, ""), 3)
	require.Equal(t, []string{"job.cancel", "job.retry", "job.change", "job.resume", "job.suspend"}, actions(admin, "?job="+id))
	out := b.do(http.MethodGet, "/audit?limit=20", "")
	require.Equal(t, want[20:], actions(admin, "?limit=20&after="+out["next"].(string)))
	by := b.do(http.MethodGet, "/jobs/"+id, "")["cancelled_by"].(map[string]any)
	require.Equal(t, []any{"test", "job.cancel"}, []any{by["who"], by["action"]})
	b.do(http.MethodPost, "/batches/"+added.ID.String()+"/cancel", "")
	require.Equal(t, "batch.cancel", actions(admin, "?action=batch")[0])
	operation := items(b.do(http.MethodGet, "/operations", ""))[0]["id"].(string)
	b.do(http.MethodPost, "/operations/"+operation+"/cancel", "")
	require.Equal(t, []string{"dead_letters.retry", "operation.cancel"}, actions(admin, "?pool=pool-2")[:2], "what it had done by then is noted, too")
	b.do(http.MethodDelete, "/dead-letters/"+items(b.do(http.MethodGet, "/jobs?state=dead", ""))[0]["id"].(string), "")
	require.Equal(t, "job.delete", actions(globex, "")[0])
	for _, bad := range []string{"after=x", "action=x"} {
		code, _ := b.ask(admin, http.MethodGet, "/audit?"+bad, "")
		require.Equal(t, http.StatusUnprocessableEntity, code, bad)
	}

	// Why a job waits names who froze that, to those who may see it here.
	waits, err := b.env.Client().Enqueue(tenancy.For(t.Context(), "globex"), mail{})
	require.NoError(t, err)
	b.do(http.MethodPost, "/kinds/mail.send/freeze", "")
	for _, path := range []string{"/jobs/" + waits.ID.String() + "/why", "/tenants/globex/why"} {
		frozen := b.do(http.MethodGet, path, "")["frozen"].(map[string]any)
		require.Equal(t, []any{"test", "kind.freeze"}, []any{frozen["who"], frozen["action"]})
		code, out := b.ask(globex, http.MethodGet, path, "")
		require.Equal(t, http.StatusOK, code, out)
		require.Contains(t, out["text"], "is frozen")
		require.NotContains(t, out, "frozen")
	}
}
