package api_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// What could be taken for something else, or kept by no database, is refused: wherever it stands, in the same way, and
// without an answer that is as long as what was sent.
func TestARequestIsReadAsItIs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	lock := `{"job":"` + id + `","turn":1,"worker":"w"`
	long := strings.Repeat("x", 900<<10)
	type request struct {
		method, path, body string
		header             []string
	}
	for _, r := range []request{
		// text that no database keeps
		{method: http.MethodGet, path: "/schedules/%00"}, {method: http.MethodGet, path: "/schedules/%ff"}, {method: http.MethodDelete, path: "/tenants/acme/schedules/a%00b"},
		{method: http.MethodGet, path: "/tenants/%00"}, {method: http.MethodGet, path: "/tenants/%ff/why"}, {method: http.MethodPost, path: "/pools/%00/freeze"}, {method: http.MethodPost, path: "/queues/%00/freeze"}, {method: http.MethodPost, path: "/kinds/%ff/thaw"},
		{method: http.MethodGet, path: "/jobs?kind=%00"}, {method: http.MethodGet, path: "/jobs?tag=a&tag=%ff"}, {method: http.MethodGet, path: "/jobs?correlation_id=%00"}, {method: http.MethodGet, path: "/audit?who=%00"},
		{method: http.MethodGet, path: "/dead-letters/groups?error=%00"}, {method: http.MethodGet, path: "/schedules?name=%ff"}, {method: http.MethodGet, path: "/queues?tenant=%00"}, {method: http.MethodGet, path: "/batches?pool=%00"}, {method: http.MethodDelete, path: "/limits?tenant=acme&kind=%00"},
		{method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","kind":"k","args":{"a":"\u0000"}}`}, {method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","kind":"k","args":{},"meta":{"a":"\u0000"}}`},
		{method: http.MethodPost, path: "/jobs", body: "{\"tenant\":\"acme\",\"kind\":\"k\",\"args\":{\"a\":\"\xff\"}}"}, {method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","kind":"k","args":{},"correlation_id":"\u0000"}`},
		{method: http.MethodPost, path: "/external/fail", body: lock + ",\"error\":\"\xff\"}"},
		{method: http.MethodPost, path: "/external/error", body: lock + `,"code":"\u0000","message":"m"}`}, {method: http.MethodPost, path: "/external/complete", body: lock + `,"output":"\u0000"}`},
		{method: http.MethodPost, path: "/jobs/cancel", body: `{"tag":"\u0000"}`}, {method: http.MethodPost, path: "/dead-letters/delete", body: `{"error":"\u0000"}`}, {method: http.MethodPut, path: "/limits", body: `{"tenant":"acme","kind":"\u0000","max_running":1}`},
		{method: http.MethodPut, path: "/schedules/daily", body: `{"kind":"k","args":{},"rule":"PT1H","time_zone":"\u0000"}`},
		// names of fields that are others', or are there twice, here and in what is inside
		{method: http.MethodPost, path: "/jobs/suspend", body: `{"tenant":"acme","TENANT":"globex"}`}, {method: http.MethodPost, path: "/jobs/suspend", body: `{"tenant":"acme","tenant":"globex"}`}, {method: http.MethodPost, path: "/jobs/resume", body: `{"Tenant":"acme"}`},
		{method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","Tenant":"globex","kind":"k","args":{}}`}, {method: http.MethodPost, path: "/jobs/many", body: `{"jobs":[{"tenant":"acme","kind":"k","kind":"l","args":{}}]}`},
		{method: http.MethodPost, path: "/batches", body: `{"tenant":"acme","jobs":[],"then":{"kind":"k","KIND":"l","args":{}}}`}, {method: http.MethodPost, path: "/external/release", body: lock + `,"Turn":2}`},
		// what is meant to be left out
		{method: http.MethodPost, path: "/jobs/suspend", body: `{"tenant":null,"kind":"k"}`}, {method: http.MethodPost, path: "/jobs/suspend", body: `{"tenant":"","kind":"k"}`}, {method: http.MethodPost, path: "/jobs/resume", body: `{"tenant":"","kind":"k"}`},
		{method: http.MethodPost, path: "/jobs/cancel", body: `{"tenant":null,"kind":"k"}`}, {method: http.MethodPost, path: "/dead-letters/retry", body: `{"tenant":null,"kind":"k"}`}, {method: http.MethodPost, path: "/dead-letters/delete", body: `{"tenant":"","kind":"k"}`},
		{method: http.MethodPut, path: "/limits", body: `{"tenant":"","every_tenant":true,"max_running":1}`}, {method: http.MethodPut, path: "/limits", body: `{"tenant":null,"every_tenant":true,"max_running":1}`}, {method: http.MethodDelete, path: "/limits?tenant=&every_tenant=true"},
		{method: http.MethodPost, path: "/external/acquire", body: `{"topic":"k","worker":"w","lock":60,"max":1,"tenants":null}`}, {method: http.MethodPatch, path: "/jobs/" + id, body: `{"priority":1,"timeout_ms":null}`},
		{method: http.MethodGet, path: "/jobs?tenant="}, {method: http.MethodGet, path: "/dead-letters/groups?tenant="}, {method: http.MethodGet, path: "/batches?pool="}, {method: http.MethodGet, path: "/jobs?tenant=acme&tenant=globex"}, {method: http.MethodPost, path: "/jobs/" + id + "/suspend?until="},
		{method: http.MethodPost, path: "/jobs/suspend", body: `{"tenant":"acme","all_tenants":true}`}, {method: http.MethodPost, path: "/dead-letters/retry", body: `{"tenant":"acme","all_tenants":true}`}, {method: http.MethodPost, path: "/jobs/cancel", body: `{"tenant":"acme","all_tenants":true}`},
		// an idempotency key that is none
		{http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{}}`, []string{"Idempotency-Key", ""}}, {http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{}}`, []string{"Idempotency-Key", "a", "Idempotency-Key", "b"}},
		{http.MethodPost, "/jobs/many", `{"jobs":[{"tenant":"acme","kind":"k","args":{}}]}`, []string{"Idempotency-Key", ""}}, {http.MethodPost, "/batches", `{"tenant":"acme","jobs":[],"then":{"kind":"k","args":{}}}`, []string{"Idempotency-Key", "\xff"}},
		// what is long
		{method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","kind":"` + long + `","args":{}}`}, {method: http.MethodPost, path: "/jobs", body: `{"tenant":"` + long + `","kind":"k","args":{}}`}, {method: http.MethodPost, path: "/jobs", body: `{"tenant":"acme","kind":"k","args":{},"` + long + `":1}`},
		{method: http.MethodPut, path: "/schedules/daily", body: `{"kind":"k","args":{},"rule":"` + long + `"}`}, {method: http.MethodPost, path: "/jobs/many", body: `{"jobs":[` + strings.TrimSuffix(strings.Repeat("1,", 400<<10), ",") + `]}`}, {method: http.MethodPost, path: "/external/acquire", body: `{"topic":"k","worker":"` + long + `","lock":60,"max":1}`},
	} {
		code, out := b.ask(admin, r.method, r.path, r.body, r.header...)
		text := fmt.Sprint(out)
		require.Equal(t, http.StatusUnprocessableEntity, code, "%s %s %.200s: %.500s", r.method, r.path, r.body, text)
		require.Less(t, len(text), 40<<10, "%s %s %.80s", r.method, r.path, r.body)
	}
	code, out := b.ask(admin, http.MethodPost, "/jobs", `{"tenant":"acme","kind":"`+long)
	require.Equal(t, http.StatusBadRequest, code)
	require.Less(t, len(fmt.Sprint(out)), 4<<10)

	require.Equal(t, "waiting", b.do(http.MethodGet, "/jobs/"+id, "")["state"], "nothing was done")
	require.Len(t, items(b.do(http.MethodGet, "/jobs", "")), 1)
	code, out = b.ask(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"globex"}}, http.MethodPost, "/jobs/suspend", `{"all":true,"all_tenants":true}`)
	require.Equal(t, http.StatusNotFound, code, "it does not reach all: %v", out)
	require.EqualValues(t, 1, b.do(http.MethodPost, "/jobs/suspend", `{"kind":"invoice.send","all_tenants":true}`)["suspended"])
	b.do(http.MethodPost, "/jobs", `{"tenant":"acme","kind":"k","args":{"a":1,"A":2,"b":null},"meta":{"n":9007199254740993}}`) // what is the job's own is no business of ours
}

// An idempotency key stands for one request: what is not that request again is refused, and adds nothing.
func TestAnIdempotencyKeyIsOneRequests(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const one, other = `{"tenant":"acme","kind":"invoice.send","args":{"n":1}}`, `{"tenant":"acme","kind":"invoice.send","args":{"n":2}}`
	batch := func(kind string) string {
		return `{"tenant":"acme","jobs":[{"kind":"mail.send","args":{}}],"then":{"kind":"` + kind + `","args":{}}}`
	}
	for _, c := range []struct {
		path, body string
		others     [][2]string
	}{
		{"/jobs", one, [][2]string{{"/jobs", other}, {"/jobs", strings.Replace(one, "invoice.send", "mail.send", 1)}, {"/jobs", strings.Replace(one, `"args"`, `"priority":1,"args"`, 1)}, {"/batches", batch("invoice.send")}}},
		{"/jobs", strings.Replace(one, `"args"`, `"external":true,"args"`, 1), [][2]string{{"/jobs", one}}},
		{"/jobs/many", `{"jobs":[` + one + `]}`, [][2]string{{"/jobs/many", `{"jobs":[` + other + `]}`}, {"/jobs/many", `{"jobs":[` + one + `,` + other + `]}`}}},
		{"/batches", batch("mail.send"), [][2]string{{"/batches", batch("invoice.send")}, {"/jobs", one}}},
	} {
		key := []string{"Idempotency-Key", fmt.Sprintf("%s %d", c.path, len(c.body))}
		first := b.do(http.MethodPost, c.path, c.body, key...)
		before := len(items(b.do(http.MethodGet, "/jobs", "")))
		for _, o := range c.others {
			code, out := b.ask(admin, http.MethodPost, o[0], o[1], key...)
			require.Equal(t, http.StatusUnprocessableEntity, code, "%s %s after %s: %v", o[0], o[1], c.body, out)
			require.Contains(t, out["detail"], "Idempotency-Key")
		}
		again := b.do(http.MethodPost, c.path, strings.Replace(c.body, `":`, `" : `, 1), key...)
		require.Equal(t, first["id"], again["id"], "the same request, spaced otherwise")
		require.Len(t, items(b.do(http.MethodGet, "/jobs", "")), before)
	}
}

// What is over cannot be ended or added to: that is a conflict, which says how it stands, and no 404.
func TestWhatIsOverIsAConflict(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	b.do(http.MethodPost, "/jobs/"+id+"/cancel", "")
	add := func() string {
		return b.do(http.MethodPost, "/batches", `{"tenant":"acme","jobs":[{"kind":"mail.send","args":{}}],"then":{"kind":"mail.send","args":{}}}`)["id"].(string)
	}
	cancelled, done := add(), add()
	b.do(http.MethodPost, "/batches/"+cancelled+"/cancel", "")
	b.env.Drain(t)
	b.env.Drain(t)
	operation := b.do(http.MethodPost, "/dead-letters/retry", `{"tenant":"acme","pool":"pool-1"}`)["operations"].([]any)[0].(string)
	b.do(http.MethodPost, "/operations/"+operation+"/cancel", "")
	adds := func(batch string) string {
		return `{"tenant":"acme","kind":"mail.send","args":{},"batch":"` + batch + `"}`
	}
	for _, c := range []struct{ path, body, state string }{
		{"/jobs/" + id + "/cancel", "", "cancelled"}, {"/jobs/" + done + "/cancel", "", "done"},
		{"/batches/" + cancelled + "/cancel", "", "cancelled"}, {"/batches/" + done + "/cancel", "", "done"},
		{"/operations/" + operation + "/cancel", "", "cancelled"},
		{"/jobs", adds(cancelled), "closed"}, {"/jobs", adds(done), "closed"}, {"/jobs/many", `{"jobs":[` + adds(done) + `]}`, "closed"},
	} {
		code, out := b.ask(admin, http.MethodPost, c.path, c.body)
		require.Equal(t, http.StatusConflict, code, "%s %s: %v", c.path, c.body, out)
		require.Contains(t, out["detail"], c.state, c.path)
	}
	for _, path := range []string{"/jobs/4711/cancel", "/batches/4711/cancel", "/operations/706dec90-d9c0-46ff-8b09-72feeb9828f6/cancel"} {
		code, out := b.ask(admin, http.MethodPost, path, "")
		require.Equal(t, http.StatusNotFound, code, "%s: %v", path, out)
	}
	code, out := b.ask(admin, http.MethodPost, "/jobs", adds(job.ID(4711).String()))
	require.Equal(t, http.StatusNotFound, code, out)
}
