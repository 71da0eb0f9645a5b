package promises_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// TestTenantsShareByWeightLive: tenants that have much to do share a node's workers by weight, also where the jobs of
// one have exclusive keys; another weight holds for what waits already.
func TestTenantsShareByWeightLive(t *testing.T) {
	t.Parallel()
	b := newTestbed(t, 1, 2)
	var mu sync.Mutex
	var ran []tenancy.ID // in order
	r := b.registry(nil)
	job.Handle(r, func(ctx context.Context, j *job.Job[slow]) error {
		mu.Lock()
		ran = append(ran, tenancy.ID(j.Tenant))
		mu.Unlock()
		pause(ctx, 2*time.Millisecond)
		return ctx.Err()
	})
	cfg := b.named("a")
	cfg.Execution.Workers = 8
	cfg.Acquire.Batch = 20 // what is claimed already goes by the weights of before
	n := b.start(cfg, r)
	op := n.Client().Operator()
	var entries []tenure.Entry
	for i := range 4000 {
		e := tenure.Entry{Tenant: "t2", Args: slow{0}}
		if i%2 == 0 { // a key of its own holds up nothing
			e.Tenant, e.Options = "t1", []tenure.Option{tenure.Exclusive(fmt.Sprint(i))}
		}
		entries = append(entries, e)
	}
	_, err := n.Client().EnqueueMany(t.Context(), entries)
	require.NoError(t, err)
	share := func() float64 { // of t1, of the next so many that start, but for the first
		const first, counted = 150, 400
		mu.Lock()
		from := len(ran) + first
		mu.Unlock()
		require.Eventually(t, func() bool { mu.Lock(); defer mu.Unlock(); return len(ran) >= from+counted }, patience, time.Millisecond)
		mu.Lock()
		defer mu.Unlock()
		mine := 0
		for _, tenant := range ran[from : from+counted] {
			if tenant == "t1" {
				mine++
			}
		}
		return float64(mine) / counted
	}
	require.InDelta(t, 0.5, share(), 0.1)
	require.NoError(t, op.Tenants().SetWeight(t.Context(), "t1", 4))
	require.InDelta(t, 0.8, share(), 0.1)
	require.NoError(t, op.Tenants().SetWeight(t.Context(), "t1", 1))
	require.NoError(t, op.Tenants().SetWeight(t.Context(), "t2", 4))
	require.InDelta(t, 0.2, share(), 0.1)
	tenants, err := op.Tenants().List(t.Context())
	require.NoError(t, err)
	require.Equal(t, []operate.TenantStatus{{Tenant: "t1", Pool: "p1", State: "active", Weight: 1}, {Tenant: "t2", Pool: "p1", State: "active", Weight: 4}}, tenants)
	for _, bad := range []int{0, 101} {
		require.ErrorContains(t, op.Tenants().SetWeight(t.Context(), "t1", bad), "1 to 100 are allowed")
	}
}
