package lease

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

func TestKeeperOpensASessionWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	require.Zero(t, b.count(lockConns), "a pool that nobody needs costs no connection")
	require.Nil(t, b.keeper.Current())

	s := b.session()
	require.Same(t, s, b.session())
	require.Same(t, s, b.keeper.Current())
	require.True(t, s.MayStart())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session"))
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session WHERE session_id = $1 AND node = 'a' AND member = 'a-1' AND kinds = '{k}'", s.id))
	b.until(func() bool { _, beats := b.state(s.id); return beats >= 3 }, "heartbeats")
	require.EqualValues(t, 1, b.count(lockConns), "one connection for all of it")

	require.NoError(t, b.stop(t.Context()))
	state, _ := b.state(s.id)
	require.Equal(t, "left", state)
	require.False(t, s.MayStart())
	b.eventually(0, lockConns)
}

// The acquirer and the assistant may need it at the same time. With two of them, one
// would be beaten for and the other one's jobs not be run.
func TestKeeperOpensOneSession(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	const callers = 8
	got := make(chan *Session, callers)
	for range callers {
		go func() {
			s, err := b.keeper.Session(context.Background())
			if err != nil {
				s = nil
			}
			got <- s
		}()
	}
	first := within(t, got)
	require.NotNil(t, first)
	for range callers - 1 {
		require.Same(t, first, within(t, got))
	}
	require.Same(t, first, b.keeper.Current())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session"))
}

func TestKeeperOpensNoSessionWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.proxy.SetRule(cutLock)
	_, err := b.keeper.Session(t.Context())
	require.Error(t, err)
	require.Nil(t, b.keeper.Current())
	b.proxy.SetRule(nil)
	b.session()
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session"))
}

// The answer to an open may get lost; the session that nobody knows of is ended.
func TestKeeperOpensAnotherSessionAfterALostAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if strings.Contains(e.SQL, "INSERT INTO tenure.node_session") {
			return faultproxy.CutAfter
		}
		return faultproxy.Pass
	})
	_, err := b.keeper.Session(t.Context())
	require.Error(t, err)
	require.EqualValues(t, 1, b.count(liveSessions))
	b.proxy.SetRule(nil)
	s := b.session()
	require.EqualValues(t, 1, b.count(liveSessions), "and not two")
	b.until(func() bool { _, beats := b.state(s.id); return beats >= 1 }, "heartbeats")
}

const liveSessions = "SELECT count(*) FROM tenure.node_session WHERE state = 'live'"

// A stop may cut the opening of a session short when Postgres does not heed that any more:
// it may have opened it when the stop asks, or be about to.
func TestStopEndsASessionThatWasBeingOpened(t *testing.T) {
	t.Parallel()
	for name, first := range map[string]bool{"it was opened first": true, "it is opened while the stop asks": false} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			for range 8 { // the machine may be busy: Postgres waits for the lock of a row for two seconds, and then the session has to expire
				if live, slowest := stopWhileOpening(t, first); slowest < 2*time.Second {
					require.Zero(t, live)
					return
				}
			}
			require.Fail(t, "the machine is too busy")
		})
	}
}

// stopWhileOpening returns how many sessions live after a stop that came while one was being opened,
// and how long the slower of the two calls that concern it has waited.
func stopWhileOpening(t *testing.T, first bool) (live int64, slowest time.Duration) {
	const waiting = "SELECT count(*) FROM pg_locks l JOIN pg_stat_activity USING (pid) WHERE datname = current_database() AND NOT granted AND locktype = $1"
	const opening = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%INSERT INTO tenure.node_session%' AND state = 'active' AND datname = current_database() AND pid <> pg_backend_pid()"
	b := setup(t, nil, nil).start()
	b.exec(`CREATE FUNCTION be_committing() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN LOOP
		BEGIN PERFORM pg_advisory_xact_lock(1); RETURN NEW; EXCEPTION WHEN query_canceled OR lock_not_available THEN NULL; END;
		END LOOP; END $$`)
	b.exec("CREATE TRIGGER be_committing AFTER INSERT ON tenure.node_session FOR EACH ROW EXECUTE FUNCTION be_committing()")
	tx, err := b.db.Begin(t.Context())
	require.NoError(t, err)
	_, err = tx.Exec(t.Context(), "SELECT pg_advisory_xact_lock(1)")
	require.NoError(t, err)
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cut := make(chan error, 1)
	began := time.Now()
	go func() {
		_, err := b.keeper.Session(ctx)
		cut <- err
	}()
	b.until(func() bool { return len(cut) == 1 || b.count(waiting, "advisory") == 1 }, "Postgres is opening it")
	cancel()
	require.Error(t, within(t, cut))
	slowest = time.Since(began)
	if first {
		require.NoError(t, tx.Rollback(t.Context()))
		b.eventually(0, opening)
	}
	stopped := make(chan error, 1)
	began = time.Now()
	go func() { stopped <- b.stop(t.Context()) }()
	if !first {
		b.until(func() bool { return len(stopped) == 1 || b.count(waiting, "transactionid") == 1 }, "it waits for what Postgres does")
		require.NoError(t, tx.Rollback(t.Context()))
	}
	require.NoError(t, within(t, stopped))
	slowest = max(slowest, time.Since(began))
	b.eventually(0, opening)
	return b.count(liveSessions), slowest
}

// A session that may have been declared dead meanwhile is asked before it is used.
func TestKeeperAsksBeforeItUsesAnOldSession(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil) // not started: nothing beats
	s := b.session()
	long := Instant{at: time.Now().Add(-time.Hour), wall: time.Now().Add(-time.Hour)}
	s.trust.extend(long, b.cfg.Session.TTL)
	require.Same(t, s, b.session(), "it lives")
	require.True(t, s.MayStart())

	s.trust.extend(long, b.cfg.Session.TTL)
	b.exec("UPDATE tenure.node_session SET state = 'dead'")
	_, err := b.keeper.Session(t.Context())
	require.ErrorIs(t, err, store.ErrSessionLost)
	require.ErrorIs(t, context.Cause(s.ctx), job.ErrClaimLost)
	require.NotEqual(t, s.id, b.session().id)
}

// A connection that passes one way, or none, is noticed within five seconds when a lock is
// renewed every two: the next renewal is sent by then, and given up in time.
func TestKeeperNoticesASilentConnection(t *testing.T) {
	t.Parallel()
	most := 5*time.Second - 2*time.Second // as it is by default
	for name, way := range map[string]faultproxy.Way{"answers do not arrive": faultproxy.ToClient, "questions do not arrive": faultproxy.ToServer} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := setup(t, nil, nil)
			s := b.session()
			took := time.Hour
			for range 8 { // the machine may be busy
				b.proxy.HoldWay(way, func(string) bool { return true })
				began := time.Now()
				err := b.keeper.Call(t.Context(), func(ctx context.Context, conn *pgx.Conn) error {
					_, err := store.BeatSession(ctx, conn, s.id, time.Minute)
					return err
				})
				took = time.Since(began)
				require.ErrorIs(t, err, context.DeadlineExceeded)
				require.Nil(t, b.keeper.conn.conn, "it is not used again")
				if took <= most {
					break
				}
				b.proxy.Hold(nil)
				b.until(func() bool { return b.keeper.sendHeartbeat(t.Context(), s) == nil }, "another connection")
			}
			require.LessOrEqual(t, took, most)
		})
	}
}

// Who cannot renew its lock in time gives up trying when the trust ends, and counts as
// unable from then on, so that others take the lock before it expires.
func TestKeeperIsUnableOnceItsTrustIsOver(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	hold := func(left time.Duration) *Lock {
		sent := Now()
		d := left - (b.cfg.Lock.TTL - marginOf(b.cfg.Lock.TTL))
		sent.at, sent.wall = sent.at.Add(d), sent.wall.Add(d)
		_, h := b.keeper.Hold(store.Fence{Session: b.session().id}, sent)
		return h
	}
	fails := func() (down bool) {
		b.proxy.Cut(nil)
		require.Error(t, b.keeper.sendHeartbeat(t.Context(), b.session()))
		return b.pool.Breaker.IsDown()
	}
	b.keeper.Release(hold(time.Minute))
	require.Equal(t, askTimeout, b.keeper.kept.boundCall(true))
	require.Equal(t, CallTimeout, b.keeper.kept.boundCall(false))

	h := hold(3 * time.Second)
	require.Less(t, b.keeper.kept.boundCall(false), CallTimeout)
	require.GreaterOrEqual(t, b.keeper.kept.boundCall(false), CallTimeout/8)
	b.keeper.Release(h)
	h = hold(time.Minute)
	require.False(t, fails(), "there is time to try again")
	require.NoError(t, b.keeper.sendHeartbeat(t.Context(), b.session()))
	b.keeper.Release(h)

	h = hold(-time.Second)
	require.Equal(t, CallTimeout, b.keeper.kept.boundCall(false), "it is too late to hurry")
	require.True(t, fails())
	b.keeper.Release(h)
}

// The time that a call may take begins with its turn to connect. Who keeps nothing waits
// for that as long as it takes; who keeps a session gives up in time to try again.
func TestKeeperWaitsForItsTurn(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Lock.TTL = 400 * time.Millisecond }, nil) // so that a call may take 300 ms
	crowd := func(keeps bool) (leave func()) {
		var turns []func()
		for range 8 {
			done, err := b.pool.AwaitDial(t.Context(), keeps)
			require.NoError(t, err)
			turns = append(turns, done)
		}
		return func() {
			for _, done := range turns {
				done()
			}
		}
	}
	leave := crowd(false)
	opened := make(chan error, 1)
	go func() {
		_, err := b.keeper.Session(t.Context())
		opened <- err
	}()
	select {
	case err := <-opened:
		require.FailNow(t, "it did not wait for its turn", "%v", err)
	case <-time.After(600 * time.Millisecond):
	}
	leave()
	require.NoError(t, within(t, opened))

	defer crowd(false)() // anyone who keeps something does not stand behind those who do not
	b.proxy.Cut(nil)
	require.Error(t, b.keeper.sendHeartbeat(t.Context(), b.keeper.Current()), "the connection is gone")
	require.NoError(t, b.keeper.sendHeartbeat(t.Context(), b.keeper.Current()))
	b.proxy.Cut(nil)
	require.Error(t, b.keeper.sendHeartbeat(t.Context(), b.keeper.Current()))
	defer crowd(true)()
	require.ErrorIs(t, b.keeper.sendHeartbeat(t.Context(), b.keeper.Current()), routing.ErrDialLimit)
	require.NotNil(t, b.keeper.Current(), "that says nothing about the session")
}
