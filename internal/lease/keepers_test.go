package lease

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

func TestSessionsHaveMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b.sessions.Metrics()))
	b.keeper.metrics.clockJumps.WithLabelValues("main").Inc()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), "tenure_database_clock_jumps_total")
}
