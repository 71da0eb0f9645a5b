package lease

import (
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTrustRunsOut(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tr trust
		require.False(t, tr.holds(), "nothing was renewed yet")
		require.Zero(t, tr.left())

		const ttl = 8 * time.Second
		sent := Now()
		time.Sleep(time.Second) // the answer's way
		tr.extend(sent, ttl)
		require.Equal(t, ttl-time.Second-margin, tr.left(), "counted from before the request, less the margin")
		time.Sleep(ttl - time.Second - margin - 1)
		require.True(t, tr.holds())
		time.Sleep(time.Nanosecond)
		require.False(t, tr.holds())
		require.Zero(t, tr.left())
		time.Sleep(time.Hour)
		require.Negative(t, tr.left())

		tr.extend(Now(), ttl)
		require.True(t, tr.holds())
		tr.extend(Instant{sent.at.Add(-ttl), sent.wall.Add(-ttl), sent.asleep}, ttl)
		require.False(t, tr.holds(), "an answer that took the whole time to live is worth nothing")
	})
}

func TestTrustMargin(t *testing.T) {
	t.Parallel()
	for ttl, want := range map[time.Duration]time.Duration{
		50 * time.Millisecond:   10 * time.Millisecond,
		time.Second:             200 * time.Millisecond,
		7500 * time.Millisecond: margin,
		8 * time.Second:         margin,
		time.Hour:               margin,
	} {
		require.Equal(t, want, marginOf(ttl), "%v", ttl)
	}
}

func TestTrustIsSafeForConcurrentUse(t *testing.T) {
	t.Parallel()
	var tr trust
	var group sync.WaitGroup
	tr.extend(Now(), time.Hour)
	for range 4 {
		group.Go(func() {
			for range 1000 {
				tr.extend(Now(), time.Hour)
			}
		})
		group.Go(func() {
			for range 1000 {
				if !tr.holds() {
					t.Error("the trust ran out while it was extended")
					return
				}
			}
		})
	}
	group.Wait()
}

// A machine that was suspended has missed the time, though its monotonic clock has not.
func TestTrustDoesNotOutliveASuspension(t *testing.T) { // not in parallel: it changes what all read
	require.LessOrEqual(t, suspended(false), suspended(true))
	require.InDelta(t, suspended(false), suspended(true), float64(time.Second))
	var asleepFor, set time.Duration // of the machine, and of its wall clock
	defer func(a func(bool) time.Duration, w func(time.Time) time.Time) { asleep, wall = a, w }(asleep, wall)
	asleep = func(bool) time.Duration { return time.Hour + asleepFor }
	wall = func(now time.Time) time.Time { return now.Round(0).Add(set) }
	var tr trust
	tr.extend(Now(), 8*time.Second)
	require.Greater(t, tr.left(), 6*time.Second)
	set -= time.Hour
	require.Greater(t, tr.left(), 6*time.Second, "somebody has set the wall clock")
	set, asleepFor = set+5*time.Second, 5*time.Second
	require.True(t, tr.holds())
	require.Less(t, tr.left(), 2*time.Second)
	set, asleepFor = set+2*time.Second, 7*time.Second
	require.False(t, tr.holds())
	tr.extend(Now(), 8*time.Second)
	require.True(t, tr.holds())
}

func BenchmarkTrust(b *testing.B) {
	var tr trust
	tr.extend(Now(), time.Hour)
	for b.Loop() {
		tr.holds()
	}
}
