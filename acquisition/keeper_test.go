package acquisition

import (
	"context"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// bundle is one keeper on a ledger of its own.
type bundle struct {
	t        *testing.T
	db       *pgxpool.Pool // apart from what is tested
	proxy    *faultproxy.Proxy
	router   *routing.Router
	pool     *routing.Pool
	registry *job.Registry
	workers  *execution.Workers
	sessions *Sessions
	keeper   *keeper
	cfg      Config
	stopped  atomic.Bool
}

const minConns = 4

// setup makes a keeper, not started, that beats and renews at once and trusts itself
// for long.
func setup(t *testing.T, change func(*Config), fill func(*job.Registry)) *bundle {
	b := &bundle{t: t, cfg: DefaultConfig(), registry: job.NewRegistry()}
	b.cfg.Lock = LockConfig{TTL: time.Minute, RenewEvery: 50 * time.Millisecond}
	b.cfg.Session = SessionConfig{TTL: time.Minute, HeartbeatEvery: 50 * time.Millisecond}
	if change != nil {
		change(&b.cfg)
	}
	dsn := storetest.DSN(t, "main", 1)
	var err error
	b.db, err = pgxpool.New(context.Background(), dsn)
	require.NoError(t, err)
	t.Cleanup(b.db.Close)
	b.proxy, err = faultproxy.New(dsn)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.proxy.Close()) })

	b.registry.Add(job.Spec{Kind: "k", Handle: func(context.Context, *job.Record) error { return nil }})
	if fill != nil {
		fill(b.registry)
	}
	b.registry.Freeze()
	routes := routing.DefaultConfig()
	routes.Pools = map[string]routing.PoolConfig{"main": {DSN: b.proxy.DSN(), MaxConns: minConns}}
	routes.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "main"}}
	b.router, err = routing.New(routes, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, b.router.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, b.router.Stop(context.Background())) })
	b.workers, err = execution.New(execution.DefaultConfig(), b.registry, zap.NewNop())
	require.NoError(t, err)
	require.NoError(t, b.workers.Start(t.Context()))
	b.sessions, err = NewSessions(b.cfg, time.Hour, Self{Node: "a", Member: "a-1", GossipAddr: func() string { return "" }, Kinds: b.registry.Kinds()}, b.workers, zap.NewNop())
	require.NoError(t, err)
	b.pool, _ = b.router.Pool("main")
	spare, err := b.pool.ConnectLock(t.Context()) // that the pool was verified with: each test shall make its own
	require.NoError(t, err)
	require.NoError(t, spare.Close(t.Context()))
	b.keeper = b.sessions.add(b.pool)
	t.Cleanup(func() {
		if !b.stopped.Load() {
			b.proxy.SetRule(nil)
			b.proxy.Hold(nil)
			ctx, cancel := context.WithTimeout(context.Background(), 5*time.Second) // a test that failed may have left anything
			defer cancel()
			_ = b.stop(ctx)
		}
		if s := b.keeper.opened(); s != nil { // of a keeper that was not started
			b.keeper.drop(s)
		}
	})
	return b
}

func (b *bundle) start() *bundle {
	b.keeper.start()
	return b
}

// stop stops the workers and the sessions, as a node does.
func (b *bundle) stop(ctx context.Context) error {
	b.stopped.Store(true)
	require.NoError(b.t, b.workers.Stop(context.Background()))
	return b.sessions.Stop(ctx)
}

func (b *bundle) count(sql string, args ...any) (n int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), sql, args...).Scan(&n))
	return n
}

func (b *bundle) exec(sql string, args ...any) {
	b.t.Helper()
	_, err := b.db.Exec(b.t.Context(), sql, args...)
	require.NoError(b.t, err)
}

// eventually waits until the ledger shows n.
func (b *bundle) eventually(n int64, sql string, args ...any) {
	b.t.Helper()
	b.until(func() bool { return b.count(sql, args...) == n }, sql)
}

func (b *bundle) until(cond func() bool, msg ...any) {
	b.t.Helper()
	require.Eventually(b.t, cond, patience, 2*time.Millisecond, msg...)
}

// state is what the ledger says of a session.
func (b *bundle) state(id uuid.UUID) (state string, beats int64) {
	b.t.Helper()
	require.NoError(b.t, b.db.QueryRow(b.t.Context(), "SELECT state, hb_seq FROM tenure.node_session WHERE session_id = $1", id).Scan(&state, &beats))
	return state, beats
}

func (b *bundle) session() *session {
	b.t.Helper()
	s, err := b.keeper.session(b.t.Context())
	require.NoError(b.t, err)
	return s
}

// lock takes the acquire lock as an acquirer would.
func (b *bundle) lock(s *session) (context.Context, *holding) {
	b.t.Helper()
	sent := time.Now()
	mine, l, err := store.TakeLock(b.t.Context(), b.db, store.Claimant{Session: s.id, Member: "a-1", SeenSeq: -1}, b.cfg.Lock.TTL)
	require.NoError(b.t, err)
	require.True(b.t, mine)
	ctx, h := b.keeper.hold(store.Fence{Session: s.id, Epoch: l.Epoch, Timeline: l.Timeline}, sent)
	b.t.Cleanup(func() { b.keeper.release(h) })
	return ctx, h
}

// claim enqueues jobs and puts them into a claim of s, as a term would.
func (b *bundle) claim(s *session, kinds ...string) []execution.Claim {
	b.t.Helper()
	claims := make([]execution.Claim, len(kinds))
	jobs := make([]int64, len(kinds))
	for i, kind := range kinds {
		id, _, err := store.Enqueue(b.t.Context(), b.db.QueryRow, 1, &store.NewJob{Tenant: "acme", Queue: "default", Kind: kind, Payload: []byte("1")})
		require.NoError(b.t, err)
		jobs[i] = int64(id)
		claims[i] = execution.Claim{Owner: s, Tenant: &tenancy.Tenant{ID: "acme", Pool: "main", Schema: "acme"},
			Record: job.Record{ID: id, Kind: kind, Tenant: "acme", Queue: "default", Attempt: 1}}
	}
	claim := b.count("INSERT INTO tenure.claim (session_id, turn, job_ids, started_at) VALUES ($1, 0, $2, now()) RETURNING id", s.id, jobs)
	for i := range claims {
		claims[i].ID = claim
	}
	s.open(claim, len(claims))
	return claims
}

func (b *bundle) submit(s *session, claims []execution.Claim) {
	b.t.Helper()
	require.Equal(b.t, len(claims), b.workers.Reserve(s, len(claims)))
	b.workers.Submit(s, claims)
}

func (b *bundle) counts() store.Counts {
	b.t.Helper()
	c, err := store.Count(b.t.Context(), b.db)
	require.NoError(b.t, err)
	return c
}

// ended waits until ctx is done and returns its cause.
func ended(t *testing.T, ctx context.Context) error {
	t.Helper()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-time.After(patience):
		require.FailNow(t, "the context does not end")
		return nil
	}
}

// within waits for what a goroutine returns.
func within[T any](t *testing.T, ch <-chan T) (v T) {
	t.Helper()
	select {
	case v = <-ch:
	case <-time.After(patience):
		require.FailNow(t, "it does not return")
	}
	return v
}

const (
	lockConns = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = 'tenure lock'"
	renewals  = "SELECT renew_seq FROM tenure.acquire_lock"
)

func lockOnly(app string) bool { return app == "tenure lock" }

// cutLock breaks every statement on the lock's connection.
func cutLock(e faultproxy.Event) faultproxy.Verdict {
	if lockOnly(e.App) {
		return faultproxy.CutBefore
	}
	return faultproxy.Pass
}

func TestKeeperOpensASessionWhenItIsNeeded(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	require.Zero(t, b.count(lockConns), "a pool that nobody needs costs no connection")
	require.Nil(t, b.keeper.opened())

	s := b.session()
	require.Same(t, s, b.session())
	require.Same(t, s, b.keeper.opened())
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
	got := make(chan *session, callers)
	for range callers {
		go func() {
			s, err := b.keeper.session(context.Background())
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
	require.Same(t, first, b.keeper.opened())
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session"))
}

func TestKeeperOpensNoSessionWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.proxy.SetRule(cutLock)
	_, err := b.keeper.session(t.Context())
	require.Error(t, err)
	require.Nil(t, b.keeper.opened())
	b.proxy.SetRule(nil)
	b.session()
	require.EqualValues(t, 1, b.count("SELECT count(*) FROM tenure.node_session"))
}

// The answer to an open may get lost; the session that nobody knows of expires.
func TestKeeperOpensAnotherSessionAfterALostAnswer(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict {
		if lockOnly(e.App) && e.SQL != "" {
			return faultproxy.CutAfter
		}
		return faultproxy.Pass
	})
	_, err := b.keeper.session(t.Context())
	require.Error(t, err)
	b.proxy.SetRule(nil)
	s := b.session()
	b.until(func() bool { _, beats := b.state(s.id); return beats >= 1 }, "heartbeats")
}

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
	require.True(t, h.trust.stands())

	b.keeper.release(h)
	require.ErrorIs(t, ended(t, ctx), errLockLost)
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
	require.ErrorIs(t, ended(t, ctx), errLockLost)
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
	require.ErrorIs(t, ended(t, ctx), errTrustOver)
	require.False(t, h.trust.stands())
	require.True(t, s.MayStart(), "the session is trusted for longer")
}

// A handler sees that its session was declared dead, its run changes nothing, and the
// node goes on with another session.
func TestKeeperLosesTheSession(t *testing.T) {
	t.Parallel()
	running, cause := make(chan struct{}, 1), make(chan error, 1)
	b := setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "long", Handle: func(ctx context.Context, _ *job.Record) error {
			running <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return nil // as if it had been done
		}})
	}).start()
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
	require.ErrorIs(t, ended(t, term), errLockLost)
	b.keeper.release(h)
	require.False(t, s.MayStart())
	within(t, s.stopped) // its last run has reported
	require.False(t, s.completer.busy())
	require.Equal(t, store.Counts{Waiting: 1}, b.counts(), "what it reported found no row")
	require.EqualValues(t, 1, counted(t, b.keeper.metrics.sessionsLost))
	require.EqualValues(t, 1, counted(t, b.keeper.metrics.lost))

	other := b.session()
	require.NotEqual(t, s.id, other.id)
	b.until(func() bool { _, beats := b.state(other.id); return beats >= 1 }, "heartbeats")
	require.NoError(t, b.stop(t.Context()))
	state, _ := b.state(s.id)
	require.Equal(t, "dead", state)
}

// Whoever finds out first that the session is lost may open another one while the term
// still holds the lock that was taken with the old one.
func TestKeeperDoesNotRenewForAnotherSession(t *testing.T) {
	t.Parallel()
	for _, another := range []bool{false, true} {
		b := setup(t, nil, nil)
		s := b.session()
		ctx, _ := b.lock(s)
		b.keeper.lose(s)
		if another {
			s = b.session()
		}
		b.keeper.tick(t.Context())
		require.ErrorIs(t, context.Cause(ctx), errLockLost)
		if another {
			require.Same(t, s, b.keeper.opened())
			require.NoError(t, s.ctx.Err())
			_, beats := b.state(s.id)
			require.EqualValues(t, 1, beats)
		}
	}
}

// A session that may have been declared dead meanwhile is asked before it is used.
func TestKeeperAsksBeforeItUsesAnOldSession(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil) // not started: nothing beats
	s := b.session()
	long := time.Now().Add(-time.Hour)
	s.trust.extend(long, b.cfg.Session.TTL)
	require.Same(t, s, b.session(), "it lives")
	require.True(t, s.MayStart())

	s.trust.extend(long, b.cfg.Session.TTL)
	b.exec("UPDATE tenure.node_session SET state = 'dead'")
	_, err := b.keeper.session(t.Context())
	require.ErrorIs(t, err, store.ErrSessionLost)
	require.ErrorIs(t, context.Cause(s.ctx), job.ErrClaimLost)
	require.NotEqual(t, s.id, b.session().id)
}

func TestKeeperCancelsOnRequest(t *testing.T) {
	t.Parallel()
	running, cause := make(chan struct{}, 1), make(chan error, 1)
	b := setup(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "long", Handle: func(ctx context.Context, _ *job.Record) error {
			running <- struct{}{}
			<-ctx.Done()
			cause <- context.Cause(ctx)
			return ctx.Err()
		}})
	}).start()
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

// makeIdle lets a session be unwanted from now on.
func (b *bundle) makeIdle() {
	b.keeper.mu.Lock()
	b.keeper.wanted = time.Now()
	b.keeper.mu.Unlock()
	nudge(b.keeper.nudge)
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
	within(t, s.stopped)
	state, _ := b.state(s.id)
	require.Equal(t, "left", state)
	require.ErrorIs(t, context.Cause(s.ctx), errSessionEnded)
	require.Nil(t, b.keeper.opened())
	b.eventually(0, lockConns)

	other := b.session()
	require.NotEqual(t, s.id, other.id, "a session that has left does not come back")
	b.until(func() bool { _, beats := b.state(other.id); return beats >= 1 }, "heartbeats")
}

// watched tells when somebody derives a context from it.
type watched struct {
	context.Context
	derived chan struct{}
}

func (w watched) Deadline() (time.Time, bool) {
	nudge(w.derived)
	return w.Context.Deadline()
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
	b.keeper.connMu.Lock()
	go func() { ticked <- b.keeper.tick(ctx) }()
	within(t, ctx.derived) // it has found the session idle, and waits for the connection
	require.Same(t, s, b.session())
	b.keeper.connMu.Unlock()
	require.Equal(t, b.cfg.Session.HeartbeatEvery, within(t, ticked))
	require.Same(t, s, b.keeper.opened())
	b.lock(s)
	require.Equal(t, b.cfg.Lock.RenewEvery, b.keeper.tick(t.Context()), "renewed")
}

// What the ledger says counts: a claim that this node does not know of keeps the row
// of the session, which then expires.
func TestKeeperLeavesNoClaimBehindInSilence(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	s := b.session()
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
	require.Same(t, s, b.keeper.opened())
	require.NoError(t, s.ctx.Err())
	b.proxy.SetRule(nil)
	within(t, s.stopped)
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
	within(t, s.keeper.inbox.nudge) // it is written
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
		spoil func(b *bundle, s *session, claims []execution.Claim)
		says  string // "": nothing
	}{
		"a handler does not return": {func(*bundle, *session, []execution.Claim) {}, "1 claims could not be brought to an end"},
		"a handler does not return, and the session was lost": {func(b *bundle, s *session, _ []execution.Claim) {
			b.exec("UPDATE tenure.node_session SET state = 'dead'")
			require.ErrorIs(b.t, ended(b.t, s.ctx), job.ErrClaimLost)
		}, ""},
		"the database is away": {func(b *bundle, s *session, claims []execution.Claim) {
			b.proxy.SetRule(func(faultproxy.Event) faultproxy.Verdict { return faultproxy.CutBefore })
			b.proxy.Cut(nil)
			s.Finish(&claims[0], job.Outcome{State: job.Done})
		}, "1 claims could not be brought to an end"},
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
			within(t, s.stopped)
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

// The outcomes of a claim, on a real ledger.
func TestCompleterOnTheLedger(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	s := b.session()
	claims := b.claim(s, "k", "k", "k")
	held := func() (ids []int64) {
		require.NoError(t, b.db.QueryRow(t.Context(), "SELECT job_ids FROM tenure.claim").Scan(&ids))
		return ids
	}
	s.Return(&claims[1])
	b.until(func() bool { return len(held()) == 2 })
	require.Equal(t, []int64{int64(claims[0].Record.ID), int64(claims[2].Record.ID)}, held())
	require.EqualValues(t, 3, b.count("SELECT count(*) FROM tenure.job WHERE turn = 0 AND attempt = 0"), "given back as it was")
	s.Finish(&claims[0], job.Outcome{State: job.Done})
	b.eventually(1, "SELECT count(*) FROM tenure.completed_job")
	require.Len(t, held(), 2, "the claim stands until its last job")
	s.Finish(&claims[2], job.Outcome{State: job.Retrying, Delay: time.Hour, Err: errWrite})
	within(t, s.completer.whenIdle())
	require.Equal(t, store.Counts{Finished: 1, Timers: 1, Waiting: 1}, b.counts())
}

func TestSessionsAreACollector(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	reg := prometheus.NewPedanticRegistry()
	require.NoError(t, reg.Register(b.sessions))
	b.keeper.metrics.changes.WithLabelValues("main", "taken").Inc()
	families, err := reg.Gather()
	require.NoError(t, err)
	require.Contains(t, fmt.Sprint(families), "tenure_lock_changes_total")
	cfg := b.cfg
	cfg.Batch = 0
	_, err = NewSessions(cfg, 0, Self{}, b.workers, zap.NewNop())
	require.ErrorContains(t, err, "acquire.batch")
}

// A sweep removes what the session does not know of, and spares a claim whose answer is
// on its way.
func TestSweepSparesWhatIsBeingMade(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil)
	s := b.session()
	insert := func(given, started bool) (id int64) {
		require.NoError(t, b.db.QueryRow(t.Context(), "INSERT INTO tenure.claim (session_id, turn, job_ids, given, started_at) VALUES ($1, 0, '{1}', $2, CASE WHEN $3 THEN now() END) RETURNING id",
			s.id, given, started).Scan(&id))
		return id
	}
	sweep := func() int {
		n, err := s.sweep(t.Context(), b.db, patience)
		require.NoError(t, err)
		return n
	}
	known, waiting := insert(false, true), insert(true, false)
	s.completer.open(known, 1)
	insert(false, true)
	insert(true, true)
	require.Equal(t, 2, sweep())
	require.Zero(t, sweep())
	b.eventually(2, "SELECT count(*) FROM tenure.claim WHERE id = ANY($1)", []int64{known, waiting})

	done := s.claiming()
	_, err := s.sweep(t.Context(), b.db, time.Millisecond)
	require.ErrorIs(t, err, errClaiming)
	coming := insert(false, true)
	swept := make(chan int)
	go func() { swept <- sweep() }()
	s.completer.open(coming, 1)
	done()
	require.Zero(t, <-swept)
	b.eventually(1, "SELECT count(*) FROM tenure.claim WHERE id = $1", coming)
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

// Suspects are tried several at a time after their first loss, and alone after it.
func TestMayTry(t *testing.T) {
	t.Parallel()
	tm := &term{flight: newFlight(), tried: map[endedJob]bool{}}
	try := func(id job.ID, losses int) bool {
		s := suspectOf(id, 0, 0)
		s.Record.Losses = losses
		if !tm.mayTry(s) {
			return false
		}
		tm.tried[endedJob{id, 0}] = s.alone()
		tm.flight.add(id, 0)
		return true
	}
	for id := range job.ID(atATime) {
		require.True(t, try(id, 1))
	}
	require.False(t, try(99, 1), "enough of them")
	tm.flight.end(0, 0)
	require.True(t, try(99, 1))
	require.False(t, try(100, 2), "not beside others")
	for id := range job.ID(atATime) {
		tm.flight.end(id, 0)
	}
	require.False(t, try(100, 2))
	tm.flight.end(99, 0)
	require.True(t, try(100, 2))
	require.False(t, try(101, 1), "not beside one that must be alone")
	require.False(t, try(102, 2))
	tm.flight.end(100, 0)
	require.True(t, try(101, 1))
}
