package execution

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// A statement with arguments has to be described before they can be encoded: the next tenant's tables may
// differ, and so each tenant's statements are described for themselves. What that said is remembered, so that
// the next job of the tenant sends a statement together with its arguments, and has it described once more in
// the same message: the types of before are only believed after the fact. If they have changed, whatever the
// statement did is rolled back, and the job runs again.

// memory is how statements of tenants were described when they were last sent. Safe for concurrent use.
type memory struct {
	mu       sync.Mutex
	now, old map[statement]remembered // guarded by mu; now is old once it is full
}

// statement is one of a tenant's schema.
type statement struct{ pool, schema, sql string }

type remembered struct {
	as      *pgconn.StatementDescription
	changes int // how often it was found to be another one
}

// Bounds of what is remembered: statements in each half, bytes of each one's text, and how often one may change:
// that of a type which each job makes for itself changes each time.
const (
	mostRemembered = 4096
	longestText    = 2048
	mostChanges    = 3
)

// find returns nil for a statement that was not described yet, or that changes often.
func (m *memory) find(s statement) *pgconn.StatementDescription {
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.recall(s)
	if r.changes > mostChanges {
		return nil
	}
	return r.as
}

// note remembers how a statement was described, unless its text is long.
func (m *memory) note(s statement, d *pgconn.StatementDescription) {
	if len(s.sql) > longestText {
		return
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	r := m.recall(s)
	if r.as != nil && !isSame(r.as, d) {
		r.changes++
	}
	r.as = d
	s.sql = strings.Clone(s.sql) // it may be part of a long text
	m.keep(s, r)
}

// recall has mu held.
func (m *memory) recall(s statement) remembered {
	r, known := m.now[s]
	if !known {
		if r, known = m.old[s]; known {
			m.keep(s, r)
		}
	}
	return r
}

// keep has mu held.
func (m *memory) keep(s statement, r remembered) {
	if m.now == nil || len(m.now) >= mostRemembered {
		m.now, m.old = map[statement]remembered{}, m.now
	}
	m.now[s] = r
}

// errTypesChanged is returned for a statement that was sent with types which are not those of its tables
// any more.
var errTypesChanged = errors.New("the types that this statement takes or returns have changed since it was last sent: the job runs again at once")

// isSame tells whether a statement takes and returns what it did, be it of another table.
func isSame(a, b *pgconn.StatementDescription) bool {
	return slices.Equal(a.ParamOIDs, b.ParamOIDs) && slices.EqualFunc(a.Fields, b.Fields, func(a, b pgconn.FieldDescription) bool {
		return a.Name == b.Name && a.DataTypeOID == b.DataTypeOID && a.TypeModifier == b.TypeModifier
	})
}

// exec is query for callers who want no rows. What may be several statements is sent as such, as by pgx. The handle
// is entered.
func (h *handle) exec(ctx context.Context, sql string, args []any) (pgconn.CommandTag, error) {
	sql, args, ours, err := h.rewrite(ctx, sql, args)
	switch {
	case err != nil:
		return pgconn.CommandTag{}, err
	case !ours || len(args) == 0 && !(h.opening != nil && isSingle(sql)):
		if err := h.begin(ctx); err != nil {
			return pgconn.CommandTag{}, err
		}
		return h.conn.Exec(ctx, sql, args...)
	}
	rows, err := h.send(ctx, sql, args)
	if err != nil {
		return pgconn.CommandTag{}, err
	}
	rows.Close()
	return rows.CommandTag(), rows.Err()
}

// query sends a statement of the handler's. The handle is entered.
func (h *handle) query(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	sql, args, ours, err := h.rewrite(ctx, sql, args)
	switch {
	case err != nil:
		return nil, err
	case !ours:
		if err := h.begin(ctx); err != nil {
			return nil, err
		}
		return h.conn.Query(ctx, sql, args...)
	}
	return h.send(ctx, sql, args)
}

// mayAnticipate tells whether statements may be sent as they were described before. A handler that has prepared
// some may send their names.
func (h *handle) mayAnticipate() bool { return h.memory != nil && !h.behindPooler && !h.unclean }

// isSingle tells whether a text without arguments is one statement for sure, of a kind that is planned.
func isSingle(sql string) bool {
	switch word, _ := nextWord(sql); word {
	case "select", "insert", "update", "delete", "merge", "with":
		return !strings.Contains(sql, ";")
	}
	return false
}

// rewrite does what a rewriter that leads the arguments says; !ours: it did nothing, as pgx has to send the
// statement.
func (h *handle) rewrite(ctx context.Context, sql string, args []any) (text string, values []any, ours bool, err error) {
	if !h.mayAnticipate() || sql == "" {
		return sql, args, false, nil
	}
	if len(args) == 0 {
		return sql, args, true, nil
	}
	w, rewrites := args[0].(pgx.QueryRewriter)
	switch {
	case !rewrites:
		return sql, args, !isOption(args[0]), nil
	case len(args) > 1 && isOption(args[1]):
		return sql, args, false, nil
	}
	if sql, args, err = w.RewriteQuery(ctx, nil, sql, args[1:]); err != nil {
		err = fmt.Errorf("rewrite query failed: %w", err)
	}
	return sql, args, true, err
}

// isOption tells whether an argument is one that pgx takes for itself.
func isOption(arg any) bool {
	switch arg.(type) {
	case pgx.QueryExecMode, pgx.QueryResultFormats, pgx.QueryResultFormatsByOID, pgx.QueryRewriter:
		return true
	}
	return false
}

// send sends one statement as pgx does in its mode DescribeExec. If it was described before, that takes one round
// trip, and the transaction begins in the same one.
func (h *handle) send(ctx context.Context, sql string, args []any) (pgx.Rows, error) {
	if h.void != nil {
		return nil, h.void
	}
	types, which := h.conn.TypeMap(), statement{h.tenant.Pool, h.tenant.Schema, sql}
	var encoded pgx.ExtendedQueryBuilder
	if known := h.memory.find(which); known != nil && encoded.Build(types, known, args) == nil { // else they may have changed
		return h.sendAsBefore(ctx, which, known, &encoded)
	}
	d, err := h.describe(ctx, which)
	if err != nil {
		return nil, err
	}
	if len(d.ParamOIDs) != len(args) {
		return nil, fmt.Errorf("expected %d arguments, got %d", len(d.ParamOIDs), len(args))
	}
	if err := encoded.Build(types, d, args); err != nil {
		return nil, err
	}
	return pgx.RowsFromResultReader(types, h.conn.PgConn().ExecStatement(ctx, d, encoded.ParamValues, encoded.ParamFormats, encoded.ResultFormats)), nil
}

// describe has Postgres describe a statement.
func (h *handle) describe(ctx context.Context, s statement) (*pgconn.StatementDescription, error) {
	p, opening := h.startPipeline(ctx)
	p.SendPrepare("", s.sql, nil)
	d, err := h.readDescription(p, opening)
	if closed := p.Close(); err == nil {
		err = closed
	}
	if err == nil {
		h.memory.note(s, d)
	}
	return d, err
}

// sendAsBefore sends a statement with arguments encoded for what it took before, and finds out whether it still
// takes that.
func (h *handle) sendAsBefore(ctx context.Context, s statement, known *pgconn.StatementDescription, args *pgx.ExtendedQueryBuilder) (pgx.Rows, error) {
	p, opening := h.startPipeline(ctx)
	p.SendPrepare("", s.sql, nil)
	sent := *known // its fields are read when its answer is
	p.SendQueryStatement(&sent, args.ParamValues, args.ParamFormats, args.ResultFormats)
	d, err := h.readDescription(p, opening)
	if err == nil && !isSame(d, known) {
		h.memory.note(s, d)
		h.void, err = errTypesChanged, errTypesChanged
	}
	var answer any
	if err == nil {
		sent.Fields = d.Fields
		answer, err = p.GetResults()
	}
	if err != nil {
		_ = p.Close()
		return nil, err
	}
	return &piped{Rows: pgx.RowsFromResultReader(h.conn.TypeMap(), answer.(*pgconn.ResultReader)), pipeline: p}, nil
}

// startPipeline begins a message, with the statements that begin the transaction if it has not begun.
func (h *handle) startPipeline(ctx context.Context) (p *pgconn.Pipeline, opening int) {
	p = h.conn.PgConn().StartPipeline(ctx)
	if h.opening != nil {
		for _, s := range h.opening() {
			p.SendQueryParams(s, nil, nil, nil, nil)
			opening++
		}
	}
	return p, opening
}

// readDescription sends the message and reads its answer up to how the statement in it is described.
func (h *handle) readDescription(p *pgconn.Pipeline, opening int) (*pgconn.StatementDescription, error) {
	err := p.Sync()
	if opening > 0 {
		for ; opening > 0 && err == nil; opening-- {
			var answer any
			if answer, err = p.GetResults(); err == nil {
				_, err = answer.(*pgconn.ResultReader).Close()
			}
		}
		err = h.noteBegun(err)
	}
	if err != nil {
		return nil, err
	}
	answer, err := p.GetResults()
	if err != nil {
		return nil, err
	}
	return answer.(*pgconn.StatementDescription), nil
}

// piped are rows behind which a pipeline has to be closed.
type piped struct {
	pgx.Rows
	pipeline *pgconn.Pipeline // nil: it is closed, and the connection may have the next one in its place
	err      error
}

func (r *piped) Next() bool {
	more := r.Rows.Next()
	if !more {
		r.Close()
	}
	return more
}

func (r *piped) Scan(dest ...any) error {
	err := r.Rows.Scan(dest...)
	if err != nil {
		r.Close()
	}
	return err
}

func (r *piped) Values() ([]any, error) {
	values, err := r.Rows.Values()
	if err != nil {
		r.Close()
	}
	return values, err
}

func (r *piped) Close() {
	r.Rows.Close()
	if r.pipeline != nil {
		r.err = r.pipeline.Close()
		r.pipeline = nil
	}
}

func (r *piped) Err() error { return cmp.Or(r.Rows.Err(), r.err) }
