//go:build unix

package pgtest

import (
	"context"
	"syscall"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
)

// Unflushed are the settings of a server that writes what is committed only when somebody
// waits for it, once Unwritten has been called.
var Unflushed = map[string]string{"synchronous_commit": "off", "bgwriter_lru_maxpages": "0", "autovacuum": "off"}

// Unwritten keeps what is committed on a server with those settings from now on from being
// written, by stopping its WAL writer. lose ends that, upon which Postgres goes through
// crash recovery, and comes back without it.
func Unwritten(t testing.TB, s *devpg.Server) (lose func()) {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), s.DSN("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	_, err = conn.Exec(t.Context(), "CHECKPOINT")
	require.NoError(t, err)
	var pid int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'").Scan(&pid))
	require.NoError(t, syscall.Kill(pid, syscall.SIGSTOP))
	return func() {
		t.Helper()
		witness, err := pgx.Connect(t.Context(), s.DSN("postgres"))
		require.NoError(t, err)
		defer witness.Close(context.WithoutCancel(t.Context()))
		require.NoError(t, syscall.Kill(pid, syscall.SIGKILL))
		_, err = witness.Exec(t.Context(), "SELECT pg_sleep(60)")
		require.Error(t, err, "all sessions are ended")
	}
}
