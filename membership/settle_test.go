package membership

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

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
		_, ok := c.Rank("p")
		require.False(t, ok, "not eligible before")
		require.Equal(t, StateJoining, c.Self().State())
		await(t, c.Settled())
		_, ok = c.Rank("p")
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
		c := build(t, testConfig(t, fmt.Sprintf("127.0.0.1:%d", freePort(t))), Self{Node: "a"}, func(c *Cluster) { c.log = zap.New(core) })
		require.GreaterOrEqual(t, settledIn(t, c), c.times.settleBound)
		require.Equal(t, 1, logs.FilterMessageSnippet("no seed answered").Len(), "a warning, and one")
	})

	t.Run("a seed that cannot be resolved", func(t *testing.T) {
		t.Parallel()
		c := build(t, testConfig(t, "dns:nowhere.invalid:7946"), Self{Node: "a"}, func(c *Cluster) {
			c.look = func(context.Context, string, string) ([]netip.Addr, error) {
				return nil, &net.DNSError{Err: "no such host"}
			}
		})
		require.GreaterOrEqual(t, settledIn(t, c), c.times.settleBound)
	})

	t.Run("others do not elect it before", func(t *testing.T) {
		t.Parallel()
		a := startNodes(t, 1)[0]
		b := start(t, testConfig(t, a.Self().Addr), Self{Node: "b"}, func(c *Cluster) { c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour })
		eventually(t, func() bool { return a.Alive(b.name) }, "a to see b")
		require.Len(t, a.Prefer("p"), 1)
		require.Len(t, b.Prefer("p"), 1, "b itself elects as a does")
	})

	t.Run("stopped before", func(t *testing.T) {
		t.Parallel()
		c := start(t, testConfig(t), Self{Node: "a"}, func(c *Cluster) { c.times.settleQuiet, c.times.settleBound = time.Hour, time.Hour })
		stop(t, c)
		select {
		case <-c.Settled():
			require.Fail(t, "settled")
		default:
		}
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
