package acquisition

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/admin"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// BenchmarkScrape is what /metrics costs on a node that holds the locks of a thousand pools, in so many of which
// jobs have run, of ten thousand tenants.
func BenchmarkScrape(b *testing.B) {
	for _, busy := range []int{100, 1000} {
		b.Run(fmt.Sprintf("busy=%d", busy), func(b *testing.B) { benchmarkScrape(b, busy) })
	}
}

func benchmarkScrape(b *testing.B, busy int) {
	const pools, tenants = 1000, 10_000
	registry := job.NewRegistry()
	registry.Add(job.Spec{Kind: "mail", Handle: func(context.Context, *job.Record) error { return nil }})
	registry.Freeze()
	workers, err := execution.New(execution.DefaultConfig(), registry, zap.NewNop())
	require.NoError(b, err)
	workers.MeterTenants(100)
	require.NoError(b, workers.Start(b.Context()))
	own := newMetrics()
	own.waiting.tenants = 100
	o := &benchOwner{ctx: b.Context()}
	for i := range tenants {
		pool := fmt.Sprintf("pool-%04d", i%busy)
		tenant := &tenancy.Tenant{ID: tenancy.ID(fmt.Sprintf("tenant-%05d", i)), Pool: pool}
		workers.TakeSlots(1)
		workers.Submit(o, []execution.ClaimedJob{{Owner: o, Tenant: tenant, Ready: time.Now(),
			Record: job.Record{ID: job.ID(i + 1), Kind: "mail", Queue: "default", Tenant: string(tenant.ID), Attempt: 1}}})
	}
	require.Eventually(b, func() bool { return o.ended.Load() == tenants }, time.Minute, time.Millisecond)
	require.NoError(b, workers.Stop(context.WithoutCancel(b.Context())))
	for i := range pools {
		pool := fmt.Sprintf("pool-%04d", i)
		own.held.WithLabelValues(pool).Set(1)
		own.epoch.WithLabelValues(pool).Set(7)
		own.changes.WithLabelValues(pool, "taken").Inc()
		if i >= busy {
			own.waiting.set(pool, waitingPool{})
			continue
		}
		own.claimed.WithLabelValues(pool).Add(100)
		own.assigned.WithLabelValues(pool).Add(100)
		own.claimSeconds.WithLabelValues(pool).Observe(0.003)
		own.fired.WithLabelValues(pool).Add(10)
		own.oldestTransaction.WithLabelValues(pool).Set(1)
		own.waiting.set(pool, waitingPool{
			byKind:   map[string]store.WaitingJobs{"mail": {Jobs: 3, Oldest: time.Second}},
			byTenant: map[string]store.WaitingJobs{fmt.Sprintf("tenant-%05d", i): {Jobs: 3, Oldest: time.Second}},
			limits:   map[schedule.LimitName]int{{Scope: store.ScopeKind, Name: "mail"}: 1},
		})
	}
	all := prometheus.NewRegistry()
	all.MustRegister(workers.Metrics(), own)
	handler := admin.Handler(func() []string { return nil }, func() string { return "" }, all)
	for _, encoding := range []string{"identity", "gzip"} {
		b.Run(encoding, func(b *testing.B) {
			b.ReportAllocs()
			size, before := 0, processorTime(b)
			for b.Loop() {
				request := httptest.NewRequest(http.MethodGet, "/metrics", nil)
				request.Header.Set("Accept-Encoding", encoding)
				answer := httptest.NewRecorder()
				handler.ServeHTTP(answer, request)
				require.Equal(b, http.StatusOK, answer.Code)
				size = answer.Body.Len()
			}
			b.ReportMetric(float64(size), "bytes")
			b.ReportMetric((processorTime(b)-before).Seconds()*1000/float64(b.N), "cpu-ms/op") // tells more than the time where others work, too
		})
	}
}

// processorTime is what this process has had.
func processorTime(b *testing.B) time.Duration {
	var used syscall.Rusage
	require.NoError(b, syscall.Getrusage(syscall.RUSAGE_SELF, &used))
	return time.Duration(used.Utime.Nano() + used.Stime.Nano())
}

// benchOwner takes ends and does nothing with them.
type benchOwner struct {
	ctx   context.Context
	ended atomic.Int64
}

var _ execution.Owner = (*benchOwner)(nil)

func (o *benchOwner) Context() context.Context                               { return o.ctx }
func (*benchOwner) MayStart() bool                                           { return true }
func (*benchOwner) Tenants() execution.Conns                                 { return nil }
func (*benchOwner) FinishInTx([]*execution.ClaimedJob) string                { return "" }
func (*benchOwner) FinishError(err error) error                              { return err }
func (*benchOwner) TryFinish(context.Context, []*execution.ClaimedJob) error { return nil }
func (*benchOwner) FinishedInTx(*execution.ClaimedJob)                       {}
func (o *benchOwner) Finish(*execution.ClaimedJob, job.Outcome)              { o.ended.Add(1) }
func (o *benchOwner) Return(*execution.ClaimedJob)                           {}
func (*benchOwner) Reported(*execution.ClaimedJob)                           {}
func (*benchOwner) CapacityAvailable()                                       {}
