package acquisition

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/job"
)

// asideTerm is a term with nothing but looks.
func asideTerm(duties ...duty) (*term, *observer.ObservedLogs) {
	core, logged := observer.New(zap.WarnLevel)
	t := &term{acquirer: &acquirer{keeper: &keeper{inbox: newInbox()}, log: zap.New(core)}, aside: newAside(&term{})}
	t.aside.duties = duties
	return t, logged
}

func always(d time.Duration) func() time.Duration { return func() time.Duration { return d } }

// One look at a time, whatever has been due for longest first; each rests for ten times as
// long as it took, unless it is asked for.
func TestLooksTakeTurns(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var a, b time.Time
		var began []string
		used := 0
		takes := func(name string, d time.Duration) func() look {
			return func() look {
				began = append(began, name)
				return func(context.Context) (func(), error) {
					time.Sleep(d)
					return func() { used++ }, nil
				}
			}
		}
		b = time.Now().Add(-time.Second)
		a = time.Now()
		tm, _ := asideTerm(duty{at: &a, every: always(time.Second), begin: takes("a", time.Millisecond)},
			duty{at: &b, every: always(time.Second), begin: takes("b", time.Minute)})
		tm.lookAside(t.Context())
		require.Equal(t, []string{"b"}, began)
		time.Sleep(30 * time.Second)
		tm.lookedAside(t.Context())
		tm.lookAside(t.Context())
		require.Equal(t, []string{"b"}, began, "one at a time")
		require.True(t, tm.aside.busy())
		time.Sleep(30 * time.Second)
		synctest.Wait()
		time.Sleep(time.Hour) // until the loop comes by, which is not the look's doing
		require.True(t, nudged(tm.keeper.inbox.nudge))
		tm.lookedAside(t.Context())
		require.Equal(t, 1, used)
		require.False(t, tm.aside.busy())
		require.Equal(t, 10*time.Minute, time.Until(b))
		tm.lookAside(t.Context())
		require.Equal(t, []string{"b", "a"}, began)
		asked := time.Now()
		a = asked // once more
		time.Sleep(time.Second)
		tm.lookedAside(t.Context())
		require.Equal(t, 2, used)
		require.Equal(t, asked, a)
		tm.lookAside(t.Context())
		require.Equal(t, []string{"b", "a", "a"}, began)
		tm.group.Wait()
	})
}

// A look that fails, or takes longer than it may, is told of and taken again, at longer and
// longer intervals. It ends nothing.
func TestLooksFail(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var at time.Time
		fails, instead := true, 0
		tm, logged := asideTerm(duty{what: "trouble", at: &at, every: always(time.Hour), instead: func() { instead++ }, begin: func() look {
			return func(ctx context.Context) (func(), error) {
				if fails {
					return nil, errors.New("none of that")
				}
				<-ctx.Done()
				return nil, ctx.Err()
			}
		}})
		look := func(takes time.Duration) time.Duration {
			at = time.Now()
			tm.lookAside(t.Context())
			time.Sleep(takes)
			synctest.Wait()
			tm.lookedAside(t.Context())
			require.False(t, tm.aside.busy())
			return time.Until(at)
		}
		for i, want := range []time.Duration{1, 2, 4, 8, 16, 32, 60, 60, 60, 60, 60, 60, 60} {
			require.Equal(t, want*time.Second, look(0))
			require.Equal(t, i+1, logged.Len())
			require.Equal(t, i+1, instead)
		}
		require.Contains(t, logged.All()[0].Message, "could not look for trouble")
		fails = false
		require.Equal(t, time.Minute, look(queryTimeout))

		said := logged.Len() // of a term that is over nothing is to be said
		ended, end := context.WithCancel(t.Context())
		end()
		at = time.Now()
		tm.lookAside(ended)
		synctest.Wait()
		tm.lookedAside(ended)
		require.Equal(t, said, logged.Len())
	})
}

// The holder forgets what was asked of jobs that have ended, and not what is asked of one
// that is to run again.
func TestTheHolderForgetsCancelRequests(t *testing.T) {
	t.Parallel()
	ran := make(chan job.ID, 1)
	b := setup(t, nil, tells(ran)).start()
	later := b.count(`INSERT INTO tenure.timer_job (tenant_id, queue, kind, payload, due_at)
		VALUES ('acme', 'default', 'k', '1', now() + interval '1 hour') RETURNING id`)
	now := b.enqueue("tell")
	b.exec("INSERT INTO tenure.cancel_request (job_id) VALUES ($1), ($2)", later, int64(now)+1000)
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, &fakeElector{changes: make(chan struct{}, 1)}, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, m.Start(t.Context()))
	require.Equal(t, now, within(t, ran))
	b.eventually(1, "SELECT count(*) FROM tenure.cancel_request")
	require.Equal(t, later, b.count("SELECT job_id FROM tenure.cancel_request"))
	require.NoError(t, m.Stop(t.Context()))
	require.NoError(t, b.stop(t.Context()))
}

// Hints go to the last holder for a while, so that a new one looks by itself; not where
// nothing was going on, as in the thousands of pools that a node takes over.
func TestANewHolderLooksByItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		cfg := DefaultConfig()
		tm := &term{acquirer: &acquirer{cfg: cfg}, lanes: newLanes(), began: time.Now()}
		require.Equal(t, unknownEvery, tm.discoverEvery())
		time.Sleep(unknownFor)
		require.Equal(t, cfg.IdleWait, tm.discoverEvery())
		tm.began, tm.wasIdle = time.Now(), true
		require.Equal(t, cfg.IdleWait, tm.discoverEvery())
		tm.wasIdle, tm.cfg.IdleWait = false, time.Millisecond
		require.Equal(t, time.Millisecond, tm.discoverEvery())
		tm.lanes.see(laneOf("acme", 0))
		time.Sleep(unknownFor)
		require.Equal(t, discoverEvery, tm.discoverEvery())
	})
}
