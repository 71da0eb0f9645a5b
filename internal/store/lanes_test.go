package store_test

import (
	"context"
	"math"
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

// The bottom is below all jobs that stand and below all that are to come, or is not known.
func TestTheBottomIsBelowAllJobs(t *testing.T) {
	t.Parallel()
	whole, rest := store.LaneLook{}, store.LaneLook{Behind: store.Lane{Queue: "q"}}
	require.EqualValues(t, 6, whole.BottomOf(store.LanesFound{Lowest: 7}, 10))
	require.EqualValues(t, 5, whole.BottomOf(store.LanesFound{Lowest: 7}, 5), "one may still appear at 6")
	require.EqualValues(t, 5, whole.BottomOf(store.LanesFound{Lowest: math.MaxInt64}, 5), "no job stands")
	require.Zero(t, whole.BottomOf(store.LanesFound{Lowest: 7, Next: rest.Behind}, 10), "there are other lanes")
	require.Zero(t, rest.BottomOf(store.LanesFound{Lowest: 7}, 10), "there were others before")
}

// TestTheBottomSparesWhatIsDead: beside an old snapshot a look for lanes reads no job's row up to the bottom that
// the lock's holder has noted. It is void in another incarnation of the database.
func TestTheBottomSparesWhatIsDead(t *testing.T) {
	t.Parallel()
	b := setup(t)
	old, err := b.owner.Begin(t.Context())
	require.NoError(t, err)
	defer func() { require.NoError(t, old.Rollback(context.WithoutCancel(t.Context()))) }()
	_, err = old.Exec(t.Context(), "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT")
	require.NoError(t, err)
	execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload) SELECT 't' || n % 10, 'q', 'k', '{}' FROM generate_series(1, 5000) n")
	execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload) VALUES ('rests', 'q', 'k', '{}')")
	execute(t, b.owner, "INSERT INTO tenure.tenant (tenant_id, frozen) VALUES ('rests', true)")
	execute(t, b.owner, "DELETE FROM tenure.job WHERE tenant_id <> 'rests'")
	look := func(l store.LaneLook) (f store.LanesFound, pages int) {
		l.Most, l.EachTenant = 100, 100
		require.NoError(t, store.Inspect(t.Context(), b.db, func(db store.DB) error {
			var before, after int
			const fetched = "SELECT pg_stat_get_xact_blocks_fetched('tenure.job'::regclass)"
			require.NoError(t, db.QueryRow(t.Context(), fetched).Scan(&before))
			f, err = store.LookForLanes(t.Context(), db, l)
			require.NoError(t, err)
			require.NoError(t, db.QueryRow(t.Context(), fetched).Scan(&after))
			pages = after - before
			return nil
		}))
		return f, pages
	}
	f, pages := look(store.LaneLook{})
	require.Greater(t, pages, 300, "each that is dead was looked at, lane by lane")
	require.EqualValues(t, 5001, f.Lowest, "its tenant rests, and it stands all the same")
	require.Empty(t, f.Lanes)
	require.Zero(t, f.Bottom)

	note := store.LaneLook{Most: 1, EachTenant: 1, Bottom: f.Lowest - 1, Fence: b.fence}
	note.Fence.Epoch--
	_, err = store.LookForLanes(t.Context(), b.db, note)
	require.NoError(t, err)
	f, _ = look(store.LaneLook{})
	require.Zero(t, f.Bottom, "who does not hold the lock notes nothing")
	note.Fence.Epoch++
	_, err = store.LookForLanes(t.Context(), b.db, note)
	require.NoError(t, err)
	f, pages = look(store.LaneLook{})
	require.EqualValues(t, 5000, f.Bottom)
	require.EqualValues(t, 5001, f.Lowest)
	require.Less(t, pages, 50)

	execute(t, b.owner, "INSERT INTO tenure.job (tenant_id, queue, kind, payload, position) VALUES ('restored', 'q', 'k', '{}', 7)")
	f, _ = look(store.LaneLook{})
	require.Empty(t, f.Lanes)
	f, _ = look(store.LaneLook{Whole: true})
	require.Equal(t, []store.Lane{{Queue: "q", Tenant: "restored"}}, f.Lanes)
	require.EqualValues(t, 7, f.Lowest)
	note.Bottom = f.Lowest - 1
	_, err = store.LookForLanes(t.Context(), b.db, note)
	require.NoError(t, err)
	f, _ = look(store.LaneLook{})
	require.EqualValues(t, 6, f.Bottom, "it is lowered")
	require.Len(t, f.Lanes, 1)

	execute(t, b.owner, "DELETE FROM tenure.incarnation")
	_, _, err = store.BeginIncarnation(t.Context(), b.db, false)
	require.NoError(t, err)
	f, _ = look(store.LaneLook{})
	require.Zero(t, f.Bottom)
}
