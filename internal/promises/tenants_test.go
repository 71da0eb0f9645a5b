package promises_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/tenancy"
)

// While a tenant is frozen none of its jobs starts and none of its timers fires; others'
// do. A frozen tenant can be moved, and stays frozen.
func TestFreezeTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 2)
	b.prepare("t1", "p2")
	node := b.start(b.named("n"), b.registry(nil))
	c := node.Client()
	require.NoError(t, c.Operator().Tenants().Freeze(t.Context(), "t1"))
	require.NoError(t, c.Operator().Tenants().Freeze(t.Context(), "t1"))
	require.Equal(t, "frozen", stateOf(t, c, "t1", "p1"))
	const n = 20
	for i := range n {
		for _, id := range []tenancy.ID{"t1", "t2"} {
			ctx := tenancy.For(t.Context(), id)
			_, err := c.Enqueue(ctx, write{i})
			require.NoError(t, err)
			_, err = c.Enqueue(ctx, write{i}, tenure.In(time.Millisecond))
			require.NoError(t, err)
		}
	}
	b.requireOnce("t2", 2*n, "p1")
	stays := func(pool string) {
		t.Helper()
		require.Equal(t, n, b.count(pool, "SELECT count(*) FROM tenure.job"))
		require.Equal(t, n, b.count(pool, "SELECT count(*) FROM tenure.timer_job WHERE due_at < now()"))
		require.Zero(t, b.count(pool, "SELECT count(*) FROM t1.effect"))
	}
	stays("p1")
	b.move(c, "t1", "p2")
	require.Equal(t, "frozen", stateOf(t, c, "t1", "p2"))
	_, err := c.Enqueue(tenancy.For(t.Context(), "t3"), write{1})
	require.NoError(t, err)
	b.requireOnce("t3", 1, "p2")
	stays("p2")
	require.NoError(t, c.Operator().Tenants().Thaw(t.Context(), "t1"))
	b.requireOnce("t1", 2*n, "p2")
}
