package membership

import (
	"encoding/binary"
	"io"
	"net"
	"testing"
	"time"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

// handing is a transport that hands on what a test gives it.
type handing struct {
	memberlist.NodeAwareTransport
	packets chan *memberlist.Packet
	streams chan net.Conn
}

func (h handing) PacketCh() <-chan *memberlist.Packet { return h.packets }
func (h handing) StreamCh() <-chan net.Conn           { return h.streams }
func (h handing) Shutdown() error                     { return nil }

func TestPacketFilter(t *testing.T) {
	t.Parallel()
	const label = "tenure"
	h := handing{packets: make(chan *memberlist.Packet), streams: make(chan net.Conn)}
	g := newPacketFilter(h, label)
	defer func() { require.NoError(t, g.Shutdown()) }()

	fine := &memberlist.Packet{Buf: labelled(label, []byte{encryptionVersion, 1, 2})}
	go func() {
		for _, b := range [][]byte{nil, {wireLabel}, labelled(label, nil), labelled(label, []byte{0, 1, 2}), labelled(label, []byte{2, 1, 2})} {
			h.packets <- &memberlist.Packet{Buf: b}
		}
		h.packets <- fine
	}()
	select {
	case p := <-g.PacketCh():
		require.Same(t, fine, p, "the first that was let in")
	case <-time.After(patience):
		require.FailNow(t, "nothing is let in")
	}

	stream := func(length uint32, version byte) []byte {
		return labelled(label, append(binary.BigEndian.AppendUint32([]byte{wireSealed}, length), version, 'x', 'y'))
	}
	for name, c := range map[string]struct {
		head []byte
		fits bool
	}{
		"as members do it":     {stream(encryptedNothing+1, encryptionVersion), true},
		"with nothing in it":   {stream(encryptedNothing, encryptionVersion), false},
		"of the first version": {stream(100, 0), false},
		"cut short":            {labelled(label, []byte{wireSealed, 0}), true},
	} {
		for _, atATime := range []int{1, 7, 1000} {
			ours, theirs := net.Pipe()
			go func() {
				for b := c.head; len(b) > 0; b = b[min(atATime, len(b)):] {
					if _, err := theirs.Write(b[:min(atATime, len(b))]); err != nil {
						return // it is not read to its end
					}
				}
				theirs.Close()
			}()
			go func() { h.streams <- ours }()
			conn := <-g.StreamCh()
			got, err := io.ReadAll(conn)
			if c.fits {
				require.NoError(t, err, name)
				require.Equal(t, c.head, got, name)
			} else {
				require.ErrorIs(t, err, errNotOurs, name)
			}
			require.NoError(t, conn.Close())
		}
	}
}
