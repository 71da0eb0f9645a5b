package promises_test

import (
	"bytes"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// broken begins what a test says that no second run excuses: a job was lost or doubled, or one
// tenant saw another. `make test` fails of it even if the test then passes.
const broken = "PROMISE BROKEN: "

// effectsOf counts a tenant's effects in some pools, and the jobs that had them.
func (b *testbed) effectsOf(tenant string, pools ...string) (rows int, jobs map[job.ID]int) {
	b.t.Helper()
	jobs = map[job.ID]int{}
	for _, p := range pools {
		r, err := b.db[p].Query(b.t.Context(), fmt.Sprintf("SELECT job_id FROM %s.effect", tenant))
		require.NoError(b.t, err)
		ids, err := pgx.CollectRows(r, pgx.RowTo[job.ID])
		require.NoError(b.t, err)
		for _, id := range ids {
			jobs[id]++
		}
		rows += len(ids)
	}
	return rows, jobs
}

// requireOnce sees that each of n jobs of a tenant had its effect, once.
func (b *testbed) requireOnce(tenant string, n int, pools ...string) {
	b.t.Helper()
	for _, p := range pools {
		b.dwindles(p, unfinished, tenant)
	}
	rows, jobs := b.effectsOf(tenant, pools...)
	for id, times := range jobs {
		require.Equal(b.t, 1, times, broken+"effects of job %d", id)
	}
	require.Equal(b.t, n, rows, broken+"effects of tenant %s", tenant)
}

// wroteOnce checks that so many jobs of a bed with one pool wrote, each of them once.
func (b *testbed) wroteOnce(want int) {
	b.t.Helper()
	rows, jobs := 0, 0
	for _, id := range b.tenants() {
		rows += b.count("p1", fmt.Sprintf("SELECT count(*) FROM %s.effect", id))
		jobs += b.count("p1", fmt.Sprintf("SELECT count(DISTINCT job_id) FROM %s.effect", id))
	}
	require.Equal(b.t, want, rows, broken+"effects")
	require.Equal(b.t, want, jobs, broken+"jobs with effects")
}

// drained waits until a pool has so many finished jobs and none waits.
func (b *testbed) drained(pool string, want int) {
	b.t.Helper()
	b.eventually(want, pool, "SELECT count(*) FROM tenure.completed_job WHERE NOT EXISTS (SELECT FROM tenure.job) AND NOT EXISTS (SELECT FROM tenure.timer_job)")
}

// holder waits until one of the children holds the lock, other than not, and has
// finished jobs since.
func (b *testbed) holder(pool string, not string, of ...*child) (found *child) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		var member string
		err := b.db[pool].QueryRow(b.t.Context(), "SELECT coalesce(holder_member, '') FROM tenure.acquire_lock WHERE expires_at > clock_timestamp()").Scan(&member)
		for _, c := range of {
			if err == nil && c.member == member && member != not {
				found = c
				return true
			}
		}
		return false
	}, patience, 5*time.Millisecond, "one of the nodes should hold the lock")
	b.flows(pool)
	return found
}

// flows waits until jobs finish.
func (b *testbed) flows(pool string) {
	b.t.Helper()
	since := databaseTime(b, pool)
	require.Eventually(b.t, func() bool {
		return b.count(pool, "SELECT count(*) FROM tenure.completed_job WHERE finished_at > $1", since) > 10
	}, patience, 10*time.Millisecond, "jobs should be acquired")
}

// acquireBound is how long a pool may go without acquisition when its holder
// vanishes: the lock's time to live, the time the others watch before they believe
// it, their delays by rank, and some for a slow machine.
func (b *testbed) acquireBound() time.Duration {
	const ranks, machine = 3 * 750 * time.Millisecond, 2 * time.Second
	return b.cfg.Acquire.Lock.TTL + 3*b.cfg.Acquire.Lock.RenewEvery + b.cfg.Acquire.IdleWait + ranks + machine
}

// agree waits until two nodes have the same view, by which neither is elected for
// all pools.
func (b *testbed) agree(x, y *running) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		elected := map[string]bool{}
		for pool := range b.db {
			e := x.Operator().Pools().Elected(pool)
			if e == "" || e != y.Operator().Pools().Elected(pool) {
				return false
			}
			elected[e] = true
		}
		return len(elected) == 2
	}, patience, 10*time.Millisecond)
}

// exec runs statements in a pool's database.
func (b *testbed) exec(pool, sql string, args ...any) {
	b.t.Helper()
	_, err := b.db[pool].Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// count is a number that a query returns.
func (b *testbed) count(pool, sql string, args ...any) (n int) {
	b.t.Helper()
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

// errorsOf are the errors that runs of a pool's jobs have ended with.
func (b *testbed) errorsOf(pool string) (all []string) {
	b.t.Helper()
	rows, _ := b.db[pool].Query(b.t.Context(), "SELECT error FROM tenure.job_error") // its error is the rows', too
	all, err := pgx.CollectRows(rows, pgx.RowTo[string])
	require.NoError(b.t, err)
	return all
}

// eventually waits until a query that returns a number returns want.
func (b *testbed) eventually(want int, pool, sql string, args ...any) {
	b.t.Helper()
	got := -1
	require.Eventually(b.t, func() bool {
		err := b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&got)
		return err == nil && got == want
	}, patience, poll, "%s: want %d", sql, want)
}

// allJobs counts the jobs of a pool that wait for something.
const allJobs = "SELECT (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.timer_job)"

// dwindles waits until a query that counts jobs returns 0, for as long as it returns less and
// less: how long that takes in all depends on the machine.
func (b *testbed) dwindles(pool, sql string, args ...any) {
	b.t.Helper()
	for left := b.count(pool, sql, args...); left > 0; {
		require.Eventually(b.t, func() bool {
			now := left
			if err := b.db[pool].QueryRow(b.t.Context(), sql, args...).Scan(&now); err != nil || now >= left {
				return false
			}
			left = now
			return true
		}, patience, poll, "%d jobs are left in pool %s", left, pool)
	}
}

// finished waits until nothing but finished jobs is left.
func (b *testbed) finished(c *tenure.Client, want int) {
	b.t.Helper()
	require.Eventually(b.t, func() bool {
		counts, err := c.Operator().Pools().Count(b.t.Context())
		require.NoError(b.t, err)
		done := 0
		for _, n := range counts {
			if n.Waiting+n.Claimed+n.Timers+n.Dead > 0 {
				return false
			}
			done += int(n.Finished)
		}
		return done == want
	}, patience, 20*time.Millisecond)
}

func stateOf(t *testing.T, c *tenure.Client, tenant tenancy.ID, pool string) string {
	t.Helper()
	all, err := c.Operator().Tenants().List(t.Context())
	require.NoError(t, err)
	for _, s := range all {
		if s.Tenant == tenant && s.Pool == pool {
			return s.State
		}
	}
	return ""
}

// logbook keeps what nodes log and shows it when the test fails. Unlike zaptest it
// may be written to after the test, by whatever of memberlist outlives a node.
type logbook struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func newLogbook(t *testing.T) *logbook {
	l := &logbook{}
	t.Cleanup(func() {
		l.mu.Lock()
		defer l.mu.Unlock()
		if !t.Failed() {
			return
		}
		const most = 40_000
		b := l.buf.Bytes()
		if len(b) > most {
			b = append([]byte("…"), b[len(b)-most:]...)
		}
		t.Logf("the nodes logged:\n%s", b)
	})
	return l
}

// Write implements zapcore.WriteSyncer.
func (l *logbook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

// says tells whether all was logged in one line.
func (l *logbook) says(all ...string) bool { return l.count(all...) > 0 }

// count is how many lines say all.
func (l *logbook) count(all ...string) (lines int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range bytes.Lines(l.buf.Bytes()) {
		has := 0
		for _, text := range all {
			if bytes.Contains(line, []byte(text)) {
				has++
			}
		}
		if has == len(all) {
			lines++
		}
	}
	return lines
}

// Sync implements zapcore.WriteSyncer.
func (l *logbook) Sync() error { return nil }

func (l *logbook) logger(node string) *zap.Logger { return loggerTo(l, node) }

func loggerTo(w zapcore.WriteSyncer, node string) *zap.Logger {
	enc := zap.NewDevelopmentEncoderConfig()
	enc.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	enc.StacktraceKey = ""
	return zap.New(zapcore.NewCore(zapcore.NewConsoleEncoder(enc), w, zap.DebugLevel)).Named(node)
}
