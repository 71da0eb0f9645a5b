package execution

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/job"
)

// An estimate is quick to rise and slow to fall, and settles at how long runs take.
func TestEstimate(t *testing.T) {
	t.Parallel()
	var e estimate
	e.raise(time.Second)
	_, known := e.expect()
	require.False(t, known)
	require.Zero(t, e.countAhead(64))
	e.note(time.Millisecond)
	took, known := e.expect()
	require.True(t, known)
	require.Equal(t, time.Millisecond, took, "the first says all there is to know")
	require.Equal(t, 64*100, e.countAhead(64)*6400/maxAhead, "as far as there is a bound")
	for range 20 {
		e.note(time.Second)
	}
	took, _ = e.expect()
	require.Greater(t, took, 990*time.Millisecond)
	require.Equal(t, 6, e.countAhead(64))
	for range 400 {
		e.note(time.Millisecond)
	}
	took, _ = e.expect()
	require.Less(t, took, 2*time.Millisecond)
	e.raise(time.Minute)
	e.raise(time.Second)
	took, _ = e.expect()
	require.Equal(t, time.Minute, took)
	e.note(0)
	_, known = e.expect()
	require.True(t, known)

	var short estimate
	short.note(10 * time.Microsecond)
	short.note(20 * time.Millisecond)
	took, _ = short.expect()
	require.Less(t, took, 400*time.Microsecond, "the machine was busy")
	for n := range 2000 {
		short.note(max(10*time.Microsecond, time.Duration(n%50/49)*40*time.Millisecond))
	}
	took, _ = short.expect()
	require.InDelta(t, 800*time.Microsecond, took, float64(500*time.Microsecond), "some take long")
	short.note(time.Second)
	took, _ = short.expect()
	require.Greater(t, took, 250*time.Millisecond, "no machine is as busy as that")
}

// What may wait for the workers is a tenth of a second of work, and one job for each free
// worker, which is all there is for a kind that nobody knows.
func TestRoomIsTime(t *testing.T) {
	t.Parallel()
	b := newBundle(t, func(c *Config) { c.Workers = 10 }, func(r *job.Registry) {
		for _, kind := range []string{"slow", "unknown"} {
			r.Add(job.Spec{Kind: kind, Handle: func(context.Context, *job.Record) error { return nil }})
		}
	})
	w := b.workers
	w.durations.of("slow").note(300 * time.Millisecond)
	w.durations.of("noop").note(time.Millisecond)
	room := w.Room()
	take := func(kind string) (n int) {
		for n < 5000 && room.Take("acme", kind) {
			n++
		}
		return n
	}
	require.Equal(t, 10+3, take("slow"), "ten that run, and a second of work for ten workers")
	require.True(t, w.capacity.full.Load())
	require.Equal(t, 100, take("noop"), "what is left")
	room = w.Room()
	require.Equal(t, 10, take("unknown"))
	b.submit("slow", 13)
	room = w.Room()
	require.Zero(t, take("unknown"))
	require.Zero(t, take("slow"))
	require.True(t, room.Take("light", "unknown"), "a tenant that has nothing here is not kept out")
	require.False(t, room.Take("light", "unknown"), "it has one now")
	for _, c := range w.backlog.close() {
		w.freeSlot(c)
	}
}

// Claims that wait for handlers that take longer than they did are given back.
func TestWhatIsFarOffIsGivenBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register).start()
		b.workers.durations.of("wait").note(time.Microsecond)
		b.submit("wait", 100)
		<-w.running
		<-w.running
		for range 97 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
		close(w.goOn)
		for range 3 {
			require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		}
	})
}

// While one run each keeps all workers, nothing is claimed for the node, and what waits goes where a worker may be
// idle: nobody knows when a run ends. As soon as one has, it is as before.
func TestKeptWorkersHaveNothingWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, nil, w.register).start()
		b.workers.capacity.runs.note(time.Millisecond)
		b.workers.durations.of("noop").note(time.Millisecond)
		b.submit("wait", 2)
		<-w.running
		<-w.running
		b.submit("noop", 50)
		room := b.workers.Room()
		require.True(t, room.Take("acme", "noop"), "they may end at once")
		require.Positive(t, b.workers.FreeSlots())

		time.Sleep(keptAfter + watchEvery)
		synctest.Wait()
		room = b.workers.Room()
		require.False(t, room.Take("acme", "noop"))
		require.False(t, room.Take("light", "noop"), "nor what a tenant may have wait in any case")
		b.workers.capacity.full.Store(false)
		require.Zero(t, b.workers.FreeSlots(), "holders are told so")
		time.Sleep(farOff)
		for range 50 {
			require.Equal(t, "return", b.owner.next(t).how)
		}

		w.goOn <- struct{}{}
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		room = b.workers.Room()
		for range 50 { // by a free worker, and in time
			require.True(t, room.Take("acme", "noop"))
		}
		require.Positive(t, b.workers.FreeSlots())
		close(w.goOn)
		require.Equal(t, job.Done, b.owner.next(t).outcome.State)
	})
}

// A tenant whose share of the workers is kept has nothing wait, either: elsewhere it may have some left.
func TestAKeptShareHasNothingWait(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		w := newWaiter(false)
		b := newBundle(t, func(c *Config) { c.Workers, c.TenantShare = 4, 50 }, w.register).start()
		b.workers.durations.of("noop").note(time.Millisecond)
		b.submit("wait", 2)
		<-w.running
		<-w.running
		b.submit("noop", 20)
		time.Sleep(farOff + watchEvery)
		for range 20 {
			require.Equal(t, "return", b.owner.next(t).how)
		}
		b.submit("noop", 1)
		time.Sleep(watchEvery)
		require.Equal(t, 1, b.workers.backlog.countWaiting(), "not at once: a run may end")
		close(w.goOn)
		for range 3 {
			require.Equal(t, job.Done, b.owner.next(t).outcome.State)
		}
	})
}

// Who waits for slots is told when claims are given back, also if no run ends and there was no more room in time.
func TestWhatIsGivenBackMakesRoom(t *testing.T) {
	t.Parallel()
	b := newBundle(t, nil, nil)
	b.workers.capacity.runs.note(time.Millisecond)
	b.submit("noop", 50)
	b.workers.capacity.full.Store(true)
	require.Zero(t, b.workers.Reserve(b.owner, 10))
	for _, c := range b.workers.backlog.close() {
		b.workers.giveBack(c)
	}
	require.EqualValues(t, 1, b.owner.available.Load())
}
