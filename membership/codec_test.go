package membership

import (
	"encoding/hex"
	"strings"
	"testing"

	"github.com/hashicorp/memberlist"
	"github.com/stretchr/testify/require"
)

func TestMeta(t *testing.T) {
	t.Parallel()
	for _, m := range []Member{
		{Name: "a-0123abcd", Node: "a", Role: RoleNode, Version: "1.2.3", Joining: true},
		{Name: "a-b-0123abcd", Node: "a-b", Role: RoleClient, Draining: true},
		{Name: "a-0123abcd", Node: "a", Role: RoleNode, unreachable: poolSetOf([]string{"eu-1", "eu-2"}), kindsMark: 7},
		{Name: "a-0123abcd", Node: "a", Role: RoleNode, unreachable: everyPool},
		{Name: strings.Repeat("n", maxNode) + "-0123abcd", Node: strings.Repeat("n", maxNode), Role: RoleNode, Version: strings.Repeat("v", maxVersion), unreachable: poolSetOf(pools(maxPoolSet)), kindsMark: 1<<32 - 1},
	} {
		b, err := encodeMeta(m)
		require.NoError(t, err)
		require.LessOrEqual(t, len(b), memberlist.MetaMaxSize)
		got, err := decodeMeta(m.Name, append(b, "a field of a later version"...))
		require.NoError(t, err)
		require.Equal(t, m, got)
	}
}

// The layout is read by members of other versions.
func TestMetaLayout(t *testing.T) {
	t.Parallel()
	b, err := encodeMeta(Member{Node: "n1", Role: RoleClient, Version: "v1", Joining: true, Draining: true, unreachable: poolSetOf([]string{"eu-1"}), kindsMark: 0x01020304})
	require.NoError(t, err)
	require.Equal(t, "010203"+"026e31"+"027631"+"01"+"38fcf255"+"01020304", hex.EncodeToString(b))
}

func TestMetaRefused(t *testing.T) {
	t.Parallel()
	good, err := encodeMeta(Member{Node: "a", Role: RoleNode, Version: "1"})
	require.NoError(t, err)
	good = good[:len(good)-4] // as from a member from before kinds were announced
	before, err := decodeMeta("a-0123abcd", good)
	require.NoError(t, err)
	require.Zero(t, before.kindsMark)
	for n := range len(good) - 1 {
		_, err := decodeMeta("a-0123abcd", good[:n])
		require.ErrorIs(t, err, errMetaShort, "%d bytes", n)
	}
	old, err := decodeMeta("a-0123abcd", good[:len(good)-1])
	require.NoError(t, err, "a member from before pools were, either")
	require.True(t, old.Reaches("eu-1"))
	for _, bad := range []string{"\x01", "\x02abcd", "\x21" + strings.Repeat("abcd", maxPoolSet+1)} {
		_, err := decodeMeta("a-0123abcd", append(good[:len(good)-1:len(good)-1], bad...))
		require.ErrorIs(t, err, errMetaShort, "%q", bad)
	}
	_, err = decodeMeta("a-0123abcd", append([]byte{9}, good[1:]...))
	require.ErrorIs(t, err, errMetaVersion)
	_, err = decodeMeta("a-0123abcd", append([]byte{1, 9}, good[2:]...))
	require.ErrorIs(t, err, errMetaRole)
	for _, name := range []string{"a", "b-0123abcd", "a-0123", "a-x-0123abcd"} {
		_, err = decodeMeta(name, good)
		require.ErrorIs(t, err, errMetaName, name)
	}

	_, err = encodeMeta(Member{Node: strings.Repeat("n", maxNode+1), Role: RoleNode})
	require.Error(t, err)
	_, err = encodeMeta(Member{Node: "n", Role: RoleNode, Version: strings.Repeat("v", maxVersion+1)})
	require.Error(t, err)
	_, err = encodeMeta(Member{Node: "n", Role: RoleUnknown})
	require.Error(t, err)
}

func TestMessage(t *testing.T) {
	t.Parallel()
	want := message{kind: 7, from: "a-0123abcd", to: "b-0123abcd", payload: []byte("claim 42")}
	b := want.encode()
	require.Equal(t, "0107"+"0a"+hex.EncodeToString([]byte(want.from))+"0a"+hex.EncodeToString([]byte(want.to))+hex.EncodeToString(want.payload), hex.EncodeToString(b))
	got, err := decodeMessage(b)
	require.NoError(t, err)
	require.Equal(t, want, got)

	// memberlist may reuse the buffer.
	clear(b)
	require.Equal(t, want, got)

	b = want.encode()
	for n := range len(b) - len(want.payload) {
		_, err := decodeMessage(b[:n])
		require.ErrorIs(t, err, errMessageShort, "%d bytes", n)
	}
	_, err = decodeMessage(append([]byte{2}, b[1:]...))
	require.ErrorIs(t, err, errMessageVersion)
	_, err = decodeMessage(append(b, make([]byte, MaxPayload)...))
	require.ErrorIs(t, err, errMessageLarge)
	_, err = decodeMessage(make([]byte, 1<<20))
	require.ErrorIs(t, err, errMessageLarge)
}

// The largest datagram must not be fragmented: 1500 bytes less IPv6 and UDP headers.
func TestPacketFits(t *testing.T) {
	t.Parallel()
	name := strings.Repeat("n", maxNode+9)
	packet := len(message{from: name, to: name, payload: make([]byte, MaxPayload)}.encode())
	const memberlistOverhead = 1 + 5 + (1 + 12 + 16) + 2 + maxLabel // type, checksum, encryption, label
	require.LessOrEqual(t, packet+memberlistOverhead, 1500-40-8)
}

func FuzzDecodeMeta(f *testing.F) {
	good, err := encodeMeta(Member{Node: "a", Role: RoleNode, Version: "1"})
	require.NoError(f, err)
	f.Add("a-0123abcd", good)
	f.Add("a-0123abcd", []byte{1, 2, 255, 0, 0})
	f.Add("-0123abcd", []byte{1, 1, 0, 0})
	f.Add("", []byte(nil))
	f.Fuzz(func(t *testing.T, name string, b []byte) {
		m, err := decodeMeta(name, b)
		if err != nil {
			return
		}
		require.Equal(t, name, m.Name)
		require.Equal(t, name[:len(name)-9], m.Node)
		require.LessOrEqual(t, len(m.Version), 255)
		if again, err := encodeMeta(m); err == nil { // longer names are read, not written
			back, err := decodeMeta(name, again)
			require.NoError(t, err)
			require.Equal(t, m, back)
		}
	})
}

func FuzzDecodeMessage(f *testing.F) {
	f.Add(message{kind: 1, from: "a", to: "b", payload: []byte("x")}.encode())
	f.Add([]byte{1, 0, 255, 0})
	f.Add([]byte{1})
	f.Add([]byte(nil))
	f.Fuzz(func(t *testing.T, b []byte) {
		m, err := decodeMessage(b)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(m.payload), MaxPayload)
		require.Equal(t, b, m.encode())
	})
}

func TestInbox(t *testing.T) {
	t.Parallel()
	q := make(inbox, 3)
	for i, dropped := range []int{0, 0, 0, 1, 1} {
		require.Equal(t, dropped, q.push(message{kind: byte(i)}), "push %d", i)
	}
	for _, want := range []byte{2, 3, 4} { // the oldest two are gone
		require.Equal(t, want, (<-q).kind)
	}
	require.Empty(t, q)
}
