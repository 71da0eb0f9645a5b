package lease

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics is what leases tell an operator.
type metrics struct {
	*prometheus.Registry // of these

	clockJumps   *prometheus.CounterVec
	unwritten    *prometheus.CounterVec
	lost         prometheus.Counter
	sessionsLost prometheus.Counter
}

func newMetrics() *metrics {
	all := prometheus.NewRegistry()
	register := promauto.With(all)
	return &metrics{
		Registry: all,

		clockJumps:   register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_database_clock_jumps_total", Help: "Jumps of the clock of the pool's database that this node saw."}, []string{"pool"}),
		unwritten:    register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_ends_unwritten_total", Help: "Tries to write ends of runs that failed; each is repeated until it succeeds."}, []string{"pool"}),
		lost:         register.NewCounter(prometheus.CounterOpts{Name: "tenure_runs_lost_total", Help: "Runs that ended after their claim was lost."}),
		sessionsLost: register.NewCounter(prometheus.CounterOpts{Name: "tenure_sessions_lost_total", Help: "Sessions of this node that were declared dead."}),
	}
}

// forget drops what was counted for a pool that was left.
func (m *metrics) forget(pool string) {
	m.clockJumps.DeleteLabelValues(pool)
	m.unwritten.DeleteLabelValues(pool)
}
