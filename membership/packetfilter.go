package membership

import (
	"encoding/binary"
	"errors"
	"net"

	"github.com/hashicorp/memberlist"
)

// memberlist v0.7.0 does not survive two things that others can send it. What says how
// a packet or a stream is encrypted is not protected itself: a packet of a member that
// is sent once more with its version set back from 1 to 0 still decrypts, and what then
// looks for padding that is not there panics. And anybody who has the key can send a stream
// with nothing in it. So neither is let in. Members send version 1 only.
const (
	encryptionVersion = 1
	encryptedNothing  = 1 + 12 + 16 // the version, the nonce and the tag of an empty text
)

// labelLen is how much a label takes in front of a packet or a stream.
func labelLen(label string) int {
	if label == "" {
		return 0
	}
	return 2 + len(label)
}

// packetFilter hands on what memberlist can survive.
type packetFilter struct {
	memberlist.NodeAwareTransport
	label   int // its length on the wire
	packets chan *memberlist.Packet
	streams chan net.Conn
	quit    chan struct{} // closed when the transport has shut down
	done    chan struct{} // closed when run has ended
}

func newPacketFilter(tr memberlist.NodeAwareTransport, label string) *packetFilter {
	g := &packetFilter{NodeAwareTransport: tr, label: labelLen(label), packets: make(chan *memberlist.Packet), streams: make(chan net.Conn),
		quit: make(chan struct{}), done: make(chan struct{})}
	go g.run()
	return g
}

// PacketCh implements memberlist.Transport.
func (g *packetFilter) PacketCh() <-chan *memberlist.Packet { return g.packets }

// StreamCh implements memberlist.Transport.
func (g *packetFilter) StreamCh() <-chan net.Conn { return g.streams }

// Shutdown implements memberlist.Transport. What is on its way is taken until the
// transport is down, which waits for it.
func (g *packetFilter) Shutdown() error {
	err := g.NodeAwareTransport.Shutdown()
	select {
	case <-g.quit:
	default:
		close(g.quit)
	}
	<-g.done
	return err
}

func (g *packetFilter) run() {
	defer close(g.done)
	for {
		select {
		case <-g.quit:
			return
		case p := <-g.NodeAwareTransport.PacketCh():
			if len(p.Buf) <= g.label || p.Buf[g.label] != encryptionVersion {
				continue
			}
			select {
			case g.packets <- p:
			case <-g.quit:
			}
		case conn := <-g.NodeAwareTransport.StreamCh():
			select {
			case g.streams <- &checkedStream{Conn: conn, head: make([]byte, 0, g.label+streamHead)}:
			case <-g.quit:
				conn.Close()
			}
		}
	}
}

// streamHead is what stands in front of an encrypted stream, behind its label: what it
// is, how long the rest is, and how that is encrypted.
const streamHead = 1 + 4 + 1

// checkedStream looks at the head of a stream as it is read. One goroutine reads it.
type checkedStream struct {
	net.Conn
	head []byte // what has been read of it; its capacity is its length
}

// What it says shows that keys differ; see isUndecryptable.
var errNotOurs = errors.New("the stream is not encrypted as members do it")

// Read implements net.Conn.
func (s *checkedStream) Read(b []byte) (int, error) {
	n, err := s.Conn.Read(b)
	if missing := cap(s.head) - len(s.head); missing > 0 && n > 0 {
		s.head = append(s.head, b[:min(n, missing)]...)
		if len(s.head) == cap(s.head) {
			h := s.head[len(s.head)-streamHead:]
			if h[5] != encryptionVersion || binary.BigEndian.Uint32(h[1:5]) <= encryptedNothing {
				return 0, errNotOurs
			}
		}
	}
	return n, err
}
