package jobtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/jobtest"
)

// Jobs with an exclusive key run with their arguments, in order, and wait for one of their key that
// is to be tried again; others do not.
func TestExclusiveKeys(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ran []int
	failed := false
	b.ping = func(_ context.Context, j *job.Job[ping]) error {
		if j.Args.N == 1 && !failed {
			failed = true
			return errors.New("not yet")
		}
		ran = append(ran, j.Args.N)
		return nil
	}
	client := b.Client()
	for n, opts := range [][]tenure.Option{0: {tenure.Exclusive("k")}, 1: {tenure.Exclusive("k")}, 2: {tenure.Exclusive("k")}, 3: nil} {
		_, err := client.Enqueue(b.acme.Context, ping{n}, opts...)
		require.NoError(t, err)
	}
	b.Drain(t)
	require.Equal(t, []int{0, 3}, ran, "2 waits for 1")
	b.Advance(t, 6*time.Minute)
	b.Drain(t)
	require.Equal(t, []int{0, 3, 1, 2}, ran)
}

// Run does not pass by an earlier job of the same key, as no node does.
func TestExclusiveKeys_runWaitsItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t)
	_, err := b.Client().Enqueue(b.acme.Context, ping{1}, tenure.Exclusive("k"))
	require.NoError(t, err)
	f := &fakeTB{TB: t, ctx: t.Context()}
	f.run(func() { b.Tenant(f, "acme").Run(ping{2}, tenure.Exclusive("k")) })
	require.Contains(t, f.wait(), `an earlier job has the same exclusive key, "k"`)
	require.Len(t, b.Drain(t), 2)
	require.Equal(t, job.Done, b.acme.Run(ping{3}, tenure.Exclusive("k")).State)
}

// Drain runs what awaits others once these have ended, level by level, and leaves delays alone.
func TestDrain_runsWhatAwaited(t *testing.T) {
	t.Parallel()
	b := setup(t)
	var ran []int
	b.ping = func(_ context.Context, j *job.Job[ping]) error {
		ran = append(ran, j.Args.N)
		switch j.Args.N {
		case 4:
			return errors.New("try again")
		case 6:
			return job.Discard(errors.New("never"))
		}
		return nil
	}
	b.write = func(ctx context.Context, tx pgx.Tx, _ *job.Job[write]) error { // the retry of 4 becomes due meanwhile
		_, err := tx.Exec(ctx, "UPDATE tenure.timer_job SET due_at = now() - interval '1 s' WHERE attempt > 0")
		return err
	}
	client := b.Client()
	enqueue := func(args job.Args, opts ...tenure.Option) job.ID {
		added, err := client.Enqueue(b.acme.Context, args, opts...)
		require.NoError(t, err)
		return added.ID
	}
	second := enqueue(ping{2}, tenure.After(enqueue(ping{1})))
	_, err := client.EnqueueBatch(b.acme.Context, tenure.Batch{
		Jobs: []tenure.Entry{{Args: ping{3}, Options: []tenure.Option{tenure.After(second)}}},
		Then: ping{4},
	})
	require.NoError(t, err)
	pending := jobtest.Enqueued[ping](b.acme)
	require.Len(t, pending, 4)
	require.False(t, pending[0].Awaiting)
	require.True(t, pending[1].Awaiting)
	require.Zero(t, pending[1].In)
	b.Drain(t)
	require.Equal(t, []int{1, 2, 3, 4}, ran)

	ran = nil
	enqueue(ping{5}, tenure.After(enqueue(write{})))
	b.Drain(t)
	require.Equal(t, []int{5}, ran, "a retry is left for the next Drain")
	b.Drain(t)
	require.Equal(t, []int{5, 4}, ran)

	ran = nil
	cancelled := enqueue(ping{7}, tenure.After(enqueue(ping{6})), tenure.OnFailure(tenure.CancelToo))
	enqueue(ping{8}, tenure.After(cancelled), tenure.OnFailure(tenure.RunAnyway))
	b.Drain(t)
	require.Equal(t, []int{6, 8}, ran, "an end that is no run is one, too")
}

// The pool's user needs no more for it than a node has.
func TestDrain_runsWhatAwaitedUnderRoles(t *testing.T) {
	t.Parallel()
	b := setup(t, jobtest.Roles())
	first, err := b.Client().Enqueue(b.acme.Context, ping{1})
	require.NoError(t, err)
	_, err = b.Client().Enqueue(b.acme.Context, ping{2}, tenure.After(first.ID))
	require.NoError(t, err)
	require.Len(t, b.Drain(t), 2)
}

type charge struct {
	Invoice string `json:"invoice"`
}

func (charge) Kind() string { return "charge" }

// A kind's unique key is that of each of its jobs which have no other, however they are enqueued.
func TestUniqueBy(t *testing.T) {
	t.Parallel()
	env := jobtest.New(t, jobtest.Register(func(r *job.Registry) {
		job.Handle(r, func(context.Context, *job.Job[charge]) error { return nil }, job.UniqueBy(func(c charge) string { return c.Invoice }, time.Hour))
	}))
	acme, client := env.Tenant(t, "acme"), env.Client()
	add := func(invoice string, opts ...tenure.Option) bool {
		t.Helper()
		added, err := client.Enqueue(acme, charge{invoice}, opts...)
		require.NoError(t, err)
		return added.Duplicate
	}
	require.False(t, add("a"))
	require.True(t, add("a"))
	require.False(t, add(""))
	require.False(t, add(""), "an empty key is none")
	require.False(t, add("a", tenure.Unique("other")))
	require.False(t, add("a", tenure.UniqueArgs(0)))
	many, err := client.EnqueueMany(acme, []tenure.Entry{{Args: charge{"a"}}, {Args: charge{"b"}}, {Args: charge{"b"}}})
	require.NoError(t, err)
	require.Equal(t, []bool{true, false, true}, []bool{many[0].Duplicate, many[1].Duplicate, many[2].Duplicate})
	require.NoError(t, client.InTx(acme, func(ctx context.Context, tx pgx.Tx) error {
		added, err := client.EnqueueTx(ctx, tx, charge{"b"})
		require.True(t, added.Duplicate)
		return err
	}))
	env.Drain(t)
	require.True(t, add("a"), "its period goes on")
	env.Advance(t, time.Hour)
	require.False(t, add("a"))
	_, err = client.Enqueue(acme, charge{"c"}, tenure.OfRequest("hash"), tenure.UniqueFor("key of a request", time.Hour))
	require.ErrorContains(t, err, "send no Idempotency-Key", "another request would add another one")
	_, err = client.Enqueue(acme, job.RawArgs{Name: "charge", Payload: []byte(`{"invoice": 7}`)})
	require.ErrorContains(t, err, "for its unique key")
}
