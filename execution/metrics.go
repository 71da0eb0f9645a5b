package execution

import (
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/job"
)

// metrics is what the workers tell an operator; Workers exposes it as a Collector.
type metrics struct {
	max      prometheus.Gauge
	finished *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
}

func newMetrics(workers int) *metrics {
	m := &metrics{
		max: prometheus.NewGauge(prometheus.GaugeOpts{Name: "tenure_workers_max", Help: "Handlers that may run at a time on this node."}),
		finished: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_finished_total",
			Help: "Runs by outcome: done, retrying, snoozed, dead, cancelled, returned."}, []string{"pool", "queue", "kind", "outcome"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_job_run_seconds", Help: "How long handlers ran.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 4, 11), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100},
			[]string{"pool", "kind"}),
	}
	m.max.Set(float64(workers))
	return m
}

func (m *metrics) ran(c *Claim, s job.State, took time.Duration) {
	m.finished.WithLabelValues(c.Tenant.Pool, c.Record.Queue, c.Record.Kind, s.String()).Inc()
	m.seconds.WithLabelValues(c.Tenant.Pool, c.Record.Kind).Observe(took.Seconds())
}

var (
	usedDesc    = prometheus.NewDesc("tenure_workers_used", "Claims that run, wait for a worker, or are about to be made.", nil, nil)
	deafDesc    = prometheus.NewDesc("tenure_workers_replaced", "Workers that others stand in for, because their handlers go on although their contexts have ended.", nil, nil)
	waitingDesc = prometheus.NewDesc("tenure_workers_backlog", "Claims that wait for a worker.", nil, nil)
)

// Describe implements prometheus.Collector.
func (w *Workers) Describe(ch chan<- *prometheus.Desc) {
	w.metrics.max.Describe(ch)
	w.metrics.finished.Describe(ch)
	w.metrics.seconds.Describe(ch)
	ch <- usedDesc
	ch <- deafDesc
	ch <- waitingDesc
}

// Collect implements prometheus.Collector.
func (w *Workers) Collect(ch chan<- prometheus.Metric) {
	w.metrics.max.Collect(ch)
	w.metrics.finished.Collect(ch)
	w.metrics.seconds.Collect(ch)
	ch <- prometheus.MustNewConstMetric(usedDesc, prometheus.GaugeValue, float64(w.room.used.Load()))
	replaced, _ := w.deafness()
	ch <- prometheus.MustNewConstMetric(deafDesc, prometheus.GaugeValue, float64(replaced))
	w.backlog.mu.Lock()
	size := w.backlog.size + w.backlog.aside
	w.backlog.mu.Unlock()
	ch <- prometheus.MustNewConstMetric(waitingDesc, prometheus.GaugeValue, float64(size))
}
