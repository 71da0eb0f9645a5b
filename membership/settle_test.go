package membership

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func TestSettled(t *testing.T) {
	t.Parallel()
	settledIn := func(t *testing.T, c *Cluster) time.Duration {
		begin := time.Now()
		require.NoError(t, c.Start(t.Context()))
		await(t, c.Settled())
		_, ok := c.Rank("p")
		require.True(t, ok)
		return time.Since(begin)
	}

	t.Run("nobody to join", func(t *testing.T) {
		t.Parallel()
		c := build(t, testConfig(t), Self{Node: "a"})
		require.GreaterOrEqual(t, settledIn(t, c), c.times.settleQuiet)
		rank, ok := c.Rank("p")
		require.True(t, ok)
		require.Zero(t, rank)
	})

	t.Run("only itself to join", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		cfg := testConfig(t, fmt.Sprintf("127.0.0.1:%d", port), fmt.Sprintf("dns:localhost:%d", port))
		cfg.Bind = fmt.Sprintf("127.0.0.1:%d", port)
		c := build(t, cfg, Self{Node: "a"}, func(c *Cluster) { c.times.settleBound = time.Hour })
		settledIn(t, c)
		require.Zero(t, counter(t, c.metrics.joins))
	})

	t.Run("only itself to join, by another address", func(t *testing.T) {
		t.Parallel()
		port := freePort(t)
		cfg := testConfig(t, fmt.Sprintf("127.0.0.1:%d", port))
		cfg.Bind, cfg.Advertise, cfg.Insecure = fmt.Sprintf("0.0.0.0:%d", port), "192.0.2.1", true
		c := build(t, cfg, Self{Node: "a"}, func(c *Cluster) { c.times.settleBound = time.Hour })
		settledIn(t, c)
		require.Zero(t, counter(t, c.metrics.joins))
	})

	t.Run("a seed that answers", func(t *testing.T) {
		t.Parallel()
		a := start(t, testConfig(t), Self{Node: "a"})
		b := build(t, testConfig(t, a.Self().Addr), Self{Node: "b"}, func(c *Cluster) { c.times.settleBound = time.Hour })
		settledIn(t, b)
		require.True(t, b.Alive(a.name))
	})

	t.Run("a seed that does not answer", func(t *testing.T) {
		t.Parallel()
		core, logs := observer.New(zapcore.InfoLevel)
		c := build(t, testConfig(t, "127.0.0.1:1"), Self{Node: "a"}, func(c *Cluster) { // a free port could be taken by another test
			c.logTo(zap.New(core))
			c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour
		})
		settledIn(t, c)
		require.Equal(t, 1, logs.FilterMessageSnippet("no seed answered").Len(), "a warning, and one")
	})

	t.Run("a seed that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		c := build(t, testConfig(t, "dns:nowhere.invalid:7946"), Self{Node: "a"}, func(c *Cluster) {
			c.joiner.lookUp = func(context.Context, string, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host"}
			}
			c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour
		})
		settledIn(t, c)
	})

	t.Run("others do not elect it before", func(t *testing.T) {
		t.Parallel()
		a := startNodes(t, 1)[0]
		b := start(t, testConfig(t, a.Self().Addr), Self{Node: "b"}, func(c *Cluster) { c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour })
		eventually(t, func() bool { return a.Alive(b.name) && b.Alive(a.name) }, "them to see one another")
		require.Len(t, a.Prefer("p"), 1)
		require.Len(t, b.Prefer("p"), 1, "b itself elects as a does")
	})

	t.Run("stopped before", func(t *testing.T) {
		t.Parallel()
		c := start(t, testConfig(t), Self{Node: "a"}, func(c *Cluster) { c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour })
		_, ok := c.Rank("p")
		require.False(t, ok, "not eligible before")
		require.Equal(t, StateJoining, c.Self().State())
		stop(t, c)
		select {
		case <-c.Settled():
			require.Fail(t, "settled")
		default:
		}
	})
}

// Anyone who advertises loopback joins nobody on another machine, where its address would lead
// to nobody or to the others themselves, and says so once, whatever the seed comes from. A
// seed may well have an address that is not loopback and be on this machine.
func TestOneWay(t *testing.T) {
	t.Parallel()
	const afar = "198.51.100.7"
	looks := func(addrs ...string) option {
		return func(c *Cluster) {
			c.times.retryFirst = 10 * time.Millisecond
			c.joiner.lookUp = func(context.Context, string, string) (found []netip.Addr, _ error) {
				for _, a := range addrs {
					found = append(found, netip.MustParseAddr(a))
				}
				return found, nil
			}
		}
	}
	named := func(t *testing.T, join ...string) Config {
		return testConfig(t, append(join, "node-b.example.com:7946")...)
	}
	run := func(t *testing.T, cfg Config, seeds func(context.Context) []string, o ...option) (c *Cluster, said []observer.LoggedEntry) {
		core, logs := observer.New(zapcore.InfoLevel)
		c = start(t, cfg, Self{Node: "a", Seeds: seeds}, append(o, func(c *Cluster) { c.logTo(zap.New(core)) })...)
		await(t, c.Settled()) // at the bound: several attempts were made
		return c, logs.FilterMessageSnippet("this node advertises loopback").All()
	}
	for name, change := range map[string]func(*Config) (seeds func(context.Context) []string){
		"bound to it": func(*Config) func(context.Context) []string { return nil },
		"a name of several": func(c *Config) func(context.Context) []string {
			c.Join = []string{"dns:tenure.example.com:7946"}
			return nil
		},
		"advertised": func(c *Config) func(context.Context) []string {
			c.Bind, c.Advertise, c.Insecure = "0.0.0.0:0", "127.0.0.1", true
			return nil
		},
		"a database's seed": func(c *Config) func(context.Context) []string {
			c.Join = nil
			return func(context.Context) []string { return []string{afar + ":7946"} }
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			cfg := named(t)
			seeds := change(&cfg)
			c, said := run(t, cfg, seeds, looks(afar))
			require.Zero(t, counter(t, c.metrics.joins), "nobody was tried")
			require.Len(t, said, 1)
			require.Equal(t, zapcore.ErrorLevel, said[0].Level)
			require.Equal(t, afar+":7946", said[0].ContextMap()["seed"])
			require.Contains(t, said[0].ContextMap()["advertise"], "127.0.0.1:")
		})
	}
	t.Run("here", func(t *testing.T) {
		t.Parallel()
		here, err := interfaceAddrs()
		require.NoError(t, err)
		here = slices.DeleteFunc(here, func(ip netip.Addr) bool { return !isReachable(ip) || !ip.Is4() })
		if len(here) == 0 {
			t.Skip("this machine has no network")
		}
		c, said := run(t, named(t), nil, looks(here[0].String()))
		require.Empty(t, said)
		require.Positive(t, counter(t, c.metrics.joins))
	})
	t.Run("here, too", func(t *testing.T) {
		t.Parallel()
		b := start(t, testConfig(t), Self{Node: "b"})
		at := netip.MustParseAddrPort(b.Self().Addr)
		cfg := testConfig(t, fmt.Sprintf("node-b.example.com:%d", at.Port()))
		c, said := run(t, cfg, nil, looks(afar, "127.0.0.1"))
		require.Empty(t, said)
		agree(t, b, c)
	})
}

// A later start of the others is found by retrying, long before the rejoin interval.
func TestSeedStartsLater(t *testing.T) {
	t.Parallel()
	cfg := testConfig(t)
	cfg.Bind = fmt.Sprintf("127.0.0.1:%d", freePort(t))
	a := start(t, testConfig(t, cfg.Bind), Self{Node: "a"}, func(c *Cluster) { c.times.rejoinEvery = time.Hour; c.times.retryFirst = 10 * time.Millisecond })
	await(t, a.Settled())
	require.Len(t, a.Members(), 1)
	agree(t, a, start(t, cfg, Self{Node: "b"}))
}

// A node that has settled is known to have, also where memberlist drops its news for another node's: with two of its
// own before it has joined, one is dropped for those of who was there, and then the next one for whatever comes before
// it is sent. Nothing but news tells it here.
func TestNewsIsToldOnceMore(t *testing.T) {
	t.Parallel()
	every := func(gossip time.Duration) option {
		return func(c *Cluster) {
			c.times.settleQuiet, c.times.settleBound, c.times.rejoinEvery = time.Second, time.Hour, time.Hour
			c.times.memberlist = func() *memberlist.Config {
				m := localTiming()
				m.PushPullInterval = 0
				m.GossipInterval = gossip
				return m
			}
		}
	}
	first := start(t, testConfig(t), Self{Node: "a"}, every(20*time.Millisecond))
	second := start(t, testConfig(t, first.Self().Addr), Self{Node: "b"}, every(20*time.Millisecond))
	await(t, second.Settled())
	third := build(t, testConfig(t, second.Self().Addr), Self{Node: "c"}, every(200*time.Millisecond))
	third.SetKindsMark(1)
	require.NoError(t, third.Start(t.Context()))
	await(t, third.Settled())
	first.SetKindsMark(1)
	for _, c := range []*Cluster{first, second, third} {
		eventually(t, func() bool { return len(eligible(c)) == 3 }, "%s sees that all take part", c.name)
	}
}
