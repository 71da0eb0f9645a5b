package membership

import (
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestMetrics(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	reg := prometheus.NewPedanticRegistry() // checks what is collected against what is described
	require.NoError(t, reg.Register(all[0].Metrics()))
	families, err := reg.Gather()
	require.NoError(t, err)
	members := map[string]float64{}
	names := map[string]bool{}
	for _, f := range families {
		names[f.GetName()] = true
		if f.GetName() != "tenure_membership_members" {
			continue
		}
		for _, m := range f.GetMetric() {
			key := ""
			for _, l := range m.GetLabel() {
				key += l.GetValue() + " "
			}
			members[key] = m.GetGauge().GetValue()
		}
	}
	require.Equal(t, map[string]float64{"node live ": 2, "node joining ": 0, "node draining ": 0, "client live ": 0}, members)
	require.True(t, names["tenure_membership_health_score"])
	require.True(t, names["tenure_membership_stable_seconds"])
	require.True(t, names["tenure_membership_messages_received_total"])
}
