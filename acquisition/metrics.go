package acquisition

import "github.com/prometheus/client_golang/prometheus"

// metrics is what acquisition tells an operator; Manager exposes it as a Collector.
type metrics struct {
	up           *prometheus.GaugeVec
	held         *prometheus.GaugeVec
	epoch        *prometheus.GaugeVec
	changes      *prometheus.CounterVec
	claimed      *prometheus.CounterVec
	given        *prometheus.CounterVec
	accepted     *prometheus.CounterVec
	claimSeconds *prometheus.HistogramVec
	reaped       *prometheus.CounterVec
	fired        *prometheus.CounterVec
	fenced       *prometheus.CounterVec
	holdup       *prometheus.GaugeVec
	clockJumps   *prometheus.CounterVec
	dropped      *prometheus.CounterVec // reason
	lost         prometheus.Counter
	sessionsLost prometheus.Counter
}

// Why what other nodes say is dropped. Anybody may say anything, so it is counted and not
// logged.
const (
	unknownPool    = "unknown_pool"
	foreignSession = "foreign_session"
	foreignClaim   = "foreign_claim"
)

func newMetrics() *metrics {
	pool := []string{"pool"}
	return &metrics{
		up:    prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_pool_up", Help: "1 while this node reaches the pool's database, 0 when it has not for a while."}, pool),
		held:  prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_lock_held", Help: "1 while this node holds the pool's acquire lock."}, pool),
		epoch: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_lock_epoch", Help: "Epoch of the last term of this node."}, pool),
		changes: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_lock_changes_total",
			Help: "Terms begun and ended: taken, offered, lost, expired."}, []string{"pool", "reason"}),
		claimed:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_claimed_total", Help: "Jobs claimed by this node."}, pool),
		given:    prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_given_total", Help: "Jobs that this node, holding the lock, claimed for other nodes."}, pool),
		accepted: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_accepted_total", Help: "Jobs that this node took over from the lock's holder."}, pool),
		claimSeconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_claim_seconds", Help: "Reading a page and committing its claim.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100}, pool),
		reaped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_reaped_total", Help: "Jobs taken back from dead sessions: back, dead, cancelled."}, []string{"pool", "to"}),
		fired:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_timers_fired_total", Help: "Timers moved to the waiting jobs."}, pool),
		fenced: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_claims_fenced_total", Help: "Claims refused because the lock moved on or jobs were taken away."}, pool),
		holdup: prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_oldest_transaction_seconds",
			Help: "For how long the oldest transaction of the pool's database has kept dead rows from being tidied away, as the lock's holder sees it once a minute while there is work."}, pool),
		clockJumps: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_database_clock_jumps_total", Help: "Jumps of the clock of the pool's database that this node saw."}, pool),
		dropped: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "tenure_messages_dropped_total",
			Help: "What other nodes said and was not heeded: unknown_pool (of a pool that this node does not have, as while a configuration spreads), foreign_session (in the name of another member's session), foreign_claim (that a claim is over that was made for another session)."}, []string{"reason"}),
		lost:         prometheus.NewCounter(prometheus.CounterOpts{Name: "tenure_runs_lost_total", Help: "Runs that ended after their claim was lost."}),
		sessionsLost: prometheus.NewCounter(prometheus.CounterOpts{Name: "tenure_sessions_lost_total", Help: "Sessions of this node that were declared dead."}),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.up, m.held, m.epoch, m.changes, m.claimed, m.given, m.accepted, m.claimSeconds, m.reaped, m.fired, m.fenced, m.holdup, m.clockJumps, m.dropped, m.lost, m.sessionsLost}
}

// forget drops what was counted for a pool that was left.
func (m *metrics) forget(pool string) {
	by := prometheus.Labels{"pool": pool}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.up, m.held, m.epoch, m.changes, m.claimed, m.given, m.accepted, m.claimSeconds, m.reaped, m.fired, m.fenced, m.holdup, m.clockJumps} {
		v.DeletePartialMatch(by)
	}
}

// Describe implements prometheus.Collector.
func (s *Sessions) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range s.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (s *Sessions) Collect(ch chan<- prometheus.Metric) {
	for _, c := range s.metrics.all() {
		c.Collect(ch)
	}
}
