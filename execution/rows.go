package execution

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
)

// rows are what a handler's query returned. Each call goes through the handle, so that
// none reaches the connection once the job has ended. What
// pgx keeps in the connection's own memory is copied: it would change under the hands of
// those who keep it, and show what the next tenant reads.
type rows struct {
	h      *handle
	inner  pgx.Rows // nil: the query was refused
	err    error    // what was wrong, as of the last call
	own    error    // what was wrong on this side of pgx; it counts more
	tag    pgconn.CommandTag
	fields []pgconn.FieldDescription // once somebody has asked
	types  *pgtype.Map               // once somebody has asked
}

var _ pgx.Rows = (*rows)(nil)

// wrapRows wraps what pgx returned; the handle is entered.
func (h *handle) wrapRows(inner pgx.Rows) *rows {
	return &rows{h: h, inner: inner, err: inner.Err(), tag: inner.CommandTag()}
}

// callInner does something with pgx' rows; false: it may not.
func (r *rows) callInner(fn func(pgx.Rows)) bool {
	if r.inner == nil {
		return false
	}
	if err := r.h.beginCall(context.Background()); err != nil {
		if r.own == nil {
			r.own = err
		}
		return false
	}
	defer r.h.endCall()
	fn(r.inner)
	r.err, r.tag = r.inner.Err(), r.inner.CommandTag()
	return true
}

func (r *rows) Err() error {
	if r.own != nil {
		return r.own
	}
	return r.err
}

func (r *rows) CommandTag() pgconn.CommandTag { return r.tag }

func (r *rows) Close() { r.callInner(pgx.Rows.Close) }

func (r *rows) Next() (more bool) {
	r.callInner(func(inner pgx.Rows) { more = inner.Next() })
	return more
}

func (r *rows) FieldDescriptions() []pgconn.FieldDescription {
	if r.fields == nil && r.Err() == nil {
		r.callInner(func(inner pgx.Rows) { r.fields = slices.Clone(inner.FieldDescriptions()) })
	}
	return r.fields
}

func (r *rows) Scan(dest ...any) (err error) {
	if len(dest) == 1 {
		if whole, ok := dest[0].(pgx.RowScanner); ok { // pgx would give it rows that lead to the connection
			return r.scanWhole(whole)
		}
	}
	done := r.callInner(func(inner pgx.Rows) {
		if !slices.ContainsFunc(dest, mayKeep) {
			err = inner.Scan(dest...)
			return
		}
		err = pgx.ScanRow(inner.TypeMap(), inner.FieldDescriptions(), cloned(inner.RawValues()), dest...)
		if err != nil { // as inner.Scan does
			if r.own == nil {
				r.own = err
			}
			inner.Close()
		}
	})
	if !done {
		return r.Err()
	}
	return err
}

// mayKeep tells whether a destination may keep the bytes that pgx scans from, instead of a
// copy, or hand them to something that does: scanners, and what scanners may stand in.
func mayKeep(dest any) bool {
	switch dest.(type) {
	case nil, *string, *[]byte, *bool, *int, *int16, *int32, *int64, *uint32, *uint64, *float32, *float64, *time.Time, *any,
		**string, **bool, **int, **int16, **int32, **int64, **float64, **time.Time, *[]string, *[]int32, *[]int64, *map[string]any:
		return false
	}
	return true
}

// cloned copies a row out of the connection's memory.
func cloned(row [][]byte) [][]byte {
	size := 0
	for _, v := range row {
		size += len(v)
	}
	values, memory := make([][]byte, len(row)), make([]byte, 0, size)
	for i, v := range row {
		if v != nil { // else it is NULL
			at := len(memory)
			memory = append(memory, v...)
			values[i] = memory[at:len(memory):len(memory)]
		}
	}
	return values
}

func (r *rows) scanWhole(dest pgx.RowScanner) error {
	err := dest.ScanRow(r)
	if err != nil && r.own == nil {
		r.own = err
		r.Close()
	}
	return err
}

func (r *rows) Values() (values []any, err error) {
	if !r.callInner(func(inner pgx.Rows) { values, err = inner.Values() }) {
		return nil, r.Err()
	}
	return values, err
}

// RawValues implements pgx.Rows. What it returns stays valid.
func (r *rows) RawValues() (values [][]byte) {
	r.callInner(func(inner pgx.Rows) { values = cloned(inner.RawValues()) })
	return values
}

// Conn implements pgx.Rows: nil, as that of the transaction.
func (r *rows) Conn() *pgx.Conn { return nil }

// TypeMap implements pgx.Rows. What is registered with it is known to these rows only.
func (r *rows) TypeMap() *pgtype.Map {
	if r.types == nil {
		r.callInner(func(inner pgx.Rows) {
			if m := inner.TypeMap(); m != nil {
				r.types = m.Copy()
			}
		})
	}
	return r.types
}

// firstRow is the first of some rows, scanned as pgx does it.
type firstRow struct{ rows *rows }

func (f firstRow) Scan(dest ...any) error {
	r := f.rows
	if r.Err() == nil && r.Next() {
		_ = r.Scan(dest...) // Err says it, too
		r.Close()
		return r.Err()
	}
	if r.Err() == nil {
		return pgx.ErrNoRows
	}
	return r.Err()
}

// results are those of a handler's batch. The functions that are queued with it are
// called here, as pgx would give them results that lead to the connection.
type results struct {
	h      *handle
	inner  pgx.BatchResults
	fns    []func(pgx.BatchResults) error // of each statement; nil: none
	next   int                            // of fns
	err    error
	closed bool
}

var _ pgx.BatchResults = (*results)(nil)

// wrapBatch takes the functions out of a copy of a batch and wraps its arguments.
func wrapBatch(b *pgx.Batch) (*pgx.Batch, []func(pgx.BatchResults) error) {
	wrapped := *b
	wrapped.QueuedQueries = make([]*pgx.QueuedQuery, len(b.QueuedQueries))
	fns := make([]func(pgx.BatchResults) error, len(b.QueuedQueries))
	for i, q := range b.QueuedQueries {
		c := *q
		c.Arguments, c.Fn = wrapArgs(q.Arguments), nil
		wrapped.QueuedQueries[i], fns[i] = &c, q.Fn
	}
	return &wrapped, fns
}

func (r *results) Exec() (tag pgconn.CommandTag, err error) {
	if err := r.h.beginCall(context.Background()); err != nil {
		return tag, err
	}
	defer r.h.endCall()
	r.next++
	return r.inner.Exec()
}

func (r *results) Query() (pgx.Rows, error) { return r.queryNext() }

func (r *results) queryNext() (*rows, error) {
	if err := r.h.beginCall(context.Background()); err != nil {
		return &rows{h: r.h, own: err}, err
	}
	defer r.h.endCall()
	r.next++
	inner, err := r.inner.Query()
	return r.h.wrapRows(inner), err
}

func (r *results) QueryRow() pgx.Row {
	rows, _ := r.queryNext() // its error is the rows', too
	return firstRow{rows}
}

// Close implements pgx.BatchResults: it reads what is left, and calls the functions that
// were queued with it.
func (r *results) Close() error {
	if r.closed {
		return r.err
	}
	for r.err == nil && r.next < len(r.fns) {
		fn, at := r.fns[r.next], r.next
		if fn != nil {
			r.err = fn(r)
		}
		if r.next == at && r.err == nil { // nobody has read it
			_, r.err = r.Exec()
		}
	}
	r.closed = true
	if err := r.h.beginCall(context.Background()); err != nil {
		r.err = errors.Join(r.err, err)
		return r.err
	}
	defer r.h.endCall()
	if err := r.inner.Close(); r.err == nil {
		r.err = err
	}
	return r.err
}

// Tx implements pgx.BatchResults. There is none: no batch begins a transaction in another.
func (r *results) Tx() pgx.Tx { return nil }

// wrapArgs has a handler's query rewriters given no connection.
func wrapArgs(args []any) []any {
	for i, a := range args {
		switch a := a.(type) {
		case pgx.NamedArgs, pgx.StrictNamedArgs: // those of pgx do not look at it
		case pgx.QueryRewriter:
			args = slices.Clone(args)
			args[i] = rewriter{a}
		}
	}
	return args
}

// rewriter is a handler's query rewriter; it is called while the handle is entered.
type rewriter struct{ inner pgx.QueryRewriter }

func (w rewriter) RewriteQuery(ctx context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	sql, args, err := w.inner.RewriteQuery(ctx, nil, sql, args)
	return sql, wrapArgs(args), err
}
