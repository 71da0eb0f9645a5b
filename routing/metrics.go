package routing

import "github.com/prometheus/client_golang/prometheus"

// metrics is what a Router counts.
type metrics struct {
	rumours *prometheus.CounterVec // result
}

func newMetrics() *metrics {
	return &metrics{rumours: prometheus.NewCounterVec(prometheus.CounterOpts{Namespace: "tenure", Subsystem: "routing", Name: "rumours_total",
		Help: "Pools whose database was replaced by a promoted standby, as another member said: confirmed (by a node that has reached it; the pool is left), dismissed (nobody confirmed it; nothing was done), expired (nobody confirms it any more; the pool is worked on again)."},
		[]string{"result"})}
}

// Metrics returns the Router's metrics, to be registered by the caller.
func (r *Router) Metrics() prometheus.Collector { return r.metrics.rumours }
