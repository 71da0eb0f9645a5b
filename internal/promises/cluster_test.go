package promises_test

import (
	"context"
	"net/http"
	"net/http/httptest"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/web"
)

// Nodes that share a database and no seed find one another: each leaves its address in
// the ledger.
func TestNodesMeetInTheLedger(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	a := b.start(b.gossiping("a"), b.registry(nil))
	a.holds("p1")
	other := b.start(b.gossiping("b"), b.registry(nil))
	a.meet(2)
	other.meet(2)
}

// A node that stops lets go of a busy pool's lock when the next holder has opened all that
// it needs.
func TestTheNextHolderIsPrepared(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	holder := b.start(b.gossiping("a"), b.registry(nil))
	holder.holds("p1")
	defer b.feed(context.WithoutCancel(t.Context()), "p1")()
	for _, name := range []string{"b", "c", "d", "e", "f"} { // on a busy machine half a second may not be enough for it
		next := b.start(b.gossiping(name, holder.Self().Addr), b.registry(nil))
		holder.meet(2)
		b.flows("p1")
		began := time.Now()
		holder.stop()
		waited := time.Since(began)
		next.holds("p1")
		if b.log.says("acquire lock released", `"prepared": true`) {
			return
		}
		require.GreaterOrEqual(t, waited, 500*time.Millisecond, "it was not waited for")
		holder = next
	}
	require.Fail(t, "nobody was prepared")
}

// Pools are added to one node's configuration, and not yet to the other's, which is
// elected for its share of them all the same. They are worked on where they are known.
func TestANodeThatDoesNotKnowThePool(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 4, 1)
	knows, knowsNot := b.gossiping("a"), []string{"p2", "p3", "p4"}
	a := b.start(knows, b.registry(nil))
	for pool := range b.db {
		a.holds(pool)
	}
	old := b.gossiping("b", a.Self().Addr)
	for _, pool := range knowsNot {
		old = without(old, pool)
	}
	epoch := map[string]int{}
	for _, pool := range knowsNot {
		defer b.feed(context.WithoutCancel(t.Context()), pool)()
		b.flows(pool)
		epoch[pool] = b.count(pool, "SELECT epoch FROM tenure.acquire_lock")
	}
	b.start(old, b.registry(nil))
	a.meet(2)
	require.Eventually(t, func() bool { return b.log.says("a node cannot take the acquire lock") }, patience, 50*time.Millisecond, "b should be elected for some")
	for _, pool := range knowsNot {
		b.flows(pool)
		require.Equal(t, epoch[pool], b.count(pool, "SELECT epoch FROM tenure.acquire_lock"), "%s: its holder should go on, and not release it for b", pool)
	}
}

// In a rolling deployment a lock goes to the newest version at once.
func TestTheNewestVersionIsTheSuccessor(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 3, 1)
	start := func(name, version string, join ...string) *running {
		return b.start(b.gossiping(name, join...), b.registry(nil), tenure.WithVersion(version))
	}
	old := start("old", "v1.9.0")
	for pool := range b.db {
		old.holds(pool)
	}
	start("older", "v1.8.5", old.Self().Addr)
	newest := start("newest", "v1.10.0", old.Self().Addr)
	start("devel", "(devel)", old.Self().Addr)
	old.meet(4)
	began := time.Now()
	old.stop()
	for pool := range b.db {
		newest.holds(pool)
	}
	t.Logf("all locks handed over within %v of asking to stop", time.Since(began).Round(time.Millisecond))
}

// A node that no pool has needed yet is listed as what it is, and not as the process that it was before.
func TestNodesThatWorkOnNothingAreListed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	first := b.start(b.gossiping("first"), b.registry(nil))
	first.holds("p1")
	b.exec("p1", `INSERT INTO tenure.node_session (session_id, node, member, gossip_addr, version, kinds, state, expires_at)
		VALUES (gen_random_uuid(), 'second', 'second-before', '', 'v1.8.5', '{}', 'left', now())`)
	second := b.start(b.gossiping("second", first.Self().Addr), b.registry(nil), tenure.WithVersion("v1.10.0"))
	second.meet(2)
	site, err := web.Handler(first.Client(), web.Settings{})
	require.NoError(t, err)
	shown := func(path string) string {
		r := httptest.NewRequest(http.MethodGet, "http://localhost"+path, nil)
		r.RemoteAddr = "127.0.0.1:1"
		w := httptest.NewRecorder()
		site.ServeHTTP(w, r)
		require.Equal(t, http.StatusOK, w.Code, w.Body)
		return w.Body.String()
	}
	require.Regexp(t, `>second<.*>live<.*>v1\.10\.0<.*data-label="Started"><span class="none">`, shown("/nodes"))
	require.Regexp(t, `"pool":"","session":"","node":"second","member":"`+second.Self().Name+`","version":"v1.10.0".*"node_state":"idle"`, shown("/api/v1/nodes?live=true"))
}

// A release brings a new kind of job, and its nodes replace the old ones one by one while
// jobs of both kinds are enqueued. What is new starts as soon as one node can run it,
// anyone who holds the locks; until then it waits, and is charged nothing. Nothing is lost or
// doubled.
func TestARollingUpgradeBringsAKind(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	y := newTally()
	const took = 2 * time.Millisecond
	before := func(node string) *job.Registry {
		r := job.NewRegistry()
		job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
			y.ran(node, j.ID)
			return nil
		})
		return r
	}
	var join []string
	start := func(name, version string, r *job.Registry) *running {
		n := b.start(b.gossiping(name, join...), r, tenure.WithVersion(version))
		join = append(join, n.Self().Addr)
		return n
	}
	var old []*running
	for _, name := range []string{"a1", "b1", "c1"} {
		old = append(old, start(name, "v1.0.0", before(name)))
	}
	old[0].meet(3)

	enqueued, end, ended := 0, make(chan struct{}), make(chan struct{})
	c := b.client(b.named("enqueuer"))
	stop := sync.OnceFunc(func() { close(end); <-ended })
	t.Cleanup(stop)
	go func() {
		defer close(ended)
		for {
			var some []tenure.Entry
			for _, id := range b.tenants() {
				some = append(some, tenure.Entry{Tenant: id, Args: plain{1}}, tenure.Entry{Tenant: id, Args: write{1}})
			}
			added, err := c.EnqueueMany(t.Context(), some)
			enqueued += len(added)
			switch {
			case t.Context().Err() != nil: // the test has failed
				return
			case err != nil:
				t.Errorf("enqueue: %v", err)
				return
			}
			select {
			case <-end:
				return
			case <-time.After(20 * time.Millisecond): // a rate, and no wait for anything
			}
		}
	}()
	const ran = "SELECT count(*) FROM tenure.completed_job WHERE kind = $1"
	for _, pool := range []string{"p1", "p2"} {
		b.flows(pool)
		require.Zero(t, b.count(pool, ran, "write"))
	}

	var next []*running
	for i, name := range []string{"a2", "b2", "c2"} {
		began := time.Now()
		next = append(next, start(name, "v2.0.0", b.slow(name, y, took)))
		for _, pool := range []string{"p1", "p2"} {
			was := b.count(pool, ran, "write")
			require.Eventually(t, func() bool { return b.count(pool, ran, "write") > was }, patience, 5*time.Millisecond)
		}
		if i == 0 {
			t.Logf("the new kind started within %v", time.Since(began).Round(time.Millisecond))
			require.Less(t, time.Since(began), patience/6, "the new kind should start soon in each pool")
		}
		old[len(old)-1-i].stop() // the first, who took the locks, last
		for _, pool := range []string{"p1", "p2"} {
			b.flows(pool)
		}
	}
	next[0].meet(3)
	stop()
	b.finished(c, enqueued)
	require.Zero(t, y.twice())
	for i, id := range b.tenants() {
		rows, jobs := b.effectsOf(string(id), []string{"p1", "p2"}[i/2])
		require.Equal(t, enqueued/8, rows)
		require.Len(t, jobs, rows)
	}
	for _, pool := range []string{"p1", "p2"} {
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.job_error"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM tenure.completed_job WHERE outcome <> 'done' OR attempt <> 1 OR losses <> 0"))
	}
}
