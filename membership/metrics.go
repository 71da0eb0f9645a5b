package membership

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promauto"
)

// metrics is what a Cluster counts. It is a Collector of its own: nothing is
// registered globally.
type metrics struct {
	c        *Cluster
	counters *prometheus.Registry // of these

	sent       *prometheus.CounterVec // transport
	sendFailed *prometheus.CounterVec // transport
	received   prometheus.Counter
	dropped    *prometheus.CounterVec // reason
	malformed  *prometheus.CounterVec // what
	joins      *prometheus.CounterVec // result
	conflicts  prometheus.Counter
	warnings   prometheus.Counter
	udpBlocked prometheus.Counter

	undecryptable prometheus.Counter

	members *prometheus.Desc
	stable  *prometheus.Desc
	health  *prometheus.Desc
}

var _ prometheus.Collector = (*metrics)(nil)

func newMetrics(c *Cluster) *metrics {
	counters := prometheus.NewRegistry()
	register := promauto.With(counters)
	counter := func(name, help string) prometheus.CounterOpts {
		return prometheus.CounterOpts{Namespace: "tenure", Subsystem: "membership", Name: name, Help: help}
	}
	desc := func(name, help string, labels ...string) *prometheus.Desc {
		return prometheus.NewDesc(prometheus.BuildFQName("tenure", "membership", name), help, labels, nil)
	}
	return &metrics{
		c: c, counters: counters,
		sent: register.NewCounterVec(counter("messages_sent_total",
			"Messages handed to the network (udp) or to this process itself (local)."), []string{"transport"}),
		sendFailed: register.NewCounterVec(counter("messages_send_errors_total",
			"Messages the network refused."), []string{"transport"}),
		received: register.NewCounter(counter("messages_received_total",
			"Messages accepted for a handler.")),
		dropped: register.NewCounterVec(counter("messages_dropped_total",
			"Messages received and dropped: queue_full (an older one, handlers are too slow), misaddressed (meant for a process that is gone), unknown_kind (another version's)."), []string{"reason"}),
		malformed: register.NewCounterVec(counter("malformed_total",
			"What came from members and could not be decoded: messages, their payloads, metadata, state."), []string{"what"}),
		joins: register.NewCounterVec(counter("joins_total",
			"Attempts to join at an address that is not in the view."), []string{"result"}),
		conflicts: register.NewCounter(counter("name_conflicts_total",
			"Alive messages that gave another address for a known member name.")),
		warnings: register.NewCounter(counter("memberlist_warnings_total",
			"Warnings and errors of memberlist, logged or not.")),
		udpBlocked: register.NewCounter(counter("udp_blocked_total",
			"Probes that only TCP answered: a firewall blocks UDP on the gossip port.")),
		undecryptable: register.NewCounter(counter("undecryptable_total",
			"Packets and streams that could not be decrypted, here or by whom they were sent to: cluster.keys of nodes differ.")),
		members: desc("members", "Members in this process' view, itself included.", "role", "state"),
		stable:  desc("stable_seconds", "How long no node came, went or changed state."),
		health:  desc("health_score", "How far memberlist believes this process itself is lagging; 0 is healthy."),
	}
}

func (m *metrics) Describe(ch chan<- *prometheus.Desc) {
	m.counters.Describe(ch)
	ch <- m.members
	ch <- m.stable
	ch <- m.health
}

func (m *metrics) Collect(ch chan<- prometheus.Metric) {
	m.counters.Collect(ch)
	type group struct {
		role  Role
		state State
	}
	// The usual groups are always there, so that a drop to zero shows.
	count := map[group]int{{RoleNode, StateLive}: 0, {RoleNode, StateJoining}: 0, {RoleNode, StateDraining}: 0, {RoleClient, StateLive}: 0}
	for _, member := range m.c.currentView().members {
		count[group{member.Role, member.State()}]++
	}
	for g, n := range count {
		ch <- prometheus.MustNewConstMetric(m.members, prometheus.GaugeValue, float64(n), string(g.role), string(g.state))
	}
	ch <- prometheus.MustNewConstMetric(m.stable, prometheus.GaugeValue, m.c.StableFor().Seconds())
	m.c.mu.Lock()
	ml := m.c.ml
	m.c.mu.Unlock()
	if ml != nil {
		ch <- prometheus.MustNewConstMetric(m.health, prometheus.GaugeValue, float64(ml.GetHealthScore()))
	}
}
