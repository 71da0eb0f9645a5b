package store_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// laterIndexed leaves a ledger with finished jobs of today, which lack an index that is made for days to come.
const laterIndexed = `SELECT tenure.make_day((now() AT TIME ZONE 'UTC')::date);
	DROP INDEX tenure.completed_job_correlation;
	CREATE INDEX completed_job_correlation ON ONLY tenure.completed_job (correlation_id) WHERE correlation_id IS NOT NULL`

// Indexes of tables that are large are made while jobs are enqueued and finish, of the days that are
// there and of those to come, and again where an earlier try has left them unfinished.
func TestIndexesAreMadeWhileJobsFinish(t *testing.T) {
	t.Parallel()
	dsn, conn := ledgerAt(t, 55)
	require.NoError(t, migrate(t.Context(), t, dsn)) // whose other steps wait for who uses the tables
	execute(t, conn, laterIndexed)
	const finished = `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload, correlation_id)
		VALUES (1, now(), now(), 0, 0, 1, 0, 'acme', 'default', 'k', 'done', '{}', 'order-1')`
	execute(t, conn, finished)
	next := map[string]string{"ledger/9000_next.sql": "-- Outside of a transaction.\n-- Four indexes anew.\nSET lock_timeout = '2min'; -- nobody stands in a queue behind it\n"}
	for _, table := range []string{"job", "timer_job", "suspended_job", "dead_letter_job"} {
		next["ledger/9000_next.sql"] += "DROP INDEX CONCURRENTLY IF EXISTS tenure." + table + "_correlation;\n" +
			"CREATE INDEX CONCURRENTLY " + table + "_correlation ON tenure." + table + " (correlation_id)\n    WHERE correlation_id IS NOT NULL;\n"
	}
	next["ledger/9000_next.sql"] += "RESET lock_timeout;\n"
	// As two tries before would have left them.
	execute(t, conn, `DO $$ BEGIN
		EXECUTE format('CREATE INDEX %I ON tenure.%I (id)', to_char(now() AT TIME ZONE 'UTC', '"completed_job_"YYYYMMDD"_correlation"'), to_char(now() AT TIME ZONE 'UTC', '"completed_job_"YYYYMMDD'));
		DROP INDEX tenure.timer_job_correlation;
		CREATE INDEX timer_job_correlation ON tenure.timer_job (id);
		UPDATE pg_index SET indisvalid = false WHERE indexrelid::regclass::text LIKE 'tenure.%job%correlation';
	END $$`)

	// Who has used a table is waited for; nobody who comes to use it is kept waiting by that. No
	// statement of a node needs more of a table than this, but for the days of finished jobs.
	const waiting = "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('acme', 'default', 'k', '{}')"
	const use = "LOCK TABLE ONLY tenure.%s IN ROW EXCLUSIVE MODE NOWAIT"
	tables := []string{"job", "timer_job", "suspended_job", "dead_letter_job", time.Now().UTC().Format("completed_job_20060102")}
	var open []pgx.Tx
	for _, table := range tables {
		tx, err := connectTo(t, dsn).Begin(t.Context())
		require.NoError(t, err)
		execute(t, tx, fmt.Sprintf(use, table))
		open = append(open, tx)
	}
	execute(t, open[0], waiting)
	migrated := make(chan error, 1)
	go func() {
		_, err := store.MigrateTo(t.Context(), migrationConfig(t, dsn), next)
		migrated <- err
	}()
	other := connectTo(t, dsn)
	for i, table := range tables {
		require.Eventually(t, func() (yes bool) {
			require.NoError(t, other.QueryRow(t.Context(), `SELECT EXISTS (SELECT FROM pg_locks l JOIN pg_stat_activity a USING (pid)
				WHERE a.datname = current_database() AND a.query ~ ('INDEX .*\m' || $1 || '_correlation') AND NOT l.granted)`, table).Scan(&yes))
			return yes
		}, time.Minute, 5*time.Millisecond, table)
		for _, table := range tables {
			execute(t, other, "BEGIN; "+fmt.Sprintf(use, table)+"; COMMIT")
		}
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second) // it would wait for as long as the other is open
		for _, sql := range []string{waiting, finished} {
			_, err := other.Exec(ctx, sql)
			require.NoError(t, err, "it stood behind the migration")
		}
		_, err := store.KeepDays(ctx, other, 24*time.Hour)
		require.NoError(t, err)
		cancel()
		require.NoError(t, open[i].Commit(t.Context()))
	}
	require.NoError(t, <-migrated)

	execute(t, conn, "SELECT tenure.make_day((now() AT TIME ZONE 'UTC')::date + 3)")
	rows, err := conn.Query(t.Context(), `SELECT t.relname FROM pg_index i JOIN pg_class t ON t.oid = i.indrelid
		WHERE i.indisvalid AND pg_get_indexdef(i.indexrelid) LIKE '%(correlation_id)%'
		  AND (t.relkind = 'p' OR NOT t.relispartition OR EXISTS (SELECT FROM pg_inherits h WHERE h.inhrelid = i.indexrelid)) ORDER BY 1`)
	require.NoError(t, err)
	have, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(t, err)
	today := time.Now().UTC()
	want := []string{"completed_job"}
	for day := range 4 {
		want = append(want, today.AddDate(0, 0, day).Format("completed_job_20060102"))
	}
	require.Equal(t, append(want, "completed_job_rest", "dead_letter_job", "job", "suspended_job", "timer_job"), have)
	ledger, err := store.ReadLedger(t.Context(), conn)
	require.NoError(t, err)
	require.True(t, ledger.UpToDate())
}
