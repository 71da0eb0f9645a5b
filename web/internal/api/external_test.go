package api_test

import (
	"context"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/access"
	server "github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/tenancy"
)

func (b *bundle) enqueueExternal(tenant string) {
	b.t.Helper()
	code, out := b.ask(admin, http.MethodPost, "/jobs", `{"tenant":"`+tenant+`","kind":"print","args":{"n":1},"external":true}`)
	require.Equal(b.t, http.StatusOK, code, out)
}

func (b *bundle) acquire(g access.Grant) []any {
	b.t.Helper()
	code, out := b.ask(g, http.MethodPost, "/external/acquire", `{"topic":"print","worker":"w","lock":60,"max":10}`)
	require.Equal(b.t, http.StatusOK, code, out)
	return out["items"].([]any)
}

// lockWith is the lock of an acquired job as the body of a request, with more fields.
func lockWith(t *testing.T, acquired any, more map[string]any) string {
	body := map[string]any{}
	for _, field := range []string{"job", "turn", "worker"} {
		body[field] = acquired.(map[string]any)[field]
	}
	for field, value := range more {
		body[field] = value
	}
	text, err := json.Marshal(body)
	require.NoError(t, err)
	return string(text)
}

func TestExternalWorkers(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for do, more := range map[string]map[string]any{
		"complete": {"output": 3}, "fail": {"error": "no paper", "retries": 0}, "error": {"code": "no_address", "message": "none"}, "release": nil,
	} {
		b.enqueueExternal("acme")
		jobs := b.acquire(admin)
		require.Len(t, jobs, 1, do)
		code, out := b.ask(admin, http.MethodPost, "/external/extend", lockWith(t, jobs[0], map[string]any{"lock": 90}))
		require.Equal(t, http.StatusNoContent, code, out)
		code, out = b.ask(admin, http.MethodPost, "/external/"+do, lockWith(t, jobs[0], more))
		require.Equal(t, http.StatusNoContent, code, "%s: %v", do, out)
		code, out = b.ask(admin, http.MethodPost, "/external/"+do, lockWith(t, jobs[0], more))
		require.Equal(t, http.StatusConflict, code, "%s: %v", do, out)
		if do == "release" {
			again := b.acquire(admin)
			code, out = b.ask(admin, http.MethodPost, "/external/complete", lockWith(t, again[0], nil))
			require.Equal(t, http.StatusNoContent, code, out)
		}
	}
}

// A failure can be reported whatever its text is made of: what no database keeps is left out.
func TestAFailureOfAnyTextIsReported(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const text = "no \x00paper"
	for do, more := range map[string]map[string]any{
		"fail": {"error": text, "stack": text, "retries": 0}, "error": {"code": "c", "message": text},
	} {
		b.enqueueExternal("acme")
		jobs := b.acquire(admin)
		code, out := b.ask(admin, http.MethodPost, "/external/"+do, lockWith(t, jobs[0], more))
		require.Equal(t, http.StatusNoContent, code, "%s: %v", do, out)
		require.Contains(t, b.do(http.MethodGet, "/jobs/"+jobs[0].(map[string]any)["job"].(string), "")["error"], "no paper", do)
	}
}

// A worker ends many jobs in one request. Those that are not its own any more, or that its grant does not reach, are lost,
// and the others are done.
func TestExternalWorkersCompleteManyJobs(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for range 5 {
		b.enqueueExternal("acme")
	}
	b.enqueueExternal("globex")
	complete := func(g access.Grant, jobs []any) (int, map[string]any) {
		var some []map[string]any
		for _, j := range jobs {
			some = append(some, map[string]any{"job": j.(map[string]any)["job"], "turn": j.(map[string]any)["turn"], "output": j.(map[string]any)["job"]})
		}
		text, err := json.Marshal(map[string]any{"worker": "w", "jobs": some})
		require.NoError(t, err)
		return b.ask(g, http.MethodPost, "/external/complete-many", string(text))
	}
	jobs := b.acquire(admin)
	require.Len(t, jobs, 6)
	acme := slices.DeleteFunc(slices.Clone(jobs), func(j any) bool { return j.(map[string]any)["tenant"] != "acme" })
	other := slices.DeleteFunc(slices.Clone(jobs), func(j any) bool { return j.(map[string]any)["tenant"] == "acme" })[0].(map[string]any)
	id := func(j any) any { return j.(map[string]any)["job"] }
	code, out := b.ask(admin, http.MethodPost, "/external/complete", lockWith(t, acme[0], nil))
	require.Equal(t, http.StatusNoContent, code, out)

	code, out = complete(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"acme"}}, append(slices.Clone(acme[:3]), other))
	require.Equal(t, http.StatusOK, code, out)
	require.ElementsMatch(t, []any{id(acme[0]), id(other)}, out["lost"], "it was done before, and is another tenant's")
	require.Equal(t, false, out["again"])
	require.Equal(t, "locked", b.do(http.MethodGet, "/jobs/"+id(other).(string), "")["state"])
	code, out = complete(admin, jobs)
	require.Equal(t, http.StatusOK, code, out)
	require.ElementsMatch(t, []any{id(acme[0]), id(acme[1]), id(acme[2])}, out["lost"])
	for _, j := range jobs {
		require.Equal(t, "done", b.do(http.MethodGet, "/jobs/"+id(j).(string), "")["state"])
	}
	require.Equal(t, id(acme[3]), outputOf(t, b.do(http.MethodGet, "/jobs/"+id(acme[3]).(string), ""))["output"])
	code, _ = b.ask(admin, http.MethodPost, "/external/complete-many", `{"worker":"w","jobs":[]}`)
	require.Equal(t, http.StatusUnprocessableEntity, code)
}

func TestExternalWorkersHaveOnlyWhatTheirGrantReaches(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueueExternal("acme")
	grants := []access.Grant{{Role: access.Operate, Tenants: []tenancy.ID{"globex"}, Args: true}, {Role: access.Operate, Pools: []string{"pool-2"}, Args: true}}
	for _, g := range grants {
		require.Empty(t, b.acquire(g))
		code, out := b.ask(g, http.MethodPost, "/external/acquire", `{"topic":"print","worker":"w","lock":60,"max":1,"tenants":["acme"]}`)
		require.Equal(t, http.StatusNotFound, code, out)
	}
	jobs := b.acquire(admin)
	require.Len(t, jobs, 1)
	for _, g := range grants {
		for do, more := range map[string]map[string]any{
			"complete": nil, "fail": {"error": "e"}, "error": {"code": "c", "message": "m"}, "release": nil, "extend": {"lock": 60},
		} {
			code, out := b.ask(g, http.MethodPost, "/external/"+do, lockWith(t, jobs[0], more))
			require.Equal(t, http.StatusNotFound, code, "%s: %v", do, out)
		}
	}
	code, out := b.ask(access.Grant{Role: access.Operate, Tenants: []tenancy.ID{"acme"}}, http.MethodPost, "/external/complete", lockWith(t, jobs[0], nil))
	require.Equal(t, http.StatusNoContent, code, out)
}

func TestExternalWorkersOfAPoolAcquireInIt(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueueExternal("acme")
	b.enqueueExternal("globex")
	jobs := b.acquire(access.Grant{Role: access.Operate, Pools: []string{"pool-2"}, Args: true})
	require.Len(t, jobs, 1)
	require.Equal(t, "globex", jobs[0].(map[string]any)["tenant"])
	code, out := b.ask(admin, http.MethodPost, "/external/acquire", `{"topic":"none","worker":"w","lock":60,"max":1,"wait":1}`)
	require.Equal(t, http.StatusOK, code, out)
	require.Empty(t, out["items"])
	code, out = b.ask(admin, http.MethodPost, "/external/acquire", `{"topic":"none","worker":"w","lock":60,"max":1,"wait":21}`)
	require.Equal(t, http.StatusUnprocessableEntity, code, out)
}

// What somebody waits for with a token ends with it, and acquires nothing any more.
func TestNobodyWaitsWhoseTokenIsTakenAway(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const secret, hash = "secret", "2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"
	guard := access.NewGuard(access.Rules{Tokens: []access.Token{{Grant: admin, SHA256: hash}}})
	s := httptest.NewServer(guard.Wrap(b.handler))
	t.Cleanup(s.Close)
	ask := func(method, path, body string) *http.Response {
		r, err := http.NewRequestWithContext(t.Context(), method, s.URL+"/api/v1"+path, strings.NewReader(body))
		require.NoError(t, err)
		r.Header.Set("Authorization", "Bearer "+secret)
		r.Header.Set("Content-Type", "application/json")
		answer, err := http.DefaultClient.Do(r)
		require.NoError(t, err)
		t.Cleanup(func() { _ = answer.Body.Close() })
		return answer
	}
	id := b.enqueue("acme")
	known := b.do(http.MethodGet, "/jobs/"+id, "")["version"].(string)
	stream := ask(http.MethodGet, "/jobs/"+id+"/events", "")
	require.Equal(t, http.StatusOK, stream.StatusCode)
	codes, ended := make(chan int), make(chan struct{})
	go func() {
		_, _ = io.Copy(io.Discard, stream.Body)
		close(ended)
	}()
	go func() {
		codes <- ask(http.MethodPost, "/external/acquire", `{"topic":"print","worker":"w","lock":60,"max":1,"wait":20}`).StatusCode
	}()
	go func() { codes <- ask(http.MethodGet, "/jobs/"+id+"?wait=20&known="+known, "").StatusCode }()
	time.Sleep(100 * time.Millisecond) // they wait by now; else they are strangers when they come
	guard.Set(access.Rules{Tokens: []access.Token{{Grant: admin, SHA256: strings.Repeat("0", 64)}}})
	for range 2 {
		require.Contains(t, []int{http.StatusServiceUnavailable, http.StatusUnauthorized}, <-codes)
	}
	select {
	case <-ended:
	case <-time.After(time.Minute):
		t.Fatal("the stream goes on")
	}
	b.enqueueExternal("acme")
	require.Len(t, b.acquire(admin), 1, "nobody has it")
}

// No more workers of one caller wait than may, which slows nobody else.
func TestFewWorkersWait(t *testing.T) {
	t.Parallel()
	b := setup(t)
	ctx, end := context.WithCancel(access.With(t.Context(), admin))
	defer end()
	first := make(chan *httptest.ResponseRecorder, 257)
	for range 257 {
		go func() {
			r := httptest.NewRequestWithContext(ctx, http.MethodPost, "/api/v1/external/acquire", strings.NewReader(`{"topic":"print","worker":"w","lock":60,"max":1,"wait":20}`))
			r.Header.Set("Content-Type", "application/json")
			w := httptest.NewRecorder()
			b.handler.ServeHTTP(w, r)
			first <- w
		}()
	}
	w := <-first
	require.Equal(t, http.StatusTooManyRequests, w.Code)
	require.NotEmpty(t, w.Header().Get("Retry-After"))
	require.Empty(t, b.acquire(admin), "who does not wait may")
	code, out := b.ask(access.Grant{Name: "another", Role: access.Operate, Args: true}, http.MethodPost, "/external/acquire", `{"topic":"other","worker":"w","lock":60,"max":1,"wait":1}`)
	require.Equal(t, http.StatusOK, code, out)
}

// Requests that wait are answered once their node is about to stop.
func TestRequestsDoNotWaitForANodeThatStops(t *testing.T) {
	t.Parallel()
	b := setup(t)
	id := b.enqueue("acme")
	known := b.do(http.MethodGet, "/jobs/"+id, "")["version"].(string)
	running, stop := context.WithCancel(t.Context())
	s, err := server.Listen("127.0.0.1:0", "", "")
	require.NoError(t, err)
	s.Serve(running, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b.handler.ServeHTTP(w, r.WithContext(access.With(r.Context(), admin)))
	}), zap.NewNop())
	t.Cleanup(s.Stop)
	answers := make(chan int, 2)
	ask := func(method, path, body string) {
		r, err := http.NewRequestWithContext(t.Context(), method, "http://"+s.Address()+"/api/v1"+path, strings.NewReader(body))
		if err == nil {
			r.Header.Set("Content-Type", "application/json")
			var response *http.Response
			if response, err = http.DefaultClient.Do(r); err == nil {
				answers <- response.StatusCode
				err = response.Body.Close()
			}
		}
		assert.NoError(t, err)
	}
	go ask(http.MethodPost, "/external/acquire", `{"topic":"print","worker":"w","lock":60,"max":1,"wait":20}`)
	go ask(http.MethodGet, "/jobs/"+id+"?wait=20&known="+known, "")
	time.AfterFunc(100*time.Millisecond, stop)
	for range 2 {
		require.Equal(t, http.StatusServiceUnavailable, <-answers)
	}
	code, out := b.ask(admin, http.MethodPost, "/external/acquire", `{"topic":"print","worker":"w","lock":60,"max":1,"wait":1}`)
	require.Equal(t, http.StatusOK, code, out)
}
