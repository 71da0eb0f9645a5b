package backoff

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// Waits double from the first to the longest, whatever the jitter adds, and begin from the
// first again after a success.
func TestBackoff(t *testing.T) {
	b := Backoff{Policy: Policy{First: 100 * time.Millisecond, Longest: time.Second}}
	require.Zero(t, b.Wait(0))
	for _, want := range []time.Duration{100, 200, 400, 800, 1000, 1000} {
		want *= time.Millisecond
		got := b.Next()
		require.GreaterOrEqual(t, got, want)
		require.Less(t, got, want+want/4)
	}
	require.Equal(t, 6, b.failures)
	b.Reset()
	require.Zero(t, b.failures)
	require.Less(t, b.Next(), 125*time.Millisecond)
}

// No number of failures makes a wait overflow, shrink, or exceed its bound.
func TestWaitIsBounded(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := Policy{First: time.Duration(rapid.Int64Range(1, int64(time.Hour)).Draw(t, "first"))}
		p.Longest = p.First * time.Duration(rapid.Int64Range(1, 1000).Draw(t, "times"))
		n := rapid.IntRange(1, 1_000_000).Draw(t, "failures")
		require.GreaterOrEqual(t, p.Exactly(n+1), p.Exactly(n))
		require.LessOrEqual(t, p.Exactly(n), p.Longest)
		require.Less(t, p.Wait(n), p.Longest+p.Longest/4+1)
	})
}
