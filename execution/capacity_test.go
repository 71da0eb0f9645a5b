package execution

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCapacityWakesOnceWhoGotLess(t *testing.T) {
	t.Parallel()
	r := newCapacity(2)
	o := newFakeOwner()
	require.Equal(t, 2, r.reserve(o, 5))
	require.Zero(t, r.reserve(o, 1))
	r.freeSlot()
	require.EqualValues(t, 1, o.available.Load())
	r.freeSlot()
	require.EqualValues(t, 1, o.available.Load(), "it has not asked again")
	require.Equal(t, 2, r.reserve(o, 2))
	r.freeSlot()
	require.EqualValues(t, 1, o.available.Load(), "it got all it asked for")
}

func TestCapacityWakesOnRelease(t *testing.T) {
	t.Parallel()
	r := newCapacity(2)
	a, b := newFakeOwner(), newFakeOwner()
	require.Equal(t, 2, r.reserve(a, 2))
	require.Zero(t, r.reserve(b, 1))
	r.release(2) // a found no job to claim
	require.EqualValues(t, 1, b.available.Load(), "nobody else will tell it")
}

// An owner that knows of enough capacity is not told of it, or it would hear of nothing else.
func TestCapacityIsAwaited(t *testing.T) {
	t.Parallel()
	r := newCapacity(4)
	r.runs.note(lookahead)
	o := newFakeOwner()
	told := func(known int) int64 {
		before := o.available.Load()
		r.tellWhenFree(o, known)
		return o.available.Load() - before
	}
	require.Zero(t, told(8))
	require.Zero(t, told(2))
	require.EqualValues(t, 1, told(1), "it has become more since")
	require.Equal(t, 8, r.reserve(newFakeOwner(), 8))
	require.Zero(t, told(0))
	r.freeSlot()
	require.EqualValues(t, 1, o.available.Load(), "one is not worth it")
	r.freeSlot()
	require.EqualValues(t, 2, o.available.Load())
	r.freeSlot()
	require.EqualValues(t, 2, o.available.Load())
}

// An owner that reads and claims for long leaves places for the others.
func TestCapacityIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newCapacity(8)
		a, b, c := newFakeOwner(), newFakeOwner(), newFakeOwner()
		require.Equal(t, 8, r.reserve(a, 8), "there is nobody else")
		require.Zero(t, r.reserve(b, 8))
		r.release(8)
		require.Equal(t, 4, r.reserve(a, 8))
		require.Equal(t, 2, r.reserve(b, 8), "half of what is left")
		require.Equal(t, 1, r.reserve(c, 8))
		require.Equal(t, 1, r.reserve(c, 8), "one at least")
		r.release(8)
		time.Sleep(asksFor)
		require.Equal(t, 3, r.reserve(a, 8), "they have asked lately")
		r.release(3)
		r.forget(b)
		require.Equal(t, 4, r.reserve(a, 8))
		r.release(4)
		time.Sleep(2 * asksFor)
		require.Equal(t, 8, r.reserve(a, 8), "they have not asked for long")
		r.release(8)
	})
}

// However many owners ask for a little now and then, one that has much to do gets a fair
// part of what is free.
func TestCapacityIsSharedByFew(t *testing.T) {
	t.Parallel()
	r := newCapacity(8)
	for range 100 {
		r.release(r.reserve(newFakeOwner(), 1))
	}
	require.Equal(t, 8/mostSharers, r.reserve(newFakeOwner(), 8))
}

// Many owners that work off short jobs claim many at a time, in turns.
func TestCapacityIsWorthAClaim(t *testing.T) {
	t.Parallel()
	r := newCapacity(8)
	r.runs.note(lookahead / 100)
	free := r.countFree()
	for range mostSharers {
		r.release(r.reserve(newFakeOwner(), 1))
	}
	least := int(r.worthTelling()) / worthClaiming
	var first, last *fakeOwner
	for {
		last = newFakeOwner()
		n := r.reserve(last, free)
		if n == 0 {
			break
		}
		if first == nil {
			first = last
		}
		require.GreaterOrEqual(t, n, least)
	}
	require.Equal(t, 1, r.reserve(newFakeOwner(), 1), "it has no use for more")
	left := r.countFree()
	require.Less(t, left, mostSharers*least)
	r.release(int(r.worthTelling()) - left)
	require.EqualValues(t, 1, first.available.Load())
	require.EqualValues(t, 1, last.available.Load())
	require.GreaterOrEqual(t, r.reserve(last, free), least)

	r = newCapacity(8)
	r.runs.note(lookahead / 100)
	r.full.Store(true) // so that only free workers count, and nothing runs that would tell of more
	for range 2 * mostSharers {
		n := r.reserve(newFakeOwner(), free)
		require.NotZero(t, n)
		r.release(n)
	}
}

func TestCapacityForgets(t *testing.T) {
	t.Parallel()
	r := newCapacity(1)
	a, b := newFakeOwner(), newFakeOwner()
	require.Equal(t, 1, r.reserve(a, 2))
	require.Zero(t, r.reserve(b, 2))
	r.forget(a)
	r.freeSlot()
	require.Zero(t, a.available.Load())
	require.EqualValues(t, 1, b.available.Load())
}

// While somebody wants more, some place is taken: anyone who leaves it wakes them.
// Without that a node would stand idle beside waiting jobs.
func TestCapacityModel(t *testing.T) {
	t.Parallel()
	left := 0 // in all tries: there must not have been nobody each time
	defer func() { require.NotZero(t, left) }()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			workers := rapid.IntRange(1, 8).Draw(t, "workers")
			r := newCapacity(workers)
			owners := []*fakeOwner{newFakeOwner(), newFakeOwner(), newFakeOwner()}
			reserved, running := 0, 0
			t.Repeat(map[string]func(*rapid.T){
				"reserve": func(t *rapid.T) {
					want := rapid.IntRange(1, 20).Draw(t, "want")
					got := r.reserve(owners[rapid.IntRange(0, 2).Draw(t, "owner")], want)
					require.LessOrEqual(t, got, want)
					reserved += got
					if got > 0 {
						require.LessOrEqual(t, reserved+running, workers+r.runs.countAhead(workers), "never more than there is")
					}
				},
				"submit": func(t *rapid.T) {
					n := rapid.IntRange(0, reserved).Draw(t, "n")
					reserved, running = reserved-n, running+n
				},
				"release": func(t *rapid.T) {
					n := rapid.IntRange(0, reserved).Draw(t, "n")
					reserved -= n
					r.release(n)
				},
				"left": func(t *rapid.T) {
					if running == 0 {
						return
					}
					left++
					running--
					r.freeSlot()
				},
				"took": func(t *rapid.T) { r.runs.note(time.Duration(rapid.IntRange(1, 1000).Draw(t, "ms")) * time.Millisecond) },
				"full": func(t *rapid.T) {
					if running > 0 {
						r.full.Store(true)
					}
				},
				"time": func(t *rapid.T) { time.Sleep(time.Duration(rapid.IntRange(1, 200).Draw(t, "ms")) * time.Millisecond) },
				"": func(t *rapid.T) {
					require.EqualValues(t, reserved+running, r.used.Load())
					if len(r.wanting) > 0 {
						require.NotZero(t, reserved+running, "somebody waits and nobody will wake them")
						require.True(t, r.wanted.Load())
					}
				},
			})
			r.release(reserved)
			for range running {
				r.freeSlot()
			}
			require.Zero(t, r.used.Load())
			require.Empty(t, r.wanting)
		})
	})
}

// A claim that leaves while somebody is being refused must not be missed by both.
func TestCapacityMissesNoLeaving(t *testing.T) {
	t.Parallel()
	a, b := newFakeOwner(), newFakeOwner()
	for range 5000 {
		r := newCapacity(1)
		b.available.Store(0)
		require.Equal(t, 1, r.reserve(a, 1))
		var group sync.WaitGroup
		group.Go(func() { r.freeSlot() })
		got := r.reserve(b, 1)
		group.Wait()
		require.True(t, got == 1 || b.available.Load() > 0, "neither granted nor woken")
	}
}

// Long jobs that end together are no reason to claim many more.
func TestCapacityGoesByHowLongRunsTake(t *testing.T) {
	t.Parallel()
	const workers = 64
	c, o := newCapacity(workers), newFakeOwner()
	require.Equal(t, workers, c.reserve(o, 10_000), "nothing is known yet")
	for range workers {
		c.runs.note(time.Second)
		c.freeSlot()
	}
	got := c.reserve(o, 10_000)
	require.Equal(t, workers+workers/10, got, "a tenth of a second for each worker")
	c.release(got)
	for range 1000 {
		c.runs.note(time.Microsecond)
	}
	got = c.reserve(o, 10_000)
	require.Equal(t, workers+maxAhead, got)
	c.release(got)
	c.runs.note(time.Second)
	require.Less(t, c.reserve(o, 10_000), 2*workers, "one long run is enough to be careful")
}

// While work is full, in time, only free workers count, until a run has ended.
func TestCapacityThatIsFull(t *testing.T) {
	t.Parallel()
	c, o := newCapacity(4), newFakeOwner()
	c.runs.note(lookahead)
	require.Equal(t, 3, c.reserve(o, 3))
	c.full.Store(true)
	require.Equal(t, 1, c.reserve(o, 9))
	require.Zero(t, o.available.Load())
	require.Zero(t, c.reserve(o, 9))
	c.freeSlot()
	require.EqualValues(t, 1, o.available.Load())
	require.Equal(t, 5, c.reserve(o, 9))
}

// With a lookahead, who waits is not woken for every single claim that leaves.
func TestCapacityWakesForAGoodPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newCapacity(1)
		o := newFakeOwner()
		r.runs.note(lookahead / 100)
		require.Equal(t, 101, r.reserve(o, 1000))
		for i := range 50 {
			require.Zero(t, o.available.Load(), "after %d", i)
			r.freeSlot()
		}
		require.EqualValues(t, 1, o.available.Load())
	})
}
