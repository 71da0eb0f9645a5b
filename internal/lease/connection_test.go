package lease

import (
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// errSilent is that of a call that got no answer.
var errSilent = errors.New("no answer")

// What is down is tried ever less often, up to a point, and no two nodes keep step.
func TestReachBacksOff(t *testing.T) {
	t.Parallel()
	now := time.Now()
	policy := func(lock, session time.Duration) backoff.Policy {
		return retriesOf(Config{Lock: LockConfig{TTL: lock}, Session: SessionConfig{TTL: session}})
	}
	waits := func() (out []time.Duration) {
		var r routing.Breaker
		r.Pace(time.Hour, policy(time.Minute, time.Minute))
		for i := range 12 {
			r.Note(errSilent, now)
			require.Equal(t, i == 0 || i == 1 || i == 3 || i == 7, r.IsNews(""), "failure %d", i+1)
			out = append(out, r.WaitLeft(now))
		}
		require.True(t, r.IsNews("28P01"), "the password has changed meanwhile")
		require.False(t, r.IsNews("28P01"))
		require.Zero(t, r.WaitLeft(now.Add(time.Minute)))
		r.Note(nil, now)
		require.True(t, r.IsDown())
		require.Zero(t, r.WaitLeft(now), "it answers, and is asked as often as somebody wants to know")
		r.Note(errSilent, now)
		require.Less(t, r.WaitLeft(now), retryEvery+retryEvery/4)
		return out
	}
	require.Equal(t, time.Second, policy(time.Minute, 6*time.Second).Longest, "which must not look dead meanwhile")
	require.Equal(t, time.Second, policy(4*time.Second, time.Minute).Longest)
	one, other := waits(), waits()
	require.NotEqual(t, one, other)
	for i, least := range []time.Duration{0, 0, 1000, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500, 1500} {
		least *= time.Millisecond
		require.GreaterOrEqual(t, one[i], least)
		require.LessOrEqual(t, one[i], least+least/4)
	}
}

// Anyone who wants something of a database that is down is told at once, and does not connect
// to it.
func TestADownDatabaseIsLeftAlone(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	var tries atomic.Int32
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		tries.Add(1)
		return cutLock(e)
	})
	call := func() error {
		return b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
			_, err := store.ReadLock(ctx, conn)
			return err
		})
	}
	const downAfter = 3
	for range downAfter {
		require.NotErrorIs(t, call(), errDown)
	}
	down := tries.Load()
	require.GreaterOrEqual(t, down, int32(downAfter))
	failIn := func(d time.Duration) { // so that no slow machine makes a difference
		require.Positive(t, b.pool.Breaker.WaitLeft(time.Time{}))
		b.pool.Breaker.Note(errSilent, time.Now().Add(d))
	}
	failIn(time.Hour)
	for range 10 {
		require.ErrorIs(t, call(), errDown)
		_, err := b.keeper.Session(t.Context())
		require.ErrorIs(t, err, errDown)
	}
	require.Equal(t, down, tries.Load())
	require.Greater(t, b.keeper.RetryIn(), time.Minute)
	b.pool.Breaker.TryAtOnce()
	require.NotErrorIs(t, call(), errDown)
	require.Greater(t, tries.Load(), down)

	failIn(time.Hour)
	s := newSession(poolLedger{pool: b.pool, session: uuid.New(), unwritten: newMetrics().lost}, b.workers, b.events, newMetrics().lost, zap.NewNop())
	defer s.end(errSessionEnded)
	b.proxy.SetRule(nil)
	require.ErrorIs(t, b.keeper.sendHeartbeat(t.Context(), s), errDown)
	b.keeper.endLife()
	require.ErrorIs(t, b.keeper.sendHeartbeat(t.Context(), s), store.ErrSessionLost, "who stops tries once more, and hears that it was never there")
}
