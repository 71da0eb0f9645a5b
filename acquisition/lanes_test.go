package acquisition

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

func laneOf(tenant string, priority int16) store.Lane {
	return store.Lane{Queue: "default", Tenant: tenant, Priority: priority}
}

// stock is what waits in each lane, for tests that play the ledger.
type stock map[store.Lane]int

// round plans n places and reads as the ledger would answer; it returns what each
// tenant got.
func (s stock) round(ls *lanes, n int) map[string]int {
	got := map[string]int{}
	for _, p := range ls.plan(n) {
		took := min(p.quota, s[p.lane.Lane])
		s[p.lane.Lane] -= took
		got[p.lane.Tenant] += took
		p.lane.read(p.lane.after+int64(took), took >= p.quota)
	}
	ls.settle()
	return got
}

func TestLanesShareEqually(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	for i := range 7 {
		l := laneOf(fmt.Sprint(i), 0)
		s[l] = 1000
		ls.see(l)
	}
	total := map[string]int{}
	for round := range 30 {
		got := s.round(ls, 100)
		sum := 0
		for _, n := range got {
			require.InDelta(t, 100.0/7, n, 1, "round %d", round)
			sum += n
		}
		require.Equal(t, 100, sum)
		for tenant, n := range got {
			total[tenant] += n
		}
	}
	for tenant, n := range total {
		require.InDelta(t, 3000.0/7, n, 15, "%s: whose turn it is to get one more goes round", tenant)
	}
}

func TestLanesWithFewerPlacesThanTenants(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	for i := range 10 {
		l := laneOf(fmt.Sprint(i), 0)
		s[l] = 100
		ls.see(l)
	}
	got := map[string]int{}
	for range 10 {
		for tenant, n := range s.round(ls, 3) {
			require.Equal(t, 1, n)
			got[tenant]++
		}
	}
	for i := range 10 {
		require.Equal(t, 3, got[fmt.Sprint(i)], "all have had their turn as often")
	}
	require.Empty(t, ls.plan(0))
	require.Empty(t, newLanes().plan(100))
	require.False(t, newLanes().hasWork())
}

// What one tenant cannot use goes to the others at once.
func TestLanesConserveWork(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	s[laneOf("poor", 0)], s[laneOf("rich", 0)] = 5, 10_000
	ls.see(laneOf("poor", 0))
	ls.see(laneOf("rich", 0))
	require.Equal(t, map[string]int{"poor": 5, "rich": 50}, s.round(ls, 100))
	require.Equal(t, map[string]int{"rich": 100}, s.round(ls, 100))
}

func TestLanesHigherPriorityFirst(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	for _, p := range []int16{0, -32768, 32767, 7} {
		s[laneOf("a", p)] = 10
		ls.see(laneOf("a", p))
	}
	var order []int16
	for ls.hasWork() {
		p := ls.plan(10)
		require.Len(t, p, 1)
		order = append(order, p[0].lane.Priority)
		p[0].lane.read(10, false)
		ls.settle()
		if len(order) == 2 { // a new one comes in above
			ls.see(laneOf("a", 9))
		}
	}
	require.Equal(t, []int16{32767, 7, 9, 0, -32768}, order)
}

// Queues of one priority take turns: one that is never empty does not starve another.
func TestLanesOfOnePriorityTakeTurns(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	queues := []string{"mail", "billing", "reports"}
	for _, q := range queues {
		ls.see(store.Lane{Queue: q, Tenant: "a"})
	}
	ls.see(store.Lane{Queue: "slow", Tenant: "a", Priority: -1})
	got := map[string]int{}
	for range 30 {
		p := ls.plan(10)
		got[p[0].lane.Queue]++
		p[0].lane.read(p[0].lane.after+10, true) // there is always more
		ls.settle()
	}
	require.Equal(t, map[string]int{"mail": 10, "billing": 10, "reports": 10}, got)
}

func TestLanesRewindForget(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	a, b, idle := ls.see(laneOf("a", 0)), ls.see(laneOf("b", 0)), ls.see(laneOf("idle", 0))
	a.read(100, true)
	b.read(50, false)
	idle.read(10, false)
	ls.settle()
	require.Len(t, ls.active, 1)

	ls.rewind(map[store.Lane]int64{a.Lane: 41, b.Lane: 50, idle.Lane: 11, laneOf("unknown", 0): 1}, false)
	require.EqualValues(t, 40, a.after)
	require.EqualValues(t, 49, b.after)
	require.EqualValues(t, 10, idle.after, "it was not read that far")
	require.True(t, a.active && b.active && !idle.active)
	require.Len(t, ls.active, 2, "each tenant once")
	require.Len(t, ls.byKey, 3)

	a.read(30, true)
	require.EqualValues(t, 40, a.after, "a cursor goes forward only")
	a.read(90, true)
	ls.rewind(map[store.Lane]int64{a.Lane: 41}, false)
	require.EqualValues(t, 90, a.after, "for one job once")
	ls.rewind(map[store.Lane]int64{a.Lane: 41}, true)
	require.EqualValues(t, 40, a.after)
	ls.forget(2)
	require.Len(t, ls.byKey, 3, "not the first time")
	ls.see(idle.Lane)
	idle.read(10, false)
	ls.settle()
	ls.forget(2)
	require.Len(t, ls.byKey, 3, "it was active since")
	ls.forget(2)
	require.Len(t, ls.byKey, 2, "only what has nothing behind its cursor is dropped")
	require.NotContains(t, ls.tenant, "idle")
	require.Zero(t, ls.see(laneOf("idle", 0)).after, "seen again it begins at its start")
	require.ElementsMatch(t, []store.Lane{a.Lane, b.Lane}, ls.beyond(39))
	require.ElementsMatch(t, []store.Lane{b.Lane}, ls.beyond(40))

	ls.restart()
	require.Empty(t, ls.beyond(0))
	require.Len(t, ls.active, 3)
}

// A tenant is dropped with its last lane, its place with it.
func TestLanesForgetKeepsWhatOthersUse(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	high, low := ls.see(laneOf("a", 1)), ls.see(laneOf("a", 0))
	high.read(1, false)
	ls.settle()
	ls.forget(1)
	require.Len(t, ls.byKey, 2, "the tenant still waits for its turn")
	low.read(1, false)
	ls.settle()
	ls.forget(1)
	require.Empty(t, ls.byKey)
	require.Empty(t, ls.tenant)
}

// The invariants, whatever happens in whatever order: a tenant with an active lane is
// in the round once, one without is not after settling; nobody is passed over for
// longer than one round; everything that was seen is read to its end.
func TestLanesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ls, s := newLanes(), stock{}
		drawLane := func() store.Lane {
			return store.Lane{
				Queue:    rapid.SampledFrom([]string{"q", "r"}).Draw(t, "queue"),
				Tenant:   rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(t, "tenant"),
				Priority: int16(rapid.IntRange(-1, 1).Draw(t, "priority")),
			}
		}
		t.Repeat(map[string]func(*rapid.T){
			"enqueue": func(t *rapid.T) {
				l := drawLane()
				s[l] += rapid.IntRange(1, 30).Draw(t, "jobs")
				ls.see(l)
			},
			"round": func(t *rapid.T) {
				n := rapid.IntRange(1, 40).Draw(t, "places")
				before := slices.Clone(ls.active)
				for i, p := range s.roundOf(ls, n) {
					require.Same(t, before[i], p.lane.owner, "in turn")
				}
			},
			"rewind": func(t *rapid.T) {
				ls.rewind(map[store.Lane]int64{drawLane(): rapid.Int64Range(1, 50).Draw(t, "position")}, rapid.Bool().Draw(t, "always"))
			},
			"forget": func(t *rapid.T) { ls.forget(rapid.IntRange(1, 3).Draw(t, "times")) },
			"": func(t *rapid.T) {
				in := map[*tenantLanes]int{}
				for _, tl := range ls.active {
					in[tl]++
				}
				for name, tl := range ls.tenant {
					active := slices.ContainsFunc(tl.lanes, func(l *lane) bool { return l.active })
					require.Equal(t, active, tl.waiting, name)
					want := 0
					if active {
						want = 1
					}
					require.Equal(t, want, in[tl], name)
					require.True(t, slices.IsSortedFunc(tl.lanes, func(a, b *lane) int { return int(b.Priority) - int(a.Priority) }))
				}
				require.Len(t, ls.active, len(in))
				for l, n := range s {
					if n > 0 {
						require.True(t, ls.byKey[l] != nil && ls.byKey[l].active, "%v holds %d jobs and is not read", l, n)
					}
				}
			},
		})
		for range 1000 {
			if !ls.hasWork() {
				break
			}
			s.roundOf(ls, 20)
		}
		for l, n := range s {
			require.Zero(t, n, "%v was not read to its end", l)
		}
		require.False(t, ls.hasWork())
	})
}

// roundOf is round, but tells the portions.
func (s stock) roundOf(ls *lanes, n int) []portion {
	plan := ls.plan(n)
	for _, p := range plan {
		took := min(p.quota, s[p.lane.Lane])
		s[p.lane.Lane] -= took
		p.lane.read(p.lane.after+int64(took), took >= p.quota)
	}
	ls.settle()
	return plan
}

// BenchmarkLanesPlan plans for many tenants; a claim of 2,000 jobs is one plan.
func BenchmarkLanesPlan(b *testing.B) {
	for _, tenants := range []int{100, 10_000} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			ls := newLanes()
			for i := range tenants {
				ls.see(laneOf(fmt.Sprint(i), 0))
			}
			b.ReportAllocs()
			for b.Loop() {
				ls.plan(2000)
				ls.settle()
			}
		})
	}
}
