package execution

import (
	"math/rand/v2"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

func numbered(o Owner, ids ...int) []ClaimedJob {
	out := make([]ClaimedJob, len(ids))
	for i, id := range ids {
		out[i] = ClaimedJob{Owner: o, Record: job.Record{ID: job.ID(id)}}
	}
	return out
}

func TestBacklogOwnersTakeTurns(t *testing.T) {
	t.Parallel()
	b := newBacklog(tenantShare{tenancy.Share{Of: 1000, Percent: 100}}, newCapacity(1000), newDurations())
	x, y := newFakeOwner(), newFakeOwner()
	require.True(t, b.push(x, numbered(x, 1, 2)))
	require.True(t, b.push(x, numbered(x, 3, 4)))
	require.True(t, b.push(y, numbered(y, 11)))
	require.True(t, b.push(y, numbered(y, 12)))
	var got []int
	for range 6 {
		got = append(got, int(b.pop().Record.ID))
	}
	require.Equal(t, []int{1, 11, 2, 12, 3, 4}, got)
	require.Zero(t, b.waiting)
	require.Empty(t, b.owners, "owners without claims are forgotten")
}

// The model: each owner's claims in their order, and the owners in order of turn.
func TestBacklogModel(t *testing.T) {
	t.Parallel()
	popped := 0 // in all tries: there must not have been nothing each time
	defer func() { require.NotZero(t, popped) }()
	rapid.Check(t, func(t *rapid.T) {
		b := newBacklog(tenantShare{tenancy.Share{Of: 1000, Percent: 100}}, newCapacity(1000), newDurations())
		owners := []*fakeOwner{newFakeOwner(), newFakeOwner(), newFakeOwner()}
		waiting := map[int][]int{}
		var turns []int
		next := 1
		pop := func() int {
			o := turns[0]
			id := waiting[o][0]
			waiting[o], turns = waiting[o][1:], turns[1:]
			if len(waiting[o]) > 0 {
				turns = append(turns, o)
			}
			return id
		}
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				o := rapid.IntRange(0, len(owners)-1).Draw(t, "owner")
				var ids []int
				for range rapid.IntRange(1, 5).Draw(t, "n") {
					ids = append(ids, next)
					next++
				}
				if len(waiting[o]) == 0 {
					turns = append(turns, o)
				}
				waiting[o] = append(waiting[o], ids...)
				require.True(t, b.push(owners[o], numbered(owners[o], ids...)))
			},
			"pop": func(t *rapid.T) {
				if len(turns) == 0 { // it would wait
					return
				}
				popped++
				require.EqualValues(t, pop(), b.pop().Record.ID)
			},
			"": func(t *rapid.T) {
				n := 0
				for _, w := range waiting {
					n += len(w)
				}
				require.Equal(t, n, b.waiting)
				require.Len(t, b.order, len(turns))
				require.Len(t, b.owners, len(turns))
				require.Equal(t, lookahead*time.Duration(n), b.work)
			},
		})
		var rest, left []int
		for len(turns) > 0 {
			left = append(left, pop())
		}
		for _, c := range b.close() {
			rest = append(rest, int(c.Record.ID))
		}
		require.ElementsMatch(t, left, rest, "close hands out all that waited")
		require.Nil(t, b.pop())
		require.False(t, b.push(owners[0], numbered(owners[0], 1)))
		require.Empty(t, b.close())
	})
}

// claimsOf is claims of tenants, in this order.
func claimsOf(o Owner, kind string, tenants ...string) []ClaimedJob {
	out := make([]ClaimedJob, len(tenants))
	for i, t := range tenants {
		out[i] = ClaimedJob{Owner: o, Record: job.Record{Tenant: t, Kind: kind}}
	}
	return out
}

// The next free worker takes the job of a tenant that has had little, however many long jobs of
// others have come before it.
func TestBacklogServesTheLightTenantNext(t *testing.T) {
	t.Parallel()
	d := newDurations()
	d.of("slow").note(time.Second)
	d.of("quick").note(time.Millisecond)
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 1000, Percent: 100}}, newCapacity(1000), d), newFakeOwner()
	for range 100 {
		b.push(o, claimsOf(o, "slow", "heavy", "heavy"))
	}
	for range 10 {
		require.Equal(t, "heavy", b.pop().Record.Tenant)
	}
	for range 20 {
		b.push(o, claimsOf(o, "quick", "light", "light"))
	}
	heavy := 0
	for range 41 {
		if b.pop().Record.Tenant == "heavy" {
			heavy++
		}
	}
	require.Equal(t, 1, heavy, "forty quick jobs take less time than one slow one")
}

// The model: of an owner's tenants the one whose turn began first is next, each tenant's claims
// in their order, and nobody's turn comes after two others' have ended.
func TestBacklogServesTenantsInTurn(t *testing.T) {
	t.Parallel()
	popped := 0
	defer func() { require.NotZero(t, popped) }()
	rapid.Check(t, func(t *rapid.T) {
		tenants, kinds := []string{"a", "b", "c", "d"}, []string{"slow", "quick"}
		d := newDurations()
		d.of("slow").note(100 * time.Millisecond)
		d.of("quick").note(time.Millisecond)
		b, o := newBacklog(tenantShare{tenancy.Share{Of: 100_000, Percent: 100}}, newCapacity(100_000), d), newFakeOwner()
		waiting := map[string][]job.ID{}
		served := map[string]time.Duration{} // to tenants that have had something to wait for since
		next := job.ID(1)
		t.Repeat(map[string]func(*rapid.T){
			"push": func(t *rapid.T) {
				tenant := rapid.SampledFrom(tenants).Draw(t, "tenant")
				batch := claimsOf(o, rapid.SampledFrom(kinds).Draw(t, "kind"), slices.Repeat([]string{tenant}, rapid.IntRange(1, 9).Draw(t, "n"))...)
				if len(waiting[tenant]) == 0 {
					clear(served)
				}
				for i := range batch {
					batch[i].Record.ID = next
					waiting[tenant] = append(waiting[tenant], next)
					next++
				}
				require.True(t, b.push(o, batch))
			},
			"pop": func(t *rapid.T) {
				if b.waiting == 0 {
					return
				}
				popped++
				c := b.pop()
				tenant := c.Record.Tenant
				require.Equal(t, waiting[tenant][0], c.Record.ID)
				if waiting[tenant] = waiting[tenant][1:]; len(waiting[tenant]) == 0 {
					clear(served)
				}
				served[tenant] += c.expected
				for other, ids := range waiting {
					if len(ids) > 0 && len(waiting[tenant]) > 0 {
						require.LessOrEqual(t, served[tenant]-served[other], 2*100*time.Millisecond, "%s has had too much beside %s", tenant, other)
					}
				}
			},
			"": func(t *rapid.T) {
				n, work := 0, time.Duration(0)
				for _, ids := range waiting {
					n += len(ids)
				}
				for _, q := range b.order {
					for _, q := range q.turns {
						work += q.work
					}
				}
				require.Equal(t, n, b.waiting)
				require.Equal(t, work, b.work)
			},
		})
	})
}

// Claims that wait for long, as jobs take longer than they did, are given back, the last first.
func TestBacklogGivesBackWhatIsFarOff(t *testing.T) {
	t.Parallel()
	d := newDurations()
	d.of("k").note(time.Microsecond)
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 10, Percent: 50}}, newCapacity(10), d), newFakeOwner()
	b.capacity.used.Add(100)
	batch := claimsOf(o, "k", slices.Repeat([]string{"t"}, 100)...)
	for i := range batch {
		batch[i].Record.ID = job.ID(i)
	}
	b.push(o, batch)
	for range 5 {
		b.pop()
	}
	require.Empty(t, b.takeFarOff(time.Now()))
	d.of("k").raise(time.Second)
	b.running, b.loads["t"].running = 0, 0
	require.Len(t, b.takeFarOff(time.Now()), 85, "ten workers are free")
	for _, c := range numbered(o, slices.Collect(func(yield func(int) bool) {
		for id := 15; id < 100 && yield(id); id++ {
		}
	})...) {
		c.Record.Tenant, c.Record.Kind = "t", "k"
		b.push(o, []ClaimedJob{c})
	}
	b.running, b.loads["t"].running = 5, 5
	far := b.takeFarOff(time.Now())
	require.Len(t, far, 94, "one of a second is enough for five workers in the time of the lookahead")
	require.EqualValues(t, 99, far[0].Record.ID)
	require.EqualValues(t, 6, far[93].Record.ID)
	for range far {
		b.capacity.freeSlot()
	}
	require.EqualValues(t, 6, b.capacity.used.Load())
	require.Empty(t, b.takeFarOff(time.Now()))
}

// A parked claim that has waited for long stays while runs of its tenant begin and end.
func TestBacklogKeepsWhatIsParkedWhileItsShareTurns(t *testing.T) {
	t.Parallel()
	d := newDurations()
	d.of("k").note(time.Microsecond)
	b, o := newBacklog(tenantShare{tenancy.Share{Of: 4, Percent: 50}}, newCapacity(4), d), newFakeOwner()
	b.capacity.used.Add(3)
	batch := claimsOf(o, "k", "t", "t", "t")
	b.push(o, batch)
	now := time.Now()
	b.loads["t"].seen, batch[2].queued = now.Add(-time.Hour), now.Add(-time.Hour)
	b.mu.Lock()
	for range 2 {
		require.NotNil(t, b.takeRunnable())
	}
	require.Nil(t, b.takeRunnable(), "the tenant has its share")
	b.mu.Unlock()
	require.Empty(t, b.takeFarOff(now), "runs have begun just now")
	require.Len(t, b.takeFarOff(now.Add(2*farOff)), 1)
}

func TestBacklogPopWaits(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBacklog(tenantShare{tenancy.Share{Of: 1000, Percent: 100}}, newCapacity(1000), newDurations())
		o := newFakeOwner()
		got := make(chan *ClaimedJob, 10)
		for range 4 {
			go func() { got <- b.pop() }()
		}
		synctest.Wait()
		require.Empty(t, got)

		b.push(o, numbered(o, 1))
		synctest.Wait()
		require.Len(t, got, 1, "one claim wakes one")
		b.push(o, numbered(o, 2, 3))
		synctest.Wait()
		require.Len(t, got, 3, "a batch wakes as many as it can serve")
		b.close()
		synctest.Wait()
		require.Len(t, got, 4)
		for range 3 {
			require.NotNil(t, <-got)
		}
		require.Nil(t, <-got, "closing ends who still waits")
	})
}

// No worker sleeps while a claim may run, whatever comes and ends in which order. The end
// of a run may admit more than its worker takes: that takes another tenant's, and the own
// tenant, which has one run less, may have one of the free workers.
func TestNoWorkerSleepsBesideAClaimThatMayRun(t *testing.T) {
	t.Parallel()
	for seed := range uint64(20) {
		synctest.Test(t, func(t *testing.T) {
			random, o := rand.New(rand.NewPCG(seed, 0)), newFakeOwner()
			s := tenantShare{tenancy.Share{Of: 8, Percent: 75}}
			b := newBacklog(s, newCapacity(s.Of), newDurations())
			end, asleepBeside := make(chan struct{}), 0
			defer b.close()
			defer close(end)
			for range s.Of {
				go func() {
					for c := b.pop(); c != nil; c = b.pop() {
						<-end
						b.countEnd(c.Record.Tenant, time.Millisecond)
					}
				}()
			}
			for range 200 {
				if random.IntN(4) > 0 && b.running > 0 {
					end <- struct{}{}
				} else {
					batch := make([]ClaimedJob, 1+random.IntN(4))
					for i := range batch {
						batch[i] = ClaimedJob{Owner: o, Record: job.Record{Tenant: string(rune('a' + random.IntN(3)))}}
					}
					b.capacity.used.Add(int64(len(batch)))
					b.push(o, batch)
				}
				synctest.Wait()
				free := s.Of - b.running
				for _, q := range b.parked {
					if s.AdmitsOneMore(q.load.running, q.load.weight, free) && free > 0 {
						asleepBeside++
					}
				}
				require.True(t, free == 0 || len(b.order) == 0)
			}
			require.Zero(t, asleepBeside, "of 200 times, seed %d", seed)
		})
	}
}
