package acquisition

import (
	"context"
	"errors"
	"time"

	"github.com/google/uuid"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// chore does what is due besides claiming, and has a look taken if one is due.
func (t *term) chore(ctx context.Context) error {
	t.lookedAside(ctx)
	t.lookAside(ctx)
	ctx, cancel := context.WithTimeout(ctx, queryTimeout)
	defer cancel()
	for _, c := range []struct {
		what  string
		at    *time.Time
		every time.Duration
		do    func(context.Context) error
	}{
		{"the election", &t.chores.election, electionEvery, t.heedElection},
		{"peers and their claims", &t.chores.peers, peersEvery, t.tendPeers},
		{"timers", &t.chores.timers, t.cfg.IdleWait, t.fireTimers},
		{"ended sessions", &t.chores.reap, t.cfg.Session.TTL / 10, t.reap},
		{"older claims", &t.chores.older, olderEvery, t.refreshOlder},
	} {
		began := time.Now()
		if began.Before(*c.at) {
			continue
		}
		planned := began.Add(c.every)
		*c.at = planned // before, so that a chore may set it itself
		switch err := c.do(ctx); {
		case errors.Is(err, store.ErrLocked): // claims must not wait for whoever that is
			t.sayLocked(c.what, err)
		case err != nil:
			return err
		}
		postpone(c.at, planned, time.Since(began))
	}
	if now := time.Now(); !now.Before(t.chores.forget) {
		t.chores.forget = now.Add(forgetEvery)
		t.lanes.forget(forgetTimes)
	}
	return nil
}

// lockedSaid is how often it is said that chores are put off.
const lockedSaid = time.Minute

// sayLocked says that a chore is put off because of somebody's lock.
func (t *term) sayLocked(what string, err error) {
	if time.Since(t.locked) < lockedSaid {
		return
	}
	t.locked = time.Now()
	t.log.Warn("somebody has locked what a chore needs; it is put off, jobs are claimed meanwhile", zap.String("chore", what), zap.Error(err))
}

// postpone lets a chore that has taken long rest for longer, unless it was asked for
// meanwhile.
func postpone(at *time.Time, planned time.Time, took time.Duration) {
	if rest := time.Now().Add(dutyFactor * took); at.Equal(planned) && planned.Before(rest) {
		*at = rest
	}
}

// nextDuty is when a chore is due, or a wait for the next holder is over.
func (t *term) nextDuty() time.Time {
	c := &t.chores
	next := c.election
	for _, at := range []time.Time{c.timers, c.reap, c.older, c.peers, c.forget} {
		next = earlier(next, at)
	}
	if !t.aside.busy() { // else its end is told
		for _, d := range t.aside.duties {
			next = earlier(next, *d.at)
		}
	}
	if t.leaving != nil {
		next = earlier(next, t.leaving.until)
	}
	return next
}

// lockedTimersEvery is how often due timers are tried to be fired whose rows somebody has
// locked.
const lockedTimersEvery = 250 * time.Millisecond

// fireTimers moves due timers, and finds out when the next one is due.
func (t *term) fireTimers(ctx context.Context) error {
	n := 0
	for {
		fired, err := store.FireTimers(ctx, t.pool.Jobs(), t.fence, maxTimers)
		if err != nil {
			return err
		}
		n = 0
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
		if in == 0 && n == 0 { // due, and not fired: somebody has locked its row
			in = lockedTimersEvery
		}
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
		askFor(&t.chores.sweep) // a job that was given back stands behind the cursors
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

// outlastFactor is for how many times its time to live a heartbeat, or a lock, has to be
// seen to stand still before the database's clock does not count any more.
const outlastFactor = 3

// reap takes jobs back from sessions that ended. A live one is declared dead only
// when the database's clock says that it expired and this node has itself seen its
// heartbeat stand still for the whole time to live: after an outage of the database
// every session looks expired, and a jump of its clock proves nothing. Neither does it
// prove that a session lives whose heartbeat has stood still for several times as long:
// the clock may have been set back.
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
			outlasted := still >= outlastFactor*max(t.cfg.Session.TTL, s.TTL)
			if still < t.cfg.Session.TTL || !s.Expired && !outlasted {
				continue
			}
			dead, err := store.DeclareDead(ctx, t.pool.Jobs(), t.fence, s.ID, s.Beat, outlasted)
			if err != nil {
				return err
			}
			if !dead {
				continue
			}
			delete(t.watch, s.ID)
			t.log.Warn("session declared dead; its jobs run again", zap.Stringer("session", s.ID), zap.String("node", s.Node),
				zap.Time("last_seen", s.LastSeen), zap.Int("claims", s.Claims), zap.Bool("clock_set_back", !s.Expired))
		}
		ended += s.Claims
	}
	if ended == 0 {
		t.held = 0
		return nil
	}
	return t.reapClaims(ctx)
}

// reapClaims goes through the claims of ended sessions once. What somebody has locked is
// left for the next time.
func (t *term) reapClaims(ctx context.Context) error {
	var total store.Reaped
	for {
		r, err := store.ReapClaims(ctx, t.pool.Jobs(), t.fence, maxLosses, total.Last, t.keeper.keep())
		if errors.Is(err, store.ErrFenced) {
			return errLockLost
		}
		if err != nil {
			return err
		}
		total.Back += r.Back
		total.Dead += r.Dead
		total.Cancelled += r.Cancelled
		total.Held += r.Held
		if r.Claims == 0 {
			break
		}
		total.Last = r.Last
	}
	if total.Held > t.held {
		t.log.Warn("jobs of ended sessions cannot be taken back yet: somebody has locked their rows", zap.Int("jobs", total.Held))
	}
	t.held = total.Held
	if total.Back+total.Dead+total.Cancelled == 0 {
		return store.ForgetSessions(ctx, t.pool.Jobs())
	}
	t.metrics.reaped.WithLabelValues(t.pool.Name, "back").Add(float64(total.Back))
	t.metrics.reaped.WithLabelValues(t.pool.Name, "dead").Add(float64(total.Dead))
	t.metrics.reaped.WithLabelValues(t.pool.Name, "cancelled").Add(float64(total.Cancelled))
	t.log.Info("jobs taken back from ended sessions", zap.Int("jobs", total.Back), zap.Int("dead_letters", total.Dead), zap.Int("cancelled", total.Cancelled))
	t.chores.older = time.Now()
	askFor(&t.chores.sweep)
	return store.ForgetSessions(ctx, t.pool.Jobs())
}
