package membership

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestMessages(t *testing.T) {
	t.Parallel()
	type got struct {
		from    string
		payload string
	}
	received := map[*Cluster]chan got{}
	listening := func(c *Cluster) {
		ch := make(chan got, 100)
		received[c] = ch
		c.Handle(7, func(from string, payload []byte) error { ch <- got{from, string(payload)}; return nil })
	}
	all := startNodes(t, 2, listening)
	a, b := all[0], all[1]
	const both = "over loopback, a datagram arrives"

	require.NoError(t, a.Send(b.name, 7, []byte("hint")))
	require.Equal(t, got{a.name, "hint"}, await(t, received[b]), both)
	require.NoError(t, b.Send(a.name, 7, nil))
	require.Equal(t, got{b.name, ""}, await(t, received[a]), both)
	large := strings.Repeat("x", MaxPayload)
	require.NoError(t, a.Send(b.name, 7, []byte(large)))
	require.Equal(t, got{a.name, large}, await(t, received[b]), both)

	payload := []byte("self")
	require.NoError(t, a.Send(a.name, 7, payload))
	clear(payload)
	require.Equal(t, got{a.name, "self"}, await(t, received[a]))

	require.ErrorIs(t, a.Send("c-00000000", 7, nil), ErrUnknownMember)
	require.ErrorIs(t, a.Send(b.name, 7, make([]byte, MaxPayload+1)), ErrTooLarge)

	// What b does not want is counted and harms nobody.
	require.NoError(t, a.Send(b.name, 8, nil))
	eventually(t, func() bool { return counter(t, b.metrics.dropped.WithLabelValues("unknown_kind")) == 1 }, "an unknown kind")
	a.mu.Lock()
	to := a.others[b.name].node
	a.mu.Unlock()
	for _, raw := range [][]byte{nil, {1}, {2, 7, 0, 0}, {1, 7, 255, 'x'}} {
		require.NoError(t, a.ml.SendBestEffort(&to, raw))
	}
	eventually(t, func() bool { return counter(t, b.metrics.malformed.WithLabelValues("message")) == 4 }, "malformed messages")
	require.NoError(t, a.ml.SendBestEffort(&to, message{kind: 7, from: a.name, to: "b-00000000"}.encode()))
	eventually(t, func() bool { return counter(t, b.metrics.dropped.WithLabelValues("misaddressed")) == 1 }, "a message to a process that is gone")
	require.NoError(t, a.Send(b.name, 7, []byte("still here")))
	require.Equal(t, got{a.name, "still here"}, await(t, received[b]))

	stop(t, b)
	require.ErrorIs(t, b.Send(a.name, 7, nil), ErrNotRunning)
}

// A handler that is slow loses old messages and nothing else.
func TestSlowHandler(t *testing.T) {
	t.Parallel()
	entered, release := make(chan struct{}, 1), make(chan struct{})
	var last []byte
	done := make(chan struct{})
	all := startNodes(t, 2, func(c *Cluster) {
		c.Handle(1, func(_ string, payload []byte) error {
			select {
			case entered <- struct{}{}:
				<-release
			default:
			}
			if last = payload; string(payload) == "last" {
				close(done)
			}
			return nil
		})
	})
	a, b := all[0], all[1]
	require.NoError(t, b.Send(b.name, 1, []byte("first")))
	await(t, entered)
	for range inboxSize + 10 {
		require.NoError(t, b.Send(b.name, 1, []byte("more")))
	}
	require.Equal(t, 10.0, counter(t, b.metrics.dropped.WithLabelValues("queue_full")))
	require.NoError(t, b.Send(b.name, 1, []byte("last")))
	// memberlist goes on meanwhile.
	a.SetDraining(true)
	eventually(t, func() bool { return len(eligible(b)) == 1 }, "gossip behind a blocked handler")
	close(release)
	await(t, done)
	require.Equal(t, "last", string(last))
}
