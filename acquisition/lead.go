package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/internal/store"
)

// forgetTimes is how often in a row a lane is found inactive before it is forgotten.
const forgetTimes = 10

// term is one time of holding a pool's acquire lock: the loop that has everything done in
// turn, and where its parts are put together. It is used by the acquirer's goroutine only.
type term struct {
	place
	*work
	lock        *holding
	inbox       *inbox
	duties      *duties
	idleness    idleness
	homes       *homes
	peers       *peers
	claimer     *claimer
	directs     *directClaimer
	rereader    *rereader
	recovery    *recovery
	timers      *timers
	schedules   *schedules
	handover    *handover
	maintenance *maintenance
	spreader    *spreader
	settler     *settler
	operations  *operations

	held     context.Context // ends, with a cause, when the lock is lost
	stopping context.Context // ends when the lock is to be released
	loaded   bool            // every claim that was ever committed was seen
	begun    func()          // called once the first jobs are claimed, or there are none

	countIdle func(context.Context) (waitingPool, error) // what waits all the same, by the lock's connection
}

// newTerm is a term that begins now. inherited: the last holder dozed, or there was none.
func (a *acquirer) newTerm(held context.Context, l *holding, inherited bool) *term {
	n, at, fence := a.node, a.place, l.Fence()
	set, idleWait := &n.settings, n.cfg.IdleWait
	f, horizon, damaged := schedule.NewInFlight(), schedule.NewHorizon(), newDamagedJobs(at)
	lanes := schedule.NewLanes(set.queues.Load())
	w := &work{lanes, f, schedule.NewGates(f), schedule.NewKeys(f, lanes), schedule.NewQuarantine(&n.quarantineLimit, 3*tendEvery)}
	failed := n.metrics.dutiesFailed.WithLabelValues(a.pool.Name)
	ds := newDuties(a.log, failed, &a.group, a.inbox.wake)
	t := &term{place: at, work: w, lock: l, inbox: a.inbox, duties: ds, held: held}

	t.rereader = &rereader{place: at, work: w, lock: l, settings: set, idleWait: idleWait, horizon: horizon, inherited: inherited, look: store.LaneLook{Most: maxLanes, EachTenant: schedule.MostLanes}}
	sweep := &t.rereader.sweepDuty
	t.spreader = &spreader{place: at, router: n.router, settings: set, termBegan: l.began, step: firstStep, lacking: map[store.ScheduleKey]time.Time{}}
	t.timers = &timers{place: at, fence: fence, every: idleWait, lanes: w.lanes, damaged: damaged}
	t.schedules = &schedules{place: at, fence: fence, every: idleWait, give: n.give, lanes: w.lanes, fire: &t.timers.fireDuty, spread: &t.spreader.spreadDuty, beside: newDuties(a.log, failed, &a.group, a.inbox.wake)}
	t.timers.schedules, t.spreader.fire = t.schedules, &t.timers.fireDuty
	t.settler = &settler{place: at, fence: fence, every: idleWait, timers: t.timers}

	t.homes = &homes{place: at, work: w, router: n.router, sweep: sweep, applied: n.router.Applied(), unroutable: map[string]bool{}}
	t.peers = &peers{place: at, work: w, fence: fence, elector: n.elector, settings: set, timers: t.timers, sweep: sweep,
		known: map[uuid.UUID]*peer{}, asked: map[string]invitation{}, runnable: *set.kinds.Load(), alone: true}
	t.rereader.homes, t.rereader.peers = t.homes, t.peers
	t.recovery = &recovery{place: at, work: w, lock: l, cfg: n.cfg, sweep: sweep, heartbeats: a.watch.heartbeats}
	t.handover = &handover{place: at, lock: l, elector: n.elector, balance: &n.balance, sight: &a.sight, offers: &a.offers, recovery: t.recovery}

	lim := &limits{place: at, work: w, settings: set, shared: set.limits.Load()}
	d := &dispatcher{place: at, work: w, lock: l, workers: n.workers, elector: n.elector, settings: set, horizon: horizon, peers: t.peers}
	c := &canceller{place: at, work: w, lock: l, duties: ds, sweep: sweep}
	t.claimer = &claimer{place: at, work: w, lock: l, workers: n.workers, settings: set, batch: n.cfg.Batch, inbox: a.inbox, duties: ds, homes: t.homes, limits: lim, peers: t.peers,
		reader: &pageReader{place: at, peers: t.peers, room: store.MaxPageBytes}, dispatcher: d, canceller: c, damaged: damaged, sweep: sweep,
		quarantined: &quarantineClaimer{place: at, work: w, lock: l, workers: n.workers, settings: set, duties: ds, peers: t.peers, dispatcher: d, sweep: sweep}}
	t.directs = &directClaimer{place: at, work: w, lock: l, workers: n.workers, settings: set, inbox: a.inbox, homes: t.homes, limits: lim, dispatcher: d, handover: t.handover}

	t.maintenance = &maintenance{place: at, gates: w.gates}
	t.operations = &operations{place: at, lanes: w.lanes, lookForUnwanted: &c.findDuty}
	t.idleness = idleness{work: w, cfg: n.cfg, session: l.session, operations: t.operations, isCrowded: at.pool.IsCrowded, inherited: inherited}
	t.countIdle = func(ctx context.Context) (counted waitingPool, err error) {
		err = at.keeper.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
			counted, err = at.metrics.waiting.count(ctx, conn)
			return err
		})
		return counted, err
	}
	return t
}

// lead claims jobs until the lock is lost, another node should have it, or stopping ends; it
// returns why. Whatever it has begun is undone when it returns: the lock is not renewed any
// more, and is offered to a successor unless it is lost.
func (t *term) lead(stopping context.Context) (why error) {
	defer func() {
		if isOrderly(why) {
			t.handover.offerLock(why, t.idleness.dozed)
		}
	}()
	t.handover.balance.count(1)
	defer t.handover.balance.count(-1)
	held := t.metrics.held.WithLabelValues(t.pool.Name)
	held.Inc() // not set: if the pool's settings have changed, its next acquirer may have the lock
	defer held.Dec()
	defer t.metrics.oldestTransaction.DeleteLabelValues(t.pool.Name) // the next holder looks
	defer t.metrics.waiting.forget(t.pool.Name)                      // likewise
	defer t.keeper.Release(t.lock.Lock)                              // nothing is claimed any more
	defer t.quarantine.Close()
	return t.run(stopping)
}

// isOrderly tells whether a term that ends for a reason has the lock to offer.
func isOrderly(why error) bool { return errors.Is(why, errMoved) || errors.Is(why, context.Canceled) }

// run is the loop of a term; it returns why the term ends.
func (t *term) run(stopping context.Context) error {
	t.stopping = stopping
	ctx, cancel := context.WithCancelCause(t.held)
	defer cancel(nil)
	defer context.AfterFunc(stopping, func() {
		t.inbox.wake()
		time.AfterFunc(rankDelay, func() { cancel(context.Canceled) })
	})()
	idle, err := t.load(ctx)
	switch {
	case err != nil:
	case idle:
		t.begun()
		err = t.doze(ctx)
	case t.lanes.HasWork(): // jobs have waited while the lock changed hands
		_, err = t.claimer.claimJobs(ctx)
	}
	t.begun()
	for err == nil {
		t.readInbox(t.inbox.take())
		if err = t.checkEnd(); err != nil {
			break
		}
		t.schedules.beside.useResult(ctx)
		if err = t.duties.doDue(ctx); err != nil {
			break
		}
		t.schedules.beside.beginQuery(ctx) // after what was worked out has been fired
		var claimed int
		claimed, err = t.claimer.claimJobs(ctx)
		if t.lanes.TakeDrained() {
			t.rereader.discoverDuty.ask()
		}
		if err != nil || claimed > 0 {
			continue
		}
		if t.idleness.mayDoze(time.Now()) && !t.hasQuery() {
			if t.spreader.mayLack(t.idleness.quiet) {
				t.spreader.spreadDuty.ask()
				continue
			}
			err = t.doze(ctx)
		} else {
			err = t.awaitWork(ctx)
		}
	}
	if cause := context.Cause(ctx); cause != nil && !errors.Is(err, errUnsure) {
		return cause
	}
	return err
}

// hasQuery tells whether a query beside the loop is under way, or was not used yet.
func (t *term) hasQuery() bool { return t.duties.hasQuery() || t.schedules.beside.hasQuery() }

// load learns what is in flight, and whether the pool is still as idle as it was. It sees
// every claim that was ever committed, because the fence made the take wait for them. In
// an idle pool it needs no connection but the lock's.
func (t *term) load(ctx context.Context) (idle bool, err error) {
	seen := store.Idle{Waiting: true, Claimed: true}
	if t.idleness.inherited {
		err = t.keeper.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
			seen, err = store.LookIdle(ctx, conn)
			return err
		})
		if err != nil && context.Cause(ctx) == nil { // this saves work, and must not be what a term depends on
			t.log.Warn("it could not be seen whether the pool is idle; going on as if it were not", zap.Error(err))
			seen, err = store.Idle{Waiting: true, Claimed: true}, nil
		}
	}
	if err != nil {
		return false, err
	}
	t.rereader.raiseBottom(seen.Bottom)
	now := time.Now()
	t.idleness.quiet = now.Add(-dozeAfter * t.idleness.cfg.IdleWait) // a pool in which nothing is found at first need not be watched closely
	t.planDuties(now)
	if seen.Waiting || seen.Claimed {
		if err := t.survey(ctx); err != nil {
			return false, err
		}
	}
	t.loaded = true
	if seen.Due != nil {
		t.timers.expect(now.Add(*seen.Due))
	}
	// What the configuration makes may have to be set first, and tenants that are listed be given schedules.
	return !seen.Waiting && !t.spreader.isNeeded() && t.idleness.mayDoze(now), nil
}

// planDuties says what is done when, from the beginning of a term on.
func (t *term) planDuties(now time.Time) {
	idle := duty{name: "idle lanes", every: fixed(sweepEvery), due: now.Add(sweepEvery), do: func(context.Context) error {
		t.lanes.ForgetIdle(forgetTimes)
		t.gates.ForgetIdle(time.Now())
		return nil
	}}
	t.duties.plan(t.handover.listDuties(now), t.peers.listDuties(now), t.timers.listDuties(now), t.recovery.listDuties(now), t.claimer.canceller.listDuties(now), []*duty{&idle},
		t.rereader.listDuties(now), t.spreader.listDuties(now), t.maintenance.listDuties(now), t.settler.listDuties(now), t.operations.listDuties(now))
	t.schedules.plan(now)
}

// survey learns in one round trip all that the first claim needs. Claims of this session
// that it does not know of are removed.
func (t *term) survey(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	s, err := store.ReadSurvey(ctx, t.pool.Jobs(), t.lock.session.ID(), t.rereader.look)
	if err != nil {
		return err
	}
	n, err := t.lock.session.SweepUnknown(ctx, t.pool.Jobs(), s.Made, lease.CallTimeout)
	if err == nil && n > 0 {
		t.log.Info("removed orphaned claims: reply lost", zap.Int("claims", n))
		s.Claims, err = store.Claims(ctx, t.pool.Jobs())
	}
	if err != nil {
		return err
	}
	t.inFlight.Begin(s.Claims)
	for _, k := range s.Held {
		if run := (schedule.Run{ID: k.ID, Turn: k.Turn}); t.inFlight.Has(run.ID, run.Turn) {
			t.keys.Hold(store.Key{Tenant: k.Tenant, Name: k.Name}, run, true)
		}
	}
	t.rereader.horizon.Observe(s.State)
	t.rereader.rewindDuty.due = time.Now().Add(tendEvery)
	t.rereader.discoverDuty.due = time.Now().Add(t.rereader.discoverEvery()) // as if no lane had been found
	t.rereader.addLanes(s.Lanes)
	return nil
}

// readInbox takes in what has come in.
func (t *term) readInbox(m mail) {
	for _, e := range m.ended {
		t.inFlight.End(e.ID, e.Turn)
	}
	t.peers.noteReports(m.reports)
	if len(m.ended)+len(m.reports) > 0 {
		t.settler.noteEnds()
	}
	t.handover.noteAnswers(m.ready, m.refused)
	for _, l := range m.lanes {
		t.lanes.See(l)
	}
	if m.kinds {
		t.peers.noteOwnKinds()
	}
	if m.rerouted {
		t.homes.followRoutes()
		t.spreader.spreadDuty.ask()
	}
	if m.setBack {
		t.spreader.setBack.Store(true)
		t.spreader.spreadDuty.ask()
	}
	if m.discover {
		t.rereader.discoverDuty.ask()
	}
	if m.returned {
		t.rereader.sweepDuty.ask()
	}
	if !m.due.IsZero() {
		t.settler.settleDuty.ask() // it may be a job that awaits others
		t.timers.expect(m.due)
	}
}

// checkEnd returns why the term ends, in order; nil: it goes on.
func (t *term) checkEnd() error {
	if t.stopping.Err() != nil {
		if t.handover.departing == nil && t.idleness.mayDoze(time.Now()) { // nobody waits for jobs here, so nobody has to prepare
			t.idleness.dozed = true
			return context.Canceled
		}
		t.handover.prepareStop()
	}
	return t.handover.checkDeparture()
}

// awaitWork waits until something comes in or is due.
func (t *term) awaitWork(ctx context.Context) error {
	due := earlier(t.duties.nextDue(), t.schedules.beside.nextDue())
	if token := t.gates.NextToken(); !token.IsZero() {
		due = earlier(due, token)
	}
	if d := t.handover.departing; d != nil {
		due = earlier(due, d.until)
	}
	if at, quiet := t.idleness.dozeAt(time.Now()); quiet && !t.hasQuery() { // else its end wakes the loop
		due = earlier(due, at)
	}
	select {
	case <-ctx.Done():
		return context.Cause(ctx)
	case <-t.inbox.nudge:
	case <-time.After(time.Until(due)):
	case d := <-t.inbox.direct:
		if t.stopping.Err() != nil {
			d.reply <- directReply{}
			return nil
		}
		return t.directs.add(ctx, d)
	case <-t.inbox.changed:
		t.handover.checkDuty.ask()
	}
	return nil
}

// A pool that dozes is counted once that has lasted a moment, and then now and then: what is frozen waits there all the
// same, and somebody may delete dead letters.
const (
	countIdleAfter = 2 * time.Second
	countIdleEvery = 5 * time.Minute
)

// doze waits until something has to be done. A term dozes when its pool has been idle for a
// while: it does no duties and needs no connection but the lock's, on which the keeper renews
// half as often and, in the same round trip, sees whether anything has come. A hint, or the
// next timer, wakes it at once. So a thousand idle pools cost a quarter of a transaction
// per second each, and the lock lives longer in proportion, so that those who watch it look
// less often too. A pool that is to be looked at more often than the lock is renewed never
// dozes.
func (t *term) doze(ctx context.Context) (err error) {
	t.lanes.ForgetIdle(1)                            // to be read from their start: a transaction may commit what stands behind the cursor
	defer func() { t.idleness.dozed = err != nil }() // to be passed on with the lock
	t.keeper.SetDozing(true)
	defer t.keeper.SetDozing(false)
	defer t.gates.Forget() // they may be others by then
	longest := time.Now().Add(longestDoze/2 + rand.N(longestDoze/2))
	if t.spreader.watched {
		longest = time.Now().Add(sweepEvery)
		defer func() { t.spreader.began = time.Time{} }() // before it dozes again
	}
	count := time.Now().Add(countIdleAfter)
	for {
		if now := time.Now(); !now.Before(count) {
			if counted, err := t.countIdle(ctx); err == nil { // what fails there is no reason to end a term
				t.metrics.waiting.set(t.pool.Name, counted)
			}
			count = now.Add(countIdleEvery)
		}
		until := longest
		if !t.timers.next.IsZero() {
			until = earlier(until, t.timers.next)
		}
		wait := time.Until(earlier(until, count))
		if _, elsewhere := t.handover.electedElsewhere(); elsewhere { // it must have been so for a while
			wait = min(wait, tendEvery)
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-t.stopping.Done():
			return context.Cause(t.stopping)
		case <-t.inbox.nudge:
			// It may be what nobody here can run, or a timer that is not due yet. A doze begins
			// with a look, which would find it again at once.
			t.idleness.quiet = time.Now()
			return nil
		case <-time.After(wait):
			if !time.Now().Before(until) {
				return nil
			}
		case <-t.inbox.changed:
		}
		if t.handover.shouldMove() {
			return errMoved
		}
	}
}
