package acquisition

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics is what acquisition tells an operator.
type metrics struct {
	*prometheus.Registry // of these

	held              *prometheus.GaugeVec
	epoch             *prometheus.GaugeVec
	frozen            *prometheus.GaugeVec
	changes           *prometheus.CounterVec
	claimed           *prometheus.CounterVec
	assigned          *prometheus.CounterVec
	accepted          *prometheus.CounterVec
	claimSeconds      *prometheus.HistogramVec
	reaped            *prometheus.CounterVec
	fired             *prometheus.CounterVec
	scheduled         *prometheus.CounterVec
	fenced            *prometheus.CounterVec
	damaged           *prometheus.CounterVec
	dutiesFailed      *prometheus.CounterVec
	oldestTransaction *prometheus.GaugeVec
	dropped           *prometheus.CounterVec // reason
	waiting           *waitingMetrics
}

// Why what other nodes say is dropped. Anybody may say anything, so it is counted and not
// logged.
const (
	unknownPool    = "unknown_pool"
	foreignSession = "foreign_session"
	foreignClaim   = "foreign_claim"
)

func newMetrics() *metrics {
	pool, all, waiting := []string{"pool"}, prometheus.NewRegistry(), newWaitingMetrics()
	register := promauto.With(all)
	all.MustRegister(waiting)
	return &metrics{
		Registry: all, waiting: waiting,

		held:  register.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_lock_held", Help: "1 while this node holds the pool's acquire lock."}, pool),
		epoch: register.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_lock_epoch", Help: "Epoch of the last term of this node."}, pool),
		frozen: register.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_pool_frozen",
			Help: "1 while the pool is frozen, so that nobody takes its lock, as this node last saw it; 0 else."}, pool),
		changes: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_lock_changes_total",
			Help: "Terms begun, and ended, by reason: taken; offered (released in order), lost, unsure (it is not known whether a claim was committed)."}, []string{"pool", "reason"}),
		claimed:  register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_claimed_total", Help: "Jobs claimed by this node."}, pool),
		assigned: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_assigned_total", Help: "Jobs that this node, holding the lock, claimed for other nodes."}, pool),
		accepted: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_accepted_total", Help: "Jobs that this node accepted from holders of the pool's lock."}, pool),
		claimSeconds: register.NewHistogramVec(prometheus.HistogramOpts{Name: "tenure_claim_seconds", Help: "Reading a page and committing its claim.",
			Buckets: prometheus.ExponentialBuckets(0.0005, 2, 14), NativeHistogramBucketFactor: 1.1, NativeHistogramMaxBucketNumber: 100}, pool),
		reaped:       register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_reaped_total", Help: "Jobs taken back from dead sessions: back, dead, cancelled."}, []string{"pool", "to"}),
		fired:        register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_timers_fired_total", Help: "Timers moved to the waiting jobs."}, pool),
		scheduled:    register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_schedules_fired_total", Help: "Jobs that schedules have added."}, pool),
		fenced:       register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_claims_fenced_total", Help: "Claims refused because the lock moved on or jobs were taken away."}, pool),
		damaged:      register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_jobs_damaged_total", Help: "Jobs that were set aside because they cannot be read, each once by each holder of the lock."}, pool),
		dutiesFailed: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_duties_failed_total", Help: "What the lock's holder does beside claiming, such as to fire timers and to count, and that failed or found a table or rows locked; it is tried again."}, pool),
		oldestTransaction: register.NewGaugeVec(prometheus.GaugeOpts{Name: "tenure_oldest_transaction_seconds",
			Help: "For how long the oldest transaction of the pool's database has kept dead rows from being vacuumed, as the lock's holder sees it once a minute while there is work."}, pool),
		dropped: register.NewCounterVec(prometheus.CounterOpts{Name: "tenure_messages_dropped_total",
			Help: "What other nodes said and was ignored: unknown_pool (of a pool that this node does not have, as while a configuration spreads), foreign_session (in the name of another member's session), foreign_claim (that a claim is over which was made for another session)."}, []string{"reason"}),
	}
}

// noteFrozen notes whether a pool is frozen.
func (m *metrics) noteFrozen(pool string, frozen bool) {
	n := 0.0
	if frozen {
		n = 1
	}
	m.frozen.WithLabelValues(pool).Set(n)
}

// forget drops what was counted for a pool that was left.
func (m *metrics) forget(pool string) {
	m.waiting.forget(pool)
	by := prometheus.Labels{"pool": pool}
	for _, v := range []interface{ DeletePartialMatch(prometheus.Labels) int }{m.held, m.epoch, m.frozen, m.changes, m.claimed, m.assigned, m.accepted, m.claimSeconds, m.reaped, m.fired, m.scheduled, m.fenced, m.damaged, m.dutiesFailed, m.oldestTransaction} {
		v.DeletePartialMatch(by)
	}
}
