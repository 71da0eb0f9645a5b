package promises_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/job"
)

// TestP10AReadOnlyDatabase: a database does not take writes for a while, as when its disk
// is about to be full. No job is charged an attempt for that, nothing runs hot, and
// everything is done once when it is over.
func TestP10AReadOnlyDatabase(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{})
	b := newTestbedOn(t, server, 1, 1)
	b.cfg.Execution.Workers = 4
	b.cfg.Execution.Retry = "R1/PT0.1S" // one failure is one too many
	var tries atomic.Int32
	var refused atomic.Bool // some job had been claimed, and began only then
	readOnly := make(chan struct{})
	r := b.registry(nil)
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[enduring]) error {
		if tries.Add(1) > 20 { // some are waiting behind these when it begins
			select {
			case <-readOnly:
			case <-ctx.Done():
			}
		}
		pause(ctx, 50*time.Millisecond)
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		refused.Store(refused.Load() || err != nil)
		return err
	})
	n := b.start(b.named("a"), r)
	n.holds("p1")
	var entries []tenure.Entry
	const jobs = 400
	for range jobs {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: enduring{}})
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.eventually(10, "p1", "SELECT least(count(*), 10) FROM tenure.completed_job")
	b.exec("p1", "ALTER SYSTEM SET default_transaction_read_only = on")
	b.exec("p1", "SELECT pg_reload_conf()")
	b.eventually(1, "p1", "SELECT (current_setting('default_transaction_read_only') = 'on')::int")
	close(readOnly)
	pause(t.Context(), b.cfg.Acquire.Lock.TTL) // whatever was claimed is tried, and the lock is lost
	says := func(status int, up string) func() bool {
		return func() bool {
			ready, metrics := httptest.NewRecorder(), httptest.NewRecorder()
			n.Handler().ServeHTTP(ready, httptest.NewRequest(http.MethodGet, "/readyz", nil))
			n.Handler().ServeHTTP(metrics, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			return ready.Code == status && strings.Contains(metrics.Body.String(), `tenure_pool_up{pool="p1"} `+up)
		}
	}
	require.Eventually(t, says(http.StatusServiceUnavailable, "0"), patience, 50*time.Millisecond, "it does not say that it can work there")
	require.ErrorContains(t, n.Operator().Pools().Unfit()["p1"], "read-only transaction")
	before, calls := tries.Load(), b.count("p1", "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'p1'")
	const watched = 5 * time.Second
	pause(t.Context(), watched)
	require.LessOrEqual(t, tries.Load()-before, int32(1), "nothing can be claimed")
	b.exec("p1", "SELECT pg_stat_clear_snapshot()")
	calls = b.count("p1", "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'p1'") - calls
	require.Less(t, calls, int(watched/time.Second)*40, "a heartbeat and a look at the lock every now and then")

	b.exec("p1", "ALTER SYSTEM RESET default_transaction_read_only")
	b.exec("p1", "SELECT pg_reload_conf()")
	b.eventually(jobs, "p1", "SELECT (SELECT count(*) FROM tenure.completed_job) + (SELECT count(*) FROM tenure.dead_letter_job)")
	b.requireOnce("t1", jobs, "p1")
	require.Eventually(t, says(http.StatusOK, "1"), patience, 50*time.Millisecond, "it does again")
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt > 1"))
	require.Equal(t, refused.Load(), b.log.says("jobs are deferred: their database cannot run them now"))
}
