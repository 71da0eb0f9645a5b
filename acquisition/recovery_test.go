package acquisition

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
)

// A gap in the looks is time in which the database may have been away from everybody:
// it must not make a session look dead that was about to beat.
func TestTimeWithoutALookCountsLittle(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	w, now := heartbeats{}, time.Now()
	id, beat := uuid.New(), int64(7)
	look := func(after time.Duration) time.Duration {
		now = now.Add(after)
		return w.stillFor(id, beat, now, ttl/3)
	}
	require.Zero(t, look(0))
	require.Equal(t, 4*time.Second, look(4*time.Second))
	require.Less(t, look(time.Minute), ttl, "nobody looked for a minute")
	beat++
	require.Zero(t, look(time.Second), "it lives")
	for range 6 {
		require.Less(t, look(ttl/6-time.Millisecond), ttl)
	}
	require.GreaterOrEqual(t, look(ttl/6), ttl)
}

// What was not looked at for long is forgotten, and begins again.
func TestWatchlistIsPruned(t *testing.T) {
	t.Parallel()
	w, now := heartbeats{}, time.Now()
	w.stillFor(uuid.New(), 1, now, time.Second)
	w.prune(now.Add(time.Second), time.Minute)
	require.Len(t, w, 1)
	w.prune(now.Add(2*time.Minute), time.Minute)
	require.Empty(t, w)
}
