package lease

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

func TestKeeperRenews(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	ctx, h := b.lock(s)
	first := b.count(renewals)
	_, beats := b.state(s.id)
	b.until(func() bool { return b.count(renewals) >= first+3 }, "renewals")
	_, now := b.state(s.id)
	require.Greater(t, now, beats, "the session is kept alive by the same round trip")
	require.NoError(t, ctx.Err())
	require.True(t, h.trust.holds())

	b.keeper.Release(h)
	require.ErrorIs(t, ended(t, ctx), ErrLockLost)
	last := b.count(renewals)
	_, beats = b.state(s.id)
	b.until(func() bool { _, now := b.state(s.id); return now >= beats+3 }, "heartbeats go on")
	require.LessOrEqual(t, b.count(renewals), last+1, "one may have been on its way")
}

func TestKeeperLosesTheLock(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	ctx, _ := b.lock(s)
	b.exec("UPDATE tenure.acquire_lock SET epoch = epoch + 1")
	require.ErrorIs(t, ended(t, ctx), ErrLockLost)
	require.NoError(t, s.ctx.Err(), "running jobs do not notice that the lock moves")
	require.True(t, s.MayStart())
	require.Same(t, s, b.session())
}

func TestKeeperDoesNotTrustALockThatItCannotRenew(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Lock.TTL = 500 * time.Millisecond }, nil).start()
	s := b.session()
	ctx, h := b.lock(s)
	b.proxy.SetRule(cutLock)
	b.proxy.Cut(lockOnly)
	require.ErrorIs(t, ended(t, ctx), ErrTrustOver)
	require.False(t, h.trust.holds())
	require.True(t, s.MayStart(), "the session is trusted for longer")
}

// A look on the lock's connection may be the first to find out that it is no good. Then the
// next renewal is due soon, as that may take a while to succeed.
func TestKeeperRenewsSoonAfterALookFailed(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Lock.RenewEvery = 10 * time.Second }, nil)
	_, _ = b.lock(b.session())
	b.keeper.conn.fresh.Store(true)
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "FROM tenure.claim") {
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	require.Less(t, b.keeper.keepAlive(t.Context()), b.cfg.Lock.RenewEvery)
	b.proxy.SetRule(nil)
	require.Equal(t, b.cfg.Lock.RenewEvery, b.keeper.keepAlive(t.Context()))
}

// Anyone who finds out first that the session is lost may open another one while the term
// still holds the lock that was taken with the old one.
func TestKeeperDoesNotRenewForAnotherSession(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		b := setup(t, nil, nil)
		s := b.session()
		ctx, _ := b.lock(s)
		b.keeper.loseSession(s)
		if another {
			s = b.session()
		}
		b.keeper.keepAlive(t.Context())
		require.ErrorIs(t, context.Cause(ctx), ErrLockLost)
		if another {
			require.Same(t, s, b.keeper.Current())
			require.NoError(t, s.ctx.Err())
			_, beats := b.state(s.id)
			require.EqualValues(t, 1, beats)
		}
	}
}

func TestKeeperCancelsOnRequest(t *testing.T) {
	t.Parallel()
	b, running, cause := setupLong(t, context.Canceled)
	s := b.session()
	claims := b.claim(s, "long")
	id := claims[0].Record.ID
	b.submit(s, claims)
	within(t, running)
	b.exec("INSERT INTO tenure.cancel_request (job_id) VALUES ($1)", int64(id))
	require.ErrorIs(t, within(t, cause), job.ErrCancelled)
	within(t, s.completer.whenIdle())
	require.Equal(t, store.Counts{Finished: 1}, b.counts())
}

// After a reconnect the keeper looks for claims that a fail-over has brought back.
func TestKeeperRemovesGhosts(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, 0, '{1}', now())", s.id)
	b.proxy.Cut(nil)
	b.eventually(0, "SELECT count(*) FROM tenure.claim")
}
