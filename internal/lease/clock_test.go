package lease

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// A clock that runs a little wrong, answers that take long and a machine that was asleep
// are no jumps; whatever goes beyond that is, and by no more than it was.
func TestDBClock(t *testing.T) {
	t.Parallel()
	rapid.Check(t, func(rt *rapid.T) {
		var c databaseClock
		now := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC) // the node's, which need not be the database's
		clock := now.Add(time.Duration(rapid.Int64Range(-1e18, 1e18).Draw(rt, "apart")))
		var asleep time.Duration
		pass := func(d time.Duration) {
			now, clock = now.Add(d), clock.Add(d)
		}
		for i := range 20 {
			wait := time.Duration(rapid.Int64Range(0, int64(2*time.Minute)).Draw(rt, "wait"))
			pass(wait)
			slew := time.Duration(rapid.Int64Range(-int64(wait)/10, int64(wait)/10).Draw(rt, "slew"))
			slept := time.Duration(rapid.SampledFrom([]int64{0, 0, 0, int64(time.Hour)}).Draw(rt, "slept"))
			asleep += slept
			clock = clock.Add(slew + slept)
			jump := time.Duration(rapid.SampledFrom([]int64{0, 0, 0, 0, int64(time.Second), int64(10 * time.Minute), -int64(10 * time.Minute)}).Draw(rt, "jump"))
			clock = clock.Add(jump)

			sent := Instant{at: now, asleep: asleep}
			pass(time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(rt, "there")))
			read := clock
			pass(time.Duration(rapid.Int64Range(0, int64(4*time.Second)).Draw(rt, "back")))
			saw := c.noteReading(read, sent, Instant{at: now, asleep: asleep})
			if i == 0 || jump.Abs() <= time.Second {
				require.Zero(rt, saw)
				continue
			}
			require.InDelta(rt, jump, saw, float64(wait/8+20*time.Second))
			require.Equal(rt, jump > 0, saw > 0)
		}
	})
}
