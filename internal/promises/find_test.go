package promises_test

import (
	"context"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// A job is found as soon as its pool answers, whichever other one hangs. Of what no pool that
// answers has, it is said which did not.
func TestP10AHangingPoolHidesNoJob(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	cfg, proxy := b.behind(b.named("client"), "p1")
	client := b.client(cfg)
	e, err := client.Enqueue(tenancy.For(t.Context(), "t2"), plain{})
	require.NoError(t, err)
	operator := client.Operator()
	_, _, err = operator.Jobs().Get(t.Context(), e.ID+1) // for the connections
	require.ErrorIs(t, err, tenure.ErrNotFound)
	require.NotErrorAs(t, err, new(*operate.UnansweredError))

	proxy.Hold(func(string) bool { return true })
	defer proxy.Hold(nil)
	took := time.Hour
	for range 8 { // the machine may be busy; a pool is waited for for five seconds
		began := time.Now()
		j, _, err := operator.Jobs().Get(t.Context(), e.ID)
		require.NoError(t, err)
		require.Equal(t, "p2", j.Pool)
		why, err := operator.Jobs().Explain(t.Context(), e.ID)
		require.NoError(t, err)
		require.Equal(t, operate.WaitsForHolder, why.Reason)
		if took = time.Since(began); took < 4*time.Second {
			break
		}
	}
	require.Less(t, took, 4*time.Second)

	ctx, cancel := context.WithTimeout(t.Context(), 500*time.Millisecond)
	defer cancel()
	_, _, err = operator.Jobs().Get(ctx, e.ID+1)
	require.NotErrorIs(t, err, tenure.ErrNotFound, "nobody knows")
	var unanswered *operate.UnansweredError
	require.ErrorAs(t, err, &unanswered)
	require.Contains(t, unanswered.Pools, "p1")
	require.ErrorIs(t, err, context.DeadlineExceeded)
	err = operator.Jobs().Retry(ctx, e.ID+1)
	require.NotErrorIs(t, err, tenure.ErrNotFound)
	require.ErrorAs(t, err, &unanswered)
	require.ErrorAs(t, operator.Jobs().Resume(t.Context(), e.ID), new(*operate.StateError), "its pool has answered")
}
