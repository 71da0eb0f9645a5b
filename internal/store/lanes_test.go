package store_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// A look goes through so many lanes, lists a few of each tenant's, others each time, and says where the next
// one is to go on.
func TestLooksForLanes(t *testing.T) {
	t.Parallel()
	b := setup(t)
	for _, sql := range []string{
		"INSERT INTO tenure.job (tenant_id, queue, priority, kind, payload) SELECT 'many', 'q' || n, n % 3, 'k', '{}' FROM generate_series(100, 199) n",
		"INSERT INTO tenure.job (tenant_id, queue, priority, kind, payload) SELECT 'rests', 'r' || n, 0, 'k', '{}' FROM generate_series(100, 149) n",
		"INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('rests', true)",
		"INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('few', 'q150', 'k', '{}'), ('few', 'z', 'k', '{}')",
	} {
		_, err := b.owner.Exec(t.Context(), sql)
		require.NoError(t, err)
	}
	look := func(l store.LaneLook) (tenants map[string]int, lanes map[store.Lane]bool, next store.Lane) {
		found, err := store.LookForLanes(t.Context(), b.db, l)
		require.NoError(t, err)
		tenants, lanes = map[string]int{}, map[store.Lane]bool{}
		for _, lane := range found.Lanes {
			tenants[lane.Tenant]++
			lanes[lane] = true
		}
		return tenants, lanes, found.Next
	}
	tenants, _, next := look(store.LaneLook{Most: 1000, EachTenant: 10})
	require.Equal(t, map[string]int{"many": 10, "few": 2}, tenants)
	require.Zero(t, next)

	seen := map[store.Lane]bool{}
	for tries := 0; len(seen) < 102; tries++ {
		require.Less(t, tries, 1000, "each is listed in the end")
		_, lanes, _ := look(store.LaneLook{Most: 1000, EachTenant: 10})
		for lane := range lanes {
			seen[lane] = true
		}
	}

	at, looks := store.Lane{}, []int{}
	clear(seen)
	for {
		_, lanes, next := look(store.LaneLook{Most: 60, EachTenant: 100, Behind: at})
		for lane := range lanes {
			require.False(t, seen[lane], "twice")
			seen[lane] = true
		}
		looks = append(looks, len(lanes))
		if at = next; at == (store.Lane{}) {
			break
		}
	}
	require.Equal(t, []int{60, 41, 1}, looks, "those that rest are gone through, too, and not listed")
}
