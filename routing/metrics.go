package routing

import (
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
)

// What connections are for, beside the lock's, of which there is one.
const (
	forJobs    = "jobs"
	forTenants = "tenants"
)

var (
	byPurpose = []string{"pool", "purpose"}

	poolUp       = prometheus.NewDesc("tenure_pool_up", "1 while this node can work on the pool's database, 0 when it has not reached it for a while or is refused.", []string{"pool"}, nil)
	connections  = prometheus.NewDesc("tenure_connections", "Connections of this node to the pool's database for jobs' bookkeeping (purpose jobs) and for tenants' transactions (tenants): in_use and idle.", append(byPurpose, "state"), nil)
	mostConns    = prometheus.NewDesc("tenure_connections_max", "As many there may be.", byPurpose, nil)
	tenantsUp    = prometheus.NewDesc("tenure_tenant_connections_up", "0 while this node cannot connect to the pool's database for tenants' transactions, by tenant_dsn if the pool has one; 1 else.", []string{"pool"}, nil)
	connWaits    = prometheus.NewDesc("tenure_connection_waits_total", "Waits for a connection: until one was idle, or opened, or the tenant's share had room.", byPurpose, nil)
	connWaitTime = prometheus.NewDesc("tenure_connection_wait_seconds_total", "How long they took.", byPurpose, nil)
)

// Describe implements prometheus.Collector.
func (r *Router) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{poolUp, connections, mostConns, tenantsUp, connWaits, connWaitTime} {
		ch <- d
	}
	r.timelines.Metrics().Describe(ch)
}

// Collect implements prometheus.Collector.
func (r *Router) Collect(ch chan<- prometheus.Metric) {
	for _, p := range r.Pools() {
		up := 1.0
		if p.Unusable() != nil {
			up = 0
		}
		ch <- prometheus.MustNewConstMetric(poolUp, prometheus.GaugeValue, up, p.Name)
		p.collectConns(ch)
	}
	r.timelines.Metrics().Collect(ch)
}

// collectConns tells of the connections of a pool, as far as any was ever wanted.
func (p *Pool) collectConns(ch chan<- prometheus.Metric) {
	p.conns.mu.Lock()
	jobs, tenants := p.conns.jobs, p.conns.tenants.db
	p.conns.mu.Unlock()
	if jobs != nil {
		p.collectUse(ch, forJobs, jobs.Stat(), p.conns.admission.waits.count.Load(), time.Duration(p.conns.admission.waits.took.Load()))
	}
	if tenants != nil {
		t := &p.conns.tenants // set before its db, and not changed since
		up := 1.0
		if t.admission.failing.Load() {
			up = 0
		}
		ch <- prometheus.MustNewConstMetric(tenantsUp, prometheus.GaugeValue, up, p.Name)
		p.collectUse(ch, forTenants, tenants.Stat(), t.admission.waits.count.Load()+t.shares.waits.count.Load(), time.Duration(t.admission.waits.took.Load()+t.shares.waits.took.Load()))
	}
}

// collectUse tells of the connections of one purpose, for which callers waited so often and so long before they came to pgxpool.
func (p *Pool) collectUse(ch chan<- prometheus.Metric, purpose string, s *pgxpool.Stat, waits int64, took time.Duration) {
	say := func(d *prometheus.Desc, kind prometheus.ValueType, v float64, more ...string) {
		ch <- prometheus.MustNewConstMetric(d, kind, v, append([]string{p.Name, purpose}, more...)...)
	}
	say(connections, prometheus.GaugeValue, float64(s.AcquiredConns()), "in_use")
	say(connections, prometheus.GaugeValue, float64(s.IdleConns()), "idle")
	say(mostConns, prometheus.GaugeValue, float64(s.MaxConns()))
	say(connWaits, prometheus.CounterValue, float64(s.EmptyAcquireCount()+waits))
	say(connWaitTime, prometheus.CounterValue, (s.EmptyAcquireWaitTime() + took).Seconds())
}

// waits counts callers who had to wait. Safe for concurrent use.
type waits struct{ count, took atomic.Int64 }

// note counts one that has waited since.
func (w *waits) note(since time.Time) {
	w.count.Add(1)
	w.took.Add(int64(time.Since(since)))
}
