package promises_test

import (
	"context"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// fullSQL makes the disk full for some of the ledger's tables: whatever adds rows to them
// fails as it does then. The lock and the session go on, as their rows are changed in
// place: the worst case, as nobody else takes over and the holder is there to try.
const fullSQL = `
CREATE SCHEMA disk;
CREATE TABLE disk.full (name text PRIMARY KEY); -- a plan without an index would be compiled each time
CREATE FUNCTION disk.check() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
BEGIN
    IF EXISTS (SELECT FROM disk.full WHERE name = TG_TABLE_NAME) THEN
        RAISE 'could not extend file: No space left on device' USING ERRCODE = 'disk_full';
    END IF;
    RETURN NULL;
END $$;
CREATE TRIGGER full_disk AFTER INSERT ON tenure.job EXECUTE FUNCTION disk.check();
CREATE TRIGGER full_disk AFTER INSERT ON tenure.timer_job EXECUTE FUNCTION disk.check();
CREATE TRIGGER full_disk AFTER INSERT ON tenure.claim EXECUTE FUNCTION disk.check();
CREATE TRIGGER full_disk AFTER INSERT ON tenure.completed_job EXECUTE FUNCTION disk.check();
CREATE TRIGGER full_disk AFTER INSERT ON tenure.job_error EXECUTE FUNCTION disk.check();
`

// fillDiskFor makes the disk full for these tables; for none: there is room again.
func fillDiskFor(b *testbed, tables ...string) {
	b.exec("p1", "WITH before AS (DELETE FROM disk.full) INSERT INTO disk.full SELECT unnest($1::text[])", tables)
}

// TestP10TheLedgersDiskIsFull: no room is left for claims, or for what has ended, or for
// anything. No job pays for it, nothing runs hot, and all goes on when there is room again.
func TestP10TheLedgersDiskIsFull(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		tables []string
		tries  string // the statement that is tried
	}{
		"for claims":         {[]string{"claim"}, "INSERT INTO tenure.claim"},
		"for what has ended": {[]string{"completed_job", "timer_job", "job_error"}, "INSERT INTO tenure.completed_job"},
		"for everything":     {[]string{"job", "claim", "completed_job", "timer_job", "job_error"}, "INSERT INTO tenure."},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			b.exec("p1", fullSQL)
			b.cfg.Execution.Workers = 4
			b.cfg.Execution.Retry = "R1/PT0.1S" // one failure is one too many
			cfg, proxy := b.behind(b.cfg, "p1")
			var tries, taken atomic.Int32
			proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				switch {
				case e.App == "tenure jobs" && strings.Contains(e.SQL, c.tries):
					tries.Add(1)
				case takes(e):
					taken.Add(1)
				}
				return faultproxy.Pass
			})
			runs := newRuns()
			const each = 100
			b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload)
				SELECT 't1', 'default', kind, '{"n": 0}' FROM generate_series(1, $1), unnest('{plain,write}'::text[]) kind`, each)
			fillDiskFor(b, c.tables...)
			n := b.start(cfg, b.registry(func(id job.ID) { runs.start(id)() }))
			require.Eventually(t, func() bool { return tries.Load() > 2 }, patience, time.Millisecond) // the first come soon after one another

			before, took := tries.Load()+taken.Load(), 6*time.Second
			pause(t.Context(), took)
			require.LessOrEqual(t, tries.Load()+taken.Load()-before, 2*int32(took/time.Second), "tries, and takes of the lock")
			t.Logf("%d tries, %d takes", tries.Load(), taken.Load())
			total := 2 * each
			_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
			if slices.Contains(c.tables, "job") {
				var pg *pgconn.PgError
				require.ErrorAs(t, err, &pg)
				require.Equal(t, "53100", pg.Code)
			} else {
				require.NoError(t, err)
				total++
			}
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job"))

			fillDiskFor(b)
			b.eventually(total, "p1", "SELECT (SELECT count(*) FROM tenure.completed_job) + (SELECT count(*) FROM tenure.dead_letter_job)")
			b.requireOnce("t1", each, "p1")
			starts, overlaps := runs.sum()
			require.Equal(t, total-each, starts, "each of the others has run once")
			require.Zero(t, overlaps)
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt > 1 OR losses > 0"))
			b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
		})
	}
}

// raising is a job in a transaction whose SQL says that the disk is full.
type raising struct{}

func (raising) Kind() string { return "raising" }

// TestP10WhatATenantRaisesHoldsUpNobody: what one tenant's SQL raises, as if the disk were full, is its
// own: its jobs are charged and come to their end, and the pool is not paused for the other tenant's.
func TestP10WhatATenantRaisesHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Execution.Retry = "R1/PT0.1S" // one failure is one too many
	r := b.registry(nil)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, _ *job.Job[raising]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES (1); DO $$BEGIN RAISE 'no space left' USING ERRCODE = 'disk_full'; END$$")
		return err
	})
	n := b.start(b.named("a"), r)
	const each = 200
	var entries []tenure.Entry
	for i := range each {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: raising{}}, tenure.Entry{Tenant: "t2", Args: plain{i}})
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.eventually(each, "p1", "SELECT count(*) FROM tenure.completed_job WHERE tenant_id = 't2'")
	b.eventually(each, "p1", "SELECT count(*) FROM tenure.dead_letter_job WHERE tenant_id = 't1'")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM t1.effect"))
	require.False(t, b.log.says("jobs are deferred"))
}
