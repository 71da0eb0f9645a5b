package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestBalance(t *testing.T) {
	t.Parallel()
	b, now := &balance{}, time.Now()
	for range 25 {
		b.count(1)
	}
	require.False(t, b.mayRelease(25, now), "its share")
	give := func() (n int) {
		for b.mayRelease(13, now) {
			n++
		}
		return n
	}
	require.Equal(t, 2, give(), "an eighth of the surplus of 12, rounded up")
	require.Zero(t, give())
	b.count(-1)
	b.count(-1)
	now = now.Add(tendEvery)
	require.Equal(t, 2, give())
	for b.held > 13 {
		b.count(-1)
	}
	now = now.Add(tendEvery)
	require.Zero(t, give())
}

// Ten thousand locks on one node are where they belong within a minute of four others'
// coming.
func TestBalanceWithinAMinute(t *testing.T) {
	t.Parallel()
	b, now := &balance{}, time.Now()
	for range 10_000 {
		b.count(1)
	}
	const share = 2500
	seconds := 0
	for ; b.held > share+1; seconds++ {
		n := 0
		for b.mayRelease(share, now) {
			n++
		}
		for range n {
			b.count(-1)
		}
		now = now.Add(tendEvery)
	}
	require.Less(t, seconds, 60)
}
