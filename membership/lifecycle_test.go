package membership

import (
	"context"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
	"go.uber.org/zap"
)

func TestStopLeavesNothing(t *testing.T) { // not parallel: it counts goroutines
	before := goleak.IgnoreCurrent()
	all := startNodes(t, 3)
	require.NoError(t, all[0].Send(all[1].name, 1, nil))
	kill(t, all[2])
	var wg sync.WaitGroup
	for _, c := range all {
		for range 3 {
			wg.Go(func() { stop(t, c) })
		}
	}
	wg.Wait()
	require.NoError(t, leaked(before))
	// Its sockets are free at once.
	l, err := net.Listen("tcp", all[0].Self().Addr)
	require.NoError(t, err)
	require.NoError(t, l.Close())
	u, err := net.ListenPacket("udp", all[0].Self().Addr)
	require.NoError(t, err)
	require.NoError(t, u.Close())
}

func TestLifecycle(t *testing.T) {
	t.Parallel()

	t.Run("start and stop at any moment", func(t *testing.T) {
		t.Parallel()
		seed := startNodes(t, 1)[0]
		for i := range 20 {
			c := build(t, testConfig(t, seed.Self().Addr), Self{Node: "b"})
			c.cfg.Label = seed.cfg.Label
			var wg sync.WaitGroup
			wg.Go(func() { _ = c.Start(t.Context()) }) // an error if Stop was first
			if i%2 == 0 {
				wg.Go(func() { c.SetDraining(true); c.Rank("p") })
			}
			wg.Go(func() { stop(t, c) })
			wg.Wait()
			stop(t, c)
		}
	})

	t.Run("stop without start", func(t *testing.T) {
		t.Parallel()
		c := build(t, testConfig(t), Self{Node: "a"})
		stop(t, c)
		stop(t, c)
		require.Error(t, c.Start(t.Context()))
	})

	t.Run("stop does not outlast its context", func(t *testing.T) {
		t.Parallel()
		entered, release := make(chan struct{}), make(chan struct{})
		c := start(t, testConfig(t), Self{Node: "a"}, func(c *Cluster) {
			c.Handle(1, func(string, []byte) error { close(entered); <-release; return nil })
		})
		require.NoError(t, c.Send(c.name, 1, nil))
		<-entered
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		require.ErrorIs(t, c.Stop(ctx), context.DeadlineExceeded)
		close(release)
		stop(t, c)
	})

	t.Run("start with an ended context", func(t *testing.T) {
		t.Parallel()
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		c := build(t, testConfig(t), Self{Node: "a"})
		require.ErrorIs(t, c.Start(ctx), context.Canceled)
		require.NoError(t, c.Start(t.Context()), "nothing was opened")
	})

	t.Run("port in use", func(t *testing.T) {
		t.Parallel()
		a := startNodes(t, 1)[0]
		cfg := testConfig(t)
		cfg.Bind = a.Self().Addr
		c := build(t, cfg, Self{Node: "b"})
		err := c.Start(t.Context())
		require.ErrorContains(t, err, "cluster.bind "+cfg.Bind)
		require.ErrorContains(t, err, "in use: stop the other process, or choose another port")
		stop(t, a)
		require.NoError(t, c.Start(t.Context()), "may be tried again")
	})

	t.Run("UDP port in use", func(t *testing.T) {
		t.Parallel()
		var err error
		for range 20 { // a connection of somebody else may have the same TCP port, which is looked at first
			u, failed := net.ListenPacket("udp", "127.0.0.1:0")
			require.NoError(t, failed)
			defer u.Close()
			cfg := testConfig(t)
			cfg.Bind = u.LocalAddr().String()
			err = build(t, cfg, Self{Node: "b"}).Start(t.Context())
			require.Error(t, err)
			if !strings.Contains(err.Error(), "tcp port") {
				break
			}
		}
		require.ErrorContains(t, err, "udp port")
		require.ErrorContains(t, err, "is in use")
	})

	t.Run("no such address", func(t *testing.T) {
		t.Parallel()
		cfg := testConfig(t)
		cfg.Bind, cfg.Insecure = "192.0.2.1:7946", true
		err := build(t, cfg, Self{Node: "a"}).Start(t.Context())
		require.ErrorContains(t, err, "this machine has no address 192.0.2.1")
	})

	t.Run("handle in time and once", func(t *testing.T) {
		t.Parallel()
		c := build(t, testConfig(t), Self{Node: "a"})
		c.Handle(1, func(string, []byte) error { return nil })
		require.Panics(t, func() { c.Handle(1, func(string, []byte) error { return nil }) })
		require.NoError(t, c.Start(t.Context()))
		require.Panics(t, func() { c.Handle(2, func(string, []byte) error { return nil }) })
	})
}

func TestNewRefuses(t *testing.T) {
	t.Parallel()
	_, err := New(Config{Bind: "nonsense"}, Self{Node: "a/b", Version: strings.Repeat("v", 65)}, zap.NewNop())
	for _, part := range []string{"cluster.bind", "cluster.label", "cluster.profile", "node name \"a/b\"", "role \"\"", "version"} {
		require.ErrorContains(t, err, part)
	}
	_, err = New(testConfig(t), Self{Node: strings.Repeat("n", 64), Role: RoleNode}, zap.NewNop())
	require.ErrorContains(t, err, "1 to 63")
	c, err := New(testConfig(t), Self{Node: strings.Repeat("n", 63), Role: RoleClient, Version: strings.Repeat("v", 64)}, zap.NewNop())
	require.NoError(t, err)
	require.LessOrEqual(t, len(delegate{c}.NodeMeta(0)), memberlist.MetaMaxSize)
}
