package main

import (
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
)

// collect is a collector of spans: what is sent to it is passed on.
func collect(t *testing.T) (url string, sent chan string) {
	sent = make(chan string, 100)
	server := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		text, err := io.ReadAll(r.Body)
		if err == nil && r.URL.Path == "/v1/traces" {
			sent <- string(text)
		}
	}))
	t.Cleanup(server.Close)
	return server.URL, sent
}

// A node sends a span for each run to node.otlp_endpoint, the last ones when it stops.
func TestServeSendsSpans(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	url, sent := collect(t)
	b.configure("listen: 127.0.0.1:0", "listen: 127.0.0.1:0, otlp_endpoint: "+url)
	hook, called := httptest.NewServer(nil), make(chan struct{})
	hook.Config.Handler = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { close(called) })
	defer hook.Close()
	node := b.serve()
	id := b.enqueue("http.request", `{"url": "`+hook.URL+`"}`, "--tenant", "P1")
	<-called
	node.stop()
	require.Zero(t, <-node.code)
	var all strings.Builder
	for len(sent) > 0 {
		all.WriteString(<-sent)
	}
	for _, want := range []string{"run http.request", "tenure.job", id, "P1", "done", "service.name", "service.instance.id"} {
		require.Contains(t, all.String(), want)
	}
}

// OpenTelemetry's variables say where spans go as well, and whether any do.
func TestTracesAreWanted(t *testing.T) {
	for _, c := range []struct {
		endpoint, name, value string
		wanted                bool
	}{
		{"", "X", "", false},
		{"http://127.0.0.1:4318", "X", "", true},
		{"", "OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:4318", true},
		{"", "OTEL_EXPORTER_OTLP_TRACES_ENDPOINT", "http://127.0.0.1:4318/v1/traces", true},
		{"http://127.0.0.1:4318", "OTEL_SDK_DISABLED", "true", false},
		{"http://127.0.0.1:4318", "OTEL_TRACES_EXPORTER", "none", false},
	} {
		t.Run(c.name+c.endpoint, func(t *testing.T) {
			t.Setenv(c.name, c.value)
			require.Equal(t, c.wanted, tracesWanted(config.Node{OTLPEndpoint: c.endpoint}))
			_, flush, err := traceRuns(t.Context(), config.Node{OTLPEndpoint: c.endpoint}, zap.NewNop())
			require.NoError(t, err)
			flush()
		})
	}
}
