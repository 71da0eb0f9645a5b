package job_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

func TestRegistryWhileRunning(t *testing.T) {
	t.Parallel()
	var said []string
	says := func(text string) job.Middleware {
		return func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) error {
				said = append(said, text)
				return next(ctx, r)
			}
		}
	}
	handle := func(context.Context, *job.Record) error { return nil }
	r := job.NewRegistry()
	r.Use(says("own"))
	r.Add(job.Spec{Kind: "a", Handle: handle})
	r.Add(job.Spec{Kind: "b", Handle: handle, Queue: "mail"})
	r.Freeze()
	_, both := r.Handled()

	require.ErrorIs(t, r.Withdraw("b", "nobody"), job.ErrKindUnknown)
	require.Equal(t, []string{"a", "b"}, r.Kinds(), "all or none")
	require.NoError(t, r.Withdraw("b"))
	require.ErrorIs(t, r.Withdraw("b"), job.ErrKindUnknown)
	kinds, one := r.Handled()
	require.Equal(t, []string{"a"}, kinds)
	require.NotEqual(t, both, one)
	_, handled := r.Lookup("b")
	require.False(t, handled)
	known, found := r.Find("b")
	require.True(t, found)
	require.Equal(t, "mail", known.Queue)

	more := job.NewRegistry()
	more.Use(says("theirs"))
	more.Add(job.Spec{Kind: "b", Handle: handle})
	more.Add(job.Spec{Kind: "c", HandleBatch: func(context.Context, []*job.Record, *job.Ends) error { return nil }})
	require.NoError(t, r.Join(more))
	_, all := r.Handled()
	spec, _ := r.Lookup("b")
	require.NoError(t, spec.Handle(t.Context(), &job.Record{}))
	require.Equal(t, []string{"own", "theirs"}, said)
	again := job.NewRegistry()
	again.Add(job.Spec{Kind: "c", Handle: handle})
	again.Add(job.Spec{Kind: "d", Handle: handle})
	require.ErrorIs(t, r.Join(again), job.ErrKindExists)
	_, found = r.Find("d")
	require.False(t, found, "all or none")

	require.True(t, r.SetPaused(true))
	require.False(t, r.SetPaused(true))
	require.Empty(t, r.Kinds())
	require.NoError(t, r.Withdraw("a"), "what is withdrawn meanwhile stays so")
	require.True(t, r.SetPaused(false))
	require.Equal(t, []string{"b", "c"}, r.Kinds())
	require.NoError(t, r.Join(registryOf("a")))
	_, mark := r.Handled()
	require.Equal(t, all, mark, "the same kinds again")
}

func registryOf(kind string) *job.Registry {
	r := job.NewRegistry()
	r.Add(job.Spec{Kind: kind, Handle: func(context.Context, *job.Record) error { return nil }})
	return r
}

func TestRegistryIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	r := registryOf("a")
	r.Freeze()
	var group sync.WaitGroup
	for _, kind := range []string{"b", "c", "d"} {
		group.Go(func() {
			for range 100 {
				if r.Join(registryOf(kind)) == nil {
					r.Lookup(kind)
					_ = r.Withdraw(kind)
				}
			}
		})
	}
	group.Wait()
	require.Equal(t, []string{"a"}, r.Kinds())
}
