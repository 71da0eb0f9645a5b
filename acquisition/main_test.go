package acquisition

import (
	"errors"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

// errCut is that of a call that got no answer.
var errCut = errors.New("the connection was cut")

// patience is for what takes milliseconds on an idle machine.
const patience = 30 * time.Second

// nudged tells whether a channel of size one was nudged, and takes the nudge.
func nudged(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// counted is what a counter or a gauge stands at.
func counted(t *testing.T, c prometheus.Collector) (sum float64) {
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(c))
	families, err := reg.Gather()
	require.NoError(t, err)
	for _, f := range families {
		for _, m := range f.GetMetric() {
			sum += m.GetCounter().GetValue() + m.GetGauge().GetValue()
		}
	}
	return sum
}

func laneOf(tenant string, priority int16) store.Lane {
	return store.Lane{Queue: "default", Tenant: tenant, Priority: priority}
}
