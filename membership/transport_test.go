package membership

import (
	"context"
	"errors"
	"io"
	"log"
	"net"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

func TestTransport(t *testing.T) {
	t.Parallel()
	// A peer that accepts and never says a word, as a stopped process does.
	deaf, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	t.Cleanup(func() { deaf.Close() })
	to := memberlist.Address{Addr: deaf.Addr().String()}

	open := func(t *testing.T, timeout time.Duration) (*transport, context.CancelFunc) {
		ctx, cancel := context.WithCancel(t.Context())
		ml := memberlist.DefaultLocalConfig()
		ml.TCPTimeout, ml.Logger = timeout, log.New(io.Discard, "", 0)
		tr, err := listen(ctx, netip.MustParseAddrPort("127.0.0.1:0"), timingOf("local"), ml)
		require.NoError(t, err)
		t.Cleanup(tr.closeUnread)
		return tr, cancel
	}

	t.Run("streams have a deadline from the start", func(t *testing.T) {
		t.Parallel()
		tr, _ := open(t, 20*time.Millisecond)
		conn, err := tr.DialAddressTimeout(to, time.Second)
		require.NoError(t, err)
		defer conn.Close()
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, os.ErrDeadlineExceeded)
	})

	t.Run("and an end that cannot be moved", func(t *testing.T) {
		t.Parallel()
		tr, _ := open(t, 20*time.Millisecond)
		conn, err := tr.DialTimeout(to.Addr, time.Second)
		require.NoError(t, err)
		defer conn.Close()
		require.NoError(t, conn.SetDeadline(time.Time{}))
		_, err = conn.Read(make([]byte, 1))
		require.ErrorIs(t, err, net.ErrClosed)
	})

	t.Run("interrupting ends streams and prevents new ones", func(t *testing.T) {
		t.Parallel()
		tr, interrupt := open(t, time.Hour)
		conn, err := tr.DialAddressTimeout(to, time.Second)
		require.NoError(t, err)
		defer conn.Close()
		ended := make(chan error, 1)
		go func() {
			_, err := conn.Read(make([]byte, 1))
			ended <- err
		}()
		interrupt()
		require.ErrorIs(t, await(t, ended), net.ErrClosed)
		_, err = tr.DialAddressTimeout(to, time.Second)
		require.Error(t, err)
	})

	t.Run("no time left is no wish to wait for ever", func(t *testing.T) {
		t.Parallel()
		tr, _ := open(t, time.Hour)
		_, err := tr.DialAddressTimeout(to, -time.Second)
		require.ErrorIs(t, err, context.DeadlineExceeded)
	})

	t.Run("abandoned with something to hand over", func(t *testing.T) {
		t.Parallel()
		tr, _ := open(t, time.Hour)
		own := tr.bound.String()
		for range 3 { // nobody reads them, so the listeners wait
			conn, err := net.Dial("tcp", own)
			require.NoError(t, err)
			defer conn.Close()
			u, err := net.Dial("udp", own)
			require.NoError(t, err)
			defer u.Close()
			_, err = u.Write([]byte("x"))
			require.NoError(t, err)
		}
		done := make(chan error, 1)
		go func() { tr.closeUnread(); done <- nil }()
		require.NoError(t, await(t, done))
	})
}

func TestExplainListen(t *testing.T) {
	t.Parallel()
	cause := errors.New("something else")
	bind := netip.MustParseAddrPort("127.0.0.1:0")
	require.ErrorIs(t, explainListen(bind, cause), cause)
}
