package membership

import (
	"time"

	"github.com/hashicorp/memberlist"
)

// timing is what a profile sets. Its fields are variables only for tests.
type timing struct {
	memberlist  func() *memberlist.Config
	dialTimeout time.Duration // a seed or member that does not answer; below memberlist's TCPTimeout
	settleQuiet time.Duration // how long the view must stand still
	settleBound time.Duration // settled by then in any case
	rejoinEvery time.Duration // ± 20 %
	retryFirst  time.Duration // first retry while alone; doubles up to rejoinEvery
	twinGrace   time.Duration // how long two processes may share a node name without a warning
	leaveWithin time.Duration // how long Stop waits for the leave message to spread

	announceWithin time.Duration // within which news of this process goes out, in some rounds of gossip
}

// Common to all profiles. The rest of memberlist's fields keep their LAN or WAN
// defaults.
const (
	// A member declared dead still gets its share of gossip for this long, so that it
	// may hear of its death and refute. Nothing guarantees that it does: see joiner.
	gossipToTheDead = 60 * time.Second
	// Names are unique per process, so this only matters should one ever be reused.
	deadNodeReclaim = 15 * time.Second
	// Messages arrive in bursts of one per pool.
	handoffQueue = 4096
	// A broadcast is sent this often, times the logarithm of the members.
	retransmitMult = 4
)

func timingOf(profile string) timing {
	t := timing{
		memberlist:  lanTiming,
		dialTimeout: 2 * time.Second,
		settleQuiet: time.Second,
		settleBound: 5 * time.Second,
		rejoinEvery: 20 * time.Second,
		retryFirst:  time.Second,
		twinGrace:   30 * time.Second,
		leaveWithin: 5 * time.Second,

		announceWithin: time.Second,
	}
	switch profile {
	case "local":
		t.memberlist = localTiming
		t.dialTimeout = time.Second
		t.settleQuiet = 200 * time.Millisecond
		t.settleBound = time.Second
		t.retryFirst = 250 * time.Millisecond
		t.twinGrace = 10 * time.Second
	case "wan":
		t.memberlist = wanTiming
		t.dialTimeout = 5 * time.Second
		t.settleQuiet = 3 * time.Second
		t.settleBound = 15 * time.Second
		t.announceWithin = 5 * time.Second
	}
	return t
}

// lanTiming finds a dead node in three to four seconds, within the time in which a
// lock's successor would not believe it anyway. The probe timeout is below 0.4 of the
// interval: with memberlist's own half, the answer of a helper that found a node
// dead arrives as the probe ends, and the prober blames itself.
func lanTiming() *memberlist.Config {
	m := common(memberlist.DefaultLANConfig())
	m.ProbeInterval = 700 * time.Millisecond
	m.ProbeTimeout = 280 * time.Millisecond
	m.SuspicionMult = 3
	m.GossipInterval = 100 * time.Millisecond
	m.TCPTimeout = 3 * time.Second
	m.PushPullInterval = 15 * time.Second
	return m
}

// localTiming finds a dead process in two to three seconds. memberlist's own local
// profile retransmits half as often, and then one of ten observers needs 20 s.
func localTiming() *memberlist.Config {
	m := lanTiming()
	m.ProbeInterval = 500 * time.Millisecond
	m.ProbeTimeout = 200 * time.Millisecond
	m.TCPTimeout = 2 * time.Second
	m.PushPullInterval = 10 * time.Second
	return m
}

func wanTiming() *memberlist.Config {
	m := common(memberlist.DefaultWANConfig())
	m.ProbeTimeout = 2 * time.Second
	m.TCPTimeout = 10 * time.Second
	return m
}

func common(m *memberlist.Config) *memberlist.Config {
	m.GossipToTheDeadTime = gossipToTheDead
	m.DeadNodeReclaimTime = deadNodeReclaim
	m.HandoffQueueDepth = handoffQueue
	m.RetransmitMult = retransmitMult
	// A suspicion that nobody confirms lasts no longer than one that somebody does: memberlist counts those who
	// have left or died for a while, and waited six times as long for them to confirm one.
	m.SuspicionMaxTimeoutMult = 1
	// A blocked UDP path must not look like a dead node.
	m.DisableTcpPings = false
	// Packets are small, and each compression sets up tables of some 80 KB.
	m.EnableCompression = false
	m.GossipVerifyIncoming = true
	m.GossipVerifyOutgoing = true
	return m
}
