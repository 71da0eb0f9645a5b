package promises_test

import (
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

const inFlight = "SELECT coalesce(sum(cardinality(job_ids)), 0)::int FROM tenure.claim"

// inFlightOf counts the claimed jobs of a kind or queue.
const inFlightOf = "SELECT count(*) FROM tenure.claim c CROSS JOIN unnest(c.job_ids) AS run (id) JOIN tenure.job j ON j.id = run.id AND j.turn = c.turn WHERE j.%s = $1"

// TestP8OfAKindNoMoreRun: of a kind no more of a tenant's jobs run at a time than its limit says, on
// all nodes together, also after the lock has changed hands; a limit that is raised holds for what
// waits.
func TestP8OfAKindNoMoreRun(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	b.cfg.Execution.Workers = 3
	l := newLongs(t)
	first := b.start(b.gossiping("first"), l.handle(b.registry(nil)))
	first.holds("p1")
	second := b.start(b.gossiping("second", first.Self().Addr), l.handle(b.registry(nil)))
	op := second.Client().Operator()
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 4}))
	enqueueLong(t, second.Client(), "t1", 40)
	require.Eventually(t, func() bool { return l.running.Load() == 4 }, patience, time.Millisecond, "a peer runs one of them")
	endless := fmt.Sprintf(inFlightOf, "kind")
	require.Equal(t, 4, b.count("p1", endless, "endless"))

	b.exec("p1", "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)") // it is taken again
	enqueueLong(t, second.Client(), "t2", 1)
	require.Eventually(t, func() bool { return l.running.Load() == 5 }, patience, time.Millisecond, "each tenant has its own limit, or none")
	require.Equal(t, 5, b.count("p1", endless, "endless"), "the next holder knows what runs")

	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 5}))
	require.Eventually(t, func() bool { return l.running.Load() == 6 }, patience, time.Millisecond)
	require.EqualValues(t, 6, l.highest.Load())
	limits, err := op.Limits().List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []operate.LimitStatus{{Limit: operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 5}, Pool: "p1", Running: 5}}, limits)
	l.release()
	b.eventually(41, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.LessOrEqual(t, l.highest.Load(), int64(6))
	require.EqualValues(t, 41, l.done.Load(), "each once")
}

// TestP8WhatALimitHoldsUpHoldsUpNothingElse: other kinds go on that stand behind the jobs of a limited
// one in the same lane; and what has waited runs in order.
func TestP8WhatALimitHoldsUpHoldsUpNothingElse(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	l := newLongs(t)
	n := b.start(b.named("a"), l.handle(b.registry(nil)))
	c := n.Client()
	require.NoError(t, c.Operator().Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 2}))
	var entries []tenure.Entry
	for i := range 200 {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: endless{i}}, tenure.Entry{Tenant: "t1", Args: plain{i}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.eventually(200, "p1", "SELECT count(*) FROM tenure.completed_job")
	b.eventually(2, "p1", fmt.Sprintf(inFlightOf, "kind"), "endless") // as many as may
	l.release()
	b.eventually(400, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.LessOrEqual(t, l.highest.Load(), int64(2))
}

// TestP8EachTenantHasTheLimitOfItsQueue: of a queue, too; for every tenant but one that has its own.
// It holds for the first jobs that are claimed after it was set, and is lifted for all that wait.
func TestP8EachTenantHasTheLimitOfItsQueue(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 3)
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	op, c := n.Client().Operator(), n.Client()
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: operate.EveryTenant, Queue: "mail", MaxRunning: 2}))
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t3", Queue: "mail", MaxRunning: 1}))
	var entries []tenure.Entry
	for i := range 9 {
		tenant := tenancy.ID(fmt.Sprintf("t%d", i%3+1))
		entries = append(entries, tenure.Entry{Tenant: tenant, Args: plain{i}, Options: []tenure.Option{tenure.OnQueue("mail")}})
	}
	entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{9}}) // on another queue
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	for range 6 {
		<-started
	}
	require.Equal(t, 5, b.count("p1", fmt.Sprintf(inFlightOf, "queue"), "mail"))
	require.Equal(t, 6, b.count("p1", inFlight))
	require.Empty(t, started)
	require.NoError(t, op.Limits().Delete(t.Context(), operate.Limit{Tenant: "t3", Queue: "mail"}))
	<-started
	require.NoError(t, op.Limits().Delete(t.Context(), operate.Limit{Tenant: operate.EveryTenant, Queue: "mail"}))
	for range 3 {
		<-started
	}
	goOn()
	b.finished(c, 10)
}

// TestP8NoMoreStartThanTheRateSays: no more are claimed in any time than a rate allows, also after the
// lock was taken again, when only the ledger knows what is left; and all of them run.
func TestP8NoMoreStartThanTheRateSays(t *testing.T) {
	t.Parallel()
	const rate, burst, jobs = 5, 20, 30
	b := newTestbed(t, 1, 2)
	var mu sync.Mutex
	ran := map[job.ID]bool{}
	r := b.registry(func(id job.ID) { mu.Lock(); ran[id] = true; mu.Unlock() })
	n := b.start(b.named("a"), r)
	op, c := n.Client().Operator(), n.Client()
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "plain", Rate: rate, Burst: burst}))
	// Who has taken tokens is told by the ledger: each claim that it lets through is written down.
	b.exec("p1", `CREATE TABLE public.claimed (at timestamptz, n integer);
		CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN INSERT INTO public.claimed VALUES (clock_timestamp(), cardinality(NEW.job_ids)); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER INSERT ON tenure.claim FOR EACH ROW EXECUTE FUNCTION public.note()`)
	var entries []tenure.Entry
	for i := range jobs {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.eventually(burst, "p1", "SELECT least(count(*), $1) FROM tenure.completed_job", burst)
	b.exec("p1", "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)")
	_, err = c.Enqueue(tenancy.For(t.Context(), "t2"), plain{1}) // nobody waits for the other one's tokens
	require.NoError(t, err)
	b.eventually(jobs+1, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Len(t, ran, jobs+1)
	b.exec("p1", "ALTER TABLE public.claimed ADD COLUMN id serial")
	// From each claim to each later one there are no more than the bucket held and was given meanwhile.
	require.Zero(t, b.count("p1", fmt.Sprintf(`SELECT count(*) FROM public.claimed a JOIN public.claimed z ON z.id >= a.id
		WHERE (SELECT sum(n) FROM public.claimed c WHERE c.id BETWEEN a.id AND z.id) > %d + 1 + extract(epoch FROM z.at - a.at) * %d + 0.01`, burst, rate)),
		"the one of the other tenant is counted, too")
}

// TestP8ALimitHoldsFromTheNextClaimOn: a limit holds for what is enqueued right after it was set, though
// the holder has not looked for limits since.
func TestP8ALimitHoldsFromTheNextClaimOn(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 5)
	b.cfg.Acquire.IdleWait = 2 * time.Second
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	n.holds("p1")
	c := n.Client()
	for i := range 4 {
		tenant := tenancy.ID(fmt.Sprintf("t%d", i+1))
		require.NoError(t, c.Operator().Limits().Set(t.Context(), operate.Limit{Tenant: tenant, Kind: "plain", MaxRunning: 1}))
		var entries []tenure.Entry
		for n := range 4 {
			entries = append(entries, tenure.Entry{Tenant: tenant, Args: plain{n}})
		}
		_, err := c.EnqueueMany(t.Context(), entries)
		require.NoError(t, err)
		<-started
		_, err = c.Enqueue(tenancy.For(t.Context(), "t5"), write{i})
		require.NoError(t, err)
		b.eventually(i+1, "p1", "SELECT count(*) FROM tenure.completed_job")
		require.Equal(t, i+1, b.count("p1", fmt.Sprintf(inFlightOf, "kind"), "plain"))
	}
	goOn()
	b.finished(c, 20)
}

// TestP8KeysPassLimits: a job with an exclusive key passes the limits of its kind and its queue, too;
// the key waits until it may, and no longer.
func TestP8KeysPassLimits(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	l := newLongs(t)
	n := b.start(b.named("a"), l.handle(b.registry(nil)))
	c := n.Client()
	require.NoError(t, c.Operator().Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 2}))
	var entries []tenure.Entry
	for i := range 30 {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: endless{i}, Options: []tenure.Option{tenure.Exclusive(fmt.Sprint("k", i))}},
			tenure.Entry{Tenant: "t1", Args: plain{i}, Options: []tenure.Option{tenure.Exclusive(fmt.Sprint("p", i))}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.eventually(30, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Eventually(t, func() bool { return l.running.Load() == 2 }, patience, time.Millisecond)
	require.Equal(t, 2, b.count("p1", fmt.Sprintf(inFlightOf, "kind"), "endless"))
	l.release()
	b.eventually(60, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.LessOrEqual(t, l.highest.Load(), int64(2))
}

// TestP8AKeyWithoutAJobHoldsUpNoOther: of keys that wait for one limit the next has its turn at once if the
// first, which the limit lets pass, has no job any more.
func TestP8AKeyWithoutAJobHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	l := newLongs(t)
	n := b.start(b.named("a"), l.handle(b.registry(nil)))
	c, op := n.Client(), n.Client().Operator()
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Kind: "endless", MaxRunning: 1}))
	add := func(a job.Args, options ...tenure.Option) job.ID {
		added, err := c.Enqueue(tenancy.For(t.Context(), "t1"), a, options...)
		require.NoError(t, err)
		return added.ID
	}
	first := add(endless{1})
	require.Eventually(t, func() bool { return l.running.Load() == 1 }, patience, time.Millisecond)
	gone, last := add(endless{2}, tenure.Exclusive("a")), add(endless{3}, tenure.Exclusive("b"))
	for i := range 3 { // once these have run the keys wait for the limit
		add(plain{i})
		b.eventually(i+1, "p1", "SELECT count(*) FROM tenure.completed_job WHERE kind = 'plain'")
	}
	b.exec("p1", "DELETE FROM tenure.job WHERE id = $1", int64(gone))
	_, err := op.Jobs().Cancel(t.Context(), first)
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.job j JOIN tenure.claim c ON j.id = ANY (c.job_ids) WHERE j.id = $1", int64(last))
	l.release()
}

// TestP8KeysStartAtTheirRate: of the jobs with one exclusive key no more start in any time than its rate
// allows, also after the lock was taken again, when only the ledger knows what is left; neither other keys nor
// jobs without one wait for that, and a job that does is told.
func TestP8KeysStartAtTheirRate(t *testing.T) {
	t.Parallel()
	const rate, burst, keys, each = 4, 2, 3, 6
	b := newTestbed(t, 1, 2)
	n := b.start(b.named("a"), b.registry(nil))
	op, c := n.Client().Operator(), n.Client()
	require.ErrorContains(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Key: "k", MaxRunning: 1}), "one runs at a time in any case")
	require.ErrorContains(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Key: "k", EachKey: true, Rate: 1}), "name one of them")
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", EachKey: true, Rate: rate, Burst: burst}))
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: operate.EveryTenant, Key: "once an hour", Rate: 1, Per: time.Hour}))
	require.NoError(t, op.Limits().Set(t.Context(), operate.Limit{Tenant: "t1", Key: "seldom", Rate: 1, Per: time.Hour}))
	b.exec("p1", `CREATE TABLE public.claimed (id serial, at timestamptz, key text);
		CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS
			$$ BEGIN INSERT INTO public.claimed (at, key) SELECT clock_timestamp(), exclusive_key FROM tenure.job WHERE id = ANY (NEW.job_ids); RETURN NULL; END $$;
		CREATE TRIGGER note AFTER INSERT ON tenure.claim FOR EACH ROW EXECUTE FUNCTION public.note()`)
	var entries []tenure.Entry
	for i := range each {
		for k := range keys {
			entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}, Options: []tenure.Option{tenure.Exclusive(fmt.Sprint("k", k))}})
		}
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}})
	}
	for range 2 {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{0}, Options: []tenure.Option{tenure.Exclusive("seldom")}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	const done = "SELECT count(*) FROM tenure.completed_job"
	b.eventually(each+keys*burst+1, "p1", "SELECT least(count(*), $1) FROM tenure.completed_job", each+keys*burst+1)
	b.exec("p1", "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)")
	_, err = c.Enqueue(tenancy.For(t.Context(), "t2"), plain{1}, tenure.Exclusive("k0")) // it is another tenant's
	require.NoError(t, err)
	b.eventually(len(entries), "p1", done)
	require.Equal(t, len(entries), b.count("p1", "SELECT count(*) FROM public.claimed"), "but for the one that has its turn in an hour")
	require.Zero(t, b.count("p1", fmt.Sprintf(`SELECT count(*) FROM public.claimed a JOIN public.claimed z ON z.id >= a.id AND z.key = a.key
		WHERE (SELECT count(*) FROM public.claimed c WHERE c.id BETWEEN a.id AND z.id AND c.key = a.key) > %d + 1 + extract(epoch FROM z.at - a.at) * %d + 0.01`, burst, rate)),
		"the one of the other tenant is counted, too")
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM public.claimed WHERE key = 'seldom'"))
	waits := job.ID(b.count("p1", "SELECT id FROM tenure.job"))
	e, err := op.Jobs().Explain(t.Context(), waits)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForRate, e.Reason, e.Text)
	require.Contains(t, e.Text+"\n"+e.Advice, `exclusive key "seldom" of tenant t1 may start 1 job in 1h0m0s`)
	require.Contains(t, e.Advice, `--key "seldom" --rate 2 --per 1h0m0s`)
	limits, err := op.Limits().List(t.Context())
	require.NoError(t, err)
	require.Len(t, limits, 3)
	require.Equal(t, operate.Limit{Tenant: operate.EveryTenant, Key: "once an hour", Rate: 1, Per: time.Hour, Burst: 1}, limits[0].Limit)
	require.NoError(t, op.Limits().Delete(t.Context(), operate.Limit{Tenant: "t1", Key: "seldom"})) // that of each key takes its place
	b.eventually(len(entries)+1, "p1", done)
}
