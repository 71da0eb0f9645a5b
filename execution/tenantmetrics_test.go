package execution

import (
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// gatherTenants returns the series of tenants, by tenant and, for counters of runs, outcome.
func gatherTenants(t require.TestingT, m *tenantMetrics) (series map[string]float64) {
	r := prometheus.NewPedanticRegistry()
	require.NoError(t, r.Register(m))
	families, err := r.Gather()
	require.NoError(t, err)
	series = map[string]float64{}
	for _, f := range families {
		for _, one := range f.Metric {
			series[f.GetName()+labelsOf(one)] = one.GetCounter().GetValue()
		}
	}
	return series
}

func labelsOf(m *dto.Metric) (text string) {
	for _, l := range m.Label {
		text += " " + l.GetValue()
	}
	return text
}

// With ten thousand tenants there are less than two thousand series: of the hundred with most work, also
// if they came late, and of the others together. Nothing is counted twice, and what was counted of
// others does not go.
func TestMetricsOfTenThousandTenants(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		m := newTenantMetrics()
		m.busiest.most = 100
		const tenants = 10_000
		all := func() {
			for i := range tenants {
				for s := job.Done; s <= job.Returned; s++ {
					took := time.Millisecond
					if i >= tenants-100 { // those that come last work hardest
						took = time.Second
					}
					m.countEnd(fmt.Sprintf("tenant-%05d", i), s, took)
				}
			}
		}
		all()
		before := gatherTenants(t, m)
		require.Len(t, before, 101*(int(job.Returned)+1), "its outcomes, and the time")
		require.Equal(t, float64(tenants-100), before["tenure_tenant_jobs_finished_total done other"])
		time.Sleep(rankEvery)
		gatherTenants(t, m)
		all()
		after := gatherTenants(t, m)
		require.Len(t, after, 101*(int(job.Returned)+1), "its outcomes, and the time")
		require.Less(t, len(after), 2000)
		for i := range 100 {
			tenant := fmt.Sprintf("tenant-%05d", tenants-1-i)
			require.Equal(t, 1.0, after["tenure_tenant_jobs_finished_total done "+tenant], "from when it has a series")
			require.InDelta(t, float64(job.Returned), after["tenure_tenant_run_seconds_total "+tenant], 0.001)
		}
		require.Equal(t, float64(2*(tenants-100)), after["tenure_tenant_jobs_finished_total done other"])
	})
}

func TestMetricsOfTenants_offAndAll(t *testing.T) {
	t.Parallel()
	for most, want := range map[int]int{0: 0, 1 << 62: 1000 * 2} {
		m := newTenantMetrics()
		m.busiest.most = most
		for i := range 1000 {
			m.countEnd(fmt.Sprint(i), job.Done, time.Millisecond)
		}
		require.Len(t, gatherTenants(t, m), want)
	}
}

// Whatever tenants do, and whenever it is looked: series are bounded, none falls while it is there, the one
// of the others never goes, and no more is known of tenants than of those that worked lately.
func TestSeriesOfTenantsNeverFall(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		m := newTenantMetrics()
		m.busiest.most = rapid.IntRange(1, 4).Draw(rt, "most")
		now, last, total := time.Now(), map[string]tenantCounts{}, 0
		for range rapid.IntRange(1, 40).Draw(rt, "steps") {
			for range rapid.IntRange(0, 5).Draw(rt, "runs") {
				tenant := rapid.SampledFrom([]string{"a", "b", "c", "d", "e", "f", otherTenants}).Draw(rt, "tenant")
				m.countEnd(tenant, job.Done, rapid.SampledFrom([]time.Duration{0, time.Second, time.Hour}).Draw(rt, "took"))
				total++
			}
			now = now.Add(rapid.SampledFrom([]time.Duration{0, rankEvery, time.Hour, 1000 * time.Hour}).Draw(rt, "passed"))
			seen := m.read(now)
			if len(seen) > m.busiest.most+1 {
				rt.Fatalf("%d series, and %d are allowed", len(seen), m.busiest.most+1)
			}
			sum := uint64(0)
			for tenant, c := range seen {
				if before, was := last[tenant]; was && (c.ended[job.Done] < before.ended[job.Done] || c.took < before.took) && c != (tenantCounts{}) {
					rt.Fatalf("%s falls from %v to %v", tenant, before, c)
				}
				sum += c.ended[job.Done]
			}
			if sum > uint64(total) {
				rt.Fatalf("%d were counted of %d", sum, total)
			}
			last = seen
		}
		m.read(now.Add(1000 * time.Hour))
		if len(m.busiest.byName) > m.busiest.most {
			rt.Fatalf("%d tenants are remembered", len(m.busiest.byName))
		}
	})
}

// BenchmarkTenantMetrics is what counting a run's end by tenant costs.
func BenchmarkTenantMetrics(b *testing.B) {
	m := newTenantMetrics()
	m.busiest.most = 100
	names := make([]string, 10_000)
	for i := range names {
		names[i] = fmt.Sprintf("tenant-%05d", i)
	}
	i := 0
	for b.Loop() {
		m.countEnd(names[i%len(names)], job.Done, time.Millisecond)
		i++
	}
}

// Twenty thousand queues, as a tenant's role may enqueue to, have no more series than two hundred and one; those that have most runs have
// their own, also if they came late.
func TestMetricsOfTwentyThousandQueues(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w, err := New(DefaultConfig(), job.NewRegistry(), zap.NewNop())
		require.NoError(t, err)
		m := w.metrics
		run := func(queue string) {
			claims := []ClaimedJob{{Tenant: &tenancy.Tenant{Pool: "p"}, Record: job.Record{Queue: queue, Kind: "k"}}}
			m.prepare(claims)
			m.countStart(&claims[0])
			m.countEnd(&claims[0], &job.Outcome{State: job.Dead}, time.Millisecond)
		}
		series := func() (all map[string]float64) {
			all = map[string]float64{}
			families, err := m.Gather()
			require.NoError(t, err)
			for _, f := range families {
				for _, one := range f.Metric {
					all[f.GetName()+labelsOf(one)] = one.GetCounter().GetValue()
				}
			}
			return all
		}
		const queues = 20_000
		for i := range queues {
			run(fmt.Sprint("made-up-", i))
		}
		before := len(series())
		require.Less(t, before, 4*(mostQueues+1))
		for range 5 {
			run("late")
		}
		time.Sleep(rankEvery)
		run("late")
		after := series()
		require.LessOrEqual(t, len(after), before)
		require.Equal(t, 1.0, after["tenure_jobs_started_total k p late"], "from when it has series")
		require.Equal(t, 1.0, after["tenure_jobs_finished_total k dead p late"])
		require.Less(t, len(m.queues.byName), 2*mostQueues, "idle ones are forgotten")
		require.Less(t, len(m.runs), 2*mostQueues)
	})
}
