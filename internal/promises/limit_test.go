package promises_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/tenancy"
)

// A limit that an operator sets holds for a backlog that waits already, and another one as soon
// as it is set: no more start than it allows, and as many do.
func TestLimitTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 1)
	r, started, goOn := blocked(b)
	c := b.client(b.cfg)
	op := c.Operator()
	require.NoError(t, op.Tenants().Limit(t.Context(), "t1", 2))
	var entries []tenure.Entry
	for i := range 20 {
		entries = append(entries, tenure.Entry{Tenant: "t1", Args: plain{i}})
	}
	_, err := c.EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	n := b.start(b.named("a"), r)
	const flying = "SELECT coalesce(sum(cardinality(job_ids)), 0) FROM tenure.claim"
	for _, most := range []int{2, 5} {
		require.NoError(t, op.Tenants().Limit(t.Context(), tenancy.ID("t1"), most))
		b.eventually(most, "p1", flying)
		for len(started) < most {
			pause(t.Context(), 1e6)
		}
		require.Len(t, started, most)
	}
	require.ErrorContains(t, op.Tenants().Limit(t.Context(), "t1", -1), "1 to 1000000 are allowed")
	require.NoError(t, op.Tenants().Limit(t.Context(), "t1", 0))
	b.eventually(20, "p1", flying)
	goOn()
	b.finished(n.Client(), 20)
}
