package promises_test

import (
	"context"
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
)

// TestP3EffectsExactlyOnce breaks connections of handlers that write an effect and
// finish their job in one transaction. Nothing in the database forbids a second
// effect.
func TestP3EffectsExactlyOnce(t *testing.T) {
	t.Parallel()
	tenants := func(app string) bool { return app == "tenure tenants" }
	commits := func(e faultproxy.Event) bool { return strings.Contains(e.SQL, "; COMMIT;") } // it is one message with the job's end
	for _, c := range []struct {
		name string
		jobs int
		cut  func(*faultproxy.Proxy, *atomic.Int64)
		// starts and errors that have to be, given the cuts; nil: any number
		starts func(jobs, cuts int) int
		errors func(cuts int) int
	}{
		{
			name: "the answer to COMMIT is lost", jobs: 60,
			cut: func(p *faultproxy.Proxy, cuts *atomic.Int64) {
				p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
					if tenants(e.App) && commits(e) && rand.IntN(2) == 0 {
						cuts.Add(1)
						return faultproxy.CutAfter
					}
					return faultproxy.Pass
				})
			},
			starts: func(jobs, _ int) int { return jobs },
			errors: func(int) int { return 0 },
		},
		{
			name: "COMMIT does not arrive", jobs: 60,
			cut: func(p *faultproxy.Proxy, cuts *atomic.Int64) {
				p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
					if tenants(e.App) && commits(e) && rand.IntN(2) == 0 {
						cuts.Add(1)
						return faultproxy.CutBefore
					}
					return faultproxy.Pass
				})
			},
			starts: func(jobs, cuts int) int { return jobs + cuts },
			errors: func(cuts int) int { return cuts },
		},
		{
			name: "any connection is cut after any byte", jobs: 300,
			cut: func(p *faultproxy.Proxy, cuts *atomic.Int64) {
				var opened atomic.Int64
				p.SetLimit(func(app string) int64 {
					if opened.Add(1)%4 == 0 {
						return 0
					}
					cuts.Add(1)
					return 200 + rand.Int64N(6_000)
				})
				p.Cut(tenants) // which would serve all of them otherwise
			},
		},
		{
			name: "any answer is lost", jobs: 300,
			cut: func(p *faultproxy.Proxy, cuts *atomic.Int64) {
				p.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
					if e.SQL == "" || rand.IntN(25) > 0 {
						return faultproxy.Pass
					}
					cuts.Add(1)
					return faultproxy.CutAfter
				})
			},
		},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 2).byDefault()
			cfg, proxy := b.behind(b.cfg, "p1")
			cfg.Execution.Workers = 8
			cfg.Acquire.Batch = 20
			runs := newRuns()
			r := job.NewRegistry()
			tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
				defer runs.start(j.ID)()
				_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
				return err
			}, job.Retry("R1000/PT0.01S"))
			n := b.start(cfg, r)
			var entries []tenure.Entry
			for i := range c.jobs {
				entries = append(entries, tenure.Entry{Tenant: b.tenants()[i%2], Args: write{i}})
			}
			_, err := n.Client().EnqueueMany(t.Context(), entries[:1]) // so that the node is warm when the cuts begin
			require.NoError(t, err)
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
			var cuts atomic.Int64
			c.cut(proxy, &cuts)
			_, err = b.client(b.cfg).EnqueueMany(t.Context(), entries[1:]) // whose own connections are not cut
			require.NoError(t, err)

			b.dwindles("p1", allJobs)
			// An ending that was written without its writer knowing is written again; see that it does no harm.
			b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
			proxy.SetRule(nil)
			proxy.SetLimit(nil)
			n.stop()
			require.NotZero(t, cuts.Load())
			require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job"), "a finished job came back")
			for _, id := range b.tenants() {
				require.Zero(t, b.count("p1", fmt.Sprintf("SELECT count(*) FROM (SELECT FROM %s.effect GROUP BY job_id HAVING count(*) > 1) t", id)), "jobs with more than one effect")
			}
			require.Equal(t, c.jobs, b.count("p1", "SELECT (SELECT count(*) FROM t1.effect) + (SELECT count(*) FROM t2.effect)"))
			require.Equal(t, c.jobs, b.count("p1", "SELECT count(DISTINCT id) FROM tenure.completed_job WHERE outcome = 'done'"))
			require.Equal(t, c.jobs, b.count("p1", "SELECT count(*) FROM tenure.completed_job"))
			starts, overlaps := runs.sum()
			require.Zero(t, overlaps)
			if c.starts != nil {
				require.Equal(t, c.starts(c.jobs, int(cuts.Load())), starts)
				require.Equal(t, c.errors(int(cuts.Load())), b.count("p1", "SELECT count(*) FROM tenure.job_error"))
			}
			t.Logf("%d jobs, %d starts, %d cuts", c.jobs, starts, cuts.Load())
		})
	}
}

// TestP3AStaleRunCommitsNothing: a node is declared dead while its handler's
// transaction is open. Whether it wants to commit before or after the job's next
// run, it commits nothing.
func TestP3AStaleRunCommitsNothing(t *testing.T) {
	t.Parallel()
	for _, first := range []string{"a", "b"} {
		t.Run(first+" ends first", func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = time.Second, 200*time.Millisecond
			b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = time.Second, 200*time.Millisecond
			open := map[string]chan int32{"a": make(chan int32, 1), "b": make(chan int32, 1)} // backend pids
			end := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
			release := map[string]func(){}
			registry := func(node string) *job.Registry {
				var once sync.Once
				release[node] = func() { once.Do(func() { close(end[node]) }) }
				t.Cleanup(release[node])
				r := job.NewRegistry()
				tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
					var pid int32
					if err := tx.QueryRow(ctx, "INSERT INTO effect (job_id, run) VALUES ($1, $2) RETURNING pg_backend_pid()", int64(j.ID), node).Scan(&pid); err != nil {
						return err
					}
					open[node] <- pid
					<-end[node] // whatever becomes of ctx
					return nil
				})
				return r
			}
			cfg, proxy := b.behind(b.named("a"), "p1")
			cfg.Acquire.Session.TTL = time.Minute // so that it does not end its runs itself; a frozen node could not
			a := b.start(cfg, registry("a"))
			_, err := a.Client().EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: write{1}}})
			require.NoError(t, err)
			pids := map[string]int32{"a": <-open["a"]}
			b.start(b.named("b"), registry("b"))
			// Only the handler's own connection still works.
			notTenants := func(app string) bool { return !strings.HasSuffix(app, "tenants") }
			proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
				if notTenants(e.App) {
					return faultproxy.CutBefore
				}
				return faultproxy.Pass
			})
			proxy.Cut(notTenants)
			b.exec("p1", "UPDATE tenure.node_session SET expires_at = clock_timestamp() WHERE node = 'a'")
			pids["b"] = <-open["b"]

			over := func(node string) {
				release[node]()
				b.eventually(0, "p1", "SELECT count(*) FROM pg_stat_activity WHERE pid = $1 AND state <> 'idle'", pids[node])
			}
			if first == "a" {
				over("a")
				require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.job"), "the run that holds the claim is still on")
				over("b")
			} else {
				over("b")
				over("a")
			}
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
			require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM t1.effect"))
			require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM t1.effect WHERE run = 'b'"))
			proxy.SetRule(nil)
		})
	}
}
