package handlers

import (
	"context"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
)

// table returns a connection to a database with a table for every kind of value.
func table(t *testing.T) *pgx.Conn {
	conn, err := pgx.Connect(t.Context(), pgtest.Database(t))
	require.NoError(t, err)
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second)
		defer cancel()
		require.NoError(t, conn.Close(ctx))
	})
	_, err = conn.Exec(t.Context(), `CREATE TABLE v (i bigint, n numeric, f float8, b boolean, t text, j jsonb, ts timestamptz, u uuid, a bigint[], ta text[])`)
	require.NoError(t, err)
	return conn
}

// exec runs the handler in a transaction of its own, committed as the workers would.
func exec(t *testing.T, conn *pgx.Conn, payload string) error {
	tx, err := conn.Begin(t.Context())
	require.NoError(t, err)
	defer tx.Rollback(t.Context())
	if err := execSQL(t.Context(), tx, decode[SQLExec](t, payload)); err != nil {
		return err
	}
	require.NoError(t, tx.Commit(t.Context()))
	return nil
}

func TestSQLArguments(t *testing.T) {
	t.Parallel()
	conn := table(t)
	for _, c := range []struct{ column, arg, want string }{
		{"i", `9007199254740993`, "9007199254740993"},
		{"i", `"12"`, "12"},
		{"n", `123456789012345678901234567890.123`, "123456789012345678901234567890.123"},
		{"f", `0.1`, "0.1"},
		{"b", `true`, "true"},
		{"t", `"it's"`, "it's"},
		{"t", `5`, "5"},
		{"t", `null`, "<null>"},
		{"i", `null`, "<null>"},
		{"j", `{"id": 9007199254740993, "x": [1.10, "y", null]}`, `{"x": [1.10, "y", null], "id": 9007199254740993}`},
		{"j", `[9007199254740993, 1.10]`, `[9007199254740993, 1.10]`},
		{"j", `5`, "5"},
		{"j", `true`, "true"},
		{"ts", `"2027-01-01T00:00:00Z"`, "2027-01-01 00:00:00+00"},
		{"u", `"6ba7b810-9dad-11d1-80b4-00c04fd430c8"`, "6ba7b810-9dad-11d1-80b4-00c04fd430c8"},
		{"a", `[1, 9007199254740993]`, "{1,9007199254740993}"},
		{"ta", `["a", "b,c"]`, `{a,"b,c"}`},
	} {
		require.NoError(t, exec(t, conn, `{"sql": "TRUNCATE v"}`))
		require.NoError(t, exec(t, conn, `{"sql": "INSERT INTO v (`+c.column+`) VALUES ($1)", "args": [`+c.arg+`]}`), "%+v", c)
		var got string
		_, err := conn.Exec(t.Context(), "SET timezone = 'UTC'")
		require.NoError(t, err)
		require.NoError(t, conn.QueryRow(t.Context(), "SELECT coalesce("+c.column+"::text, '<null>') FROM v").Scan(&got))
		require.Equal(t, c.want, got, "%+v", c)
	}
}

func TestSQLOutcomes(t *testing.T) {
	t.Parallel()
	conn := table(t)
	for payload, why := range map[string]string{
		`{}`:                               "sql is empty",
		`{"sql": " \n"}`:                   "sql is empty",
		`{"sql": "SELEC 1"}`:               "42601",
		`{"sql": "TABLE missing"}`:         "42P01",
		`{"sql": "SELECT missing()"}`:      "42883",
		`{"sql": "SELECT 1; SELECT 2"}`:    "42601",
		`{"sql": "DELETE FROM v; COMMIT"}`: "42601",
		`{"sql": "COMMIT"}`:                "would end the transaction",
		`{"sql": "end"}`:                   "would end the transaction",
		`{"sql": "; -- x\n /* a /* b */ */ copy v FROM STDIN"}`: "COPY would wait",
		`{"sql": "PREPARE TRANSACTION 'x'"}`:                    "PREPARE",
		`{"sql": "/* open"}`:                                    "sql is empty",
		`{"sql": "-- x\rCOPY v FROM STDIN"}`:                    "COPY would wait",
		`{"sql": "-- only"}`:                                    "sql is empty",
		`{"sql": "ROLLBACK"}`:                                   "would end the transaction",
		`{"sql": 5}`:                                            "the arguments of sql.exec: sql cannot be a JSON number",
		`["TABLE v"]`:                                           "the arguments of sql.exec: they are no JSON object",
		`{"sql": "SELECT $1::int"}`:                             "the arguments of sql.exec: the statement needs 1 args, and there are 0",
		`{"sql": "SELECT $1::int", "args": [{}]}`:               "the arguments of sql.exec: args[0] cannot become what the statement needs there",
		`{"sql": "SELECT $1::int", "arg": [1]}`:                 `the arguments of sql.exec: there is no "arg": did you mean args?`,
	} {
		requireState(t, job.Dead, exec(t, conn, payload), why)
	}
	for payload, why := range map[string]string{
		`{"sql": "SELECT 1/0"}`:                                 "22012",
		`{"sql": "SELECT $1::int", "args": ["x"]}`:              "22P02",
		`{"sql": "DO $$ BEGIN RAISE 'no'; END $$"}`:             "P0001",
		`{"sql": "DO $$ BEGIN RAISE SQLSTATE '40001'; END $$"}`: "40001",
	} {
		requireState(t, job.Retrying, exec(t, conn, payload), why)
	}
	require.NoError(t, exec(t, conn, `{"sql": "(SELECT 1) UNION (SELECT 2)"}`))
	require.NoError(t, exec(t, conn, `{"sql": "SELECT * FROM generate_series(1, 10000)"}`))
}
