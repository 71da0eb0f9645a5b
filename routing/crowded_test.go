package routing

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// However many want a connection, a server that has none left is asked now and then, and
// once it has one all may ask again.
func TestCrowdBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var b crowdBreaker
		none := errors.New("too many connections")
		require.NoError(t, b.allow())
		require.NoError(t, b.allow(), "nothing is wrong")
		b.trip(none)
		b.trip(none)

		began, asked := time.Now(), 0
		for time.Since(began) < time.Minute {
			for range 20 {
				if err := b.allow(); err != nil {
					require.ErrorIs(t, err, ErrCrowded)
					require.ErrorIs(t, err, none)
					continue
				}
				asked++
				b.trip(none)
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, asked, 16)
		require.GreaterOrEqual(t, asked, 10)

		for b.allow() != nil { // the answer to who is let through is not there yet
			time.Sleep(10 * time.Millisecond)
		}
		require.ErrorIs(t, b.allow(), ErrCrowded)
		time.Sleep(crowdPolicy.First)
		require.NoError(t, b.allow(), "it has failed for another reason")
		require.ErrorIs(t, b.allow(), ErrCrowded)
		b.reset()
		require.NoError(t, b.allow())
		require.NoError(t, b.allow())

		b.trip(none)
		time.Sleep(3 * crowdPolicy.Longest)
		require.NoError(t, b.allow())
		require.NoError(t, b.allow(), "nobody has asked for long")
	})
}

func TestShortage(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var s shortage
		require.False(t, s.holds())
		time.Sleep(time.Millisecond) // the clock of the bubble may be behind began
		s.last.Store(int64(time.Since(began)))
		require.True(t, s.holds())
		time.Sleep(shortFor)
		require.False(t, s.holds())
	})
}
