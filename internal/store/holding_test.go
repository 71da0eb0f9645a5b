package store_test

import (
	"context"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// everyAdvisoryLock has somebody who may only connect take, for as long as the test runs, the advisory locks that
// earlier programs took: goose's, and those named here.
func everyAdvisoryLock(t *testing.T, dsn string) {
	tenant := connectTo(t, dsn)
	storetest.Role(t, tenant, "tenure_test_acme", "public")
	execute(t, tenant, "SET SESSION AUTHORIZATION tenure_test_acme")
	execute(t, tenant, `SELECT pg_advisory_lock(4097083626), pg_advisory_lock(hashtext('tenure grants')), pg_advisory_lock(hashtext('tenure external workers')),
		pg_advisory_lock(hashtext('tenure external bounds'), hashtext('acme'))`)
}

// TestNoTenantKeepsALedgerFromBeingMigrated: no lock is asked for that everybody who can connect may hold.
func TestNoTenantKeepsALedgerFromBeingMigrated(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	fresh, old := pgtest.Database(t), ""
	old, _ = ledgerAt(t, 55)
	for _, dsn := range []string{fresh, old} {
		everyAdvisoryLock(t, dsn)
		require.NoError(t, migrate(ctx, t, dsn))
		_, err := store.Grant(ctx, connectTo(t, dsn), role(t, connectTo(t, dsn), "app", "LOGIN"))
		require.NoError(t, err)
		tenant := connectTo(t, dsn)
		execute(t, tenant, "SET ROLE tenure_test_acme; SET lock_timeout = '1s'")
		for _, table := range []string{"migration", "runtime_user", "external_gate"} {
			_, err = tenant.Exec(ctx, "BEGIN; LOCK TABLE tenure."+table+" IN SHARE UPDATE EXCLUSIVE MODE")
			require.ErrorContains(t, err, "permission denied", table)
			execute(t, tenant, "ROLLBACK")
		}
	}
	files, err := filepath.Glob("queries/*.sql")
	require.NoError(t, err)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		require.NotContains(t, string(text), "pg_advisory", "%s: everybody who can connect may hold such a lock", f)
		require.NotContains(t, string(text), "pg_try_advisory", f)
	}
}

// TestMigrationsWaitForOneAnother: of a new database and of an older ledger, where an index is made that waits
// for transactions which others may have open while they wait.
func TestMigrationsWaitForOneAnother(t *testing.T) {
	t.Parallel()
	for _, version := range []int64{0, 55} {
		dsn := pgtest.Database(t)
		if version > 0 {
			var conn *pgx.Conn
			dsn, conn = ledgerAt(t, version)
			execute(t, conn, laterIndexed)
		}
		var group sync.WaitGroup
		errs := make([]error, 3)
		for i := range errs {
			group.Go(func() { errs[i] = migrate(t.Context(), t, dsn) })
		}
		group.Wait()
		for _, err := range errs {
			require.NoError(t, err, "from version %d", version)
		}
		var doubled int
		require.NoError(t, connectTo(t, dsn).QueryRow(t.Context(), "SELECT count(*) - count(DISTINCT version_id) FROM tenure.migration").Scan(&doubled))
		require.Zero(t, doubled)
	}

	dsn, holder := ledgerAt(t, 55)
	execute(t, holder, "BEGIN; LOCK TABLE tenure.migration IN SHARE UPDATE EXCLUSIVE MODE")
	migrated := make(chan error, 1)
	go func() { migrated <- migrate(context.Background(), t, dsn) }()
	other := connectTo(t, dsn)
	require.Eventually(t, func() (waits bool) {
		require.NoError(t, other.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
			WHERE a.datname = current_database() AND a.application_name = 'tenure migrate lock' AND NOT l.granted)`).Scan(&waits))
		return waits
	}, 30*time.Second, time.Millisecond)
	var version int
	require.NoError(t, other.QueryRow(t.Context(), "SELECT max(version_id) FROM tenure.migration").Scan(&version))
	require.Equal(t, 55, version)
	require.NoError(t, holder.Close(t.Context()), "as if its process had died")
	require.NoError(t, <-migrated)

	dsn, holder = ledgerAt(t, 55)
	execute(t, holder, "BEGIN; LOCK TABLE tenure.migration IN SHARE UPDATE EXCLUSIVE MODE")
	ctx, cancel := context.WithTimeout(t.Context(), time.Second)
	defer cancel()
	require.ErrorContains(t, migrate(ctx, t, dsn), "keep others from migrating")
}
