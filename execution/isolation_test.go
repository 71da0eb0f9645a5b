package execution

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgtype"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// attack is a handler that misbehaves on its tenant's connection.
type attack struct {
	name string
	do   func(ctx context.Context, tx pgx.Tx, v *villain) error
	ends string // how its job must end: done, failed, or "" where either will do
	conn what   // becomes of the connection
}

// what becomes of a connection after its job.
type what int

const (
	either    what = iota
	kept           // it must go on to the next job
	destroyed      // it must not
)

// villain is what attacks know.
type villain struct {
	*city
	other  string                              // the role of another tenant
	stored pgx.Tx                              // of an earlier attack
	later  func(context.Context, pgx.Tx) error // what the attack comes to in the victim's job; nil: nothing
}

// sql is an attack by statements that must work.
func sql(statements string) func(context.Context, pgx.Tx, *villain) error {
	return func(ctx context.Context, tx pgx.Tx, v *villain) error {
		_, err := tx.Exec(ctx, strings.NewReplacer("{other}", v.other, "{user}", v.user).Replace(statements))
		return err
	}
}

// refused is an attack by a statement that must not work.
func refused(statement, code string) func(context.Context, pgx.Tx, *villain) error {
	return func(ctx context.Context, tx pgx.Tx, v *villain) error {
		_, err := tx.Exec(ctx, strings.NewReplacer("{other}", v.other, "{user}", v.user).Replace(statement))
		var pg *pgconn.PgError
		if !errors.As(err, &pg) || pg.Code != code {
			v.t.Errorf("%s: %v", statement, err)
		}
		return nil // as if nothing had happened
	}
}

// failing is an attack whose handler then returns an error.
func failing(do func(context.Context, pgx.Tx, *villain) error) func(context.Context, pgx.Tx, *villain) error {
	return func(ctx context.Context, tx pgx.Tx, v *villain) error {
		if err := do(ctx, tx, v); err != nil {
			v.t.Errorf("%v", err)
		}
		return errBroken
	}
}

// session is an attack that sets something for the session and commits it.
func session(name, statements string) attack {
	return attack{name, sql(statements), "done", kept}
}

// bareBy is an attack that looks for the bare connection.
func bareBy(name string, do func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error) attack {
	return attack{name, func(ctx context.Context, tx pgx.Tx, v *villain) error {
		asked := false
		err := do(ctx, tx, func(c *pgx.Conn) {
			asked = true
			if c != nil {
				v.t.Errorf("PROMISE BROKEN: %s: a handler was given a connection", name)
			}
		})
		if !asked && err == nil {
			v.t.Errorf("%s: nobody asked", name)
		}
		return err
	}, "done", kept}
}

// rowTaker is where a row is scanned to that gets at the connection.
type rowTaker func(*pgx.Conn)

func (got rowTaker) ScanRow(rows pgx.Rows) error {
	got(rows.Conn())
	return rows.Scan(new(int))
}

// rewriteTaker is a query rewriter that gets at the connection.
type rewriteTaker func(*pgx.Conn)

func (got rewriteTaker) RewriteQuery(_ context.Context, conn *pgx.Conn, sql string, args []any) (string, []any, error) {
	got(conn)
	return sql, args, nil
}

// spyCodec notes that it was asked for.
type spyCodec struct {
	pgtype.TextCodec
	saw atomic.Int64
}

func (c *spyCodec) PlanScan(m *pgtype.Map, oid uint32, format int16, target any) pgtype.ScanPlan {
	c.saw.Add(1)
	return c.TextCodec.PlanScan(m, oid, format, target)
}

// These keep what they were given to scan.
type (
	bytesKeeper []byte
	sqlKeeper   []byte
	jsonKeeper  []byte
)

// ScanBytes implements pgtype.BytesScanner.
func (k *bytesKeeper) ScanBytes(v []byte) error {
	*k = v
	return nil
}

// Scan implements sql.Scanner.
func (k *sqlKeeper) Scan(v any) error {
	b, ok := v.([]byte)
	if !ok {
		return fmt.Errorf("given a %T", v)
	}
	*k = b
	return nil
}

// UnmarshalJSON implements json.Unmarshaler.
func (k *jsonKeeper) UnmarshalJSON(v []byte) error {
	*k = v
	return nil
}

// held is a destination that keeps the bytes that pgx scans from.
type held struct {
	name, column string
	dest         any
	bytes        func() []byte
}

// newHeld are destinations of all sorts for the columns of heldColumns.
func newHeld() []held {
	var (
		own        bytesKeeper
		ownPointer *bytesKeeper
		ownSlice   []*bytesKeeper
		driver     pgtype.DriverBytes
		pointer    *pgtype.DriverBytes
		slice      []pgtype.DriverBytes
		array      pgtype.FlatArray[pgtype.DriverBytes]
		field      pgtype.DriverBytes
		element    []pgtype.DriverBytes
		scanner    sqlKeeper
		document   jsonKeeper
		nested     struct{ A jsonKeeper }
	)
	const value = "'mine'::bytea"
	return []held{
		{"a BytesScanner", value, &own, func() []byte { return own }},
		{"a pointer to a BytesScanner", value, &ownPointer, func() []byte { return *ownPointer }},
		{"a slice of BytesScanners", "ARRAY[" + value + "]", &ownSlice, func() []byte { return *ownSlice[0] }},
		{"DriverBytes", value, &driver, func() []byte { return driver }},
		{"a pointer to DriverBytes", value, &pointer, func() []byte { return *pointer }},
		{"a slice of DriverBytes", "ARRAY[" + value + "]", &slice, func() []byte { return slice[0] }},
		{"an array of DriverBytes", "ARRAY[" + value + "]", &array, func() []byte { return array[0] }},
		{"a field of a composite", "ROW(" + value + ")", pgtype.CompositeFields{&field}, func() []byte { return field }},
		{"a slice in a composite", "ROW(ARRAY[" + value + "])", pgtype.CompositeFields{&element}, func() []byte { return element[0] }},
		{"a sql.Scanner", "'\"mine\"'::jsonb", &scanner, func() []byte { return scanner }},
		{"a json.Unmarshaler", "'\"mine\"'::jsonb", &document, func() []byte { return document }},
		{"a json.Unmarshaler in a struct", "'{\"A\": \"mine\"}'::jsonb", &nested, func() []byte { return nested.A }},
	}
}

func heldColumns() string {
	var columns []string
	for _, h := range newHeld() {
		columns = append(columns, h.column)
	}
	return strings.Join(columns, ", ")
}

func destinations(all []held) []any {
	var dest []any
	for _, h := range all {
		dest = append(dest, h.dest)
	}
	return dest
}

// attacks follow research/reliability.md §5.4, whose numbers they bear.
var attacks = []attack{
	{"1 panic before the first query", func(context.Context, pgx.Tx, *villain) error { panic("boom") }, "failed", destroyed},
	{"1 panic after a query", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, "SELECT 1")
		panic("boom")
	}, "failed", destroyed},
	{"2 panic after an INSERT", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, addEffect)
		panic("boom")
	}, "failed", destroyed},
	{"3 Goexit", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, addEffect+"; SET search_path = public")
		runtime.Goexit()
		return nil
	}, "failed", destroyed},
	session("5 SET search_path", "SET search_path = public"),
	{"6 SET search_path, rolled back", failing(sql("SET search_path = public")), "failed", kept},
	session("7 SET ROLE", "SET ROLE {other}"),
	{"7 SET ROLE, rolled back", failing(sql("SET ROLE {other}")), "failed", kept},
	session("7 RESET ROLE", "RESET ROLE"),
	session("7 SET SESSION ROLE, RESET in the transaction", "SET SESSION ROLE {other}; SET LOCAL ROLE NONE"),
	{"8 SET SESSION AUTHORIZATION", refused("SET SESSION AUTHORIZATION {other}", "42501"), "failed", kept},
	session("8 SET SESSION AUTHORIZATION to itself", "SET SESSION AUTHORIZATION {user}"),
	session("9 SET app.tenant_id", "SET app.tenant_id = 'other'"),
	session("9 a setting of its own", "SET app.other = 'secret'"),
	session("10 set_config in a function", "SELECT set_all()"),
	{"11 ALTER ROLE of the login user", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		_, err := tx.Exec(ctx, "ALTER ROLE "+v.user+" SET search_path = public")
		return err // a tenant's role may not; without a role it may, for sessions to come
	}, "", either},
	{"11 ALTER ROLE CURRENT_USER", sql("ALTER ROLE CURRENT_USER SET search_path = public"), "done", kept},
	session("12 CREATE TEMP TABLE over a tenant's", "CREATE TEMP TABLE orders (of text); INSERT INTO pg_temp.orders VALUES ('shadow')"),
	session("12 CREATE TEMP VIEW, function, type", `CREATE TEMP VIEW canary AS SELECT 'shadow'::text AS tenant;
		CREATE FUNCTION pg_temp.f() RETURNS int LANGUAGE sql AS 'SELECT 1'; CREATE TYPE pg_temp.t AS (a int); CREATE TEMP SEQUENCE s; SELECT nextval('s')`),
	{"13 a statement prepared on a temporary table", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		if _, err := tx.Exec(ctx, "CREATE TEMP TABLE mine (a int) ON COMMIT PRESERVE ROWS; INSERT INTO mine VALUES (1)"); err != nil {
			return err
		}
		if _, err := tx.Prepare(ctx, "on_mine", "SELECT a FROM mine"); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, "on_mine")
		return err
	}, "done", destroyed},
	session("14 CURSOR WITH HOLD", "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM orders"),
	{"15 Prepare", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, err := tx.Prepare(ctx, "p", "SELECT 'theirs'")
		return err
	}, "done", destroyed},
	session("15 PREPARE", "PREPARE p AS SELECT 'theirs'"),
	session("16 LISTEN with a notification on its way", "LISTEN x; NOTIFY x, 'secret'; LISTEN y"),
	session("17 session advisory locks", "SELECT pg_advisory_lock(1), pg_advisory_lock(1), pg_advisory_lock_shared(2), pg_advisory_lock(3, 4)"),
	{"18 COMMIT", sql(addEffect + "; COMMIT"), "failed", kept},
	{"18 COMMIT, go on outside", sql("COMMIT; SET search_path = public; SET ROLE {other}; SET app.tenant_id = 'other'"), "failed", kept},
	{"18 COMMIT, BEGIN", sql("COMMIT; BEGIN; SET search_path = public"), "", kept},
	{"18 ROLLBACK", sql("ROLLBACK"), "failed", kept},
	{"18 ROLLBACK, BEGIN, fail", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, "ROLLBACK; BEGIN; SET search_path = public; SELECT 1/0")
		return nil
	}, "failed", kept},
	{"18 COMMIT AND CHAIN", sql("COMMIT AND CHAIN"), "", kept},
	{"19 a failed statement ignored", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, addEffect)
		_, _ = tx.Exec(ctx, "SELECT 1/0")
		return nil
	}, "failed", kept},
	session("20 savepoints", strings.Repeat("SAVEPOINT s;", 500)),
	session("21 statement_timeout", "SET LOCAL statement_timeout = 0; SET statement_timeout = '1h'; SET lock_timeout = '2h'; SET idle_in_transaction_session_timeout = '3h'"),
	session("22 transaction defaults", "SET default_transaction_isolation = serializable; SET SESSION CHARACTERISTICS AS TRANSACTION ISOLATION LEVEL REPEATABLE READ, DEFERRABLE"),
	{"22 read-only default", sql("SET default_transaction_read_only = on"), "done", kept},
	{"22 SET TRANSACTION READ ONLY", sql("SET TRANSACTION READ ONLY"), "failed", kept},
	session("23 row_security", "SET row_security = off"),
	{"24 session_replication_role", refused("SET session_replication_role = replica", "42501"), "failed", kept},
	{"25 COPY that breaks off", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.CopyFrom(ctx, pgx.Identifier{"effect"}, []string{"job_id"}, pgx.CopyFromFunc(func() ([]any, error) { return nil, errBroken }))
		return nil
	}, "failed", kept},
	{"26 rows left open", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, err := tx.Query(ctx, "SELECT generate_series(1, 100000)")
		return err
	}, "failed", destroyed},
	{"26 a batch left open", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		var b pgx.Batch
		b.Queue("SET search_path = public")
		b.Queue("SELECT 1")
		tx.SendBatch(ctx, &b)
		return nil
	}, "failed", destroyed},
	{"27 a goroutine left behind", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		begun, over := make(chan struct{}), make(chan struct{})
		v.t.Cleanup(func() { <-over })
		go func() {
			defer close(over)
			for n := 0; ; n++ {
				if _, err := tx.Exec(context.WithoutCancel(ctx), "SET search_path = public"); err != nil {
					if !errors.Is(err, ErrTxRevoked) {
						v.t.Errorf("left behind: %v", err)
					}
					return
				}
				if n == 1 {
					close(begun)
				}
			}
		}()
		<-begun
		return nil
	}, "done", kept},
	bareBy("38 the connection of the transaction", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		got(tx.Conn())
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			got(sp.Conn())
			return nil
		})
	}),
	{"27 large objects by the API", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		lo := tx.LargeObjects()
		_, err := lo.Create(ctx, 0)
		return err
	}, "done", destroyed},
	{"28 a handle stored for later", func(_ context.Context, tx pgx.Tx, v *villain) error {
		v.stored = tx
		return nil
	}, "done", kept},
	{"29 work for another tenant", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		j := store.NewJob{Tenant: "other", Queue: "default", Kind: "k", Payload: []byte("{}")}
		_, _, err := store.Enqueue(ctx, store.OnTx(tx), 1, &j)
		if tx.(*tenantTx).handle.role != "none" && !errors.Is(err, store.ErrNotAllowed) {
			v.t.Errorf("a tenant's role enqueues for another tenant: %v", err)
		}
		return nil
	}, "done", kept},
	{"30 a context of its own", func(_ context.Context, tx pgx.Tx, _ *villain) error {
		_, err := tx.Exec(context.Background(), "SET search_path = public")
		return err
	}, "done", kept},
	{"31 DISCARD ALL", refused("DISCARD ALL", "25001"), "failed", kept},
	{"31 DISCARD ALL after COMMIT", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, err := tx.Exec(ctx, "COMMIT")
		if err != nil { // through a pooler
			return err
		}
		_, execErr := tx.Exec(ctx, "DISCARD ALL")
		_, beginErr := tx.Begin(ctx)
		_, copyErr := tx.CopyFrom(ctx, pgx.Identifier{"orders"}, []string{"of"}, pgx.CopyFromRows([][]any{{"shadow"}}))
		batch := &pgx.Batch{}
		batch.Queue("SELECT 1")
		for _, refused := range []error{execErr, beginErr, copyErr, tx.QueryRow(ctx, "SELECT 1").Scan(new(int)), tx.SendBatch(ctx, batch).Close()} {
			if !errors.Is(refused, errEndedBySQL) { // it was executed as the nodes' user: the connection is destroyed for that here, and the case fails
				panic(refused)
			}
		}
		return err
	}, "failed", kept},
	session("31 DEALLOCATE ALL", "DEALLOCATE ALL"),
	{"32 its own backend terminated", func(ctx context.Context, tx pgx.Tx, _ *villain) error {
		_, _ = tx.Exec(ctx, "RESET ROLE; SELECT pg_terminate_backend(pg_backend_pid())")
		return nil
	}, "failed", destroyed},
	{"33 LOCK of the ledger", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		_, err := tx.Exec(ctx, "LOCK TABLE tenure.job, tenure.acquire_lock")
		if err == nil && tx.(*tenantTx).handle.role != "none" {
			v.t.Errorf("a tenant's role may lock the ledger")
		}
		return nil
	}, "", kept},
	{"35 large object descriptors", sql("SELECT lo_open(lo_create(0), 131072)"), "done", kept},
	session("36 what parsing and printing depend on", `SET client_encoding = 'LATIN1'; SET DateStyle = 'German'; SET TimeZone = 'Asia/Kolkata'; SET IntervalStyle = 'iso_8601';
		SET standard_conforming_strings = off; SET backslash_quote = on; SET bytea_output = 'escape'; SET extra_float_digits = -5`),
	{"37 COPY TO PROGRAM", refused("COPY (SELECT 1) TO PROGRAM 'true'", "42501"), "failed", kept},
	{"37 lo_import", refused("SELECT lo_import('/etc/passwd')", "42501"), "failed", kept},
	bareBy("38 the connection of rows", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		rows, err := tx.Query(ctx, "SELECT 1")
		got(rows.Conn())
		rows.Close()
		return errors.Join(err, rows.Err())
	}),
	bareBy("38 the connection of a row that is collected", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		rows, _ := tx.Query(ctx, "SELECT 1")
		_, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) (n int, err error) {
			got(row.(pgx.Rows).Conn())
			return n, row.Scan(&n)
		})
		return err
	}),
	bareBy("38 the connection of rows that scan themselves", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		rows, _ := tx.Query(ctx, "SELECT 1")
		defer rows.Close()
		rows.Next()
		return rows.Scan(rowTaker(got))
	}),
	bareBy("38 the connection of a row that scans itself", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		return tx.QueryRow(ctx, "SELECT 1").Scan(rowTaker(got))
	}),
	bareBy("38 the connection of a savepoint's rows", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		return pgx.BeginFunc(ctx, tx, func(sp pgx.Tx) error {
			return sp.QueryRow(ctx, "SELECT 1").Scan(rowTaker(got))
		})
	}),
	bareBy("38 the connection of a batch's rows", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		var b pgx.Batch
		b.Queue("SELECT 1")
		b.Queue("SELECT 1")
		results := tx.SendBatch(ctx, &b)
		rows, err := results.Query()
		got(rows.Conn())
		rows.Close()
		return errors.Join(err, results.QueryRow().Scan(rowTaker(got)), results.Close())
	}),
	bareBy("38 the connection of rows that a batch is told of", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		var b pgx.Batch
		b.Queue("SELECT 1").Query(func(rows pgx.Rows) error {
			got(rows.Conn())
			return nil
		})
		return tx.SendBatch(ctx, &b).Close()
	}),
	bareBy("38 the connection of a row that a batch is told of", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		var b pgx.Batch
		b.Queue("SELECT 1").QueryRow(func(row pgx.Row) error { return row.Scan(rowTaker(got)) })
		return tx.SendBatch(ctx, &b).Close()
	}),
	bareBy("38 the connection of results that a batch is told of", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		var b pgx.Batch
		b.Queue("SELECT 1").Fn = func(results pgx.BatchResults) error {
			rows, err := results.Query()
			got(rows.Conn())
			rows.Close()
			return err
		}
		return tx.SendBatch(ctx, &b).Close()
	}),
	bareBy("38 the connection of a rewritten statement", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		_, err := tx.Exec(ctx, "SELECT 1", rewriteTaker(got))
		return err
	}),
	bareBy("38 the connection of a rewritten query", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		rows, err := tx.Query(ctx, "SELECT 1", pgx.QueryExecModeExec, rewriteTaker(got))
		rows.Close()
		return err
	}),
	bareBy("38 the connection of a rewritten row", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		return tx.QueryRow(ctx, "SELECT 1", pgx.QueryResultFormats{1}, rewriteTaker(got)).Scan(new(int))
	}),
	bareBy("38 the connection of a rewritten batch", func(ctx context.Context, tx pgx.Tx, got func(*pgx.Conn)) error {
		var b pgx.Batch
		b.Queue("SELECT 1", rewriteTaker(got))
		return tx.SendBatch(ctx, &b).Close()
	}),
	{"38 the transaction of a batch", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		var b pgx.Batch
		b.BeginTx(pgx.TxOptions{})
		b.Queue("SELECT 1")
		results := tx.SendBatch(ctx, &b)
		if begun := results.Tx(); begun != nil {
			v.t.Errorf("a batch has begun a transaction of its own: %v", begun)
		}
		if err := results.Close(); err == nil {
			v.t.Errorf("a batch began a transaction in another")
		}
		return nil
	}, "done", kept},
	{"38 what rows, results and large objects lead to later", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		rows, err := tx.Query(ctx, "SELECT 'mine' AS mine")
		rows.Next()
		raw, fields := rows.RawValues(), rows.FieldDescriptions()
		rows.Close()
		var b pgx.Batch
		b.Queue("SELECT 1")
		results := tx.SendBatch(ctx, &b)
		err = errors.Join(err, results.Close())
		v.later = func(context.Context, pgx.Tx) error {
			_, execErr := results.Exec()
			again, queryErr := results.Query()
			switch {
			case rows.Next(), again.Next(), !errors.Is(execErr, ErrTxRevoked), !errors.Is(queryErr, ErrTxRevoked), !errors.Is(again.Err(), ErrTxRevoked):
				return fmt.Errorf("kept rows and results say %w, %w, %w", execErr, queryErr, again.Err())
			case string(raw[0]) != "mine", fields[0].Name != "mine":
				return fmt.Errorf("what was kept of rows has become %q, %q", raw[0], fields[0].Name)
			}
			return nil
		}
		return err
	}, "done", kept},
	{"38 what it has scanned", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		var all []held
		query := func() (pgx.Rows, error) {
			return tx.Query(ctx, "SELECT "+heldColumns(), pgx.QueryResultFormats{pgx.BinaryFormatCode})
		}
		rows, err := query()
		if err != nil {
			return err
		}
		for rows.Next() {
			fresh := newHeld()
			if err := rows.Scan(destinations(fresh)...); err != nil {
				return err
			}
			all = append(all, fresh...)
			for i, raw := range rows.RawValues() {
				all = append(all, held{name: fmt.Sprintf("raw value %d", i), bytes: func() []byte { return raw }})
			}
		}
		fresh := newHeld()
		if err := tx.QueryRow(ctx, "SELECT "+heldColumns(), pgx.QueryResultFormats{pgx.BinaryFormatCode}).Scan(destinations(fresh)...); err != nil {
			return err
		}
		all = append(all, fresh...)
		type inStruct struct {
			Bytes  bytesKeeper
			Driver pgtype.DriverBytes
			Binary sqlKeeper
		}
		rows, _ = tx.Query(ctx, "SELECT 'mine'::bytea AS bytes, 'mine'::bytea AS driver, '\"mine\"'::jsonb AS binary", pgx.QueryResultFormats{pgx.BinaryFormatCode})
		one, err := pgx.CollectExactlyOneRow(rows, pgx.RowToStructByName[inStruct])
		for _, b := range [][]byte{one.Bytes, one.Driver, one.Binary} {
			all = append(all, held{name: "in a struct", bytes: func() []byte { return b }})
		}
		v.later = func(ctx context.Context, tx pgx.Tx) error {
			for _, n := range []int{100, 1000, 10_000} {
				if _, err := tx.Exec(ctx, "SELECT repeat('theirs', $1)", n); err != nil {
					return err
				}
			}
			for _, h := range all {
				if !bytes.Contains(h.bytes(), []byte("mine")) {
					return fmt.Errorf("what was scanned into %s has become %q", h.name, h.bytes())
				}
			}
			return nil
		}
		return err
	}, "done", kept},
	{"38 a type of its own for what all read", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		rows, err := tx.Query(ctx, "SELECT 1")
		spy := &spyCodec{}
		for oid, name := range map[uint32]string{pgtype.TextOID: "text", pgtype.Int4OID: "int4"} {
			rows.TypeMap().RegisterType(&pgtype.Type{Name: name, OID: oid, Codec: spy})
		}
		rows.Close()
		v.t.Cleanup(func() {
			if spy.saw.Load() > 0 {
				v.t.Error("a type that one tenant registered was asked for what another read")
			}
		})
		return err
	}, "done", kept},
	{"38 a goroutine left behind that reads", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		begun, over := make(chan struct{}), make(chan struct{})
		v.t.Cleanup(func() { <-over })
		go func() {
			defer close(over)
			for n := 0; ; n++ {
				rows, err := tx.Query(context.WithoutCancel(ctx), "SELECT repeat('x', 1000) FROM generate_series(1, 100)")
				for err == nil && rows.Next() {
					err = rows.Scan(new(string))
				}
				rows.Close()
				if err = errors.Join(err, rows.Err()); err != nil {
					if !errors.Is(err, ErrTxRevoked) {
						v.t.Errorf("left behind: %v", err)
					}
					return
				}
				if n == 1 {
					close(begun)
				}
			}
		}()
		<-begun
		return nil
	}, "", either},
	{"39 setseed", func(ctx context.Context, tx pgx.Tx, v *villain) error {
		random := func(ctx context.Context, tx pgx.Tx) (x float64, err error) {
			err = tx.QueryRow(ctx, "SELECT random()").Scan(&x)
			return x, err
		}
		_, err := tx.Exec(ctx, "SELECT setseed(0.5)")
		first, readErr := random(ctx, tx)
		_, againErr := tx.Exec(ctx, "SELECT setseed(0.5)")
		v.later = func(ctx context.Context, tx pgx.Tx) error {
			if x, err := random(ctx, tx); x == first {
				return fmt.Errorf("random() is as the job before has had it: %v, %w", x, err)
			}
			return nil
		}
		return errors.Join(err, readErr, againErr)
	}, "done", kept},
	session("planner settings", "SET enable_seqscan = off; SET jit = off; SET work_mem = '1MB'; SET application_name = 'mine'"),
}

// fingerprint is all that a job can tell of the one before it.
const fingerprint = `SELECT jsonb_build_object(
	'current_user', current_user, 'session_user', session_user, 'role', current_setting('role'),
	'search_path', current_setting('search_path'), 'tenant', current_setting('app.tenant_id', true),
	'other', coalesce(current_setting('app.other', true), ''),
	'isolation', current_setting('transaction_isolation'), 'read_only', current_setting('transaction_read_only'),
	'settings', (SELECT jsonb_object_agg(name, setting ORDER BY name) FROM pg_settings WHERE source = 'session'
		AND name NOT IN ('statement_timeout', 'idle_in_transaction_session_timeout')), -- the time that is left for the transaction
	'channels', (SELECT jsonb_agg(c) FROM pg_listening_channels() AS c),
	'cursors', (SELECT jsonb_agg(name) FROM pg_cursors WHERE name <> ''),
	'prepared', (SELECT jsonb_agg(name) FROM pg_prepared_statements WHERE name <> ''),
	'advisory locks', (SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid()),
	'relation locks', (SELECT jsonb_agg(relation::regclass::text) FROM pg_locks WHERE locktype = 'relation' AND pid = pg_backend_pid() AND relation::regclass::text LIKE '%tenure.%'
		AND NOT (mode = 'AccessShareLock' AND relation::regclass::text LIKE 'tenure.tenant%')), -- beginning it takes those
	'temporary', (SELECT count(*) FROM pg_class WHERE relnamespace = pg_my_temp_schema()) + (SELECT count(*) FROM pg_proc WHERE pronamespace = pg_my_temp_schema()),
	'canary', (SELECT jsonb_agg(tenant) FROM canary), 'orders', (SELECT jsonb_agg(o.of) FROM orders AS o),
	'time', '2026-01-02 03:04:05+00'::timestamptz::text, 'bytes', '\x00ff'::bytea::text)::text, pg_backend_pid()`

var pairsWanted = flag.Int("pairs", 400, "attacks and victims of TestVictimsSeeNothing, at least")

// TestVictimsSeeNothing runs each attack many times in random order, each followed
// by a job of another tenant on the same connection, whose view must be what it was
// before all attacks. With -pairs it goes on for longer.
func TestVictimsSeeNothing(t *testing.T) {
	t.Parallel()
	sufferAttacks(t, newCity, attacks)
}

// Through a pooler, on whose one session each victim follows, the same attacks come to nothing,
// and those that a pooler opens the door for.
func TestVictimsSeeNothingThroughAPooler(t *testing.T) {
	t.Parallel()
	sufferAttacks(t, newPooledCity, append(slices.Clone(attacks), poolerAttacks...))
}

func sufferAttacks(t *testing.T, newCity func(*testing.T, func(*job.Registry)) *city, attacks []attack) {
	wanted := *pairsWanted
	if testing.Short() {
		wanted = len(attacks)
	}
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))

	type view struct {
		Print string
		PID   int
	}
	var before, after view // of the villain's job and of the victim's
	look := func(ctx context.Context, tx pgx.Tx) (v view, err error) {
		err = tx.QueryRow(ctx, fingerprint).Scan(&v.Print, &v.PID)
		return v, err
	}
	v := &villain{}
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "villain", func(ctx context.Context, tx pgx.Tx, rec *job.Record) (err error) {
			if err := tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&before.PID); err != nil {
				return err
			}
			var n int
			if err := json.Unmarshal(rec.Payload, &n); err != nil {
				return err
			}
			return attacks[n].do(ctx, tx, v)
		})
		inTx(r, "victim", func(ctx context.Context, tx pgx.Tx, _ *job.Record) (err error) {
			if v.stored != nil {
				if _, err := v.stored.Exec(ctx, "SET search_path = public"); !errors.Is(err, ErrTxRevoked) {
					return fmt.Errorf("a stored handle: %w", err)
				}
				v.stored = nil
			}
			if v.later != nil {
				if err := v.later(ctx, tx); err != nil {
					return err
				}
				v.later = nil
			}
			after, err = look(ctx, tx)
			return err
		})
	})
	v.city = c
	c.start()

	baseline := map[string]string{}
	ids := []string{"alpha", "beta", "gamma"}
	victim := func(id string) end { return c.run(t, "victim", c.tenants[id], "") }
	for _, id := range ids {
		e := victim(id)
		require.Equal(t, "in tx", e.how, "%v", e.outcome.Err)
		baseline[id] = after.Print
		require.Contains(t, after.Print, `"canary": ["`+id+`"]`)
		require.Contains(t, after.Print, `"orders": ["`+id+`"]`)
	}
	require.Len(t, map[string]bool{baseline["alpha"]: true, baseline["beta"]: true, baseline["gamma"]: true}, 3, "a fingerprint that tells tenants apart")

	pairs := 0
	for pairs < wanted {
		for _, n := range rng.Perm(len(attacks)) {
			a := attacks[n]
			from := rng.IntN(3)
			to := (from + 1 + rng.IntN(2)) % 3
			v.other = c.tenants["alpha"].Role
			if ids[from] == "alpha" {
				v.other = c.tenants["beta"].Role
			}
			e := c.run(t, "villain", c.tenants[ids[from]], fmt.Sprint(n))
			ends, conn := a.ends, a.conn
			switch {
			case c.pooler == nil:
			case a.ends == "done" && a.conn == destroyed: // by what is refused there
				ends, conn = "", kept
			case strings.HasPrefix(a.name, "18 "): // refused; it depends on whether the handler heeds that
				ends = ""
			}
			switch ends {
			case "done":
				require.Equal(t, "in tx", e.how, "%s as %s: %v", a.name, ids[from], e.outcome.Err)
			case "failed":
				require.Equal(t, job.Retrying, e.outcome.State, "%s as %s", a.name, ids[from])
			}
			e = victim(ids[to])
			require.Equal(t, "in tx", e.how, "%s after %s by %s: %v", ids[to], a.name, ids[from], e.outcome.Err)
			require.JSONEq(t, baseline[ids[to]], after.Print, "PROMISE BROKEN: %s after %s by %s", ids[to], a.name, ids[from])
			switch conn {
			case kept:
				require.Equal(t, before.PID, after.PID, "the victim must follow on the connection of %s", a.name)
			case destroyed:
				require.NotEqual(t, before.PID, after.PID, "%s must destroy its connection", a.name)
			}
			pairs++
		}
	}
	t.Logf("%d pairs", pairs)
	require.Zero(t, c.count(t, "SELECT count(*) FROM tenure.ended WHERE who <> $1", c.user), "a job's end written by a tenant")
	c.stop()
}

// What Client.InTx hands out is guarded in the same way.
func TestInTxGivesNoConnectionAway(t *testing.T) {
	t.Parallel()
	c := newCity(t, nil)
	for _, a := range attacks {
		if !strings.HasPrefix(a.name, "38 the connection of") {
			continue
		}
		for _, id := range []string{"alpha", "gamma"} {
			v := &villain{city: c}
			require.NoError(t, InTx(t.Context(), c.owner.tenants, *c.tenants[id], func(ctx context.Context, tx pgx.Tx) error { return a.do(ctx, tx, v) }), a.name)
		}
	}
}

// 25: pgx waits for ever in a COPY that was sent as a plain statement, and Postgres
// does not heed a cancel there. The timeout must end it all the same.
func TestCopyWithoutData(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "copy", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, "COPY effect FROM STDIN")
			return err
		}, job.Timeout(time.Second))
		inTx(r, "next", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			_, err := tx.Exec(ctx, addEffect)
			return err
		})
	})
	c.start()
	require.ErrorIs(t, c.run(t, "copy", c.tenants["alpha"], "").outcome.Err, job.ErrTimeout)
	require.Equal(t, "in tx", c.run(t, "next", c.tenants["alpha"], "").how)
}

// A transaction with ten thousand savepoints ends like any other.
func TestManySavepoints(t *testing.T) {
	t.Parallel()
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "deep", func(ctx context.Context, tx pgx.Tx, rec *job.Record) error {
			_, err := tx.Exec(ctx, strings.Repeat("SAVEPOINT s;", 10_000)+addEffect)
			if string(rec.Payload) == "fail" {
				return errBroken
			}
			return err
		})
	})
	c.start()
	require.Equal(t, "finish", c.run(t, "deep", c.tenants["alpha"], "fail").how)
	require.Equal(t, "in tx", c.run(t, "deep", c.tenants["beta"], "").how)
	require.Equal(t, 1, c.count(t, "SELECT (SELECT count(*) FROM alpha.effect) + (SELECT count(*) FROM beta.effect)"))
}

// 34: the tables of two tenants may differ, and one connection remembers how
// statements of the one were described.
func TestTenantsTablesMayDiffer(t *testing.T) {
	t.Parallel()
	var got []any
	c := newCity(t, func(r *job.Registry) {
		inTx(r, "read", func(ctx context.Context, tx pgx.Tx, _ *job.Record) error {
			if _, err := tx.Exec(ctx, "INSERT INTO shape (a) VALUES ($1)", "7"); err != nil {
				return err
			}
			rows, err := tx.Query(ctx, "SELECT * FROM shape")
			if err != nil {
				return err
			}
			all, err := pgx.CollectRows(rows, func(row pgx.CollectableRow) ([]any, error) { return row.Values() })
			if err == nil {
				got = all[0]
			}
			return err
		})
	})
	c.exec(t, "CREATE TABLE alpha.shape (a text, b int DEFAULT 1); CREATE TABLE beta.shape (a int, b text DEFAULT 'b', d float8 DEFAULT 0.5); CREATE TABLE gamma.shape (c date DEFAULT '2026-01-02', a bigint);"+
		"GRANT ALL ON alpha.shape TO "+c.tenants["alpha"].Role+"; GRANT ALL ON beta.shape TO "+c.tenants["beta"].Role+"; GRANT ALL ON gamma.shape TO "+c.user)
	c.start()
	want := map[string]string{"alpha": "[7 1]", "beta": "[7 b 0.5]", "gamma": "[2026-01-02 00:00:00 +0000 UTC 7]"}
	for range 3 {
		for _, id := range []string{"alpha", "beta", "gamma"} {
			e := c.run(t, "read", c.tenants[id], "")
			require.Equal(t, "in tx", e.how, "%s: %v", id, e.outcome.Err)
			require.Equal(t, want[id], fmt.Sprint(got))
		}
	}
}
