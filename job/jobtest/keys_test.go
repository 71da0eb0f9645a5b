package jobtest_test

import (
	"context"
	"errors"
	"testing"
	"time"

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
		if j.Args.N == 4 {
			return errors.New("try again")
		}
		return nil
	}
	client := b.Client()
	enqueue := func(n int, opts ...tenure.Option) job.ID {
		added, err := client.Enqueue(b.acme.Context, ping{n}, opts...)
		require.NoError(t, err)
		return added.ID
	}
	second := enqueue(2, tenure.After(enqueue(1)))
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
	require.Empty(t, b.Drain(t), "a retry is due later")
}
