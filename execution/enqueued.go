package execution

import (
	"cmp"
	"maps"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// mostEnqueuedKinds is of how many kinds a process tells by name how many jobs it has enqueued. A program that runs no
// jobs knows no kinds, and may be given any to enqueue: the others are told of together, in each pool.
const (
	mostEnqueuedKinds = 200
	otherKinds        = "other"
)

// Enqueued counts the jobs that a process has enqueued, and the calls that enqueued nothing as a database was at fault. As of
// queues, a counter of a kind that others have overtaken ends. Safe for concurrent use.
type Enqueued struct {
	desc   *prometheus.Desc
	failed *prometheus.CounterVec

	mu     sync.Mutex
	kinds  busiest[string]        // guarded by mu
	counts map[enqueuedKey]uint64 // guarded by mu
}

type enqueuedKey struct{ pool, kind string }

var _ prometheus.Collector = (*Enqueued)(nil)

// NewEnqueued returns a counter that has counted nothing.
func NewEnqueued() *Enqueued {
	return &Enqueued{
		desc: prometheus.NewDesc("tenure_jobs_enqueued_total",
			"Jobs that this process' client has enqueued, also in transactions that were rolled back; none whose unique key was taken, and none of schedules or of SQL.", []string{"pool", "kind"}, nil),
		failed: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_enqueues_failed_total",
			Help: "Calls of this process' client that a pool's database did not enqueue by, by the code that Postgres gave; none: it gave none, and may be out of reach."}, []string{"pool", "code"}),
		kinds: busiest[string]{most: mostEnqueuedKinds}, counts: map[enqueuedKey]uint64{},
	}
}

// Add counts jobs of a kind.
func (e *Enqueued) Add(pool, kind string, jobs int) {
	if jobs == 0 {
		return
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rank(time.Now())
	if !e.kinds.add(kind, time.Duration(jobs)*leastWork) {
		kind = otherKinds
	}
	e.counts[enqueuedKey{pool, kind}] += uint64(jobs)
}

// CountFailed counts a call that has failed, as the database is at fault, or its caller's transaction.
func (e *Enqueued) CountFailed(pool string, err error) {
	e.failed.WithLabelValues(pool, cmp.Or(sqlState(err), "none")).Inc()
}

// Forget drops what was counted for a pool.
func (e *Enqueued) Forget(pool string) {
	e.failed.DeletePartialMatch(prometheus.Labels{"pool": pool})
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.counts, func(k enqueuedKey, _ uint64) bool { return k.pool == pool })
}

// Describe implements prometheus.Collector.
func (e *Enqueued) Describe(ch chan<- *prometheus.Desc) {
	ch <- e.desc
	e.failed.Describe(ch)
}

// Collect implements prometheus.Collector.
func (e *Enqueued) Collect(ch chan<- prometheus.Metric) {
	e.failed.Collect(ch)
	for k, n := range e.read(time.Now()) { // who enqueues must not wait for who reads
		ch <- prometheus.MustNewConstMetric(e.desc, prometheus.CounterValue, float64(n), k.pool, k.kind)
	}
}

// read returns what has series.
func (e *Enqueued) read(now time.Time) map[enqueuedKey]uint64 {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.rank(now)
	return maps.Clone(e.counts)
}

// rank drops what was counted of kinds that others have overtaken; mu is held.
func (e *Enqueued) rank(now time.Time) {
	for _, ended := range e.kinds.rank(now) {
		if ended != otherKinds {
			maps.DeleteFunc(e.counts, func(k enqueuedKey, _ uint64) bool { return k.kind == ended })
		}
	}
}
