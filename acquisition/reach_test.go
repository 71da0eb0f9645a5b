package acquisition

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestReachIsSlowToChange(t *testing.T) {
	t.Parallel()
	const quiet = 4 * time.Second
	var told []bool
	r := reach{changed: func(up bool) { told = append(told, up) }}
	now := time.Now()
	note := func(ok bool, after time.Duration) {
		now = now.Add(after)
		r.note(ok, now, quiet)
	}
	note(false, 0)
	note(false, time.Millisecond)
	note(true, time.Millisecond)
	note(false, time.Millisecond)
	note(false, time.Millisecond)
	require.False(t, r.isDown(), "never three in a row")
	note(false, time.Millisecond)
	require.True(t, r.isDown())

	note(true, time.Second)
	note(true, time.Second)
	note(true, time.Second)
	require.True(t, r.isDown(), "three, but within two seconds")
	note(false, time.Second)
	note(true, time.Second)
	note(true, 3*time.Second)
	require.True(t, r.isDown(), "two since the last failure")
	note(true, 3*time.Second)
	require.False(t, r.isDown())

	note(false, time.Second)
	note(false, quiet)
	require.True(t, r.isDown(), "two failures, and long without success")
	require.Equal(t, []bool{false, true, false}, told)
}
