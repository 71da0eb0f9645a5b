package handlers

import (
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
)

// bundle is a caller that may reach 127.0.0.1, and a server there.
type bundle struct {
	*caller
	url string
}

func setup(t *testing.T, handler http.HandlerFunc) *bundle {
	server := httptest.NewServer(handler)
	c := newCaller([]netip.Prefix{netip.MustParsePrefix("127.0.0.1/32")})
	t.Cleanup(func() {
		c.client.CloseIdleConnections()
		server.Close()
	})
	return &bundle{caller: c, url: server.URL}
}

// call sends what the arguments say; %s in them is the server's URL.
func (b *bundle) call(ctx context.Context, t *testing.T, args string) error {
	return b.handle(ctx, decode[HTTPRequest](t, strings.ReplaceAll(args, "%s", b.url)))
}

func TestRequestIsSentAsAsked(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		args, method, body, contentType string
	}{
		"default":  {`{"url": "%s/a?b=c"}`, "POST", "", ""},
		"null":     {`{"url": "%s/a?b=c", "body": null}`, "POST", "", ""},
		"json":     {`{"url": "%s/a?b=c", "body": {"id": 9007199254740993}}`, "POST", `{"id": 9007199254740993}`, "application/json"},
		"text":     {`{"url": "%s/a?b=c", "method": "put", "body": "hé\n"}`, "PUT", "hé\n", "text/plain; charset=utf-8"},
		"own type": {`{"url": "%s/a?b=c", "method": "PATCH", "headers": {"content-type": "text/csv"}, "body": "1,2"}`, "PATCH", "1,2", "text/csv"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			seen := make(chan *http.Request, 1)
			b := setup(t, func(w http.ResponseWriter, r *http.Request) {
				body, _ := io.ReadAll(r.Body)
				r.Body = io.NopCloser(strings.NewReader(string(body)))
				seen <- r
				w.WriteHeader(http.StatusNoContent)
			})
			require.NoError(t, b.call(t.Context(), t, c.args))
			r := <-seen
			body, err := io.ReadAll(r.Body)
			require.NoError(t, err)
			require.Equal(t, c.body, string(body))
			require.Equal(t, c.method, r.Method)
			require.Equal(t, "/a?b=c", r.RequestURI)
			require.Equal(t, c.contentType, r.Header.Get("Content-Type"))
			require.Equal(t, "7", r.Header.Get("Idempotency-Key"))
			require.Equal(t, "7", r.Header.Get("X-Tenure-Job"))
			require.Equal(t, "2", r.Header.Get("X-Tenure-Attempt"))
			require.Equal(t, "acme", r.Header.Get("X-Tenure-Tenant"))
			require.Equal(t, "tenure", r.Header.Get("User-Agent"))
		})
	}
}

// A request belongs to the trace of the run that sends it, unless the job says otherwise.
func TestTraceIsPassedOn(t *testing.T) {
	t.Parallel()
	seen := make(chan []string, 1)
	b := setup(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header["Traceparent"] })
	const run, own = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01", "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
	require.NoError(t, b.call(t.Context(), t, `{"url": "%s"}`))
	require.Empty(t, <-seen)
	ctx := tracing.NewContext(t.Context(), run)
	require.NoError(t, b.call(ctx, t, `{"url": "%s"}`))
	require.Equal(t, []string{run}, <-seen)
	require.NoError(t, b.call(ctx, t, `{"url": "%s", "headers": {"traceparent": "`+own+`"}}`))
	require.Equal(t, []string{own}, <-seen)
}

func TestHeaders(t *testing.T) {
	t.Parallel()
	seen := make(chan http.Header, 1)
	b := setup(t, func(_ http.ResponseWriter, r *http.Request) { seen <- r.Header })
	require.NoError(t, b.call(t.Context(), t, `{"url": "%s", "headers": {"Idempotency-Key": "order-1", "x-tenure-tenant": "globex", "Authorization": "Bearer x"}}`))
	h := <-seen
	require.Equal(t, "order-1", h.Get("Idempotency-Key"))
	require.Equal(t, []string{"acme"}, h.Values("X-Tenure-Tenant"))
	require.Equal(t, "Bearer x", h.Get("Authorization"))
}

func TestStatusDecides(t *testing.T) {
	t.Parallel()
	const policy = -1 // the policy's own delay
	for _, c := range []struct {
		status     int
		retryAfter string
		want       job.State
		delay      time.Duration
	}{
		{200, "", job.Done, 0},
		{202, "5", job.Done, 0},
		{299, "", job.Done, 0},
		{300, "", job.Dead, 0},
		{304, "", job.Dead, 0},
		{400, "5", job.Dead, 0},
		{401, "", job.Dead, 0},
		{404, "", job.Dead, 0},
		{408, "", job.Retrying, policy},
		{410, "", job.Dead, 0},
		{425, "", job.Retrying, policy},
		{429, "", job.Retrying, policy},
		{429, "120", job.Retrying, 2 * time.Minute},
		{429, "0", job.Retrying, policy},
		{429, "-5", job.Retrying, policy},
		{429, "soon", job.Retrying, policy},
		{429, "9999999999999", job.Retrying, 24 * time.Hour},
		{500, "", job.Retrying, policy},
		{501, "", job.Retrying, policy},
		{503, "Fri, 01 Jan 2027 00:01:30 GMT", job.Retrying, 90 * time.Second},
		{503, "Thu, 31 Dec 2026 00:00:00 GMT", job.Retrying, policy},
		{503, "Fri, 01 Jan 2100 00:00:00 GMT", job.Retrying, 24 * time.Hour},
		{599, "1", job.Retrying, time.Second},
		{600, "", job.Dead, 0},
	} {
		t.Run(fmt.Sprint(c.status, c.retryAfter), func(t *testing.T) {
			t.Parallel()
			b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
				if c.retryAfter != "" {
					w.Header().Set("Retry-After", c.retryAfter)
				}
				w.WriteHeader(c.status)
				if c.status != http.StatusNotModified {
					fmt.Fprint(w, "why ", strings.Repeat("?", 100_000))
				}
			})
			b.now = func() time.Time { return time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC) }
			err := b.call(t.Context(), t, `{"url": "%s/path?token=hunter2"}`)
			requireState(t, c.want, err, "")
			o := decide(err)
			switch {
			case c.want == job.Done:
				return
			case c.delay != policy:
				require.Equal(t, c.delay, o.Delay)
			default:
				require.InDelta(t, 30*time.Second, o.Delay, float64(4*time.Second))
			}
			require.ErrorContains(t, err, fmt.Sprintf("POST %s: %d", strings.TrimPrefix(b.url, "http://"), c.status))
			if c.status != http.StatusNotModified {
				require.ErrorContains(t, err, "why ???")
			}
			require.NotContains(t, err.Error(), "hunter2")
			require.Less(t, len(err.Error()), maxExcerpt+300)
		})
	}
}

func TestWrongArgumentsAreDiscarded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(http.ResponseWriter, *http.Request) { t.Error("a request arrived") })
	for args, why := range map[string]string{
		`{}`:                                           "scheme",
		`{"url": "ftp://x/y"}`:                         "ftp",
		`{"url": "file:///x"}`:                         "file",
		`{"url": "//host/x"}`:                          "scheme",
		`{"url": "http://"}`:                           "no host",
		`{"url": "http://:80"}`:                        "no host",
		`{"url": "http://x/%zz:hunter2"}`:              "cannot be read",
		`{"url": "%s", "method": "A B"}`:               "method",
		`{"url": "%s", "headers": {"a b": "c"}}`:       "not a name",
		`{"url": "%s", "headers": {"A": "b\r\nC: d"}}`: "header A",
		`{"url": "%s", "headers": {"host": "x"}}`:      "Host cannot be set",
		`{"url": "%s", "headers": {"transfer-encoding": "chunked"}}`: "Transfer-Encoding cannot be set",
		`{"url": "%s", "timeout": "5"}`:                              "timeout",
		`{"url": "%s", "timeout": "-5s"}`:                            "timeout",
		`{"url": "http://hunter2:hunter2@x` + "\\u0001" + `/"}`:      "cannot be read",
		`{"url": "%s", "bodi": {}}`:                                  `the arguments of http.request: there is no "bodi": did you mean body?`,
		`{"url": "%s", "retries": 3}`:                                `the arguments of http.request: there is no "retries": they are url, method, headers, body, timeout`,
		`{"url": "%s", "method": 5}`:                                 "the arguments of http.request: method cannot be a JSON number",
		`{"url": "%s", "headers": ["a"]}`:                            "the arguments of http.request: headers cannot be a JSON array",
		`"%s"`:                                                       "the arguments of http.request: they are no JSON object",
	} {
		err := b.call(t.Context(), t, args)
		requireState(t, job.Dead, err, why)
		require.NotContains(t, err.Error(), "hunter2")
	}
}

func TestForbiddenAddressesAreDiscarded(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		http.Redirect(w, r, r.URL.Query().Get("to"), http.StatusTemporaryRedirect)
	})
	_, port, err := net.SplitHostPort(strings.TrimPrefix(b.url, "http://"))
	require.NoError(t, err)
	for _, args := range []string{
		`{"url": "http://127.0.0.2:` + port + `"}`,
		`{"url": "http://[::1]:` + port + `"}`,
		`{"url": "http://[::ffff:127.0.0.2]:` + port + `"}`,
		`{"url": "http://169.254.169.254/latest/meta-data"}`,
		`{"url": "https://10.0.0.1"}`,
		`{"url": "http://0.0.0.0:` + port + `"}`,
		`{"url": "%s?to=http://127.0.0.2:` + port + `"}`,
		`{"url": "%s?to=http://169.254.169.254/"}`,
	} {
		requireState(t, job.Dead, b.call(t.Context(), t, args), "not public")
	}
	none := newCaller(nil)
	defer none.client.CloseIdleConnections()
	// A name is judged by what it resolves to at the moment of dialling.
	requireState(t, job.Dead, none.handle(t.Context(), decode[HTTPRequest](t, `{"url": "http://localhost:`+port+`"}`)), "not public")
}

func TestRedirects(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		q := r.URL.Query()
		switch code := q.Get("code"); {
		case r.URL.Path == "/loop":
			http.Redirect(w, r, "/loop", http.StatusTemporaryRedirect)
		case code != "":
			var status int
			_, _ = fmt.Sscan(code, &status)
			to := q.Get("to")
			switch to {
			case "":
				to = "/end"
			case "itself":
				to = r.URL.String()
			}
			w.Header().Set("Location", to)
			w.WriteHeader(status)
		case r.Method == http.MethodPost:
			body, _ := io.ReadAll(r.Body)
			if string(body) != "keep me" {
				w.WriteHeader(http.StatusTeapot)
			}
		}
	})
	for _, followed := range []string{
		`{"url": "%s?code=307", "body": "keep me"}`, `{"url": "%s?code=308", "body": "keep me"}`,
		`{"url": "%s?code=301", "method": "GET"}`, `{"url": "%s?code=302", "method": "GET"}`,
	} {
		require.NoError(t, b.call(t.Context(), t, followed))
	}
	for _, refused := range []string{
		`{"url": "%s?code=301", "body": "keep me"}`, `{"url": "%s?code=302", "body": "keep me"}`, `{"url": "%s?code=303", "body": "keep me"}`,
		`{"url": "%s?code=307&to=ftp://x"}`, `{"url": "%s?code=307&to=itself"}`,
		`{"url": "%s?code=307&to=http%3A//"}`,
	} {
		requireState(t, job.Dead, b.call(t.Context(), t, refused), "not followed")
	}
}

// The job's headers may be secrets between it and the host that it names, as may the query of its URL.
func TestRedirectsKeepSecretsOnTheirHost(t *testing.T) {
	t.Parallel()
	seen := make(chan *http.Request, 4)
	var there string // where a path leads to
	b := setup(t, func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		switch r.URL.Path {
		case "/here":
			http.Redirect(w, r, "/there", http.StatusTemporaryRedirect)
		case "/there":
			http.Redirect(w, r, there, http.StatusPermanentRedirect)
		}
	})
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		seen <- r
		http.Redirect(w, r, b.url+"/back", http.StatusTemporaryRedirect)
	}))
	t.Cleanup(other.Close)
	there = other.URL
	const headers = `"headers": {"X-Api-Key": "k", "Cookie": "c", "Idempotency-Key": "order-1", "Content-Type": "text/csv"}`
	require.NoError(t, b.call(t.Context(), t, `{"url": "%s/here?token=hunter2", "body": "1,2", `+headers+`}`))
	for range 2 {
		h := (<-seen).Header
		require.Equal(t, []string{"k", "c", "order-1", "text/csv", ""}, []string{h.Get("X-Api-Key"), h.Get("Cookie"), h.Get("Idempotency-Key"), h.Get("Content-Type"), h.Get("Referer")})
	}
	for _, what := range []string{"another host", "back from it"} {
		h := (<-seen).Header
		require.Equal(t, []string{"", "", "7", "text/csv", "", "7"}, []string{h.Get("X-Api-Key"), h.Get("Cookie"), h.Get("Idempotency-Key"), h.Get("Content-Type"), h.Get("Referer"), h.Get("X-Tenure-Job")}, what)
	}
	for first, second := range map[string]string{"https://A.example/x": "https://a.example:443/y", "http://[::1]:80": "http://[::1]/"} {
		one, err := url.Parse(first)
		require.NoError(t, err)
		two, err := url.Parse(second)
		require.NoError(t, err)
		require.Equal(t, hostOf(one), hostOf(two))
	}
}

func TestNetworkFailuresAreRetried(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	closed := l.Addr().String()
	require.NoError(t, l.Close())
	b := setup(t, func(http.ResponseWriter, *http.Request) { panic(http.ErrAbortHandler) })
	requireState(t, job.Retrying, b.call(t.Context(), t, `{"url": "http://`+closed+`/?token=hunter2"}`), "POST "+closed+": dial tcp")
	err = b.call(t.Context(), t, `{"url": "%s?token=hunter2"}`)
	requireState(t, job.Retrying, err, "EOF")
	require.NotContains(t, err.Error(), "hunter2")
}

// A body that breaks off does not undo what the status said.
func TestBrokenBodyAfterSuccess(t *testing.T) {
	t.Parallel()
	b := setup(t, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Length", "1000")
		w.WriteHeader(http.StatusOK)
		fmt.Fprint(w, "part")
	})
	require.NoError(t, b.call(t.Context(), t, `{"url": "%s"}`))
}

func TestTimeoutAndCancel(t *testing.T) {
	t.Parallel()
	arrived := make(chan struct{}, 2)
	b := setup(t, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body) // or the server would not see the caller leave
		arrived <- struct{}{}
		<-r.Context().Done()
	})
	requireState(t, job.Retrying, b.call(t.Context(), t, `{"url": "%s", "timeout": "PT0.05S"}`), "no answer within 50ms")

	ctx, cancel := context.WithCancelCause(t.Context())
	done := make(chan error)
	<-arrived
	go func() { done <- b.call(ctx, t, `{"url": "%s"}`) }()
	<-arrived
	cancel(job.ErrStopping)
	require.ErrorIs(t, <-done, job.ErrStopping)
}
