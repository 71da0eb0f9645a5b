package acquisition

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

// wireText is text as pools, queues and tenants have in their names.
func wireText() *rapid.Generator[string] {
	return rapid.StringMatching(`[a-z0-9"<&\\é→-]{1,30}`)
}

func TestHintRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lane := rapid.Custom(func(t *rapid.T) store.Lane {
			return store.Lane{Queue: wireText().Draw(t, "queue"), Tenant: wireText().Draw(t, "tenant"), Priority: rapid.Int16().Draw(t, "priority")}
		})
		h := Hint{
			Pool:      wireText().Draw(t, "pool"),
			DueIn:     time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "due in")),
			Forwarded: rapid.Bool().Draw(t, "forwarded"),
		}
		if lanes := rapid.SliceOfN(lane, 0, 30).Draw(t, "lanes"); len(lanes) > 0 {
			h.Lanes = lanes
		}
		b := h.Encode()
		require.LessOrEqual(t, len(b), maxHint)
		got, err := DecodeHint(b)
		require.NoError(t, err)
		if got.Lanes == nil && len(h.Lanes) > 0 { // they did not fit
			long := h
			long.Lanes = nil
			require.Equal(t, long, got)
			require.Greater(t, len(h.Lanes), 2)
			return
		}
		require.Equal(t, h, got)
	})
}

// All lanes or none: of some of them a node would believe that they are all.
func TestHintLeavesOutAllLanes(t *testing.T) {
	t.Parallel()
	h := Hint{Pool: "main", Forwarded: true}
	fits := 0
	for i := range 100 {
		h.Lanes = append(h.Lanes, laneOf(fmt.Sprintf("tenant-%d", i), int16(i)))
		b := h.Encode()
		require.LessOrEqual(t, len(b), maxHint)
		got, err := DecodeHint(b)
		require.NoError(t, err)
		require.Equal(t, "main", got.Pool)
		require.True(t, got.Forwarded)
		if got.Lanes != nil {
			require.Equal(t, h.Lanes, got.Lanes)
			fits++
		}
	}
	require.Greater(t, fits, 10)
	require.Less(t, fits, 30)
	require.Len(t, h.Lanes, 100, "the sender's are untouched")
}

func TestHintRefused(t *testing.T) {
	t.Parallel()
	for _, b := range []string{
		``, `{`, `null`, `[]`, `"main"`, `{}`, `{"p":""}`, `{"p":7}`, `{"p":"main","d":-1}`, `{"p":"main","d":1e30}`, `{"p":"main"} x`,
		`{"p":"main","l":[{"Priority":70000}]}`, `{"p":"main","l":{}}`,
		`{"p":"main","l":[{"Queue":"a\u0000","Tenant":"t"}]}`, `{"p":"main","l":[{"Queue":"a","Tenant":"\u0000"}]}`,
	} {
		h, err := DecodeHint([]byte(b))
		require.Error(t, err, b)
		require.Equal(t, Hint{}, h, b)
	}
}

func TestAboutRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		a := About{Pool: wireText().Draw(t, "pool")}
		got, err := DecodeAbout(a.Encode())
		require.NoError(t, err)
		require.Equal(t, a, got)
	})
	for _, b := range []string{``, `{}`, `{"p":""}`, `{"p":1}`, `null`, `{"p":"main"}}`} {
		a, err := DecodeAbout([]byte(b))
		require.Error(t, err, b)
		require.Equal(t, About{}, a)
	}
}

func TestRoomRoundTrip(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		r := Capacity{
			Pool: wireText().Draw(t, "pool"), Session: uuid.New(),
			Taken: rapid.Int64Range(0, math.MaxInt64).Draw(t, "taken"), Free: rapid.IntRange(0, maxCapacity).Draw(t, "room"),
			Returned: rapid.Bool().Draw(t, "returned"), DueIn: time.Duration(rapid.Int64Range(0, math.MaxInt64).Draw(t, "due in")),
		}
		if over := rapid.SliceOfN(rapid.Int64Range(1, 1<<47), 0, maxOver).Draw(t, "over"); len(over) > 0 {
			r.Over = over
		}
		b := r.Encode()
		require.LessOrEqual(t, len(b), 1100, "within one datagram")
		got, err := DecodeCapacity(b)
		require.NoError(t, err)
		require.Equal(t, r, got)
	})
	const session = `"s":"6ba7b810-9dad-11d1-80b4-00c04fd430c8"`
	_, err := DecodeCapacity([]byte(`{"p":"main",` + session + `}`))
	require.NoError(t, err)
	for _, b := range []string{
		``, `null`, `{"p":"main"}`, `{` + session + `}`, `{"p":"main","s":"x"}`, `{"p":"main","s":"00000000-0000-0000-0000-000000000000"}`,
		`{"p":"main",` + session + `,"t":-1}`, `{"p":"main",` + session + `,"r":-1}`, `{"p":"main",` + session + `,"r":16777217}`, `{"p":"main",` + session + `,"r":1e300}`, `{"p":"main",` + session + `,"d":-1}`,
		`{"p":"main",` + session + `,"o":[1.5]}`,
	} {
		r, err := DecodeCapacity([]byte(b))
		require.Error(t, err, b)
		require.Equal(t, Capacity{}, r)
	}
}

func FuzzDecodeHint(f *testing.F) {
	f.Add(Hint{Pool: "main", Lanes: []store.Lane{laneOf("acme", 1), laneOf("globex", -1)}, Forwarded: true}.Encode())
	f.Add(Hint{Pool: "main", DueIn: time.Hour}.Encode())
	f.Add([]byte(`{"p":"main","l":[null,{}]}`))
	f.Add([]byte(`{"p":"main","l":[{"Queue":"\u0000"}]}`))
	f.Add([]byte("{\"p\":\"\xff\",\"d\":9223372036854775807}"))
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := DecodeHint(b)
		if err != nil {
			return
		}
		require.NotEmpty(t, h.Pool)
		require.GreaterOrEqual(t, h.DueIn, time.Duration(0))
		for _, l := range h.Lanes {
			require.NotContains(t, l.Queue+l.Tenant, "\x00", "Postgres would refuse the whole page")
		}
		newInbox().addHint(h) // whatever it says
		again := h.Encode()
		if len(again) > maxHint { // only a pool of a name that no pool has
			require.Greater(t, len(h.Pool), maxHint/12)
		}
		got, err := DecodeHint(again)
		require.NoError(t, err)
		if len(h.Lanes) == 0 || got.Lanes == nil {
			h.Lanes, got.Lanes = nil, nil
		}
		require.Equal(t, h, got)
	})
}

func FuzzDecodeAbout(f *testing.F) {
	f.Add(About{Pool: "main"}.Encode())
	f.Add([]byte(`{"p":"` + strings.Repeat(`\ud800`, 3) + `"}`))
	f.Add([]byte(`{"P":"main","x":[]}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAbout(b)
		if err != nil {
			return
		}
		require.NotEmpty(t, a.Pool)
		got, err := DecodeAbout(a.Encode())
		require.NoError(t, err)
		require.Equal(t, a, got)
	})
}

// What a peer says is believed only as far as it costs nothing: it makes no credit out
// of nothing, and no panic.
func FuzzDecodeRoom(f *testing.F) {
	id := uuid.MustParse("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
	f.Add(Capacity{Pool: "main", Session: id, Taken: 7, Free: 9, Over: []int64{1, 2}, Returned: true, DueIn: time.Second}.Encode(), int64(3))
	f.Add(Capacity{Pool: "main", Session: id, Taken: math.MaxInt64, Free: maxCapacity, DueIn: math.MaxInt64}.Encode(), int64(0))
	f.Add([]byte(`{"p":"main","s":"6ba7b810-9dad-11d1-80b4-00c04fd430c8","o":[]}`), int64(1<<40))
	f.Fuzz(func(t *testing.T, b []byte, given int64) {
		r, err := DecodeCapacity(b)
		if err != nil {
			return
		}
		require.NotEmpty(t, r.Pool)
		require.True(t, r.Taken >= 0 && r.Free >= 0 && r.DueIn >= 0)
		got, err := DecodeCapacity(r.Encode())
		require.NoError(t, err)
		if len(r.Over) == 0 {
			r.Over = nil
		}
		require.Equal(t, r, got)

		ps := newIdleTerm().peers
		first, _ := ps.noteReport("b-1", Capacity{Session: r.Session})
		first.assigned = max(given, 0)
		p, _ := ps.noteReport("b-1", r)
		require.Same(t, first, p)
		require.GreaterOrEqual(t, p.credit, 0)
		require.LessOrEqual(t, p.credit, r.Free)
	})
}
