package acquisition

import (
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/store"
)

// A gap in the looks is time in which the database may have been away from everybody:
// it must not make a session look dead that was about to beat.
func TestTimeWithoutALookCountsLittle(t *testing.T) {
	t.Parallel()
	const ttl = 15 * time.Second
	w, now := watchlist{}, time.Now()
	s := store.Session{ID: uuid.New(), Beat: 7}
	look := func(after time.Duration) time.Duration {
		now = now.Add(after)
		return w.still(s, now, ttl/3)
	}
	require.Zero(t, look(0))
	require.Equal(t, 4*time.Second, look(4*time.Second))
	require.Less(t, look(time.Minute), ttl, "nobody looked for a minute")
	s.Beat++
	require.Zero(t, look(time.Second), "it lives")
	for range 6 {
		require.Less(t, look(ttl/6-time.Millisecond), ttl)
	}
	require.GreaterOrEqual(t, look(ttl/6), ttl)
}
