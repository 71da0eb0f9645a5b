package promises_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// An idle pool is looked at seldom, on the lock's connection; whatever comes is found
// all the same: by a hint, by SQL, a timer, a transaction that commits late.
func TestIdlePoolsDoze(t *testing.T) {
	if testing.Short() {
		t.Skip("measures time")
	}
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
	_, err = n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1}, tenure.In(8*time.Second))
	require.NoError(t, err)
	b.exec("p1", `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('t1', 'default', 'plain', '{"n": 0}', now() + interval '2 s')`)
	first := got().Seconds() // a busy machine is asked for timers less often
	require.Greater(t, first, 1.0)
	require.Less(t, first, 7.0)
	require.InDelta(t, 8, first+got().Seconds(), 1.5)
}

// In a pool that dozes a timer starts when it is due, also one that a look has just missed, and of which
// nobody tells: the next look learns when that is. Of a few pools' one at least is late by no more than what
// is asked for; others may be, as the machine may be busy, but by far less than there is between two looks.
func TestATimerInAPoolThatDozesStartsInTime(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("measures time")
	}
	t.Parallel()
	const pools, asked = 3, 100 * time.Millisecond
	b := newTestbed(t, pools, 1)
	d := config.Default().Acquire
	b.cfg.Acquire.Lock, b.cfg.Acquire.Session, b.cfg.Acquire.IdleWait = d.Lock, d.Session, d.IdleWait
	between := lease.DozeFactor * d.Lock.RenewEvery // looks
	late := make(chan time.Duration, pools)
	r := b.registry(nil)
	job.Handle(r, func(_ context.Context, j *job.Job[prompt]) error {
		late <- time.Since(j.Args.At)
		return nil
	})
	b.start(b.named("a"), r)
	for i, tenant := range b.tenants() {
		pool := fmt.Sprintf("p%d", i+1)
		const renewals, dozes = "SELECT renew_seq FROM tenure.acquire_lock", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at > interval '15 s'"
		b.eventually(1, pool, dozes)
		looks := b.count(pool, renewals)
		require.Eventually(t, func() bool { return b.count(pool, renewals) > looks }, patience, 5*time.Millisecond)
		require.Equal(t, 1, b.count(pool, dozes), "or this shows nothing")
		due := time.Now().Add(between * 3 / 2)
		b.exec(pool, `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ($1, 'default', 'prompt', jsonb_build_object('at', $2::text), $3)`,
			string(tenant), due.Format(time.RFC3339Nano), due)
	}
	var all []time.Duration
	for range pools {
		select {
		case one := <-late:
			all = append(all, one)
		case <-time.After(patience):
			require.FailNow(t, "a timer does not fire", "others were late by %v", all)
		}
	}
	t.Logf("late by %v", all)
	require.Greater(t, slices.Min(all), -time.Millisecond, "clocks are read to the microsecond")
	require.Less(t, slices.Min(all), asked, "of %v", all)
	require.Less(t, slices.Max(all), between/4, "of %v", all)
}

// A job of which no hint tells, added by SQL or by a process that does not gossip, and just after
// a node has begun to doze, need not wait for as long as a doze is between two looks.
func TestTheFirstJobIsFoundSoon(t *testing.T) {
	if testing.Short() || raced {
		t.Skip("measures time")
	}
	t.Parallel()
	b := newTestbed(t, 1, 1)
	d := config.Default().Acquire
	b.cfg.Acquire.Lock, b.cfg.Acquire.Session, b.cfg.Acquire.IdleWait = d.Lock, d.Session, d.IdleWait
	ran := make(chan time.Time, 1)
	const insert = `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'plain', '{"n": 0}')`
	b.exec("p1", insert)
	began := time.Now()
	n := b.start(b.named("a"), b.registry(func(job.ID) { ran <- time.Now() }))
	require.Less(t, (<-ran).Sub(began), d.Lock.RenewEvery, "what waited when the node started")
	n.holds("p1")
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at > interval '15 s'") // it dozes
	added := time.Now()
	b.exec("p1", insert)
	require.Less(t, (<-ran).Sub(added), d.Lock.RenewEvery, "a doze looks half as often")
}

// An idle pool costs its database one connection in the whole cluster, that of the lock,
// also after jobs of it have run on every node. Anyone who looks at the lock otherwise
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
	const only = "SELECT CASE WHEN count(*) = 1 THEN min(pid) ELSE 0 END FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'tenure %'"
	lasting := 0
	require.Eventually(t, func() bool {
		lasting = b.count("p1", only)
		return lasting > 0
	}, 2*patience, 50*time.Millisecond, "what nobody uses is closed after 15 to 20 seconds")

	// And so it stays, but for who connects to look at the lock and leaves.
	const renewed = "SELECT renew_seq FROM tenure.acquire_lock"
	b.atLeast(b.count("p1", renewed)+4, "p1", renewed)
	b.eventually(lasting, "p1", only)
}

// What waits for longer than a node can help is not looked at again and again: not a job
// that nobody has a handler for, not one of a tenant that is in no pool, not a timer that
// is due soon.
func TestWhatNobodyCanRunCostsLittle(t *testing.T) {
	t.Parallel()
	for name, job := range map[string]string{
		"kind":   `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'unheard-of', '{}')`,
		"tenant": `INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('nobody', 'default', 'plain', '{"n": 0}')`,
		"timer":  `INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at) VALUES ('t1', 'default', 'plain', '{"n": 0}', now() + interval '4 s')`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 1, 1)
			b.cfg.Acquire.Lock = acquisition.LockConfig{TTL: 4 * time.Second, RenewEvery: time.Second}
			b.cfg.Acquire.Session = acquisition.SessionConfig{TTL: 8 * time.Second, HeartbeatEvery: 2 * time.Second}
			b.cfg.Acquire.IdleWait = b.cfg.Acquire.Lock.RenewEvery // or it would not doze
			b.start(b.named("a"), b.registry(nil)).holds("p1")
			b.eventually(1, "p1", "SELECT count(*) FROM tenure.acquire_lock WHERE expires_at - renewed_at > interval '6 s'")
			const renewals = "SELECT renew_seq FROM tenure.acquire_lock"
			renewed := b.count("p1", renewals)
			b.exec("p1", job)
			require.Eventually(t, func() bool { return b.count("p1", renewals) > renewed }, patience, 5*time.Millisecond, "it has looked")

			const commits, most = "SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()", 400 // that is 160 a second
			before := b.count("p1", commits)
			require.Never(t, func() bool {
				now := before
				_ = b.db["p1"].QueryRow(t.Context(), commits).Scan(&now) // the test is over if this fails
				return now-before > most
			}, 2500*time.Millisecond, 250*time.Millisecond)
		})
	}
}
