package acquisition

import (
	"fmt"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
)

func TestSessionsAreACollector(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b.sessions))
	b.keeper.metrics.changes.WithLabelValues("main", "taken").Inc()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), "tenure_lock_changes_total")
	cfg := b.cfg
	cfg.Batch = 0
	_, err = NewSessions(cfg, 0, Self{}, b.workers, zap.NewNop())
	require.ErrorContains(t, err, "acquire.batch")
}
