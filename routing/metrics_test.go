package routing

import (
	"context"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// The use of a pool's connections is told by purpose once there were any, and who had to wait for one is counted.
func TestConnectionMetrics(t *testing.T) {
	t.Parallel()
	cfg := DefaultConfig()
	cfg.Pools = map[string]PoolConfig{"main": {DSN: storetest.DSN(t, "main", 1), MaxConns: 4}}
	r, err := New(cfg, zap.NewNop())
	require.NoError(t, err)
	registry := prometheus.NewPedanticRegistry()
	require.NoError(t, registry.Register(r))
	require.NoError(t, r.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, r.Stop(context.Background())) })
	p, _ := r.Pool("main")
	said := func() map[string]float64 {
		t.Helper()
		families, err := registry.Gather()
		require.NoError(t, err)
		out := map[string]float64{}
		for _, f := range families {
			for _, m := range f.Metric {
				name := f.GetName()
				for _, l := range m.Label {
					name += " " + l.GetValue()
				}
				out[name] = m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
		return out
	}
	require.Len(t, said(), 1, "only whether it is up")

	only, err := p.Tenants().Acquire(t.Context())
	require.NoError(t, err)
	before := said()
	require.Equal(t, []float64{1, 0, 1}, []float64{before["tenure_connections main tenants in_use"], before["tenure_connections main tenants idle"], before["tenure_connections_max main tenants"]})
	require.NotContains(t, before, "tenure_connections main jobs in_use")
	next := acquire(t.Context(), p.Tenants())
	require.Eventually(t, func() bool { return len(p.conns.tenants.admission.next) == 1 }, 30*time.Second, time.Millisecond)
	only.Release()
	require.NoError(t, <-next)
	after := said()
	require.Greater(t, after["tenure_connection_waits_total main tenants"], before["tenure_connection_waits_total main tenants"])
	require.Greater(t, after["tenure_connection_wait_seconds_total main tenants"], before["tenure_connection_wait_seconds_total main tenants"])
	require.Eventually(t, func() bool { // it is scrubbed first
		now := said()
		return now["tenure_connections main tenants in_use"] == 0 && now["tenure_connections main tenants idle"] == 1
	}, 30*time.Second, time.Millisecond)
}
