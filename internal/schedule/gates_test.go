package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func kindLimit(tenant, kind string, most, rate, burst int) store.Limit {
	l := store.Limit{LimitKey: store.LimitKey{Tenant: tenant, Scope: store.ScopeKind, Name: kind}, Most: most, Rate: rate, Burst: burst}
	if rate > 0 {
		l.Per = time.Second
	}
	return l
}

func waitingJob(id int, kind string) store.Waiting {
	return store.Waiting{Record: job.Record{ID: job.ID(id), Turn: 1, Tenant: "t", Queue: "q", Kind: kind}}
}

// Whatever is claimed and ends, at whatever times, however often another term begins with what the
// ledger says, and wherever the tenant has been meanwhile: no more are in flight than the limit says, no
// more are claimed in any time than the rate gives, and a lane that was refused is read on as soon as there
// is something for it.
func TestGatesModel(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		limit := kindLimit("", "k", rapid.IntRange(0, 4).Draw(t, "most"), rapid.IntRange(0, 5).Draw(t, "rate"), rapid.IntRange(1, 4).Draw(t, "burst"))
		if limit.Most == 0 && limit.Rate == 0 {
			limit.Most = 1
		}
		now := time.Unix(0, 0)
		f := NewInFlight()
		gs, lanes := NewGates(f), newLanes()
		ledger := map[store.LimitKey]time.Time{} // when buckets are full
		flying := map[job.ID]bool{}
		var claims []time.Time
		read := func() store.LimitState { // of the ledger
			s := store.LimitState{Limits: []store.Limit{limit}, Flying: []store.LimitedRuns{{Tenant: "t", Queue: "q", Kind: "k"}}}
			for id := range flying {
				s.Flying[0].IDs, s.Flying[0].Turns = append(s.Flying[0].IDs, id), append(s.Flying[0].Turns, 1)
			}
			for k, full := range ledger {
				if full.After(now) {
					s.Buckets = append(s.Buckets, store.Bucket{LimitKey: k, FullIn: full.Sub(now)})
				}
			}
			return s
		}
		begin := func() {
			f = NewInFlight()
			gs, lanes = NewGates(f), newLanes()
			for id := range flying {
				f.Add(id, 1)
			}
			gs.Set(read(), now)
			lanes.SeeKind(lanes.See(store.Lane{Tenant: "t", Queue: "q"}), "k", 1)
		}
		begin()
		for next := 1; next < 60; next++ {
			switch rapid.IntRange(0, 9).Draw(t, "what") {
			case 0:
				if limit.Rate == 0 || rapid.Bool().Draw(t, "anew") {
					begin()
					continue
				}
				// The tenant has been in another pool, where some were claimed, and has brought along what is left.
				elsewhere := NewGates(NewInFlight())
				elsewhere.Set(read(), now)
				for tokensAt(limit, claims, now) > 0 {
					claims = append(claims, now)
					elsewhere.NoteClaimed(now, waitingJob(0, "k"))
				}
				for k, g := range elsewhere.byKey {
					ledger[k] = g.full
				}
				gs.Set(read(), now)
			case 1, 2:
				now = now.Add(time.Duration(rapid.IntRange(0, 700).Draw(t, "ms")) * time.Millisecond)
			case 3, 4:
				for id := range flying {
					delete(flying, id)
					f.End(id, 1)
					break
				}
			default:
				gs.BeginPage()
				gs.Reopen(now, lanes, NewKeys(NewInFlight(), lanes))
				lane := lanes.Find(store.Lane{Tenant: "t", Queue: "q"}).ofKind("k")
				free := (limit.Most == 0 || len(flying) < limit.Most) && tokensAt(limit, claims, now) > 0
				require.False(t, free && lane.parked, "a lane waits only as long as it has to")
				left, by := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
				require.Equal(t, free, left > 0)
				if left == 0 {
					if !lane.parked {
						by.Park(lane)
					}
					continue
				}
				require.False(t, lane.parked)
				n := rapid.IntRange(1, min(left, 6)).Draw(t, "n")
				var jobs []store.Waiting
				for i := range n {
					jobs = append(jobs, waitingJob(100*next+i, "k"))
				}
				each := func(yield func(*job.Record) bool) {
					for i := range jobs {
						if !yield(&jobs[i].Record) {
							return
						}
					}
				}
				for _, b := range gs.Spend(now, each) {
					ledger[b.LimitKey] = now.Add(b.FullIn)
				}
				for _, j := range jobs {
					f.Add(j.Record.ID, 1)
					flying[j.Record.ID] = true
					claims = append(claims, now)
				}
				gs.NoteClaimed(now, jobs...)
				if limit.Most > 0 {
					require.LessOrEqual(t, len(flying), limit.Most)
				}
				if limit.Rate > 0 {
					for i, from := range claims {
						most := float64(limit.Burst) + float64(limit.Rate)*now.Sub(from).Seconds()
						require.LessOrEqual(t, float64(len(claims)-i), most+1e-6)
					}
				}
			}
		}
	})
}

// tokensAt is how many tokens are there after claims at these times.
func tokensAt(l store.Limit, claims []time.Time, now time.Time) int {
	if l.Rate == 0 {
		return 1
	}
	var full time.Time
	for _, at := range claims {
		if full.Before(at) {
			full = at
		}
		full = full.Add(l.Tokens(1))
	}
	return int((l.Tokens(l.Burst) - max(full.Sub(now), 0)) / l.Tokens(1))
}

// What a page may take is reserved, and free again with the next page; a lane that was refused for
// what was only reserved does not wait for an end that never comes.
func TestGatesReserve(t *testing.T) {
	t.Parallel()
	gs, lanes, now := NewGates(NewInFlight()), newLanes(), time.Now()
	gs.Set(store.LimitState{Limits: []store.Limit{kindLimit("t", "k", 2, 0, 0)}}, now)
	gs.Reserve(Passer{Tenant: "t", Queue: "q", Kind: "k"}, 2)
	_, by := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
	require.NotNil(t, by)
	require.Empty(t, gs.CountWaitedFor())
	l := lanes.See(store.Lane{Tenant: "t", Queue: "q"})
	by.Park(l)
	require.True(t, gs.AnyParked())
	require.Equal(t, map[LimitName]int{{store.ScopeKind, "k"}: 1}, gs.CountWaitedFor())
	gs.BeginPage()
	gs.Reopen(now, lanes, NewKeys(NewInFlight(), lanes))
	require.False(t, gs.AnyParked())
	require.Empty(t, gs.CountWaitedFor())
	require.True(t, l.active)
	left, _ := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
	require.Equal(t, 2, left)
}

// A lane or key that was refused for want of a token is told when the next one comes, of several the first; also
// once that has changed.
func TestGatesSayWhenTheNextTokenComes(t *testing.T) {
	t.Parallel()
	gs, lanes, now := NewGates(NewInFlight()), newLanes(), time.Unix(0, 0)
	limits := []store.Limit{kindLimit("t", "slow", 0, 1, 2), kindLimit("t", "fast", 0, 10, 1)}
	gs.Set(store.LimitState{Limits: limits}, now)
	require.Zero(t, gs.NextToken())
	gs.NoteClaimed(now, waitingJob(1, "slow"), waitingJob(2, "slow"), waitingJob(3, "fast"))
	require.Zero(t, gs.NextToken(), "nobody asks for one")
	ask := func(kind string) int {
		left, _ := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: kind}, now)
		return left
	}
	require.Zero(t, ask("slow"))
	require.Equal(t, now.Add(time.Second), gs.NextToken())
	require.Zero(t, ask("fast"))
	require.Equal(t, now.Add(time.Second/10), gs.NextToken())
	now = now.Add(time.Second / 10)
	require.Equal(t, 1, ask("fast"))
	gs.NoteClaimed(now, waitingJob(4, "fast")) // before it was found by time
	gs.Reopen(now, lanes, NewKeys(NewInFlight(), lanes))
	require.Equal(t, now.Add(time.Second/10), gs.NextToken())
	now = now.Add(time.Second)
	gs.Reopen(now, lanes, NewKeys(NewInFlight(), lanes))
	require.Zero(t, gs.NextToken())
	require.Equal(t, []int{1, 1}, []int{ask("slow"), ask("fast")})
}

// Keys that wait for a gate are woken as it lets them pass: another one as soon as it has turned out that
// nothing is to be claimed for the last, and none while one waits for room. So no key waits for a sweep.
func TestGatesWakeTheNextKey(t *testing.T) {
	t.Parallel()
	for what, limit := range map[string]store.Limit{"in flight": kindLimit("t", "k", 1, 0, 0), "a rate": kindLimit("t", "k", 0, 1, 1)} {
		f, now, lanes := NewInFlight(), time.Now(), newLanes()
		gs, ks := NewGates(f), NewKeys(f, lanes)
		gs.Set(store.LimitState{Limits: []store.Limit{limit}}, now)
		claim := func(id int) {
			f.Add(job.ID(id), 1)
			gs.NoteClaimed(now, waitingJob(id, "k"))
		}
		take := func() []store.Key { return ks.Take("t", 9) }
		claim(1)
		for i := range 5 {
			ks.See(store.Key{Tenant: "t", Name: fmt.Sprint(i)}, int64(i+1))
		}
		_, by := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
		waits := take()
		for _, k := range waits {
			by.ParkKey(ks, k)
		}
		require.Len(t, waits, 5)
		next := func(wakes bool) {
			t.Helper()
			require.Equal(t, wakes, gs.MayWake(now, ks), what)
			gs.BeginPage()
			gs.Reopen(now, lanes, ks)
			require.Equal(t, wakes, ks.HasReady(), what)
		}
		next(false)
		f.End(1, 1)
		now = now.Add(time.Second)
		gs.Reopen(now, lanes, ks)
		for i, settle := range []func(store.Key){ks.Rest, ks.Forget, ks.Pause} {
			require.Equal(t, waits[i:i+1], take(), what)
			settle(waits[i])
			next(true)
		}
		require.Equal(t, waits[3:4], take(), what)
		ks.PutBack(waits[3])
		gs.BeginPage()
		require.False(t, gs.MayWake(now, ks), what)
		gs.Reopen(now, lanes, ks)
		require.Equal(t, waits[3:4], take(), what)
		ks.Hold(waits[3], Run{2, 1}, false)
		claim(2)
		next(false)
		require.Equal(t, 1, gs.parked)
		f.End(2, 1)
		now = now.Add(time.Second)
		gs.Reopen(now, lanes, ks)
		require.Equal(t, waits[4:], take(), what)
		require.False(t, gs.MayWake(now, ks), what)
		require.False(t, gs.AnyParked(), what)

		// One that was refused what is reserved for another one waits for that.
		ks.PutBack(waits[4])
		claim(3)
		_, by = gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
		by.ParkKey(ks, take()[0])
		f.End(3, 1)
		now = now.Add(time.Second)
		gs.BeginPage()
		gs.Reopen(now, lanes, ks)
		gs.Reserve(Passer{Tenant: "t", Queue: "q", Kind: "k"}, 1)
		_, by = gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
		by.ParkKey(ks, take()[0])
		require.False(t, gs.MayWake(now, ks), what)
	}
}

// What a tenant has of its own, a number or a rate, goes before that of each tenant; and a limit that
// is lifted lets those pass that wait for it.
func TestGatesOfEachTenant(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	gs, lanes, now := NewGates(f), newLanes(), time.Now()
	left := func(tenant string) int {
		n, _ := gs.CountLeft(Passer{Tenant: tenant, Queue: "q", Kind: "k"}, now)
		return n
	}
	require.Equal(t, Any, left("t"))
	limits := []store.Limit{kindLimit("", "k", 9, 1, 7), kindLimit("t", "k", 3, 0, 0), kindLimit("u", "k", 0, 1, 2)}
	gs.Set(store.LimitState{Limits: limits}, now)
	require.False(t, gs.Differ(limits))
	require.Equal(t, []int{3, 2, 7}, []int{left("t"), left("u"), left("v")})
	var taken []store.Waiting
	for i := range 3 {
		taken = append(taken, waitingJob(i, "k"))
		f.Add(job.ID(i), 1)
	}
	gs.NoteClaimed(now, taken...)
	_, by := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
	l := lanes.See(store.Lane{Tenant: "t", Queue: "q"})
	by.Park(l)
	require.True(t, gs.Differ(limits[:1]))
	gs.Set(store.LimitState{}, now)
	gs.Reopen(now, lanes, NewKeys(NewInFlight(), lanes))
	require.True(t, l.active)
	require.Equal(t, Any, left("t"))
	// It is set anew: what was claimed under no limit is in flight by what the ledger says.
	gs.Set(store.LimitState{Limits: limits[1:2], Flying: []store.LimitedRuns{{Tenant: "t", Queue: "q", Kind: "k", IDs: []job.ID{0, 1, 5}, Turns: []int32{1, 1, 1}}}}, now)
	require.Equal(t, 1, left("t"), "of these, 5 has ended since")
	f.Add(0, 2) // it has come back before its end was heard of
	require.Equal(t, 2, left("t"))
}

// Each exclusive key has its own tokens: of what was set for it, or else for each key of its tenant, for it
// in every tenant, or for each key of every one. A job without a key needs none.
func TestGatesOfKeys(t *testing.T) {
	t.Parallel()
	gs, now := NewGates(NewInFlight()), time.Now()
	limit := func(tenant, key string, burst int) store.Limit {
		return store.Limit{LimitKey: store.LimitKey{Tenant: tenant, Scope: store.ScopeKey, Name: key}, Rate: 1, Per: time.Second, Burst: burst}
	}
	left := func(tenant, key string) int {
		n, _ := gs.CountLeft(Passer{Tenant: tenant, Queue: "q", Kind: "k", Key: key}, now)
		return n
	}
	gs.Set(store.LimitState{Limits: []store.Limit{limit("t", "a", 2), limit("t", "", 3), limit("", "b", 4), limit("", "", 5)}}, now)
	require.Equal(t, []int{2, 3, 3, 5, 4, 5}, []int{left("t", "a"), left("t", "b"), left("t", "c"), left("u", "a"), left("u", "b"), left("u", "c")})
	require.Equal(t, Any, left("t", ""))
	j := waitingJob(1, "k")
	j.Record.ExclusiveKey = "c"
	of := func(yield func(*job.Record) bool) { yield(&j.Record) }
	require.Equal(t, []store.Bucket{{LimitKey: store.LimitKey{Tenant: "t", Scope: store.ScopeKey, Name: "c"}, FullIn: time.Second}}, gs.Spend(now, of))
	gs.NoteClaimed(now, j)
	require.Equal(t, []int{2, 3, 2}, []int{left("t", "a"), left("t", "b"), left("t", "c")})
	require.False(t, gs.Counts(&j.Record), "that one is in flight at most is the key's doing")
	gs.ForgetIdle(now.Add(time.Hour))
	require.Empty(t, gs.byKey)
}

// A run that has ended in a claim of a peer's which goes on, as it was made before there was a limit,
// is asked for and not counted any more; neither is one that the ledger does not list when limits are
// read again.
func TestGatesForgetWhatHasEndedUntold(t *testing.T) {
	t.Parallel()
	f, now, peer := NewInFlight(), time.Now(), uuid.New()
	gs := NewGates(f)
	for id := range job.ID(3) {
		f.Assign(7, peer, id, 1)
	}
	f.Assign(8, peer, 3, 1)
	flying := store.LimitedRuns{Tenant: "t", Queue: "q", Kind: "k", IDs: []job.ID{0, 1, 2, 3}, Turns: []int32{1, 1, 1, 1}}
	s := store.LimitState{Limits: []store.Limit{kindLimit("t", "k", 4, 0, 0)}, Flying: []store.LimitedRuns{flying}}
	left := func() int {
		n, _ := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
		return n
	}
	gs.Set(s, now)
	require.Zero(t, left())
	require.ElementsMatch(t, []Run{{0, 1}, {1, 1}, {2, 1}}, f.ListUntold(gs.ListCounted()), "a peer tells of a claim that has one job")
	f.EndUntold(Run{1, 1})
	require.Equal(t, 1, left())
	_, jobs := f.ListAssigned()
	require.ElementsMatch(t, []int32{3, 1}, jobs, "as the ledger lists them")
	require.Zero(t, f.CountHere())
	require.False(t, f.CompareAssigned([]store.Standing{{ID: 7, Jobs: []job.ID{0, 1, 2}}, {ID: 8}}))
	require.ElementsMatch(t, []Run{{0, 1}, {2, 1}}, f.ListUntold(gs.ListCounted()))

	s.Flying[0].IDs, s.Flying[0].Turns = []job.ID{0, 3}, []int32{1, 1}
	gs.Set(s, now)
	require.Equal(t, 2, left())
	f.EndAssigned(7)
	require.Equal(t, 3, left())
	f.EndAssigned(8)
	require.Equal(t, 4, left())
	require.False(t, f.Any())
	require.Zero(t, f.CountHere())
}

// More keys wait for a gate than are remembered: once it has let those pass that are, a sweep is asked
// for, and not before. A key that was looked up and refused again stands in the list once.
func TestGatesAskForKeysThatWereForgotten(t *testing.T) {
	t.Parallel()
	const keys = maxResting + 5
	f, now, lanes := NewInFlight(), time.Now(), newLanes()
	gs, ks := NewGates(f), NewKeys(f, lanes)
	set := func(most int, flying ...job.ID) {
		s := store.LimitState{Limits: []store.Limit{kindLimit("t", "k", most, 0, 0)}, Flying: []store.LimitedRuns{{Tenant: "t", Queue: "q", Kind: "k"}}}
		for _, id := range flying {
			f.Add(id, 1)
			s.Flying[0].IDs, s.Flying[0].Turns = append(s.Flying[0].IDs, id), append(s.Flying[0].Turns, 1)
		}
		gs.Set(s, now)
	}
	refuse := func() {
		_, by := gs.CountLeft(Passer{Tenant: "t", Queue: "q", Kind: "k"}, now)
		for _, k := range ks.Take("t", keys) {
			by.ParkKey(ks, k)
		}
	}
	set(2, 1, 2)
	for i := range keys {
		ks.See(store.Key{Tenant: "t", Name: fmt.Sprint(i)}, int64(i+1))
	}
	refuse()
	ks.WakeResting(maxResting) // a sweep does
	require.Equal(t, maxResting, ks.CountReady("t"))
	refuse()
	require.Equal(t, maxResting+1, gs.parked, "each key once, and that some were forgotten")
	f.End(1, 1)
	require.False(t, gs.Reopen(now, lanes, ks))
	require.Equal(t, 1, ks.CountReady("t"))
	set(keys+1, 2)
	require.True(t, gs.Reopen(now, lanes, ks))
	require.Equal(t, maxResting, ks.CountReady("t"))
	require.False(t, gs.AnyParked())
	set(keys+2, 2)
	require.False(t, gs.Reopen(now, lanes, ks), "it was asked for")
}

// Of a kind with a limit each job is read once, in order, and no other one: whatever is read when,
// stands behind a cursor, or is committed late.
// A job of such a kind that is committed behind the lane's cursor, but beyond what was seen of its kind, was gone by like any other.
func TestALateJobBeyondWhatItsKindHasSeen(t *testing.T) {
	t.Parallel()
	lanes := newLanes()
	l := lanes.See(store.Lane{Tenant: "t", Queue: "q"})
	l.Advance(10)
	lanes.SeeKind(l, "limited", 10)
	l.Advance(30)
	require.Equal(t, []store.KindEnd{{Kind: "limited", After: 9, UpTo: 10}}, lanes.ListKinds()[l.Lane])
	lanes.Rewind(map[store.Lane]int64{l.Lane: 20}, false)
	require.EqualValues(t, 19, l.Cursor())
}

func TestAKindIsReadByItself(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		lanes := newLanes()
		key := store.Lane{Tenant: "t", Queue: "q"}
		stock := map[int64]string{}
		taken := map[int64]bool{}
		var last int64
		main := lanes.See(key)
		main.SetHome(nil)
		waiting := func(kind string, after, upTo int64) (out []int64) {
			for at, k := range stock {
				if !taken[at] && at > after && at <= upTo && (kind == "" || k == kind) {
					out = append(out, at)
				}
			}
			slices.Sort(out)
			return out
		}
		read := func(n int) {
			portions := lanes.Plan(places(n), time.Now())
			for _, p := range portions {
				l, upTo := p.Lane, int64(1<<62)
				if l.Kind != "" {
					upTo = l.UpTo()
				}
				page := waiting(l.Kind, l.Cursor(), upTo)
				page = page[:min(len(page), p.Places)]
				for _, at := range page {
					l.Advance(at)
					switch {
					case l.Kind != "":
						require.Equal(t, l.Kind, stock[at])
						taken[at] = true
					case stock[at] == "limited":
						lanes.SeeKind(l, "limited", at)
					default:
						taken[at] = true
					}
				}
				l.MarkRead(l.Cursor(), len(page) >= p.Places)
			}
			lanes.DropInactive()
		}
		lookBack := func() {
			for _, at := range waiting("", 0, 1<<62) {
				apart := slices.ContainsFunc(lanes.ListKinds()[key], func(e store.KindEnd) bool { return e.Kind == stock[at] && at > e.After && at <= e.UpTo })
				if !apart {
					lanes.Rewind(map[store.Lane]int64{key: at}, true)
					return
				}
			}
		}
		for range 40 {
			switch rapid.IntRange(0, 4).Draw(t, "what") {
			case 0, 1:
				for range rapid.IntRange(1, 6).Draw(t, "n") {
					last += int64(rapid.IntRange(1, 2).Draw(t, "gap"))
					stock[last] = rapid.SampledFrom([]string{"limited", "other"}).Draw(t, "kind")
				}
				lanes.See(key)
			case 2:
				at := int64(rapid.IntRange(1, int(last)+1).Draw(t, "late"))
				if _, ok := stock[at]; !ok {
					stock[at] = "limited"
					lookBack()
				}
			default:
				read(rapid.IntRange(1, 4).Draw(t, "page"))
			}
		}
		lookBack()
		lanes.See(key)
		for range 4 * (len(stock) + 10) {
			read(3)
		}
		require.Empty(t, waiting("", 0, 1<<62), fmt.Sprint(stock))
	})
}

// What is frozen is parked when it is come upon, and read again once it is thawed and not before: whoever looks, and
// whatever tokens come. All else goes on, of the same tenant and in the same lane.
func TestWhatIsFrozenIsNotReadAgain(t *testing.T) {
	t.Parallel()
	gs, lanes, now := NewGates(NewInFlight()), newLanes(), time.Now()
	ks := NewKeys(NewInFlight(), lanes)
	frozen := func(scope store.Scope, name string) store.Limit {
		return store.Limit{LimitKey: store.LimitKey{Scope: scope, Name: name}, Most: store.NoneAtAll}
	}
	rate := store.Limit{LimitKey: store.LimitKey{Tenant: "t", Scope: store.ScopeQueue, Name: "mail"}, Rate: 1, Per: time.Second, Burst: 1}
	gs.Set(store.LimitState{Limits: []store.Limit{frozen(store.ScopeFrozenQueue, "mail"), frozen(store.ScopeFrozenKind, "sms"), rate}}, now)
	require.Equal(t, []bool{true, true, false}, []bool{gs.LimitKind("t", "sms"), gs.LimitKind("u", "sms"), gs.LimitKind("t", "k")})
	look := func() {
		for _, tenant := range []string{"t", "u"} {
			lanes.See(store.Lane{Tenant: tenant, Queue: "mail"})
			lanes.SeeKind(lanes.See(store.Lane{Tenant: tenant, Queue: "other"}), "sms", 7)
		}
	}
	read := func() (out []string) {
		gs.BeginPage()
		gs.Reopen(now, lanes, ks)
		for lanes.HasWork() || gs.MayWake(now, ks) {
			for _, p := range lanes.Plan(places(9), now) {
				left, by := gs.CountLeft(Passer{Tenant: p.Lane.Tenant, Queue: p.Lane.Queue, Kind: p.Lane.Kind}, now)
				if left == 0 {
					by.Park(p.Lane)
					continue
				}
				out = append(out, p.Lane.Tenant+" "+p.Lane.Queue+" "+p.Lane.Kind)
				p.Lane.MarkRead(7, false)
			}
			lanes.DropInactive()
		}
		return out
	}
	for range 3 {
		look()
		require.ElementsMatch(t, []string{"t other ", "u other "}, read())
		require.Equal(t, map[LimitName]int{{store.ScopeFrozenQueue, "mail"}: 1, {store.ScopeFrozenKind, "sms"}: 1}, gs.CountWaitedFor())
		require.Zero(t, gs.NextToken())
		now = now.Add(time.Hour)
		gs.ForgetIdle(now)
		require.Empty(t, read())
	}
	require.False(t, gs.MayAdd(Passer{Tenant: "v", Queue: "mail", Kind: "k"}, now))
	require.False(t, gs.MayPass(Passer{Tenant: "v", Queue: "other", Kind: "sms"}, now))
	require.True(t, gs.MayAdd(Passer{Tenant: "t", Queue: "other", Kind: "k"}, now))
	require.Empty(t, gs.ListShares(), "it is no share of a limit")

	gs.Set(store.LimitState{Limits: []store.Limit{frozen(store.ScopeFrozenQueue, "mail")}}, now)
	require.ElementsMatch(t, []string{"t other sms", "u other sms"}, read())
	gs.Set(store.LimitState{}, now)
	require.ElementsMatch(t, []string{"t mail ", "u mail "}, read())
	require.False(t, gs.AnyParked())
}
