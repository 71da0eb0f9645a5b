package promises_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// turnstile sees which jobs run under each exclusive key.
type turnstile struct {
	mu      sync.Mutex
	inside  map[string]job.ID
	starts  map[string][]job.ID
	nodes   map[string]int
	crowded []string
}

func newTurnstile() *turnstile {
	return &turnstile{inside: map[string]job.ID{}, starts: map[string][]job.ID{}, nodes: map[string]int{}}
}

// enter notes that a job runs, and returns what is to be called when it does not any more.
func (s *turnstile) enter(node string, r *job.Record) (leave func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.nodes[node]++
	key := r.Tenant + "/" + r.ExclusiveKey
	if r.ExclusiveKey == "" {
		return func() {}
	}
	if other, taken := s.inside[key]; taken {
		s.crowded = append(s.crowded, fmt.Sprintf("%s: job %d beside %d", key, r.ID, other))
	}
	s.inside[key] = r.ID
	s.starts[key] = append(s.starts[key], r.ID)
	return func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		delete(s.inside, key)
	}
}

// order is in which order jobs with a key have started.
func (s *turnstile) order(key string) []job.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.starts[key])
}

// registry is a node's, whose handlers take a while and pass a turnstile.
func (s *turnstile) registry(node string, took time.Duration) *job.Registry {
	r := job.NewRegistry()
	job.Handle(r, func(ctx context.Context, j *job.Job[plain]) error {
		defer s.enter(node, &j.Record)()
		pause(ctx, took)
		return ctx.Err()
	})
	tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
		defer s.enter(node, &j.Record)()
		pause(ctx, took)
		_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
		return err
	})
	return r
}

// Of a tenant's jobs with one exclusive key one runs at a time, in the order in which they were
// enqueued, whatever their kinds, queues, priorities and nodes; jobs without a key, or of another
// one, do not wait for them.
func TestExclusiveKeysRunOneByOne(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	s := newTurnstile()
	const took, keys, n = 10 * time.Millisecond, 8, 640
	holder := b.start(few(b.gossiping("holder"), 2), s.registry("holder", took))
	holder.holds("p1")
	b.start(few(b.gossiping("peer", holder.Self().Addr), 2), s.registry("peer", took))
	holder.meet(2)

	want := map[string][]job.ID{}
	ctx := map[string]context.Context{"t1": tenancy.For(t.Context(), "t1"), "t2": tenancy.For(t.Context(), "t2")}
	for i := range n {
		tenant, key := fmt.Sprintf("t%d", 1+i%2), fmt.Sprintf("k%d", i/2%keys)
		options := []tenure.Option{tenure.Exclusive(key), tenure.OnQueue([]string{"q1", "q2", "q3"}[i%3]), tenure.Priority(i * 7 % 5)}
		added, err := holder.Client().Enqueue(ctx[tenant], eitherKind(i/4), options...)
		require.NoError(t, err)
		want[tenant+"/"+key] = append(want[tenant+"/"+key], added.ID)
		if i%4 == 0 {
			_, err := holder.Client().Enqueue(ctx[tenant], plain{i})
			require.NoError(t, err)
		}
	}
	b.finished(holder.Client(), n+n/4)
	require.Empty(t, s.crowded)
	require.Len(t, want, 2*keys)
	for key, ids := range want {
		require.Equal(t, ids, s.order(key), "order under %s", key)
	}
	require.NotZero(t, s.nodes["peer"], "the peer should have run some: %v", s.nodes)
}

// Jobs that were added together, by COPY, run one by one as well, and a backlog of them under one
// key holds up nobody else.
func TestAnExclusiveBacklogHoldsUpNobody(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	b.cfg.Acquire.Batch = 50 // more wait for the key than a claim takes
	s := newTurnstile()
	r := s.registry("a", 20*time.Millisecond) // one after the other they take three seconds
	c := b.client(b.cfg)
	const keyed = 150
	var entries []tenure.Entry
	for i := range keyed {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}, Options: []tenure.Option{tenure.Exclusive("one")}})
	}
	for i := range 100 {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: write{i}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	n := b.start(b.named("a"), r)
	b.eventually(100, "p1", "SELECT count(*) FROM t1.effect")
	require.Less(t, len(s.order("t1/one")), keyed, "the others are behind them in their lane, and do not wait for all of them")
	b.finished(n.Client(), keyed+100)
	require.Empty(t, s.crowded)
	require.Len(t, s.order("t1/one"), keyed)
	require.True(t, slices.IsSorted(s.order("t1/one")))
}

// While a job waits for its next attempt, those behind it under its key wait, too; when it is dead
// or done they go on.
func TestExclusiveFollowersWaitForARetry(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	s := newTurnstile()
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		defer s.enter("a", &j.Record)()
		switch {
		case j.Args.N == 1 && j.Attempt < 3:
			return job.RetryIn(300*time.Millisecond, errors.New("not yet"))
		case j.Args.N == 3:
			return job.Discard(errors.New("never"))
		}
		return nil
	})
	n := b.start(b.named("a"), r)
	ctx := tenancy.For(t.Context(), "t1")
	var want []job.ID
	for i := range 6 {
		added, err := n.Client().Enqueue(ctx, plain{i}, tenure.Exclusive("k"))
		require.NoError(t, err)
		want = append(want, added.ID)
		if i == 1 {
			want = append(want, added.ID, added.ID)
		}
	}
	b.eventually(5, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Equal(t, want, s.order("t1/k"))
	require.Empty(t, s.crowded)
}

// Jobs behind one that others may pass start while that one waits to be tried again; then it is its
// turn, before those that were behind it. One that others may not pass holds up all, also that one's
// followers.
func TestExclusiveFollowersPassAJobThatSaysSo(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	s := newTurnstile()
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		defer s.enter("a", &j.Record)()
		if j.Args.N == 0 && j.Attempt == 1 {
			return job.RetryIn(time.Hour, errors.New("not yet"))
		}
		return nil
	})
	n := b.start(b.named("a"), r)
	ctx := tenancy.For(t.Context(), "t1")
	enqueue := func(i int, options ...tenure.Option) job.ID {
		added, err := n.Client().Enqueue(ctx, plain{i}, options...)
		require.NoError(t, err)
		return added.ID
	}
	const retrying, done = "SELECT count(*) FROM tenure.timer_job WHERE attempt > 0", "SELECT count(*) FROM tenure.completed_job"
	first := enqueue(0, tenure.Exclusive("k", tenure.SkipRetrying), tenure.Tags("a"), tenure.Meta(map[string]any{"who": "me"}))
	b.eventually(1, "p1", retrying)
	want := []job.ID{first, enqueue(1, tenure.Exclusive("k")), enqueue(2, tenure.Exclusive("k"))}
	b.eventually(2, "p1", done)
	require.NoError(t, n.Client().Operator().Jobs().Retry(t.Context(), first))
	b.eventually(3, "p1", done)
	require.Equal(t, append(want, first), s.order("t1/k"))
	require.Empty(t, s.crowded)

	strict := enqueue(0, tenure.Exclusive("k"))
	b.eventually(1, "p1", retrying)
	behind := enqueue(3, tenure.Exclusive("k", tenure.SkipRetrying))
	why, err := n.Client().Operator().Jobs().Explain(t.Context(), behind)
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForKey, why.Reason)
	require.Len(t, s.order("t1/k"), 5, "it has not started")
	require.NoError(t, n.Client().Operator().Jobs().Retry(t.Context(), strict))
	b.eventually(5, "p1", done)
}

// A new holder knows which keys are held by claims that stand when it takes the lock, also where
// another job would be the next one; nothing of the key starts until they are over.
func TestExclusiveKeysStayHeldByOlderClaims(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	s := newTurnstile()
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	var want []job.ID
	for i := range 4 {
		added, err := c.Enqueue(ctx, plain{i}, tenure.Exclusive("k"))
		require.NoError(t, err)
		want = append(want, added.ID)
	}
	b.exec("p1", `INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES ('00000000-0000-0000-0000-000000000001', 'lost', 'lost-1', clock_timestamp())`)
	b.exec("p1", `INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
		SELECT '00000000-0000-0000-0000-000000000001', turn, ARRAY[id], clock_timestamp() FROM tenure.job WHERE id = $1`, int64(want[1]))
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		defer s.enter("a", &j.Record)()
		if b.count("p1", "SELECT count(*) FROM tenure.claim WHERE session_id = '00000000-0000-0000-0000-000000000001'") > 0 {
			t.Errorf("job %d started while the lost node's claim stood", j.ID)
		}
		return nil
	})
	n := b.start(b.named("a"), r)
	b.finished(n.Client(), len(want))
	require.Equal(t, want, s.order("t1/k"))
	require.Equal(t, 1, b.count("p1", "SELECT count(*) FROM tenure.completed_job WHERE losses = 1"))
}

// Those behind a job that a claim from before the term holds go on once that job has ended, though
// the claim stands until another of its jobs has.
func TestExclusiveKeysAreFreeBeforeTheirOlderClaimIsOver(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	c := b.client(b.cfg)
	ctx := tenancy.For(t.Context(), "t1")
	var ids []job.ID
	for i := range 4 {
		var options []tenure.Option
		if i != 1 {
			options = append(options, tenure.Exclusive("k"))
		}
		added, err := c.Enqueue(ctx, plain{i}, options...)
		require.NoError(t, err)
		ids = append(ids, added.ID)
	}
	b.exec("p1", `INSERT INTO tenure.node_session (session_id, node, member, expires_at) VALUES ('00000000-0000-0000-0000-000000000001', 'other', 'other-1', clock_timestamp() + interval '1 day')`)
	b.exec("p1", `INSERT INTO tenure.claim (session_id, turn, job_ids, started_at)
		VALUES ('00000000-0000-0000-0000-000000000001', 7, ARRAY[$1, $2]::bigint[], clock_timestamp())`, int64(ids[0]), int64(ids[1]))
	b.exec("p1", "UPDATE tenure.job SET turn = 7 WHERE id IN ($1, $2)", int64(ids[0]), int64(ids[1]))
	r := job.NewRegistry()
	var whileItStands atomic.Int32 // how many have run
	job.Handle(r, func(context.Context, *job.Job[plain]) error {
		whileItStands.Add(int32(b.count("p1", "SELECT count(*) FROM tenure.claim WHERE session_id = '00000000-0000-0000-0000-000000000001' AND cardinality(job_ids) = 2")))
		return nil
	})
	n := b.start(b.named("a"), r)
	n.holds("p1")
	_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t1"), plain{4})
	require.NoError(t, err)
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job") // it has no key; the others have been read
	require.Equal(t, 3, b.count("p1", "SELECT count(*) FROM tenure.job WHERE exclusive_key IS NOT NULL"))
	b.exec("p1", "DELETE FROM tenure.job WHERE id = $1", int64(ids[0]))
	b.eventually(3, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.EqualValues(t, 3, whileItStands.Load())
}

// What waits under a key of a frozen tenant goes on when the tenant is thawed, though its lane was
// read before.
func TestExclusiveKeysOfAFrozenTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	ctx := tenancy.For(t.Context(), "t1")
	for i := range 3 {
		_, err := n.Client().Enqueue(ctx, plain{i}, tenure.Exclusive("k"))
		require.NoError(t, err)
	}
	<-started
	require.NoError(t, n.Client().Operator().Tenants().Freeze(t.Context(), "t1"))
	goOn()
	b.eventually(1, "p1", "SELECT count(*) FROM tenure.completed_job")
	for range 2 { // when the other tenant's are done, the frozen one's key was looked up, too
		done := b.count("p1", "SELECT count(*) FROM tenure.completed_job")
		_, err := n.Client().Enqueue(tenancy.For(t.Context(), "t2"), plain{}, tenure.Exclusive("k"))
		require.NoError(t, err)
		b.eventually(done+1, "p1", "SELECT count(*) FROM tenure.completed_job")
	}
	require.NoError(t, n.Client().Operator().Tenants().Thaw(t.Context(), "t1"))
	thawed := time.Now()
	b.eventually(5, "p1", "SELECT count(*) FROM tenure.completed_job")
	require.Less(t, time.Since(thawed), 20*time.Second, "a sweep each minute is not what finds them")
}

// perAccount is a kind whose jobs have an exclusive key by default.
type perAccount struct {
	Account string `json:"account"`
}

func (perAccount) Kind() string { return "per-account" }

// A kind can say what the exclusive keys of its jobs are.
func TestAKindGivesExclusiveKeys(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	keys := make(chan string, 10)
	r := job.NewRegistry()
	job.Handle(r, func(_ context.Context, j *job.Job[perAccount]) error {
		keys <- j.ExclusiveKey
		return nil
	}, job.ExclusiveBy(func(a perAccount) string { return a.Account }))
	n := b.start(b.named("a"), r)
	ctx := tenancy.For(t.Context(), "t1")
	_, err := n.Client().Enqueue(ctx, perAccount{"7"})
	require.NoError(t, err)
	require.Equal(t, "7", <-keys)
	_, err = n.Client().Enqueue(ctx, perAccount{"7"}, tenure.Exclusive("other"))
	require.NoError(t, err)
	require.Equal(t, "other", <-keys)
	_, err = n.Client().Enqueue(ctx, perAccount{})
	require.NoError(t, err)
	require.Empty(t, <-keys)
	_, err = n.Client().Enqueue(ctx, job.RawArgs{Name: "per-account", Payload: []byte(`{"account": 7}`)})
	require.ErrorContains(t, err, "for its exclusive key")
	_, err = n.Client().Enqueue(ctx, perAccount{}, tenure.Exclusive(""))
	require.ErrorContains(t, err, "1 to 1024 are allowed")
}

// A peer runs a job with a key beside one that takes long: the holder hears of its end at once, and
// the next one of the key starts.
func TestAPeerTellsOfEachKeyedJob(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	holder := b.start(b.gossiping("holder"), job.NewRegistry())
	holder.holds("p1")
	gate := make(chan struct{})
	r := job.NewRegistry()
	goOn := sync.OnceFunc(func() { close(gate) })
	t.Cleanup(goOn)
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		if j.ExclusiveKey == "slow" {
			<-gate
		}
		return nil
	})
	entries := []tenure.Entry{
		{Tenant: "t1", Args: plain{0}, Options: []tenure.Option{tenure.Elsewhere(), tenure.Exclusive("slow")}},
		{Tenant: "t1", Args: plain{1}, Options: []tenure.Option{tenure.Elsewhere(), tenure.Exclusive("k")}},
		{Tenant: "t1", Args: plain{2}, Options: []tenure.Option{tenure.Elsewhere(), tenure.Exclusive("k")}},
		{Tenant: "t1", Args: plain{3}, Options: []tenure.Option{tenure.Elsewhere(), tenure.Exclusive("k")}},
	}
	_, err := holder.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	b.start(b.gossiping("peer", holder.Self().Addr), r)
	b.eventually(3, "p1", "SELECT count(*) FROM tenure.completed_job")
	// Not found out by the holder's looking for what has ended, which comes later: told by the peer.
	require.Equal(t, 1, b.count("p1", "SELECT max(cardinality(job_ids)) FROM tenure.claim"), "the slow job is in a claim of its own")
	goOn()
	b.eventually(4, "p1", "SELECT count(*) FROM tenure.completed_job")
}
