package promises_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg/poolertest"
	"github.com/tenurehq/tenure/job"
)

// What is promised of tenants' transactions holds also where they go through PgBouncer in
// transaction mode, whose sessions are everybody's.
func TestThroughAPooler(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(*testing.T){
		"P3 a stale run":   TestP3AStaleRunCommitsNothing,
		"P5":               TestP5AttemptIsRecordedBeforeTheNextStart,
		"P6":               TestP6TheConnectionIsClean,
		"enqueuing":        TestEnqueueTx,
		"odd settings":     TestWhateverIsSet,
		"hold":             TestHold,
		"following":        TestMoveIsFollowedByTransactions,
		"move":             TestMoveWhileJobsRun,
		"move with a hold": TestMoveWithDataLosesNoWrite,
	} {
		if testing.Short() && strings.HasPrefix(name, "move") {
			continue // a minute's work
		}
		t.Run(name, test)
	}
}

// throughPooler is the way of tenants' transactions in the tests of TestThroughAPooler: through
// a PgBouncer in front of a pool's database. In others it is the pool's own.
func throughPooler(t *testing.T, dsn string) string {
	if !strings.HasPrefix(t.Name(), "TestThroughAPooler/") {
		return ""
	}
	cfg, err := pgx.ParseConfig(dsn)
	require.NoError(t, err)
	return poolertest.Start(t, dsn, nil).DSN(cfg.Database)
}

// TestP3APoolerThatDies: the pooler of tenants' transactions is ended and started again, and its
// sessions are, whatever they are doing. Each job takes effect once all the same.
func TestP3APoolerThatDies(t *testing.T) {
	t.Parallel()
	const jobs, deaths = 400, 12
	b := newTestbed(t, 1, 2).byDefault()
	p1 := b.cfg.Pools["p1"]
	cfg, err := pgx.ParseConfig(p1.DSN)
	require.NoError(t, err)
	pooler := poolertest.Start(t, p1.DSN, map[string]string{"default_pool_size": "5", "server_login_retry": "1"})
	p1.TenantDSN = pooler.DSN(cfg.Database)
	b.cfg.Pools["p1"] = p1
	b.cfg.Execution.Workers = 8
	var ran atomic.Int64
	r := job.NewRegistry()
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) SELECT $1 FROM pg_sleep(0.02)", int64(j.ID))
		ran.Add(1)
		return err
	}, job.Retry("R1000/PT0.01S"))
	n := b.start(b.cfg, r)
	var entries []tenure.Entry
	for i := range jobs {
		entries = append(entries, tenure.Entry{Tenant: b.tenants()[i%2], Args: write{i}})
	}
	_, err = n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	for i := range deaths {
		before := ran.Load()
		require.Eventually(t, func() bool { return ran.Load() >= min(before+8, jobs) }, patience, patience/10000)
		if i%3 == 2 {
			b.exec("p1", "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure tenants'")
			continue
		}
		pooler.Stop()
		pooler.Launch()
	}
	b.dwindles("p1", allJobs)
	n.stop()
	require.Equal(t, jobs, b.count("p1", "SELECT (SELECT count(*) FROM t1.effect) + (SELECT count(*) FROM t2.effect)"))
	require.Equal(t, jobs, b.count("p1", "SELECT (SELECT count(DISTINCT job_id) FROM t1.effect) + (SELECT count(DISTINCT job_id) FROM t2.effect)"))
	require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'"))
	t.Logf("%d jobs, %d runs", jobs, ran.Load())
}
