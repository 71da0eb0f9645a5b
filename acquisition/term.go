package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// term is one time of holding a pool's acquire lock. It is used by the acquirer's
// goroutine only.
type term struct {
	*acquirer
	session *session
	fence   store.Fence
	holding *holding
	ctx     context.Context // ends, with a cause, when the lock is lost
	stop    context.Context // ends when the lock is to be let go of

	flight   *flight
	lanes    *lanes
	limits   *limits
	horizon  *horizon
	aside    *aside
	holdup   holdup
	suspects suspects
	tried    map[endedJob]bool // suspects that are in flight; true: one that must be alone
	peers    *peers
	reaping  bool // a session with claims has not been heard of for a while
	held     int  // jobs of ended sessions whose rows somebody had locked at the last reaping

	locked time.Time // when it was last said that a chore was put off because of a lock

	wasIdle   bool      // the last holder dozed, or there was none
	dozing    bool      // when it ended
	due       time.Time // when the next timer is due; zero: none known
	quiet     time.Time // since when nothing has been going on
	began     time.Time
	placed    int64           // how many configurations had come into force when tenants were placed
	misplaced map[string]bool // tenants that it was said of that they cannot be placed
	leaving   *handover       // nil: the lock is not about to be let go of
	unmoved   time.Time       // when another node was last elected and did not take over
	late      string          // that node, if it has not answered yet
	heeded    time.Time       // when a late answer last was
	from      string          // the member that the lock was taken from, as it did not renew it; "": it had been let go of
	chores    chores
}

// Causes of a term's end that begin here.
var (
	errMoved  = errors.New("another node is elected")
	errUnsure = errors.New("it is not known whether a claim was committed")
)

// chores is when to do what has to be done now and then.
type chores struct {
	discover, rewind, sweep, forget, older, reap, timers, retention, requests, unhandled, holdups, sequences, election, peers time.Time
}

// How often chores are done. A chore that takes long is done less often, so that
// it takes a tenth of the time at most.
const (
	discoverEvery  = time.Second
	rewindEvery    = time.Second
	sweepEvery     = time.Minute
	forgetEvery    = time.Minute
	olderEvery     = time.Second
	retentionEvery = 10 * time.Minute
	electionEvery  = time.Second
	peersEvery     = time.Second
	firstChores    = 50 * time.Millisecond
	dutyFactor     = 10

	forgetTimes = 10 // that a lane is found inactive
)

// A new holder is not known to those who send hints: they go to whom each takes to be
// elected, by a view that may be some rounds of gossip old, or to the last holder. Until
// then it looks by itself, unless nothing was going on.
const (
	unknownFor   = 2 * time.Second
	unknownEvery = 20 * time.Millisecond
)

// Bounds of a term.
const (
	maxLanes       = 50_000
	maxTimers      = 5000 // fired at a time
	maxLosses      = 3    // of a node under one job, then it is dead
	rebalanceAfter = 10 * time.Second
	queryTimeout   = 30 * time.Second
	claimTimeout   = 4 * time.Second
)

func newTerm(a *acquirer, s *session, f store.Fence, h *holding, ctx context.Context) *term {
	t := &term{acquirer: a, began: time.Now(), placed: a.router.Applied(), misplaced: map[string]bool{}, session: s, fence: f, holding: h, ctx: ctx,
		flight: newFlight(), lanes: newLanes(), horizon: newHorizon(), suspects: suspects{known: map[endedJob]int{}}, tried: map[endedJob]bool{}, peers: newPeers(a.kinds)}
	t.limits = newLimits(t.flight)
	t.aside = newAside(t)
	return t
}

// run claims jobs until the lock is lost, another node should have it, or stop
// ends; it returns why.
func (t *term) run(stop context.Context) error {
	t.stop = stop
	ctx, cancel := context.WithCancelCause(t.ctx)
	defer cancel(nil)
	defer context.AfterFunc(stop, func() {
		nudge(t.keeper.inbox.nudge)
		time.AfterFunc(handoverWithin, func() { cancel(context.Canceled) })
	})()
	idle, err := t.load(ctx)
	if idle {
		err = t.doze(ctx)
	}
	for err == nil {
		t.open(t.keeper.inbox.take())
		if err = t.depart(); err != nil {
			break
		}
		if err = t.chore(ctx); err != nil {
			break
		}
		var claimed int
		if claimed, err = t.acquire(ctx); err != nil || claimed > 0 {
			continue
		}
		if t.mayDoze(time.Now()) && !t.aside.busy() {
			err = t.doze(ctx)
		} else {
			err = t.rest(ctx)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errUnsure) {
		return cause
	}
	return err
}

// load learns what is in flight, and whether the pool is still as idle as it was. It sees
// every claim that was ever committed, because the fence made the take wait for them. In
// an idle pool it needs no connection but the lock's.
func (t *term) load(ctx context.Context) (idle bool, err error) {
	seen := store.Idle{Waiting: true, Claimed: true}
	if t.wasIdle {
		err = t.keeper.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			seen, err = store.LookIdle(ctx, conn)
			return err
		})
		if err != nil && context.Cause(ctx) == nil { // the look saves work, and must not be what a term hangs on
			t.log.Warn("it could not be seen whether the pool is idle; going on as if it were not", zap.Error(err))
			seen, err = store.Idle{Waiting: true, Claimed: true}, nil
		}
	}
	if err != nil {
		return false, err
	}
	now := time.Now()
	t.quiet = now.Add(-dozeAfter * t.cfg.IdleWait) // a pool in which nothing is found at first need not be watched closely
	// Jobs have waited while the lock changed hands: before the first claim nothing is
	// done that it does not need.
	soon := now.Add(firstChores)
	t.chores = chores{discover: now, rewind: now, timers: soon, reap: soon, retention: soon, requests: soon, sequences: soon,
		sweep: now.Add(sweepEvery), forget: now.Add(forgetEvery), older: now.Add(olderEvery), unhandled: now.Add(sweepEvery), holdups: now.Add(holdupsEvery), election: now.Add(electionEvery), peers: now.Add(peersEvery)}
	if seen.Waiting || seen.Claimed {
		if err := t.survey(ctx); err != nil {
			return false, err
		}
	}
	t.unsure = store.Fence{}
	if seen.Due != nil {
		t.dueBy(now.Add(*seen.Due))
	}
	return !seen.Waiting && t.mayDoze(now), nil
}

// survey learns in one round trip all that the first claim needs. Claims of this session
// that it does not know of are removed.
func (t *term) survey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s, err := store.ReadSurvey(ctx, t.pool.Jobs(), t.session.id, maxLanes)
	if err != nil {
		return err
	}
	n, err := t.session.sweepUnknown(ctx, t.pool.Jobs(), s.Made, claimTimeout)
	if err == nil && n > 0 {
		t.log.Info("claims removed whose answer was lost", zap.Int("claims", n))
		s.Claims, err = store.Claims(ctx, t.pool.Jobs())
	}
	if err != nil {
		return err
	}
	t.flight.begin(s.Claims)
	t.horizon.observe(s.State)
	t.chores.rewind = time.Now().Add(rewindEvery)
	t.chores.discover = time.Now().Add(t.discoverEvery()) // as if nothing had been found: see chore
	t.found(s.Lanes)
	return nil
}

// open heeds what has come in.
func (t *term) open(m mail) {
	for _, e := range m.ended {
		t.flight.end(e.id, e.turn)
	}
	t.hear(m.reports)
	t.answered(m)
	for _, l := range m.lanes {
		t.lanes.see(l)
	}
	if m.rerouted {
		t.reroute()
	}
	if m.discover {
		askFor(&t.chores.discover)
	}
	if m.returned {
		askFor(&t.chores.sweep)
	}
	if !m.due.IsZero() {
		t.dueBy(m.due)
	}
}

// dueBy notes that a timer is due then.
func (t *term) dueBy(at time.Time) {
	if t.due.IsZero() || at.Before(t.due) {
		t.due = at
		t.chores.timers = earlier(t.chores.timers, at)
	}
}

func earlier(a, b time.Time) time.Time {
	if b.Before(a) {
		return b
	}
	return a
}

// rest waits until something comes in or a chore is due.
func (t *term) rest(ctx context.Context) error {
	timer := time.NewTimer(time.Until(t.nextDuty()))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.keeper.inbox.nudge:
	case <-timer.C:
	case <-t.changed:
		t.chores.election = time.Now()
	}
	return nil
}
