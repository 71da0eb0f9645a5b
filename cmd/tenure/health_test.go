package main

import (
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A node is asked for its health by the command, and tells systemd when it has started and when
// it stops.
func TestHealthAndSystemd(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "notify")
	systemd, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: socket, Net: "unixgram"})
	require.NoError(t, err)
	t.Cleanup(func() { _ = systemd.Close() })
	require.NoError(t, systemd.SetReadDeadline(time.Now().Add(patience)))
	told := func() string {
		t.Helper()
		var state [100]byte
		n, err := systemd.Read(state[:])
		require.NoError(t, err)
		return string(state[:n])
	}
	t.Setenv("NOTIFY_SOCKET", socket)

	b := setup(t, "p1")
	address := freePort(t)
	b.rewrite(func(text string) string { return strings.Replace(text, "127.0.0.1:0", address, 1) })
	for _, flags := range [][]string{nil, {"--live"}} {
		require.Contains(t, b.fails(exitFailed, append([]string{"health"}, flags...)...).errors, "is it running here?")
	}

	s := b.serve()
	require.Equal(t, "READY=1", told())
	require.Eventually(t, func() bool {
		r := b.run("health")
		return r.code == 0 && r.out == "ready\n"
	}, patience, tick)
	require.Equal(t, "ok\n", b.ok("health", "--live"))
	s.stop()
	require.Equal(t, "STOPPING=1", told())
	require.Zero(t, <-s.code)
}
