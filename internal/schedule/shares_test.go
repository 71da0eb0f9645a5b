package schedule

import (
	"fmt"
	"maps"
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
