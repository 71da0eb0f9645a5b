package acquisition

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// acquire claims as many jobs as there is room for and some are waiting, and hands
// them to the workers, or to peers.
func (t *term) acquire(ctx context.Context) (claimed int, err error) {
	if err := t.learnLimits(ctx); err != nil {
		return 0, err
	}
	if n, err := t.acquireSuspect(ctx); n > 0 || err != nil {
		return n, err
	}
	// What has ended but is not written yet still counts, so that a slow database
	// slows the claiming down.
	want := min(t.cfg.Batch, 3*t.cfg.Batch-t.flight.here())
	if want <= 0 {
		return 0, nil
	}
	t.reopen()
	room, work := 0, t.lanes.hasWork() || t.lanes.missed[missedHere]
	if work {
		room = t.workers.Reserve(t.session, want)
	}
	if room > 0 {
		t.lanes.retry(missedHere)
	}
	if t.crowded() {
		t.seekHelp(t.peers.lack(true, 0))
	} else {
		t.seekHelp(t.peers.lack(work, room))
	}
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
	portions, err := t.portions(ctx, n, ready)
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
		t.reroute()
		return 0, 0, nil
	}
	before := make([]int64, len(portions))
	for i, p := range portions {
		before[i] = p.lane.after
	}
	picked, unwanted := t.pick(page, portions)
	if err := t.cancel(ctx, page.Removals, unwanted); err != nil {
		if errors.Is(err, store.ErrFenced) {
			err = t.voided(ctx, portions, before)
		}
		return 0, 0, err
	}
	own, shares := t.assign(picked, room, ready, portions)
	t.lanes.settle()
	if len(own) > 0 {
		var claims []execution.Claim
		if claims, err = t.commit(ctx, page.Removals, own, portions); err == nil {
			kept = len(claims)
			held.use(kept)
			t.workers.Submit(t.session, t.bury(claims, own))
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

// cancel ends jobs that somebody wanted cancelled while they were claimed, and that wait
// again: whatever has let them go may not have known. A row that somebody has locked is
// not waited for, but found again by a sweep.
func (t *term) cancel(ctx context.Context, removals int64, unwanted []store.Waiting) error {
	if len(unwanted) == 0 {
		return nil
	}
	ids, turns := columns(unwanted)
	ctx, cancel := context.WithTimeout(ctx, claimTimeout)
	defer cancel()
	n, err := store.CancelWaiting(ctx, t.pool.Jobs(), t.fence, removals, ids, turns, t.keeper.keep())
	if n > 0 {
		t.log.Info("waiting jobs cancelled that were asked to end while they ran", zap.Int("jobs", n))
	}
	if errors.Is(err, store.ErrLocked) {
		t.sayLocked("cancelling", err)
		return nil
	}
	return err
}

// columns lists the jobs and their turns.
func columns(jobs []store.Waiting) (ids []int64, turns []int32) {
	ids, turns = make([]int64, len(jobs)), make([]int32, len(jobs))
	for i := range jobs {
		ids[i], turns[i] = int64(jobs[i].Record.ID), jobs[i].Record.Turn
	}
	return ids, turns
}

// portions chooses lanes, leaving out tenants that do not live here, or may not have more
// in flight.
func (t *term) portions(ctx context.Context, room int, ready []*peer) ([]portion, error) {
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
			here, all := t.allowance(p.lane, ready)
			if all == 0 {
				t.lanes.fill(p.lane.owner)
				continue
			}
			p.quota, p.here = min(p.quota, all, p.lane.fits()), here
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

// pick moves the cursors on and leaves out what is in flight, what is suspect, and what
// is unwanted, which it returns, too.
func (t *term) pick(page store.Page, portions []portion) (picked, unwanted []store.Waiting) {
	got, left := make([]int, len(portions)), map[int]bool{}
	picked = page.Jobs[:0]
	for i := range page.Jobs {
		j := &page.Jobs[i]
		got[j.Lane]++
		l := portions[j.Lane].lane
		l.weigh(j)
		if j.Left {
			left[j.Lane] = true
			continue
		}
		l.after = max(l.after, j.Position)
		switch {
		case t.flight.has(j.Record.ID, j.Record.Turn):
		case j.Unwanted:
			unwanted = append(unwanted, *j)
		case j.Foreign:
			t.lanes.miss(l, j.Position, j.Record.Kind, false)
		case j.TooLarge: // it is not run
			picked = append(picked, *j)
		case j.Record.Losses > 0:
			t.suspects.add(suspect{Waiting: *j, removals: page.Removals, lane: l})
		default:
			picked = append(picked, *j)
		}
	}
	for i, p := range portions {
		p.lane.read(p.lane.after, got[i] >= p.quota || left[i])
	}
	if len(left) > 0 {
		t.lanes.serveFirst(portions, left)
	}
	t.lanes.settle()
	return picked, unwanted
}

// commit claims what was picked. The claim is durable before any of its jobs starts.
func (t *term) commit(ctx context.Context, removals int64, picked []store.Waiting, portions []portion) ([]execution.Claim, error) {
	ids, turns := columns(picked)
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
	t.limits.claimed(picked...)
	for id, n := range perClaim {
		t.session.open(id, n)
	}
	return claims, nil
}

// bury sends jobs to the dead letters whose payload is too large to be read, and returns
// the other claims. own are the jobs of claims, pairwise.
func (t *term) bury(claims []execution.Claim, own []store.Waiting) []execution.Claim {
	if !slices.ContainsFunc(own, func(w store.Waiting) bool { return w.TooLarge }) {
		return claims
	}
	rest := make([]execution.Claim, 0, len(claims))
	for i := range claims {
		if !own[i].TooLarge {
			rest = append(rest, claims[i])
			continue
		}
		t.workers.Release(1)
		t.session.bury(&claims[i])
	}
	return rest
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
	claimed, err := store.InsertClaim(ctx, t.pool.Jobs(), t.fence, removals, ids, turns)
	if err != nil && !errors.Is(err, store.ErrFenced) {
		return nil, fmt.Errorf("%w: %w", errUnsure, err)
	}
	if err == nil {
		t.inVain = 0
		t.horizon.bound(claimed.XID)
	}
	return claimed.ByTurn, err
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
	if l.Session != t.fence.Session || l.Epoch != t.fence.Epoch || l.Paused || l.Remaining == 0 {
		return errLockLost
	}
	incarnation, err := store.ReadIncarnation(ctx, t.pool.Jobs())
	if err == nil && incarnation != t.fence.Incarnation {
		return store.ErrNewIncarnation
	}
	return err
}
