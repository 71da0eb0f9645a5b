package membership

import "errors"

// MaxPayload is the largest payload of [Cluster.Send], in bytes. With names,
// label and encryption around it a packet still fits an Ethernet frame.
const MaxPayload = 1200

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

// kindFarewell is the kind of what a member sends that leaves, and of nothing else.
const kindFarewell = 255

var (
	errMessageShort   = errors.New("message is cut off")
	errMessageVersion = errors.New("message has an unknown version")
	errMessageLarge   = errors.New("message is too large")
)

// maxMessage bounds what is accepted: the largest payload and its header.
const maxMessage = 2 + 2*256 + MaxPayload

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
	if len(rest) > MaxPayload {
		return message{}, errMessageLarge
	}
	return message{kind: b[1], from: string(from), to: string(to), payload: append([]byte(nil), rest...)}, nil
}
