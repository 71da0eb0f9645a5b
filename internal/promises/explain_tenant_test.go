package promises_test

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Of a tenant whose work waits it is said why: the first true reason, and what to do.
func TestExplainTenant(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 2, 1)
	c := b.client(b.named("client"))
	op := c.Operator()
	ctx := tenancy.For(t.Context(), "t1")
	why := func(reason operate.WaitReason, parts ...string) {
		t.Helper()
		e, err := op.Tenants().Explain(t.Context(), "t1")
		require.NoError(t, err)
		require.Equal(t, reason, e.Reason, "%s", e.Text)
		require.Equal(t, "p1", e.Pool)
		for _, p := range parts {
			require.Contains(t, e.Text+"\n"+e.Advice, p)
		}
	}
	add := func(opts ...tenure.Option) {
		t.Helper()
		_, err := c.Enqueue(ctx, plain{1}, opts...)
		require.NoError(t, err)
	}
	why(operate.WaitsForHolder, "pool p1")
	require.NoError(t, op.Tenants().Limit(t.Context(), "t1", 1)) // before a term begins, which learns of it then
	r, started, goOn := blocked(b)
	n := b.start(b.named("a"), r)
	n.holds("p1")
	why(operate.WaitsNot, "no job waits")
	b.exec("p1", "INSERT INTO tenure.suspended_job (tenant_id, queue, kind, payload, origin) VALUES ('t1', 'default', 'plain', '{}', 'job')")
	why(operate.WaitsForResume, "1 job is suspended")
	add(tenure.In(time.Hour))
	why(operate.WaitsUntilDue, "due at", "tenure jobs why ID")
	add(tenure.External())
	why(operate.WaitsForWorker, "1 job waits")
	b.exec("p1", "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('t1', 'default', 'unknown', '{}')")
	why(operate.WaitsForHandler, "kind unknown")
	add()
	require.Eventually(t, func() bool { return len(started) > 0 }, patience, time.Millisecond)
	add()
	why(operate.WaitsForMaxRunning, "1 job is in flight of the 1", "--max-running 2")
	require.NoError(t, op.Tenants().Limit(t.Context(), "t1", 0))
	add(tenure.Exclusive("k"))
	add(tenure.Exclusive("k")) // waits while that one runs
	require.Eventually(t, func() bool { return len(started) == 3 }, patience, time.Millisecond)
	why(operate.WaitsForKey, "2 jobs wait, such as job ", `its exclusive key "k" is held by job`)
	require.NoError(t, op.Tenants().LimitWaiting(t.Context(), "t1", 2))
	require.Eventually(t, func() bool {
		e, err := op.Tenants().Explain(t.Context(), "t1")
		return err == nil && e.Reason == operate.WaitsForQuota
	}, patience, time.Millisecond)
	why(operate.WaitsForQuota, "refused: 2 jobs may wait or run", "--max-waiting 4; tenure audit --action limit")
	require.NoError(t, op.Tenants().Freeze(t.Context(), "t1"))
	why(operate.WaitsForTenant, "tenure tenants thaw t1")
	require.NoError(t, op.Pools().Freeze(t.Context(), "p1"))
	why(operate.WaitsForPool, "tenure pools thaw p1")
	goOn()

	cfg, proxy := b.behind(b.named("cut-off"), "p1")
	cut := b.client(cfg)
	proxy.Close()
	e, err := cut.Operator().Tenants().Explain(t.Context(), "t1")
	require.NoError(t, err)
	require.Equal(t, operate.WaitsForDatabase, e.Reason)
	_, err = op.Tenants().Explain(t.Context(), "nobody")
	require.ErrorIs(t, err, tenure.ErrUnknownTenant)
}
