package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// lockWith runs a statement in a transaction that stays open until unlock is called.
func lockWith(b *testbed, pool, sql string, args ...any) (unlock func()) {
	b.t.Helper()
	tx, err := b.db[pool].Begin(b.t.Context())
	require.NoError(b.t, err)
	b.t.Cleanup(func() { _ = tx.Rollback(context.Background()) }) // unless it is over
	_, err = tx.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
	return func() { require.NoError(b.t, tx.Rollback(context.Background())) }
}

// TestP10ALockedRowStopsNobody: somebody holds the row of a job whose node has died, and
// that of a due timer. All other jobs start and end as ever, also those of the same claim,
// and the lock stays where it is. Those two run when their rows are free.
func TestP10ALockedRowStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	ids := make([]int64, 4)
	for i := range ids {
		table, more, values := "job", "", ""
		if i == 3 {
			table, more, values = "timer_job", ", due_at", ", clock_timestamp()"
		}
		require.NoError(t, b.db["p1"].QueryRow(t.Context(), "INSERT INTO tenure."+table+" (turn, tenant_id, queue, kind, payload"+more+") VALUES (1, 't1', 'default', 'plain', '{}'"+values+") RETURNING id").Scan(&ids[i]))
	}
	died := uuid.New()
	b.exec("p1", "INSERT INTO tenure.node_session (session_id, node, member, state, expires_at) VALUES ($1, 'died', 'died', 'dead', now())", died)
	b.exec("p1", "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, 1, $2, now())", died, ids[:2])
	b.exec("p1", "INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, 1, $2, now())", died, ids[2:3])
	unlockJob := lockWith(b, "p1", "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", ids[0])
	unlockTimer := lockWith(b, "p1", "SELECT FROM tenure.timer_job WHERE id = $1 FOR UPDATE", ids[3])

	a := b.start(b.named("a"), b.registry(nil))
	a.holds("p1")
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")
	stop := b.feed(context.WithoutCancel(t.Context()), "p1")
	defer stop()
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = ANY ($1) AND losses = 1", ids[1:3])
	require.Eventually(t, func() bool { return b.log.says("somebody has locked their rows") }, patience, 10*time.Millisecond)
	b.flows("p1")
	require.Equal(t, []job.ID{job.ID(ids[0])}, claimedBy(b, "p1", died))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.timer_job WHERE id = $1", ids[3]))
	unlockJob()
	unlockTimer()
	b.eventually(4, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = ANY ($1)", ids)
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"), "the lock was never lost")
}

// claimedBy lists the jobs that a session has claimed.
func claimedBy(b *testbed, pool string, session uuid.UUID) (ids []job.ID) {
	b.t.Helper()
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), "SELECT coalesce(array_agg(job), '{}') FROM tenure.claim, unnest(job_ids) AS job WHERE session_id = $1", session).Scan(&ids))
	return ids
}

// TestP10ABackupStopsNobody: a backup holds its locks on the finished jobs, of which a day
// is to be dropped and others are to be made. Jobs end as ever; the days come and go when
// the backup is over.
func TestP10ABackupStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const days = "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass"
	b.exec("p1", `DO $$ DECLARE day regclass; BEGIN -- as where no holder has kept them for some days
		FOR day IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass AND inhrelid <> 'tenure.completed_job_rest'::regclass LOOP
			EXECUTE format('DROP TABLE %s', day);
		END LOOP; END $$`)
	b.exec("p1", `CREATE TABLE tenure.completed_job_20200101 PARTITION OF tenure.completed_job
		FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	backup := lockWith(b, "p1", "LOCK TABLE tenure.completed_job IN ACCESS SHARE MODE") // and its partitions, as pg_dump does
	a := b.start(b.named("a"), b.registry(nil))
	a.holds("p1")
	b.many(a.Client(), 200, func(i int) job.Args {
		if i%2 == 0 {
			return write{i}
		}
		return plain{i}
	})
	b.eventually(200, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Eventually(t, func() bool {
		return b.log.says("days of finished jobs", "locked what is needed")
	}, patience, 10*time.Millisecond)
	b.many(a.Client(), 200, func(i int) job.Args { return write{i} })
	b.eventually(400, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, 2, b.count("p1", days), "the old day, and the rest")
	backup()
	b.eventually(0, "p1", "SELECT count(*) FROM pg_class WHERE relname = 'completed_job_20200101'")
	b.eventually(4, "p1", days) // today, two days ahead, and the rest
}

// TestP10CancellingALockedJobStopsNobody: a waiting job is to be cancelled, whose row
// somebody holds. All other jobs start and end as ever, the lock stays where it is, and
// anyone who asked is told; the job is cancelled when its row is free.
func TestP10CancellingALockedJobStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	var id job.ID
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'nobodys', '{}') RETURNING id").Scan(&id))
	a := b.start(b.named("a"), b.registry(nil))
	a.holds("p1")
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")
	unlock := lockWith(b, "p1", "SELECT FROM tenure.job WHERE id = $1 FOR UPDATE", id)
	told := make(chan error, 1)
	go func() {
		_, err := a.Operator().Jobs().Cancel(t.Context(), id)
		told <- err
	}()
	b.eventually(1, "p1", "SELECT (count(*) > 0)::integer FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'")
	stop := b.feed(context.WithoutCancel(t.Context()), "p1")
	defer stop()
	b.flows("p1")
	err := <-told
	require.ErrorContains(t, err, "some session has kept what is needed locked for")
	require.NotErrorIs(t, err, tenure.ErrNotFound, "it is there")
	require.NotErrorAs(t, err, new(*operate.UnansweredError), "and its pool has answered")
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"), "the lock was never lost")
	unlock()
	_, err = a.Operator().Jobs().Cancel(t.Context(), id)
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND outcome = 'cancelled'", id)
}
