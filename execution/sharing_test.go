package execution

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// TestAdmits fills workers with tenants that have more to do than anybody has time for, one
// after another: the first has its share, each gets a worker while one is free, and none
// takes the last free one beside another of its own.
func TestAdmits(t *testing.T) {
	t.Parallel()
	for _, workers := range []int{1, 2, 3, 4, 16, 64, 1000} {
		for _, percent := range []int{1, 50, 75, 99, 100} {
			s := tenantShare{tenancy.Share{Of: workers, Percent: percent}}
			for weight, has := range map[int]int{1: 0, 2: 1, 7: 3} {
				admitted := 0
				for admitted < workers && s.AdmitsOneMore(has+admitted, weight, workers-admitted) {
					admitted++
				}
				require.Equal(t, admitted, s.CountAdmitted(has, weight, workers), "of %d workers, %d percent, weight %d", workers, percent, weight)
			}
			free := workers
			for tenant := range workers {
				running := 0
				for free > 0 && s.AdmitsOneMore(running, 1, free) {
					running++
					free--
				}
				if tenant == 0 {
					require.Equal(t, s.Most(), running, "of %d workers, %d percent", workers, percent)
				}
				require.False(t, running == 0 && free > 0)
				if percent < 100 && running > 1 {
					require.NotZero(t, free, "of %d workers, %d percent", workers, percent)
				}
			}
		}
	}
}

// Tenants that have much to do run by weight, and none more than its share.
func TestWorkersAreSharedByWeight(t *testing.T) {
	t.Parallel()
	s := tenantShare{tenancy.Share{Of: 4000, Percent: 75}}
	running := func(weight int) (n int) {
		for s.AdmitsOneMore(n, weight, 101) {
			n++
		}
		return n
	}
	require.Equal(t, []int{300, 600, 1500}, []int{running(1), running(2), running(5)}, "beside 101 that are free")
	require.Equal(t, s.Most(), running(100))

	b, o := newBacklog(tenantShare{tenancy.Share{Of: 1000, Percent: 100}}, newCapacity(1000), newDurations()), newFakeOwner()
	claims := numbered(o, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12)
	for i := range claims {
		claims[i].Record.Tenant, claims[i].Weight = "light", 1
		if i < 6 {
			claims[i].Record.Tenant, claims[i].Weight = "heavy", 2
		}
	}
	require.True(t, b.push(o, claims))
	heavy := 0
	for range 6 {
		if b.pop().Record.Tenant == "heavy" {
			heavy++
		}
	}
	require.Equal(t, 4, heavy)
}

// So do those that have their share, and run more when one of their runs ends.
func TestParkedTenantsAreServedByWeight(t *testing.T) {
	t.Parallel()
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 3, Percent: 75}}, newCapacity(3), newDurations()), newFakeOwner()
	ids := make([]int, 40)
	claims := numbered(o, ids...)
	for i := range claims {
		claims[i].Record.Tenant, claims[i].Weight = []string{"light", "heavy"}[i%2], 1+i%2*2
	}
	require.True(t, b.push(o, claims))
	var running []string
	take := func() bool {
		b.mu.Lock()
		defer b.mu.Unlock()
		c := b.takeRunnable()
		if c != nil {
			running = append(running, c.Record.Tenant)
		}
		return c != nil
	}
	for take() {
	}
	require.Len(t, b.parked, 2)
	heavy := 0
	for range 20 {
		b.countEnd(running[0], 0)
		running = running[1:]
		require.True(t, take())
		if running[len(running)-1] == "heavy" {
			heavy++
		}
	}
	require.Equal(t, 15, heavy)
}

// Who comes new waits behind one of the tenants that were parked, not behind all of them.
func TestParkedTenantsAndOthersTakeTurns(t *testing.T) {
	t.Parallel()
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 3, Percent: 75}}, newCapacity(3), newDurations()), newFakeOwner()
	claims := numbered(o, make([]int, 40)...)
	for i := range claims {
		claims[i].Record.Tenant = fmt.Sprint("heavy", i%8)
	}
	take := func() string {
		b.mu.Lock()
		defer b.mu.Unlock()
		if c := b.takeRunnable(); c != nil {
			return c.Record.Tenant
		}
		return ""
	}
	require.True(t, b.push(o, claims))
	running := []string{take(), take(), take()}
	for _, tenant := range running {
		b.countRun(b.loadOf(tenant)) // as if each ran one more: then nobody of these may
	}
	for _, owner := range b.order {
		for len(owner.turns) > 0 {
			b.park(owner.turns[0])
		}
	}
	for _, tenant := range running {
		b.countEnd(tenant, 0)
		b.countEnd(tenant, 0)
	}
	light := numbered(o, 100)
	light[0].Record.Tenant = "light"
	require.True(t, b.push(o, light))
	require.Contains(t, []string{take(), take()}, "light")
	require.NotEqual(t, "light", take(), "the others go on")
}

// TestPayloadsInMemory: while the payloads of claims come to the bound there is no capacity
// for more, and an owner that wanted some is told once one of them is done with.
func TestPayloadsInMemory(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, func(c *Config) { c.Workers = 4 }, w.register).start()
		large := b.claim("wait")
		large.Record.Payload = []byte(strings.Repeat("x", maxBytes))
		b.submitClaims([]ClaimedJob{large})
		<-w.running
		require.Zero(t, b.workers.FreeSlots())
		require.Zero(t, b.workers.Reserve(b.owner, 1))
		close(w.goOn)
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		synctest.Wait()
		require.Equal(t, 1, b.workers.Reserve(b.owner, 1))
		b.workers.Release(1)
		require.Zero(t, b.workers.capacity.bytes.Load())
	})
}

// One tenant's payloads leave room for those of others: no more of its jobs are claimed then, until one is done with.
func TestPayloadsOfOneTenant(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, func(c *Config) { c.Workers, c.TenantShare = 4, 75 }, w.register).start()
		large := b.claim("wait")
		large.Record.Payload = []byte(strings.Repeat("x", maxBytes*3/4))
		b.submitClaims([]ClaimedJob{large})
		<-w.running
		require.Positive(t, b.workers.FreeSlots())
		require.Zero(t, b.workers.FreeSlotsFor(b.owner, large.Record.Tenant))
		require.Positive(t, b.workers.FreeSlotsFor(b.owner, "another"))
		told := b.owner.available.Load()
		close(w.goOn)
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		synctest.Wait()
		require.Greater(t, b.owner.available.Load(), told)
		require.Positive(t, b.workers.FreeSlotsFor(b.owner, large.Record.Tenant))
	})
}

// Of a tenant that may have none of the free workers no more is claimed, and its owner is told when another tenant's run ends.
func TestWhatMayNotRunIsNotClaimed(t *testing.T) {
	t.Parallel()
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 8, Percent: 75}}, newCapacity(8), newDurations()), newFakeOwner()
	for _, tenant := range append(slices.Repeat([]string{"many"}, 6), "one") {
		b.push(o, claimsOf(o, "k", tenant))
		require.NotNil(t, b.pop())
	}
	require.Zero(t, b.freeFor(o, "one"), "the last free worker is for a tenant that has none")
	require.Zero(t, b.freeFor(o, "many"))
	require.Equal(t, 1, b.freeFor(o, "another"))
	b.capacity.kept.Store(7)
	require.ElementsMatch(t, []string{"many", "one"}, b.fullTenants(o, 100))
	require.Len(t, b.fullTenants(o, 10), 1, "so many bytes of names")
	require.Empty(t, b.fullTenants(newFakeOwner(), 100))
	b.countEnd("many", time.Minute)
	require.EqualValues(t, 1, o.available.Load(), "two workers are free")
	require.Equal(t, 1, b.freeFor(o, "one"))
	b.countEnd("many", time.Minute)
	require.EqualValues(t, 2, o.available.Load(), "which may have one more of three itself")
	b.countEnd("many", time.Minute)
	require.EqualValues(t, 2, o.available.Load(), "nobody is told twice")
}

// A tenant's load is kept while any of its claims waits, those that share a call with others too.
func TestALoadWithClaimsIsNotForgotten(t *testing.T) {
	t.Parallel()
	long := time.Now().Add(2 * forgetLoad)
	l := &tenantLoad{seen: time.Now()}
	require.True(t, l.isIdle(long))
	require.False(t, l.join("k", 10), "the first one has a slot")
	require.True(t, l.join("k", 10))
	require.False(t, l.isIdle(long))
	l.batches["k"]--
	require.False(t, l.isIdle(long), "the one that shares is left")
	l.batches["k"]--
	require.True(t, l.isIdle(long))
}
