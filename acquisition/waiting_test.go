package acquisition

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// gatherGauges returns what a collector says, by name and labels' values.
func gatherGauges(t testing.TB, c prometheus.Collector) map[string]float64 {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(c))
	families, err := r.Gather()
	require.NoError(t, err)
	out := map[string]float64{}
	for _, f := range families {
		for _, one := range f.Metric {
			name := f.GetName()
			for _, l := range one.Label {
				name += " " + l.GetValue()
			}
			out[name] = one.GetGauge().GetValue()
		}
	}
	return out
}

// What waits is told by kind and tenant as it was counted last. That nothing of a kind waits any more is
// seen, and nothing is told of a pool whose lock another node holds.
func TestWaitingMetrics(t *testing.T) {
	t.Parallel()
	w := newWaitingMetrics()
	w.tenants = 1
	w.set("p1", waitingPool{
		dead:     2,
		retrying: map[string]store.WaitingJobs{"mail": {Jobs: 9}},
		byKind:   map[string]store.WaitingJobs{"mail": {Jobs: 3, Oldest: time.Minute}},
		byTenant: map[string]store.WaitingJobs{"acme": {Jobs: 2, Oldest: time.Minute}, "globex": {Jobs: 1, Oldest: time.Second}},
		limits:   map[schedule.LimitName]int{{Scope: store.ScopeKind, Name: "mail"}: 7},
		shares:   map[schedule.LimitName]schedule.ShareUse{{Scope: store.ScopeClusterKind, Name: "mail"}: {Running: 4, Most: 5}},
	})
	w.set("p2", waitingPool{byTenant: map[string]store.WaitingJobs{"acme": {Jobs: 1, Oldest: time.Hour}}})
	require.Equal(t, map[string]float64{
		"tenure_dead_letters p1": 2, "tenure_dead_letters p2": 0, "tenure_jobs_waiting mail p1": 3, "tenure_jobs_retrying mail p1": 9, "tenure_oldest_waiting_seconds mail p1": 60, "tenure_limits_waited_for mail p1 kind": 7,
		"tenure_cluster_limit_running mail p1 cluster kind": 4, "tenure_cluster_limit_share mail p1 cluster kind": 5,
		"tenure_tenant_jobs_waiting acme": 3, "tenure_tenant_oldest_waiting_seconds acme": 3600,
		"tenure_tenant_jobs_waiting other": 1, "tenure_tenant_oldest_waiting_seconds other": 1,
	}, gatherGauges(t, w))
	w.set("p1", waitingPool{})
	w.forget("p2")
	require.Equal(t, map[string]float64{"tenure_dead_letters p1": 0, "tenure_jobs_waiting mail p1": 0, "tenure_jobs_retrying mail p1": 0, "tenure_oldest_waiting_seconds mail p1": 0}, gatherGauges(t, w))
}

// Of the timers those count that have failed.
func TestCountWhatIsTriedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	b.exec("INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at, attempt) SELECT 'acme', 'default', 'mail', '{}', now() + interval '1 h', n FROM generate_series(0, 2) n")
	p, err := newWaitingMetrics().count(t.Context(), b.db)
	require.NoError(t, err)
	require.Equal(t, map[string]store.WaitingJobs{"mail": {Jobs: 2}}, p.retrying)
}

// However many tenants and kinds there are, the series are bounded, and what they say adds up.
func TestWaitingMetricsOfTenThousandTenants(t *testing.T) {
	t.Parallel()
	w := newWaitingMetrics()
	w.tenants = 100
	many := func(prefix string, n int) map[string]store.WaitingJobs {
		all := map[string]store.WaitingJobs{}
		for i := range n {
			all[fmt.Sprintf("%s-%05d", prefix, i)] = store.WaitingJobs{Jobs: i}
		}
		return all
	}
	for pool := range 2 {
		w.set(fmt.Sprint(pool), waitingPool{byKind: many("kind", 1000), byTenant: many(fmt.Sprint("tenant", pool), 5000)})
	}
	said := gatherGauges(t, w)
	require.Len(t, said, 2+2*101+2*2*101)
	sum := 0.0
	for name, n := range said {
		if len(name) > 26 && name[:26] == "tenure_tenant_jobs_waiting" {
			sum += n
		}
	}
	require.Equal(t, float64(2*4999*5000/2), sum)
	require.Equal(t, 4999.0, said["tenure_tenant_jobs_waiting tenant0-04999"])
}
