package execution

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestRoomWakesOnceWhoGotLess(t *testing.T) {
	t.Parallel()
	r := newRoom(2)
	o := newFakeOwner()
	require.Equal(t, 2, r.reserve(o, 5))
	require.Zero(t, r.reserve(o, 1))
	r.left(true)
	require.EqualValues(t, 1, o.roomy.Load())
	r.left(true)
	require.EqualValues(t, 1, o.roomy.Load(), "it has not asked again")
	require.Equal(t, 2, r.reserve(o, 2))
	r.left(true)
	require.EqualValues(t, 1, o.roomy.Load(), "it got all it asked for")
}

func TestRoomWakesOnRelease(t *testing.T) {
	t.Parallel()
	r := newRoom(2)
	a, b := newFakeOwner(), newFakeOwner()
	require.Equal(t, 2, r.reserve(a, 2))
	require.Zero(t, r.reserve(b, 1))
	r.release(2) // a found no job to claim
	require.EqualValues(t, 1, b.roomy.Load(), "nobody else will tell it")
}

// Who knows of enough room is not told of it, or it would hear of nothing else.
func TestRoomIsAwaited(t *testing.T) {
	t.Parallel()
	r := newRoom(4)
	r.ahead.Store(4)
	o := newFakeOwner()
	told := func(known int) int64 {
		before := o.roomy.Load()
		r.await(o, known)
		return o.roomy.Load() - before
	}
	require.Zero(t, told(8))
	require.Zero(t, told(2))
	require.EqualValues(t, 1, told(1), "it has become more since")
	require.Equal(t, 8, r.reserve(newFakeOwner(), 8))
	require.Zero(t, told(0))
	r.left(true)
	require.EqualValues(t, 1, o.roomy.Load(), "one is not worth it")
	r.left(true)
	require.EqualValues(t, 2, o.roomy.Load())
	r.left(true)
	require.EqualValues(t, 2, o.roomy.Load())
}

// An owner that reads and claims for long leaves places for the others.
func TestRoomIsShared(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(8)
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
func TestRoomIsSharedByFew(t *testing.T) {
	t.Parallel()
	r := newRoom(8)
	for range 100 {
		r.release(r.reserve(newFakeOwner(), 1))
	}
	require.Equal(t, 8/mostSharers, r.reserve(newFakeOwner(), 8))
}

func TestRoomForgets(t *testing.T) {
	t.Parallel()
	r := newRoom(1)
	a, b := newFakeOwner(), newFakeOwner()
	require.Equal(t, 1, r.reserve(a, 2))
	require.Zero(t, r.reserve(b, 2))
	r.forget(a)
	r.left(true)
	require.Zero(t, a.roomy.Load())
	require.EqualValues(t, 1, b.roomy.Load())
}

// While somebody wants more, some place is taken: whoever leaves it wakes them.
// Without that a node would stand idle beside waiting jobs.
func TestRoomModel(t *testing.T) {
	t.Parallel()
	left := 0 // in all tries: there must not have been nobody each time
	defer func() { require.NotZero(t, left) }()
	rapid.Check(t, func(t *rapid.T) {
		rapid.SyncTest(t, func(t *rapid.T) {
			workers := rapid.IntRange(1, 8).Draw(t, "workers")
			r := newRoom(workers)
			owners := []*fakeOwner{newFakeOwner(), newFakeOwner(), newFakeOwner()}
			reserved, running := 0, 0
			t.Repeat(map[string]func(*rapid.T){
				"reserve": func(t *rapid.T) {
					want := rapid.IntRange(1, 20).Draw(t, "want")
					got := r.reserve(owners[rapid.IntRange(0, 2).Draw(t, "owner")], want)
					require.LessOrEqual(t, got, want)
					reserved += got
					if got > 0 {
						require.LessOrEqual(t, reserved+running, workers+int(r.ahead.Load()), "never more than there is")
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
					r.left(rapid.Bool().Draw(t, "done"))
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
				r.left(true)
			}
			require.Zero(t, r.used.Load())
			require.Empty(t, r.wanting)
		})
	})
}

// A claim that leaves while somebody is being refused must not be missed by both.
func TestRoomMissesNoLeaving(t *testing.T) {
	t.Parallel()
	a, b := newFakeOwner(), newFakeOwner()
	for range 5000 {
		r := newRoom(1)
		b.roomy.Store(0)
		require.Equal(t, 1, r.reserve(a, 1))
		var group sync.WaitGroup
		group.Go(func() { r.left(true) })
		got := r.reserve(b, 1)
		group.Wait()
		require.True(t, got == 1 || b.roomy.Load() > 0, "neither granted nor woken")
	}
}

// The rate is measured over the last window; ahead follows it up at once and down
// slowly.
func TestRoomGrowsWithTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const workers = 4
		r := newRoom(workers)
		o := newFakeOwner()
		work := func(jobs int, took time.Duration) {
			t.Helper()
			r.used.Add(int64(jobs))
			for range jobs {
				r.left(true)
			}
			time.Sleep(took)
			r.release(r.reserve(o, 1))
		}
		require.Equal(t, workers, r.reserve(o, 1000), "nothing is known yet")
		r.release(workers)

		work(1000, 100*time.Millisecond)
		require.EqualValues(t, 1000, r.ahead.Load(), "what was done in the time of the lookahead")
		work(0, 10*time.Millisecond)
		require.EqualValues(t, 1000, r.ahead.Load(), "too short a window to judge by")
		work(1_000_000, 100*time.Millisecond)
		require.EqualValues(t, maxAhead, r.ahead.Load())

		work(0, 100*time.Millisecond)
		fallen := r.ahead.Load()
		require.Equal(t, int64(maxAhead), fallen, "one empty window does not undo a rate far above the bound")
		for range 40 {
			work(0, 100*time.Millisecond)
		}
		require.Zero(t, r.ahead.Load())
		require.Equal(t, workers, r.reserve(o, 1000), "long jobs: one for each worker")
	})
}

// With a lookahead, who waits is not woken for every single claim that leaves.
func TestRoomWakesForAGoodPart(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRoom(1)
		o := newFakeOwner()
		r.ahead.Store(100)
		require.Equal(t, 101, r.reserve(o, 1000))
		for i := range 50 {
			require.Zero(t, o.roomy.Load(), "after %d", i)
			r.left(true)
		}
		require.EqualValues(t, 1, o.roomy.Load())
	})
}
