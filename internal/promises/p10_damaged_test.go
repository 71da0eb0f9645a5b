package promises_test

import (
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
)

// TestP10ADamagedJobStopsNobody: of a waiting job and a due timer storage has lost a part, and the
// database gives its clients an encoding that cannot say what a third one says. All others of all tenants
// run, the lock stays where it is, the log names each of the two once, and they are listed and cancelled.
func TestP10ADamagedJobStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	add := func(table, tenant, payload, more, value string) (id job.ID) {
		require.NoError(t, b.db["p1"].QueryRow(t.Context(), "INSERT INTO tenure."+table+" (tenant_id, queue, kind, payload"+more+") VALUES ($1, 'default', 'plain', $2"+value+") RETURNING id", tenant, payload).Scan(&id))
		return id
	}
	b.exec("p1", `DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET client_encoding = LATIN1', current_database()); END $$`)
	var lost []job.ID
	for i := range 20 {
		tenant := []string{"t1", "t2"}[i%2]
		waits, timer := add("job", tenant, `{"n": 1, "price": "€"}`, "", ""), add("timer_job", tenant, `{"n": 1}`, ", due_at", ", clock_timestamp()")
		if i == 7 {
			lost = []job.ID{waits, timer}
			storetest.Damage(t, b.db["p1"], "job", waits)
			storetest.Damage(t, b.db["p1"], "timer_job", timer)
		}
	}
	n := b.start(b.named("a"), b.registry(nil))
	n.holds("p1")
	epoch := b.count("p1", "SELECT epoch FROM tenure.acquire_lock")
	b.eventually(38, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")
	for _, id := range lost {
		require.Eventually(t, func() bool { return b.log.says("a job cannot be read", id.String()) }, patience, 10*time.Millisecond)
	}
	stop := b.feed(t.Context(), "p1")
	b.flows("p1")
	stop()

	op := n.Operator()
	left := 0
	for _, state := range []string{"waiting", "scheduled"} {
		jobs, err := op.Jobs().List(t.Context(), operate.JobFilter{State: state})
		require.NoError(t, err)
		for _, j := range jobs {
			if j.ID == lost[0] || j.ID == lost[1] {
				require.Contains(t, string(j.Payload), "unexpected chunk number")
				left++
			}
		}
	}
	require.Equal(t, 2, left)
	for _, id := range lost {
		_, err := op.Jobs().Cancel(t.Context(), id)
		require.NoError(t, err)
	}
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'cancelled' AND payload ? 'tenure:damaged'")
	require.Equal(t, 2, b.log.count("a job cannot be read"), "each once")
	require.Equal(t, epoch, b.count("p1", "SELECT epoch FROM tenure.acquire_lock"), "the lock was never lost")
}

// TestP10ATimeThatNoClockKnowsStopsNobody: jobs are there whose times somebody has set to the ends of all
// time. They run like others, on the holder as on a peer, and every list has them.
func TestP10ATimeThatNoClockKnowsStopsNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	y := newTally()
	holder, _ := startPair(b, y, 2, 40*time.Millisecond, nil)
	const n = 120
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload, created_at, ready_at)
		SELECT 't' || 1 + n % 2, 'default', 'plain', '{"n": 1}', (CASE n % 4 WHEN 0 THEN 'infinity' WHEN 1 THEN '-infinity' WHEN 2 THEN '200000-01-01' ELSE '2026-01-01' END)::timestamptz,
		       CASE n % 8 WHEN 4 THEN '-infinity'::timestamptz END
		FROM generate_series(1, $1::int) n`, n)
	b.eventually(n, "p1", "SELECT count(*) FROM tenure.completed_job WHERE outcome = 'done'")
	require.Len(t, y.byNode(), 2, "both nodes have had some")
	require.Zero(t, y.twice())

	b.exec("p1", "INSERT INTO tenure.job (tenant_id, queue, kind, payload, created_at) VALUES ('t1', 'default', 'unheard-of', '{}', 'infinity')")
	b.exec("p1", "INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at, created_at) VALUES ('t1', 'default', 'plain', '{}', now() + interval '1 h', '-infinity')")
	op := holder.Operator()
	jobs, err := op.Jobs().List(t.Context(), operate.JobFilter{Limit: n + 10})
	require.NoError(t, err)
	require.Len(t, jobs, n+2)
	for _, j := range jobs {
		_, err := json.Marshal(j)
		require.NoError(t, err)
	}
	_, err = op.Queues().List(t.Context(), operate.LoadFilter{})
	require.NoError(t, err)
	loads, err := op.Pools().Loads(t.Context())
	require.NoError(t, err)
	require.Len(t, loads, 1)
	for _, of := range []string{"acquire_lock SET renewed_at", "acquire_lock SET expires_at", "node_session SET last_seen"} {
		_, err := b.db["p1"].Exec(t.Context(), "UPDATE tenure."+of+" = 'infinity'")
		require.ErrorContains(t, err, "violates check constraint", "nobody can do with that at all")
	}
}

// TestP10ADamagedJobKeepsNoneFromBeingChanged: of dead letters and of timers one cannot be read. All others are
// retried, at once and in the background, suspended and resumed; that one stays.
func TestP10ADamagedJobKeepsNoneFromBeingChanged(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	n := b.start(b.named("a"), b.registry(nil))
	n.holds("p1")
	op := n.Operator()
	die := func(jobs int) {
		b.exec("p1", `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error, turn, attempt, max_attempts)
			SELECT 't1', 'default', 'plain', '{"n": 1}', 'job', 'no', 1, 1, 1 FROM generate_series(1, $1::int)`, jobs)
	}
	var lost job.ID
	die(9)
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT id FROM tenure.dead_letter_job ORDER BY id OFFSET 4 LIMIT 1").Scan(&lost))
	storetest.Damage(t, b.db["p1"], "dead_letter_job", lost)
	done, err := op.DeadLetters().Retry(t.Context(), operate.DeadFilter{}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: 8, Left: 1}, done)

	die(9)
	_, err = op.DeadLetters().RetryInBackground(t.Context(), operate.DeadFilter{}, 0, "")
	require.NoError(t, err)
	b.eventually(17, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.operation WHERE ended_at IS NOT NULL AND failure IS NULL")
	require.Equal(t, int(lost), b.count("p1", "SELECT min(id) FROM tenure.dead_letter_job HAVING count(*) = 1"))

	b.exec("p1", `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) SELECT 't1', 'default', 'plain', '{"n": 1}', now() + interval '1 h' FROM generate_series(1, 9)`)
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT id FROM tenure.timer_job ORDER BY id OFFSET 4 LIMIT 1").Scan(&lost))
	storetest.Damage(t, b.db["p1"], "timer_job", lost)
	suspended, err := op.Jobs().SuspendAll(t.Context(), operate.Selection{}, time.Time{})
	require.NoError(t, err)
	require.Equal(t, operate.SuspendResult{Suspended: 8, Left: 1}, suspended)

	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT id FROM tenure.suspended_job ORDER BY id OFFSET 4 LIMIT 1").Scan(&lost))
	storetest.Damage(t, b.db["p1"], "suspended_job", lost)
	resumed, err := op.Jobs().ResumeAll(t.Context(), operate.Selection{})
	require.NoError(t, err)
	require.Equal(t, 7, resumed)
}
