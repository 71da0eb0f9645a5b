package acquisition

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Places are neither lost nor given out twice, however long a claim takes.
func TestPlaces(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := execution.DefaultConfig()
		cfg.Workers = 8
		r := job.NewRegistry()
		r.Freeze()
		w, err := execution.New(cfg, r, zap.NewNop())
		require.NoError(t, err)
		for _, c := range []struct {
			took      time.Duration
			used      int
			meanwhile int // room while it takes that long
		}{
			{2*burst - 1, 8, 2}, // some share others' calls
			{2*burst - 1, 3, 2},
			{2*burst + 1, 3, 8},
			{2*burst - 1, 0, 2},
			{2*burst + 1, 0, 8},
		} {
			p := holdReserved(w, w.Reserve(&benchOwner{}, 6))
			time.Sleep(c.took)
			synctest.Wait()
			require.Equal(t, c.meanwhile, w.FreeSlots())
			p.use(c.used)
			require.Equal(t, 8-c.used, w.FreeSlots())
			time.Sleep(time.Second)
			require.Equal(t, 8-c.used, w.FreeSlots())
			w.Release(c.used)
		}
	})
}

// A job that is too large to be read is not run, and takes no room from its tenant: what
// comes behind it waits until there is some, and is not read over and over.
func TestWhatIsTooLargeTakesNoRoom(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := idleTerm(b.acquirer(&fakeElector{}))
	l := tm.lanes.See(laneOf("acme", 0))
	picked := []store.Waiting{{TooLarge: true}, {Position: 2}}
	for i := range picked {
		picked[i].Record.Kind = "k"
	}
	portions := []schedule.Portion{{Lane: l, Places: 2, Here: 0}}
	as := tm.claimer.dispatcher.assign(picked, 2, nil, portions)
	require.Len(t, as, 1)
	require.Len(t, as[0].jobs, 1)
	require.True(t, as[0].jobs[0].TooLarge)
	require.Zero(t, portions[0].Here)
	require.True(t, portions[0].RunsHereOnly(), "its tenant is full here, and has its turn when that is over")
}

// A job that counts for a limit does not wait for a worker here while one is idle elsewhere: it would keep another
// job of the limit from running. Where none is, it waits here, and peers are asked for.
func TestWhatCountsGoesToWhoIsIdle(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	tm := idleTerm(b.acquirer(&fakeElector{}))
	free := tm.claimer.workers.IdleWorkers()
	tm.gates.Set(store.LimitState{Limits: []store.Limit{{LimitKey: store.LimitKey{Tenant: "acme", Scope: store.ScopeTenant}, Most: 100}}}, time.Now())
	ready := []*peer{
		{session: uuid.New(), kinds: store.KindsOf([]string{"k"}), credit: 100, idle: 1},
		{session: uuid.New(), kinds: store.KindsOf([]string{"k"}), credit: 50, idle: 2},
	}
	assign := func(tenant string) (own, first, second int) {
		picked := make([]store.Waiting, free+4)
		for i := range picked {
			picked[i].Record.Kind, picked[i].Record.Tenant = "k", tenant
		}
		portions := []schedule.Portion{{Lane: tm.lanes.See(laneOf(tenant, 0)), Places: len(picked), Here: len(picked)}}
		for _, a := range tm.claimer.dispatcher.assign(picked, len(picked), ready, portions) {
			switch a.peer {
			case nil:
				own = len(a.jobs)
			case ready[0]:
				first = len(a.jobs)
			default:
				second = len(a.jobs)
			}
		}
		return own, first, second
	}
	own, first, second := assign("acme")
	require.Equal(t, []int{free, 2, 2}, []int{own, first, second})
	require.True(t, tm.peers.holdsCounted())
}

// A tenant whose jobs share calls is read, at a turn, for as many as one call may have, as the jobs that were read last
// show; and they are claimed as one, with one slot.
func TestJobsThatShareACallAreClaimedTogether(t *testing.T) {
	t.Parallel()
	const most = 10
	b := setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "batch", MaxBatch: most, HandleBatch: func(context.Context, []*job.Record, *job.Ends) error { return nil }})
	})
	tm := idleTerm(b.acquirer(&fakeElector{}))
	page := func(lane int, tenant string, kinds ...string) (jobs []store.Waiting) {
		for i, kind := range kinds {
			j := store.Waiting{Lane: lane, Position: int64(i + 1)}
			j.Record.ID, j.Record.Tenant, j.Record.Kind = job.ID(100*lane+i+1), tenant, kind
			jobs = append(jobs, j)
		}
		return jobs
	}
	l := tm.lanes.See(laneOf("acme", 0))
	places := func() int {
		tm.lanes.RereadFrom(l.Lane, 1)
		portions, err := tm.claimer.choosePortions(t.Context(), schedule.Space{Calls: 1, Most: 100}, nil, map[string]int{})
		require.NoError(t, err)
		require.Len(t, portions, 1)
		return portions[0].Places
	}
	shows := func(kinds ...string) {
		tm.claimer.sortPage(store.Page{Jobs: page(0, "acme", kinds...)}, []schedule.Portion{{Lane: l, Places: len(kinds)}})
	}
	require.Equal(t, 1, places(), "nothing is known yet")
	shows("batch")
	require.Equal(t, most, places())
	shows("batch", "k")
	require.Equal(t, 1, places(), "others of its would come with them")

	var picked []store.Waiting
	var portions []schedule.Portion
	for i, tenant := range []string{"one", "two", "three"} {
		picked = append(picked, page(i, tenant, slices.Repeat([]string{"batch"}, most)...)...)
		portions = append(portions, schedule.Portion{Lane: tm.lanes.See(laneOf(tenant, 0)), Places: most, Here: 5})
	}
	as := tm.claimer.dispatcher.assign(picked, 2, nil, portions)
	require.Len(t, as, 1)
	require.Len(t, as[0].jobs, 2*most)
	require.Equal(t, map[string]int{"one": 1, "two": 1}, as[0].calls)
	require.Equal(t, []int{4, 4, 5}, []int{portions[0].Here, portions[1].Here, portions[2].Here})
	require.True(t, tm.lanes.HasMissed(schedule.MissedHere), "the third tenant's wait for a slot")
}
