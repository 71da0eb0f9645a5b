package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/backoff"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
)

// acquirer follows one pool's acquire lock: it watches the holder, takes the lock when it is
// free and this node's turn to, and leads until the term ends. It is used by its own goroutine
// only.
type acquirer struct {
	place
	node      *node
	inbox     *inbox
	sight     atomic.Pointer[Held] // how the lock was last seen
	group     sync.WaitGroup       // itself, the assistant, and background queries
	assistant *assistant           // while another node holds the lock
	ctx       context.Context      // of run and of the assistant
	cancel    context.CancelFunc

	watch     lockWatch
	offers    offers
	offered   bool        // the lock was just released in favour of this node
	idleOffer bool        // by a holder that dozed
	unsure    store.Fence // under which a claim may have been committed that this node does not know of; zero: none
	inVain    int         // terms in a row that soon ended with an error, without a claim in between
}

// lowRank is from which rank on a node hardly looks at a lock that somebody holds, so that the
// cost of a pool does not grow with the number of nodes.
const lowRank = 3

// strangerAfter is how many renewals by a node that gossip does not know are no matter of one that has just come, or died.
const strangerAfter = 3

// run alternates between waiting for the lock and holding it. Both of these waits are
// made right here and not further down: of thousands of pools each has a goroutine that
// waits, and it is as expensive as its stack is deep.
func (a *acquirer) run(ctx context.Context) {
	if !a.awaitPool(ctx) {
		return
	}
	for ctx.Err() == nil {
		t, p := a.tryLock(ctx)
		if t != nil {
			p = a.endTerm(t, t.lead(ctx))
		}
		a.awaitChange(ctx, p)
	}
	if a.unsure != (store.Fence{}) {
		a.resolveUnsure()
	}
}

// awaitPool waits until the pool can be used; false when ctx ends before. If that takes longer
// than a moment, others are elected meanwhile. A pool that somebody has to mend first is
// not waited for.
func (a *acquirer) awaitPool(ctx context.Context) bool {
	within := 3 * tendEvery
	if a.pool.Unfit() != nil {
		within = 0
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case <-a.pool.Ready():
		return true
	case <-ctx.Done():
		return false
	case <-late.C:
	}
	a.node.elector.SetReaches(a.pool.Name, false)
	select {
	case <-a.pool.Ready():
		a.node.elector.SetReaches(a.pool.Name, true)
		return true
	case <-ctx.Done():
		return false
	}
}

// removeUnsure removes a claim of this node that it does not know of, once somebody else
// has taken the lock since: no such claim can still be on its way then. Nobody else
// would remove it, as long as this session lives.
func (a *acquirer) removeUnsure(ctx context.Context, l store.Lock) error {
	if a.unsure == (store.Fence{}) || l.Epoch <= a.unsure.Epoch {
		return nil
	}
	if s := a.keeper.Current(); s != nil && s.ID() == a.unsure.Session { // else its claims are taken back with the session
		n, err := s.Sweep(ctx, a.pool.Jobs(), lease.CallTimeout)
		if err != nil {
			return err
		}
		a.log.Info("removed orphaned claims: reply lost", zap.Int("claims", n))
	}
	a.unsure = store.Fence{}
	return nil
}

// resolveUnsure finds out at the end of a stop whether a claim of this node was committed, and
// removes it. If nobody has taken the lock since, it does that itself for a moment.
func (a *acquirer) resolveUnsure() {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	a.pool.Breaker.TryAtOnce()
	l, err := a.readLock(ctx)
	if err == nil {
		err = a.removeUnsure(ctx, l)
	}
	var t *term
	if err == nil && a.unsure != (store.Fence{}) {
		t, err = a.takeLock(ctx, false)
	}
	if err == nil && t != nil {
		defer a.keeper.Release(t.lock.Lock)
		if _, err = t.load(ctx); err == nil {
			a.unsure = store.Fence{}
			t.handover.offerLock(context.Canceled, false)
		}
	}
	if err != nil {
		a.log.Warn("an orphaned claim may be left, as the reply to it was lost; it is taken back when the session ends", zap.Error(err))
	}
}

// pause is how long to wait before the lock is looked at again, and what ends that early.
type pause struct {
	d           time.Duration
	view        view // another one ends it
	heedsOffers bool // so does an offer of the lock
}

// view is the part of the membership view that decides when to look at the lock again.
type view struct {
	rank     int
	eligible bool // this node
	gone     bool // the holder
}

func (a *acquirer) currentView() (v view) {
	v.rank, v.eligible = a.node.elector.Rank(a.pool.Name)
	v.gone = a.isGone(a.watch.holder)
	return v
}

// tryLock looks at the lock, and takes it if it is free and this node's turn to. nil: not
// yet, try again after the pause.
func (a *acquirer) tryLock(ctx context.Context) (*term, pause) {
	v := a.currentView()
	if !v.eligible {
		return nil, pause{d: tendEvery, view: v}
	}
	prepared := a.offered
	l, err := a.readOffered(ctx)
	if v = a.currentView(); !v.eligible { // it may have waited long to be admitted
		return nil, pause{d: tendEvery, view: v}
	}
	if err != nil {
		if ctx.Err() == nil {
			a.keeper.LogFailure("acquire lock could not be read", err)
		}
		return nil, pause{d: a.keeper.RetryIn(), view: v}
	}
	if v.rank > 0 && a.pool.Breaker.IsDown() && !a.continuesTerm(l) { // the node that is elected instead shall not be overtaken
		return nil, pause{d: tendEvery, view: v}
	}
	if err := a.removeUnsure(ctx, l); err != nil && ctx.Err() == nil {
		a.log.Warn("orphaned claims could not be removed; trying again", zap.Error(err))
	}
	if wait := a.untilFree(l, v.rank); wait > 0 {
		if a.pool.Breaker.IsDown() { // until it is known whether it is back for good
			wait = min(wait, tendEvery)
		}
		if wait > lease.CallTimeout { // of an idle pool only the holder keeps a connection
			a.keeper.HangUp()
		}
		return nil, pause{d: wait, view: v, heedsOffers: true}
	}
	begun := func() {}
	if !prepared { // else the lock is reserved for a moment, and what the term needs is open
		if begun, err = a.pool.AwaitTerm(ctx); err != nil { // ctx has ended
			return nil, pause{}
		}
		if a.currentView() != v { // another node may be elected by now
			begun()
			return nil, pause{}
		}
	}
	t, err := a.takeLock(ctx, a.wasIdle(l))
	if t == nil {
		begun()
	} else {
		t.begun = begun
	}
	if err != nil {
		if ctx.Err() == nil {
			a.keeper.LogFailure("acquire lock could not be taken", err)
		}
		return nil, pause{d: a.keeper.RetryIn(), view: v}
	}
	return t, pause{d: rankDelay, view: v, heedsOffers: true}
}

// continuesTerm tells whether the lock is this node's still, after an outage: others that had
// it, too, leave the lock alone until they have seen for a while that it is not renewed. Not
// if terms keep on ending soon: somebody else may reach the database better.
func (a *acquirer) continuesTerm(l store.Lock) bool {
	return l.Holder == a.keeper.Member() && a.inVain <= 1
}

// wasIdle tells whether the last holder, if there was any, dozed.
func (a *acquirer) wasIdle(l store.Lock) bool {
	switch {
	case l.Holder != "":
		return a.isIdle(l)
	case l.Next != "":
		return a.idleOffer
	}
	return true
}

// isIdle tells whether a lock lives so long that its holder must doze.
func (a *acquirer) isIdle(l store.Lock) bool {
	return l.TTL > a.node.cfg.Lock.TTL+a.node.cfg.Lock.TTL/8
}

// awaitChange waits. What ends it early can do so at most once per rankDelay or so, because
// that is what follows. A change that leaves the view as it is must not: there may be
// thousands of locks to look at. Nor does another rank while the holder lives, but the
// first, as hints come to the elected node, which has to know the holder to send them on: a
// node that leaves in order tells its successor, and all others would look at once, each on a
// connection of its own, at databases that have enough to do. They look in a while.
func (a *acquirer) awaitChange(ctx context.Context, p pause) {
	if p.d == 0 {
		return
	}
	until := time.Now().Add(p.d)
	timer := time.NewTimer(p.d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-a.inbox.changed:
			now := a.currentView()
			if now != p.view && (now.rank == 0 || a.watch.holder == "") || now.eligible != p.view.eligible || now.gone != p.view.gone {
				return
			}
			if at := time.Now().Add(a.idleWait() + time.Duration(now.rank)*rankDelay); now.rank < p.view.rank && at.Before(until) {
				until = at
				timer.Reset(time.Until(at))
			}
			p.view = now
		case <-a.inbox.nudge:
			m := a.inbox.take()
			a.offers.noteRefusals(m.refused)
			if m.offered && p.heedsOffers { // there is no time left to prepare
				a.offered, a.idleOffer = true, m.idle
				return
			}
			if m.soon != "" {
				a.prepareToLead(ctx, m.soon, m.conns)
			}
		}
	}
}

// readOffered is readLock, unless the last holder has just told what there is to read. The
// take finds out whether it is still so.
func (a *acquirer) readOffered(ctx context.Context) (store.Lock, error) {
	offered := a.offered
	a.offered = false
	if !offered || a.unsure != (store.Fence{}) {
		return a.readLock(ctx)
	}
	a.watch.reset()
	return store.Lock{Next: a.keeper.Member()}, nil
}

// readLock reads the lock and notes whether its holder still renews.
func (a *acquirer) readLock(ctx context.Context) (store.Lock, error) {
	var l store.Lock
	err := a.keeper.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		if l, err = store.ReadLock(ctx, conn); err == nil {
			a.keeper.TellQueues(ctx, conn)
		}
		return err
	})
	if err != nil {
		return l, err
	}
	a.idleOffer = a.idleOffer && l.Holder == ""
	a.watch.observe(l, time.Now(), a.node.cfg)
	a.tellOfStranger(ctx)
	a.metrics.noteFrozen(a.pool.Name, l.Paused)
	a.sight.Store(&Held{Pool: a.pool.Name, Holder: l.Holder, Epoch: l.Epoch})
	return l, nil
}

// tellOfStranger tells of a holder that renews, and that gossip does not know: each of the two would wait for the other for
// ever. A node that gossips with nobody opens a session in one such pool, so that others find it there: else it has none, as
// it gets no lock.
func (a *acquirer) tellOfStranger(ctx context.Context) {
	if a.node.elector.Alive(a.watch.holder) {
		a.watch.renewals = 0
	}
	if a.watch.renewals < strangerAfter {
		return
	}
	if _, told := a.node.strangers.LoadOrStore(a.watch.holder, true); !told {
		a.log.Warn("the acquire lock is renewed by a node that this one does not gossip with, so this node gets no jobs of its pools: "+
			"give both the same cluster section (join and keys), and see that they reach each other's cluster.advertise by TCP and UDP",
			zap.String("holder", a.watch.holder))
	}
	if len(a.node.elector.Peers()) > 0 {
		return
	}
	if a.node.seenAt.CompareAndSwap(nil, a.pool); a.node.seenAt.Load() == a.pool {
		if _, err := a.keeper.Session(ctx); err != nil && ctx.Err() == nil {
			a.keeper.LogFailure("session could not be opened", err)
		}
	}
}

// untilFree is how long to wait before the lock may be taken, as far as l tells; 0:
// it may be taken now.
func (a *acquirer) untilFree(l store.Lock, rank int) time.Duration {
	me := a.keeper.Member()
	delay := time.Duration(rank) * rankDelay
	switch {
	case l.Paused:
		return a.idleWait() + delay
	case a.watch.hasOutlasted(a.node.cfg) || l.Holder == "" && (l.Next == "" || l.Next == me || l.Remaining == 0):
		if l.Next == me {
			delay = 0
		}
		return max(delay-a.watch.seenFor(), 0) // nodes of better rank have time to take it first
	case l.Holder == "":
		return min(l.Remaining, outlastFactor*reservation) + delay + jitter()
	case l.Holder == me: // of a term that ended without releasing it
		return 0
	}
	every := a.node.cfg.Lock.Living(l.TTL).RenewEvery
	quiet := 2*every + every/8
	if seen := a.watch.seenFor(); a.isGone(l.Holder) {
		// Two renewals missed are enough. That only the database's clock says so does no
		// harm, as the take still fails if another renewal arrives. That only this node's
		// says so is enough, too: the other may have been set back.
		wait := max(quiet+delay-max(l.Quiet, seen), 0)
		if a.node.elector.Alive(l.Holder) { // it may be back by now, and another renewal about to arrive
			wait = max(wait, every-seen)
		}
		return wait
	}
	if l.Remaining > 0 {
		if rank >= lowRank {
			return 4*a.node.cfg.Lock.TTL + rand.N(a.node.cfg.Lock.TTL)
		}
		if a.isIdle(l) && l.Remaining <= l.TTL { // nothing depends on it, and gossip tells when the holder dies
			return l.Remaining + time.Duration(max(rank, 1))*l.TTL + jitter()
		}
		return min(l.Remaining, a.idleWait()) + delay + jitter()
	}
	// Expired, but gossip says that it lives. It may not be taken before this node
	// itself has seen it stand still, for the database's clock may have jumped.
	return max(quiet+delay-a.watch.seenFor(), 0)
}

// idleWait is how often a lock is looked at that somebody else renews.
func (a *acquirer) idleWait() time.Duration {
	return 5*a.node.cfg.Lock.RenewEvery/4 + rand.N(a.node.cfg.Lock.RenewEvery/4)
}

func jitter() time.Duration { return rand.N(rankDelay / 2) }

// takeLock tries for the lock; nil without an error: somebody else was quicker. inherited: its
// last holder dozed, or there was none.
func (a *acquirer) takeLock(ctx context.Context, inherited bool) (*term, error) {
	s, err := a.keeper.Session(ctx)
	if err != nil {
		return nil, err
	}
	c := store.Claimant{Session: s.ID(), Member: a.keeper.Member(), SeenSeq: a.watch.seq, HolderGone: a.isHolderGone()}
	var mine bool
	var l store.Lock
	sent := lease.Now()
	err = a.keeper.Call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		mine, l, err = store.TakeLock(ctx, conn, c, a.node.cfg.Lock.TTL)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !mine {
		a.sight.Store(&Held{Pool: a.pool.Name, Holder: l.Holder, Epoch: l.Epoch})
		return nil, nil
	}
	from := a.watch.holder
	held, lock := a.keeper.Hold(store.Fence{Session: s.ID(), Epoch: l.Epoch, Incarnation: l.Incarnation}, sent)
	a.sight.Store(&Held{Pool: a.pool.Name, Holding: true, Holder: c.Member, Epoch: l.Epoch})
	a.metrics.changes.WithLabelValues(a.pool.Name, "taken").Inc()
	a.metrics.epoch.WithLabelValues(a.pool.Name).Set(float64(l.Epoch))
	a.metrics.noteFrozen(a.pool.Name, false)
	a.log.Info("acquire lock taken", zap.Int64("epoch", l.Epoch), zap.String("from", from))
	return a.newTerm(held, &holding{lock, s, time.Now(), from}, inherited), nil
}

// isHolderGone tells whether nobody will renew the lock any more, as far as this node knows.
// If the holder is this very process, then under another session: one that it has lost, or
// that of the pool's former settings, which ends. The lock may have long to live, as the
// database's clock may have been set back.
func (a *acquirer) isHolderGone() bool {
	holder := a.watch.holder
	return a.watch.hasOutlasted(a.node.cfg) || holder != "" && (holder == a.keeper.Member() || a.isGone(holder))
}

// isGone tells whether a holder is thought dead, or says that it does not reach the database
// while this node does, and did all the time. If no node did, the holder is to go on when
// the database is back.
func (a *acquirer) isGone(holder string) bool {
	return !a.node.elector.Alive(holder) || a.node.elector.Lacks(holder, a.pool.Name) && a.pool.Breaker.SoundSince(time.Now().Add(-a.node.cfg.Lock.TTL))
}

// endTerm takes in why a term has ended, and returns how long to leave the lock to others.
func (a *acquirer) endTerm(t *term, why error) pause {
	if t.claimer.dispatcher.claimed {
		a.inVain = 0
	}
	if t.loaded {
		a.unsure = store.Fence{}
	}
	if errors.Is(why, errUnsure) {
		a.unsure = t.lock.Fence()
	}
	a.watch.reset()
	count := func(reason string) { a.metrics.changes.WithLabelValues(a.pool.Name, reason).Inc() }
	if isOrderly(why) {
		count("offered")
		return pause{}
	}
	a.sight.Store(&Held{Pool: a.pool.Name})
	a.pool.DoubtRights(a.ctx, why)
	epoch := zap.Int64("epoch", t.lock.Fence().Epoch)
	switch {
	case errors.Is(why, store.ErrNewIncarnation): // it is this node's still, so nobody else is waited for
		count("lost")
		a.log.Info("acquire lock is re-acquired", epoch, zap.Error(why))
		return pause{d: a.retakeIn(t, retakes.First), view: a.currentView()}
	case errors.Is(why, errUnsure): // taking it again decides what was sent; see term.load
		count("unsure")
		a.log.Warn("acquire lock is re-acquired", epoch, zap.Error(why))
		return pause{d: a.retakeIn(t, retakes.First), view: a.currentView()}
	}
	count("lost")
	a.log.Warn("acquire lock lost", epoch, zap.Error(why))
	d := rankDelay // others first
	if !errors.Is(why, lease.ErrLockLost) {
		d = a.retakeIn(t, d)
	}
	return pause{d: d + jitter(), view: a.currentView()}
}

// retakeIn is how long to wait before the lock is re-acquired after a term: first, or longer
// if terms come to nothing.
func (a *acquirer) retakeIn(t *term, first time.Duration) time.Duration {
	if time.Since(t.lock.began) > calmAfter {
		a.inVain = 0
	}
	wait := backoff.Policy{First: first, Longest: retakes.Longest}.Exactly(a.inVain + 1)
	if wait < retakes.Longest {
		a.inVain++
	}
	return wait
}

// canServe tells whether this node could take the lock. Safe for concurrent use.
func (a *acquirer) canServe() bool {
	_, eligible := a.node.elector.Rank(a.pool.Name)
	return eligible && !a.pool.Breaker.IsDown()
}

// noteReach is told when the database comes into reach or goes out of it.
func (a *acquirer) noteReach(up bool) {
	if a.ctx.Err() != nil { // there may be another pool of that name now
		return
	}
	a.node.elector.SetReaches(a.pool.Name, up)
	if up {
		a.log.Info("the pool's database can be reached again")
	} else {
		a.log.Warn("the pool's database cannot be reached from this node; others are elected for it meanwhile")
	}
}

// takeHint takes a hint in, or sends it on to the holder if that is known and is another
// node. Safe for concurrent use.
func (a *acquirer) takeHint(h Hint) {
	seen := a.sight.Load()
	if !seen.Holding && !h.Forwarded && seen.Holder != "" && seen.Holder != a.keeper.Member() {
		h.Forwarded = true
		if a.node.elector.Send(seen.Holder, MessageHint, h.Encode()) == nil {
			return
		}
	}
	a.inbox.addHint(h)
}

// lockWatch is what this node itself has seen of a pool's lock and of the heartbeats of
// sessions in it.
type lockWatch struct {
	heartbeats heartbeats
	holder     string
	epoch      int64
	seq        int64
	renewals   int           // of this term, since gossip has not known the holder
	since      time.Time     // since when the holder's renewals have been seen to stand still
	ttl        time.Duration // for which it was last taken or renewed
	still      time.Duration // as heartbeats count it; of a holder
}

// reset begins again, without a holder.
func (w *lockWatch) reset() { *w = lockWatch{heartbeats: w.heartbeats, since: time.Now()} }

// observe notes how the lock stands.
func (w *lockWatch) observe(l store.Lock, now time.Time, cfg Config) {
	if w.holder != l.Holder || w.epoch != l.Epoch || w.seq != l.RenewSeq {
		renewals := 0
		if w.holder == l.Holder && w.epoch == l.Epoch {
			renewals = w.renewals + 1
		}
		*w = lockWatch{heartbeats: w.heartbeats, holder: l.Holder, epoch: l.Epoch, seq: l.RenewSeq, renewals: renewals, since: now}
	}
	if l.Session != uuid.Nil {
		// So that the time in which a dead holder's successor waited counts for reaping.
		still := w.heartbeats.stillFor(l.Session, l.Beat, now, countedGap(cfg))
		w.ttl, w.still = l.TTL, min(still, now.Sub(w.since))
		w.heartbeats.prune(now, 4*cfg.Session.TTL)
	}
}

// seenFor is how long the lock has been seen to stand still.
func (w *lockWatch) seenFor() time.Duration { return time.Since(w.since) }

// hasOutlasted tells whether this node has itself seen the lock stand still for so long that
// nobody can hold it, or have it reserved, any more, whatever the database's clock and
// gossip say. Time in which nobody could look counts little, as nobody could renew.
func (w *lockWatch) hasOutlasted(cfg Config) bool {
	if w.holder == "" {
		return w.seenFor() >= outlastFactor*reservation
	}
	return w.still >= outlastFactor*max(w.ttl, cfg.Session.TTL)
}
