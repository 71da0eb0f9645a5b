// Package admin serves what operators and their tools ask a node over HTTP:
// /healthz, /readyz and /metrics.
//
// It asks nobody who they are and shows no job's contents. Binding it where only
// the right people can reach it is left to anyone who serves it. Safe for concurrent
// use.
package admin

import (
	"encoding/json"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

// Handler serves a node's health and metrics. unready says why the node takes no
// part; nothing: it does. unhealthy says why only another process will do; "": this one does.
func Handler(unready func() []string, unhealthy func() string, metrics prometheus.Gatherer) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", func(w http.ResponseWriter, _ *http.Request) {
		if reason := unhealthy(); reason != "" {
			Answer(w, http.StatusServiceUnavailable, map[string]any{"status": "unhealthy", "reasons": []string{reason}})
			return
		}
		Answer(w, http.StatusOK, map[string]any{"status": "ok"})
	})
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		if reasons := unready(); len(reasons) > 0 {
			Answer(w, http.StatusServiceUnavailable, map[string]any{"status": "not ready", "reasons": reasons})
			return
		}
		Answer(w, http.StatusOK, map[string]any{"status": "ready"})
	})
	mux.Handle("GET /metrics", promhttp.HandlerFor(metrics, promhttp.HandlerOpts{}))
	return mux
}

// Answer writes body as JSON.
func Answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // the caller has gone if this fails
}
