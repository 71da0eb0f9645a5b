package execution

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime/debug"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"

	"github.com/tenurehq/tenure/job"
)

// CopyFrom implements pgx.Tx. It does what pgx does, but for this: pgx has the rows read
// and their values encoded, which calls the handler's code, in a goroutine of its own,
// where a panic would end the process. Here it goes on in the handler.
func (t *tenantTx) CopyFrom(ctx context.Context, table pgx.Identifier, columns []string, src pgx.CopyFromSource) (int64, error) {
	h := t.handle
	if err := t.enterBegun(ctx); err != nil {
		return 0, err
	}
	defer h.endCall()
	quoted := make([]string, len(columns))
	for i, c := range columns {
		quoted[i] = pgx.Identifier{c}.Sanitize()
	}
	names := strings.Join(quoted, ", ")
	sd, err := h.conn.Prepare(ctx, "", fmt.Sprintf("SELECT %s FROM %s", names, table.Sanitize()))
	if err != nil {
		return 0, fmt.Errorf("statement description failed: %w", err)
	}
	r := &copyReader{src: src, fields: sd.Fields, types: h.conn.TypeMap(), buf: []byte("PGCOPY\n\377\r\n\000\000\000\000\000\000\000\000\000")}
	tag, err := h.conn.PgConn().CopyFrom(ctx, r, fmt.Sprintf("COPY %s (%s) FROM STDIN BINARY", table.Sanitize(), names))
	r.close()
	if r.panicked != nil {
		panic(r.panicked)
	}
	return tag.RowsAffected(), err
}

// copyReader encodes rows as a goroutine of pgx reads them.
type copyReader struct {
	fields []pgconn.FieldDescription
	types  *pgtype.Map

	mu       sync.Mutex         // held while the source is read
	src      pgx.CopyFromSource // guarded by mu; nil: nothing is read any more
	buf      []byte             // guarded by mu; what is encoded, and begins with
	read     int                // guarded by mu; bytes that have been read
	err      error              // guarded by mu; what comes after buf
	panicked *job.PanicError    // guarded by mu
}

// close waits until nobody reads, and keeps everybody from reading again.
func (r *copyReader) close() {
	r.mu.Lock()
	r.src = nil
	r.mu.Unlock()
}

// errCopyEnded is what reads hear after close.
var errCopyEnded = errors.New("the COPY has ended")

// Read implements io.Reader.
func (r *copyReader) Read(p []byte) (n int, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.src == nil {
		return 0, errCopyEnded
	}
	r.buf, r.read = append(r.buf[:0], r.buf[r.read:]...), 0
	for len(r.buf) < len(p) && r.err == nil {
		r.err = r.encodeRow()
	}
	r.read = copy(p, r.buf)
	if r.read == len(r.buf) {
		return r.read, r.err
	}
	return r.read, nil
}

// errCopyPanicked tells Postgres why a COPY breaks off.
var errCopyPanicked = errors.New("the source of the rows panicked")

// encodeRow adds one row to buf; io.EOF: there was none left.
func (r *copyReader) encodeRow() (err error) {
	defer func() {
		if v := recover(); v != nil {
			r.panicked = &job.PanicError{Value: v, Stack: string(debug.Stack())}
			err = errCopyPanicked
		}
	}()
	if !r.src.Next() {
		if err := r.src.Err(); err != nil {
			return err
		}
		return io.EOF
	}
	values, err := r.src.Values()
	switch {
	case err != nil:
		return err
	case r.src.Err() != nil:
		return r.src.Err()
	case len(values) != len(r.fields):
		return fmt.Errorf("expected %d values, got %d values", len(r.fields), len(values))
	}
	row := binary.BigEndian.AppendUint16(r.buf, uint16(len(values)))
	for i, v := range values {
		if row, err = encodeCopyValue(r.types, row, r.fields[i].DataTypeOID, v); err != nil {
			return err
		}
	}
	r.buf = row
	return nil
}

// encodeCopyValue appends a value with its length before it; that of NULL is -1.
func encodeCopyValue(types *pgtype.Map, buf []byte, oid uint32, value any) ([]byte, error) {
	at := len(buf)
	buf = binary.BigEndian.AppendUint32(buf, ^uint32(0))
	encoded, err := types.Encode(oid, pgx.BinaryFormatCode, value, buf)
	if err != nil {
		var textErr error
		if encoded, textErr = encodeCopyText(types, buf, oid, value); textErr != nil {
			return nil, err
		}
	}
	if encoded == nil {
		return buf, nil
	}
	binary.BigEndian.PutUint32(encoded[at:], uint32(len(encoded)-at-4))
	return encoded, nil
}

// encodeCopyText encodes a value that is only known as text.
func encodeCopyText(types *pgtype.Map, buf []byte, oid uint32, value any) ([]byte, error) {
	text, ok := value.(string)
	if !ok {
		b, err := types.Encode(oid, pgx.TextFormatCode, value, nil)
		if err != nil {
			return nil, err
		}
		text = string(b)
	}
	if typ, ok := types.TypeForOID(oid); ok {
		if _, ok := typ.Codec.(*pgtype.ArrayCodec); ok { // keeps its dimensions
			var array pgtype.Array[any]
			if err := types.Scan(oid, pgx.TextFormatCode, []byte(text), &array); err == nil {
				return types.Encode(oid, pgx.BinaryFormatCode, array, buf)
			}
		}
	}
	var parsed any
	if err := types.Scan(oid, pgx.TextFormatCode, []byte(text), &parsed); err != nil {
		return nil, err
	}
	return types.Encode(oid, pgx.BinaryFormatCode, parsed, buf)
}
