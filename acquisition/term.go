package acquisition

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
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
	horizon  *horizon
	suspects suspects
	tried    map[endedJob]bool // suspects that are in flight; true: one that must be alone
	peers    *peers
	reaping  bool // a session with claims has not been heard of for a while

	wasIdle   bool      // the last holder dozed, or there was none
	dozing    bool      // when it ended
	due       time.Time // when the next timer is due; zero: none known
	quiet     time.Time // since when nothing has been going on
	began     time.Time
	placed    int64           // how many configurations had come into force when tenants were placed
	misplaced map[string]bool // tenants that it was said of that they cannot be placed
	leaving   *handover       // nil: the lock is not about to be let go of
	unmoved   time.Time       // when another node was last elected and did not take over
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
	discover, rewind, sweep, older, reap, timers, retention, unhandled, election, peers time.Time
}

// How often chores are done. A chore that takes long is done less often, so that
// it takes a tenth of the time at most.
const (
	discoverEvery  = time.Second
	rewindEvery    = time.Second
	sweepEvery     = time.Minute
	olderEvery     = time.Second
	retentionEvery = 10 * time.Minute
	electionEvery  = time.Second
	peersEvery     = time.Second
	firstChores    = 50 * time.Millisecond
	dutyFactor     = 10
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
	return &term{acquirer: a, began: time.Now(), placed: a.router.Applied(), misplaced: map[string]bool{}, session: s, fence: f, holding: h, ctx: ctx,
		flight: newFlight(), lanes: newLanes(), horizon: newHorizon(), suspects: suspects{known: map[endedJob]int{}}, tried: map[endedJob]bool{}, peers: newPeers(a.kinds)}
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
		if t.mayDoze(time.Now()) {
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
	t.chores = chores{discover: now, rewind: now, timers: soon, reap: soon, retention: soon,
		sweep: now.Add(sweepEvery), older: now.Add(olderEvery), unhandled: now.Add(sweepEvery), election: now.Add(electionEvery), peers: now.Add(peersEvery)}
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
	if m.rerouted { // what was read of suspects, too, goes by where tenants lived
		t.chores.sweep = time.Now()
	}
	if m.discover {
		t.chores.discover = time.Now()
	}
	if m.returned {
		t.chores.sweep = time.Now()
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

// acquire claims as many jobs as there is room for and some are waiting, and hands
// them to the workers, or to peers.
func (t *term) acquire(ctx context.Context) (claimed int, err error) {
	if n, err := t.acquireSuspect(ctx); n > 0 || err != nil {
		return n, err
	}
	// What has ended but is not written yet still counts, so that a slow database
	// slows the claiming down.
	want := min(t.cfg.Batch, 3*t.cfg.Batch-t.flight.here())
	if want <= 0 {
		return 0, nil
	}
	room := 0
	if t.lanes.hasWork() || t.lanes.missed[missedHere] {
		room = t.workers.Reserve(t.session, want)
	}
	if room > 0 {
		t.lanes.retry(missedHere)
	}
	t.seekHelp(room < want && (t.lanes.hasWork() || t.lanes.missed[missedHere]))
	ready, credit := t.peers.ready()
	n := min(room+credit, t.cfg.Batch)
	if n == 0 || !t.lanes.hasWork() {
		t.workers.Release(room)
		return 0, nil
	}
	began := time.Now()
	own, given, err := t.claim(ctx, n, room, ready)
	if err != nil {
		return 0, err
	}
	if own+given > 0 {
		t.metrics.claimSeconds.WithLabelValues(t.pool.Name).Observe(time.Since(began).Seconds())
		t.metrics.claimed.WithLabelValues(t.pool.Name).Add(float64(own))
	} else if t.lanes.hasWork() {
		return 1, nil // what was read is in flight or another tenant's turn has come: read on
	}
	return own + given, nil
}

// claim reads up to n jobs, commits claims on them and hands them out: as many as room
// was reserved for to this node's workers, the rest to peers.
func (t *term) claim(ctx context.Context, n, room int, ready []*peer) (kept, given int, err error) {
	held := hold(t.workers, room)
	defer func() {
		if kept == 0 {
			held.use(0)
		}
	}()
	portions, err := t.portions(ctx, n)
	if err != nil || len(portions) == 0 {
		return 0, 0, err
	}
	var req store.PageRequest
	for _, p := range portions {
		req.Add(p.lane.Lane, p.lane.after, p.quota)
	}
	readCtx, cancel := context.WithTimeout(ctx, queryTimeout)
	page, err := store.ReadPage(readCtx, t.pool.Jobs(), &req, t.peers.kinds, len(t.elector.Peers()) > 0)
	cancel()
	if err != nil {
		return 0, 0, err
	}
	if t.router.Applied() != t.placed { // jobs were read that may have been enqueued because of it
		t.chores.sweep = time.Now()
		return 0, 0, nil
	}
	before := make([]int64, len(portions))
	for i, p := range portions {
		before[i] = p.lane.after
	}
	own, shares := t.assign(t.pick(page, portions), room, ready, portions)
	if len(own) > 0 {
		var claims []execution.Claim
		if claims, err = t.commit(ctx, page.Removals, own, portions); err == nil {
			kept = len(claims)
			held.use(kept)
			t.workers.Submit(t.session, claims)
		}
	}
	if err == nil && len(shares) > 0 {
		given, err = t.give(ctx, page.Removals, shares, portions)
	}
	if errors.Is(err, store.ErrFenced) {
		return kept, 0, t.voided(ctx, portions, before)
	}
	return kept, given, err
}

// portions chooses lanes, leaving out tenants that do not live here.
func (t *term) portions(ctx context.Context, room int) ([]portion, error) {
	plan := t.lanes.plan(room)
	kept := plan[:0]
	for _, p := range plan {
		place, err := t.place(ctx, p.lane)
		switch {
		case err != nil:
			if !t.misplaced[p.lane.Tenant] { // once: it is found again with every discovery
				t.misplaced[p.lane.Tenant] = true
				t.log.Warn("jobs wait because their tenant cannot be placed", zap.String("tenant", p.lane.Tenant), zap.Error(err))
			}
			p.lane.active = false // until the next discovery
		case place != nil:
			delete(t.misplaced, p.lane.Tenant)
			kept = append(kept, p)
		}
	}
	t.lanes.settle()
	return kept, nil
}

// place resolves a lane's tenant, once between two sweeps.
func (t *term) place(ctx context.Context, l *lane) (*tenancy.Tenant, error) {
	if l.owner.place != nil {
		return l.owner.place, nil
	}
	tenant, pool, err := t.home(ctx, tenancy.ID(l.Tenant))
	if err != nil {
		return nil, err
	}
	if pool != t.pool {
		return nil, fmt.Errorf("tenant %q lives in pool %q, but has jobs in pool %q: move them there with `tenure tenants move`, or correct its route", l.Tenant, pool.Name, t.pool.Name)
	}
	l.owner.place = &tenant
	return l.owner.place, nil
}

// home finds a tenant's pool. Another one than this may be what it was before the
// tenant was moved here.
func (a *acquirer) home(ctx context.Context, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	tenant, pool, err := a.router.Resolve(ctx, id)
	if err == nil && pool != a.pool {
		a.router.Forget(id)
		tenant, pool, err = a.router.Resolve(ctx, id)
	}
	return tenant, pool, err
}

// pick moves the cursors on and leaves out what is in flight and what is suspect.
func (t *term) pick(page store.Page, portions []portion) []store.Waiting {
	got := make([]int, len(portions))
	picked := page.Jobs[:0]
	for i := range page.Jobs {
		j := &page.Jobs[i]
		got[j.Lane]++
		l := portions[j.Lane].lane
		l.after = max(l.after, j.Position)
		switch {
		case t.flight.has(j.Record.ID, j.Record.Turn):
		case j.Foreign:
			t.lanes.miss(l, j.Position, j.Record.Kind, false)
		case j.Record.Losses > 0:
			t.suspects.add(suspect{Waiting: *j, removals: page.Removals, lane: l})
		default:
			picked = append(picked, *j)
		}
	}
	for i, p := range portions {
		p.lane.read(p.lane.after, got[i] >= p.quota)
	}
	t.lanes.settle()
	return picked
}

// commit claims what was picked. The claim is durable before any of its jobs starts.
func (t *term) commit(ctx context.Context, removals int64, picked []store.Waiting, portions []portion) ([]execution.Claim, error) {
	ids := make([]int64, len(picked))
	turns := make([]int32, len(picked))
	for i := range picked {
		ids[i], turns[i] = int64(picked[i].Record.ID), picked[i].Record.Turn
	}
	defer t.session.making.enter()()
	byTurn, err := t.insert(ctx, removals, ids, turns)
	if err != nil {
		return nil, err
	}
	perClaim := map[int64]int{}
	claims := make([]execution.Claim, len(picked))
	for i := range picked {
		c := &claims[i]
		c.ID = byTurn[turns[i]]
		c.Record = picked[i].Record
		c.Tenant = portions[picked[i].Lane].lane.owner.place
		c.Owner = t.session
		perClaim[c.ID]++
		t.flight.add(c.Record.ID, c.Record.Turn)
	}
	for id, n := range perClaim {
		t.session.open(id, n)
	}
	return claims, nil
}

// insert commits a claim. An error other than ErrFenced leaves it open whether
// the claim stands, and ends the term: see errUnsure.
func (t *term) insert(ctx context.Context, removals int64, ids []int64, turns []int32) (map[int32]int64, error) {
	if !t.holding.trust.stands() {
		return nil, errTrustOver
	}
	// Not to be cut short by a stop: the answer would be lost for nothing.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	byTurn, err := store.InsertClaim(ctx, t.pool.Jobs(), t.fence, removals, ids, turns)
	if err != nil && !errors.Is(err, store.ErrFenced) {
		return nil, fmt.Errorf("%w: %w", errUnsure, err)
	}
	return byTurn, err
}

// voided finds out why a claim was refused. When jobs were taken away since they
// were read, the same lanes are read again; when the lock is lost, the term ends.
func (t *term) voided(ctx context.Context, portions []portion, before []int64) error {
	t.metrics.fenced.WithLabelValues(t.pool.Name).Inc()
	if err := t.stillMine(ctx); err != nil {
		return err
	}
	for i, p := range portions {
		p.lane.after = before[i]
		t.lanes.activate(p.lane)
	}
	return nil
}

func (t *term) stillMine(ctx context.Context) error {
	l, err := store.ReadLock(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	if l.Session != t.fence.Session || l.Epoch != t.fence.Epoch || l.Timeline != t.fence.Timeline || l.Paused || l.Remaining == 0 {
		return errLockLost
	}
	return nil
}

// forgetTried makes place for other suspects where some have ended.
func (t *term) forgetTried() {
	for e, alone := range t.tried {
		if !t.flight.has(e.id, e.turn) {
			delete(t.tried, e)
			t.trials.end(alone)
		}
	}
}

// acquireSuspect claims one suspect job by itself.
func (t *term) acquireSuspect(ctx context.Context) (claimed int, err error) {
	t.forgetTried()
	if t.suspects.none() {
		return 0, nil
	}
	s := t.suspects.first()
	rec := s.Record
	if !t.trials.begin(s.alone()) {
		return 0, nil
	}
	defer func() {
		if claimed == 0 {
			t.trials.end(s.alone())
		}
	}()
	if !t.kinds.Has(rec.Kind) {
		return t.giveSuspect(ctx)
	}
	if t.workers.Reserve(t.session, 1) == 0 {
		return 0, nil
	}
	t.suspects.next()
	defer t.session.making.enter()()
	byTurn, err := t.insert(ctx, s.removals, []int64{int64(rec.ID)}, []int32{rec.Turn})
	if err != nil {
		t.workers.Release(1)
		return 0, t.suspectVoided(ctx, err)
	}
	id := byTurn[rec.Turn]
	t.flight.add(rec.ID, rec.Turn)
	t.tried[endedJob{rec.ID, rec.Turn}] = s.alone()
	t.session.open(id, 1)
	t.metrics.claimed.WithLabelValues(t.pool.Name).Inc()
	t.workers.Submit(t.session, []execution.Claim{{ID: id, Record: rec, Tenant: s.lane.owner.place, Owner: t.session}})
	return 1, nil
}

// giveSuspect claims the first suspect, whose kind this node cannot run, for a peer.
func (t *term) giveSuspect(ctx context.Context) (int, error) {
	s := t.suspects.next()
	ready, _ := t.peers.ready()
	for _, p := range ready {
		if !p.kinds.Has(s.Record.Kind) {
			continue
		}
		s.Waiting.Lane = 0 // of the one portion
		n, err := t.give(ctx, s.removals, []share{{peer: p, jobs: []store.Waiting{s.Waiting}}}, []portion{{lane: s.lane}})
		if err != nil {
			return 0, t.suspectVoided(ctx, err)
		}
		t.tried[endedJob{s.Record.ID, s.Record.Turn}] = s.alone()
		return n, nil
	}
	t.lanes.miss(s.lane, s.Position, s.Record.Kind, false)
	return 0, nil
}

// suspectVoided handles a claim on a suspect that was refused: what was read is void,
// and the sweep finds it again.
func (t *term) suspectVoided(ctx context.Context, err error) error {
	if !errors.Is(err, store.ErrFenced) {
		return err
	}
	t.suspects.clear()
	t.chores.sweep = time.Now()
	return t.stillMine(ctx)
}
