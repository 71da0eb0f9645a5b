package store_test

import (
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
)

func TestOldestHoldup(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{Settings: map[string]string{
		"autovacuum": "off", "max_prepared_transactions": "1", "hot_standby_feedback": "on", "wal_receiver_status_interval": "1s"}})
	connect := func(dsn string) *pgx.Conn {
		conn, err := pgx.Connect(t.Context(), dsn)
		require.NoError(t, err)
		t.Cleanup(func() { _ = conn.Close(t.Context()) })
		return conn
	}
	exec := func(conn *pgx.Conn, sql string) {
		_, err := conn.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	db := connect(server.DSN("postgres"))
	burn := func() { exec(db, "SELECT pg_current_xact_id()") } // so that what comes next is younger
	oldest := func() store.Holdup {
		h, found, err := store.OldestHoldup(t.Context(), db)
		require.NoError(t, err)
		require.Equal(t, found, h.What != "")
		return h
	}
	ended := func(h store.Holdup) {
		require.Eventually(t, func() bool { return oldest().HoldupID != h.HoldupID }, 10*time.Second, 10*time.Millisecond)
	}
	require.NoError(t, server.CreateDatabase(t.Context(), "other"))
	elsewhere := connect(server.DSN("other"))
	exec(elsewhere, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class")
	burn()
	require.Zero(t, oldest(), "another database's transactions do not matter")

	reader := connect(server.DSN("postgres"))
	exec(reader, "SET application_name = 'report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class")
	burn()
	h := oldest()
	pid := strconv.Itoa(int(reader.PgConn().PID()))
	require.Equal(t, []string{"session", pid, "postgres", "report", "idle in transaction"}, []string{h.What, h.ID, h.User, h.Application, h.State})
	require.NotZero(t, h.Open)
	require.Equal(t, "end it with SELECT pg_terminate_backend("+pid+")", h.Remedy())

	writer := connect(server.DSN("postgres"))
	exec(writer, "BEGIN; CREATE TABLE t (); PREPARE TRANSACTION 'it''s'")
	require.Equal(t, h.HoldupID, oldest().HoldupID)
	exec(reader, "COMMIT")
	h = oldest()
	require.Equal(t, []string{"prepared transaction", "it's", "postgres"}, []string{h.What, h.ID, h.User})
	require.Equal(t, "end it with COMMIT PREPARED or ROLLBACK PREPARED 'it''s'", h.Remedy())
	exec(db, "ROLLBACK PREPARED 'it''s'")
	require.Zero(t, oldest())

	standby := pgtest.Standby(t, server)
	far := connect(standby.DSN("postgres"))
	exec(far, "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT FROM pg_class")
	burn()
	require.Eventually(t, func() bool { h = oldest(); return h.What == "standby" }, 10*time.Second, 10*time.Millisecond)
	require.Contains(t, h.Remedy(), "on the standby")
	exec(db, "CREATE ROLE anybody; SET SESSION AUTHORIZATION anybody")
	require.Equal(t, []string{"standby", "anybody"}, []string{oldest().What, oldest().HiddenFrom})
	exec(db, "RESET SESSION AUTHORIZATION")
	exec(far, "COMMIT")
	burn()
	ended(h)
}

func TestRemedyOfASlot(t *testing.T) {
	t.Parallel()
	h := store.Holdup{HoldupID: store.HoldupID{What: "replication slot", ID: "s"}, State: "active"}
	require.Contains(t, h.Remedy(), "on the standby")
	h.State = "inactive"
	require.Contains(t, h.Remedy(), "SELECT pg_drop_replication_slot('s')")
}
