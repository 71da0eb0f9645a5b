package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A cursor stays before the first job that a page leaves to the next one, as it had no room for it
// or more was read than may be claimed, whatever comes behind it.
func TestACursorStopsAtWhatIsLeft(t *testing.T) {
	t.Parallel()
	const keyed, plain, left, foreign = "keyed", "plain", "left", "foreign"
	for name, c := range map[string]struct {
		page   []string
		places int
		cursor int64
		picked int
	}{
		"all read":              {[]string{plain, keyed, plain}, 3, 3, 2},
		"no room for one":       {[]string{plain, left, keyed, foreign}, 9, 1, 1},
		"more than the places":  {[]string{keyed, plain, keyed, plain, keyed}, 1, 3, 1},
		"keyed ones are no use": {[]string{keyed, keyed, keyed, plain}, 1, 4, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			tm := newIdleTerm()
			key := store.Lane{Queue: "q", Tenant: "t"}
			lane := tm.lanes.See(key)
			page := store.Page{}
			for i, what := range c.page {
				j := store.Waiting{Position: int64(i + 1), Keyed: what == keyed, Left: what == left, Foreign: what == foreign}
				j.Record.Tenant, j.Record.ID = "t", 1
				if what == keyed {
					j.Record.ExclusiveKey = "k"
				}
				page.Jobs = append(page.Jobs, j)
			}
			picked, _ := tm.claimer.sortPage(page, []schedule.Portion{{Lane: lane, Places: c.places}})
			require.Equal(t, c.cursor, lane.Cursor())
			require.Len(t, picked, c.picked)
		})
	}
}

// A job of a limited kind that is too large to be run, or has lost its node, passes its limit before it
// is claimed, like any other.
func TestNoJobOfALimitedKindIsClaimedFromItsLane(t *testing.T) {
	t.Parallel()
	tm := newIdleTerm()
	lane := tm.lanes.See(store.Lane{Queue: "q", Tenant: "t"})
	tm.gates.Set(store.LimitState{Limits: []store.Limit{{LimitKey: store.LimitKey{Tenant: "t", Scope: store.ScopeKind, Name: "k"}, Most: 1}}}, time.Now())
	var page store.Page
	for i := range 3 {
		j := store.Waiting{Position: int64(i + 1), TooLarge: i == 0}
		j.Record.ID, j.Record.Tenant, j.Record.Kind = job.ID(i+1), "t", "k"
		if i == 1 {
			j.Record.Losses = 1
		}
		page.Jobs = append(page.Jobs, j)
	}
	picked, _ := tm.claimer.sortPage(page, []schedule.Portion{{Lane: lane, Places: 3}})
	require.Empty(t, picked)
	require.True(t, tm.quarantine.Empty())
	require.Equal(t, map[store.Lane][]store.KindEnd{lane.Lane: {{Kind: "k", UpTo: 3}}}, tm.lanes.ListKinds())
}

// Jobs with keys that this node has no room for, and peers no handler, are not read over and over:
// the others of their tenant wait for room here, until peers have more of it.
func TestHeadsWithoutRoomWait(t *testing.T) {
	t.Parallel()
	tm := newIdleTerm()
	tm.claimer.settings.setKinds([]string{"k"})
	c := tm.claimer
	for _, name := range []string{"a", "b", "c", "d"} {
		tm.keys.See(store.Key{Tenant: "t", Name: name}, 1)
	}
	putBack := func(here int, left bool) {
		plan := tm.lanes.Plan(schedule.Space{Calls: 2, Most: 2}, time.Now())
		require.Len(t, plan, 1)
		require.Equal(t, 2, plan[0].Heads)
		var portions []schedule.Portion
		var page store.Page
		for i, k := range tm.keys.Take("t", 2) {
			p := plan[0]
			p.Here, p.Head = here, &schedule.Head{Key: k}
			if left {
				page.Jobs = append(page.Jobs, store.Waiting{Lane: i, Left: true})
			} else {
				p.Head.Kind = "k"
			}
			portions = append(portions, p)
		}
		c.settleHeads(portions, page)
	}
	hereOnly := func() (is bool) {
		tm.lanes.ReopenFull(func(_ string, only bool) bool { is = only; return true })
		require.True(t, tm.lanes.HasWork())
		return is
	}
	putBack(0, false)
	require.False(t, tm.lanes.HasWork())
	require.True(t, hereOnly())
	putBack(1, false)
	require.False(t, tm.lanes.HasWork(), "there was room here, but not for the kind")
	require.False(t, hereOnly())
	putBack(1, true)
	require.True(t, tm.lanes.HasWork(), "the next page has room for them")
	require.Equal(t, 4, tm.keys.CountReady("t"))
}

// Tenants that may start nothing now are not tried in turns for ever, where a page has room for fewer than there are.
func TestNobodyIsTriedForEver(t *testing.T) {
	t.Parallel()
	tm := idleTerm(setup(t, nil, nil).acquirer(&fakeElector{}))
	session, err := tm.keeper.Session(t.Context())
	require.NoError(t, err)
	tm.lock.session = session
	c := tm.claimer
	c.batch, c.limits.shared = 1, c.settings.limits.Load()
	var s store.LimitState
	for i, tenant := range []string{"a", "b", "c"} {
		s.Limits = append(s.Limits, store.Limit{LimitKey: store.LimitKey{Tenant: tenant, Scope: store.ScopeTenant}, Most: 1})
		s.Flying = append(s.Flying, store.LimitedRuns{Tenant: tenant, IDs: []job.ID{job.ID(i)}, Turns: []int32{1}})
		tm.inFlight.Add(job.ID(i), 1)
		tm.keys.See(store.Key{Tenant: tenant, Name: "k"}, 1)
	}
	tm.gates.Set(s, time.Now())
	claim := func() {
		tries := 0
		for n := 1; n > 0; tries++ {
			require.Less(t, tries, 10)
			var err error
			n, err = c.claimJobs(t.Context())
			require.NoError(t, err)
		}
	}
	claim()
	claim()
	require.Equal(t, 1, tm.keys.CountReady("b"))
	tm.inFlight.End(1, 1)
	claim()
	require.Zero(t, tm.keys.CountReady("b"), "it was looked up")
	require.Equal(t, 1, tm.keys.CountReady("c"))
}

// Jobs with keys and others stand first on a page in turns, so that neither has all the room.
func TestHeadsAndLanesGoFirstInTurns(t *testing.T) {
	t.Parallel()
	tm := newIdleTerm()
	c := tm.claimer
	key := store.Lane{Queue: "q", Tenant: "t"}
	lane := tm.lanes.See(key)
	heads, lanes := []schedule.Portion{{Lane: lane, Head: &schedule.Head{}}}, []schedule.Portion{{Lane: lane}}
	first := map[bool]int{}
	for range 4 {
		joined := c.joinPortions(heads, lanes)
		require.Len(t, joined, 2)
		first[joined[0].Head != nil]++
	}
	require.Equal(t, map[bool]int{true: 2, false: 2}, first)
}

// A key whose next job nobody can run is not looked up with each discovery of lanes, and of a tenant
// that cannot be routed one is for all.
func TestKeysThatNobodyCanRunRest(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := idleTerm(b.acquirer(&fakeElector{}))
	for _, tenant := range []string{"acme", "lost"} {
		for _, name := range []string{"1", "2", "3"} {
			b.exec("INSERT INTO tenure.job (tenant_id, queue, kind, payload, exclusive_key) VALUES ($1, 'default', 'foreign', '{}', $2)", tenant, name)
			tm.keys.See(store.Key{Tenant: tenant, Name: name}, 1)
		}
	}
	choose := func() {
		for tm.keys.HasReady() {
			portions, err := tm.claimer.choosePortions(t.Context(), schedule.Space{Calls: 4, Most: 4}, nil, map[string]int{})
			require.NoError(t, err)
			for _, p := range portions {
				require.Nil(t, p.Head)
			}
			require.Zero(t, tm.keys.CountReady("lost"), "the first one tells of all")
		}
	}
	choose()
	discovered := func() []int {
		tm.rereader.addLanes(store.LanesFound{Lanes: []store.Lane{laneOf("acme", 0), laneOf("lost", 0)}})
		return []int{tm.keys.CountReady("acme"), tm.keys.CountReady("lost")}
	}
	require.Equal(t, []int{0, 3}, discovered())
	choose()
	tm.keys.WakeResting(maxWoken) // a sweep does
	require.Equal(t, 3, tm.keys.CountReady("acme"))
}
