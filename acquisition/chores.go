package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// chore does what is due besides claiming.
func (t *term) chore(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for _, c := range []struct {
		at    *time.Time
		every time.Duration
		do    func(context.Context) error
	}{
		{&t.chores.election, electionEvery, t.heedElection},
		{&t.chores.peers, peersEvery, t.tendPeers},
		{&t.chores.timers, t.cfg.IdleWait, t.fireTimers},
		{&t.chores.reap, t.cfg.Session.TTL / 10, t.reap},
		{&t.chores.older, olderEvery, t.refreshOlder},
		{&t.chores.sweep, sweepEvery, t.sweep},
		{&t.chores.rewind, rewindEvery, t.rewind},
		{&t.chores.discover, t.discoverEvery(), t.discover},
		{&t.chores.retention, retentionEvery, t.retain},
		{&t.chores.unhandled, sweepEvery, t.reportUnhandled},
		{&t.chores.holdups, holdupsEvery, t.reportHoldup},
	} {
		began := time.Now()
		if began.Before(*c.at) {
			continue
		}
		planned := began.Add(c.every)
		*c.at = planned // before, so that a chore may set it itself
		if err := c.do(ctx); err != nil {
			return err
		}
		if rest := time.Now().Add(dutyFactor * time.Since(began)); c.at.Equal(planned) && planned.Before(rest) {
			*c.at = rest
		}
	}
	return nil
}

// nextDuty is when a chore is due, or a wait for the next holder is over.
func (t *term) nextDuty() time.Time {
	c := &t.chores
	next := c.election
	for _, at := range []time.Time{c.timers, c.reap, c.older, c.sweep, c.rewind, c.discover, c.retention, c.unhandled, c.holdups, c.peers} {
		next = earlier(next, at)
	}
	if t.leaving != nil {
		next = earlier(next, t.leaving.until)
	}
	return next
}

// discoverEvery is how often to look for lanes: when idle that is the poll.
func (t *term) discoverEvery() time.Duration {
	if t.lanes.hasWork() {
		return discoverEvery
	}
	return t.cfg.IdleWait
}

// discover looks for lanes that hold jobs. Hints make it unnecessary in the normal
// case: it is for the lost ones, and for jobs that were added by SQL.
func (t *term) discover(ctx context.Context) error {
	found, err := store.Lanes(ctx, t.pool.Jobs(), maxLanes)
	if err != nil {
		return err
	}
	t.found(found)
	return nil
}

func (t *term) found(lanes []store.Lane) {
	for _, l := range lanes {
		t.lanes.see(l)
	}
}

// rewind makes the lanes be read again from where all is known to be read.
func (t *term) rewind(ctx context.Context) error {
	s, err := store.ReadPageState(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	t.lanes.rewind(t.horizon.observe(s))
	return nil
}

// sweep makes every lane be read from its start: the safety net under the cursors.
func (t *term) sweep(ctx context.Context) error {
	t.lanes.forget()
	t.placed = t.router.Applied()
	t.lanes.unplace()
	t.lanes.sweep()
	t.suspects.clear() // they are found again
	return t.discover(ctx)
}

// fireTimers moves due timers, and finds out when the next one is due.
func (t *term) fireTimers(ctx context.Context) error {
	for {
		fired, err := store.FireTimers(ctx, t.pool.Jobs(), t.fence, maxTimers)
		if err != nil {
			return err
		}
		n := 0
		for _, f := range fired {
			t.lanes.see(f.Lane)
			n += f.Count
		}
		t.metrics.fired.WithLabelValues(t.pool.Name).Add(float64(n))
		if n < maxTimers {
			break
		}
		if t.flightFull() { // the rest must not wait behind, but neither may claiming
			t.chores.timers = time.Now()
			return nil
		}
	}
	in, ok, err := store.NextTimer(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	t.due = time.Time{}
	if ok {
		t.due = time.Now().Add(in)
		t.chores.timers = earlier(t.chores.timers, t.due)
	}
	return nil
}

func (t *term) flightFull() bool { return len(t.flight.own) > t.cfg.Batch }

// refreshOlder looks which claims from before this term have come to their end.
func (t *term) refreshOlder(ctx context.Context) error {
	if len(t.flight.older) == 0 {
		return nil
	}
	claims, err := store.Claims(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	if t.flight.refresh(claims) {
		t.chores.sweep = time.Now() // a job that was given back stands behind the cursors
	}
	return nil
}

// watchlist is what this node itself has seen of other sessions' heartbeats.
type watchlist map[uuid.UUID]beatSeen

type beatSeen struct {
	beat   int64
	looked time.Time     // the last time
	still  time.Duration // how long it was seen to stand still
}

// still notes a heartbeat and returns how long it was seen to stand still. Of the
// time between two looks no more than most counts: while this node could not look,
// the database may have been away for everybody.
func (w watchlist) still(session uuid.UUID, beat int64, now time.Time, most time.Duration) time.Duration {
	seen, ok := w[session]
	if !ok || seen.beat != beat {
		w[session] = beatSeen{beat: beat, looked: now}
		return 0
	}
	seen.still += min(now.Sub(seen.looked), most)
	seen.looked = now
	w[session] = seen
	return seen.still
}

// prune forgets what was not looked at for long.
func (w watchlist) prune(now time.Time, after time.Duration) {
	for id, seen := range w {
		if now.Sub(seen.looked) > after {
			delete(w, id)
		}
	}
}

// reap takes jobs back from sessions that ended. A live one is declared dead only
// when the database's clock says that it expired and this node has itself seen its
// heartbeat stand still for the whole time to live: after an outage of the database
// every session looks expired, and a jump of its clock proves nothing.
func (t *term) reap(ctx context.Context) error {
	t.reaping = false
	if !t.flight.othersClaim(t.session.id) {
		return nil
	}
	sessions, err := store.Sessions(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	now := time.Now()
	defer t.watch.prune(now, 4*t.cfg.Session.TTL)
	ended := 0
	for _, s := range sessions {
		if s.ID == t.session.id {
			continue
		}
		if s.State == "live" {
			still := t.watch.still(s.ID, s.Beat, now, t.mostBetweenLooks())
			// Whoever takes over now would have to watch it from the beginning.
			t.reaping = t.reaping || s.Claims > 0 && still > 2*t.cfg.Session.HeartbeatEvery
			if still < t.cfg.Session.TTL || !s.Expired {
				continue
			}
			dead, err := store.DeclareDead(ctx, t.pool.Jobs(), t.fence, s.ID, s.Beat)
			if err != nil {
				return err
			}
			if !dead {
				continue
			}
			delete(t.watch, s.ID)
			t.log.Warn("session declared dead; its jobs run again", zap.Stringer("session", s.ID), zap.String("node", s.Node),
				zap.Time("last_seen", s.LastSeen), zap.Int("claims", s.Claims))
		}
		ended += s.Claims
	}
	if ended == 0 {
		return nil
	}
	return t.reapClaims(ctx)
}

func (t *term) reapClaims(ctx context.Context) error {
	var total store.Reaped
	for {
		r, err := store.ReapClaims(ctx, t.pool.Jobs(), t.fence, maxLosses)
		if errors.Is(err, store.ErrFenced) {
			return errLockLost
		}
		if err != nil {
			return err
		}
		total.Back += r.Back
		total.Dead += r.Dead
		if r.Claims == 0 {
			break
		}
	}
	t.metrics.reaped.WithLabelValues(t.pool.Name, "back").Add(float64(total.Back))
	t.metrics.reaped.WithLabelValues(t.pool.Name, "dead").Add(float64(total.Dead))
	t.log.Info("jobs taken back from ended sessions", zap.Int("jobs", total.Back), zap.Int("dead_letters", total.Dead))
	t.chores.older = time.Now()
	t.chores.sweep = time.Now()
	return store.ForgetSessions(ctx, t.pool.Jobs())
}

// retain keeps the partitions of finished jobs in order. That it fails is no reason
// not to acquire jobs.
func (t *term) retain(ctx context.Context) error {
	if !t.keeper.keep() {
		return nil
	}
	if err := store.KeepDays(ctx, t.pool.Jobs(), t.keeper.retention); err != nil {
		t.log.Warn("finished jobs could not be tidied; they go to the default partition", zap.Error(err))
	}
	return nil
}

// reportUnhandled says which jobs wait in vain: deployment's mistake number one, and
// those that were added with SQL where a tenant no longer lives.
func (t *term) reportUnhandled(ctx context.Context) error {
	kinds, err := store.Unhandled(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	if len(kinds) > 0 {
		t.log.Warn("jobs wait and no live node has a handler for their kind", zap.Any("kinds", kinds))
	}
	left, err := store.LeftBehind(ctx, t.pool.Jobs())
	if err != nil {
		return err
	}
	for _, one := range left {
		t.log.Warn("jobs wait in a pool that their tenant has left; bring them along with `tenure tenants move`", zap.String("tenant", one.Tenant), zap.String("to", one.Other))
	}
	return nil
}
