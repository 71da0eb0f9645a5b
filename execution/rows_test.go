package execution

import (
	"bytes"
	"context"
	"reflect"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
)

// What pgx scans into destinations that are not given a copy, and what Values returns, is a copy.
func TestOrdinaryDestinationsKeepNothing(t *testing.T) {
	t.Parallel()
	conn, err := pgx.Connect(t.Context(), storetest.DSN(t, "main", 1))
	require.NoError(t, err)
	defer func() { require.NoError(t, conn.Close(context.WithoutCancel(t.Context()))) }()
	types := conn.TypeMap()
	scanned := map[reflect.Type]bool{}
	for _, format := range []int16{pgx.TextFormatCode, pgx.BinaryFormatCode} {
		rows, err := conn.Query(t.Context(), `SELECT 'text', 'name'::name, 'c'::"char", 'varchar'::varchar, 'bytes'::bytea, '{"a": ["b"]}'::json, '{"a": ["b"]}'::jsonb,
			'<a/>'::xml, true, 1::int2, 2::int4, 3::int8, 4::oid, 1.5::float4, 2.5::float8, 1.25::numeric, now(), now()::timestamp, current_date, localtime, '1 day'::interval,
			'::1'::inet, '08:00:2b:01:02:03'::macaddr, gen_random_uuid(), B'101', '$.a'::jsonpath, ARRAY['a', 'b'], ARRAY[1, 2], ARRAY[1, 2]::int8[], ARRAY['bytes'::bytea],
			ARRAY['{"a": "b"}'::jsonb], ROW('a', 'bytes'::bytea), '[1,2)'::int4range, '{[1,2)}'::int4multirange, '(1,2)'::point`,
			pgx.QueryExecModeDescribeExec, pgx.QueryResultFormats{format})
		require.NoError(t, err)
		require.True(t, rows.Next(), "%v", rows.Err())
		for i, field := range rows.FieldDescriptions() {
			raw := rows.RawValues()[i]
			again := func(scan func(src []byte, dest any) error, dest any) {
				want := reflect.New(reflect.TypeOf(dest).Elem()).Interface()
				src := bytes.Clone(raw)
				if scan(src, dest) != nil {
					return
				}
				require.NoError(t, scan(raw, want))
				for i := range src {
					src[i] = '!'
				}
				require.Equal(t, want, dest, "%s into %T", field.Name, dest)
				scanned[reflect.TypeOf(dest)] = true
			}
			for _, dest := range []any{new(string), new([]byte), new(bool), new(int), new(int16), new(int32), new(int64), new(uint32), new(uint64), new(float32), new(float64), new(time.Time), new(any),
				new(*string), new(*bool), new(*int), new(*int16), new(*int32), new(*int64), new(*float64), new(*time.Time), new([]string), new([]int32), new([]int64), new(map[string]any)} {
				require.False(t, mayKeep(dest))
				again(func(src []byte, dest any) error { return types.Scan(field.DataTypeOID, format, src, dest) }, dest)
			}
			if typ, known := types.TypeForOID(field.DataTypeOID); known {
				again(func(src []byte, dest any) (err error) {
					*dest.(*any), err = typ.Codec.DecodeValue(types, field.DataTypeOID, format, src)
					return err
				}, new(any))
			}
		}
		rows.Close()
		require.NoError(t, rows.Err())
	}
	require.Len(t, scanned, 25, "each was scanned into")
}

// BenchmarkRows reads a thousand ordinary rows; an operation is one of them.
func BenchmarkRows(b *testing.B) {
	c := makeCity(b, nil, func(*city, string) string { return "" })
	read := func(b *testing.B, tx interface {
		Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error)
	}) {
		var (
			id   int64
			name string
			at   time.Time
			body []byte
		)
		for n := 0; n < b.N; {
			rows, err := tx.Query(b.Context(), `SELECT i, 'a name of some length', now(), convert_to(repeat('x', 100), 'UTF8') FROM generate_series(1, 1000) AS i`)
			require.NoError(b, err)
			for rows.Next() {
				require.NoError(b, rows.Scan(&id, &name, &at, &body))
				n++
			}
			require.NoError(b, rows.Err())
		}
	}
	b.Run("of a handler", func(b *testing.B) {
		b.ReportAllocs()
		require.NoError(b, InTx(b.Context(), c.owner.tenants, *c.tenants["alpha"], func(_ context.Context, tx pgx.Tx) error {
			b.ResetTimer()
			read(b, tx)
			return nil
		}))
	})
	b.Run("of pgx", func(b *testing.B) {
		b.ReportAllocs()
		require.NoError(b, InTx(b.Context(), c.owner.tenants, *c.tenants["alpha"], func(_ context.Context, tx pgx.Tx) error {
			b.ResetTimer()
			read(b, tx.(*tenantTx).handle.conn)
			return nil
		}))
	})
}
