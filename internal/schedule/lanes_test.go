package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
)

func laneOf(tenant string, priority int16) store.Lane {
	return store.Lane{Queue: "default", Tenant: tenant, Priority: priority}
}

// step is how long a lane of newLanes must have been passed over to gain a priority.
const step = 10 * time.Second

func newLanes() *Lanes { return NewLanes(&QueueConfig{AgeEvery: step}) }

// places is the space of a page for so many jobs here.
func places(n int) Space { return Space{Calls: n, Most: n} }

// stock is what waits in each lane, for tests that play the ledger.
type stock map[store.Lane]int

// roundOf plans n places, reads as the ledger would answer and claims all of it; it returns
// what each lane got.
func (s stock) roundOf(ls *Lanes, n int) []Portion { return s.roundAt(ls, n, time.Time{}.Add(1)) }

// roundAt is roundOf at a time.
func (s stock) roundAt(ls *Lanes, n int, now time.Time) []Portion {
	return s.claim(ls, ls.Plan(places(n), now), now)
}

// pageOf is roundOf for a page.
func (s stock) pageOf(ls *Lanes, space Space) []Portion {
	now := time.Time{}.Add(1)
	return s.claim(ls, ls.Plan(space, now), now)
}

func (s stock) claim(ls *Lanes, plan []Portion, now time.Time) []Portion {
	for i := range plan {
		p := &plan[i]
		took := min(p.Places, s[p.Lane.Lane])
		s[p.Lane.Lane] -= took
		p.Lane.MarkRead(p.Lane.after+int64(took), took >= p.Places)
		ls.NoteTogether(*p, p.Lane.Together(), took)
		ls.TakeBack(*p, p.Planned-took)
		for range took {
			p.Lane.Charge(time.Millisecond, now)
		}
		p.Places = took
	}
	ls.DropInactive()
	return plan
}

// round is roundOf, but tells what each tenant got.
func (s stock) round(ls *Lanes, n int) map[string]int {
	got := map[string]int{}
	for _, p := range s.roundOf(ls, n) {
		got[p.Lane.Tenant] += p.Places
	}
	return got
}

func TestLanesShareEqually(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	for i := range 7 {
		l := laneOf(fmt.Sprint(i), 0)
		s[l] = 1000
		ls.See(l)
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
		ls.See(l)
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
	require.Empty(t, ls.Plan(places(0), time.Now()))
	require.Empty(t, newLanes().Plan(places(100), time.Now()))
	require.False(t, newLanes().HasWork())
}

// What one tenant cannot use goes to the others at once.
func TestLanesConserveWork(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	s[laneOf("poor", 0)], s[laneOf("rich", 0)] = 5, 10_000
	ls.See(laneOf("poor", 0))
	ls.See(laneOf("rich", 0))
	require.Equal(t, map[string]int{"poor": 5, "rich": 50}, s.round(ls, 100))
	require.Equal(t, map[string]int{"rich": 100}, s.round(ls, 100))
}

func TestLanesHigherPriorityFirst(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	for _, p := range []int16{0, -32768, 32767, 7} {
		s[laneOf("a", p)] = 10
		ls.See(laneOf("a", p))
	}
	var order []int16
	for ls.HasWork() {
		p := ls.Plan(places(10), time.Now())
		require.Len(t, p, 1)
		order = append(order, p[0].Lane.Priority)
		p[0].Lane.MarkRead(10, false)
		ls.DropInactive()
		if len(order) == 2 { // a new one comes in above
			ls.See(laneOf("a", 9))
		}
	}
	require.Equal(t, []int16{32767, 7, 9, 0, -32768}, order)
}

// inQueue is a lane of tenant a.
func inQueue(queue string, priority int16) store.Lane {
	return store.Lane{Queue: queue, Tenant: "a", Priority: priority}
}

// Queues of a tenant share its part by weight, whatever the priorities in them.
func TestQueuesShareByWeight(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		c := &QueueConfig{Weights: map[string]int{}, AgeEvery: step}
		ls, s := NewLanes(c), stock{}
		weights, queues := 0, rapid.IntRange(2, 6).Draw(t, "queues")
		for i := range queues {
			q := fmt.Sprint(i)
			w := rapid.IntRange(1, 5).Draw(t, "weight")
			if w > 1 {
				c.Weights[q] = w
			}
			weights += w
			l := inQueue(q, int16(rapid.IntRange(-3, 3).Draw(t, "priority")))
			s[l] = 1_000_000
			ls.See(l)
		}
		got, all := map[string]int{}, 0
		most := rapid.IntRange(1, 20).Draw(t, "places")
		for range 30 * weights {
			for _, p := range s.roundOf(ls, rapid.IntRange(1, most).Draw(t, "n")) {
				got[p.Lane.Queue] += p.Places
				all += p.Places
			}
		}
		for q, n := range got {
			require.InDelta(t, float64(all)*float64(c.weightOf(q))/float64(weights), n, float64(2*most*6), "queue %s of %v", q, c.Weights)
		}
		require.Len(t, got, queues)
	})
}

// Another weight holds from the next claim on.
func TestWeightsChange(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{inQueue("mail", 0): 10_000, inQueue("reports", 0): 10_000}
	for l := range s {
		ls.See(l)
	}
	count := func() map[string]int {
		got := map[string]int{}
		for range 100 {
			for _, p := range s.roundOf(ls, 1) {
				got[p.Lane.Queue] += p.Places
			}
		}
		return got
	}
	require.Equal(t, map[string]int{"mail": 50, "reports": 50}, count())
	ls.Configure(&QueueConfig{Weights: map[string]int{"mail": 4}, AgeEvery: step})
	require.InDelta(t, 80, count()["mail"], 1)
	ls.Configure(&QueueConfig{AgeEvery: step})
	require.InDelta(t, 50, count()["mail"], 1)
}

// What a queue's jobs take counts, not how many they are.
func TestQueuesShareTime(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	takes := map[string]time.Duration{"mail": time.Millisecond, "reports": time.Second}
	for q := range takes {
		ls.See(inQueue(q, 0))
	}
	got := map[string]time.Duration{}
	for range 100_000 {
		p := ls.Plan(places(1), time.Now())[0]
		p.Lane.Charge(takes[p.Lane.Queue], time.Now())
		got[p.Lane.Queue] += takes[p.Lane.Queue]
	}
	require.InDelta(t, got["mail"], got["reports"], float64(time.Second))
}

// A queue that had nothing to do has its turn at once when it has, and no more than its share
// from then on; one whose jobs were read and could not be claimed keeps its turn.
func TestQueuesSaveNothingUp(t *testing.T) {
	t.Parallel()
	reports := inQueue("reports", -5)
	ls, s := newLanes(), stock{inQueue("mail", 0): 10_000, reports: 1}
	for l := range s {
		ls.See(l)
	}
	for range 1000 {
		s.roundOf(ls, 1)
	}
	s[reports] = 1000
	l := ls.See(reports)
	require.Same(t, l, ls.Plan(places(1), time.Now())[0].Lane, "it has had nothing yet")
	require.Same(t, l, ls.Plan(places(1), time.Now())[0].Lane, "and nothing of it was claimed")
	got := map[string]int{}
	for range 100 {
		for _, p := range s.roundOf(ls, 1) {
			got[p.Lane.Queue] += p.Places
		}
	}
	require.InDelta(t, 50, got["reports"], 1)
}

// However much there is of higher priorities, a lane's turn comes once it has been passed over
// for a step per priority that it is behind, and a turn of each other lane.
func TestPrioritiesAge(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		ls, now := newLanes(), time.Now()
		highest := int16(-10)
		since := map[*Lane]time.Time{}
		for _, p := range rapid.SliceOfNDistinct(rapid.Int16Range(-10, 10), 2, 8, rapid.ID[int16]).Draw(t, "priorities") {
			l := ls.See(inQueue("q", p))
			since[l] = now
			highest = max(highest, p)
		}
		longest := time.Second
		for range 800 {
			p := ls.Plan(places(1), now)[0] // there is always more in each
			p.Lane.MarkRead(p.Lane.after+1, true)
			p.Lane.Charge(time.Millisecond, now)
			since[p.Lane] = now
			for l, at := range since {
				if bound := time.Duration(highest-l.Priority)*step + time.Duration(len(since))*longest; now.Sub(at) > bound {
					t.Fatalf("priority %d was passed over for %v, longer than %v", l.Priority, now.Sub(at), bound)
				}
			}
			now = now.Add(time.Duration(rapid.Int64Range(0, int64(longest)).Draw(t, "pause")))
		}
	})
}

// What has been passed over has one turn, and then the higher priorities again; what comes
// new into a lane that was empty has not been passed over yet.
func TestPrioritiesStayPriorities(t *testing.T) {
	t.Parallel()
	high, low := inQueue("q", 1), inQueue("q", 0)
	ls, s, now := newLanes(), stock{high: 1_000_000, low: 2}, time.Now()
	ls.See(high)
	ls.See(low)
	turns := func(seconds int) (low []int) {
		for i := range seconds {
			for _, p := range s.roundAt(ls, 1, now) {
				if p.Lane.Priority == 0 && p.Places > 0 {
					low = append(low, i)
				}
			}
			now = now.Add(time.Second)
		}
		return low
	}
	require.Equal(t, []int{12, 24}, turns(25))
	turns(60) // it is found empty
	s[low] = 1
	ls.See(low)
	require.Equal(t, []int{12}, turns(20))
}

// What was passed over, read in its turn and not claimed as there was no room, is next when it
// is read again.
func TestAMissedLaneKeepsItsAge(t *testing.T) {
	t.Parallel()
	ls, now := newLanes(), time.Now()
	high, low := ls.See(inQueue("q", 1)), ls.See(inQueue("q", 0))
	require.Same(t, high, ls.Plan(places(1), now)[0].Lane)
	now = now.Add(step + time.Millisecond)
	high.Charge(time.Millisecond, now)
	require.Same(t, low, ls.Plan(places(1), now)[0].Lane)
	ls.NoteMissed(low, 7, "k", true)
	low.MarkRead(7, false)
	ls.DropInactive()
	ls.See(low.Lane) // and others come in
	ls.RereadMissed(MissedHere)
	require.Same(t, low, ls.Plan(places(1), now)[0].Lane)
}

// Where what is read is claimed by itself, much is read though little may be claimed; else no more than
// that.
func TestManyAreReadWhereFewAreClaimed(t *testing.T) {
	t.Parallel()
	l := newLanes().See(laneOf("a", 0))
	require.Equal(t, 1, l.CountToRead(1))
	l.NoteApart(1, 1, time.Now())
	require.Equal(t, apartLeast, l.CountToRead(1))
	require.Equal(t, 100*apartPages, l.CountToRead(100))
	l.NoteApart(1, 3, time.Now())
	require.Equal(t, 1, l.CountToRead(1))
}

func TestLanesRewindForget(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	a, b, idle := ls.See(laneOf("a", 0)), ls.See(laneOf("b", 0)), ls.See(laneOf("idle", 0))
	a.MarkRead(100, true)
	b.MarkRead(50, false)
	idle.MarkRead(10, false)
	ls.DropInactive()
	require.Len(t, ls.active, 1)

	ls.Rewind(map[store.Lane]int64{a.Lane: 41, b.Lane: 50, idle.Lane: 11, laneOf("unknown", 0): 1}, false)
	require.EqualValues(t, 40, a.after)
	require.EqualValues(t, 49, b.after)
	require.EqualValues(t, 10, idle.after, "it was not read that far")
	require.True(t, a.active && b.active && !idle.active)
	require.Len(t, ls.active, 2, "each tenant once")
	require.Len(t, ls.byKey, 3)

	a.MarkRead(30, true)
	require.EqualValues(t, 40, a.after, "a cursor goes forward only")
	a.MarkRead(90, true)
	ls.Rewind(map[store.Lane]int64{a.Lane: 41}, false)
	require.EqualValues(t, 90, a.after, "for one job once")
	ls.Rewind(map[store.Lane]int64{a.Lane: 41}, true)
	require.EqualValues(t, 40, a.after)
	ls.ForgetIdle(2)
	require.Len(t, ls.byKey, 3, "not the first time")
	ls.See(idle.Lane)
	idle.MarkRead(10, false)
	ls.DropInactive()
	ls.ForgetIdle(2)
	require.Len(t, ls.byKey, 3, "it was active since")
	ls.ForgetIdle(2)
	require.Len(t, ls.byKey, 2, "only what has nothing behind its cursor is dropped")
	require.NotContains(t, ls.tenant, "idle")
	require.Zero(t, ls.See(laneOf("idle", 0)).after, "seen again it begins at its start")
	require.ElementsMatch(t, []store.Lane{a.Lane, b.Lane}, ls.ListReadBeyond(39))
	require.ElementsMatch(t, []store.Lane{b.Lane}, ls.ListReadBeyond(40))
}

// A tenant is dropped with its last lane, its place with it.
func TestLanesForgetKeepsWhatOthersUse(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	high, low := ls.See(laneOf("a", 1)), ls.See(laneOf("a", 0))
	high.MarkRead(1, false)
	ls.DropInactive()
	ls.ForgetIdle(1)
	require.Len(t, ls.byKey, 2, "the tenant still waits for its turn")
	low.MarkRead(1, false)
	ls.DropInactive()
	ls.ForgetIdle(1)
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
				ls.See(l)
			},
			"round": func(t *rapid.T) {
				n := rapid.IntRange(1, 40).Draw(t, "places")
				before := slices.Clone(ls.active)
				for i, p := range s.roundOf(ls, n) {
					require.Same(t, before[i], p.Lane.owner, "in turn")
				}
			},
			"rewind": func(t *rapid.T) {
				ls.Rewind(map[store.Lane]int64{drawLane(): rapid.Int64Range(1, 50).Draw(t, "position")}, rapid.Bool().Draw(t, "always"))
			},
			"forget": func(t *rapid.T) { ls.ForgetIdle(rapid.IntRange(1, 3).Draw(t, "times")) },
			"": func(t *rapid.T) {
				in := map[*tenantLanes]int{}
				for _, tl := range ls.active {
					in[tl]++
				}
				for name, tl := range ls.tenant {
					active := tl.firstActive() != nil
					require.Equal(t, active, tl.waiting, name)
					want := 0
					if active {
						want = 1
					}
					require.Equal(t, want, in[tl], name)
					for _, q := range tl.queues {
						require.NotEmpty(t, q.lanes)
						require.True(t, slices.IsSortedFunc(q.lanes, func(a, b *Lane) int { return int(b.Priority) - int(a.Priority) }))
					}
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
			if !ls.HasWork() {
				break
			}
			s.roundOf(ls, 20)
		}
		for l, n := range s {
			require.Zero(t, n, "%v was not read to its end", l)
		}
		require.False(t, ls.HasWork())
	})
}

// BenchmarkLanesPlan plans for many tenants; a claim of 2,000 jobs is one plan.
func BenchmarkLanesPlan(b *testing.B) {
	for _, tenants := range []int{100, 10_000} {
		b.Run(fmt.Sprint(tenants), func(b *testing.B) {
			ls := newLanes()
			for i := range tenants {
				ls.See(laneOf(fmt.Sprint(i), 0))
			}
			b.ReportAllocs()
			for b.Loop() {
				ls.Plan(places(2000), time.Now())
				ls.DropInactive()
			}
		})
	}
}

// A tenant may have any number of lanes: so many are known that each of its turns takes little time, and the
// others come when these have no more jobs.
func TestLanesOfOneTenantAreBounded(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	many := func(n int) store.Lane { return store.Lane{Queue: fmt.Sprint(n), Tenant: "many"} }
	for i := range MostLanes {
		require.NotNil(t, ls.See(many(i)))
	}
	require.False(t, ls.HasLeft())
	require.Nil(t, ls.See(many(MostLanes)))
	ls.RereadFrom(many(MostLanes+1), 7)
	require.Len(t, ls.byKey, MostLanes)
	require.True(t, ls.HasLeft())
	require.NotNil(t, ls.See(many(3)), "it is known")
	require.NotNil(t, ls.See(laneOf("few", 0)), "another's is taken in")

	waits := ls.Find(many(0))
	waits.Deactivate()
	waits.parked = true
	read := map[store.Lane]int{}
	for len(ls.active) > 0 {
		for _, p := range ls.Plan(places(10), time.Now()) {
			read[p.Lane.Lane]++
			p.Lane.MarkRead(1, false)
		}
		ls.DropInactive()
	}
	require.Len(t, read, MostLanes, "each has had its turn, but for the parked one, and the other tenant's")
	require.True(t, ls.TakeDrained(), "so that others are looked for")
	require.False(t, ls.TakeDrained())
	ls.BeginDiscovery()
	require.False(t, ls.HasLeft())
	for i := range 2 * MostLanes {
		ls.See(many(MostLanes + i))
	}
	require.Equal(t, MostLanes+1, ls.tenant["many"].lanes)
	require.NotNil(t, ls.byKey[many(0)], "it waits for its gate, and takes none of the room")
	require.True(t, ls.HasLeft())
	ls.ForgetIdle(1)
	require.Equal(t, MostLanes+1, ls.tenant["many"].lanes)

	for key, l := range ls.byKey {
		l.parked, l.active = key.Tenant == "many", false
	}
	ls.BeginDiscovery()
	for i := range 2 * mostParked {
		if l := ls.See(many(10*MostLanes + i)); l != nil {
			l.parked, l.active = true, false
		}
	}
	require.Equal(t, mostParked, ls.tenant["many"].lanes)
}

// Tenants for whose large jobs a page has no room are the next ones, each in its turn.
func TestWhatThereIsNoRoomForIsNext(t *testing.T) {
	t.Parallel()
	const tenants = 7
	ls, served := newLanes(), map[string]int{}
	for i := range tenants {
		ls.See(laneOf(fmt.Sprint("t", i), 0))
	}
	for range 3 * tenants {
		plan, left := ls.Plan(places(tenants), time.Time{}.Add(1)), map[int]bool{}
		require.NotEmpty(t, plan)
		for i := range plan {
			if i > 1 { // two fit
				plan[i].Places, left[i] = 0, true
			} else {
				served[plan[i].Lane.Tenant]++
			}
			plan[i].Lane.MarkRead(plan[i].Lane.after+int64(plan[i].Places), true)
		}
		if len(left) > 0 {
			ls.ServeFirst(plan, left)
		}
	}
	for i := range tenants {
		require.InDelta(t, 6, served[fmt.Sprint("t", i)], 1, "%v", served)
	}
}
