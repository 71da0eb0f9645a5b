package promises_test

import (
	"context"
	"errors"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// TestP8WhatIsFrozenIsNotClaimed: once a queue and a kind are frozen no pool commits a claim of their jobs, whether they
// are added, due, or to be tried again, with the lock in whoever's hands, and wherever a tenant moves; all other jobs go
// on. Once thawed all of them run, each once.
func TestP8WhatIsFrozenIsNotClaimed(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	b.prepare("t1", "p2")
	for pool := range b.db {
		b.exec(pool, "CREATE TABLE public.claimed (id bigint)")
		b.exec(pool, `CREATE FUNCTION public.note() RETURNS trigger LANGUAGE plpgsql SECURITY DEFINER AS $$
			BEGIN
				INSERT INTO public.claimed SELECT j.id FROM tenure.job j WHERE j.id = ANY (NEW.job_ids) AND (j.queue = 'mail' OR j.kind = 'write');
				RETURN NULL;
			END $$`)
		b.exec(pool, "CREATE TRIGGER note AFTER INSERT ON tenure.claim FOR EACH ROW EXECUTE FUNCTION public.note()")
	}
	registry := func() *job.Registry {
		r := job.NewRegistry()
		job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
			if j.Args.N%4 == 0 && j.Attempt == 1 {
				return job.RetryIn(10*time.Millisecond, errors.New("once"))
			}
			return nil
		})
		tenure.HandleTx(r, func(ctx context.Context, tx pgx.Tx, j *job.Job[write]) error {
			_, err := tx.Exec(ctx, "INSERT INTO effect (job_id) VALUES ($1)", int64(j.ID))
			return err
		})
		return r
	}
	first := b.start(b.gossiping("first"), registry())
	second := b.start(b.gossiping("second", first.Self().Addr), registry())
	op, c := second.Client().Operator(), second.Client()

	end, rounds := make(chan struct{}), make([]int, len(b.tenants()))
	var traffic sync.WaitGroup
	for n, tenant := range b.tenants() {
		traffic.Go(func() {
			ctx := tenancy.For(t.Context(), tenant)
			for i := 0; ; i++ {
				select {
				case <-end:
					return
				case <-time.After(25 * time.Millisecond): // a rate that a busy machine can follow
				}
				for _, add := range []struct {
					args    job.Args
					options []tenure.Option
				}{
					{plain{i}, []tenure.Option{tenure.OnQueue("mail")}},
					{plain{i}, []tenure.Option{tenure.OnQueue("mail"), tenure.In(5 * time.Millisecond)}},
					{write{i}, nil},
					{plain{i}, nil},
				} {
					if _, err := c.Enqueue(ctx, add.args, add.options...); err != nil {
						t.Errorf("enqueue for %s: %v", tenant, err)
						return
					}
				}
				rounds[n]++
			}
		})
	}
	stop := sync.OnceFunc(func() { close(end); traffic.Wait() })
	t.Cleanup(stop)
	const claimed = "SELECT count(*) FROM public.claimed"
	othersGoOn := func() {
		t.Helper()
		const done = "SELECT count(*) FROM tenure.completed_job WHERE kind = 'plain' AND queue = 'default'"
		for pool := range b.db {
			b.atLeast(b.count(pool, done)+10, pool, done)
		}
	}
	for pool := range b.db {
		b.atLeast(20, pool, claimed)
	}
	require.NoError(t, op.Queues().Freeze(t.Context(), "mail"))
	require.NoError(t, op.Kinds().Freeze(t.Context(), "write"))
	before := map[string]int{}
	for pool := range b.db {
		before[pool] = b.count(pool, claimed)
	}
	requireNone := func() {
		t.Helper()
		for pool, n := range before {
			require.Equal(t, n, b.count(pool, claimed), broken+"what is frozen was claimed in %s", pool)
		}
	}
	othersGoOn()
	requireNone()
	for pool := range b.db { // other terms begin
		b.exec(pool, "UPDATE tenure.acquire_lock SET holder = NULL, epoch = epoch + 1, expires_at = to_timestamp(0)")
	}
	othersGoOn()
	first.stop() // the other node holds both locks, and claims what it adds
	second.holds("p1")
	second.holds("p2")
	othersGoOn()
	requireNone()

	require.NoError(t, op.Queues().Freeze(t.Context(), "mail"))
	frozen, err := op.Frozen(t.Context())
	require.NoError(t, err)
	require.Len(t, frozen, 4)
	require.Equal(t, []string{"mail p1", "mail p2", "write p1", "write p2"}, []string{frozen[0].Queue + " " + frozen[0].Pool, frozen[1].Queue + " " + frozen[1].Pool, frozen[2].Kind + " " + frozen[2].Pool, frozen[3].Kind + " " + frozen[3].Pool})
	why := func(add job.Args, options ...tenure.Option) operate.Explanation {
		added, err := c.Enqueue(tenancy.For(t.Context(), "t1"), add, options...)
		require.NoError(t, err)
		e, err := op.Jobs().Explain(t.Context(), added.ID)
		require.NoError(t, err)
		return e
	}
	e := why(plain{1}, tenure.OnQueue("mail"))
	require.Equal(t, operate.WaitsForQueue, e.Reason)
	require.Equal(t, "queue mail is frozen, since "+frozen[0].Since.UTC().Format(time.RFC3339)+": tenure queues thaw mail", e.Text+": "+e.Advice)
	require.Equal(t, operate.WaitsForKind, why(write{1}).Reason)

	stop()
	b.move(c, "t1", "p2")
	b.dwindles("p1", "SELECT count(*) FROM tenure.job WHERE kind = 'plain' AND queue = 'default'")
	b.dwindles("p2", "SELECT count(*) FROM tenure.job WHERE kind = 'plain' AND queue = 'default'")
	requireNone()
	tenant, err := op.Tenants().Explain(t.Context(), "t1")
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForQueue, tenant.Reason, tenant.Text)
	require.NoError(t, op.Queues().Thaw(t.Context(), "mail"))
	require.NoError(t, op.Kinds().Thaw(t.Context(), "write"))
	frozen, err = op.Frozen(t.Context())
	require.NoError(t, err)
	require.Empty(t, frozen)
	all := 2
	for i, tenant := range b.tenants() {
		all += 4 * rounds[i]
		wrote, pools := rounds[i], []string{b.cfg.Tenants.Static[tenant].Pool}
		if tenant == "t1" {
			wrote, pools = wrote+1, []string{"p1", "p2"}
		}
		b.requireOnce(string(tenant), wrote, pools...)
	}
	b.finished(c, all)
	for pool := range b.db {
		require.Equal(t, 1, b.count(pool, "SELECT count(*) FROM tenure.audit WHERE action = 'kind.freeze' AND subject = 'write'"))
	}
}
