package promises_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// addEffects writes the effects of a batch's jobs and returns the server's process.
func addEffects(ctx context.Context, tx pgx.Tx, run string, jobs []*job.Job[write]) (pid int32, err error) {
	ids := make([]job.ID, len(jobs))
	for i, j := range jobs {
		ids[i] = j.ID
	}
	if _, err := tx.Exec(ctx, "INSERT INTO effect (job_id, run) SELECT unnest($1::bigint[]), $2", ids, run); err != nil {
		return 0, err
	}
	return pid, tx.QueryRow(ctx, "SELECT pg_backend_pid()").Scan(&pid)
}

// inOneCall has n jobs share one call.
func inOneCall(n int) job.Option {
	most, wait := job.MaxBatch(n), job.BatchWait(10*time.Second)
	return func(s *job.Spec) { most(s); wait(s) }
}

// enqueueBatch enqueues n jobs of t1, numbered from 0, with a unique key each. They have one turn, as the
// node that is to run them holds the pool's lock before.
func (r *running) enqueueBatch(n int, args func(i int) job.Args) {
	b := r.b
	b.t.Helper()
	r.holds("p1")
	entries := make([]tenure.Entry, n)
	for i := range entries {
		a := args(i)
		entries[i] = tenure.Entry{Tenant: "t1", Args: a, Options: []tenure.Option{tenure.Unique(fmt.Sprint(a.Kind(), i))}}
	}
	_, err := r.Client().EnqueueMany(b.t.Context(), entries)
	require.NoError(b.t, err)
}

func aWrite(i int) job.Args { return write{i} }
func aPlain(i int) job.Args { return plain{i} }

// TestBatchEndsEachJob: jobs of one call end in every way there is, in a transaction and without,
// with roles for tenants and with schemas only.
func TestBatchEndsEachJob(t *testing.T) {
	t.Parallel()
	for name, role := range map[string]string{"roles": rolePrefix + "{tenant}", "schemas": ""} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			if b.cfg.Tenants.Role = role; role == "" {
				b.exec("p1", "GRANT USAGE ON SCHEMA t1 TO PUBLIC; GRANT INSERT ON t1.effect TO PUBLIC")
			}
			const each, n = 2, 12
			end := func(i int) error {
				return []error{
					nil, errors.New("a failure"), job.RetryIn(time.Hour, errors.New("later")),
					job.Snooze(time.Hour), job.Discard(errors.New("no use")), job.Cancel(errors.New("not needed")),
				}[i%(n/each)]
			}
			sizes := make(chan int, 100)
			r := job.NewRegistry()
			tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[write]) error {
				sizes <- len(batch.Jobs)
				var done []*job.Job[write]
				for _, j := range batch.Jobs {
					if err := end(j.Args.N); err != nil {
						batch.End(j, err)
						continue
					}
					done = append(done, j)
				}
				_, err := addEffects(ctx, tx, "", done)
				return err
			}, inOneCall(n), job.Retry("R3/PT1H"))
			job.HandleBatch(r, func(_ context.Context, batch *job.Batch[plain]) error {
				sizes <- len(batch.Jobs)
				for _, j := range batch.Jobs {
					batch.End(j, end(j.Args.N))
				}
				return nil
			}, inOneCall(n), job.Retry("R3/PT1H"))
			node := b.start(b.cfg, r)
			node.enqueueBatch(n, aWrite)
			node.enqueueBatch(n, aPlain)
			b.eventually(0, "p1", "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.claim)")
			close(sizes)
			var calls []int
			for size := range sizes {
				calls = append(calls, size)
			}
			require.Equal(t, []int{n, n}, calls)
			for _, kind := range []string{"write", "plain"} {
				for want, sql := range map[int][]string{
					each: {
						"SELECT count(*) FROM tenure.completed_job WHERE kind = $1 AND outcome = 'done'",
						"SELECT count(*) FROM tenure.completed_job WHERE kind = $1 AND outcome = 'cancelled'",
						"SELECT count(*) FROM tenure.dead_letter_job WHERE kind = $1 AND error LIKE '%no use%'",
						"SELECT count(*) FROM tenure.timer_job WHERE kind = $1 AND attempt = 0",
					},
					2 * each: {"SELECT count(*) FROM tenure.timer_job WHERE kind = $1 AND attempt = 1"},
					3 * each: {"SELECT count(*) FROM tenure.unique_job WHERE key LIKE $1 || '%'"},
				} {
					for _, sql := range sql {
						require.Equal(t, want, b.count("p1", sql, kind), "%s: %s", kind, sql)
					}
				}
			}
			b.wroteOnce(each)
		})
	}
}

// TestP3BatchEffectsExactlyOnce breaks connections around the commits of batches.
func TestP3BatchEffectsExactlyOnce(t *testing.T) {
	t.Parallel()
	for name, verdict := range map[string]faultproxy.Verdict{"the answer to COMMIT is lost": faultproxy.CutAfter, "COMMIT does not arrive": faultproxy.CutBefore} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			cfg, proxy := b.behind(b.cfg, "p1")
			cfg.Execution.Workers = 4
			r := job.NewRegistry()
			var largest atomic.Int64
			tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[write]) error {
				largest.Store(max(largest.Load(), int64(len(batch.Jobs))))
				_, err := addEffects(ctx, tx, "", batch.Jobs)
				return err
			}, job.MaxBatch(20), job.BatchWait(50*time.Millisecond), job.Retry("R1000/PT0.01S"))
			n := b.start(cfg, r)
			var cuts atomic.Int64
			proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				if e.App == "tenure tenants" && strings.Contains(e.SQL, "; COMMIT;") && (cuts.Load() == 0 || rand.IntN(2) == 0) {
					cuts.Add(1)
					return verdict
				}
				return faultproxy.Pass
			})
			const jobs = 200
			n.enqueueBatch(jobs, aWrite)
			b.dwindles("p1", allJobs)
			b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
			n.stop()
			require.NotZero(t, cuts.Load())
			require.Greater(t, largest.Load(), int64(1))
			b.wroteOnce(jobs)
			require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'"))
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.unique_job"))
			if verdict == faultproxy.CutAfter {
				require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"), "what was committed has not failed")
			}
		})
	}
}

// TestP3AStaleBatchCommitsNothing: a node is declared dead while a batch's transaction is open.
// Whether it wants to commit before or after the jobs' next runs, it commits nothing.
func TestP3AStaleBatchCommitsNothing(t *testing.T) {
	t.Parallel()
	const jobs = 3
	for _, first := range []string{"a", "b"} {
		t.Run(first+" ends first", func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Second, 200*time.Millisecond
			b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = time.Second, 200*time.Millisecond
			open := map[string]chan int32{"a": make(chan int32, jobs), "b": make(chan int32, jobs)} // backend pids
			end := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
			release := map[string]func(){}
			registry := func(node string) *job.Registry {
				release[node] = sync.OnceFunc(func() { close(end[node]) })
				t.Cleanup(release[node])
				r := job.NewRegistry()
				tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[write]) error {
					pid, err := addEffects(ctx, tx, node, batch.Jobs)
					if err != nil {
						return err
					}
					open[node] <- pid
					<-end[node] // whatever becomes of ctx
					return nil
				}, inOneCall(jobs))
				return r
			}
			cfg, proxy := b.behind(b.named("a"), "p1")
			cfg.Acquire.Session.TTL = time.Minute // so that it does not end its runs itself; a frozen node could not
			a := b.start(cfg, registry("a"))
			a.enqueueBatch(jobs, aWrite)
			pid := <-open["a"]
			b.start(b.named("b"), registry("b"))
			notTenants := func(app string) bool { return !strings.HasSuffix(app, "tenants") }
			proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				if notTenants(e.App) {
					return faultproxy.CutBefore
				}
				return faultproxy.Pass
			})
			defer proxy.SetRule(nil)
			proxy.Cut(notTenants)
			b.exec("p1", "UPDATE tenure.node_session SET expires_at = clock_timestamp() WHERE node = 'a'")
			<-open["b"] // each of them runs alone now

			aEnds := func() {
				release["a"]()
				b.eventually(0, "p1", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state <> 'idle'", pid)
			}
			if first == "a" {
				aEnds()
				require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.job"), "the runs that hold the claims are still on")
			}
			release["b"]()
			b.eventually(jobs, "p1", "SELECT count(*) FROM tenure.completed_job")
			if first == "b" {
				aEnds()
			}
			b.wroteOnce(jobs)
			require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM t1.effect WHERE run = 'b'"))
			require.Equal(t, jobs, b.count("p1", "SELECT count(*) FROM tenure.completed_job"))
		})
	}
}

// TestP3ABatchLosesOneOfItsJobs: of the jobs of an open transaction one is taken back. It commits
// nothing; the others run again and are not charged.
func TestP3ABatchLosesOneOfItsJobs(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const jobs = 5
	calls, goOn := make(chan []*job.Job[write], 10), make(chan struct{})
	r := job.NewRegistry()
	tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[write]) error {
		if _, err := addEffects(ctx, tx, "", batch.Jobs); err != nil {
			return err
		}
		calls <- batch.Jobs
		<-goOn
		return nil
	}, job.MaxBatch(jobs), job.BatchWait(2*time.Second))
	n := b.start(b.cfg, r)
	n.enqueueBatch(jobs, aWrite)
	got := <-calls
	require.Len(t, got, jobs)
	b.exec("p1", "UPDATE tenure.job SET turn = turn + 1 WHERE id = $1", int64(got[2].ID)) // as reaping does
	close(goOn)
	b.eventually(jobs, "p1", "SELECT count(*) FROM tenure.completed_job WHERE attempt = 1")
	b.wroteOnce(jobs)
	require.Zero(t, b.count("p1", "SELECT (SELECT count(*) FROM tenure.job_error) + (SELECT count(*) FROM tenure.unique_job)"))
}

// TestCancelOneOfABatch: an operator cancels one of the jobs of a running call. The others are done; it
// is cancelled if it ends with an error, and does not run again.
func TestCancelOneOfABatch(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const jobs = 3
	calls, goOn := make(chan []*job.Job[write], 10), make(chan struct{})
	r := job.NewRegistry()
	tenure.HandleBatchTx(r, func(ctx context.Context, tx pgx.Tx, batch *job.Batch[write]) error {
		calls <- batch.Jobs
		select {
		case <-goOn:
		case <-ctx.Done():
			return ctx.Err()
		}
		batch.End(batch.Jobs[0], errors.New("a failure"))
		_, err := addEffects(ctx, tx, "", batch.Jobs[1:])
		return err
	}, inOneCall(jobs))
	n := b.start(b.cfg, r)
	n.enqueueBatch(jobs, aWrite)
	got := <-calls
	for _, j := range got[:2] {
		running, err := n.Client().Operator().Jobs().Cancel(tenancy.For(t.Context(), "t1"), j.ID)
		require.NoError(t, err)
		require.True(t, running)
		require.Eventually(t, func() bool { return b.log.says("cancelled on request", j.ID.String()) }, patience, 10*time.Millisecond)
	}
	close(goOn)
	b.drained("p1", jobs)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE id = $1 AND outcome = 'cancelled'", int64(got[0].ID)))
	require.Equal(t, jobs-1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'"), "those whose end came first")
	b.wroteOnce(jobs - 1)
	require.Empty(t, calls)
}
