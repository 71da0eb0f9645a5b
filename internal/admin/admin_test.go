package admin_test

import (
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/admin"
)

type bundle struct {
	handler   http.Handler
	reasons   atomic.Pointer[[]string]
	unhealthy atomic.Pointer[string]
}

func setup() *bundle {
	b := &bundle{}
	b.reasons.Store(&[]string{})
	b.unhealthy.Store(new(string))
	r := prometheus.NewRegistry()
	g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_test", Help: "A gauge."})
	g.Set(42)
	r.MustRegister(g)
	b.handler = admin.Handler(func() []string { return *b.reasons.Load() }, func() string { return *b.unhealthy.Load() }, r)
	return b
}

func ask(h http.Handler, method, path string) *httptest.ResponseRecorder {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(method, path, nil))
	return w
}

func TestHealthz(t *testing.T) {
	t.Parallel()
	b := setup()
	b.reasons.Store(&[]string{"pool eu is down"})
	w := ask(b.handler, http.MethodGet, "/healthz")
	require.Equal(t, http.StatusOK, w.Code, "a node that cannot work is not mended by a restart")
	require.JSONEq(t, `{"status":"ok"}`, w.Body.String())
	require.Equal(t, "application/json", w.Header().Get("Content-Type"))
	require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))

	reason := "handlers ignore that their context has ended"
	b.unhealthy.Store(&reason)
	w = ask(b.handler, http.MethodGet, "/healthz")
	require.Equal(t, http.StatusServiceUnavailable, w.Code, "only another process will do")
	require.JSONEq(t, `{"status":"unhealthy","reasons":["`+reason+`"]}`, w.Body.String())
}

func TestReadyz(t *testing.T) {
	t.Parallel()
	b := setup()
	for _, tc := range []struct {
		reasons []string
		code    int
		body    string
	}{
		{[]string{"pool eu is down", `"us" too`}, http.StatusServiceUnavailable, `{"status":"not ready","reasons":["pool eu is down","\"us\" too"]}`},
		{nil, http.StatusOK, `{"status":"ready"}`},
		{[]string{}, http.StatusOK, `{"status":"ready"}`},
		{[]string{"stopping"}, http.StatusServiceUnavailable, `{"status":"not ready","reasons":["stopping"]}`},
	} {
		b.reasons.Store(&tc.reasons)
		w := ask(b.handler, http.MethodGet, "/readyz")
		require.Equal(t, tc.code, w.Code)
		require.JSONEq(t, tc.body, w.Body.String())
		require.Equal(t, "application/json", w.Header().Get("Content-Type"))
		require.Equal(t, "nosniff", w.Header().Get("X-Content-Type-Options"))
	}
}

func TestMetrics(t *testing.T) {
	t.Parallel()
	w := ask(setup().handler, http.MethodGet, "/metrics")
	require.Equal(t, http.StatusOK, w.Code)
	require.Contains(t, w.Header().Get("Content-Type"), "text/plain")
	require.Contains(t, w.Body.String(), "# HELP tenure_test A gauge.\n# TYPE tenure_test gauge\ntenure_test 42\n")
}

type broken struct{}

func (broken) Describe(chan<- *prometheus.Desc) {}

func (broken) Collect(to chan<- prometheus.Metric) {
	to <- prometheus.NewInvalidMetric(prometheus.NewInvalidDesc(errors.New("broken")), errors.New("broken"))
}

func TestMetrics_sayThatTheyCannotBeGathered(t *testing.T) {
	t.Parallel()
	r := prometheus.NewRegistry()
	r.MustRegister(broken{})
	w := ask(admin.Handler(func() []string { return nil }, func() string { return "" }, r), http.MethodGet, "/metrics")
	require.Equal(t, http.StatusInternalServerError, w.Code, "an empty 200 would look like a node without metrics")
}

func TestRoutes(t *testing.T) {
	t.Parallel()
	b := setup()
	for _, path := range []string{"/", "/healthz/", "/readyz/x", "/metrics/..%2f", "/debug/pprof/", "/Healthz", "/index.html"} {
		require.Equal(t, http.StatusNotFound, ask(b.handler, http.MethodGet, path).Code, path)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		for _, method := range []string{http.MethodPost, http.MethodPut, http.MethodDelete, http.MethodOptions, "PURGE"} {
			w := ask(b.handler, method, path)
			require.Equal(t, http.StatusMethodNotAllowed, w.Code, "%s %s", method, path)
			require.Equal(t, "GET, HEAD", w.Header().Get("Allow"))
		}
	}
}

// Over a socket, where HEAD has no body and requests run side by side.
func TestServed(t *testing.T) {
	t.Parallel()
	b := setup()
	s := httptest.NewServer(b.handler)
	t.Cleanup(s.Close)
	for _, path := range []string{"/healthz", "/readyz", "/metrics"} {
		t.Run(strings.TrimPrefix(path, "/"), func(t *testing.T) {
			t.Parallel()
			for range 10 {
				req, err := http.NewRequestWithContext(t.Context(), http.MethodHead, s.URL+path, nil)
				require.NoError(t, err)
				res, err := s.Client().Do(req)
				require.NoError(t, err)
				body, err := io.ReadAll(res.Body)
				require.NoError(t, err)
				require.NoError(t, res.Body.Close())
				require.Empty(t, body)
				require.Equal(t, http.StatusOK, res.StatusCode)
			}
		})
	}
}
