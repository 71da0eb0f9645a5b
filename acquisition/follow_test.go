package acquisition

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/uuid"
	"github.com/stretchr/testify/require"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/internal/faultproxy"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// newIdleAcquirer is one without a database.
func newIdleAcquirer(e *fakeElector) *acquirer {
	events := newPoolEvents()
	pool := &routing.Pool{Name: "main"}
	n := &node{cfg: DefaultConfig(), elector: e, router: &routing.Router{}, metrics: newMetrics()}
	n.settings.queues.Store(&n.cfg.Queues)
	n.settings.setKinds(nil)
	keeper := lease.NewKeepers(DefaultConfig().Lease(), lease.Kept{}, lease.Self{Member: "me"}, nil, zap.NewNop()).Add(pool, events)
	a := &acquirer{place: place{pool, keeper, zap.NewNop(), n.metrics}, node: n, inbox: events.inbox, assistant: &assistant{events: events.assigned, stopped: true}}
	a.sight.Store(&Held{Pool: pool.Name})
	return a
}

// idleTerm is one of an acquirer without a database.
func idleTerm(a *acquirer) *term {
	held, lock := a.keeper.Hold(store.Fence{}, lease.Now())
	tm := a.newTerm(held, &holding{Lock: lock, began: time.Now()}, false)
	tm.idleness.isCrowded = func() bool { return false }
	tm.countIdle = func(context.Context) (waitingPool, error) { return waitingPool{}, errCut }
	return tm
}

func newIdleTerm() *term { return idleTerm(newIdleAcquirer(&fakeElector{})) }

func TestUntilFree(t *testing.T) {
	t.Parallel()
	const (
		s      = time.Second
		ms     = time.Millisecond
		jitter = rankDelay / 2
	)
	vacant := store.Lock{}
	paused := func(l store.Lock) store.Lock { l.Paused = true; return l }
	reserved := func(next string, remaining time.Duration) store.Lock {
		return store.Lock{Next: next, Remaining: remaining}
	}
	held := func(by string, remaining, quiet time.Duration) store.Lock {
		return store.Lock{Holder: by, Remaining: remaining, Quiet: quiet, TTL: 8 * s}
	}
	dozed := func(l store.Lock) store.Lock { l.TTL *= lease.DozeFactor; return l }
	short := func(l store.Lock) store.Lock { l.TTL /= 2; return l } // as its holder is configured
	// The default: renewed every 2 s, expired after 8. An idle look comes every 2.5 to 3 s;
	// two renewals and a bit more missed are 4.25 s.
	for _, c := range []struct {
		name     string
		lock     store.Lock
		seen     time.Duration // how long it was seen to stand still
		rank     int
		from, to time.Duration // to 0: exactly from
	}{
		{"vacant, elected", vacant, 0, 0, 0, 0},
		{"vacant, second", vacant, 0, 1, 500 * ms, 0},
		{"vacant, second, seen for a while", vacant, 400 * ms, 1, 100 * ms, 0},
		{"vacant, second, its turn", vacant, 500 * ms, 1, 0, 0},
		{"vacant, last", vacant, 0, 5, 2500 * ms, 0},
		{"vacant, last, its turn", vacant, 3 * s, 5, 0, 0},
		{"vacant, paused", paused(vacant), 0, 0, 2500 * ms, 3 * s},
		{"vacant, paused, last", paused(vacant), time.Hour, 5, 5 * s, 5500 * ms},

		{"reserved for me", reserved("me", s), 0, 0, 0, 0},
		{"reserved for me, last", reserved("me", s), 0, 5, 0, 0},
		{"reserved for me, too late", reserved("me", 0), 0, 5, 0, 0},
		{"reserved for me, paused", paused(reserved("me", s)), 0, 0, 2500 * ms, 3 * s},
		{"reserved for another", reserved("other", s), s, 0, s, s + jitter},
		{"reserved for another, third", reserved("other", s), s, 2, 2 * s, 2*s + jitter},
		{"reserved for another, last", reserved("other", s), s, 5, 3500 * ms, 3500*ms + jitter},
		{"reserved for another, the database's clock was set back", reserved("other", time.Hour), 0, 0, 4500 * ms, 4500*ms + jitter},
		{"reserved for another, seen for long, the database's clock was set back", reserved("other", time.Hour), 4500 * ms, 0, 0, 0},
		{"reserved for another, third, seen for long", reserved("other", time.Hour), 4500 * ms, 11, s, 0},
		{"the reservation is over", reserved("other", 0), 0, 0, 0, 0},
		{"the reservation is over, third", reserved("other", 0), 0, 2, s, 0},
		{"the reservation is over, third, its turn", reserved("other", 0), s, 2, 0, 0},

		{"mine", held("me", 8*s, 0), 0, 0, 0, 0},
		{"mine, expired, last", held("me", 0, time.Hour), 0, 5, 0, 0},
		{"mine, paused", paused(held("me", 8*s, 0)), 0, 0, 2500 * ms, 3 * s},

		{"renewed", held("alive", 8*s, 0), 0, 0, 2500 * ms, 3*s + jitter},
		{"renewed, third", held("alive", 8*s, 0), 0, 2, 3500 * ms, 4*s + jitter},
		{"renewed, fourth: hardly looks", held("alive", 8*s, 0), 0, 3, 32 * s, 40 * s},
		{"about to expire, last: hardly looks", held("alive", ms, 0), 0, 5, 32 * s, 40 * s},
		{"about to expire", held("alive", s, 7*s), 40 * s, 0, s, s + jitter},
		{"about to expire, third", held("alive", s, 7*s), 40 * s, 2, 2 * s, 2*s + jitter},
		{"renewed, paused", paused(held("alive", 8*s, 0)), 0, 0, 2500 * ms, 3 * s},

		{"expired, just seen: the database's clock may have jumped", held("alive", 0, time.Hour), 0, 0, 4250 * ms, 0},
		{"expired, seen for a while", held("alive", 0, 0), 4 * s, 0, 250 * ms, 0},
		{"expired, seen for long", held("alive", 0, 0), 5 * s, 0, 0, 0},
		{"expired, fourth", held("alive", 0, time.Hour), 4250 * ms, 3, 1500 * ms, 0},
		{"expired, last, its turn", held("alive", 0, time.Hour), 6750 * ms, 5, 0, 0},

		{"dead, just renewed", held("dead", 8*s, 0), 0, 0, 4250 * ms, 0},
		{"dead, seen for a while, the database's clock was set back", held("dead", time.Hour, 0), 4 * s, 0, 250 * ms, 0},
		{"dead while it dozed, seen for a while, the database's clock was set back", dozed(held("dead", time.Hour, 0)), 8 * s, 0, 500 * ms, 0},
		{"alive, the database's clock was set back", held("alive", time.Hour, 0), 44 * s, 0, 2500 * ms, 3*s + jitter},
		{"alive, stands still, the database's clock was set back", held("alive", time.Hour, 0), 45 * s, 0, 0, 0},
		{"alive, stands still, third, the database's clock was set back", held("alive", time.Hour, 0), 45 * s, 92, s, 0},
		{"alive, dozes", dozed(held("alive", 16*s, 0)), 0, 0, 32 * s, 32*s + jitter},
		{"alive, dozes, third", dozed(held("alive", 16*s, 0)), 0, 2, 48 * s, 48*s + jitter},
		{"expired while it dozed, seen for as long as two renewals of one that works", dozed(held("alive", 0, time.Hour)), 4250 * ms, 0, 4250 * ms, 0},
		{"dead while it dozed, two renewals missed", dozed(held("dead", 7500*ms, 8500*ms)), 0, 0, 0, 0},
		{"dead, of a lock that lives for half as long, just renewed", short(held("dead", 4*s, 0)), 0, 0, 2125 * ms, 0},
		{"alive, of a lock that lives for half as long", short(held("alive", 4*s, 0)), 0, 0, 2500 * ms, 3*s + jitter},
		{"alive, dozed, the database's clock was set back", dozed(held("alive", time.Hour, 0)), 0, 0, 2500 * ms, 3*s + jitter},
		{"dead, third, seen for long, the database's clock was set back", held("dead", time.Hour, 0), 9500 * ms, 2, 0, 0},
		{"dead, two renewals missed", held("dead", 3750*ms, 4250*ms), 0, 0, 0, 0},
		{"dead, two renewals missed, third", held("dead", 3750*ms, 4250*ms), 0, 2, s, 0},
		{"dead, last", held("dead", 8*s, s), 0, 5, 5750 * ms, 0},
		{"dead, last, its turn", held("dead", 0, 6750*ms), 0, 5, 0, 0},
		{"dead, paused", paused(held("dead", 0, time.Hour)), time.Hour, 0, 2500 * ms, 3 * s},

		{"unable, renewed all the same", held("unable", 8*s, 0), 0, 0, 4250 * ms, 0},
		{"unable, two renewals missed", held("unable", 3750*ms, 4250*ms), 2 * s, 0, 0, 0},
		{"unable, two renewals missed, third", held("unable", 3750*ms, 4250*ms), 2 * s, 2, s, 0},
		{"unable, just seen: the database's clock may have jumped", held("unable", 0, time.Hour), 0, 0, 2 * s, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newIdleAcquirer(&fakeElector{rank: c.rank, dead: []string{"dead"}, unable: []string{"unable"}})
				a.watch = lockWatch{holder: c.lock.Holder, since: time.Now(), ttl: c.lock.TTL}
				time.Sleep(c.seen)
				if c.lock.Holder != "" {
					a.watch.still = c.seen // with a look every few seconds
				}
				for range 100 { // some of it is by chance
					wait := a.untilFree(c.lock, c.rank)
					if c.to == 0 {
						require.Equal(t, c.from, wait)
						continue
					}
					require.GreaterOrEqual(t, wait, c.from)
					require.Less(t, wait, c.to)
				}
			})
		})
	}
}

func TestPause(t *testing.T) {
	t.Parallel()
	rank := func(rank int) func(*acquirer, context.CancelFunc) {
		return func(a *acquirer, _ context.CancelFunc) {
			a.node.elector.(*fakeElector).rank = rank
			nudge(a.inbox.changed)
		}
	}
	dies := func(who string) func(*acquirer, context.CancelFunc) {
		return func(a *acquirer, _ context.CancelFunc) {
			a.node.elector.(*fakeElector).dead = []string{who}
			nudge(a.inbox.changed)
		}
	}
	const s = time.Second
	// Everything happens after a second, in a pause of a minute. A look in a while is one
	// within 2.5 to 3 s, as for a lock that somebody else renews.
	for _, c := range []struct {
		name     string
		holder   string
		heed     bool
		event    func(a *acquirer, stop context.CancelFunc)
		from, to time.Duration // to 0: exactly from
	}{
		{"nothing", "b-1", true, func(*acquirer, context.CancelFunc) {}, time.Minute, 0},
		{"an offer", "b-1", true, func(a *acquirer, _ context.CancelFunc) { a.inbox.noteOffer(false) }, s, 0},
		{"an offer, not heeded", "b-1", false, func(a *acquirer, _ context.CancelFunc) { a.inbox.noteOffer(false) }, time.Minute, 0},
		{"a hint", "b-1", true, func(a *acquirer, _ context.CancelFunc) { a.inbox.addHint(Hint{}) }, time.Minute, 0},
		{"elected, while the holder lives", "b-1", false, rank(0), s, 0},
		{"a better rank, while the holder lives", "b-1", false, rank(1), 4 * s, 4500 * time.Millisecond},
		{"a worse rank, while the holder lives", "b-1", false, rank(3), time.Minute, 0},
		{"another rank, while nobody holds it", "", false, rank(3), s, 0},
		{"the holder died", "b-1", false, dies("b-1"), s, 0},
		{"others died", "b-1", false, dies("c-1"), time.Minute, 0},
		{"it is not eligible any more", "b-1", false, func(a *acquirer, _ context.CancelFunc) {
			a.node.elector.(*fakeElector).out = true
			nudge(a.inbox.changed)
		}, s, 0},
		{"a stop", "b-1", false, func(_ *acquirer, stop context.CancelFunc) { stop() }, s, 0},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				a := newIdleAcquirer(&fakeElector{rank: 2})
				a.watch.holder = c.holder
				ctx, stop := context.WithCancel(t.Context())
				defer stop()
				began, saw := time.Now(), a.currentView()
				time.AfterFunc(s, func() { c.event(a, stop) })
				a.awaitChange(ctx, pause{time.Minute, saw, c.heed})
				if took := time.Since(began); c.to == 0 {
					require.Equal(t, c.from, took)
				} else {
					require.GreaterOrEqual(t, took, c.from)
					require.Less(t, took, c.to)
				}
				require.Equal(t, mail{}, a.inbox.take(), "while nothing is held, hints only say what the next term finds anyway")
			})
		})
	}
}

// Who is called to look in a while does not put it off when the view changes again.
func TestPauseIsNotPutOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		e := &fakeElector{rank: 9}
		a := newIdleAcquirer(e)
		a.watch.holder = "b-1"
		began, saw := time.Now(), a.currentView()
		var took time.Duration
		go func() {
			a.awaitChange(t.Context(), pause{time.Minute, saw, false})
			took = time.Since(began)
		}()
		for rank := 8; rank > 4; rank-- {
			time.Sleep(time.Second)
			synctest.Wait()
			e.rank = rank
			nudge(a.inbox.changed)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		require.Less(t, took, time.Second+3*time.Second+8*rankDelay, "as after the first change")
	})
}

// acquirer makes one for the bundle's pool.
func (b *bundle) acquirer(e *fakeElector) *acquirer {
	m, err := NewManager(b.cfg, b.sessions, b.router, b.workers, b.registry, e, zap.NewNop())
	require.NoError(b.t, err)
	m.ctx = b.t.Context()
	return m.newAcquirer(b.pool, b.keeper, b.events)
}

// otherHolds gives the lock to another node.
func (b *bundle) otherHolds(member string) store.Fence {
	b.t.Helper()
	id := uuid.New()
	require.NoError(b.t, store.OpenSession(b.t.Context(), b.db, store.Session{ID: id, Node: member, Member: member}, time.Minute))
	mine, l, err := store.TakeLock(b.t.Context(), b.db, store.Claimant{Session: id, Member: member, SeenSeq: -1}, time.Minute)
	require.NoError(b.t, err)
	require.True(b.t, mine)
	return store.Fence{Session: id, Epoch: l.Epoch, Incarnation: l.Incarnation}
}

func (b *bundle) readLock() store.Lock {
	b.t.Helper()
	l, err := store.ReadLock(b.t.Context(), b.db)
	require.NoError(b.t, err)
	return l
}

// tried is what comes of trying for the lock, apart from how long to wait then.
func tried(ctx context.Context, a *acquirer) *term {
	t, _ := a.tryLock(ctx)
	return t
}

// movingElector elects another node from its third answer on.
type movingElector struct {
	fakeElector
	answers int
}

func (e *movingElector) Rank(string) (int, bool) {
	e.answers++
	return min(e.answers/3, 1), true
}

// Where many terms are to begin, another node may be elected while one waits.
func TestAcquirerLeavesTheLockToWhoIsElectedMeanwhile(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &movingElector{}
	a := b.acquirer(&e.fakeElector)
	a.node.elector = e
	require.Nil(t, tried(t.Context(), a))
	require.Equal(t, 3, e.answers)
	require.Empty(t, b.readLock().Holder)
}

// The database begins a new incarnation under a term: it ends, and the lock is taken again.
func TestAcquirerHeedsANewIncarnation(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	require.NoError(t, tm.lock.verify(t.Context(), tm.pool))
	b.exec("DELETE FROM tenure.incarnation") // as a crash does
	require.ErrorIs(t, tm.lock.verify(t.Context(), tm.pool), store.ErrNewIncarnation)
	req := store.NewClaimRequest(0, 1)
	req.Add(1, tm.lock.Fence().Incarnation)
	_, err := tm.claimer.dispatcher.commit(t.Context(), tm.pool.Jobs(), req)
	require.ErrorIs(t, err, store.ErrFenced)
	within(t, tm.held.Done()) // with the next renewal
	require.ErrorIs(t, context.Cause(tm.held), store.ErrNewIncarnation)
	a.keeper.Release(tm.lock.Lock)
	require.LessOrEqual(t, a.endTerm(tm, context.Cause(tm.held)).d, retakes.First)
	again := tried(t.Context(), a)
	require.NotNil(t, again)
	require.NotEqual(t, tm.lock.Fence().Incarnation, again.lock.Fence().Incarnation)
	require.NoError(t, again.lock.verify(t.Context(), again.pool))
	a.keeper.Release(again.lock.Lock)
}

func TestAcquirerTakesAndLetsGo(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{successor: "b-1"}
	a := b.acquirer(e)
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	l := b.readLock()
	incarnation, err := store.ReadIncarnation(t.Context(), b.db)
	require.NoError(t, err)
	require.Positive(t, incarnation, "it has begun one")
	require.Equal(t, store.Fence{Session: l.Session, Epoch: l.Epoch, Incarnation: incarnation}, tm.lock.Fence())
	require.Equal(t, "a-1", l.Holder)
	require.Equal(t, Held{Pool: "main", Holding: true, Holder: "a-1", Epoch: l.Epoch}, *a.sight.Load())
	require.EqualValues(t, 1, counted(t, a.metrics.changes))
	b.until(func() bool { return b.readLock().RenewSeq > l.RenewSeq }, "renewed")

	stop, cancel := context.WithCancel(t.Context())
	cancel()
	tm.idleness.inherited = false // else it may doze first, and say so
	require.Zero(t, a.endTerm(tm, tm.lead(stop)), "it lets go at once")
	require.Error(t, tm.held.Err())
	l = b.readLock()
	require.Empty(t, l.Holder)
	require.Equal(t, "b-1", l.Next)
	require.Positive(t, l.Remaining)
	require.Len(t, e.messages(), 1)
	offer := strings.Replace(e.messages()[0], `,"i":true`, "", 1) // it may doze or not, as quick as it is
	require.Equal(t, fmt.Sprintf(`%d to b-1: {"p":"main"}`, MessageOffer), offer)
	require.Equal(t, Held{Pool: "main", Holder: "b-1"}, *a.sight.Load(), "hints go there from now on")

	require.Nil(t, tried(stop, a), "it is kept for another")
	require.Empty(t, b.readLock().Holder)
	for _, frozen := range []bool{true, false} {
		b.exec(fmt.Sprintf("UPDATE tenure.acquire_lock SET paused = %v", frozen))
		require.Nil(t, tried(t.Context(), a))
		require.Equal(t, frozen, gatherGauges(t, a.metrics.frozen)["tenure_pool_frozen main"] == 1)
	}
}

// With nobody else to have it, a lock is let go of for anybody.
func TestAcquirerLetsGoForAnybody(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{}
	a := b.acquirer(e)
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	a.keeper.Release(tm.lock.Lock)
	tm.handover.offerLock(context.Canceled, false)
	l := b.readLock()
	require.Empty(t, l.Holder+l.Next)
	require.Empty(t, e.messages())
}

func TestAcquirerIsOutOfTheElection(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{out: true})
	require.Nil(t, tried(t.Context(), a))
	require.Zero(t, b.count(lockConns), "it does not even look")
}

// Gossip may call a holder dead that renews: then the take must fail.
func TestAcquirerTakesFromTheDeadOnly(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	other := b.otherHolds("b-1")
	e := &fakeElector{}
	a := b.acquirer(e)
	_, err := a.readLock(t.Context())
	require.NoError(t, err)
	since := a.watch.since
	_, err = a.readLock(t.Context())
	require.NoError(t, err)
	require.Equal(t, since, a.watch.since, "it stands still")
	require.Equal(t, Held{Pool: "main", Holder: "b-1", Epoch: other.Epoch}, *a.sight.Load())

	tm, err := a.takeLock(t.Context(), false)
	require.NoError(t, err)
	require.Nil(t, tm, "neither expired nor dead")

	e.dead = []string{"b-1"}
	_, err = store.RenewLock(t.Context(), b.db, other, time.Minute, time.Minute)
	require.NoError(t, err)
	tm, err = a.takeLock(t.Context(), false)
	require.NoError(t, err)
	require.Nil(t, tm, "it was renewed since it was seen")

	_, err = a.readLock(t.Context())
	require.NoError(t, err)
	require.True(t, a.watch.since.After(since))
	tm, err = a.takeLock(t.Context(), false)
	require.NoError(t, err)
	require.NotNil(t, tm)
	require.Greater(t, tm.lock.Fence().Epoch, other.Epoch)
	a.keeper.Release(tm.lock.Lock)
}

// Two nodes that do not gossip: the one without the lock says so, once, and is found in the ledger.
func TestAcquirerTellsOfAStranger(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	other := b.otherHolds("b-1")
	e := &fakeElector{dead: []string{"b-1"}}
	a := b.acquirer(e)
	log, logged := observer.New(zap.WarnLevel)
	a.log = zap.New(log)
	look := func() {
		_, err := store.RenewLock(t.Context(), b.db, other, time.Minute, time.Minute)
		require.NoError(t, err)
		_, err = a.readLock(t.Context())
		require.NoError(t, err)
	}
	for range strangerAfter {
		look()
	}
	require.Zero(t, logged.Len(), "it may have just come")
	require.Nil(t, a.keeper.Current())
	e.dead = nil
	look()
	require.Zero(t, logged.Len(), "gossip knows it")
	e.dead = []string{"b-1"}
	for range strangerAfter - 1 {
		look()
	}
	require.Zero(t, logged.Len(), "it may have died since its last renewal")
	look()
	require.Equal(t, 1, logged.Len())
	require.Contains(t, logged.All()[0].Message, "give both the same cluster section")
	require.NotNil(t, a.keeper.Current())
}

// A holder that says that it does not reach the database loses the lock to anyone who does:
// not while it renews all the same, and not to anyone who cannot be sure of the database either.
// TestAcquirerTakesWhatHasStoodStill: gossip says that the holder lives, and the database's
// clock that its lock does for another hour. This node has seen neither the lock nor the
// holder's heartbeat move for several times as long as they were to live.
func TestAcquirerTakesWhatHasStoodStill(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	other := b.otherHolds("other")
	b.exec("UPDATE tenure.acquire_lock SET expires_at = at, renewed_at = at - interval '1 min' FROM (SELECT now() + interval '1 hour') AS t (at)")
	require.Nil(t, tried(t.Context(), a))
	const stood = outlastFactor * time.Minute
	stand := func(still time.Duration) {
		a.watch.since = time.Now().Add(-still)
		a.watch.heartbeats[other.Session] = heartbeatSeen{beat: b.readLock().Beat, at: time.Now(), still: still}
	}
	stand(stood - 10*time.Second)
	require.Nil(t, tried(t.Context(), a))
	stand(stood)
	_, err := store.RenewLock(t.Context(), b.db, other, time.Hour, time.Minute)
	require.NoError(t, err)
	require.Nil(t, tried(t.Context(), a), "it has moved")
	b.exec("UPDATE tenure.acquire_lock SET renewed_at = expires_at - interval '1 min'")
	require.Nil(t, tried(t.Context(), a))
	stand(stood)
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	b.keeper.Release(tm.lock.Lock)
}

func TestAcquirerTakesFromTheUnable(t *testing.T) {
	t.Parallel()
	b := setup(t, func(c *Config) { c.Lock.RenewEvery = 10 * time.Second }, nil).start()
	other := b.otherHolds("b-1")
	a := b.acquirer(&fakeElector{unable: []string{"b-1"}})
	require.Nil(t, tried(t.Context(), a), "it has just renewed")

	a.watch.since = time.Now().Add(-30 * time.Second)
	for range 3 {
		a.pool.Breaker.Note(errCut, time.Now().Add(-time.Minute))
	}
	require.Nil(t, tried(t.Context(), a), "the database was out of reach from here as well")

	for range 3 {
		a.pool.Breaker.Note(nil, time.Now().Add(5*time.Second))
	}
	require.False(t, a.pool.Breaker.IsDown())
	a.pool.Breaker.Note(errCut, time.Now())
	require.Nil(t, tried(t.Context(), a), "it may have been the database")

	a.pool.Breaker.Note(errCut, time.Now().Add(-time.Hour))
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	require.Greater(t, tm.lock.Fence().Epoch, other.Epoch)
	a.keeper.Release(tm.lock.Lock)
}

// Who is elected and does not know yet whether the database is back looks often until it
// does, however long the lock still lives: it may be the only one that reaches it.
func TestAcquirerFindsOutWhetherTheDatabaseIsBack(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.otherHolds("b-1")
	a := b.acquirer(&fakeElector{})
	b.exec("UPDATE tenure.acquire_lock SET expires_at = clock_timestamp() + interval '10 min'")
	_, r := a.tryLock(t.Context())
	require.Greater(t, r.d, 10*tendEvery)
	for range 3 {
		a.pool.Breaker.Note(errCut, time.Now().Add(-time.Minute))
	}
	_, r = a.tryLock(t.Context())
	require.LessOrEqual(t, r.d, tendEvery)
}

// The lock stands in this process' name, under a session that it has lost, and lives for
// long, as the database's clock was set back: nobody else would take it for as long.
func TestAcquirerTakesBackWhatItsFormerSessionHolds(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{rank: 2}
	a := b.acquirer(e)
	former := b.otherHolds(a.keeper.Member())
	b.exec("UPDATE tenure.acquire_lock SET expires_at = clock_timestamp() + interval '10 min'")
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	require.Greater(t, tm.lock.Fence().Epoch, former.Epoch)
	require.NotEqual(t, former.Session, tm.lock.Fence().Session)
	a.keeper.Release(tm.lock.Lock)
}

// A node that has just come to reach the database again leaves the lock to anyone who was
// elected meanwhile, unless that is itself.
func TestAcquirerDoesNotOvertakeOnceItWasOutOfReach(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{rank: 1}
	a := b.acquirer(e)
	for range 3 {
		a.pool.Breaker.Note(errCut, time.Now().Add(-time.Minute))
	}
	a.watch.since = time.Now().Add(-time.Hour)
	require.Nil(t, tried(t.Context(), a))
	require.Empty(t, b.readLock().Holder)
	e.rank = 0
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	a.keeper.Release(tm.lock.Lock)
}

// After an outage a node goes on with a lock that is still its own, elected or not, so that
// nobody waits until it counts as within reach again; unless it has hardly held it.
func TestAcquirerGoesOnAfterAnOutage(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	e := &fakeElector{rank: 1}
	a := b.acquirer(e)
	a.watch.since = time.Now().Add(-time.Hour)
	for _, terms := range []int{1, 2} {
		tm := tried(t.Context(), a)
		require.NotNil(t, tm)
		a.keeper.Release(tm.lock.Lock)
		for range 3 {
			a.pool.Breaker.Note(errCut, time.Now().Add(-time.Minute))
		}
		a.inVain = terms // in a row, that ended soon
	}
	epoch := b.readLock().Epoch
	require.Nil(t, tried(t.Context(), a))
	require.Equal(t, epoch, b.readLock().Epoch)
}

func TestAcquirerWithoutADatabase(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	b.proxy.SetRule(cutLock)
	a := b.acquirer(&fakeElector{})
	require.Nil(t, tried(t.Context(), a))
	b.proxy.SetRule(func(e faultproxy.Event) faultproxy.Verdict { // the look is answered, the rest is not
		if strings.Contains(e.SQL, "INSERT INTO tenure.node_session") {
			return faultproxy.CutBefore
		}
		return faultproxy.Pass
	})
	require.Nil(t, tried(t.Context(), a))
	require.Empty(t, b.readLock().Holder)
}

// A claim whose answer was lost is removed once the lock has changed hands, and no
// sooner: until then it could still be on its way.
func TestAcquirerSettles(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	s := b.session()
	known := b.claim(s, "k")
	b.ghostsSought()
	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids) VALUES ($1, 0, '{99}')", s.ID())
	const claims = "SELECT count(*) FROM tenure.claim"

	require.NoError(t, a.removeUnsure(t.Context(), b.readLock()), "nothing is unsure")
	require.EqualValues(t, 2, b.count(claims))
	a.unsure = tm.lock.Fence()
	require.NoError(t, a.removeUnsure(t.Context(), b.readLock()))
	require.Equal(t, tm.lock.Fence(), a.unsure, "nobody has taken the lock since")
	require.EqualValues(t, 2, b.count(claims))

	a.keeper.Release(tm.lock.Lock)
	b.exec("UPDATE tenure.acquire_lock SET epoch = epoch + 1, holder = NULL, holder_member = NULL")
	require.NoError(t, a.removeUnsure(t.Context(), b.readLock()))
	require.Equal(t, store.Fence{}, a.unsure)
	require.EqualValues(t, 1, b.count(claims))
	require.EqualValues(t, 1, b.count(claims+" WHERE id = $1", known[0].ID))
	s.Return(&known[0])
}

// At the end of a stop nobody may come who takes the lock: then it is taken once more.
func TestAcquirerResolvesAtItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, nil, nil).start()
	a := b.acquirer(&fakeElector{})
	tm := tried(t.Context(), a)
	require.NotNil(t, tm)
	a.keeper.Release(tm.lock.Lock)
	b.exec("INSERT INTO tenure.claim (session_id, turn, job_ids) VALUES ($1, 0, '{99}')", tm.lock.Fence().Session)
	a.unsure = tm.lock.Fence()
	a.resolveUnsure()
	require.Equal(t, store.Fence{}, a.unsure)
	require.Zero(t, b.count("SELECT count(*) FROM tenure.claim"))
	l := b.readLock()
	require.Empty(t, l.Holder, "and let go of again")
	require.Greater(t, l.Epoch, tm.lock.Fence().Epoch)
	require.NoError(t, b.stop(t.Context()))
}

// A lock is taken again at once, and later and later by terms that come to nothing.
func TestTakesAnewLaterAndLater(t *testing.T) {
	t.Parallel()
	a := newIdleAcquirer(&fakeElector{})
	waits := func(lasted time.Duration) (all []time.Duration) {
		for range 5 {
			all = append(all, a.retakeIn(&term{lock: &holding{began: time.Now().Add(-lasted)}}, retakes.First))
		}
		return all
	}
	require.Equal(t, []time.Duration{retakes.First, 2 * retakes.First, 4 * retakes.First, retakes.Longest, retakes.Longest}, waits(time.Second))
	a.inVain = 0
	require.Equal(t, []time.Duration{retakes.First, retakes.First, retakes.First, retakes.First, retakes.First}, waits(2*calmAfter))
}
