package execution

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// A handler's COPY takes what that of pgx takes, and puts the same into the table.
func TestCopyFromIsThatOfPgx(t *testing.T) {
	t.Parallel()
	columns := []string{"i", "Te xt", "at", "day", "list", "doc", "raw", "num", "addr"}
	at := time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)
	one := []any{1, "a", at, at, []string{"x", "y"}, map[string]any{"k": 1}, []byte{0, 255}, "1.5", "10.0.0.1"}
	asText := []any{"2", "ä", "2026-01-02 03:04:05+00", "2026-01-02", "{{a,b},{c,d}}", `{"k": [1]}`, []byte("raw"), 2.5, "::1"}
	nothing := make([]any, len(columns))
	many := make([][]any, 5000) // more than is sent at a time
	for i := range many {
		many[i] = append([]any{i, strings.Repeat("long ", i%100)}, one[2:]...)
	}
	c := newCity(t, nil)
	for _, id := range []string{"alpha", "beta"} {
		c.exec(t, fmt.Sprintf(`CREATE TABLE %[1]s.shape (i bigint, "Te xt" text, at timestamptz, day date, list text[], doc jsonb, raw bytea, num numeric, addr inet);
			GRANT ALL ON %[1]s.shape TO %[2]s`, id, c.tenants[id].Role))
	}
	for name, rows := range map[string][][]any{
		"none": {}, "one": {one}, "as text": {asText}, "nulls": {nothing}, "many": many,
		"too few": {one[:3]}, "too many": {append(one, 1)}, "of the wrong type": {one, append([]any{"x"}, one[1:]...)},
	} {
		var n, want int64
		err := InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) (err error) {
			n, err = tx.CopyFrom(ctx, pgx.Identifier{"alpha", "shape"}, columns, pgx.CopyFromRows(rows))
			return err
		})
		wantErr := pgx.BeginFunc(t.Context(), c.admin, func(tx pgx.Tx) (err error) {
			want, err = tx.CopyFrom(t.Context(), pgx.Identifier{"beta", "shape"}, columns, pgx.CopyFromRows(rows))
			return err
		})
		require.Equal(t, want, n, name)
		if wantErr == nil {
			require.NoError(t, err, name)
		} else {
			require.EqualError(t, err, wantErr.Error(), name)
		}
		require.Zero(t, c.count(t, "SELECT count(*) FROM (TABLE alpha.shape EXCEPT ALL TABLE beta.shape) a"), name)
		require.Equal(t, c.count(t, "SELECT count(*) FROM beta.shape"), c.count(t, "SELECT count(*) FROM alpha.shape"), name)
	}
	require.Equal(t, 5003, c.count(t, "SELECT count(*) FROM alpha.shape"))
}

// source is a source of rows whose methods do what the test says.
type source struct {
	left   int
	next   func()
	values func() any
	err    func() error
}

func (s *source) Next() bool {
	if s.next != nil {
		s.next()
	}
	s.left--
	return s.left >= 0
}

func (s *source) Values() ([]any, error) {
	if s.values == nil {
		return []any{1}, nil
	}
	return []any{s.values()}, nil
}

func (s *source) Err() error {
	if s.err == nil {
		return nil
	}
	return s.err()
}

// nilValuer is a value as many write them: a nil one cannot say what it is.
type nilValuer struct{ n int64 }

func (v *nilValuer) Value() (driver.Value, error) { return v.n, nil }

// pgx asks for the rows of a COPY in a goroutine of its own. What goes wrong there is the
// job's failure all the same, and not the end of the process.
func TestCopyFromWhatPanics(t *testing.T) {
	t.Parallel()
	cases := map[string]struct {
		src  func(ctx context.Context, tx pgx.Tx) pgx.CopyFromSource
		says string
	}{
		"Next": {func(context.Context, pgx.Tx) pgx.CopyFromSource { return &source{next: func() { panic("boom") }} }, "panic: boom"},
		"Values": {func(context.Context, pgx.Tx) pgx.CopyFromSource {
			return &source{left: 2, values: func() any { panic("boom") }}
		}, "panic: boom"},
		"Err": {func(context.Context, pgx.Tx) pgx.CopyFromSource { return &source{err: func() error { panic("boom") }} }, "panic: boom"},
		"a value that is a nil pointer": {func(context.Context, pgx.Tx) pgx.CopyFromSource {
			return &source{left: 2, values: func() any { var v *nilValuer; return v }}
		}, "panic: runtime error: invalid memory address"},
		"an error that cannot be read": {func(context.Context, pgx.Tx) pgx.CopyFromSource {
			return &source{err: func() error { return &odd{text: boom} }}
		}, "panic: boom"},
		"the transaction, used by its own source": {func(ctx context.Context, tx pgx.Tx) pgx.CopyFromSource {
			s := &source{left: 1}
			var err error
			s.next = func() { _, err = tx.Exec(ctx, "SELECT 1") }
			s.err = func() error { return err }
			return s
		}, "conn busy"},
	}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "copy", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, err := tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, cases[string(rec.Payload)].src(ctx, tx))
			return err
		})
		inTx(r, "next", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	})
	c.start()
	for name, tc := range cases {
		e := c.run(t, "copy", c.tenants["alpha"], name)
		require.Equal(t, job.Retrying, e.outcome.State, name)
		require.ErrorContains(t, e.outcome.Err, tc.says, name)
		if strings.HasPrefix(tc.says, "panic") && name != "an error that cannot be read" {
			require.Contains(t, e.outcome.Stack, "copyfrom", "%s: a stack that leads to the source", name)
		}
		require.Equal(t, "in tx", c.run(t, "next", c.tenants["beta"], "").how, name)
	}
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// usesTx is scanned by using the transaction that it is scanned in.
type usesTx struct{ use func() error }

func (u *usesTx) Scan(any) error { return u.use() }

// A call inside another one would wait for itself: it is refused, as by pgx.
func TestCallsInCalls(t *testing.T) {
	t.Parallel()
	c := newCity(t, nil)
	within, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := InTx(within, c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
		var inner error
		err := tx.QueryRow(ctx, "SELECT 1").Scan(&usesTx{func() error {
			_, inner = tx.Exec(ctx, addEffect)
			require.ErrorIs(t, inner, errBusy)
			lo := tx.LargeObjects()
			_, err := lo.Create(ctx, 0)
			require.ErrorIs(t, err, pgx.ErrTxClosed)
			return inner
		}})
		require.ErrorIs(t, err, inner)
		return err
	})
	require.ErrorIs(t, err, errBusy)
	require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants["alpha"], func(ctx context.Context, tx pgx.Tx) error {
		rows, err := tx.Query(ctx, "SELECT generate_series(1, 10)")
		_, busy := tx.Exec(ctx, addEffect)
		require.ErrorContains(t, busy, "conn busy", "rows are open")
		rows.Close()
		_, again := tx.Exec(ctx, addEffect)
		return errors.Join(err, rows.Err(), again)
	}))
}
