package execution

import (
	"context"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// What a run says is its claim's, of a batch that of the job it is said of, and middleware's
// counts. What is said after the handler has returned does not.
func TestReports(t *testing.T) {
	t.Parallel()
	kept := make(chan context.Context, 1)
	b := newBundle(t, nil, func(r *job.Registry) {
		r.Use(func(next job.HandlerFunc) job.HandlerFunc {
			return func(ctx context.Context, rec *job.Record) error {
				err := next(ctx, rec)
				if rec.Kind != "silent" {
					job.Log(ctx, "by middleware")
				}
				return err
			}
		})
		r.Add(job.Spec{Kind: "talks", Handle: func(ctx context.Context, _ *job.Record) error {
			job.SetProgress(ctx, 1, 2, "half")
			job.Log(ctx, "a line")
			kept <- ctx
			return job.SetOutput(ctx, 42)
		}})
		r.Add(job.Spec{Kind: "silent", Handle: func(context.Context, *job.Record) error { return nil }})
		r.Add(job.Spec{Kind: "batch", HandleBatch: func(ctx context.Context, records []*job.Record, _ *job.Ends) error {
			job.Log(ctx, "of no job")
			for _, rec := range records {
				job.SetProgress(job.NewContext(ctx, rec), int64(rec.ID), 0, "")
			}
			return nil
		}})
	}).start()
	lines := func(said job.Report) (texts []string) {
		for _, l := range said.Lines {
			texts = append(texts, l.Text)
		}
		return texts
	}

	b.submit("talks", 1)
	e := b.owner.next(t)
	require.EqualValues(t, 1, b.owner.reported.Load(), "told once, as nobody has taken it")
	require.Positive(t, e.claim.Age())
	job.Log(<-kept, "too late")
	said, ok := e.claim.Reporter().Take()
	require.True(t, ok)
	require.Equal(t, []string{"a line", "by middleware"}, lines(said))
	require.Equal(t, "42", string(said.Output))
	require.EqualValues(t, 1, said.Done)
	e.claim.ForgetReport()
	require.Nil(t, e.claim.Reporter())

	b.submit("silent", 1)
	require.Nil(t, b.owner.next(t).claim.Reporter(), "nothing was made for it")

	b.submit("batch", 3)
	for range 3 {
		c := b.owner.next(t).claim
		said, ok := c.Reporter().Take()
		require.True(t, ok)
		require.Equal(t, int64(c.Record.ID), said.Done)
		require.Equal(t, []string{"by middleware"}, lines(said))
	}
	require.EqualValues(t, 4, b.owner.reported.Load())
}
