package job_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// called is what became of each job of one call, and of the call.
type called struct {
	got   []job.ID // those that the handler got
	ends  map[job.ID]error
	whole error
}

// callBatch registers a batch handler with some middleware and calls it with jobs 1, 2 and 3 and what
// cannot be decoded as 4.
func callBatch(t *testing.T, fn func(b *job.Batch[sendMail]) error, middleware ...job.Middleware) (c called) {
	t.Helper()
	r := job.NewRegistry()
	for _, m := range middleware {
		r.Use(m)
	}
	job.HandleBatch(r, func(ctx context.Context, b *job.Batch[sendMail]) error {
		_, of := job.FromContext(ctx)
		require.False(t, of)
		for _, j := range b.Jobs {
			c.got = append(c.got, j.ID)
		}
		return fn(b)
	})
	r.Freeze()
	spec, _ := r.Lookup("mail.send")
	require.Equal(t, job.DefaultMaxBatch, spec.MaxBatch)
	records := []*job.Record{{ID: 1, Payload: []byte(`{"to": "a"}`)}, {ID: 2, Payload: []byte(`{}`)}, {ID: 3, Payload: []byte(`{}`)}, {ID: 4, Payload: []byte(`{"to": 1}`)}}
	ends := &job.Ends{}
	c.whole = spec.HandleBatch(t.Context(), records, ends)
	c.ends = map[job.ID]error{}
	for _, rec := range records {
		if said, err := ends.Of(rec.ID); said {
			c.ends[rec.ID] = err
		}
	}
	return c
}

func stateOf(err error) job.State { return job.Decide(err, 1, 9, job.DefaultPolicy()).State }

func TestHandleBatch(t *testing.T) {
	t.Parallel()
	var other job.Job[sendMail]
	c := callBatch(t, func(b *job.Batch[sendMail]) error {
		require.Equal(t, "a", b.Jobs[0].Args.To)
		b.End(b.Jobs[1], errBroken)
		require.Panics(t, func() { b.End(&other, nil) })
		return errors.ErrUnsupported
	})
	require.Equal(t, []job.ID{1, 2, 3}, c.got)
	require.ErrorIs(t, c.whole, errors.ErrUnsupported)
	require.Len(t, c.ends, 2)
	require.ErrorIs(t, c.ends[2], errBroken)
	require.Equal(t, job.Retrying, stateOf(c.ends[4]), "it cannot be decoded")
}

// Middleware is called for each job, and is told how its own one ended, and may say otherwise.
func TestHandleBatch_middleware(t *testing.T) {
	t.Parallel()
	type seen struct {
		id  job.ID
		err error
	}
	var order []seen
	note := func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, r *job.Record) error {
			of, _ := job.FromContext(ctx)
			require.Same(t, r, of)
			order = append(order, seen{r.ID, nil})
			err := next(ctx, r)
			order = append(order, seen{r.ID, err})
			return err
		}
	}
	says := func(say map[job.ID]error) job.Middleware {
		return func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) error {
				err := next(ctx, r)
				if said, has := say[r.ID]; has {
					return said
				}
				return err
			}
		}
	}
	end2 := func(b *job.Batch[sendMail]) error { b.End(b.Jobs[1], errBroken); return nil }
	t.Run("is around each job", func(t *testing.T) {
		c := callBatch(t, end2, note)
		require.NoError(t, c.whole)
		require.Equal(t, []job.ID{1, 2, 3}, c.got)
		require.Len(t, order, 8)
		for i, id := range []job.ID{1, 2, 3, 4, 4, 3, 2, 1} {
			require.Equal(t, id, order[i].id)
		}
		require.NoError(t, order[5].err)
		require.ErrorIs(t, order[6].err, errBroken)
		require.NoError(t, order[7].err)
		require.Len(t, c.ends, 2)
	})
	t.Run("may say otherwise", func(t *testing.T) {
		c := callBatch(t, end2, says(map[job.ID]error{1: job.Discard(errBroken), 2: nil}))
		require.NoError(t, c.whole)
		require.Equal(t, job.Dead, stateOf(c.ends[1]))
		require.NoError(t, c.ends[2])
		require.NotContains(t, c.ends, job.ID(3))
	})
	t.Run("may try again in vain", func(t *testing.T) {
		calls := 0
		c := callBatch(t, func(*job.Batch[sendMail]) error { calls++; return errBroken }, func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) error {
				if err := next(ctx, r); err == nil {
					return nil
				}
				return next(ctx, r)
			}
		})
		require.Equal(t, 1, calls)
		require.ErrorIs(t, c.whole, errBroken)
		require.NotContains(t, c.ends, job.ID(1), "it ends as the call does, and is tried again as others are")
	})
	t.Run("may keep a job out", func(t *testing.T) {
		c := callBatch(t, func(*job.Batch[sendMail]) error { return errBroken }, func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) error {
				if r.ID == 2 {
					return nil
				}
				return next(ctx, r)
			}
		})
		require.Equal(t, []job.ID{1, 3}, c.got)
		require.ErrorIs(t, c.whole, errBroken)
		require.Contains(t, c.ends, job.ID(2))
		require.NoError(t, c.ends[2])
		require.NotContains(t, c.ends, job.ID(1))
	})
	recovers := func(ids ...job.ID) job.Middleware {
		return func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) (err error) {
				defer func() {
					if !slices.Contains(ids, r.ID) {
						return
					}
					if recover() != nil {
						err = errBroken
					}
				}()
				return next(ctx, r)
			}
		}
	}
	panics := func(next job.HandlerFunc) job.HandlerFunc {
		return func(ctx context.Context, r *job.Record) error {
			if r.ID == 3 {
				panic("boom")
			}
			return next(ctx, r)
		}
	}
	t.Run("is told of a panic", func(t *testing.T) {
		order = nil
		c := callBatch(t, func(*job.Batch[sendMail]) error { panic("boom") }, note, recovers(1, 2, 3, 4))
		var panicked *job.PanicError
		require.ErrorAs(t, c.whole, &panicked)
		require.Contains(t, panicked.Stack, "batch_test.go")
		require.Len(t, order, 8)
		require.ErrorAs(t, order[7].err, &panicked)
		require.NotContains(t, c.ends, job.ID(1), "nothing was said of single jobs")
	})
	t.Run("that panics keeps its job out", func(t *testing.T) {
		c := callBatch(t, end2, recovers(3), panics)
		require.Equal(t, []job.ID{1, 2}, c.got)
		require.NoError(t, c.whole)
		require.ErrorIs(t, c.ends[3], errBroken)
	})
	t.Run("that panics through that of others leaves no job done", func(t *testing.T) {
		c := callBatch(t, end2, recovers(1), panics)
		require.Empty(t, c.got)
		require.Error(t, c.whole)
		require.Len(t, c.ends, 1)
		require.ErrorIs(t, c.ends[1], errBroken)
	})
	t.Run("calls once", func(t *testing.T) {
		c := callBatch(t, end2, func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, r *job.Record) error { return errors.Join(next(ctx, r), next(ctx, r)) }
		})
		require.Len(t, c.got, 3)
		require.NotContains(t, c.ends, job.ID(1))
	})
	t.Run("passes on its context", func(t *testing.T) {
		c := callBatch(t, end2, func(next job.HandlerFunc) job.HandlerFunc {
			return func(_ context.Context, r *job.Record) error { return next(context.Background(), r) }
		})
		require.Empty(t, c.got)
		require.Equal(t, job.Dead, stateOf(c.ends[1]))
	})
}
