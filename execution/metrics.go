package execution

import (
	"errors"
	"maps"
	"strings"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"

	"github.com/tenurehq/tenure/job"
)

// metrics is what the workers tell an operator.
type metrics struct {
	*prometheus.Registry // of these, and of gauges that are read when they are collected

	started   *prometheus.CounterVec
	finished  *prometheus.CounterVec
	wait      *prometheus.HistogramVec
	seconds   *prometheus.HistogramVec
	conflicts *prometheus.CounterVec
	tenants   *tenantMetrics

	mu     sync.Mutex
	runs   map[runKey]*runMetrics // guarded by mu
	queues busiest[queueKey]      // guarded by mu
}

// timeBuckets are 1 ms to 2 h 20 min, by two: a percentile that is read off them is wrong by less than half. Prometheus
// that scrapes native histograms gets those, which are finer.
var timeBuckets = prometheus.ExponentialBuckets(0.001, 2, 24)

// runKey is what runs have their series by.
type runKey struct{ pool, queue, kind string }

// queueKey is a queue in a pool. Anybody who enqueues may make one up: those with most runs have series of their own, and the
// others some together, in each pool.
type queueKey struct{ pool, queue string }

const (
	mostQueues  = 200
	otherQueues = "other"
)

// runMetrics are the series of runs of a kind, found once for many. What is counted after its pool was forgotten
// is lost.
type runMetrics struct {
	started, done prometheus.Counter
	wait, seconds prometheus.Observer
}

func newMetrics(w *Workers) *metrics {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	gauge := func(name, help string, read func() int) {
		register.NewGaugeFunc(prometheus.GaugeOpts{Name: name, Help: help}, func() float64 { return float64(read()) })
	}
	gauge("tenure_workers_max", "Handlers that may run at a time on this node.", func() int { return w.cfg.Workers })
	gauge("tenure_workers_used", "Claims that run, wait for a worker, or are about to be made.", func() int { return int(w.capacity.used.Load()) })
	gauge("tenure_workers_backlog", "Claims that wait for a worker.", func() int { return w.backlog.countWaiting() })
	gauge("tenure_workers_replaced", "Workers that others stand in for, because their handlers go on although their contexts have ended.", func() int {
		replaced, _ := w.countStuck()
		return replaced
	})
	var outcomes []string
	for s := job.Done; s <= job.Returned; s++ {
		outcomes = append(outcomes, s.String())
	}
	tenants := newTenantMetrics()
	all.MustRegister(tenants)
	return &metrics{
		Registry: all, tenants: tenants, runs: map[runKey]*runMetrics{}, queues: busiest[queueKey]{most: mostQueues},
		started: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_started_total", Help: "Runs that were begun."}, []string{"pool", "queue", "kind"}),
		wait: register.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_job_wait_seconds", Help: "For how long jobs had waited when their runs began, since they could start.",
			Buckets: timeBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100},
			[]string{"pool", "kind"}),
		finished: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_finished_total",
			Help: "Runs by outcome: " + strings.Join(outcomes, ", ") + "."}, []string{"pool", "queue", "kind", "outcome"}),
		seconds: register.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_job_run_seconds", Help: "How long handlers ran; a call of a batch handler counts once.",
			Buckets: timeBuckets, NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100},
			[]string{"pool", "kind"}),
		conflicts: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_job_conflicts_total",
			Help: "Handlers' transactions that ended by a serialization failure or a deadlock of their own database."}, []string{"pool", "kind"}),
	}
}

// forget drops what was counted for a pool.
func (m *metrics) forget(pool string) {
	m.mu.Lock() // until all is dropped: none is found meanwhile that is about to be
	defer m.mu.Unlock()
	maps.DeleteFunc(m.runs, func(k runKey, _ *runMetrics) bool { return k.pool == pool })
	by := prometheus.Labels{"pool": pool}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.started, m.finished, m.wait, m.seconds, m.conflicts} {
		v.DeletePartialMatch(by)
	}
}

// prepare finds the series of claims that are to run.
func (m *metrics) prepare(claims []ClaimedJob) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, ended := range m.queues.rank(time.Now()) {
		m.forgetQueue(ended)
	}
	var of runKey
	var r *runMetrics
	for i := range claims {
		c := &claims[i]
		if k := (runKey{c.Tenant.Pool, c.Record.Queue, c.Record.Kind}); r == nil || k != of {
			of = k
			if !m.queues.add(queueKey{k.pool, k.queue}, leastWork) {
				k.queue = otherQueues
			}
			r = m.find(k)
		}
		c.metrics = r
	}
}

// forgetQueue drops what was counted for a queue that has less to do than others; mu is held.
func (m *metrics) forgetQueue(q queueKey) {
	if q.queue == otherQueues {
		return
	}
	maps.DeleteFunc(m.runs, func(k runKey, _ *runMetrics) bool { return k.pool == q.pool && k.queue == q.queue })
	by := prometheus.Labels{"pool": q.pool, "queue": q.queue}
	m.started.DeletePartialMatch(by)
	m.finished.DeletePartialMatch(by)
}

// find returns the series of runs; mu is held.
func (m *metrics) find(k runKey) *runMetrics {
	r := m.runs[k]
	if r == nil {
		r = &runMetrics{
			started: m.started.WithLabelValues(k.pool, k.queue, k.kind),
			done:    m.finished.WithLabelValues(k.pool, k.queue, k.kind, job.Done.String()),
			wait:    m.wait.WithLabelValues(k.pool, k.kind),
			seconds: m.seconds.WithLabelValues(k.pool, k.kind),
		}
		m.runs[k] = r
	}
	return r
}

func (m *metrics) countStart(c *ClaimedJob) {
	c.metrics.started.Inc()
	if !c.Ready.IsZero() {
		c.metrics.wait.Observe(max(c.began.Sub(c.Ready).Seconds(), 0))
	}
}

// countEnd counts how a run ended: put_off, where the job waits for something that is missing.
func (m *metrics) countEnd(c *ClaimedJob, o *job.Outcome, took time.Duration) {
	m.tenants.countEnd(c.Record.Tenant, o.State, took)
	if o.State == job.Done {
		c.metrics.done.Inc()
		return
	}
	queue := otherQueues
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.queues.has(queueKey{c.Tenant.Pool, c.Record.Queue}) {
		queue = c.Record.Queue
	}
	outcome := o.State.String()
	if o.State == job.Snoozed && o.Err != nil && !errors.Is(o.Err, ErrConflict) {
		outcome = "put_off"
	}
	m.finished.WithLabelValues(c.Tenant.Pool, queue, c.Record.Kind, outcome).Inc()
}
