package acquisition

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestASweepIsDoneInParts: a database that reads a position in a microsecond where it is dead, as almost all
// is, does no part that takes longer than it may, but the first; each sweep has been everywhere, and
// it is a single part again when there is nothing dead any more.
func TestASweepIsDoneInParts(t *testing.T) {
	t.Parallel()
	const top = 100_000_000
	s := sweepParts{top: top}
	dead := func(behind, upTo int64) time.Duration { // from 40 to 100 million
		return time.Duration(max(min(upTo, top)-max(behind, 40_000_000), 0)) * time.Microsecond
	}
	parts, failed := 0, 0
	sweep := func() {
		for parts = 0; ; parts++ {
			behind, upTo := s.next(0)
			require.Equal(t, s.from, behind)
			took := dead(behind, upTo)
			if took > partPatience {
				failed++
				s.shorten()
				continue
			}
			require.LessOrEqual(t, s.from, int64(top))
			over := s.note(upTo, top, took)
			require.Equal(t, upTo == math.MaxInt64, over)
			if over {
				require.Zero(t, s.from, "the next one begins at the start")
				return
			}
			require.Equal(t, upTo, s.from, "nothing is left out")
		}
	}
	sweep()
	require.Positive(t, failed, "the first could not know")
	require.Less(t, failed, 20)
	require.Greater(t, parts, 100, "60 s in parts of a quarter of a second")
	require.Less(t, parts, 600)
	failed = 0
	sweep()
	require.Less(t, failed, 10, "where much is dead it is found out again, by halves")

	dead = func(int64, int64) time.Duration { return time.Millisecond }
	sweep()
	sweep()
	require.Zero(t, parts, "one part, as before")
	require.Zero(t, s.length)
}
