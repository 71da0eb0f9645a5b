package lease

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
)

// A holder hears of a clock that was set back, also while it dozes, as schedules are due sooner then.
func TestAClockThatIsSetBackWakes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	now := time.Now()
	b.keeper.checkClock(Now(), now)
	b.keeper.checkClock(Now(), now.Add(time.Hour))
	require.Empty(t, b.events.nudge)
	b.keeper.checkClock(Now(), now)
	within(t, b.events.nudge)
}

func TestSessionsHaveMetrics(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b.sessions.Metrics()))
	b.keeper.node.metrics.clockJumps.WithLabelValues("main").Inc()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), "tenure_database_clock_jumps_total")
}
