package promises_test

import (
	"context"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// While as many jobs of a tenant wait as may, more are refused, however they are added; others notice
// nothing. Once some have run there is room again.
func TestLimitWaiting(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	over := make(chan struct{})
	goOn := sync.OnceFunc(func() { close(over) })
	defer goOn()
	r := job.NewRegistry()
	job.Handle(r, func(context.Context, *job.Job[plain]) error { <-over; return nil })
	c := b.client(b.named("client"))
	op := c.Operator()
	const most = 10
	require.NoError(t, op.Tenants().LimitWaiting(t.Context(), "t1", most))
	b.start(b.named("a"), r)
	full, other := tenancy.For(t.Context(), "t1"), tenancy.For(t.Context(), "t2")
	added := 0
	require.Eventually(t, func() bool {
		_, err := c.Enqueue(full, plain{added})
		if err == nil {
			added++
			return false
		}
		require.ErrorIs(t, err, tenure.ErrTenantQuota)
		require.ErrorContains(t, err, `tenant "t1" has 10 jobs waiting`)
		return true
	}, patience, 1e6)
	require.GreaterOrEqual(t, added, most)
	_, err := c.EnqueueMany(t.Context(), []tenure.Entry{{Tenant: "t1", Args: plain{}}, {Tenant: "t2", Args: plain{}}})
	require.ErrorIs(t, err, tenure.ErrTenantQuota)
	_, err = b.db["p1"].Exec(t.Context(), "SELECT tenure.enqueue('t1', 'plain')")
	require.ErrorContains(t, err, "TN006")
	_, err = c.Enqueue(other, plain{1})
	require.NoError(t, err)

	goOn()
	require.Eventually(t, func() bool {
		_, err := c.Enqueue(full, plain{added})
		return err == nil
	}, patience, 1e6)
	require.NoError(t, op.Tenants().LimitWaiting(t.Context(), "t1", 0))
	require.ErrorContains(t, op.Tenants().LimitWaiting(t.Context(), "t1", -1), "1 to 1000000 are allowed")
	b.finished(c, added+2)
}
