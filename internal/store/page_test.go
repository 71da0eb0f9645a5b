package store

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// columns of page_read.sql, in its order.
var columns = []string{"n", "position", "id", "turn", "kind", "attempt", "max_attempts", "losses", "timeout_ms",
	"created_at", "payload", "meta", "unique_key", "correlation_id", "unwanted", "bytes", "exclusive_key", "ready_at"}

func fieldsOf(formats uint32) []pgconn.FieldDescription {
	out := make([]pgconn.FieldDescription, len(columns))
	for i, name := range columns {
		out[i] = pgconn.FieldDescription{Name: name, Format: int16(formats >> i & 1)}
	}
	return out
}

const allBinary = math.MaxUint32

func smallint(n int16) []byte { return binary.BigEndian.AppendUint16(nil, uint16(n)) }
func integer(n int32) []byte  { return binary.BigEndian.AppendUint32(nil, uint32(n)) }
func bigint(n int64) []byte   { return binary.BigEndian.AppendUint64(nil, uint64(n)) }

// wireRow is a row as the server sends it.
func wireRow() [][]byte {
	return [][]byte{integer(2), bigint(77), bigint(1 << 50), integer(3), []byte("mail.send"), smallint(4), smallint(9), smallint(1), integer(1500),
		bigint(60_000_000), []byte("{\"n\": 1}"), []byte("{}"), []byte("u"), []byte("c"), {0}, bigint(10), nil, bigint(120_000_000)}
}

func twoLanes() *PageRequest {
	var p PageRequest
	p.Add(Lane{Queue: "default", Tenant: "acme"}, 0, 10)
	p.Add(Lane{Queue: "mail", Tenant: "globex", Priority: -3}, 0, 10)
	return &p
}

func TestRowDecoder(t *testing.T) {
	t.Parallel()
	kinds := map[string]string{"mail.send": "mail.send"}
	want := Waiting{Lane: 1, Position: 77, Bytes: 10, Record: job.Record{
		ID: 1 << 50, Turn: 3, Kind: "mail.send", Attempt: 5, MaxAttempts: 9, Losses: 1, Timeout: 1500 * time.Millisecond,
		Queue: "mail", Tenant: "globex", Priority: -3, Payload: []byte(`{"n": 1}`), Meta: []byte(`{}`), UniqueKey: "u", CorrelationID: "c",
	}}
	created := time.Date(2000, 1, 1, 0, 1, 0, 0, time.UTC)
	check := func(v [][]byte, want Waiting) {
		d := rowDecoder{fields: fieldsOf(allBinary), ahead: time.Hour}
		var w Waiting
		d.decode(v, &w, twoLanes(), kinds)
		require.NoError(t, d.err)
		require.True(t, created.Equal(w.Record.CreatedAt), w.Record.CreatedAt)
		require.True(t, created.Add(time.Minute+time.Hour).Equal(w.Ready), w.Ready)
		w.Record.CreatedAt, w.Ready = time.Time{}, time.Time{}
		require.Equal(t, want, w)
	}
	check(wireRow(), want)

	v := wireRow()
	for _, i := range []int{6, 8, 11, 12, 13} { // the columns that may be NULL
		v[i] = nil
	}
	want.Record.MaxAttempts, want.Record.Timeout, want.Record.Meta, want.Record.UniqueKey, want.Record.CorrelationID = 0, 0, nil, "", ""
	check(v, want)

	v = wireRow() // of a kind that was not asked for
	v[4], v[10], v[15] = []byte("other"), nil, bigint(0)
	want = Waiting{Lane: 1, Position: 77, Foreign: true, Record: job.Record{
		ID: 1 << 50, Turn: 3, Kind: "other", Attempt: 5, MaxAttempts: 9, Losses: 1, Timeout: 1500 * time.Millisecond,
		Queue: "mail", Tenant: "globex", Priority: -3, Meta: []byte(`{}`), UniqueKey: "u", CorrelationID: "c",
	}}
	check(v, want)

	v = wireRow() // under an exclusive key, which the lane is read for or not
	v[16] = []byte("account:1")
	for _, head := range []bool{true, false} {
		p := twoLanes()
		p.Heads = []bool{false, head}
		d := rowDecoder{fields: fieldsOf(allBinary)}
		var w Waiting
		d.decode(v, &w, p, kinds)
		require.NoError(t, d.err)
		require.Equal(t, "account:1", w.Record.ExclusiveKey)
		require.Equal(t, !head, w.Keyed)
	}

	for bytes, left := range map[int64]bool{MaxJobBytes: true, MaxJobBytes + 1: false} {
		v = wireRow() // for which the page had no room, or nobody has
		v[10], v[11], v[15] = nil, nil, bigint(bytes)
		d := rowDecoder{fields: fieldsOf(allBinary)}
		var w Waiting
		d.decode(v, &w, twoLanes(), kinds)
		require.NoError(t, d.err)
		require.Equal(t, []bool{left, !left}, []bool{w.Left, w.TooLarge})
	}
}

// What decode keeps of a row must not change with the buffer that the row came in,
// nor with the rows that follow it.
func TestRowDecoderCopies(t *testing.T) {
	t.Parallel()
	d := rowDecoder{fields: fieldsOf(allBinary), more: arenaSize}
	rows := make([]Waiting, 3)
	big := append([]byte{}, slices.Repeat([]byte("x"), arenaSize)...)
	for i, payload := range [][]byte{[]byte("first"), big, []byte("third")} {
		v := wireRow()
		v[10] = payload
		d.decode(v, &rows[i], twoLanes(), nil)
		require.NoError(t, d.err)
		for _, b := range v {
			clear(b)
		}
	}
	require.Equal(t, "first", string(rows[0].Record.Payload))
	require.Len(t, rows[1].Record.Payload, arenaSize)
	require.Equal(t, "third", string(rows[2].Record.Payload))
	require.Equal(t, "mail.send", rows[0].Record.Kind)
	_ = append(rows[0].Record.Payload, "overwrites"...)
	require.Equal(t, "{}", string(rows[0].Record.Meta))
}

func TestRowDecoderRefuses(t *testing.T) {
	t.Parallel()
	refused := func(v [][]byte, fields []pgconn.FieldDescription, why string) {
		t.Helper()
		d := rowDecoder{fields: fields}
		d.decode(v, &Waiting{}, twoLanes(), map[string]string{"mail.send": "mail.send"})
		require.ErrorContains(t, d.err, why)
	}
	binaryFields := fieldsOf(allBinary)
	for n := range columns {
		refused(wireRow()[:n], binaryFields, "not 18")
		refused(wireRow(), binaryFields[:n], "not 18")
	}
	refused(append(wireRow(), nil), append(fieldsOf(allBinary), pgconn.FieldDescription{}), "not 18")
	refused(nil, nil, "not 18")
	for _, i := range []int{0, 1, 2, 3, 4, 5, 7, 9, 14, 15, 17} { // those that are never NULL
		v := wireRow()
		v[i] = nil
		refused(v, binaryFields, "is NULL")
	}
	for _, i := range []int{0, 1, 2, 3, 5, 6, 7, 8, 9} { // the numbers
		for _, n := range []int{0, 1, 3, 5, 7, 9, 16} {
			v := wireRow()
			v[i] = make([]byte, n)
			refused(v, binaryFields, "bytes")
		}
		refused(wireRow(), fieldsOf(allBinary&^(1<<i)), "column "+columns[i]+" is not in binary format")
	}
	for _, lane := range []int32{math.MinInt32, -1, 0, 3, math.MaxInt32} {
		v := wireRow()
		v[0] = integer(lane)
		refused(v, binaryFields, "row of lane")
	}
}

// Whatever stands in a row, decode tells whether it is one of page_read.sql.
func FuzzRowDecoder(f *testing.F) {
	const null = 255 // as the length of a column
	wire := func(v [][]byte) (out []byte) {
		for _, b := range v {
			if b == nil {
				out = append(out, null)
				continue
			}
			out = append(append(out, byte(len(b))), b...)
		}
		return out
	}
	f.Add(wire(wireRow()), uint32(allBinary))
	f.Add(wire(wireRow()), uint32(0))
	ours := wireRow()
	ours[4] = []byte("k")
	f.Add(wire(ours), uint32(allBinary))
	ours[10] = nil
	f.Add(wire(ours), uint32(allBinary))
	f.Add(wire(wireRow()[:5]), uint32(allBinary))
	f.Add(wire(make([][]byte, 17)), uint32(allBinary))
	f.Add(wire(make([][]byte, 20)), uint32(allBinary))
	f.Add([]byte(nil), uint32(allBinary))
	f.Fuzz(func(t *testing.T, data []byte, formats uint32) {
		var v [][]byte
		for len(data) > 0 && len(v) < 20 {
			n := int(data[0])
			data = data[1:]
			if n == null {
				v = append(v, nil)
				continue
			}
			n = min(n, len(data))
			v = append(v, data[:n:n])
			data = data[n:]
		}
		d := rowDecoder{fields: fieldsOf(formats)}
		var w Waiting
		p := twoLanes()
		d.decode(v, &w, p, map[string]string{"k": "k"})
		if d.err != nil {
			return
		}
		require.Len(t, v, len(columns))
		for i, name := range columns {
			if v[i] == nil && !(name == "payload" && (w.Foreign || w.TooLarge || w.Left || w.Keyed)) {
				require.Contains(t, []string{"max_attempts", "timeout_ms", "meta", "unique_key", "correlation_id", "exclusive_key"}, name)
			}
		}
		r := w.Record
		require.Equal(t, p.Tenants[w.Lane], r.Tenant)
		require.Equal(t, string(v[4]), r.Kind)
		require.Equal(t, string(v[12]), r.UniqueKey)
		require.Equal(t, string(v[13]), r.CorrelationID)
		require.Equal(t, r.Kind != "k", w.Foreign)
		payload := v[10]
		require.Equal(t, string(payload), string(r.Payload))
		require.Equal(t, v[11] == nil, r.Meta == nil)
	})
}

func BenchmarkRowDecoder(b *testing.B) {
	d := rowDecoder{fields: fieldsOf(allBinary), more: arenaSize}
	v, p, kinds := wireRow(), twoLanes(), map[string]string{"mail.send": "mail.send"}
	var w Waiting
	b.ReportAllocs()
	for b.Loop() {
		d.decode(v, &w, p, kinds)
	}
	require.NoError(b, d.err)
}
