package acquisition

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
		require.False(t, tr.stands(), "nothing was renewed yet")
		require.Zero(t, tr.left())

		const ttl = 8 * time.Second
		sent := time.Now()
		time.Sleep(time.Second) // the answer's way
		tr.extend(sent, ttl)
		require.Equal(t, ttl-time.Second-margin, tr.left(), "counted from before the request, less the margin")
		time.Sleep(ttl - time.Second - margin - 1)
		require.True(t, tr.stands())
		time.Sleep(time.Nanosecond)
		require.False(t, tr.stands())
		require.Zero(t, tr.left())
		time.Sleep(time.Hour)
		require.Negative(t, tr.left())

		tr.extend(time.Now(), ttl)
		require.True(t, tr.stands())
		tr.extend(time.Now().Add(-ttl), ttl)
		require.False(t, tr.stands(), "an answer that took the whole time to live is worth nothing")
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
	tr.extend(time.Now(), time.Hour)
	for range 4 {
		group.Go(func() {
			for range 1000 {
				tr.extend(time.Now(), time.Hour)
			}
		})
		group.Go(func() {
			for range 1000 {
				if !tr.stands() {
					t.Error("the trust ran out while it was extended")
					return
				}
			}
		})
	}
	group.Wait()
}
