package lease

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// A handler sees that its session was declared dead, its run changes nothing, and the
// node goes on with another session.
func TestKeeperLosesTheSession(t *testing.T) {
	t.Parallel()
	b, running, cause := setupLong(t, nil) // as if it had been done
	s := b.session()
	term, h := b.lock(s)
	claims := b.claim(s, "long")
	b.submit(s, claims)
	within(t, running)

	// As the holder of the lock does: the turn is raised with it.
	b.exec(`WITH dead AS (UPDATE tenure.node_session SET state = 'dead'), claims AS (DELETE FROM tenure.claim)
		UPDATE tenure.job SET turn = turn + 1`)
	err := within(t, cause)
	require.ErrorIs(t, err, job.ErrClaimLost)
	require.ErrorIs(t, err, errSessionLost)
	require.ErrorIs(t, ended(t, term), ErrLockLost)
	b.keeper.Release(h)
	require.False(t, s.MayStart())
	within(t, s.completer.stopped) // its last run has reported
	require.False(t, s.HasClaims())
	require.Equal(t, store.Counts{Waiting: 1}, b.counts(), "what it reported found no row")
	require.EqualValues(t, 1, counted(t, b.keeper.node.metrics.sessionsLost))
	require.EqualValues(t, 1, counted(t, b.keeper.node.metrics.lost))

	other := b.session()
	require.NotEqual(t, s.id, other.id)
	b.until(func() bool { _, beats := b.state(other.id); return beats >= 1 }, "heartbeats")
	require.NoError(t, b.stop(t.Context()))
	state, _ := b.state(s.id)
	require.Equal(t, "dead", state)
}

// makeIdle lets a session be unwanted from now on.
func (b *bundle) makeIdle() {
	b.keeper.Current().want(0)
	wake(b.keeper.conn.nudge)
}

func TestKeeperLeavesWhenIdle(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	claims := b.claim(s, "k")
	b.makeIdle()
	_, beats := b.state(s.id)
	b.until(func() bool { _, now := b.state(s.id); return now >= beats+3 }, "it has a claim, and goes on")

	s.Finish(&claims[0], job.Outcome{State: job.Done})
	within(t, s.completer.stopped)
	state, _ := b.state(s.id)
	require.Equal(t, "left", state)
	require.ErrorIs(t, context.Cause(s.ctx), errSessionEnded)
	require.Nil(t, b.keeper.Current())
	b.eventually(0, lockConns)

	other := b.session()
	require.NotEqual(t, s.id, other.id, "a session that has left does not come back")
	b.until(func() bool { _, beats := b.state(other.id); return beats >= 1 }, "heartbeats")
}

// watched tells when somebody asks whether it is done.
type watched struct {
	context.Context
	asked chan struct{}
}

func (w watched) Err() error {
	wake(w.asked)
	return w.Context.Err()
}

// A session that is asked for just as it is about to leave stays: the lock would be
// taken with it otherwise, and not renewed.
func TestKeeperStaysWhenWantedAgain(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil) // not started: the test ticks
	s := b.session()
	b.makeIdle()
	ctx := watched{t.Context(), make(chan struct{}, 1)}
	ticked := make(chan time.Duration, 1)
	b.keeper.conn.mu.Lock()
	go func() { ticked <- b.keeper.keepAlive(ctx) }()
	within(t, ctx.asked) // it has found the session idle, and waits for the connection
	require.Same(t, s, b.session())
	b.keeper.conn.mu.Unlock()
	require.Equal(t, b.cfg.Session.HeartbeatEvery, within(t, ticked))
	require.Same(t, s, b.keeper.Current())
	b.lock(s)
	require.Equal(t, b.cfg.Lock.RenewEvery, b.keeper.keepAlive(t.Context()), "renewed")
}

// What the ledger says counts: a claim that this node does not know of keeps the row
// of the session, which then expires.
func TestKeeperLeavesNoClaimBehindInSilence(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	b.ghostsSought()
	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids) VALUES ($1, 0, '{1}')", s.id)
	err := b.stop(t.Context())
	require.ErrorContains(t, err, "pool main: claims are left in the ledger")
	state, _ := b.state(s.id)
	require.Equal(t, "live", state)
}

func TestKeeperGoesOnWhileItCannotLeave(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	var tried atomic.Int64
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if lockOnly(e.App) {
			tried.Add(1)
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	b.makeIdle()
	b.until(func() bool { return tried.Load() >= 3 })
	require.Same(t, s, b.keeper.Current())
	require.NoError(t, s.ctx.Err())
	b.proxy.SetRule(nil)
	within(t, s.completer.stopped)
	state, _ := b.state(s.id)
	require.Equal(t, "left", state)
}

func TestKeeperStopWritesTheLastOutcomes(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
	claims := b.claim(s, "k", "k", "k")
	stopped := make(chan error, 1)
	go func() { stopped <- b.stop(context.Background()) }()
	s.Finish(&claims[0], job.Outcome{State: job.Done})
	within(t, b.events.nudge) // it is written
	select {
	case err := <-stopped:
		require.FailNow(t, "two jobs are running", "%v", err)
	default:
	}
	s.Finish(&claims[1], job.Outcome{State: job.Dead, Err: errWrite})
	s.Return(&claims[2])
	require.NoError(t, within(t, stopped))
	require.Equal(t, store.Counts{Finished: 1, Dead: 1, Waiting: 1}, b.counts(), "nothing is claimed")
	state, _ := b.state(s.id)
	require.Equal(t, "left", state)
	b.eventually(0, lockConns)
}

func TestKeeperStopIsBounded(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		spoil func(b *bundle, s *Session, claims []execution.ClaimedJob)
		says  string // "": nothing
	}{
		"a handler does not return": {func(*bundle, *Session, []execution.ClaimedJob) {}, "1 claim could not be brought to an end"},
		"a handler does not return, and the session was lost": {func(b *bundle, s *Session, _ []execution.ClaimedJob) {
			b.exec("UPDATE tenure.node_session SET state = 'dead'")
			require.ErrorIs(b.t, ended(b.t, s.ctx), job.ErrClaimLost)
		}, ""},
		"the database is away": {func(b *bundle, s *Session, claims []execution.ClaimedJob) {
			b.proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
			b.proxy.Cut(nil)
			s.Finish(&claims[0], job.Outcome{State: job.Done})
		}, "1 claim could not be brought to an end"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil).start()
			s := b.session()
			c.spoil(b, s, b.claim(s, "k"))
			ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
			defer cancel()
			stopped := make(chan error, 1)
			go func() { stopped <- b.stop(ctx) }()
			err := within(t, stopped)
			if c.says == "" {
				require.NoError(t, err)
			} else {
				require.ErrorContains(t, err, c.says)
			}
			within(t, s.completer.stopped)
			require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.claim"), "it stands, and the job runs again elsewhere")
		})
	}
}

func TestKeeperStopsUnused(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	require.NoError(t, b.sessions.Stop(t.Context()), "not started")
	b.start()
	require.NoError(t, b.stop(t.Context()))
	require.NoError(t, b.sessions.Stop(t.Context()))
	require.Zero(t, b.count("SELECT count(*) FROM tenure.node_session"))
}

// A pool that was taken away may take long to be left; a node that stops meanwhile does
// not wait for longer than it has time.
func TestKeeperStopIsBoundedByEachCaller(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.keeper.ending.once.Do(func() {}) // somebody else is at it
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	err := b.keeper.stop(ctx)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorContains(t, err, "pool main is still being left")
	require.NoError(t, b.keeper.stopKeeping(t.Context()))
	close(b.keeper.ending.done)
	require.NoError(t, b.keeper.stop(ctx), "although there is no time left")
	require.NoError(t, b.stop(t.Context()))
}

// The lock is taken with a session that is lost at the same time: the term must hear of
// it, whichever comes first, as nobody renews the lock any more.
func TestKeeperLosesWhatWasJustTaken(t *testing.T) {
	t.Parallel()
	for name, lostFirst := range map[string]bool{"taken, then lost": false, "lost, then taken": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil) // not started: nobody ticks
			s := b.session()
			if lostFirst {
				b.keeper.loseSession(s)
			}
			ctx, h := b.keeper.Hold(store.Fence{Session: s.id, Epoch: 1, Incarnation: 1}, Now())
			defer b.keeper.Release(h)
			if !lostFirst {
				b.keeper.loseSession(s)
			}
			require.ErrorIs(t, context.Cause(ctx), ErrLockLost)
		})
	}
}
