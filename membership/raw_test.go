package membership

import (
	"bytes"
	"compress/lzw"
	"crypto/aes"
	"crypto/cipher"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

// memberlist's types of messages, as they stand on the wire.
const (
	wirePing, wireAlive, wirePushPull, wireCompound, wireUser, wireCompressed, wireSealed, wireChecked = 0, 4, 6, 7, 8, 9, 10, 12

	wireLabel = 244
)

// packed is a message of memberlist's: a type, and names with their values.
func packed(kind byte, fields ...any) []byte {
	b := []byte{kind, 0x80 | byte(len(fields)/2)}
	for _, f := range fields {
		switch f := f.(type) {
		case string:
			b = append(append(b, 0xda, byte(len(f)>>8), byte(len(f))), f...)
		case int:
			b = binary.BigEndian.AppendUint32(append(b, 0xce), uint32(f))
		}
	}
	return b
}

func labelled(label string, b []byte) []byte {
	return append(append([]byte{wireLabel, byte(len(label))}, label...), b...)
}

// sealed is encrypted as memberlist does it: its version, the nonce, the rest.
func sealed(t testing.TB, key string, b, extra []byte) []byte {
	t.Helper()
	raw, err := base64.StdEncoding.DecodeString(key)
	require.NoError(t, err)
	block, err := aes.NewCipher(raw)
	require.NoError(t, err)
	gcm, err := cipher.NewGCM(block)
	require.NoError(t, err)
	nonce := make([]byte, gcm.NonceSize())
	return gcm.Seal(append([]byte{1}, nonce...), nonce, b, extra)
}

// sealedStream has its length in front, which is authenticated.
func sealedStream(t testing.TB, key, label string, b []byte) []byte {
	t.Helper()
	head := binary.BigEndian.AppendUint32([]byte{wireSealed}, uint32(1+12+len(b)+16))
	return append(head, sealed(t, key, b, append(head[:len(head):len(head)], label...))...)
}

// downgraded is what somebody without the key makes of what a member has sent: it says
// that it was encrypted as in memberlist's first version, padding included.
func downgraded(sealed []byte, version int) []byte {
	sealed[version] = 0
	return sealed
}

// gossipKey is a key, another for each b.
func gossipKey(b byte) string {
	raw := make([]byte, 32)
	for i := range raw {
		raw[i] = b + byte(i)
	}
	return base64.StdEncoding.EncodeToString(raw)
}

// malformed is what no member would send.
func malformed() [][]byte {
	all := [][]byte{
		nil, {wireLabel}, {wireLabel, 0}, {wireLabel, 255, 'x'}, []byte("GET / HTTP/1.1\r\n\r\n"),
		{wireSealed, 0, 0, 0, 0}, {wireSealed, 255, 255, 255, 255, 1}, {wireSealed, 0, 0, 0, 60, 1, 2, 3},
		{wireChecked, 1, 2, 3, 4, wirePing}, {wireChecked, 1},
		{wireCompound}, {wireCompound, 255}, {wireCompound, 2, 0, 1, 255, 255, wirePing}, {wireCompound, 1, 0, 0},
		packed(wireUser, "UserMsgLen", -1), packed(wireUser, "UserMsgLen", 1<<30), packed(wireUser, "UserMsgLen", 100),
		packed(wirePushPull, "Nodes", -1, "UserStateLen", 0), packed(wirePushPull, "Nodes", 1<<20, "UserStateLen", 0),
		packed(wirePushPull, "Nodes", 0, "UserStateLen", -1), packed(wirePushPull, "Nodes", 0, "UserStateLen", 20<<20),
		packed(wireAlive), packed(wireAlive, "Node", "", "Addr", "", "Port", 0), packed(wireAlive, "Node", 7),
		packed(wireAlive, "Node", "x-00000000", "Addr", "\x7f\x00\x00\x01", "Port", 1, "Meta", "nonsense", "Vsn", "\x01"),
		packed(wireAlive, "Node", "y-00000000", "Addr", "\x7f\x00\x00", "Port", 1<<20, "Incarnation", -1, "Vsn", "\x01\x05\x02\x00\x00\x00"),
		packed(wireAlive, "Node", "z-00000000", "Addr", "\x7f\x00\x00\x01", "Port", 1, "Meta", string(make([]byte, 1<<14)), "Vsn", "\xff\xff\xff\xff\xff\xff"),
		packed(wirePing, "SeqNo", "text", "Node", 1), packed(wirePing, "SeqNo", 1, "Node", "somebody else"),
		packed(wireCompressed, "Algo", 9, "Buf", "x"), packed(wireCompressed, "Algo", 0, "Buf", "\xff\xff\xff"), packed(wireCompressed, "Algo", 0, "Buf", ""),
		append([]byte{wireUser}, message{kind: 1, from: "x", to: "y"}.encode()...),
	}
	// Each type, known or not, with nothing, and with more than there is.
	for kind := range byte(20) {
		all = append(all, []byte{kind}, []byte{kind, 0xdd, 255, 255, 255, 255}, []byte{kind, 0xdf, 255, 255, 255, 255}, []byte{kind, 0xdb, 255, 255, 255, 255}, []byte{kind, 0x81, 0xa4, 'N'})
	}
	nested := []byte{wirePing}
	for len(nested) < 60_000 {
		nested = append([]byte{wireCompound, 1, byte(len(nested) >> 8), byte(len(nested))}, nested...)
	}
	return append(all, nested)
}

// oversized is what fits into a datagram, and what only fits into a stream.
func oversized(t *testing.T) (datagrams, streams [][]byte) {
	const most = 65507 - 100 // with the label, and encrypted
	for _, kind := range []byte{wirePing, wireAlive, wirePushPull, wireUser, wireCompressed, wireCompound, 77} {
		datagrams = append(datagrams, append([]byte{kind}, make([]byte, most)...))
		streams = append(streams, append([]byte{kind}, make([]byte, 4<<20)...))
	}
	// A few kilobytes that are more than memberlist decompresses.
	var bomb bytes.Buffer
	w := lzw.NewWriter(&bomb, lzw.LSB, 8)
	zeros := make([]byte, 1<<20)
	for range 41 {
		_, err := w.Write(zeros)
		require.NoError(t, err)
	}
	require.NoError(t, w.Close())
	datagrams = append(datagrams, packed(wireCompressed, "Algo", 0, "Buf", bomb.String()))
	return datagrams, append(streams,
		// More than there may be in one of our messages, though memberlist would take it.
		append(packed(wireUser, "UserMsgLen", 4<<20), make([]byte, 4<<20)...),
		append(packed(wirePushPull, "Nodes", 0, "UserStateLen", 4<<20), make([]byte, 4<<20)...))
}

// mostKept is how many bytes a node may keep of the hundreds of megabytes that it was sent:
// less than the datagrams alone, and far more than it does.
const mostKept = 2 << 20

// inUse is how much memory is in use when nobody has any garbage left.
func inUse() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // of what a pool has kept over the first
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// Anyone who reaches the sockets may send anything. A node may not care: it neither ends,
// nor takes it in, nor keeps anything for it.
func TestRawBytes(t *testing.T) { // not parallel: it counts goroutines and memory
	for name, keys := range map[string][]string{"without a key": nil, "with a key": {gossipKey(1)}} {
		t.Run(name, func(t *testing.T) {
			cfg := testConfig(t)
			cfg.Keys = keys
			a := start(t, cfg, Self{Node: "a"})
			to, label := a.Self().Addr, cfg.Label
			before, had := goleak.IgnoreCurrent(), inUse()

			udp, err := net.Dial("udp", to)
			require.NoError(t, err)
			defer udp.Close()
			asker, err := net.Dial("udp", to)
			require.NoError(t, err)
			defer asker.Close()
			ping := labelled(label, plainPing)
			if len(keys) > 0 {
				ping = labelled(label, sealed(t, keys[0], plainPing, []byte(label)))
			}
			send := func(b []byte) {
				if _, err := udp.Write(b); !errors.Is(err, syscall.EMSGSIZE) { // some kernels take less
					require.NoError(t, err)
				}
				requireAnswer(t, asker, ping)
			}
			datagrams, streams := oversized(t)
			datagrams, streams = append(datagrams, malformed()...), append(streams, malformed()...)
			for _, b := range datagrams {
				send(b)
				send(labelled(label, b))
				send(labelled("another", b))
				send(labelled(label, sealed(t, gossipKey(2), b, []byte(label))))
				if len(keys) > 0 { // of a member that has gone mad
					send(labelled(label, sealed(t, keys[0], b, []byte(label))))
					send(labelled(label, sealed(t, keys[0], b, []byte("another"))))
					send(labelled(label, downgraded(sealed(t, keys[0], b, []byte(label)), 0)))
				}
			}
			for _, b := range streams {
				pour(t, to, b)
				pour(t, to, labelled(label, b))
				pour(t, to, labelled(label, sealedStream(t, gossipKey(2), label, b)))
				if len(keys) > 0 {
					pour(t, to, labelled(label, sealedStream(t, keys[0], label, b)))
					pour(t, to, labelled(label, downgraded(sealedStream(t, keys[0], label, b), 5)))
				}
			}
			// Nor do streams that stall have a hold on it: it has accepted each, and let go of it.
			var stalled []net.Conn
			for _, b := range [][]byte{nil, {wireLabel, 100}, labelled(label, packed(wireUser, "UserMsgLen", 20<<20)), labelled(label, []byte{wireSealed, 0, 0, 255, 255, 1})} {
				conn, err := net.Dial("tcp", to)
				require.NoError(t, err)
				defer conn.Close()
				_, err = conn.Write(b)
				require.NoError(t, err)
				stalled = append(stalled, conn)
			}
			for _, conn := range stalled {
				hungUp(t, conn)
			}
			require.NoError(t, leaked(before), "and neither does anything keep a goroutine")
			kept := inUse() - had
			t.Logf("%d KiB kept", kept>>10)
			require.Less(t, kept, int64(mostKept), "nor any memory")

			require.Equal(t, []string{a.name}, eligible(a))
			require.Positive(t, counter(t, a.metrics.warnings))
			cfg.Join = []string{to}
			b := start(t, cfg, Self{Node: "b"})
			agree(t, a, b)
		})
	}
}

var plainPing = packed(wirePing, "SeqNo", 1)

// requireAnswer pings. Packets are taken in turn, so whatever was sent before, from
// another socket, has been dealt with when the answer comes.
func requireAnswer(t *testing.T, asker net.Conn, ping []byte) {
	t.Helper()
	eventually(t, func() bool {
		_, err := asker.Write(ping)
		require.NoError(t, err)
		require.NoError(t, asker.SetReadDeadline(time.Now().Add(patience/10)))
		_, err = asker.Read(make([]byte, 1500))
		return err == nil
	}, "an answer")
}

// pour sends a stream and waits for its end. That it is cut short is an answer, too.
func pour(t *testing.T, to string, b []byte) {
	t.Helper()
	conn, err := net.Dial("tcp", to)
	require.NoError(t, err, "it must go on to accept")
	defer conn.Close()
	require.NoError(t, conn.SetWriteDeadline(time.Now().Add(patience)))
	if _, err := conn.Write(b); err == nil {
		_ = conn.(*net.TCPConn).CloseWrite() // it may have hung up already
	}
	hungUp(t, conn)
}

// hungUp waits until the node has ended a stream, in whichever way.
func hungUp(t *testing.T, conn net.Conn) {
	t.Helper()
	require.NoError(t, conn.SetReadDeadline(time.Now().Add(patience)))
	_, err := io.Copy(io.Discard, conn)
	require.NotErrorIs(t, err, syscall.ETIMEDOUT)
	var slow net.Error
	require.False(t, errors.As(err, &slow) && slow.Timeout(), "it must hang up")
}

// Behind the label and without a key, what is sent is taken apart furthest.
func FuzzPacket(f *testing.F) {
	cfg := Config{Bind: "127.0.0.1:0", Label: "fuzz", Profile: "local"}
	to, udp, asker := fuzzed(f, cfg)
	for _, b := range malformed() {
		f.Add(b, true, false)
		f.Add(b, true, true)
		f.Add(b, false, true)
	}
	f.Fuzz(func(t *testing.T, b []byte, label, stream bool) {
		if label {
			b = labelled(cfg.Label, b)
		}
		if stream {
			pour(t, to, b)
		} else if len(b) <= 65507 {
			_, err := udp.Write(b)
			require.NoError(t, err)
		}
		requireAnswer(t, asker, labelled(cfg.Label, plainPing))
	})
}

// With a key, what is sent is broken before it is encrypted, or after: by somebody who has
// the key, who has another, or who has none and changes what a member has sent.
func FuzzSealedPacket(f *testing.F) {
	cfg := Config{Bind: "127.0.0.1:0", Label: "fuzz", Profile: "local", Keys: []string{gossipKey(1)}}
	to, udp, asker := fuzzed(f, cfg)
	ping := labelled(cfg.Label, sealed(f, cfg.Keys[0], plainPing, []byte(cfg.Label)))
	for _, b := range malformed() {
		for version := range byte(2) {
			f.Add(b, true, version, uint16(0), false)
			f.Add(b, true, version, uint16(0), true)
		}
	}
	for _, b := range [][]byte{nil, plainPing, message{kind: 1, from: "x", to: "y"}.encode()} {
		for _, stream := range []bool{false, true} {
			f.Add(b, false, byte(encryptionVersion), uint16(0), stream)
			for version := range byte(3) {
				for _, cut := range []uint16{1, 15, 16, 17, uint16(len(b)) + 16, uint16(len(b)) + 28, uint16(len(b)) + 29} {
					f.Add(b, true, version, cut, stream)
				}
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, member bool, version byte, cut uint16, stream bool) {
		key := cfg.Keys[0]
		if !member {
			key = gossipKey(2)
		}
		if stream {
			b = sealedStream(t, key, cfg.Label, b)
			b[5] = version
		} else {
			b = sealed(t, key, b, []byte(cfg.Label))
			b[0] = version
		}
		b = labelled(cfg.Label, b[:max(0, len(b)-int(cut))])
		if stream {
			pour(t, to, b)
		} else if len(b) <= 65507 {
			_, err := udp.Write(b)
			require.NoError(t, err)
		}
		requireAnswer(t, asker, ping)
	})
}

// fuzzed is a node to be sent anything, and two sockets to send it from.
func fuzzed(f *testing.F, cfg Config) (to string, udp, asker net.Conn) {
	c := start(f, cfg, Self{Node: "a"}, func(c *Cluster) {
		c.wrap = func(tr memberlist.NodeAwareTransport) memberlist.NodeAwareTransport { return &tethered{tr} }
	})
	to = c.Self().Addr
	for _, conn := range []*net.Conn{&udp, &asker} {
		var err error
		*conn, err = net.Dial("udp", to)
		require.NoError(f, err)
		f.Cleanup(func() { _ = (*conn).Close() }) // nothing is lost with it
	}
	return to, udp, asker
}

// tethered reaches nobody but this machine: what is made up here names addresses
// that are to be probed.
type tethered struct{ memberlist.NodeAwareTransport }

var errTethered = errors.New("not on this machine")

func (w *tethered) WriteToAddress(b []byte, to memberlist.Address) (time.Time, error) {
	if at, err := netip.ParseAddrPort(to.Addr); err != nil || !at.Addr().IsLoopback() {
		return time.Time{}, errTethered
	}
	return w.NodeAwareTransport.WriteToAddress(b, to)
}

func (w *tethered) DialAddressTimeout(to memberlist.Address, timeout time.Duration) (net.Conn, error) {
	if at, err := netip.ParseAddrPort(to.Addr); err != nil || !at.Addr().IsLoopback() {
		return nil, errTethered
	}
	return w.NodeAwareTransport.DialAddressTimeout(to, timeout)
}
