package main

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/operate"
)

// eventually waits until a query in a pool's database returns want.
func (b *bed) eventually(want int, pool, sql string) {
	b.t.Helper()
	conn, err := pgx.Connect(b.t.Context(), b.dsn[pool])
	require.NoError(b.t, err)
	defer conn.Close(context.WithoutCancel(b.t.Context()))
	require.Eventually(b.t, func() bool {
		got := -1
		err := conn.QueryRow(b.t.Context(), sql).Scan(&got) // there may be no ledger yet
		return err == nil && got == want
	}, patience, tick, "pool %s: %s: want %d", pool, sql, want)
}

// A migration of many pools that is killed is gone on with by the same command: what was done stays
// done, and of a pool that was half-way nothing is left over. Meanwhile it says how far it is.
func TestMigrateIsKilled(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1?", "p2?", "p3?", "p4?", "p5?", "p6?")
	// These two stand still within a step, for as long as the test holds a lock there.
	var release []func()
	standing := []string{"p3", "p5"}
	for _, pool := range standing {
		b.sql(pool, `CREATE FUNCTION stand_still() RETURNS event_trigger LANGUAGE plpgsql AS $$ BEGIN
			IF to_regclass('tenure.job_limit') IS NOT NULL THEN
				PERFORM set_config('lock_timeout', '0', true), pg_advisory_xact_lock(1);
			END IF;
		END $$`)
		b.sql(pool, "CREATE EVENT TRIGGER stand_still ON ddl_command_end WHEN TAG IN ('CREATE TABLE') EXECUTE FUNCTION stand_still()")
		conn, err := pgx.Connect(t.Context(), b.dsn[pool])
		require.NoError(t, err)
		closed := func() { _ = conn.Close(context.Background()) }
		t.Cleanup(closed)
		_, err = conn.Exec(t.Context(), "SELECT pg_advisory_lock(1)")
		require.NoError(t, err)
		release = append(release, closed)
	}

	const (
		version = "SELECT max(version_id) FROM tenure.migration"
		waiting = "SELECT count(*) FROM pg_locks JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND locktype = 'advisory' AND NOT granted"
	)
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "migrate", "--config", b.path, "--per-server", "2")
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	said, err := os.Create(filepath.Join(t.TempDir(), "stderr"))
	require.NoError(t, err)
	defer said.Close()
	cmd.Stderr = said
	require.NoError(t, cmd.Start())
	for _, pool := range standing {
		b.eventually(1, pool, waiting)
	}
	require.Eventually(t, func() bool {
		text, err := os.ReadFile(said.Name())
		return err == nil && strings.Contains(string(text), "migrated 3 of 6 pools, 0 failed, ") &&
			strings.Contains(string(text), "p3: waits: a transaction of user ")
	}, patience, tick, "it works on two at a time, of which three were passed by p1, p2 and p4")
	require.NoError(t, cmd.Process.Kill())
	require.Error(t, cmd.Wait())

	again := make(chan result, 1)
	go func() { again <- command(context.WithoutCancel(t.Context()), "", "migrate", "--config", b.path) }()
	b.eventually(int(operate.LedgerVersion()), "p6", version)
	for _, let := range release {
		let()
	}
	r := <-again
	require.Zero(t, r.code, r.errors)
	for _, pool := range []string{"p1", "p2", "p4"} {
		require.Contains(t, r.out, pool+": up to date\n")
	}
	for _, pool := range append(standing, "p6") {
		require.Contains(t, r.out, pool+": applied baseline.sql ")
	}
	for number, pool := range []string{"p1", "p2", "p3", "p4", "p5", "p6"} {
		b.eventually(number+1, pool, "SELECT number FROM tenure.pool")
		b.eventually(int(operate.LedgerVersion()), pool, version)
	}
}
