package membership

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"net"
	"os"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

// Pitfall: memberlist gives up a partitioned side for ever once it has forgotten
// it. The seeds come from Self.Seeds, as from a database, and from nowhere else.
func TestPartitionHeals(t *testing.T) {
	t.Parallel()
	var (
		network = &network{}
		mu      sync.Mutex
		known   []string // guarded by mu; what the database says
		all     []*Cluster
	)
	say := func(addrs ...string) {
		mu.Lock()
		defer mu.Unlock()
		known = addrs
	}
	seeds := func(context.Context) []string {
		mu.Lock()
		defer mu.Unlock()
		return known
	}
	for _, node := range []string{"a", "b", "c", "d"} {
		all = append(all, start(t, testConfig(t), Self{Node: node, Seeds: seeds}, network.attach, hasty))
		say(all[0].Self().Addr)
	}
	agree(t, all...)

	say()
	network.split(all[:2])
	agree(t, all[0], all[1])
	agree(t, all[2], all[3])
	one, _ := all[0].Elected("p")
	two, _ := all[2].Elected("p")
	require.NotEqual(t, one, two, "each side elects: a view is no fact")

	// Forgotten: nobody even tries to reach the other side. Whole again or not, it
	// stays that way; without this, the rest would prove nothing.
	eventually(t, func() bool { return network.quietFor() > time.Second }, "both sides to give up")
	network.split(nil)
	require.Never(t, func() bool { return len(all[0].Members()) > 2 }, time.Second, 10*time.Millisecond)

	say(all[3].Self().Addr, all[0].Self().Addr, "127.0.0.1:1", "not a seed")
	agree(t, all...)
}

// Here the configured seeds are what heals, from the side that has one.
func TestDeclaredDeadComesBack(t *testing.T) {
	t.Parallel()
	network := &network{}
	all := startNodes(t, 3, network.attach, hasty)
	network.split(all[:1]) // the seed itself
	agree(t, all[1], all[2])
	agree(t, all[0])
	network.split(nil)
	agree(t, all...)
}

// hasty shortens failure detection and rejoining, but nothing about joining.
func hasty(c *Cluster) {
	c.times.rejoinEvery = 300 * time.Millisecond
	tune := c.times.memberlist
	c.times.memberlist = func() *memberlist.Config {
		m := tune()
		m.ProbeInterval, m.ProbeTimeout, m.PushPullInterval = 100*time.Millisecond, 40*time.Millisecond, 300*time.Millisecond
		m.GossipToTheDeadTime = 200 * time.Millisecond
		return m
	}
}

func TestKeysAndLabelsKeepApart(t *testing.T) {
	t.Parallel()
	key := func() string {
		b := make([]byte, 32)
		rand.Read(b)
		return base64.StdEncoding.EncodeToString(b)
	}
	one, two := key(), key()
	with := func(cfg Config, change func(*Config)) Config {
		change(&cfg)
		return cfg
	}
	a := start(t, with(testConfig(t), func(c *Config) { c.Keys = []string{one, two} }), Self{Node: "a"})
	base := testConfig(t, a.Self().Addr)

	strangers := map[string]*Cluster{}
	for name, cfg := range map[string]Config{
		"otherkey":   with(base, func(c *Config) { c.Keys = []string{key()} }),
		"nokey":      base,
		"otherlabel": with(base, func(c *Config) { c.Keys, c.Label = []string{one}, c.Label+"x" }),
	} {
		strangers[name] = start(t, cfg, Self{Node: name}, func(c *Cluster) { c.times.retryFirst = 20 * time.Millisecond })
	}
	// The second key is for rotation: who encrypts with it is understood, and back.
	b := start(t, with(base, func(c *Config) { c.Keys = []string{two, one} }), Self{Node: "b"})
	agree(t, a, b)
	for _, c := range strangers {
		await(t, c.Settled()) // at the bound: several attempts have failed
		require.Len(t, c.Members(), 1, c.name)
	}
	agree(t, a, b)
	require.Positive(t, counter(t, a.metrics.warnings))
	for name, c := range map[string]*Cluster{"with other keys": a, "with another key": strangers["otherkey"]} {
		require.Positive(t, counter(t, c.metrics.undecryptable), name)
	}
	require.Zero(t, counter(t, strangers["otherlabel"].metrics.undecryptable))
	require.Zero(t, counter(t, b.metrics.undecryptable))
}

// Each of two says that their keys differ. Only who has none and joins may not hear more
// than that the other hung up.
func TestKeysDiffer(t *testing.T) {
	t.Parallel()
	for name, keys := range map[string][2][]string{
		"differ":             {{gossipKey(1)}, {gossipKey(2)}},
		"the other has none": {{gossipKey(1)}, nil},
		"has none":           {nil, {gossipKey(1)}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			var logs [2]*observer.ObservedLogs
			var join []string
			for i := range logs {
				cfg := testConfig(t, join...)
				cfg.Keys = keys[i]
				var core zapcore.Core
				core, logs[i] = observer.New(zapcore.WarnLevel)
				c := build(t, cfg, Self{Node: string(rune('a' + i))})
				c.logTo(zap.New(core))
				require.NoError(t, c.Start(t.Context()))
				join = []string{c.Self().Addr}
			}
			for i := range logs {
				if i == 1 && keys[i] == nil {
					continue
				}
				eventually(t, func() bool { return logs[i].FilterMessageSnippet("give all nodes the same cluster.keys").Len() > 0 }, "node %d to say it", i)
			}
		})
	}
}

// Pitfall: a network that drops UDP must not look like dead members, and must show.
func TestUDPBlocked(t *testing.T) {
	t.Parallel()
	network := &network{}
	all := startNodes(t, 2, network.attach)
	network.noUDP(true)
	eventually(t, func() bool { return counter(t, all[0].metrics.udpBlocked) > 1 }, "a count of probes that only TCP answered")
	require.Len(t, all[0].Members(), 2)
}

// network lets tests take the wires away between clusters of one process.
type network struct {
	mu    sync.Mutex
	here  map[string]bool // guarded by mu; addresses on one side of the split; nil when whole
	tried time.Time       // guarded by mu; the last attempt to reach the other side
	blind bool            // guarded by mu; drop UDP
}

func (n *network) attach(c *Cluster) {
	c.wrap = func(tr memberlist.NodeAwareTransport) memberlist.NodeAwareTransport {
		own := tr.(*transport).bound.String()
		return &wire{NodeAwareTransport: tr, network: n, own: own}
	}
}

// split parts these from all others; nobody heals.
func (n *network) split(these []*Cluster) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.here = nil
	for _, c := range these {
		if n.here == nil {
			n.here = map[string]bool{}
		}
		n.here[c.Self().Addr] = true
	}
}

func (n *network) noUDP(blind bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.blind = blind
}

// cut reports whether nothing passes from one address to the other.
func (n *network) cut(from, to string, udp bool) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.here != nil && n.here[from] != n.here[to] {
		n.tried = time.Now()
		return true
	}
	return n.blind && udp
}

// quietFor is how long nobody has tried to cross the split.
func (n *network) quietFor() time.Duration {
	n.mu.Lock()
	defer n.mu.Unlock()
	return time.Since(n.tried)
}

type wire struct {
	memberlist.NodeAwareTransport
	network *network
	own     string
}

func (w *wire) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if w.network.cut(w.own, to.Addr, true) {
		return time.Now(), nil // lost, as datagrams are
	}
	return w.NodeAwareTransport.WriteToAddress(b, to)
}

func (w *wire) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if w.network.cut(w.own, to.Addr, false) {
		return nil, &net.OpError{Op: "dial", Net: "tcp", Err: os.ErrDeadlineExceeded}
	}
	return w.NodeAwareTransport.DialAddressTimeout(to, timeout)
}
