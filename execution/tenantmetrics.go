package execution

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/job"
)

// otherTenants is what the tenants are called together that have no series of their own. A tenant may be
// called so, too, and is counted with them.
const otherTenants = "other"

// tenantMetrics counts what jobs of tenants do, in a bounded number of series: each of the tenants with
// most work has its own, from when it has come to be one of them, and the others have some together. No
// series ever falls: one of a tenant that has less work than others ends, and begins at zero when it
// comes back. Safe for concurrent use.
type tenantMetrics struct {
	finished, seconds *prometheus.Desc

	mu      sync.Mutex
	busiest busiest[string] // guarded by mu; none has series: nobody is counted
	counts  map[string]*tenantCounts
	other   tenantCounts
}

// tenantCounts is what was counted.
type tenantCounts struct {
	ended [job.Returned + 1]uint64
	took  time.Duration
}

func (c *tenantCounts) add(s job.State, took time.Duration) {
	c.ended[s]++
	c.took += took
}

var _ prometheus.Collector = (*tenantMetrics)(nil)

func newTenantMetrics() *tenantMetrics {
	return &tenantMetrics{
		finished: prometheus.NewDesc("tenure_tenant_jobs_finished_total", "Runs by outcome, of the tenants with most work and of all others together: see node.tenant_metrics.",
			[]string{"tenant", "outcome"}, nil),
		seconds: prometheus.NewDesc("tenure_tenant_run_seconds_total", "How long their handlers ran; a call of a batch handler is shared out among its jobs.",
			[]string{"tenant"}, nil),
		counts: map[string]*tenantCounts{},
	}
}

// countEnd counts a run that has ended.
func (m *tenantMetrics) countEnd(tenant string, s job.State, took time.Duration) {
	if m.busiest.most == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.busiest.add(tenant, took) || tenant == otherTenants {
		m.other.add(s, took)
		return
	}
	c := m.counts[tenant]
	if c == nil {
		c = &tenantCounts{}
		m.counts[tenant] = c
	}
	c.add(s, took)
}

// Describe implements prometheus.Collector.
func (m *tenantMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.finished
	ch <- m.seconds
}

// Collect implements prometheus.Collector.
func (m *tenantMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.busiest.most == 0 {
		return
	}
	for tenant, c := range m.read(time.Now()) { // runs must not wait for who reads
		m.collect(ch, tenant, &c)
	}
}

// read returns what has series, by tenant.
func (m *tenantMetrics) read(now time.Time) map[string]tenantCounts {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, tenant := range m.busiest.rank(now) {
		delete(m.counts, tenant)
	}
	all := map[string]tenantCounts{otherTenants: m.other}
	for tenant, c := range m.counts {
		all[tenant] = *c
	}
	return all
}

func (m *tenantMetrics) collect(ch chan<- prometheus.Metric, tenant string, c *tenantCounts) {
	any := false
	for s := job.Done; s <= job.Returned; s++ {
		if n := c.ended[s]; n > 0 {
			any = true
			ch <- prometheus.MustNewConstMetric(m.finished, prometheus.CounterValue, float64(n), tenant, s.String())
		}
	}
	if any {
		ch <- prometheus.MustNewConstMetric(m.seconds, prometheus.CounterValue, c.took.Seconds(), tenant)
	}
}
