package schedule

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// jain is Jain's index of what each got for its weight: 1 if all got the same.
func jain(got map[string]int, weights map[string]int) float64 {
	sum, squares := 0.0, 0.0
	for tenant, n := range got {
		x := float64(n) / float64(max(weights[tenant], 1))
		sum, squares = sum+x, squares+x*x
	}
	return sum * sum / (float64(len(got)) * squares)
}

// Tenants that have much to do share by weight, however many places there are at a time; other weights
// hold from the next turn on, for what waits already.
func TestTenantsShareByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ls, s := newLanes(), stock{}
		tenants := rapid.IntRange(2, 300).Draw(t, "tenants") // and so more than share a page
		for i := range tenants {
			l := laneOf(fmt.Sprint(i), 0)
			s[l] = 1_000_000
			ls.See(l)
		}
		places := rapid.SliceOfN(rapid.IntRange(1+tenants/10, 2000), 1, 9).Draw(t, "places") // page by page
		if rapid.Bool().Draw(t, "few") {
			places = []int{1 + tenants/10}
		}
		for range 2 {
			weights, all := map[string]int{}, 0
			for i := range tenants {
				w := rapid.IntRange(1, 9).Draw(t, "weight")
				if all += w; w > 1 {
					weights[fmt.Sprint(i)] = w
				}
			}
			ls.SetWeights(maps.Clone(weights))
			got, claimed := map[string]int{}, 0
			for i := 0; claimed < 20*all; i++ {
				for tenant, n := range s.round(ls, places[i%len(places)]) {
					got[tenant] += n
					claimed += n
				}
			}
			require.Len(t, got, tenants)
			require.GreaterOrEqual(t, jain(got, weights), 0.99, "%v of %v", got, weights)
		}
	})
}

// Of more tenants than share a page some have many turns in a large one, and wait until the others have
// had as many.
func TestTurnsCountWhateverThePage(t *testing.T) {
	t.Parallel()
	ls, s, got := newLanes(), stock{}, map[string]int{}
	for i := range mostTenants + 44 {
		l := laneOf(fmt.Sprint(i), 0)
		s[l] = 1_000_000
		ls.See(l)
	}
	for i := range 100 {
		for tenant, n := range s.round(ls, []int{8 * mostTenants, 44}[i%2]) {
			got[tenant] += n
		}
	}
	require.Len(t, got, mostTenants+44)
	for tenant, n := range got {
		require.InDelta(t, 50*(8*mostTenants+44)/len(got), n, 9, tenant)
	}
}

// What a tenant of much weight cannot use goes to the others at once.
func TestWeightsConserveWork(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{laneOf("heavy", 0): 5, laneOf("light", 0): 10_000}
	ls.SetWeights(map[string]int{"heavy": 9})
	ls.See(laneOf("heavy", 0))
	ls.See(laneOf("light", 0))
	require.Equal(t, 9, ls.WeightOf("heavy"))
	require.Equal(t, 1, ls.WeightOf("light"))
	require.Equal(t, map[string]int{"heavy": 5, "light": 10}, s.round(ls, 100))
	require.Equal(t, map[string]int{"light": 100}, s.round(ls, 100))
}

// runs are tenants of whose jobs so many may share a call, each with more to do than is ever claimed.
func runs(together map[string]int) (*Lanes, stock) {
	ls, s := newLanes(), stock{}
	for _, tenant := range slices.Sorted(maps.Keys(together)) {
		l := laneOf(tenant, 0)
		s[l] = 1_000_000
		ls.NoteTogether(Portion{Lane: ls.See(l)}, together[tenant], 0)
	}
	return ls, s
}

// A tenant whose jobs share calls has as many of them at a turn as one call may have, and no more jobs than others
// in the end, whatever shares calls of theirs and whatever the page; the jobs of a call have one place together.
func TestTurnsOfSharedCalls(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		together, weights := map[string]int{}, map[string]int{}
		for i := range rapid.IntRange(2, 100).Draw(t, "tenants") {
			together[fmt.Sprint(i)] = rapid.SampledFrom([]int{1, 7, 100}).Draw(t, "together")
			weights[fmt.Sprint(i)] = rapid.IntRange(1, 3).Draw(t, "weight")
		}
		ls, s := runs(together)
		ls.SetWeights(maps.Clone(weights))
		calls := rapid.IntRange(1, 50).Draw(t, "calls")
		got, claimed := map[string]int{}, 0
		for claimed < 2000*len(together) {
			used, jobs := 0, 0
			for _, p := range s.pageOf(ls, Space{Calls: calls, Most: 2000}) {
				of := p.Lane.Together()
				used += (p.Places + of - 1) / of
				jobs += p.Places
				got[p.Lane.Tenant] += p.Places
			}
			require.LessOrEqual(t, used, calls)
			require.True(t, used == calls || jobs >= mostShared, "a page is full: %d of %d calls, %d jobs", used, calls, jobs)
			claimed += jobs
		}
		require.GreaterOrEqual(t, jain(got, weights), 0.99, "%v of %v", got, weights)
	})
}

// What a tenant's turn has no jobs for it has again at once, for other jobs of its.
func TestWhatATurnDoesNotUseIsNotCharged(t *testing.T) {
	t.Parallel()
	ls, s := runs(map[string]int{"a": 100, "b": 100, "c": 100})
	got := map[string]int{}
	for range 300 {
		s[laneOf("a", 1)] = 10
		ls.See(laneOf("a", 1))
		for _, p := range s.pageOf(ls, Space{Calls: 1, Most: 2000}) {
			got[p.Lane.Tenant] += p.Places
		}
	}
	require.GreaterOrEqual(t, jain(got, nil), 0.99, "%v", got)
}

// A page is full by what tenants have, as those before had, not by what a call may have.
func TestAPageHasManyTenantsThatHaveFew(t *testing.T) {
	t.Parallel()
	const each = 30
	together := map[string]int{}
	for i := range 200 {
		together[fmt.Sprint(i)] = 100
	}
	ls, s := runs(together)
	for l := range s {
		s[l] = each
	}
	jobs := 0
	for range 10 {
		jobs = 0
		for _, p := range s.pageOf(ls, places(2000)) {
			jobs += p.Places
		}
	}
	require.InDelta(t, mostShared, jobs, 3*each)
}

// Beside very many tenants that stand next, each with calls of a hundred jobs, one that comes new waits for as many
// jobs as if they had one each.
func TestWhoComesNewDoesNotWaitForSharedCalls(t *testing.T) {
	t.Parallel()
	together := map[string]int{}
	for i := range 1000 {
		together[fmt.Sprint(i)] = 100
	}
	ls, s := runs(together)
	s.pageOf(ls, Space{Calls: 5, Most: 2000})
	s[laneOf("new", 0)] = 1
	ls.See(laneOf("new", 0))
	before := 0
	for {
		for _, p := range s.pageOf(ls, Space{Calls: 5, Most: 2000}) {
			if p.Lane.Tenant == "new" {
				require.LessOrEqual(t, before, 1000)
				return
			}
			before += p.Places
		}
	}
}

// A tenant that has a few jobs now and then is soon served beside those with long calls, and has no more than they
// have, however often it comes.
func TestWhoComesAgainHasItsShare(t *testing.T) {
	t.Parallel()
	together := map[string]int{"again": 100}
	for i := range 100 {
		together[fmt.Sprint(i)] = 100
	}
	ls, s := runs(together)
	s[laneOf("again", 0)] = 0
	got := map[string]int{}
	for range 5000 {
		s[laneOf("again", 0)] = 7
		ls.See(laneOf("again", 0))
		for _, p := range s.pageOf(ls, Space{Calls: 5, Most: 2000}) {
			got[p.Lane.Tenant] += p.Places
		}
	}
	require.LessOrEqual(t, got["again"], got["1"], "%v", got)
	require.Greater(t, got["again"], got["1"]/2, "%v", got)
}
