package membership

import (
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestThreeNodes(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	web := start(t, testConfig(t, all[1].Self().Addr), Self{Node: "web", Role: RoleClient, Version: "v2"})
	for _, c := range append(all, web) {
		eventually(t, func() bool { return len(c.Members()) == 4 && c.Alive(web.name) }, "four members on %s", c.name)
		await(t, c.Settled())
	}
	agree(t, all...)

	names := []string{"eu-1", "eu-2", "eu-3", "us-1"}
	for _, c := range append(all, web) {
		c.SetPools(names)
	}
	eventually(t, func() bool { // web is joining until it has settled everywhere
		m, ok := all[0].currentView().findMember(web.name)
		return ok && m.State() == StateLive
	}, "web to be live")
	for _, pool := range append(names, "unconfigured") {
		want := all[0].Prefer(pool)
		require.Len(t, want, 3, "clients are not elected")
		elected := 0
		for _, c := range append(all, web) {
			require.Equal(t, want, c.Prefer(pool))
			m, ok := c.Elected(pool)
			require.True(t, ok)
			require.Equal(t, want[0], m)
			rank, ok := c.Rank(pool)
			require.Equal(t, c != web, ok)
			if ok {
				require.Equal(t, c.name, want[rank].Name)
			} else {
				require.Equal(t, 3, rank)
			}
			if rank == 0 {
				elected++
			}
		}
		require.Equal(t, 1, elected)
	}

	self := all[0].Self()
	require.Regexp(t, `^a-[0-9a-f]{8}$`, self.Name)
	require.Equal(t, Member{Name: self.Name, Node: "a", Addr: self.Addr, Role: RoleNode, Version: "v1"}, self)
	m, _ := all[2].currentView().findMember(self.Name)
	require.Equal(t, self, m, "others see what it says about itself")
	require.False(t, all[0].Alive("a-00000000"))

	// The copy is the caller's.
	members := all[0].Members()
	clear(members)
	require.NotEqual(t, members, all[0].Members())
}

func TestKilledNodeIsMissed(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	changes, cancel := all[0].Watch()
	defer cancel()
	select {
	case <-changes:
	default:
	}
	begin := time.Now()
	kill(t, all[2])
	agree(t, all[0], all[1])
	t.Logf("missed by all after %v", time.Since(begin).Round(time.Millisecond))
	await(t, changes)
	require.False(t, all[0].Alive(all[2].name))
	require.Less(t, all[0].StableFor(), time.Since(begin))

	// The same node comes back under another name.
	again := start(t, testConfig(t, all[1].Self().Addr), Self{Node: "c"})
	agree(t, all[0], all[1], again)
}

// A node that has died is a warning in the others' logs, with the locks that it held; one that leaves is none.
func TestDeathIsAWarning(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	all := startNodes(t, 4, func(c *Cluster) {
		if c.self.Node == "a" {
			c.logTo(zap.New(core))
		}
		c.LogLocks(func(member string) []string { return []string{"pool of " + member} })
	})
	ends := func(node string) func() bool {
		return func() bool {
			return logs.FilterField(zap.String("node", node)).Filter(func(e observer.LoggedEntry) bool {
				return strings.HasPrefix(e.Message, "member left") || strings.HasPrefix(e.Message, "member failed")
			}).Len() > 0
		}
	}
	stop(t, all[3])
	eventually(t, ends("d"), "the one that leaves")
	kill(t, all[2])
	eventually(t, ends("c"), "the one that dies")
	warned := logs.FilterField(zap.String("node", "c")).FilterMessageSnippet("member failed").All()
	require.Len(t, warned, 1)
	require.Equal(t, []any{zapcore.WarnLevel, []any{"pool of " + all[2].name}}, []any{warned[0].Level, warned[0].ContextMap()["locks"]})
}

func TestLeaveIsNoticedAtOnce(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 3)
	begin := time.Now()
	stop(t, all[2])
	t.Logf("stopped after %v", time.Since(begin).Round(time.Millisecond))
	agree(t, all[0], all[1])
	took := time.Since(begin)
	t.Logf("missed by all after %v", took.Round(time.Millisecond))
	// Sooner than any failure detection: nobody is declared dead before a probe
	// interval and the suspicion of three.
	require.Less(t, took, 2*time.Second)

	require.Empty(t, all[2].Members())
	require.False(t, all[2].Alive(all[0].name))
	_, ok := all[2].Elected("p")
	require.False(t, ok)
	rank, ok := all[2].Rank("p")
	require.False(t, ok)
	require.Zero(t, rank)
	require.ErrorContains(t, all[2].Start(t.Context()), "build a new one")
}

func TestDraining(t *testing.T) {
	t.Parallel()
	all := startNodes(t, 2)
	changes, cancel := all[1].Watch()
	defer cancel()
	all[0].SetDraining(true)
	_, ok := all[0].Rank("p")
	require.False(t, ok, "at once on itself")
	for !slices.Equal(eligible(all[1]), memberNames(all[1])) {
		await(t, changes)
	}
	for _, c := range all {
		m, ok := c.Elected("p")
		require.True(t, ok)
		require.Equal(t, all[1].name, m.Name)
	}
	m, _ := all[1].currentView().findMember(all[0].name)
	require.Equal(t, StateDraining, m.State())
	require.True(t, all[1].Alive(all[0].name), "draining is not dead")

	all[0].SetDraining(false)
	agree(t, all...)
}

// Pitfall: a member known under its old address keeps a restarted one out.
func TestSameNodeNameTwice(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.InfoLevel)
	a := start(t, testConfig(t), Self{Node: "a"}, func(c *Cluster) {
		c.logTo(zap.New(core))
		c.times.twinGrace = 50 * time.Millisecond
	})
	b1 := start(t, testConfig(t, a.Self().Addr), Self{Node: "b"})
	b2 := start(t, testConfig(t, a.Self().Addr), Self{Node: "b"})
	require.NotEqual(t, b1.name, b2.name)
	agree(t, a, b1, b2)
	names := pools(30)
	elected := map[string]int{}
	for _, c := range []*Cluster{a, b1, b2} {
		c.SetPools(names)
	}
	for _, pool := range names {
		m, ok := a.Elected(pool)
		require.True(t, ok)
		other, _ := b1.Elected(pool)
		require.Equal(t, m, other)
		elected[m.Name]++
	}
	require.Len(t, elected, 3, "both work")
	warning := logs.FilterMessageSnippet("same node name")
	eventually(t, func() bool { warning = logs.FilterMessageSnippet("same node name"); return warning.Len() > 0 }, "a warning")
	a.SetPools(nil) // a change makes run look again
	require.Equal(t, 1, warning.Len())
}

func TestSingle(t *testing.T) {
	t.Parallel()
	c := Single(Self{Node: "a", Role: RoleNode})
	got := make(chan string, 1)
	c.Handle(1, func(from string, payload []byte) error { got <- from + string(payload); return nil })
	await(t, c.Settled())
	c.SetPools(pools(10))
	elect := func() {
		for _, pool := range append(pools(10), "unconfigured") {
			rank, ok := c.Rank(pool)
			require.True(t, ok)
			require.Zero(t, rank)
			m, ok := c.Elected(pool)
			require.True(t, ok)
			require.Equal(t, c.Self(), m)
		}
	}
	elect()
	require.ErrorIs(t, c.Send(c.name, 1, nil), ErrNotRunning)
	require.NoError(t, c.Start(t.Context()))
	require.Error(t, c.Start(t.Context()))
	elect()
	require.True(t, c.Alive(c.name))
	require.NoError(t, c.Send(c.name, 1, []byte("!")))
	require.Equal(t, c.name+"!", await(t, got))
	require.ErrorIs(t, c.Send("b-00000000", 1, nil), ErrUnknownMember)
	changes, cancel := c.Watch()
	defer cancel()
	c.SetDraining(true)
	await(t, changes)
	_, ok := c.Elected("pool-01")
	require.False(t, ok)
	stop(t, c)
	require.Empty(t, c.Members())
}

// Pitfall: memberlist finds no address of its own on many networks.
func TestWildcard(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Bind, cfg.Keys = "0.0.0.0:0", []string{goodKey}
	a := build(t, cfg, Self{Node: "a"})
	if err := a.Start(t.Context()); err != nil {
		require.ErrorContains(t, err, "set cluster.advertise")
		t.Skip("this machine has no network: ", err)
	}
	addr := netip.MustParseAddrPort(a.Self().Addr)
	require.True(t, isReachable(addr.Addr()))
	// b finds it at its advertised address, c by a name for all of this machine.
	cfg.Join = []string{a.Self().Addr}
	b := start(t, cfg, Self{Node: "b"})
	cfg.Join = []string{fmt.Sprintf("dns:localhost:%d", addr.Port())}
	agree(t, a, b, start(t, cfg, Self{Node: "c"}))
}

// A copied machine would claim this member's name from another address.
func TestConflict(t *testing.T) {
	t.Parallel()
	core, logs := observer.New(zapcore.WarnLevel)
	a := start(t, testConfig(t), Self{Node: "a"}, func(c *Cluster) { c.logTo(zap.New(core)) })
	for range 3 {
		delegate{a}.NotifyConflict(
			&memberlist.Node{Name: a.name, Addr: net.IPv4(127, 0, 0, 1), Port: 1},
			&memberlist.Node{Name: a.name, Addr: net.IPv4(127, 0, 0, 1), Port: 2})
	}
	eventually(t, func() bool { return logs.FilterMessageSnippet("two addresses").Len() == 1 }, "one warning")
	require.Equal(t, 3.0, counter(t, a.metrics.conflicts))
	require.True(t, a.Alive(a.name))
}

// A member of a later version, or a broken one, is alive and is not elected.
func TestUnreadableMetadata(t *testing.T) {
	t.Parallel()
	a := startNodes(t, 1)[0]
	for _, meta := range [][]byte{nil, {9, 9, 9}, []byte(strings.Repeat("?", memberlist.MetaMaxSize))} {
		a.putMember(&memberlist.Node{Name: "x-00000000", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: meta})
		require.True(t, a.Alive("x-00000000"))
		require.Equal(t, []string{a.name}, eligible(a))
	}
	require.Equal(t, 3.0, counter(t, a.metrics.malformed.WithLabelValues("meta")))
	a.dropMember("x-00000000")
	a.dropMember("x-00000000")
	require.False(t, a.Alive("x-00000000"))
}

func TestWatch(t *testing.T) {
	t.Parallel()
	c := Single(Self{Node: "a", Role: RoleNode})
	one, cancelOne := c.Watch()
	two, cancelTwo := c.Watch()
	defer cancelTwo()
	c.SetPools([]string{"p"})
	c.SetDraining(true)
	await(t, one)
	await(t, two)
	require.Empty(t, one, "changes coalesce")
	c.SetDraining(true)
	c.SetPools([]string{"p", "p"})
	require.Empty(t, one, "no change")
	cancelOne()
	cancelOne()
	c.SetDraining(false)
	await(t, two)
	require.Empty(t, one)
}

func TestStableFor(t *testing.T) {
	t.Parallel()
	c := clusterOf([]Member{live("b-00000000")}, nil)
	c.mu.Lock()
	c.movedAt = time.Now().Add(-time.Hour)
	c.mu.Unlock()
	c.putMember(&memberlist.Node{Name: "web-00000000", Addr: net.IPv4(127, 0, 0, 1), Port: 1, Meta: []byte{1, 2, 0, 3, 'w', 'e', 'b', 0}})
	require.True(t, c.Alive("web-00000000"))
	require.GreaterOrEqual(t, c.StableFor(), time.Hour, "a client does not count")
	c.dropMember("b-00000000")
	require.Less(t, c.StableFor(), time.Minute)
}
