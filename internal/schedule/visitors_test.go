package schedule

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func clusterLimit(kind string, most, rate, burst int) store.Limit {
	l := store.Limit{LimitKey: store.LimitKey{Scope: store.ScopeClusterKind, Name: kind}, Most: most, Rate: rate, Burst: burst}
	if rate > 0 {
		l.Per = time.Second
	}
	return l
}

// crowd is tenants whose jobs of one kind pass a gate of the whole cluster, as a term claims them.
type crowd struct {
	t       require.TestingT
	now     time.Time
	flights *InFlight
	gates   *Gates
	lanes   *Lanes
	keys    *Keys
	next    job.ID
	flying  map[job.ID]string // tenants
	backlog map[string]int
	served  map[string]int
}

func newCrowd(t require.TestingT, l store.Limit, weights map[string]int) *crowd {
	lanes := newLanes()
	c := &crowd{t: t, now: time.Unix(0, 0), flights: NewInFlight(), lanes: lanes, keys: NewKeys(NewInFlight(), lanes),
		flying: map[job.ID]string{}, backlog: map[string]int{}, served: map[string]int{}}
	c.gates = NewGates(c.flights)
	c.gates.Set(store.LimitState{Limits: []store.Limit{l}}, c.now)
	c.lanes.SetWeights(weights)
	return c
}

func (c *crowd) lane(tenant string) *Lane {
	c.lanes.SeeKind(c.lanes.Find(store.Lane{Tenant: tenant, Queue: "q"}), "k", 1)
	return c.lanes.Find(store.Lane{Tenant: tenant, Queue: "q"}).ofKind("k")
}

// add has a tenant have jobs.
func (c *crowd) add(tenant string, jobs int) {
	c.backlog[tenant] += jobs
	c.lane(tenant)
}

// claim claims up to n jobs once, as a term does, and returns how many.
func (c *crowd) claim(n int) (claimed int, again bool) {
	c.gates.BeginPage()
	c.gates.Reopen(c.now, c.lanes, c.keys)
	var jobs []store.Waiting
	for _, p := range c.lanes.Plan(places(n), c.now) {
		l := p.Lane
		of := Passer{Tenant: l.Tenant, Queue: "q", Kind: l.Kind}
		left, by := c.gates.CountLeft(of, c.now)
		if left == 0 {
			by.Park(l)
			continue
		}
		places := min(p.Places, left)
		c.gates.Reserve(of, places)
		if l.Kind == "" { // all that it shows is read by itself
			l.MarkRead(1, false)
			continue
		}
		take := min(places, c.backlog[l.Tenant])
		for range take {
			c.next++
			jobs = append(jobs, store.Waiting{Record: job.Record{ID: c.next, Turn: 1, Tenant: l.Tenant, Queue: "q", Kind: "k"}})
			c.flying[c.next] = l.Tenant
			c.served[l.Tenant]++
			c.flights.Add(c.next, 1)
		}
		c.backlog[l.Tenant] -= take
		l.MarkRead(1, c.backlog[l.Tenant] > 0)
	}
	c.lanes.DropInactive()
	c.gates.NoteClaimed(c.now, jobs...)
	return len(jobs), len(jobs) > 0 || c.lanes.HasWork() || c.gates.MayWake(c.now, c.keys)
}

// claimAll claims until nothing more may be.
func (c *crowd) claimAll(n int) {
	for range 1000 {
		if _, again := c.claim(n); !again {
			return
		}
	}
	require.Fail(c.t, "it claims and claims")
}

func (c *crowd) end(id job.ID) {
	delete(c.flying, id)
	c.flights.End(id, 1)
}

func (c *crowd) anyFlying() job.ID {
	least := job.ID(0)
	for id := range c.flying {
		if least == 0 || id < least {
			least = id
		}
	}
	return least
}

// Whoever comes and ends whenever: no more are in flight than the limit, none is left waiting where there is room, and
// all get through in the end.
func TestAGateOfTheClusterLetsAllThrough(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(t *rapid.T) {
		most := rapid.IntRange(1, 5).Draw(t, "most")
		c := newCrowd(t, clusterLimit("k", most, 0, 0), map[string]int{"t1": 3})
		check := func() {
			c.claimAll(rapid.IntRange(1, 8).Draw(t, "capacity"))
			waiting := 0
			for _, n := range c.backlog {
				waiting += n
			}
			require.Len(t, c.flying, min(most, len(c.flying)+waiting), "as many as may")
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			switch rapid.IntRange(0, 3).Draw(t, "what") {
			case 0:
				c.add(fmt.Sprint("t", rapid.IntRange(0, 5).Draw(t, "tenant")), rapid.IntRange(1, 4).Draw(t, "jobs"))
			case 1:
				c.gates.ForgetIdle(c.now)
				clear(c.backlog) // all that waits is cancelled
			default:
				if id := c.anyFlying(); id != 0 {
					c.end(id)
				}
			}
			check()
		}
		for len(c.flying) > 0 {
			c.end(c.anyFlying())
			check()
		}
		require.False(t, c.gates.AnyParked())
	})
}

// Tenants take turns at a gate of the whole cluster by weight, also when there is room for few of them at a time, and when
// more and more come.
func TestTenantsTakeTurnsAtAGateOfTheCluster(t *testing.T) {
	t.Parallel()
	for _, most := range []int{1, 3, 20} {
		for _, capacity := range []int{1, 2, 100} {
			t.Run(fmt.Sprintf("%d in flight, %d at a time", most, capacity), func(t *testing.T) {
				t.Parallel()
				c := newCrowd(t, clusterLimit("k", most, 0, 0), map[string]int{"heavy": 3})
				for _, tenant := range []string{"heavy", "light", "other"} {
					c.add(tenant, 10_000)
				}
				for n := range 1500 {
					c.claimAll(capacity)
					require.Len(t, c.flying, most)
					c.end(c.anyFlying())
					if n%10 == 0 { // one that has few, and comes anew each time
						c.add(fmt.Sprint("new", n), 1)
					}
				}
				require.InDelta(t, 3, float64(c.served["heavy"])/float64(c.served["light"]), 0.3)
				require.InDelta(t, 1, float64(c.served["light"])/float64(c.served["other"]), 0.1)
				require.Greater(t, c.served["light"], 200)
				news := 0
				for tenant, n := range c.served {
					if tenant[0] == 'n' {
						news += n
					}
				}
				require.Greater(t, news, 130, "of 150, so nobody waits for long")
			})
		}
	}
}

// Who has had its turn lets others pass, also if it was not refused since, as there was room for one job at a time only.
func TestAGateOfTheClusterServesOthersNext(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, clusterLimit("k", 1, 0, 0), nil)
	for _, tenant := range []string{"t1", "t2", "t3"} {
		c.add(tenant, 1000)
	}
	for range 300 {
		for len(c.flying) == 0 {
			_, again := c.claim(1)
			require.True(t, again)
		}
		c.claim(1) // one of those who are refused waits from now on
		c.end(c.anyFlying())
	}
	for tenant, n := range c.served {
		require.InDelta(t, 100, n, 5, tenant)
	}
}

// Who comes when a token has just come does not take it from those that wait.
func TestAGateOfTheClusterKeepsATokenForThoseWhoWait(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, clusterLimit("k", 0, 10, 1), nil)
	c.add("t1", 2)
	c.claimAll(10)
	require.Len(t, c.flying, 1)
	c.now = c.now.Add(100 * time.Millisecond)
	left, _ := c.gates.CountLeft(Passer{Tenant: "t2", Queue: "q", Kind: "k"}, c.now)
	require.Zero(t, left)
	c.claimAll(10)
	require.Equal(t, map[string]int{"t1": 2}, c.served)
}

// Of very many tenants that wait for a gate no more are read than there is room for.
func TestAGateOfTheClusterWakesFew(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, clusterLimit("k", 2, 0, 0), nil)
	for i := range 500 {
		c.add(fmt.Sprint("t", i), 5)
	}
	c.claimAll(100)
	require.Len(t, c.flying, 2)
	require.Equal(t, map[LimitName]ShareUse{{store.ScopeClusterKind, "k"}: {2, 2}}, c.gates.ListShares())
	c.end(c.anyFlying())
	require.Equal(t, map[LimitName]ShareUse{{store.ScopeClusterKind, "k"}: {1, 2}}, c.gates.ListShares())
	c.gates.Reopen(c.now, c.lanes, c.keys)
	active := 0
	for i := range 500 {
		if c.lanes.Find(store.Lane{Tenant: fmt.Sprint("t", i), Queue: "q"}).ofKind("k").active {
			active++
		}
	}
	require.Equal(t, 1, active)
	require.Equal(t, map[LimitName]int{{store.ScopeClusterKind, "k"}: 1}, c.gates.CountWaitedFor())
}

// A rate of the whole cluster counts starts of all tenants.
func TestAGateOfTheClusterHasARate(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, clusterLimit("k", 0, 10, 2), nil)
	for i := range 5 {
		c.add(fmt.Sprint("t", i), 5)
	}
	c.claimAll(100)
	require.Len(t, c.flying, 2)
	for range 10 {
		c.now = c.now.Add(100 * time.Millisecond)
		c.claimAll(100)
	}
	require.Len(t, c.flying, 12)
	require.NotContains(t, c.served, "nobody")
	for i := range 5 {
		require.GreaterOrEqual(t, c.served[fmt.Sprint("t", i)], 2)
	}
}

// A pool that has no share of a limit starts none of the jobs, and one that is given a share starts them.
func TestAGateOfTheClusterMayBeShut(t *testing.T) {
	t.Parallel()
	c := newCrowd(t, clusterLimit("k", store.NoneAtAll, 0, 0), nil)
	c.add("t1", 3)
	c.claimAll(10)
	require.Empty(t, c.flying)
	require.True(t, c.gates.AnyParked())
	require.False(t, c.gates.MayPass(Passer{Tenant: "t1", Queue: "q", Kind: "k"}, c.now))
	c.gates.Set(store.LimitState{Limits: []store.Limit{clusterLimit("k", 2, 0, 0)}}, c.now)
	c.claimAll(10)
	require.Len(t, c.flying, 2)
	require.True(t, c.gates.LimitKind("t1", "k"))
	c.gates.Set(store.LimitState{}, c.now)
	c.claimAll(10)
	require.Len(t, c.flying, 3)
}
