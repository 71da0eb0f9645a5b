package acquisition

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestASweepIsDoneInParts: where 60 million positions are dead, each of which takes a tenth of a microsecond, or ten
// times that, a sweep has been everywhere behind the bottom after some parts, of which none is longer than it may
// be; it is a single part again once nothing is dead any more. Who asks for a sweep meanwhile has one from the start.
func TestASweepIsDoneInParts(t *testing.T) {
	t.Parallel()
	const top, bottom = 100_000_000, 10_000_000
	now := time.Now()
	each := 100 * time.Nanosecond
	dead := func(behind, upTo int64) time.Duration {
		return time.Duration(max(min(upTo, top)-max(behind, 40_000_000), 0)) * each
	}
	var s sweepParts
	sweep := func() (parts, failed int) {
		s.top = top
		require.True(t, s.begin(now))
		for at := int64(bottom); ; require.False(t, s.begin(now)) {
			behind, upTo, patience := s.next(bottom)
			require.Equal(t, at, behind, "nothing is left out")
			took := dead(behind, upTo)
			if took > patience {
				failed++
				s.shorten()
				continue
			}
			parts++
			due := s.note(upTo, top, took, now)
			if upTo == math.MaxInt64 {
				require.Zero(t, due)
				return parts, failed
			}
			require.Equal(t, now.Add(dutyFactor*took), due)
			at, now = upTo, due
		}
	}
	parts, failed := sweep()
	require.Positive(t, failed, "the first could not know")
	require.Less(t, failed, 10)
	require.Greater(t, parts, 5)
	require.LessOrEqual(t, parts, mostParts)

	each = time.Microsecond // three seconds a part: there are not to be more of them
	parts, failed = sweep()
	require.Less(t, failed, 10)
	require.LessOrEqual(t, parts, mostParts)
	require.Greater(t, parts, mostParts/2)

	require.True(t, s.begin(now))
	_, upTo, _ := s.next(bottom)
	due := s.note(upTo, top, time.Second, now)
	require.False(t, s.begin(due.Add(-1)), "asked for")
	for upTo < math.MaxInt64 {
		_, upTo, _ = s.next(bottom)
		now = due
		due = s.note(upTo, top, time.Second, now)
	}
	require.Equal(t, now, due, "from the start, at once")

	each = 0
	for range 40 {
		parts, _ = sweep()
	}
	require.Equal(t, 1, parts, "as before")
}
