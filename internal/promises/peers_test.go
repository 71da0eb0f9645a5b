package promises_test

import (
	"context"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// startPair starts a node that holds the lock of p1, and then another.
func startPair(b *testbed, y *tally, workers int, took time.Duration, cfg func(config.Config) config.Config) (holder, peer *running) {
	holder = b.start(few(b.gossiping("holder"), workers), b.slow("holder", y, took))
	holder.holds("p1")
	c := few(b.gossiping("peer", holder.Self().Addr), workers)
	if cfg != nil {
		c = cfg(c)
	}
	peer = b.start(c, b.slow("peer", y, took))
	holder.meet(2)
	return holder, peer
}

// One pool's jobs run on every node of the cluster, once each.
func TestPeersShareAPool(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 3).byDefault()
	y := newTally()
	const took = 20 * time.Millisecond
	a := b.start(few(b.gossiping("a"), 2), b.slow("a", y, took))
	for _, name := range []string{"b", "c"} {
		b.start(few(b.gossiping(name, a.Self().Addr), 2), b.slow(name, y, took))
	}
	a.meet(3)
	const n = 900
	b.many(a.Client(), n, eitherKind)
	b.finished(a.Client(), n)
	require.Zero(t, y.twice())
	for _, name := range []string{"a", "b", "c"} {
		require.Greater(t, y.byNode()[name], n/10, "the share of %s: %v", name, y.byNode())
	}
	b.wroteOnce(n / 2)
}

// Jobs of a kind that the holder has no handler for run where there is one, although
// the holder's own workers are idle, and those behind them are not held up.
func TestUnsupportedKindsGoToPeers(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	y := newTally()
	here := job.NewRegistry()
	job.Handle(here, func(_ context.Context, j *job.Job[plain]) error {
		y.ran("holder", j.ID)
		return nil
	})
	holder := b.start(b.gossiping("holder"), here)
	holder.holds("p1")
	b.exec("p1", `INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't' || 1 + n % 2, 'default', 'write', '{"n": 1}' FROM generate_series(1, 100) n`)
	b.many(holder.Client(), 100, func(i int) job.Args { return plain{i} })
	b.eventually(100, "p1", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'plain'")
	b.start(b.gossiping("peer", holder.Self().Addr), b.slow("peer", y, 0))
	b.finished(holder.Client(), 200)
	require.Zero(t, y.twice())
	require.Equal(t, 100, y.byNode()["peer"])
	require.Equal(t, 100, y.byNode()["holder"])
}

// muted loses every message of one kind that its node sends.
type muted struct {
	acquisition.Elector
	kind byte
	lost *atomic.Int32
}

func (m muted) Send(to string, kind byte, payload []byte) error {
	if kind == m.kind {
		m.lost.Add(1)
		return nil
	}
	return m.Elector.Send(to, kind, payload)
}

// Nobody tells a peer of the claims that were made for it: it looks with each heartbeat,
// long before they are taken back.
func TestP9ClaimsAreFoundUnannounced(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	var lost atomic.Int32
	mute := func(e acquisition.Elector) acquisition.Elector {
		return muted{e, acquisition.MessageAssigned, &lost}
	}
	const took = 100 * time.Millisecond
	holder := b.startDecorated(few(b.gossiping("holder"), 2), b.slow("holder", y, took), mute)
	holder.holds("p1")
	b.startDecorated(few(b.gossiping("peer", holder.Self().Addr), 2), b.slow("peer", y, took), mute)
	holder.meet(2)
	const n = 120
	b.many(holder.Client(), n, eitherKind)
	const overlooked = "SELECT count(*) FROM tenure.claim WHERE given AND started_at IS NULL AND claimed_at < clock_timestamp() - $1::interval"
	late := 0
	require.Eventually(t, func() bool {
		late = b.count("p1", overlooked, 4*b.cfg.Acquire.Session.HeartbeatEvery)
		return late > 0 || b.count("p1", "SELECT count(*) FROM tenure.completed_job") == n
	}, patience, 20*time.Millisecond)
	require.Zero(t, late, "claims that the peer overlooks")
	require.NotZero(t, lost.Load())
	require.Greater(t, y.byNode()["peer"], n/20, "%v", y.byNode())
	require.Zero(t, y.twice())
	b.wroteOnce(n / 2)
}

// A peer does not accept what was assigned to it: the holder withdraws it, and
// runs it itself.
func TestP1AssignedClaimsAreWithdrawn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	var proxy *faultproxy.Proxy
	holder, _ := startPair(b, y, 2, 20*time.Millisecond, func(c config.Config) config.Config {
		c, proxy = b.behind(c, "p1")
		return c
	})
	var asked atomic.Int32
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "SET started_at = coalesce") {
			asked.Add(1)
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	const n = 200
	b.many(holder.Client(), n, eitherKind)
	b.finished(holder.Client(), n)
	require.NotZero(t, asked.Load(), "nothing was given to the peer")
	require.Zero(t, y.twice())
	require.Equal(t, n, y.byNode()["holder"])
	require.Zero(t, b.count("p1", "SELECT coalesce(max(losses), 0) FROM tenure.job"))
	proxy.SetRule(nil)
}

// A peer that has one connection for handlers gives one of two jobs back, and goes on with the
// other for as long as that takes. The holder, which has nothing else to do, runs what it got
// back meanwhile.
func TestAPeerGivesPartOfAClaimBack(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	type run struct {
		node string
		id   job.ID
	}
	runs, goOn := make(chan run, 10), map[string]chan struct{}{"holder": make(chan struct{}), "peer": make(chan struct{})}
	next := func() (r run) {
		select {
		case r = <-runs:
		case <-time.After(patience):
		}
		return r
	}
	finishPeer := sync.OnceFunc(func() { close(goOn["peer"]) })
	defer finishPeer()
	blocking := func(node string) *job.Registry {
		r := job.NewRegistry()
		tenure.HandleTx(r, func(ctx context.Context, _ pgx.Tx, j *job.Job[write]) error {
			runs <- run{node, j.ID}
			select {
			case <-goOn[node]:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
		return r
	}
	holder := b.start(few(b.gossiping("holder"), 1), blocking("holder"))
	holder.holds("p1")
	cfg := few(b.gossiping("peer", holder.Self().Addr), 2)
	p1 := b.cfg.Pools["p1"]
	p1.MaxConns = 4
	cfg.Pools = map[string]routing.PoolConfig{"p1": p1}
	b.start(cfg, blocking("peer"))
	holder.meet(2)
	b.many(holder.Client(), 1, func(i int) job.Args { return write{i} })
	require.Equal(t, "holder", next().node)
	b.many(holder.Client(), 2, func(i int) job.Args { return write{i} })
	first := next()
	require.Equal(t, "peer", first.node)
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.claim WHERE cardinality(job_ids) = 2"))
	close(goOn["holder"])
	second := next()
	require.Equal(t, "holder", second.node)
	require.NotEqual(t, first.id, second.id)
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job")
	finishPeer()
	b.finished(holder.Client(), 3)
}

// The answers to a peer that accepts claims get lost: it asks again, and every job runs once.
func TestP3AcceptedTwice(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	var proxy *faultproxy.Proxy
	holder, _ := startPair(b, y, 2, 20*time.Millisecond, func(c config.Config) config.Config {
		c, proxy = b.behind(c, "p1")
		return c
	})
	var cuts atomic.Int32
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "SET started_at = coalesce") && cuts.Add(1)%2 == 1 {
			return faultproxy.CutAfter
		}
		return faultproxy.Pass
	})
	const n = 400
	b.many(holder.Client(), n, eitherKind)
	b.finished(holder.Client(), n)
	require.NotZero(t, cuts.Load())
	require.NotZero(t, y.byNode()["peer"])
	require.Zero(t, y.twice())
	b.wroteOnce(n / 2)
	proxy.SetRule(nil)
}

// A peer stops in the middle of its work: it leaves nothing claimed, and what it had
// not begun runs elsewhere.
func TestP11APeerStops(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2).byDefault()
	y := newTally()
	holder, peer := startPair(b, y, 4, 30*time.Millisecond, nil)
	const n = 400
	b.many(holder.Client(), n, eitherKind)
	require.Eventually(t, func() bool { return y.byNode()["peer"] > 20 }, patience, time.Millisecond)
	peer.stop()
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.claim c JOIN tenure.node_session s USING (session_id) WHERE s.node = 'peer'"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.node_session WHERE node = 'peer' AND state = 'left'"))
	b.finished(holder.Client(), n)
	require.Zero(t, y.twice())
	require.Zero(t, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
}

// The holder stops while a peer works on claims that it made: the peer goes on with
// them, takes the lock, and nothing runs twice.
func TestP3TheHolderStops(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2).byDefault()
	y := newTally()
	holder, peer := startPair(b, y, 4, 30*time.Millisecond, nil)
	const n = 600
	b.many(holder.Client(), n, eitherKind)
	require.Eventually(t, func() bool { return y.byNode()["peer"] > 20 }, patience, time.Millisecond)
	holder.stop()
	b.finished(peer.Client(), n)
	require.Zero(t, y.twice())
	b.wroteOnce(n / 2)
}

// A peer is killed: what it had begun runs again, with the loss on record, and what
// it had not begun is not charged.
func TestP5APeerIsKilled(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	y := newTally()
	goOn := make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[poison]) error {
		y.ran("holder", j.ID)
		<-goOn
		return nil
	})
	holder := b.start(few(b.gossiping("holder"), 1), r)
	t.Cleanup(release) // before the node stops
	holder.holds("p1")
	cfg, proxy := b.behind(few(b.gossiping("peer", holder.Self().Addr), 8), "p1")
	peer := b.startChild(cfg)
	holder.meet(2)

	const own, each = 1, 3
	total := 0
	enqueue := func(n int) {
		b.many(holder.Client(), n, func(int) job.Args { return poison{By: "never"} })
		total += n
	}
	const ofPeer = " FROM tenure.claim c JOIN tenure.node_session s USING (session_id), unnest(c.job_ids) AS run (id) WHERE s.node = 'peer' AND c.started_at IS "
	enqueue(own)
	require.Eventually(t, func() bool { return y.byNode()["holder"] == own }, patience, time.Millisecond, "the holder has no room any more")
	enqueue(each)
	b.eventually(each, "p1", "SELECT count(*)"+ofPeer+"NOT NULL")
	proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "SET started_at = coalesce") {
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	enqueue(each)
	b.eventually(each, "p1", "SELECT count(*)"+ofPeer+"NULL")
	var begun []int64
	require.NoError(t, b.db["p1"].QueryRow(t.Context(), "SELECT array_agg(run.id)"+ofPeer+"NOT NULL").Scan(&begun))
	peer.kill()
	release()
	b.finished(holder.Client(), total)
	require.Len(t, begun, each)
	require.Equal(t, each, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE losses = 1 AND attempt = 1 AND id = ANY($1)", begun), "what it had begun")
	require.Equal(t, total-each, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE losses = 0 AND attempt = 1"), "all else")
	require.Equal(t, each, b.count("p1", "SELECT count(DISTINCT job_id) FROM tenure.job_error WHERE job_id = ANY($1) AND node = 'peer' AND error LIKE 'the node was lost%'", begun))
	require.Equal(t, each, b.count("p1", "SELECT count(*) FROM tenure.job_error"))
	require.Equal(t, total, y.byNode()["holder"])
	require.Zero(t, y.twice())
	b.eventually(0, "p1", "SELECT count(*) FROM tenure.claim")
	holder.meet(1) // else a probe of the peer would outlive the test
}

// TestAPeerIsNotOverfilled: the holder of six locks, all of whose pools have far more long jobs
// than it can run, has a peer with four workers: together the six assign it four jobs and no
// more, and all four, whichever they are of.
func TestAPeerIsNotOverfilled(t *testing.T) {
	t.Parallel()
	const pools, workers = 6, 4
	b := newTestbed(t, pools, 1)
	l := newLongs(t)
	holder := b.start(few(b.gossiping("holder"), 1), l.handle(b.registry(nil)))
	for p := range b.db {
		holder.holds(p)
	}
	for _, tenant := range b.tenants() {
		enqueueLong(t, holder.Client(), tenant, 20)
	}
	require.Eventually(t, func() bool { return l.running.Load() == 1 }, patience, time.Millisecond)
	on := newLongs(t)
	b.start(few(b.gossiping("peer", holder.Self().Addr), workers), on.handle(b.registry(nil)))
	holder.meet(2)
	most := 0
	assigned := func() (all int) {
		for p := range b.db {
			all += b.count(p, `SELECT coalesce(sum(cardinality(c.job_ids)), 0) FROM tenure.claim c JOIN tenure.node_session s USING (session_id)
				WHERE s.node = 'peer' AND c.given`)
		}
		return all
	}
	require.Eventually(t, func() bool {
		most = max(most, assigned())
		return on.running.Load() == workers
	}, patience, poll, "all that there is room for")
	for began := time.Now(); time.Since(began) < 3*time.Second; pause(t.Context(), poll) { // what is too much stays
		most = max(most, assigned())
	}
	require.Equal(t, workers, most, "no more than that")
	l.release()
	on.release()
	for _, p := range slices.Sorted(maps.Keys(b.db)) {
		b.eventually(20, p, "SELECT count(*) FROM tenure.completed_job")
	}
	require.EqualValues(t, 20*pools, l.done.Load()+on.done.Load(), "each once")
}
