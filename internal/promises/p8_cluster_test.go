package promises_test

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// limited is a configuration in which a kind has a limit of all tenants and pools together.
func limited(cfg config.Config, kind string, l acquisition.LimitConfig) config.Config {
	cfg.Limits.Kinds = map[string]acquisition.LimitConfig{kind: l}
	return cfg
}

// noteClaims has a pool note of each claim when it was, what it took, and how many jobs of a kind are in flight with it.
func (b *testbed) noteClaims(pool, kind string) {
	b.t.Helper()
	b.exec(pool, "CREATE TABLE public.claimed (id serial, at timestamptz DEFAULT clock_timestamp(), n integer, flying integer)")
	b.exec(pool, fmt.Sprintf(`CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
		BEGIN
			INSERT INTO public.claimed (n, flying) SELECT
				(SELECT count(*) FROM tenure.job j WHERE j.id = ANY (NEW.job_ids) AND j.kind = '%[1]s'),
				(SELECT count(*) FROM tenure.claim c CROSS JOIN unnest(c.job_ids) AS run (id) JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn WHERE j.kind = '%[1]s');
			RETURN NULL;
		END $$`, kind))
	b.exec(pool, "CREATE TRIGGER note AFTER INSERT ON tenure.claim FOR EACH ROW EXECUTE FUNCTION public.note()")
}

const mostClaimed = "SELECT coalesce(max(flying), 0) FROM public.claimed"

// TestP8OfTheClusterNoMoreRun: of a kind no more run at a time than its limit says, of all tenants in both pools; what
// is configured anew holds at once for what waits; and all of them run, each once.
func TestP8OfTheClusterNoMoreRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	l := newLongs(t)
	limit := func(cfg config.Config, most int) config.Config {
		return limited(cfg, "endless", acquisition.LimitConfig{MaxRunning: most, Pools: map[string]int{"p1": 3}})
	}
	configs := []config.Config{limit(b.gossiping("first"), 5), {}}
	first := b.start(configs[0], l.handle(b.registry(nil)))
	configs[1] = limit(b.gossiping("second", first.Self().Addr), 5)
	second := b.start(configs[1], l.handle(b.registry(nil)))
	for _, tenant := range b.tenants() {
		enqueueLong(t, first.Client(), tenant, 10)
	}
	endless := fmt.Sprintf(inFlightOf, "kind")
	flying := func() [2]int {
		return [2]int{b.count("p1", endless, "endless"), b.count("p2", endless, "endless")}
	}
	require.Eventually(t, func() bool { return flying() == [2]int{3, 2} && l.running.Load() == 5 }, patience, time.Millisecond)

	for _, pool := range []string{"p1", "p2"} { // other terms begin
		b.exec(pool, "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)")
	}
	_, err := first.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	_, err = first.Client().Enqueue(tenancy.For(t.Context(), "t3"), plain{1})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(1, "p2", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, [2]int{3, 2}, flying())

	for i, n := range []*running{first, second} {
		done, err := n.Reload(t.Context(), limit(configs[i], 8))
		require.NoError(t, err)
		require.Empty(t, done.Later, "it needs no restart")
	}
	require.Eventually(t, func() bool { return flying() == [2]int{6, 2} && l.running.Load() == 8 }, patience, time.Millisecond)
	l.release()
	b.eventually(21, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(21, "p2", "SELECT count(*) FROM tenure.completed_job")
	require.EqualValues(t, 8, l.highest.Load())
	require.EqualValues(t, 40, l.done.Load(), "each once")
}

// TestP8OfTheClusterNoMoreRunAfterACrash: a limit of the whole cluster holds while nodes are killed and others take
// their locks and run their jobs again, and all jobs end.
func TestP8OfTheClusterNoMoreRunAfterACrash(t *testing.T) {
	t.Parallel()
	const jobs = 200
	b := newTestbed(t, 2, 3)
	b.cfg = limited(b.cfg, "plain", acquisition.LimitConfig{MaxRunning: 5})
	for pool := range b.db {
		b.noteClaims(pool, "plain")
	}
	first := b.startChild(b.gossiping("n1"))
	nodes := map[string]*child{first.member: first}
	add := func(name string) {
		c := b.startChild(b.gossiping(name, slices.Collect(maps.Values(nodes))[0].addr))
		nodes[c.member] = c
	}
	add("n2")
	c := b.client(b.named("operator"))
	for _, tenant := range b.tenants() {
		var entries []tenure.Entry
		for i := range jobs {
			entries = append(entries, tenure.Entry{Tenant: tenant, Args: plain{i}})
		}
		_, err := c.EnqueueMany(t.Context(), entries)
		require.NoError(t, err)
	}
	for _, name := range []string{"n3", "n4"} {
		holder := b.holder("p1", "", slices.Collect(maps.Values(nodes))...)
		delete(nodes, holder.member)
		holder.kill()
		add(name)
	}
	for pool, share := range map[string]int{"p1": 3, "p2": 2} {
		b.eventually(3*jobs, pool, "SELECT count(*) FROM tenure.completed_job")
		require.Equal(t, share, b.count(pool, mostClaimed), "as many as may, and no more")
	}
}

// TestP8OfTheClusterNoMoreStart: a rate of the whole cluster holds over both pools together, also when their locks are
// taken anew.
func TestP8OfTheClusterNoMoreStart(t *testing.T) {
	t.Parallel()
	const rate, burst, jobs = 16, 4, 10
	b := newTestbed(t, 2, 2)
	b.cfg = limited(b.cfg, "plain", acquisition.LimitConfig{Rate: rate, Burst: burst})
	for pool := range b.db {
		b.noteClaims(pool, "plain")
	}
	var ran atomic.Int64
	n := b.start(b.named("a"), b.registry(func(job.ID) { ran.Add(1) }))
	for _, tenant := range b.tenants() {
		for i := range jobs {
			_, err := n.Client().Enqueue(tenancy.For(t.Context(), tenant), plain{i})
			require.NoError(t, err)
		}
	}
	b.atLeast(jobs/2, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.exec("p1", "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)")
	for pool := range b.db {
		b.eventually(2*jobs, pool, "SELECT count(*) FROM tenure.completed_job")
	}
	require.EqualValues(t, 4*jobs, ran.Load())
	type claim struct {
		At time.Time
		N  int
	}
	var claims []claim
	for _, db := range b.db {
		rows, err := db.Query(t.Context(), "SELECT at, n FROM public.claimed")
		require.NoError(t, err)
		of, err := pgx.CollectRows(rows, pgx.RowToStructByPos[claim])
		require.NoError(t, err)
		claims = append(claims, of...)
	}
	slices.SortFunc(claims, func(a, b claim) int { return cmp.Compare(a.At.UnixNano(), b.At.UnixNano()) })
	total := 0
	for i, from := range claims {
		total += from.N
		n := 0
		for _, to := range claims[i:] {
			n += to.N
			require.LessOrEqual(t, float64(n), burst+rate*to.At.Sub(from.At).Seconds()+0.01)
		}
	}
	require.Equal(t, 4*jobs, total)
}

// TestP8AQueueOfTheCluster: of a queue, too, with jobs that have exclusive keys among them; in a pool without a share none
// start, and jobs on other queues go on. Why each waits is told, and what the pools' shares are.
func TestP8AQueueOfTheCluster(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	b.cfg.Limits.Queues = map[string]acquisition.LimitConfig{"mail": {MaxRunning: 2, Pools: map[string]int{"p2": 0}}}
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	c := n.Client()
	add := func(tenant tenancy.ID, options ...tenure.Option) job.ID {
		added, err := c.Enqueue(tenancy.For(t.Context(), tenant), plain{1}, options...)
		require.NoError(t, err)
		return added.ID
	}
	mail := tenure.OnQueue("mail")
	var waiting job.ID
	for i := range 3 {
		add("t1", mail)
		waiting = add("t2", mail, tenure.Exclusive(fmt.Sprint(i)))
	}
	shut := add("t3", mail)
	add("t3")
	for range 3 { // two in p1, and the one on another queue
		<-started
	}
	require.Empty(t, started)
	flying := fmt.Sprintf(inFlightOf, "queue")
	require.Equal(t, 2, b.count("p1", flying, "mail"))
	require.Zero(t, b.count("p2", flying, "mail"))

	op := c.Operator()
	why := func(id job.ID, texts ...string) {
		t.Helper()
		e, err := op.Jobs().Explain(t.Context(), id)
		require.NoError(t, err)
		require.Equal(t, operate.WaitsForCluster, e.Reason, e.Text)
		for _, text := range texts {
			require.Contains(t, e.Text+": "+e.Advice, text)
		}
	}
	why(waiting, "pool p1 has 2 jobs of queue mail in flight, of all tenants, and 2 are its share", "raise limits.queues.mail")
	why(shut, "pool p2 has no share", "limits.queues.mail.pools")
	limits, err := op.Limits().List(t.Context())
	require.NoError(t, err)
	whole := &operate.Limit{Tenant: operate.AllTenants, Queue: "mail", MaxRunning: 2}
	require.Equal(t, []operate.LimitStatus{
		{Limit: operate.Limit{Tenant: operate.AllTenants, Queue: "mail", MaxRunning: 2}, Pool: "p1", Running: 2, Whole: whole},
		{Limit: operate.Limit{Tenant: operate.AllTenants, Queue: "mail", MaxRunning: -1}, Pool: "p2", Whole: whole},
	}, limits)
	require.ErrorContains(t, op.Limits().Set(t.Context(), *whole), "limits.queues")

	cfg := b.named("a")
	cfg.Limits.Queues = nil
	_, err = n.Reload(t.Context(), cfg)
	require.NoError(t, err)
	goOn()
	b.finished(c, 8)
}

// TestP8LostJobsHeedLimits: a job that has waited in quarantine, as another one ran there, does not start while as many
// run as may.
func TestP8LostJobsHeedLimits(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg = limited(b.cfg, "plain", acquisition.LimitConfig{MaxRunning: 1})
	b.noteClaims("p1", "plain")
	c := b.client(b.named("operator"))
	enqueueLong(t, c, "t1", 1)
	lost, err := c.Enqueue(tenancy.For(t.Context(), "t1"), plain{1})
	require.NoError(t, err)
	b.exec("p1", "UPDATE tenure.job SET losses = CASE kind WHEN 'plain' THEN 2 ELSE 1 END")
	r, started, goOn := blocked(b)
	l := newLongs(t)
	b.start(b.named("a"), l.handle(r))
	require.Eventually(t, func() bool { return l.running.Load() == 1 }, patience, time.Millisecond)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.job WHERE id = $1 AND NOT EXISTS (SELECT FROM tenure.claim WHERE $1 = ANY (job_ids))", int64(lost.ID)) // it has to be alone
	other, err := c.Enqueue(tenancy.For(t.Context(), "t2"), plain{2})
	require.NoError(t, err)
	require.Equal(t, other.ID, <-started)
	l.release()
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	_, err = c.Enqueue(tenancy.For(t.Context(), "t2"), write{}) // the term has heard of it once this one is done
	require.NoError(t, err)
	b.eventually(2, "p1", "SELECT count(*) FROM tenure.completed_job")
	goOn()
	b.eventually(4, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, 1, b.count("p1", mostClaimed))
}
