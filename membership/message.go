package membership

import (
	"errors"
	"fmt"
	"sync"
)

// MaxPayload is the largest payload of [Cluster.Send], in bytes. With names,
// label and encryption around it a packet still fits an Ethernet frame.
const MaxPayload = 1200

// MaxReliablePayload is the largest payload of [Cluster.SendReliable], in bytes.
const MaxReliablePayload = 64 << 10

// A message on the wire:
//
//	byte 0     version, 1
//	byte 1     kind
//	string     sender's member name     (a length byte, then the bytes)
//	string     receiver's member name
//	bytes      payload, to the end
//
// The receiver's name is there because addresses are reused: what was meant for
// a process that is gone must not reach the next one on its port.
const messageVersion = 1

var (
	errMessageShort   = errors.New("message is cut off")
	errMessageVersion = errors.New("message has an unknown version")
	errMessageLarge   = errors.New("message is too large")
)

// maxMessage bounds what is accepted: the largest payload and its header.
const maxMessage = 2 + 2*256 + MaxReliablePayload

// message is one hint between two members.
type message struct {
	kind    byte
	from    string // member name; as the sender claims
	to      string // member name
	payload []byte
}

func (m message) encode() []byte {
	b := make([]byte, 0, 4+len(m.from)+len(m.to)+len(m.payload))
	b = append(b, messageVersion, m.kind)
	b = appendString(b, m.from)
	b = appendString(b, m.to)
	return append(b, m.payload...)
}

// decodeMessage copies what it keeps: memberlist may reuse b.
func decodeMessage(b []byte) (message, error) {
	if len(b) > maxMessage {
		return message{}, errMessageLarge
	}
	if len(b) < 2 {
		return message{}, errMessageShort
	}
	if b[0] != messageVersion {
		return message{}, errMessageVersion
	}
	from, rest, ok := cutString(b[2:])
	if !ok {
		return message{}, errMessageShort
	}
	to, rest, ok := cutString(rest)
	if !ok {
		return message{}, errMessageShort
	}
	if len(rest) > MaxReliablePayload {
		return message{}, errMessageLarge
	}
	return message{kind: b[1], from: string(from), to: string(to), payload: append([]byte(nil), rest...)}, nil
}

func checkPayload(payload []byte, limit int) error {
	if len(payload) > limit {
		return fmt.Errorf("%w: %d bytes, %d are allowed", ErrTooLarge, len(payload), limit)
	}
	return nil
}

// inbox holds received messages between memberlist's goroutines, which must not
// wait, and the one that calls handlers. When full it drops the oldest message:
// of hints, the newer is the better one.
type inbox struct {
	ready chan struct{} // one slot; a message may be waiting

	mu   sync.Mutex
	ring []message // guarded by mu; length is the capacity
	head int       // guarded by mu; the oldest
	n    int       // guarded by mu
}

func newInbox(capacity int) *inbox {
	return &inbox{ready: make(chan struct{}, 1), ring: make([]message, capacity)}
}

// push never blocks. It reports whether it dropped an older message to make room.
func (q *inbox) push(m message) (dropped bool) {
	q.mu.Lock()
	if q.n == len(q.ring) {
		q.head, q.n, dropped = (q.head+1)%len(q.ring), q.n-1, true
	}
	q.ring[(q.head+q.n)%len(q.ring)] = m
	q.n++
	q.mu.Unlock()
	nudge(q.ready)
	return dropped
}

func (q *inbox) pop() (message, bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.n == 0 {
		return message{}, false
	}
	m := q.ring[q.head]
	q.ring[q.head] = message{} // let the payload go
	q.head, q.n = (q.head+1)%len(q.ring), q.n-1
	return m, true
}

// nudge wakes the reader of a one-slot channel, if it is not awake already.
func nudge(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}
