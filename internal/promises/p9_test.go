package promises_test

import (
	"context"
	"fmt"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/tenancy"
)

// longestGap is the longest time without a finished job since then.
func longestGap(b *testbed, pool string, since time.Time) time.Duration {
	b.t.Helper()
	var ms float64
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), `
		SELECT max(extract(epoch FROM gap)) * 1000 FROM (
			SELECT at - lag(at) OVER (ORDER BY at) AS gap
			FROM (SELECT finished_at FROM tenure.completed_job WHERE finished_at > $1 UNION ALL SELECT $1::timestamptz) AS finished (at)
		) t`, since).Scan(&ms))
	return time.Duration(ms) * time.Millisecond
}

func databaseTime(b *testbed, pool string) (now time.Time) {
	b.t.Helper()
	require.NoError(b.t, b.db[pool].QueryRow(b.t.Context(), "SELECT now()").Scan(&now))
	return now
}

// TestP9SomebodyAcquires loses the holder of a pool in every way.
func TestP9SomebodyAcquires(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Lock.TTL, b.cfg.Acquire.Lock.RenewEvery = 1500*time.Millisecond, 300*time.Millisecond
	b.cfg.Acquire.Session.TTL, b.cfg.Acquire.Session.HeartbeatEvery = 2*time.Second, 400*time.Millisecond
	b.cfg.Acquire.IdleWait = 50 * time.Millisecond
	b.cfg.Execution.FinishWithin = time.Second

	first := b.startChild(b.gossiping("n1"))
	nodes := []*child{first, b.startChild(b.gossiping("n2", first.addr)), b.startChild(b.gossiping("n3", first.addr))}
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	without := func(gone *child) (rest []*child) {
		for _, c := range nodes {
			if c != gone {
				rest = append(rest, c)
			}
		}
		return rest
	}
	replaced := 3
	replace := func(gone *child) {
		rest := without(gone)
		replaced++
		nodes = append(rest, b.startChild(b.gossiping(fmt.Sprintf("n%d", replaced), rest[0].addr, rest[1].addr)))
	}
	check := func(what string, since time.Time, bound time.Duration) {
		b.flows("p1")
		gap := longestGap(b, "p1", since)
		t.Logf("%s: %v without acquisition (bound %v)", what, gap.Round(time.Millisecond), bound)
		require.Less(t, gap, bound, what)
	}

	holder := b.holder("p1", "", nodes...)
	since := databaseTime(b, "p1")
	holder.kill()
	b.holder("p1", holder.member, without(holder)...)
	check("kill -9", since, b.acquireBound())
	replace(holder)

	holder = b.holder("p1", "", nodes...)
	since = databaseTime(b, "p1")
	letGo := b.log.count("acquire lock released", `"to": "n`)
	holder.stop()
	b.holder("p1", holder.member, without(holder)...)
	check("graceful stop", since, b.acquireBound()) // loadtest failover measures how short it is
	require.Equal(t, letGo+1, b.log.count("acquire lock released", `"to": "n`), "it should not have to expire, and go straight to another")
	replace(holder)

	holder = b.holder("p1", "", nodes...)
	since = databaseTime(b, "p1")
	holder.signal(syscall.SIGSTOP)
	b.holder("p1", holder.member, without(holder)...)
	check("frozen", since, b.acquireBound())
	since = databaseTime(b, "p1")
	holder.signal(syscall.SIGCONT)
	b.holder("p1", "", nodes...)
	check("thawed", since, b.acquireBound())

	// All but one freeze, no matter which holds or is elected; the one that is left has no rank to wait for.
	holder = b.holder("p1", "", nodes...)
	last := without(holder)[0]
	since = databaseTime(b, "p1")
	for _, c := range without(last) {
		c.signal(syscall.SIGSTOP)
	}
	b.holder("p1", "", last)
	check("one of three left", since, b.acquireBound())
	for _, c := range without(last) {
		c.kill()
	}
	last.stop()

	nodes = []*child{b.startChild(b.named("alone1")), b.startChild(b.named("alone2"))}
	holder = b.holder("p1", "", nodes...)
	since = databaseTime(b, "p1")
	holder.kill()
	b.holder("p1", holder.member, without(holder)...)
	check("kill -9 without any gossip", since, b.acquireBound())
}

// TestP9AnOfferedLockIsNotTaken: the lock was offered to a node that never takes it.
func TestP9AnOfferedLockIsNotTaken(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.exec("p1", "UPDATE tenure.acquire_lock SET next_holder = 'ghost', reserved_until = clock_timestamp() + interval '700 ms'")
	b.start(b.named("a"), b.registry(nil))
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	require.Eventually(t, func() bool {
		return b.count("p1", "SELECT count(*) FROM tenure.completed_job") > 0
	}, b.acquireBound(), 10*time.Millisecond)
}

// TestP9OneNodeReachesNoDatabase: of four pools no node is elected for all. One node looks alive
// in gossip and cannot reach any database, from the beginning or while it holds the
// locks: the other acquires from all pools.
func TestP9OneNodeReachesNoDatabase(t *testing.T) {
	t.Parallel()
	for _, held := range []bool{false, true} {
		t.Run(fmt.Sprintf("it held the locks %v", held), func(t *testing.T) {
			t.Parallel()
			b := newTestbed(t, 4, 1)
			cfg := b.gossiping("a")
			var proxies []*faultproxy.Proxy
			for pool := range b.cfg.Pools {
				var proxy *faultproxy.Proxy
				cfg, proxy = b.behind(cfg, pool)
				proxies = append(proxies, proxy)
			}
			cut := func() {
				for _, p := range proxies {
					p.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
					p.Cut(nil)
				}
			}
			if !held {
				cut()
			}
			a := b.start(cfg, b.registry(nil))
			if held {
				for pool := range b.db {
					a.holds(pool)
				}
			}
			for pool := range b.db { // nobody takes a lock before both nodes know of one another
				b.exec(pool, "UPDATE tenure.acquire_lock SET paused = true WHERE holder IS NULL")
			}
			other := b.start(b.gossiping("b", a.Self().Addr), b.registry(nil))
			b.agree(a, other)
			if held {
				cut()
			}
			for pool := range b.db {
				b.exec(pool, "UPDATE tenure.acquire_lock SET paused = false")
			}
			began := time.Now()
			for pool := range b.db {
				other.holds(pool)
			}
			took := time.Since(began)
			t.Logf("took all locks after %v (bound %v)", took.Round(time.Millisecond), b.acquireBound())
			require.Less(t, took, b.acquireBound())
			for id := range b.cfg.Tenants.Static {
				_, err := other.Client().Enqueue(tenancy.For(t.Context(), id), plain{1})
				require.NoError(t, err)
			}
			for pool := range b.db {
				b.eventually(1, pool, "SELECT count(*) FROM tenure.completed_job")
			}
			for _, p := range proxies {
				p.SetRule(nil) // so that it can stop in order
			}
		})
	}
}
