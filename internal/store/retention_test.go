package store_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestKeepDays(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.db.Exec(t.Context(), "CREATE TABLE tenure.mine (id int)")
	require.ErrorContains(t, err, "permission denied", "it makes no table by itself")
	require.Equal(t, 4, b.partitions(t), "a new ledger has them")
	b.noDays(t)
	b.keepDays(t)
	b.keepDays(t)
	b.oldDay(t)
	b.keepDays(t)
	require.Equal(t, 4, b.partitions(t), "today, two days ahead and the default")
}

// partitions counts those of finished jobs.
func (b *bundle) partitions(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.db.QueryRow(t.Context(), "SELECT count(*) FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass").Scan(&n))
	return n
}

// noDays takes all but the default one away.
func (b *bundle) noDays(t *testing.T) {
	t.Helper()
	execute(t, b.owner, `DO $$ DECLARE day regclass; BEGIN
		FOR day IN SELECT inhrelid FROM pg_inherits WHERE inhparent = 'tenure.completed_job'::regclass AND inhrelid <> 'tenure.completed_job_rest'::regclass LOOP
			EXECUTE format('DROP TABLE %s', day);
		END LOOP; END $$`)
}

// keepDays keeps them for a day.
func (b *bundle) keepDays(t *testing.T) {
	t.Helper()
	deferred, err := store.KeepDays(t.Context(), b.db, 24*time.Hour)
	require.NoError(t, errors.Join(deferred, err))
}

// What fails for good is told beside what waits for somebody's lock, and not hidden by it.
func TestKeepDaysTellsFailuresFromLocks(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.noDays(t)
	b.oldDay(t)
	user := b.db.Config().ConnConfig.User
	execute(t, b.owner, "REVOKE EXECUTE ON FUNCTION tenure.make_day(date) FROM "+user)
	b.locks(t, "LOCK TABLE tenure.completed_job IN ACCESS SHARE MODE")
	deferred, err := store.KeepDays(t.Context(), b.db, 24*time.Hour)
	require.ErrorIs(t, deferred, store.ErrLocked)
	require.ErrorContains(t, err, "permission denied for function make_day")
	require.NotErrorIs(t, err, store.ErrLocked)
}

// Nothing is left of what finished jobs' block range indexes lack, and Postgres, which remembers few of them, is sent no
// requests for it. Somebody who keeps a partition locked is not waited for, as vacuum would be ended.
func TestSummarizeFinished(t *testing.T) {
	t.Parallel()
	b := setup(t)
	const ranges = `FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam AND a.amname = 'brin'
		WHERE i.indrelid = (SELECT tableoid FROM tenure.completed_job LIMIT 1)`
	count := func(what string) (n int) {
		t.Helper()
		require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT "+what+" "+ranges).Scan(&n))
		return n
	}
	finish := func() {
		execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
			SELECT n, now(), now(), 1, 0, 1, 0, 't1', 'default', 'k', 'done', to_jsonb(repeat('x', 1000)) FROM generate_series(1, 500) n`)
	}
	finish()
	require.Equal(t, 2, count("count(*) FILTER (WHERE 'autosummarize=off' = ANY (c.reloptions))"))
	all, err := store.SummarizeFinished(t.Context(), b.db, nil)
	require.NoError(t, err)
	require.Zero(t, count("sum(brin_summarize_new_values(i.indexrelid))"))

	finish()
	held, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	_, err = held.Exec(t.Context(), "LOCK TABLE tenure.completed_job IN SHARE UPDATE EXCLUSIVE MODE")
	require.NoError(t, err)
	sizes, err := store.SummarizeFinished(t.Context(), b.db, all)
	require.NoError(t, err)
	require.Less(t, len(sizes), len(all), "it is looked at again")
	require.NoError(t, held.Rollback(t.Context()))
	sizes, err = store.SummarizeFinished(t.Context(), b.db, sizes)
	require.NoError(t, err)
	require.Zero(t, count("sum(brin_summarize_new_values(i.indexrelid))"))

	execute(t, b.owner, "DROP FUNCTION tenure.make_day(date)")
	_, err = store.SummarizeFinished(t.Context(), b.db, sizes)
	require.NoError(t, err, "nothing has finished since")
}

// oldDay makes a day's partition that is to be dropped.
func (b *bundle) oldDay(t *testing.T) {
	t.Helper()
	_, err := b.owner.Exec(t.Context(), `CREATE TABLE tenure.completed_job_20200101 PARTITION OF tenure.completed_job
		FOR VALUES FROM ('2020-01-01 00:00+00') TO ('2020-01-02 00:00+00')`)
	require.NoError(t, err)
}

// Nothing queues for a lock that those who finish jobs would queue behind, also where no
// lock_timeout is set: each function gets it at once or gives up. What jobs that finish have
// locked is in the way of dropping a day only.
func TestKeepDaysQueuesForNoLock(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.oldDay(t)
	execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		VALUES (1, '2020-01-01', '2020-01-01 12:00+00', 1, 0, 1, 0, 't1', 'default', 'k', 'done', '{}')`)
	conn := connectTo(t, b.owner.Config().ConnString())
	for _, test := range []struct{ held, makes, empties, drops string }{
		{"tenure.completed_job IN ACCESS SHARE MODE", "55P03", "55P03", "55P03"}, // with all partitions, as by pg_dump
		{"ONLY tenure.completed_job IN ROW EXCLUSIVE MODE", "", "", "55P03"},
		{"ONLY tenure.completed_job IN SHARE UPDATE EXCLUSIVE MODE", "55P03", "", "55P03"},
		{"tenure.completed_job_rest IN ROW EXCLUSIVE MODE", "55P03", "", "55P03"},
		{"tenure.completed_job_20200101 IN ROW EXCLUSIVE MODE", "", "55P03", "55P03"},
	} {
		held, err := b.owner.Begin(t.Context())
		require.NoError(t, err)
		_, err = held.Exec(t.Context(), "LOCK TABLE "+test.held)
		require.NoError(t, err)
		for sql, code := range map[string]string{
			"SELECT tenure.make_day('2020-01-05')":  test.makes,
			"SELECT tenure.empty_day('2020-01-01')": test.empties,
			"SELECT tenure.drop_day('2020-01-01')":  test.drops,
		} {
			_, err := conn.Exec(t.Context(), "SET lock_timeout = 0; SET statement_timeout = '5s'; BEGIN; "+sql)
			_, end := conn.Exec(t.Context(), "ROLLBACK")
			require.NoError(t, end)
			var pg *pgconn.PgError
			if code == "" {
				require.NoError(t, err, "%s beside %s", sql, test.held)
			} else if assert.ErrorAs(t, err, &pg, "%s beside %s", sql, test.held) {
				assert.Equal(t, code, pg.Code, "%s beside %s", sql, test.held)
			}
		}
		require.NoError(t, held.Rollback(t.Context()))
	}
}

// Somebody has made something of a day's row type, as everybody may. The day is not among the finished jobs any more.
func TestADayThatSomebodyUsesIsLetGo(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.noDays(t)
	b.oldDay(t)
	execute(t, b.owner, "CREATE TABLE public.pin (of tenure.completed_job_20200101)")
	b.keepDays(t)
	require.Equal(t, 4, b.partitions(t), "today, two days ahead and the default")
	b.keepDays(t)
}

// A backup reads for hours. No day is dropped or made meanwhile, and nothing of what
// finishes waits behind the attempt.
func TestKeepDaysWaitsForNobody(t *testing.T) {
	t.Parallel()
	const limit = 20 * time.Second
	b := setup(t)
	b.noDays(t)
	b.oldDay(t)
	require.Equal(t, 2, b.partitions(t), "one day and the default")
	backup := b.locks(t, "LOCK TABLE tenure.completed_job IN ACCESS SHARE MODE") // and its partitions, as pg_dump does
	ctx, cancel := context.WithTimeout(t.Context(), limit)
	defer cancel()
	trying, stop := context.WithCancel(ctx)
	var kept sync.WaitGroup
	kept.Go(func() {
		for trying.Err() == nil {
			deferred, err := store.KeepDays(ctx, b.db, 24*time.Hour)
			assert.ErrorIs(t, deferred, store.ErrLocked)
			assert.NoError(t, err)
		}
	})
	for range 50 {
		b.enqueue(t, store.NewJob{})
	}
	p := b.page(t, 0)
	b.claim(t, p)
	for i := range p.Jobs {
		require.Eventually(t, func() bool {
			_, err := store.Finish(ctx, b.db, store.Runner{Session: b.fence.Session, Node: "a"}, true, []store.Finished{{Record: &p.Jobs[i].Record, Outcome: job.Outcome{State: job.Done}}}, nil)
			return err == nil
		}, limit, time.Millisecond)
	}
	stop()
	kept.Wait()
	require.Equal(t, 2, b.partitions(t))
	require.EqualValues(t, 50, counts(t, b.db).Finished)
	backup()
	b.keepDays(t)
	require.Equal(t, 4, b.partitions(t), "today, two days ahead and the default")
	require.EqualValues(t, 50, counts(t, b.db).Finished)
	require.Zero(t, b.strays(t), "they were brought to their day")
}

// strays counts the finished jobs that have no day.
func (b *bundle) strays(t *testing.T) (n int) {
	t.Helper()
	require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT count(*) FROM tenure.completed_job_rest").Scan(&n))
	return n
}

// Where many have finished while there was no day, it begins behind them, and they are deleted when they are old.
func TestADayBeginsBehindMany(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.noDays(t)
	const many = 2001
	execute(t, b.owner, `INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload)
		SELECT n, now(), date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC', 1, 0, 1, 0, 't1', 'default', 'k', 'done', '{}' FROM generate_series(1, $1::integer) n`, many)
	var late bool
	require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT (now() AT TIME ZONE 'UTC')::time > '23:55'").Scan(&late))
	b.keepDays(t)
	if !late { // there is nothing left of the day then
		require.Equal(t, 4, b.partitions(t))
		var bounds string
		require.NoError(t, b.owner.QueryRow(t.Context(), `SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_class c WHERE c.relname = to_char(now() AT TIME ZONE 'UTC', '"completed_job_"YYYYMMDD')`).Scan(&bounds))
		require.NotContains(t, bounds, "FROM ('"+time.Now().UTC().Format(time.DateOnly)+" 00:00:00", "it begins now")
	}
	require.Equal(t, many, b.strays(t))
	for _, more := range []bool{true, true, false} {
		got, err := store.TrimFinished(t.Context(), b.db, 0, 1000)
		require.NoError(t, err)
		require.Equal(t, more, got)
	}
	require.Zero(t, b.strays(t))
}

// A job's failed runs are kept for as long as it is unfinished, wherever it stands.
func TestFailedRunsStayWithTheirJob(t *testing.T) {
	t.Parallel()
	b := setup(t)
	b.enqueue(t, store.NewJob{})
	b.enqueue(t, store.NewJob{DueIn: time.Hour})
	b.enqueue(t, store.NewJob{External: true})
	b.deadLetter(t, "")
	suspended := b.enqueue(t, store.NewJob{})
	execute(t, b.owner, `WITH gone AS (DELETE FROM tenure.job WHERE id = $1 RETURNING id, tenant_id, queue, kind, payload, turn)
		INSERT INTO tenure.suspended_job (id, tenant_id, queue, kind, payload, turn, origin) SELECT gone.*, 'job' FROM gone`, int64(suspended))
	execute(t, b.owner, `INSERT INTO tenure.job_error (job_id, attempt, node, error, at)
		SELECT id, 1, 'n', 'boom', now() - interval '30 days' FROM (SELECT id FROM tenure.job UNION ALL SELECT id FROM tenure.timer_job UNION ALL SELECT id FROM tenure.external_job
			UNION ALL SELECT id FROM tenure.dead_letter_job UNION ALL SELECT id FROM tenure.suspended_job UNION ALL SELECT 7) jobs`)
	_, err := store.TrimFinished(t.Context(), b.db, 0, 1000)
	require.NoError(t, err)
	var kept, orphans int
	require.NoError(t, b.owner.QueryRow(t.Context(), "SELECT count(DISTINCT job_id) FILTER (WHERE job_id <> 7), count(*) FILTER (WHERE job_id = 7) FROM tenure.job_error").Scan(&kept, &orphans))
	require.Equal(t, []int{5, 0}, []int{kept, orphans})
}
