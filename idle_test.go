package tenure_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// An idle pool is looked at seldom, on the lock's connection; whatever comes is found
// all the same: by a hint, by SQL, a timer, a transaction that commits late.
func TestIdlePoolsDoze(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock = acquisition.LockConfig{TTL: 4 * time.Second, RenewEvery: time.Second}
	b.cfg.Acquire.Session = acquisition.SessionConfig{TTL: 8 * time.Second, HeartbeatEvery: 2 * time.Second}
	b.cfg.Acquire.IdleWait = b.cfg.Acquire.Lock.RenewEvery
	ran := make(chan job.ID, 10)
	n := b.start(b.gossiping("a"), b.registry(func(id job.ID) { ran <- id }))
	n.holds("p1")
	dozes := func() {
		t.Helper()
		b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at > interval '6 s'")
		seq, since := 0, time.Now()
		require.Eventually(t, func() bool {
			now := b.count("p1", "SELECT renew_seq FROM tenure.acquire_lock")
			if now == seq {
				return false
			}
			gap := time.Since(since)
			known := seq > 0
			seq, since = now, time.Now()
			return known && gap > b.cfg.Acquire.Lock.RenewEvery*3/2
		}, patience, 5*time.Millisecond, "renewed half as often")
	}
	got := func() time.Duration {
		t.Helper()
		began := time.Now()
		select {
		case <-ran:
		case <-time.After(patience):
			t.Fatal("the job did not run")
		}
		return time.Since(began)
	}
	dozes()
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	require.Less(t, got(), b.cfg.Acquire.Lock.RenewEvery*3/2, "a hint wakes it at once, and not the next look")
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at < interval '6 s'")

	dozes()
	tx, err := b.db["p1"].Begin(t.Context())
	require.NoError(t, err)
	defer func() { _ = tx.Rollback(context.WithoutCancel(t.Context())) }() // committed unless the test failed
	const insert = `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'plain', '{"n": 0}')`
	_, err = tx.Exec(t.Context(), insert)
	require.NoError(t, err)
	b.exec("p1", insert)
	got()
	dozes()
	require.NoError(t, tx.Commit(t.Context()))
	got()

	dozes()
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1}, tenure.In(5*time.Second))
	require.NoError(t, err)
	b.exec("p1", `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('t1', 'default', 'plain', '{"n": 0}', now() + interval '2 s')`)
	require.InDelta(t, 2, got().Seconds(), 1)
	require.InDelta(t, 3, got().Seconds(), 1)
}

// An idle pool costs its database one connection in the whole cluster, that of the lock,
// also after jobs of it have run on every node. Whoever looks at the lock otherwise
// connects for that look.
func TestAnIdlePoolCostsOneConnection(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Acquire.IdleWait = b.cfg.Acquire.Lock.RenewEvery // or it would not doze
	y := newTally()
	const took = 50 * time.Millisecond
	a := b.start(few(b.gossiping("a"), 2), b.slow("a", y, took))
	for _, name := range []string{"b", "c"} {
		b.start(few(b.gossiping(name, a.Self().Addr), 2), b.slow(name, y, took))
	}
	a.meet(3)
	const jobs = 120
	b.many(a.Client(), jobs, eitherKind)
	const open = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %'"
	most := 0
	require.Eventually(t, func() bool {
		most = max(most, b.count("p1", open))
		return b.count("p1", "SELECT count(*) FROM tenure.completed_job") == jobs
	}, patience, 20*time.Millisecond)
	require.Len(t, y.byNode(), 3, "all of them have worked there")
	require.Greater(t, most, 3)
	require.Eventually(t, func() bool { return b.count("p1", open) == 1 }, 2*patience, 50*time.Millisecond, "what nobody uses is closed after 15 to 20 seconds")

	// And so it stays, but for who connects to look at the lock and leaves.
	const lasting = "SELECT count(*), coalesce(min(pid), 0) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %' AND clock_timestamp() - backend_start > interval '1 s'"
	first := 0
	require.Never(t, func() bool {
		var n, pid int
		if err := b.db["p1"].QueryRow(t.Context(), lasting).Scan(&n, &pid); err != nil {
			return false // the test is over
		}
		if first == 0 {
			first = pid
		}
		return n != 1 || pid != first
	}, 4*time.Second, 50*time.Millisecond, "one connection, and always the same")
}
