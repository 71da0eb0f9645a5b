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
func TestCrowding(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var c crowding
		none := errors.New("too many connections")
		require.NoError(t, c.ask())
		require.NoError(t, c.ask(), "nothing is wrong")
		c.refused(none)
		c.refused(none)

		began, asked := time.Now(), 0
		for time.Since(began) < time.Minute {
			for range 20 {
				if err := c.ask(); err != nil {
					require.ErrorIs(t, err, ErrCrowded)
					require.ErrorIs(t, err, none)
					continue
				}
				asked++
				c.refused(none)
			}
			time.Sleep(10 * time.Millisecond)
		}
		require.LessOrEqual(t, asked, 16)
		require.GreaterOrEqual(t, asked, 10)

		for c.ask() != nil { // the answer to who is let through is not there yet
			time.Sleep(10 * time.Millisecond)
		}
		require.ErrorIs(t, c.ask(), ErrCrowded)
		time.Sleep(firstAsk)
		require.NoError(t, c.ask(), "it has failed for another reason")
		require.ErrorIs(t, c.ask(), ErrCrowded)
		c.served()
		require.NoError(t, c.ask())
		require.NoError(t, c.ask())

		c.refused(none)
		time.Sleep(3 * lastAsk)
		require.NoError(t, c.ask())
		require.NoError(t, c.ask(), "nobody has asked for long")
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
