package membership

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strings"

	"github.com/hashicorp/memberlist"
)

// Metadata is what every member knows about every other, carried in memberlist's
// alive messages. Each change is broadcast by every member to several others, so
// only what changes rarely belongs here.
//
//	byte 0     version, 1
//	byte 1     role: 1 node, 2 client
//	byte 2     flags: 1 joining, 2 draining
//	string     node name  (a length byte, then the bytes)
//	string     version
//	byte       how many pools it cannot reach, at most 32; 255: all
//	4 bytes    of each: see poolSet
//	4 bytes    that tell the kinds that it handles from others
//
// Readers ignore unknown flags and trailing bytes, so fields can be added without
// a new version. A new version is for changes old readers must not misread: they
// keep such a member as alive and never elect it.
const metaVersion = 1

const (
	flagJoining  = 1 << 0
	flagDraining = 1 << 1
)

// maxNode and maxVersion keep metadata far from memberlist's 512 bytes, beyond
// which memberlist panics, and packet headers small.
const (
	maxNode    = 63
	maxVersion = 64
)

var (
	errMetaShort   = errors.New("metadata is cut off")
	errMetaVersion = errors.New("metadata has an unknown version")
	errMetaRole    = errors.New("metadata has an unknown role")
	errMetaName    = errors.New("metadata names another node than the member's name")
)

// encodeMeta fails when m does not fit.
func encodeMeta(m Member) ([]byte, error) {
	if len(m.Node) > maxNode || len(m.Version) > maxVersion {
		return nil, fmt.Errorf("metadata does not fit: node name %d bytes of %d, version %d of %d", len(m.Node), maxNode, len(m.Version), maxVersion)
	}
	role, flags := byte(0), byte(0)
	switch m.Role {
	case RoleNode:
		role = 1
	case RoleClient:
		role = 2
	default:
		return nil, fmt.Errorf("role %q cannot be announced", m.Role)
	}
	if m.Joining {
		flags |= flagJoining
	}
	if m.Draining {
		flags |= flagDraining
	}
	b := make([]byte, 0, 10+len(m.Node)+len(m.Version)+len(m.unreachable))
	b = append(b, metaVersion, role, flags)
	b = appendString(b, m.Node)
	b = appendString(b, m.Version)
	b = binary.BigEndian.AppendUint32(m.unreachable.appendTo(b), m.kindsMark)
	if len(b) > memberlist.MetaMaxSize {
		return nil, fmt.Errorf("metadata has %d bytes, %d are allowed", len(b), memberlist.MetaMaxSize)
	}
	return b, nil
}

// decodeMeta reads what the member called name announced. It keeps nothing of b.
func decodeMeta(name string, b []byte) (Member, error) {
	m := Member{Name: name}
	if len(b) < 3 {
		return m, errMetaShort
	}
	if b[0] != metaVersion {
		return m, errMetaVersion
	}
	switch b[1] {
	case 1:
		m.Role = RoleNode
	case 2:
		m.Role = RoleClient
	default:
		return m, errMetaRole
	}
	m.Joining = b[2]&flagJoining != 0
	m.Draining = b[2]&flagDraining != 0
	node, rest, ok := cutString(b[3:])
	if !ok {
		return m, errMetaShort
	}
	version, rest, ok := cutString(rest)
	if !ok {
		return m, errMetaShort
	}
	if m.unreachable, rest, ok = cutPoolSet(rest); !ok {
		return m, errMetaShort
	}
	if len(rest) >= 4 { // older members send none
		m.kindsMark = binary.BigEndian.Uint32(rest)
	}
	// The election goes by the node name, so nobody may announce another's.
	if suffix, ok := strings.CutPrefix(name, string(node)+"-"); !ok || len(suffix) != 8 {
		return m, errMetaName
	}
	m.Node, m.Version = string(node), string(version)
	return m, nil
}

// appendString and cutString speak strings of up to 255 bytes behind a length byte.
func appendString(b []byte, s string) []byte {
	return append(append(b, byte(len(s))), s...)
}

func cutString(b []byte) (s, rest []byte, ok bool) {
	if len(b) < 1 || len(b) < 1+int(b[0]) {
		return nil, nil, false
	}
	n := 1 + int(b[0])
	return b[1:n], b[n:], true
}
