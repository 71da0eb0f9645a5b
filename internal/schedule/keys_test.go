package schedule

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func keyNamed(name string) store.Key { return store.Key{Tenant: "t-" + name[:1], Name: name} }

// keyedQueue is the jobs of a ledger that have exclusive keys, and what a term does about them.
type keyedQueue struct {
	lanes   *Lanes
	keys    *Keys
	flight  *InFlight
	waiting map[store.Key][]job.ID // in order; the first may be in flight
	retries map[store.Key]job.ID   // waits for its next attempt
	unread  []store.Key            // jobs that no page has shown yet
	flying  map[store.Key]Run
	order   map[store.Key][]job.ID // in which they ended
	added   map[store.Key][]job.ID
	last    job.ID
}

// read reads what was added, as a page of its lane would.
func (q *keyedQueue) read(n int) {
	for range min(n, len(q.unread)) {
		q.keys.See(q.unread[0], 1)
		q.unread = q.unread[1:]
	}
}

// claim looks keys up and claims what is first under each.
func (q *keyedQueue) claim(t require.TestingT, n int, room bool) {
	var keys []store.Key
	for _, p := range q.lanes.Plan(places(n), time.Now()) {
		keys = append(keys, q.keys.Take(p.Tenant, p.Heads)...)
	}
	require.LessOrEqual(t, len(keys), n)
	for _, k := range keys {
		jobs := q.waiting[k]
		_, retrying := q.retries[k]
		switch {
		case len(jobs) == 0:
			q.keys.Forget(k)
		case retrying:
			q.keys.Rest(k)
		case !room:
			q.keys.PutBack(k)
		default:
			require.NotContains(t, q.flying, k, "two jobs with one key are in flight")
			run := Run{jobs[0], 1}
			q.flying[k] = run
			q.flight.Add(run.ID, run.Turn)
			q.keys.Hold(k, run, len(jobs) > 1)
		}
	}
	q.lanes.DropInactive()
}

func (q *keyedQueue) end(k store.Key) (id job.ID) {
	run := q.flying[k]
	delete(q.flying, k)
	q.waiting[k] = q.waiting[k][1:]
	q.flight.End(run.ID, run.Turn)
	return run.ID
}

// Whatever happens, of the jobs with a key one is in flight at most, they end in the order in
// which they were added, and none is forgotten.
func TestKeysModel(t *testing.T) {
	t.Parallel()
	ended := 0
	defer func() { require.NotZero(t, ended) }()
	rapid.Check(t, func(t *rapid.T) {
		f := NewInFlight()
		lanes := newLanes()
		q := &keyedQueue{lanes: lanes, keys: NewKeys(f, lanes), flight: f, waiting: map[store.Key][]job.ID{}, retries: map[store.Key]job.ID{},
			flying: map[store.Key]Run{}, order: map[store.Key][]job.ID{}, added: map[store.Key][]job.ID{}}
		names := []string{"a1", "a2", "b1"}
		someKey := func(t *rapid.T) store.Key { return keyNamed(rapid.SampledFrom(names).Draw(t, "key")) }
		finish := func(k store.Key) {
			q.order[k] = append(q.order[k], q.end(k))
			ended++
		}
		retry := func(k store.Key) { // its time has come
			q.waiting[k] = slices.Insert(q.waiting[k], 0, q.retries[k])
			delete(q.retries, k)
			q.unread = append(q.unread, k)
		}
		t.Repeat(map[string]func(*rapid.T){
			"add": func(t *rapid.T) {
				k := someKey(t)
				q.last++
				q.waiting[k] = append(q.waiting[k], q.last)
				q.added[k] = append(q.added[k], q.last)
				q.unread = append(q.unread, k)
			},
			"read":  func(t *rapid.T) { q.read(rapid.IntRange(1, 5).Draw(t, "jobs")) },
			"claim": func(t *rapid.T) { q.claim(t, rapid.IntRange(1, 3).Draw(t, "keys"), rapid.Bool().Draw(t, "room")) },
			"end": func(t *rapid.T) {
				if k := someKey(t); q.flying[k] != (Run{}) {
					finish(k)
				}
			},
			"fail": func(t *rapid.T) {
				if k := someKey(t); q.flying[k] != (Run{}) {
					q.retries[k] = q.flying[k].ID
					q.end(k)
				}
			},
			"retry": func(t *rapid.T) {
				if k := someKey(t); q.retries[k] != 0 {
					retry(k)
				}
			},
			"read again": func(t *rapid.T) { // a sweep, of what is not known to wait
				waited := q.keys.ListWaited()
				for k, jobs := range q.waiting {
					if len(jobs) > 0 && !slices.Contains(waited, k) {
						q.keys.See(k, 1)
					}
				}
				q.keys.WakeResting(maxResting)
			},
		})
		for range 3 * int(q.last) {
			for _, name := range names {
				if k := keyNamed(name); q.retries[k] != 0 {
					retry(k)
				}
			}
			q.read(len(q.unread))
			q.claim(t, 3, true)
			for _, name := range names {
				if k := keyNamed(name); q.flying[k] != (Run{}) {
					finish(k)
				}
			}
		}
		for k, want := range q.added {
			require.Equal(t, want, q.order[k], "jobs of %v", k)
		}
		for _, jobs := range q.waiting {
			require.Empty(t, jobs)
		}
		require.False(t, q.keys.HasReady())
		require.False(t, lanes.HasWork())
	})
}

// Tenants take turns for their keys and their lanes alike, by weight: none has more because its jobs have
// exclusive keys, or because it has both. One that may have no more keeps its keys, and its turn.
func TestKeysAndLanesTakeTurns(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	ks := NewKeys(NewInFlight(), ls)
	ls.SetWeights(map[string]int{"t-b": 3})
	key := func(tenant string, n int) store.Key { return store.Key{Tenant: tenant, Name: fmt.Sprint(n)} }
	for n := range 1000 {
		ks.See(key("t-a", n), 1)
		ks.See(key("t-b", n), 1)
		ks.See(key("t-c", n), 1)
	}
	for _, tenant := range []string{"t-c", "t-d"} {
		s[laneOf(tenant, 0)] = 1000
		ls.See(laneOf(tenant, 0))
	}
	heads, lanes := map[string]int{}, map[string]int{}
	for _, n := range append(slices.Repeat([]int{1}, 60), 24, 7, 29) {
		space := places(n)
		space.Keys = 10_000
		for _, p := range ls.Plan(space, time.Now()) {
			heads[p.Tenant] += len(ks.Take(p.Tenant, p.Heads))
			lanes[p.Tenant] += p.Places
		}
		ls.DropInactive()
	}
	require.Equal(t, map[string]int{"t-a": 20, "t-b": 60, "t-c": 10, "t-d": 0}, heads)
	require.Equal(t, map[string]int{"t-a": 0, "t-b": 0, "t-c": 10, "t-d": 20}, lanes)
	plan := ls.Plan(Space{Calls: 6, Most: 6, Keys: 900}, time.Now())
	require.ElementsMatch(t, []string{"t-a", "t-b", "t-c", "t-d"}, tenantsOf(plan))
	for _, p := range plan {
		require.Equal(t, p.Tenant == "t-d", p.Places > 0, "the keys of %s are enough", p.Tenant)
		ls.TakeBack(p, p.Planned+p.Heads)
		if p.Tenant == "t-a" {
			ls.MarkFull(p)
		}
	}
	ls.DropInactive()
	require.NotContains(t, tenantsOf(ls.Plan(places(9), time.Now())), "t-a")
	require.Equal(t, 980, ks.CountReady("t-a"))
	ls.ReopenFull(func(tenant string, _ bool) bool { return tenant == "t-a" })
	require.Contains(t, tenantsOf(ls.Plan(places(9), time.Now())), "t-a")
}

// A head is one job and counts as one, where other jobs share calls of a hundred.
func TestHeadsCountAsOne(t *testing.T) {
	t.Parallel()
	ls, s := newLanes(), stock{}
	ks := NewKeys(NewInFlight(), ls)
	for _, tenant := range []string{"t-a", "t-b"} {
		s[laneOf(tenant, 0)] = 100_000
		ls.NoteTogether(Portion{Lane: ls.See(laneOf(tenant, 0))}, 100, 0)
	}
	for n := range 2000 {
		ks.See(store.Key{Tenant: "t-a", Name: fmt.Sprint(n)}, 1)
	}
	got := map[string]int{}
	for range 200 {
		plan := ls.Plan(Space{Calls: 4, Most: 400, Keys: 1}, time.Now())
		for _, p := range plan {
			got[p.Tenant] += len(ks.Take(p.Tenant, p.Heads)) + p.Places
		}
		ls.DropInactive()
	}
	require.Greater(t, got["t-a"], 4*got["t-b"]/100, "%v", got)
	plan := ls.Plan(places(2), time.Now())
	for _, tenant := range []string{"t-a", "t-b"} {
		ls.MarkFull(Portion{Lane: ls.See(laneOf(tenant, 0))})
	}
	ls.DropInactive()
	ls.ServeFirst(plan, map[int]bool{0: true}) // all are full by now
	require.False(t, ls.HasWork())
}

// What a tenant has no more keys for, others have in the same page; and it is forgotten once it has none.
func TestKeysThatAreFew(t *testing.T) {
	t.Parallel()
	ls := newLanes()
	ks := NewKeys(NewInFlight(), ls)
	for _, name := range []string{"a1", "b1", "b2", "b3", "b4"} {
		ks.See(keyNamed(name), 1)
	}
	heads := map[string]int{}
	for _, p := range ls.Plan(places(4), time.Now()) {
		heads[p.Tenant] = p.Heads
		for _, k := range ks.Take(p.Tenant, 9) {
			ks.Forget(k)
		}
	}
	require.Equal(t, map[string]int{"t-a": 1, "t-b": 3}, heads)
	ls.DropInactive()
	require.False(t, ls.HasWork())
	ls.ForgetIdle(1)
	require.Empty(t, ls.tenant)
}

func tenantsOf(plan []Portion) (tenants []string) {
	for _, p := range plan {
		tenants = append(tenants, p.Tenant)
	}
	return tenants
}

// A key that stood in two claims, as an earlier program made them, is free once both are over.
func TestAKeyIsFreeOnceNobodyHoldsIt(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	ks := NewKeys(f, newLanes())
	f.Begin([]store.Claim{{ID: 1, Jobs: []job.ID{1}}, {ID: 2, Jobs: []job.ID{2}}})
	ks.Hold(keyNamed("a1"), Run{1, 0}, true)
	ks.Hold(keyNamed("a1"), Run{2, 0}, true)
	f.RefreshOlder([]store.Claim{{ID: 2, Jobs: []job.ID{2}}})
	require.False(t, ks.HasReady())
	f.RefreshOlder(nil)
	require.True(t, ks.HasReady())
}

// A key is free once the run has ended that holds it, and a limit counts it no more, while the claim
// from before the term goes on listing it for the sake of another job.
func TestAnEndFreesItsKeyWhileItsOlderClaimGoesOn(t *testing.T) {
	t.Parallel()
	f := NewInFlight()
	ks, gs := NewKeys(f, newLanes()), NewGates(f)
	claims := []store.Claim{{ID: 1, Jobs: []job.ID{1, 2}}}
	f.Begin(claims)
	ks.Hold(keyNamed("a1"), Run{1, 0}, true)
	gs.Set(store.LimitState{
		Limits: []store.Limit{{LimitKey: store.LimitKey{Tenant: "t-a", Scope: store.ScopeTenant}, Most: 3}},
		Flying: []store.LimitedRuns{{Tenant: "t-a", IDs: []job.ID{1, 2}, Turns: []int32{0, 0}}},
	}, time.Now())
	require.Equal(t, []Run{{1, 0}}, f.ListUntold(ks.ListHolding()))
	require.ElementsMatch(t, []Run{{1, 0}, {2, 0}}, f.ListUntold(gs.ListCounted()))
	f.End(1, 1)
	require.False(t, ks.HasReady(), "it is another turn that has ended")
	f.End(1, 0)
	require.True(t, ks.HasReady())
	for range 2 { // it goes on to list both
		require.False(t, f.RefreshOlder(claims))
		require.False(t, f.Has(1, 0))
		require.True(t, f.Has(2, 0))
	}
	left, _ := gs.CountLeft(Passer{Tenant: "t-a"}, time.Now())
	require.Equal(t, 2, left)
	require.Empty(t, f.ListUntold(ks.ListHolding()))
	require.True(t, f.RefreshOlder(nil))
	require.Empty(t, f.over)
}

// A paused key is looked up once its tenant's lanes are found, and what rests beyond the bound is
// forgotten, to be found by a sweep.
func TestKeysArePausedAndRest(t *testing.T) {
	t.Parallel()
	ks := NewKeys(NewInFlight(), newLanes())
	ks.See(keyNamed("a1"), 1)
	ks.Pause(ks.Take("t-a", 1)[0])
	require.False(t, ks.HasReady())
	ks.WakePaused("t-b")
	require.False(t, ks.HasReady())
	ks.WakePaused("t-a")
	require.True(t, ks.HasReady())
	ks.See(keyNamed("a2"), 1)
	ks.PauseAll("t-a")
	require.False(t, ks.HasReady())
	ks.WakePaused("t-a")
	require.Equal(t, 2, ks.CountReady("t-a"))
	require.Zero(t, ks.resting)
	ks.PauseAll("t-a")
	require.False(t, ks.Any(), "a pool may doze that has only those")
	ks.WakePaused("t-a")
	require.True(t, ks.Any())
	for _, leave := range []func(store.Key){ks.Rest, ks.Pause} {
		k := ks.Take("t-a", 1)[0]
		ks.resting = maxResting
		leave(k)
		require.NotContains(t, ks.ListWaited(), k, "so that a sweep finds it")
	}
	require.False(t, ks.Any())
}

// A key is looked up from where its last job was found, but from its start if there is none, and once
// a second.
func TestKeysAreLookedUpFromTheLastHead(t *testing.T) {
	t.Parallel()
	ks, k, now := NewKeys(NewInFlight(), newLanes()), keyNamed("a1"), time.Now()
	take := func() { require.Equal(t, []store.Key{k}, ks.Take("t-a", 1)) }
	ks.See(k, 7)
	take()
	require.Zero(t, ks.BeginLookUp(k, now, time.Second))
	ks.NoteHead(k, 7)
	ks.PutBack(k)
	take()
	require.EqualValues(t, 7, ks.BeginLookUp(k, now, time.Second))
	ks.LookUpAll(k)
	take()
	require.Zero(t, ks.BeginLookUp(k, now, time.Second))
	ks.NoteHead(k, 9)
	require.EqualValues(t, 9, ks.BeginLookUp(k, now.Add(time.Second-1), time.Second))
	require.Zero(t, ks.BeginLookUp(k, now.Add(time.Second), time.Second))
	require.EqualValues(t, 9, ks.BeginLookUp(k, now.Add(time.Second+1), time.Second))
	for seen, from := range map[int64]int64{12: 9, 4: 4} {
		ks.NoteHead(k, 9)
		ks.See(k, seen)
		require.Equal(t, from, ks.BeginLookUp(k, now.Add(time.Second+1), time.Second))
	}
}
