package routing_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// moved is a router on the pools p1, p2 and p3, where acme is placed in p1.
func moved(t *testing.T) (r *routing.Router, dsns map[string]string) {
	dsns = map[string]string{}
	for i := 1; i <= 3; i++ {
		name := fmt.Sprintf("p%d", i)
		dsns[name] = storetest.DSN(t, name, i)
	}
	c := withPools(dsns)
	c.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "p1", Role: "acme_app"}, "globex": {Pool: "p3", Schema: "acme"}}
	return started(t, c), dsns
}

func TestResolveFollowsAMove(t *testing.T) {
	t.Parallel()
	r, dsns := moved(t)
	row := func(pool, state, other string) {
		t.Helper()
		exec(t, dsns[pool], fmt.Sprintf("INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('acme', '%s', NULLIF('%s', '')) "+
			"ON CONFLICT (tenant_id) DO UPDATE SET state = EXCLUDED.state, other_pool = EXCLUDED.other_pool", state, other))
	}
	lives := func(pool string) {
		t.Helper()
		tenant, p, err := r.Resolve(t.Context(), "acme")
		require.NoError(t, err)
		require.Equal(t, poolOf(t, r, pool), p)
		require.Equal(t, tenancy.Tenant{ID: "acme", Pool: pool, Schema: "acme", Role: "acme_app"}, tenant)
	}
	lives("p1")
	row("p1", "moving", "p2")
	row("p2", "arriving", "p1")
	row("p1", "moved", "p2")
	lives("p1") // as it was known
	r.Forget("acme")
	lives("p2")
	row("p2", "active", "")
	row("p2", "moving", "p1") // back
	row("p1", "arriving", "p2")
	r.Forget("acme")
	lives("p2")
	row("p2", "moved", "p1")
	r.Forget("acme")
	lives("p1")
	row("p1", "moved", "p2")
	row("p2", "moved", "p3")
	r.Forget("acme")
	lives("p3")

	// Where it was known to be it is while the database cannot say.
	s := shutterOf(t, dsns["p1"])
	s.close(t)
	r.Forget("acme")
	lives("p3")
	s.open(t)

	row("p3", "moved", "p1")
	for range 2 {
		r.Forget("acme")
		if _, _, err := r.Resolve(t.Context(), "acme"); err != nil {
			require.ErrorContains(t, err, "was moved in a circle")
			break
		}
	}
	row("p3", "active", "")
	row("p2", "moved", "p9")
	require.Eventually(t, func() bool {
		r.Forget("acme")
		_, _, err := r.Resolve(t.Context(), "acme")
		return err != nil && err.Error() == `tenant "acme" has moved from pool "p2" to pool "p9", which is not configured: add it under pools`
	}, patience, 50*time.Millisecond)
}

func TestPlaceIn(t *testing.T) {
	t.Parallel()
	r, _ := moved(t)
	place, err := r.PlaceIn(t.Context(), "acme", "p2")
	require.NoError(t, err)
	require.Equal(t, tenancy.Tenant{ID: "acme", Pool: "p2", Schema: "acme", Role: "acme_app"}, place)
	_, err = r.PlaceIn(t.Context(), "acme", "p3")
	require.EqualError(t, err, `schema "acme" of tenant "acme" is tenant "globex"'s in pool p3: give each its own schema`)
	_, err = r.PlaceIn(t.Context(), "initech", "p3")
	require.ErrorIs(t, err, tenancy.ErrUnknownTenant)
}
