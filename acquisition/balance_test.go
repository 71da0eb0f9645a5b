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
		b.took()
	}
	require.False(t, b.mayGive(25, now), "its share")
	give := func() (n int) {
		for b.mayGive(13, now) {
			n++
		}
		return n
	}
	require.Equal(t, 2, give(), "an eighth of the surplus of 12, rounded up")
	require.Zero(t, give())
	b.lost()
	b.lost()
	now = now.Add(balanceEvery)
	require.Equal(t, 2, give())
	for b.held > 13 {
		b.lost()
	}
	now = now.Add(balanceEvery)
	require.Zero(t, give())
}

// Ten thousand locks on one node are where they belong within a minute of four others'
// coming.
func TestBalanceWithinAMinute(t *testing.T) {
	t.Parallel()
	b, now := &balance{}, time.Now()
	for range 10_000 {
		b.took()
	}
	const share = 2500
	seconds := 0
	for ; b.held > share+1; seconds++ {
		n := 0
		for b.mayGive(share, now) {
			n++
		}
		for range n {
			b.lost()
		}
		now = now.Add(balanceEvery)
	}
	require.Less(t, seconds, 60)
}
