package execution

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/job"
)

// otherTenants is what the tenants are called together that have no series of their own. A tenant may be
// called so, too, and is counted with them.
const otherTenants = "other"

// What decides which tenants have series of their own: the work that they had lately.
const (
	workHalves  = 5 * time.Minute
	rankEvery   = workHalves / 30
	leastWork   = rankEvery / 10_000 // that a run counts as, and below which a tenant is forgotten
	namedFactor = 1.5                // by which others must have more work than one that has series
)

// tenantMetrics counts what jobs of tenants do, in a bounded number of series: each of the tenants with
// most work has its own, from when it has come to be one of them, and the others have some together. No
// series ever falls: one of a tenant that has less work than others ends, and begins at zero when it
// comes back. Safe for concurrent use.
type tenantMetrics struct {
	finished, seconds *prometheus.Desc

	mu       sync.Mutex
	most     int // tenants with series of their own; 0: nobody is counted
	named    int // guarded by mu; that have
	byTenant map[string]*tenantAccount
	other    tenantCounts
	ranked   time.Time // guarded by mu
}

// tenantAccount is what is known of a tenant.
type tenantAccount struct {
	work   time.Duration // lately
	named  bool
	counts tenantCounts // since it is
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
		byTenant: map[string]*tenantAccount{},
	}
}

// countEnd counts a run that has ended.
func (m *tenantMetrics) countEnd(tenant string, s job.State, took time.Duration) {
	if m.most == 0 {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	a := m.byTenant[tenant]
	if a == nil {
		a = &tenantAccount{}
		m.byTenant[tenant] = a
		m.name(a, tenant)
	}
	a.work += max(took, leastWork)
	if a.named {
		a.counts.add(s, took)
	} else {
		m.other.add(s, took)
	}
}

// name gives a tenant series of its own if there is room; mu is held.
func (m *tenantMetrics) name(a *tenantAccount, tenant string) {
	if m.named < m.most && tenant != otherTenants {
		a.named = true
		m.named++
	}
}

// rank has those tenants have series that have most work now; mu is held.
func (m *tenantMetrics) rank(now time.Time) {
	if m.ranked.IsZero() {
		m.ranked = now
	}
	passed := now.Sub(m.ranked)
	if passed < rankEvery {
		return
	}
	m.ranked = now
	left := math.Exp2(-passed.Seconds() / workHalves.Seconds())
	for tenant, a := range m.byTenant {
		a.work = time.Duration(float64(a.work) * left)
		if a.work < leastWork && !a.named {
			delete(m.byTenant, tenant)
		}
	}
	if len(m.byTenant) <= m.most {
		for tenant, a := range m.byTenant {
			if !a.named {
				m.name(a, tenant)
			}
		}
		return
	}
	weigh := func(a *tenantAccount) float64 {
		if a.named {
			return float64(a.work) * namedFactor
		}
		return float64(a.work)
	}
	order := slices.SortedFunc(maps.Keys(m.byTenant), func(a, b string) int {
		return cmp.Or(cmp.Compare(weigh(m.byTenant[b]), weigh(m.byTenant[a])), cmp.Compare(a, b))
	})
	m.named = 0
	for i, tenant := range order {
		a := m.byTenant[tenant]
		if i >= m.most || tenant == otherTenants {
			*a = tenantAccount{work: a.work}
			continue
		}
		a.named = true
		m.named++
	}
}

// Describe implements prometheus.Collector.
func (m *tenantMetrics) Describe(ch chan<- *prometheus.Desc) {
	ch <- m.finished
	ch <- m.seconds
}

// Collect implements prometheus.Collector.
func (m *tenantMetrics) Collect(ch chan<- prometheus.Metric) {
	if m.most == 0 {
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
	m.rank(now)
	all := map[string]tenantCounts{otherTenants: m.other}
	for tenant, a := range m.byTenant {
		if a.named {
			all[tenant] = a.counts
		}
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
