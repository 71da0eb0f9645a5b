package promises_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// A job that somebody wants run at once runs, wherever it stood, before others, and once.
func TestRunJob(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r := job.NewRegistry()
	ran := make(chan job.ID, 20)
	job.Handle(r, func(_ context.Context, j *job.Job[plain]) error {
		ran <- j.ID
		if j.Args.N == 1 && j.Attempt == 1 && j.Priority < job.MaxPriority {
			return job.Discard(errors.New("not today"))
		}
		return nil
	})
	n := b.start(b.cfg, r)
	c, o := n.Client(), n.Operator()
	ctx := tenancy.For(t.Context(), "t1")
	add := func(n int, opts ...tenure.Option) job.ID {
		t.Helper()
		added, err := c.Enqueue(ctx, plain{n}, opts...)
		require.NoError(t, err)
		return added.ID
	}
	reaches := func(id job.ID, state string) operate.JobStatus {
		t.Helper()
		var last operate.JobStatus
		require.Eventually(t, func() bool {
			j, _, err := o.Jobs().Get(t.Context(), id)
			require.NoError(t, err)
			last = j
			return j.State == state
		}, patience, 10*time.Millisecond)
		return last
	}
	later := add(0, tenure.In(time.Hour))
	require.NoError(t, o.Jobs().Run(t.Context(), later))
	require.Equal(t, int16(job.MaxPriority), reaches(later, "done").Priority)

	dies := add(1)
	reaches(dies, "dead")
	require.NoError(t, o.Jobs().Run(t.Context(), dies))
	reaches(dies, "done")

	require.NoError(t, o.Tenants().Freeze(t.Context(), "t1"))
	waits := add(2)
	require.NoError(t, o.Jobs().Run(t.Context(), waits))
	require.Equal(t, int16(job.MaxPriority), reaches(waits, "waiting").Priority, "the tenant is frozen all the same")
	require.NoError(t, o.Tenants().Thaw(t.Context(), "t1"))
	reaches(waits, "done")

	aside := add(3, tenure.In(time.Hour))
	require.NoError(t, o.Jobs().Suspend(t.Context(), aside, time.Time{}))
	require.ErrorContains(t, o.Jobs().Run(t.Context(), aside), "it is suspended; resume it first")
	require.ErrorContains(t, o.Jobs().Run(t.Context(), later), "it is done, and does not run again")
	require.ErrorIs(t, o.Jobs().Run(t.Context(), 1), tenure.ErrNotFound)
	close(ran)
	runs := map[job.ID]int{}
	for id := range ran {
		runs[id]++
	}
	require.Equal(t, map[job.ID]int{later: 1, dies: 2, waits: 1}, runs)
}
