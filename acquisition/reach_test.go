package acquisition

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
)

func TestReachIsSlowToChange(t *testing.T) {
	t.Parallel()
	const quiet = 4 * time.Second
	var told []bool
	r := reach{longest: lastRetry, changed: func(up bool) { told = append(told, up) }}
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

// What is down is tried ever less often, up to a point, and no two nodes keep step.
func TestReachBacksOff(t *testing.T) {
	t.Parallel()
	now := time.Now()
	waits := func() (out []time.Duration) {
		r := reach{longest: longestRetry(time.Minute, time.Minute)}
		for i := range 12 {
			r.note(false, now, time.Hour)
			require.Equal(t, i == 0 || i == 1 || i == 3 || i == 7, r.isNews(""), "failure %d", i+1)
			out = append(out, r.rest(now))
		}
		require.True(t, r.isNews("28P01"), "the password has changed meanwhile")
		require.False(t, r.isNews("28P01"))
		require.Zero(t, r.rest(now.Add(time.Minute)))
		r.note(true, now, time.Hour)
		require.True(t, r.isDown())
		require.Zero(t, r.rest(now), "it answers, and is asked as often as somebody wants to know")
		r.note(false, now, time.Hour)
		require.Less(t, r.rest(now), firstRetry+firstRetry/4)
		return out
	}
	require.Equal(t, time.Second, longestRetry(time.Minute, 6*time.Second), "which must not look dead meanwhile")
	require.Equal(t, time.Second, longestRetry(4*time.Second, time.Minute))
	one, other := waits(), waits()
	require.NotEqual(t, one, other)
	for i, least := range []time.Duration{0, 0, 1000, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500} {
		least *= time.Millisecond
		require.GreaterOrEqual(t, one[i], least)
		require.LessOrEqual(t, one[i], least+least/4)
	}
}

// Whoever wants something of a database that is down is told at once, and does not connect
// to it.
func TestADownDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	var tries atomic.Int32
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		tries.Add(1)
		return cutLock(e)
	})
	a := b.acquirer(&fakeElector{})
	call := func() error { _, err := a.look(t.Context()); return err }
	for range downAfter {
		require.NotErrorIs(t, call(), errLeftAlone)
	}
	down := tries.Load()
	require.GreaterOrEqual(t, down, int32(downAfter))
	again := func(in time.Duration) { // so that no slow machine makes a difference
		r := &b.keeper.reach
		r.mu.Lock()
		defer r.mu.Unlock()
		require.False(t, r.next.IsZero())
		r.next = time.Now().Add(in)
	}
	again(time.Hour)
	for range 10 {
		require.ErrorIs(t, call(), errLeftAlone)
		_, err := b.keeper.session(t.Context())
		require.ErrorIs(t, err, errLeftAlone)
	}
	require.Equal(t, down, tries.Load())
	require.Greater(t, b.keeper.retry(), time.Minute)
	again(0)
	require.NotErrorIs(t, call(), errLeftAlone)
	require.Greater(t, tries.Load(), down)

	again(time.Hour)
	s := newSession(b.keeper)
	defer s.end(errSessionEnded)
	b.proxy.SetRule(nil)
	require.ErrorIs(t, b.keeper.beat(t.Context(), s), errLeftAlone)
	b.keeper.cancel()
	require.ErrorIs(t, b.keeper.beat(t.Context(), s), store.ErrSessionLost, "who stops tries once more, and hears that it was never there")
}
