package acquisition

import (
	"cmp"
	"context"
	"maps"
	"slices"
	"sync"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// Bounds of series.
const (
	mostKinds = 100     // of a pool that what waits is told of by name
	others    = "other" // what the rest is called
)

// waitingMetrics is what waits in the pools whose lock this node holds, as it was counted last. Safe for
// concurrent use.
type waitingMetrics struct {
	tenants int // of so many with most it is told what waits, and of the others together; 0: of none

	mu    sync.Mutex
	pools map[string]waitingPool // guarded by mu; replaced, never written

	jobs, oldest, retrying, dead, limits, shareRunning, share, ofTenant, oldestOfTenant *prometheus.Desc
}

// waitingPool is what waits in a pool, what is tried again, and how many dead letters it has.
type waitingPool struct {
	dead                       int64
	byKind, byTenant, retrying map[string]store.WaitingJobs
	limits                     map[schedule.LimitName]int
	shares                     map[schedule.LimitName]schedule.ShareUse
}

var _ prometheus.Collector = (*waitingMetrics)(nil)

func newWaitingMetrics() *waitingMetrics {
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(name, help, labels, nil)
	}
	return &waitingMetrics{
		pools: map[string]waitingPool{},
		jobs: desc("tenure_jobs_waiting",
			"Jobs that could start and that no node or external worker has, as the lock's holder counts them four times a minute while there is work, and else every five minutes; beyond some ten thousand it is an estimate.", "pool", "kind"),
		oldest:         desc("tenure_oldest_waiting_seconds", "For how long the oldest of them has waited.", "pool", "kind"),
		dead:           desc("tenure_dead_letters", "Dead letters, as the lock's holder counts them four times a minute while there is work, and else every five minutes; beyond ten thousand it is an estimate.", "pool"),
		retrying:       desc("tenure_jobs_retrying", "Jobs that have failed and wait for their next attempt, of the twenty thousand timers that are due first, counted likewise.", "pool", "kind"),
		limits:         desc("tenure_limits_waited_for", "Limits that jobs wait for: of tenants, with scope tenant, queue, kind or key, and of the cluster, with scope cluster queue or cluster kind; and the name of the queue or kind.", "pool", "scope", "name"),
		shareRunning:   desc("tenure_cluster_limit_running", "Jobs in flight in the pool that a limit of the cluster counts.", "pool", "scope", "name"),
		share:          desc("tenure_cluster_limit_share", "How many may be: the pool's share of the limit.", "pool", "scope", "name"),
		ofTenant:       desc("tenure_tenant_jobs_waiting", "Likewise by tenant: see node.tenant_metrics.", "tenant"),
		oldestOfTenant: desc("tenure_tenant_oldest_waiting_seconds", "Likewise by tenant: see node.tenant_metrics.", "tenant"),
	}
}

// set takes in what waits in a pool.
func (w *waitingMetrics) set(pool string, p waitingPool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if before, known := w.pools[pool]; known { // that nothing of a kind waits any more is to be seen
		p.byKind, p.retrying = withEnded(p.byKind, before.byKind), withEnded(p.retrying, before.retrying)
	}
	p.byKind, p.retrying = foldRest(p.byKind, mostKinds), foldRest(p.retrying, mostKinds)
	w.pools[pool] = p
}

// withEnded are the kinds of now, and with no jobs those that there were before and are not any more.
func withEnded(now, before map[string]store.WaitingJobs) map[string]store.WaitingJobs {
	all := maps.Clone(before)
	for kind := range all {
		all[kind] = store.WaitingJobs{}
	}
	if all == nil {
		return now
	}
	maps.Copy(all, now)
	return all
}

// count counts what waits in a pool, and its dead letters.
func (w *waitingMetrics) count(ctx context.Context, db store.DB) (p waitingPool, err error) {
	if p.byKind, p.byTenant, err = store.CountWaiting(ctx, db); err != nil {
		return p, err
	}
	if w.tenants == 0 {
		p.byTenant = nil
	}
	failed, err := store.ListRetrying(ctx, db, 1)
	if err != nil {
		return p, err
	}
	p.retrying = map[string]store.WaitingJobs{}
	for _, r := range failed {
		p.retrying[r.Kind] = store.WaitingJobs{Jobs: r.Jobs}
	}
	p.dead, err = store.CountDead(ctx, db)
	return p, err
}

// forget drops what is known of a pool: another node holds its lock.
func (w *waitingMetrics) forget(pool string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.pools, pool)
}

// foldRest leaves those apart of which most waits, up to so many, and adds up the rest.
func foldRest(all map[string]store.WaitingJobs, most int) map[string]store.WaitingJobs {
	if len(all) <= most {
		return all
	}
	names := slices.SortedFunc(maps.Keys(all), func(a, b string) int {
		return cmp.Or(cmp.Compare(all[b].Jobs, all[a].Jobs), cmp.Compare(a, b))
	})
	out := make(map[string]store.WaitingJobs, most+1)
	for _, name := range names[:most] {
		out[name] = all[name]
	}
	rest := out[others] // one may be called so
	for _, name := range names[most:] {
		rest.Jobs += all[name].Jobs
		rest.Oldest = max(rest.Oldest, all[name].Oldest)
	}
	out[others] = rest
	return out
}

// Describe implements prometheus.Collector.
func (w *waitingMetrics) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{w.jobs, w.oldest, w.retrying, w.dead, w.limits, w.shareRunning, w.share, w.ofTenant, w.oldestOfTenant} {
		ch <- d
	}
}

// Collect implements prometheus.Collector.
func (w *waitingMetrics) Collect(ch chan<- prometheus.Metric) {
	w.mu.Lock()
	pools := maps.Clone(w.pools)
	w.mu.Unlock()
	tenants := map[string]store.WaitingJobs{}
	for pool, p := range pools {
		ch <- prometheus.MustNewConstMetric(w.dead, prometheus.GaugeValue, float64(p.dead), pool)
		for kind, n := range p.byKind {
			ch <- prometheus.MustNewConstMetric(w.jobs, prometheus.GaugeValue, float64(n.Jobs), pool, kind)
			ch <- prometheus.MustNewConstMetric(w.oldest, prometheus.GaugeValue, n.Oldest.Seconds(), pool, kind)
		}
		for kind, n := range p.retrying {
			ch <- prometheus.MustNewConstMetric(w.retrying, prometheus.GaugeValue, float64(n.Jobs), pool, kind)
		}
		for l, n := range p.limits {
			ch <- prometheus.MustNewConstMetric(w.limits, prometheus.GaugeValue, float64(n), pool, string(l.Scope), l.Name)
		}
		for l, use := range p.shares {
			ch <- prometheus.MustNewConstMetric(w.shareRunning, prometheus.GaugeValue, float64(use.Running), pool, string(l.Scope), l.Name)
			ch <- prometheus.MustNewConstMetric(w.share, prometheus.GaugeValue, float64(use.Most), pool, string(l.Scope), l.Name)
		}
		if w.tenants > 0 {
			for tenant, n := range p.byTenant { // one that is being moved may have some in two
				had := tenants[tenant]
				tenants[tenant] = store.WaitingJobs{Jobs: had.Jobs + n.Jobs, Oldest: max(had.Oldest, n.Oldest)}
			}
		}
	}
	for tenant, n := range foldRest(tenants, w.tenants) {
		ch <- prometheus.MustNewConstMetric(w.ofTenant, prometheus.GaugeValue, float64(n.Jobs), tenant)
		ch <- prometheus.MustNewConstMetric(w.oldestOfTenant, prometheus.GaugeValue, n.Oldest.Seconds(), tenant)
	}
}
