package execution

import (
	"bytes"
	"context"
	"errors"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// A job whose statements were described before takes one round trip for each of them, and one for its end.
func TestRoundTripsOfAJob(t *testing.T) {
	t.Parallel()
	const insert = "INSERT INTO effect (job_id) VALUES ($1)"
	var trace bytes.Buffer
	trips := map[string]int{"none": 1, "one": 2, "plain": 2, "named": 2, "row": 2, "two": 3}
	c := newCity(t, func(r *job.Registry) {
		do := func(kind string, fn func(ctx context.Context, tx pgx.Tx) error) {
			inTx(r, kind, func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
				tx.(*tenantTx).handle.conn.PgConn().Frontend().Trace(&trace, pgproto3.TracerOptions{SuppressTimestamps: true})
				return fn(ctx, tx)
			})
		}
		do("none", func(context.Context, pgx.Tx) error { return nil })
		do("one", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, insert, 1)
			return err
		})
		do("plain", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "UPDATE effect SET job_id = job_id + 1")
			return err
		})
		do("named", func(ctx context.Context, tx pgx.Tx) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES (@job)", pgx.NamedArgs{"job": 1})
			return err
		})
		do("row", func(ctx context.Context, tx pgx.Tx) error {
			return tx.QueryRow(ctx, insert+" RETURNING job_id", 1).Scan(new(int64))
		})
		do("two", func(ctx context.Context, tx pgx.Tx) error {
			const series = "SELECT i FROM generate_series(1, $1::int) AS i"
			before, err := tx.Query(ctx, series, 0)
			if err != nil || before.Next() {
				return errors.Join(err, errors.New("of no rows"))
			}
			rows, err := tx.Query(ctx, series, 5)
			if err != nil {
				return err
			}
			before.Close() // is nothing to the rows behind it
			n, err := pgx.CollectRows(rows, pgx.RowTo[int])
			if err == nil && len(n) != 5 {
				err = errors.New("rows are missing")
			}
			return err
		})
	})
	c.start()
	for kind, want := range trips {
		for again := range 2 {
			e := c.run(t, kind, c.tenants["alpha"], "")
			require.Equal(t, "in tx", e.how, "%s: %v", kind, e.outcome.Err)
			if again == 1 {
				require.Equal(t, want, bytes.Count(trace.Bytes(), []byte("ReadyForQuery")), "%s:\n%s", kind, trace.String())
			}
			trace.Reset()
		}
	}
}

// A tenant's table may be altered between two jobs. What the first statement after that did with the types of
// before is undone, whatever the handler makes of its error, and the job runs again, once and uncharged.
func TestTypesThatHaveChanged(t *testing.T) {
	t.Parallel()
	var calls, read atomic.Int64
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "write", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			calls.Add(1)
			_, err := tx.Exec(ctx, "INSERT INTO value (v) VALUES ($1)", 7)
			return err
		})
		inTx(r, "write-or-discard", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			calls.Add(1)
			if _, err := tx.Exec(ctx, "INSERT INTO value AS it (v) VALUES ($1)", 7); err != nil {
				return job.Discard(err)
			}
			return nil
		})
		inTx(r, "read", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			calls.Add(1)
			var text string
			if err := tx.QueryRow(ctx, "SELECT v FROM value LIMIT 1").Scan(&text); err != nil {
				return nil // which says that all is well
			}
			n, err := strconv.ParseInt(text, 10, 64)
			read.Store(n)
			return err
		})
	})
	c.start()
	for _, kind := range []string{"write", "write-or-discard", "read"} {
		c.asOwner(t, "alpha", "CREATE TABLE value (v bigint); INSERT INTO value VALUES (7)")
		for i, typ := range []string{"bigint", "double precision", "numeric", "bigint"} {
			c.asOwner(t, "alpha", "ALTER TABLE value ALTER v TYPE "+typ+" USING v::"+typ)
			for again := range 2 {
				calls.Store(0)
				read.Store(0)
				e := c.run(t, kind, c.tenants["alpha"], "")
				require.Equal(t, "in tx", e.how, "%s %s: %v", kind, typ, e.outcome.Err)
				changed := i > 0 && again == 0
				require.Equal(t, changed, calls.Load() == 2, "%s %s: %d calls", kind, typ, calls.Load())
				if kind == "read" {
					require.EqualValues(t, 7, read.Load())
				}
				require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.value WHERE v::text <> '7'"), "%s %s", kind, typ)
			}
		}
		c.asOwner(t, "alpha", "DROP TABLE value")
	}
}

// A table that each job makes for itself has another identity each time, and the same types. Where the types
// differ each time, too, a few jobs run twice, and then none.
func TestTablesOfAJob(t *testing.T) {
	t.Parallel()
	var calls atomic.Int64
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "table", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			calls.Add(1)
			if _, err := tx.Exec(ctx, "CREATE TEMP TABLE mine (n bigint) ON COMMIT DROP"); err != nil {
				return err
			}
			var n int64
			err := tx.QueryRow(ctx, "INSERT INTO mine (n) VALUES ($1) RETURNING n", 7).Scan(&n)
			if err == nil && n != 7 {
				err = errors.New("what was written is not returned")
			}
			return err
		})
		inTx(r, "type", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			calls.Add(1)
			if _, err := tx.Exec(ctx, "CREATE TYPE pg_temp.mood AS ENUM ('well')"); err != nil {
				return err
			}
			var mood string
			err := tx.QueryRow(ctx, "SELECT $1::pg_temp.mood", "well").Scan(&mood)
			if err == nil {
				_, err = tx.Exec(ctx, "DROP TYPE pg_temp.mood")
			}
			return err
		})
	})
	c.start()
	for kind, most := range map[string]int64{"table": 0, "type": mostChanges + 1} {
		var twice int64
		for range 2 * mostChanges {
			calls.Store(0)
			e := c.run(t, kind, c.tenants["alpha"], "")
			require.Equal(t, "in tx", e.how, "%s: %v", kind, e.outcome.Err)
			twice += calls.Load() - 1
		}
		require.Equal(t, most, twice, kind)
	}
}

// Rows that a statement sent as before fails to give in the middle, or that nobody reads to their end, leave the
// transaction as pgx does.
func TestRowsThatEndEarly(t *testing.T) {
	t.Parallel()
	const series = "SELECT 10 / ($1::int - i) FROM generate_series(1, 1000) AS i"
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "fails", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			rows, err := tx.Query(ctx, series, 500)
			if err != nil {
				return err
			}
			_, err = pgx.CollectRows(rows, pgx.RowTo[int])
			return err
		})
		inTx(r, "closed", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			rows, err := tx.Query(ctx, series, 5000)
			if err != nil {
				return err
			}
			rows.Next()
			rows.Close()
			_, err = tx.Exec(ctx, addEffect)
			return errors.Join(rows.Err(), err)
		})
		inTx(r, "open", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			rows, err := tx.Query(ctx, series, 5000)
			if err == nil {
				rows.Next()
			}
			return err
		})
		inTx(r, "cancelled", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			ctx, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(ctx, "SELECT pg_sleep($1)", 60)
			return job.Discard(err)
		})
	})
	c.start()
	for range 2 {
		for kind, says := range map[string]string{"fails": "division by zero", "open": "open rows", "cancelled": "cancel", "closed": ""} {
			e := c.run(t, kind, c.tenants["alpha"], "")
			if says == "" {
				require.Equal(t, "in tx", e.how, "%s: %v", kind, e.outcome.Err)
				continue
			}
			require.ErrorContains(t, e.outcome.Err, says)
			require.Equal(t, kind == "cancelled", e.outcome.State == job.Dead, "%s: %v", kind, e.outcome.State)
		}
	}
}

// A handler's own context may end its first statement while the transaction begins. Its outcome counts, as if the
// statement had been ended a moment later, and it gets no other session's.
func TestTheFirstStatementIsCancelled(t *testing.T) {
	t.Parallel()
	var after error
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "tx", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			soon, cancel := context.WithTimeout(ctx, 50*time.Millisecond)
			defer cancel()
			_, err := tx.Exec(soon, "INSERT INTO effect VALUES ($1)", 1)
			_, after = tx.Exec(ctx, addEffect)
			return job.Discard(err)
		})
	})
	c.start()
	lock, err := c.admin.Begin(t.Context())
	require.NoError(t, err)
	_, err = lock.Exec(t.Context(), "LOCK TABLE tenure.tenant IN ACCESS EXCLUSIVE MODE")
	require.NoError(t, err)
	e := c.run(t, "tx", c.tenants["alpha"], "")
	require.NoError(t, lock.Rollback(t.Context()))
	require.Equal(t, job.Dead, e.outcome.State, "%v", e.outcome.Err)
	require.ErrorContains(t, e.outcome.Err, "canceling statement")
	require.ErrorContains(t, after, "current transaction is aborted")
	require.Zero(t, c.count(t, "SELECT count(*) FROM alpha.effect"))
}

// What is remembered is bounded, and what is in use stays.
func TestMemoryIsBounded(t *testing.T) {
	t.Parallel()
	var m memory
	used := statement{"pool", "schema", "SELECT $1"}
	m.note(used, &pgconn.StatementDescription{})
	for i := range 3 * mostRemembered {
		m.note(statement{"pool", strconv.Itoa(i), "SELECT $1"}, &pgconn.StatementDescription{})
		require.NotNil(t, m.find(used))
	}
	require.LessOrEqual(t, len(m.now)+len(m.old), 2*mostRemembered)
	require.Nil(t, m.find(statement{"pool", "0", "SELECT $1"}))
	long := statement{"pool", "schema", string(make([]byte, longestText+1))}
	m.note(long, &pgconn.StatementDescription{})
	require.Nil(t, m.find(long))
}
