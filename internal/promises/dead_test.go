package promises_test

import (
	"context"
	"flag"
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/operate"
)

// deadLetters is how many TestManyDeadLetters groups; a million takes a minute to make.
var deadLetters = flag.Int("deadletters", 12_000, "how many dead letters are grouped")

// kill adds n dead letters of a tenant's, whose error is SQL.
func (b *testbed) kill(pool, tenant, kind, failure string, n int) {
	b.exec(pool, `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error)
		SELECT $1, 'default', $2, '{"n": 1}', 'job', `+failure+` FROM generate_series(1, $3::integer) n`, tenant, kind, n)
}

// Dead letters that died of the same cause are one group over all pools, in memory that does not
// grow with their number.
func TestManyDeadLetters(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	n := *deadLetters
	b.kill("p1", "t1", "plain", "'order ' || n || ' of ''' || md5(n::text) || ''' not found: ' || gen_random_uuid()", n)
	b.kill("p1", "t1", "write", "'order ' || n || ' not found'", 2)
	b.exec("p1", "UPDATE tenure.dead_letter_job SET died_at = 'infinity' WHERE kind = 'write'") // in the last page
	b.kill("p2", "t2", "plain", "'order ' || n || ' of ''' || md5(n::text) || ''' not found: ' || gen_random_uuid()", 3)
	dead := b.client(b.cfg).Operator().DeadLetters()

	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	began := time.Now()
	groups, err := dead.Groups(t.Context(), operate.DeadFilter{})
	require.NoError(t, err)
	runtime.ReadMemStats(&after)
	t.Logf("%d dead letters grouped in %v, %d MiB allocated in all", n, time.Since(began), (after.TotalAlloc-before.TotalAlloc)>>20)
	require.Len(t, groups, 2)
	require.Equal(t, n+3, groups[0].Count)
	require.Equal(t, "order # of '#' not found: #", groups[0].Pattern)
	require.Equal(t, "plain", groups[0].Kind)
	require.False(t, groups[0].Last.Before(groups[0].First))
	require.Equal(t, 1, b.count("p2", "SELECT count(*) FROM tenure.dead_letter_job WHERE id = $1", groups[0].Sample), "the one that died last")
	require.Equal(t, 2, groups[1].Count)

	r, err := dead.Retry(t.Context(), operate.DeadFilter{Group: groups[1].ID}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: 2}, r)
	r, err = dead.Delete(t.Context(), operate.DeadFilter{Group: groups[0].ID, Pool: "p1"}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: n}, r)
	groups, err = dead.Groups(t.Context(), operate.DeadFilter{})
	require.NoError(t, err)
	require.Len(t, groups, 1)
	require.Equal(t, 3, groups[0].Count)
}

// What interrupts the retrying of many leaves each either dead or retried, and the same call goes
// on. The rate is kept.
func TestRetryingDeadLettersGoesOn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	const n = 60
	b.kill("p1", "t1", "write", "'timeout ' || n", n)
	b.kill("p1", "t1", "plain", "'timeout ' || n", 1)
	node := b.start(b.cfg, b.registry(nil))
	dead := node.Operator().DeadLetters()
	chosen := operate.DeadFilter{Kind: "write"}
	all := func() int {
		return b.count("p1", "SELECT (SELECT count(*) FROM tenure.dead_letter_job WHERE kind = 'write') + (SELECT count(*) FROM tenure.job) + (SELECT count(*) FROM tenure.completed_job)")
	}

	ctx, cancel := context.WithCancelCause(t.Context())
	stopped := fmt.Errorf("the operator pressed Ctrl-C")
	type answer struct {
		r   operate.DeadResult
		err error
	}
	answered := make(chan answer, 1)
	began := time.Now()
	go func() {
		r, err := dead.Retry(ctx, chosen, 20)
		answered <- answer{r, err}
	}()
	b.eventually(1, "p1", "SELECT (count(*) >= 4)::int FROM tenure.completed_job")
	cancel(stopped)
	first := <-answered
	took := time.Since(began)
	require.Error(t, first.err)
	require.GreaterOrEqual(t, first.r.Done, 4)
	require.LessOrEqual(t, float64(first.r.Done), 20*took.Seconds()+3, "20 in a second, in steps of 2")
	require.Equal(t, n, all())

	second, err := dead.Retry(t.Context(), chosen, 0)
	require.NoError(t, err)
	require.InDelta(t, n-first.r.Done, second.Done, 2, "a step whose answer was not awaited may have been done")
	require.Equal(t, operate.DeadResult{Done: second.Done}, second)
	b.eventually(n, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.dead_letter_job"), "of another kind")
	third, err := dead.Delete(t.Context(), operate.DeadFilter{Tenant: "t1"}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: 1}, third)
	b.requireOnce("t1", n, "p1")

	_, err = dead.Retry(t.Context(), chosen, -1)
	require.ErrorContains(t, err, "a rate of -1 in a second")
	_, err = dead.Groups(t.Context(), operate.DeadFilter{Pool: "p9"})
	require.ErrorIs(t, err, tenure.ErrUnknownPool)
}

// A transaction that is open has enqueued a job with the unique key of a dead letter: that one
// stays, and all others are retried. The key is not waited for as long as the transaction lasts.
func TestRetryingDeadLettersMeetsAnOpenTransaction(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.kill("p1", "t1", "write", "'timeout'", 9)
	b.exec("p1", "UPDATE tenure.dead_letter_job SET unique_key = 'k' || id")
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.Background()) }()
	_, err = tx.Exec(t.Context(), "INSERT INTO tenure.unique_job (tenant_id, key, job_id) SELECT tenant_id, unique_key, 4711 FROM tenure.dead_letter_job ORDER BY id OFFSET 4 LIMIT 1")
	require.NoError(t, err)
	dead := b.client(b.cfg).Operator().DeadLetters()
	r, err := dead.Retry(t.Context(), operate.DeadFilter{}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: 8, Left: 1}, r)
	require.NoError(t, tx.Rollback(t.Context()))
	r, err = dead.Retry(t.Context(), operate.DeadFilter{}, 0)
	require.NoError(t, err)
	require.Equal(t, operate.DeadResult{Done: 1}, r)
}
