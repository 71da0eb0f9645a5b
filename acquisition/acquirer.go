package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
)

// acquirer tries for the acquire lock of one pool and, while it holds it, claims
// jobs there. Everything but seen is used by its own goroutine only.
type acquirer struct {
	pool    *routing.Pool
	cfg     Config
	keeper  *keeper
	router  *routing.Router
	workers *execution.Workers
	elector Elector
	kinds   store.Kinds // this node has handlers for
	metrics *metrics
	balance *balance // of the node's locks
	trials  *trials  // of the node
	log     *zap.Logger
	changed chan struct{} // one place: the view of the members changed

	ctx    context.Context // of run and of the assistant
	cancel context.CancelFunc
	group  sync.WaitGroup // those two

	assistant *assistant  // of whoever else holds the lock
	watch     watchlist   // heartbeats of other sessions, as this node saw them
	standing  watching    // what this node saw of the present holder
	offered   bool        // the lock was just let go of in favour of this node
	idleOffer bool        // by a holder that dozed
	refusals  refusals    // of members that cannot take the lock
	invited   string      // the member that the lock was offered to last; "": none was
	unsure    store.Fence // under which a claim may have been committed that this node does not know of; zero: none
	inVain    int         // terms in a row that soon ended with an error, without a claim in between

	mu   sync.Mutex
	seen Held // guarded by mu
}

// watching is how long a holder's renewals have been seen to stand still.
type watching struct {
	holder string
	epoch  int64
	seq    int64
	since  time.Time
	ttl    time.Duration // for which it was last taken or renewed
	still  time.Duration // as watchlist counts it; of a holder
}

// Times of the watch over a lock that somebody else holds. rankDelay keeps nodes
// from trying at once; those of low rank hardly look, so that the cost of a pool
// does not grow with the number of nodes.
const (
	rankDelay   = 500 * time.Millisecond
	lowRank     = 3
	reservation = 1500 * time.Millisecond
	poolRetry   = time.Second
)

// How soon a lock is taken anew because it is not known what became of a claim, or the
// database did not do what it was asked: at once, as a rule, as jobs wait; later and later
// if no term gets to a claim, as when the disk is full or there is no connection left, for
// each take costs something, too.
const (
	firstAnew   = rankDelay / 2
	longestAnew = 2 * time.Second
	soonAnew    = 10 * time.Second // a term that lasted longer was not in vain
)

// anew is how long to wait before the lock is taken anew: d, or longer.
func (a *acquirer) anew(t *term, d time.Duration) time.Duration {
	if time.Since(t.began) > soonAnew {
		a.inVain = 0
	}
	wait := min(d<<a.inVain, longestAnew)
	if wait < longestAnew {
		a.inVain++
	}
	return wait
}

// hangUpFor is how long a wait must be for closing the connection meanwhile: of an
// idle pool only the holder keeps one.
const hangUpFor = 4 * time.Second

// run alternates between waiting for the lock and holding it. Both of these waits are
// made right here and not further down: of thousands of pools each has a goroutine that
// waits, and it is as expensive as its stack is deep.
func (a *acquirer) run(ctx context.Context) {
	if !a.awaitPool(ctx) {
		return
	}
	for ctx.Err() == nil {
		t, rest := a.try(ctx)
		if t != nil {
			a.balance.took()
			rest = a.end(t, t.run(ctx))
		}
		a.pause(ctx, rest)
	}
	if a.unsure != (store.Fence{}) {
		a.resolve()
	}
}

// readyWithin is how long a pool may take to be verified before others are elected. One
// that somebody has to mend first is not waited for.
const readyWithin = 3 * time.Second

// awaitPool waits until the pool can be used; false when ctx ends before.
func (a *acquirer) awaitPool(ctx context.Context) bool {
	within := readyWithin
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
	a.elector.SetReaches(a.pool.Name, false)
	a.metrics.up.WithLabelValues(a.pool.Name).Set(0)
	select {
	case <-a.pool.Ready():
		a.elector.SetReaches(a.pool.Name, true)
		return true
	case <-ctx.Done():
		return false
	}
}

// settle removes a claim of this node that it does not know of, once somebody else
// has taken the lock since: no such claim can still be on its way then. Nobody else
// would remove it, as long as this session lives.
func (a *acquirer) settle(ctx context.Context, l store.Lock) error {
	if a.unsure == (store.Fence{}) || l.Epoch <= a.unsure.Epoch {
		return nil
	}
	if s := a.keeper.opened(); s != nil && s.id == a.unsure.Session { // else its claims are taken back with the session
		n, err := s.sweep(ctx, a.pool.Jobs(), claimTimeout)
		if err != nil {
			return err
		}
		a.log.Info("claims removed whose answer was lost", zap.Int("claims", n))
	}
	a.unsure = store.Fence{}
	return nil
}

// resolve finds out at the end of a stop whether a claim of this node was committed,
// and removes it. If nobody has taken the lock since, it does that itself for a moment.
func (a *acquirer) resolve() {
	ctx, cancel := context.WithTimeout(context.Background(), queryTimeout)
	defer cancel()
	a.keeper.reach.again()
	l, err := a.look(ctx)
	if err == nil {
		err = a.settle(ctx, l)
	}
	var t *term
	if err == nil && a.unsure != (store.Fence{}) {
		t, err = a.take(ctx)
	}
	if err == nil && t != nil {
		defer a.keeper.release(t.holding)
		if _, err = t.load(ctx); err == nil {
			a.letGo(t, context.Canceled)
		}
	}
	if err != nil {
		a.log.Warn("a claim may be left whose answer was lost; it is taken back when the session ends", zap.Error(err))
	}
}

// rest is how long to wait before the lock is looked at again, and what ends it early.
type rest struct {
	d    time.Duration
	saw  outlook // another one ends it
	heed bool    // so does an offer of the lock
}

// try looks at the lock, and takes it if it is free and this node's turn to. nil: not
// yet, try again after the rest.
func (a *acquirer) try(ctx context.Context) (*term, rest) {
	saw := a.outlook()
	if !saw.eligible {
		return nil, rest{d: poolRetry, saw: saw}
	}
	l, err := a.see(ctx)
	if saw = a.outlook(); !saw.eligible { // it may have waited long for its turn
		return nil, rest{d: poolRetry, saw: saw}
	}
	if err != nil {
		if ctx.Err() == nil {
			a.keeper.complain("acquire lock could not be read", err)
		}
		return nil, rest{d: a.keeper.retry(), saw: saw}
	}
	if saw.rank > 0 && a.keeper.reach.isDown() && !a.goesOn(l) { // whoever is elected instead shall not be overtaken
		return nil, rest{d: poolRetry, saw: saw}
	}
	if err := a.settle(ctx, l); err != nil && ctx.Err() == nil {
		a.log.Warn("claims whose answer was lost could not be removed; trying again", zap.Error(err))
	}
	if wait := a.untilFree(l, saw.rank); wait > 0 {
		if a.keeper.reach.isDown() { // until it is known whether it is back for good
			wait = min(wait, poolRetry)
		}
		if wait > hangUpFor {
			a.keeper.hangUp()
		}
		return nil, rest{d: wait, saw: saw, heed: true}
	}
	idle := a.wasIdle(l)
	t, err := a.take(ctx)
	if err != nil {
		if ctx.Err() == nil {
			a.keeper.complain("acquire lock could not be taken", err)
		}
		return nil, rest{d: a.keeper.retry(), saw: saw}
	}
	if t != nil {
		t.wasIdle = idle
	}
	return t, rest{d: rankDelay, saw: saw, heed: true}
}

// goesOn tells whether the lock is this node's still, after an outage: others that had it,
// too, leave the lock alone until they have seen for a while that it is not renewed. Not if
// terms keep on ending soon: somebody else may reach the database better.
func (a *acquirer) goesOn(l store.Lock) bool {
	return l.Holder == a.keeper.self.Member && a.inVain <= 1
}

// wasIdle tells whether the last holder, if there was any, dozed.
func (a *acquirer) wasIdle(l store.Lock) bool {
	switch {
	case l.Holder != "":
		return a.dozes(l)
	case l.Next != "":
		return a.idleOffer
	}
	return true
}

// dozes tells whether a holder has renewed for longer than one that works does.
func (a *acquirer) dozes(l store.Lock) bool {
	return l.Remaining > 0 && l.TTL > a.cfg.Lock.TTL+a.cfg.Lock.TTL/8
}

// outlook is what of the view of the members bears on when to look at the lock again.
type outlook struct {
	rank     int
	eligible bool // this node
	gone     bool // the holder
}

func (a *acquirer) outlook() (o outlook) {
	o.rank, o.eligible = a.elector.Rank(a.pool.Name)
	o.gone = a.gone(a.standing.holder)
	return o
}

// pause waits. What ends it early can do so at most once per rankDelay or so, because
// that is what follows. A change in the view that leaves the outlook as it is must not:
// there may be thousands of locks to look at. Nor does another rank while the holder lives,
// but the first, as hints come to the elected node, which has to know whom to send them on
// to: whoever leaves in order tells its heir, and all others would look at once, each on a
// connection of its own, at databases that have enough to do. They look in a while.
func (a *acquirer) pause(ctx context.Context, r rest) {
	if r.d == 0 {
		return
	}
	until := time.Now().Add(r.d)
	timer := time.NewTimer(r.d)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-timer.C:
			return
		case <-a.changed:
			now := a.outlook()
			if now != r.saw && (now.rank == 0 || a.standing.holder == "") || now.eligible != r.saw.eligible || now.gone != r.saw.gone {
				return
			}
			if at := time.Now().Add(a.idle() + time.Duration(now.rank)*rankDelay); now.rank < r.saw.rank && at.Before(until) {
				until = at
				timer.Reset(time.Until(at))
			}
			r.saw = now
		case <-a.keeper.inbox.nudge:
			m := a.keeper.inbox.take()
			a.refusals.note(a.refusing(m.refused))
			if m.offered && r.heed { // there is no time left to prepare
				a.offered, a.idleOffer = true, m.idle
				return
			}
			if m.soon != "" {
				a.prepare(ctx, m.soon, m.conns)
			}
		}
	}
}

// see is look, unless the last holder has just told what there is to see. The take finds
// out whether it is still so.
func (a *acquirer) see(ctx context.Context) (store.Lock, error) {
	offered := a.offered
	a.offered = false
	if !offered || a.unsure != (store.Fence{}) {
		return a.look(ctx)
	}
	a.standing = watching{since: time.Now()}
	return store.Lock{Next: a.keeper.self.Member}, nil
}

// look reads the lock and notes whether its holder still renews.
func (a *acquirer) look(ctx context.Context) (store.Lock, error) {
	var l store.Lock
	err := a.keeper.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		l, err = store.ReadLock(ctx, conn)
		return err
	})
	if err != nil {
		return l, err
	}
	now := time.Now()
	a.idleOffer = a.idleOffer && l.Holder == ""
	if w := &a.standing; w.holder != l.Holder || w.epoch != l.Epoch || w.seq != l.RenewSeq {
		a.standing = watching{holder: l.Holder, epoch: l.Epoch, seq: l.RenewSeq, since: now}
	}
	if l.Session != uuid.Nil {
		// So that the time in which a dead holder's successor waited counts for reaping.
		still := a.watch.still(l.Session, l.Beat, now, a.mostBetweenLooks())
		a.standing.ttl, a.standing.still = l.TTL, min(still, now.Sub(a.standing.since))
		a.watch.prune(now, 4*a.cfg.Session.TTL)
	}
	a.note(Held{Pool: a.pool.Name, Holder: l.Holder, Epoch: l.Epoch})
	return l, nil
}

// mostBetweenLooks is how much of the time between two looks at a heartbeat counts.
func (a *acquirer) mostBetweenLooks() time.Duration { return a.cfg.Session.TTL / 3 }

// untilFree is how long to wait before the lock may be taken, as far as l tells; 0:
// it may be taken now.
func (a *acquirer) untilFree(l store.Lock, rank int) time.Duration {
	me := a.keeper.self.Member
	delay := time.Duration(rank) * rankDelay
	switch {
	case l.Paused:
		return a.idle() + delay
	case a.outlasted() || l.Holder == "" && (l.Next == "" || l.Next == me || l.Remaining == 0):
		if l.Next == me {
			delay = 0
		}
		return a.vacantFor(delay)
	case l.Holder == "":
		return min(l.Remaining, outlastFactor*reservation) + delay + a.jitter()
	case l.Holder == me: // of a term that ended without letting go
		return 0
	}
	every := a.cfg.Lock.RenewEvery
	dozing := a.dozes(l)
	if dozing {
		every *= dozeFactor
	}
	quiet := 2*every + every/8
	if seen := time.Since(a.standing.since); a.gone(l.Holder) {
		// Two renewals missed are enough. That only the database's clock says so does no
		// harm, as the take still fails if another renewal arrives. That only this node's
		// says so is enough, too: the other may have been set back.
		wait := max(quiet+delay-max(l.Quiet, seen), 0)
		if a.elector.Alive(l.Holder) { // it may be back by now, and another renewal about to arrive
			wait = max(wait, every-seen)
		}
		return wait
	}
	if l.Remaining > 0 {
		if rank >= lowRank {
			return 4*a.cfg.Lock.TTL + rand.N(a.cfg.Lock.TTL)
		}
		if dozing && l.Remaining <= l.TTL { // nothing hangs on it, and gossip tells when the holder dies
			return l.Remaining + time.Duration(2*max(rank, 1))*a.cfg.Lock.TTL + a.jitter()
		}
		return min(l.Remaining, a.idle()) + delay + a.jitter()
	}
	// Expired, but gossip says that it lives. It may not be taken before this node
	// itself has seen it stand still, for the database's clock may have jumped.
	return max(quiet+delay-time.Since(a.standing.since), 0)
}

// idle is how often a lock is looked at that somebody else renews.
func (a *acquirer) idle() time.Duration {
	return 5*a.cfg.Lock.RenewEvery/4 + rand.N(a.cfg.Lock.RenewEvery/4)
}

// vacantFor gives nodes of better rank time to take a vacant lock first.
func (a *acquirer) vacantFor(delay time.Duration) time.Duration {
	if delay == 0 || time.Since(a.standing.since) >= delay {
		return 0
	}
	return delay - time.Since(a.standing.since)
}

func (a *acquirer) jitter() time.Duration { return rand.N(rankDelay / 2) }

// take tries for the lock; nil without an error: somebody else was quicker.
func (a *acquirer) take(ctx context.Context) (*term, error) {
	s, err := a.keeper.session(ctx)
	if err != nil {
		return nil, err
	}
	c := store.Claimant{Session: s.id, Member: a.keeper.self.Member, SeenSeq: a.standing.seq, HolderGone: a.holderGone()}
	var mine bool
	var l store.Lock
	sent := thisInstant()
	err = a.keeper.call(ctx, func(ctx context.Context, conn *pgx.Conn) (err error) {
		mine, l, err = store.TakeLock(ctx, conn, c, a.cfg.Lock.TTL)
		return err
	})
	if err != nil {
		return nil, err
	}
	if !mine {
		a.note(Held{Pool: a.pool.Name, Holder: l.Holder, Epoch: l.Epoch})
		return nil, nil
	}
	f := store.Fence{Session: s.id, Epoch: l.Epoch, Incarnation: l.Incarnation}
	held, holding := a.keeper.hold(f, sent)
	a.note(Held{Pool: a.pool.Name, Holding: true, Holder: c.Member, Epoch: l.Epoch})
	a.metrics.changes.WithLabelValues(a.pool.Name, "taken").Inc()
	a.metrics.held.WithLabelValues(a.pool.Name).Inc()
	a.metrics.epoch.WithLabelValues(a.pool.Name).Set(float64(l.Epoch))
	a.log.Info("acquire lock taken", zap.Int64("epoch", l.Epoch), zap.String("from", a.standing.holder))
	t := newTerm(a, s, f, holding, held)
	t.from = a.standing.holder
	return t, nil
}

// holderGone tells whether nobody will renew the lock any more, as far as this node knows.
// If the holder is this very process, then under another session: one that it has lost, or
// that of the pool's former settings, which ends. The lock may have long to live, as the
// database's clock may have been set back.
func (a *acquirer) holderGone() bool {
	holder := a.standing.holder
	return a.outlasted() || holder != "" && (holder == a.keeper.self.Member || a.gone(holder))
}

// outlasted tells whether this node has itself seen the lock stand still for so long that
// nobody can hold it, or have it reserved, any more, whatever the database's clock and
// gossip say. Time in which nobody could look counts little, as nobody could renew.
func (a *acquirer) outlasted() bool {
	w := &a.standing
	if w.holder == "" {
		return time.Since(w.since) >= outlastFactor*reservation
	}
	return w.still >= outlastFactor*max(w.ttl, a.cfg.Session.TTL)
}

// gone tells whether a holder is thought dead, or says that it does not reach the database
// while this node does, and did all the time. If no node did, the holder is to go on when
// the database is back.
func (a *acquirer) gone(holder string) bool {
	return !a.elector.Alive(holder) || a.elector.Lacks(holder, a.pool.Name) && a.keeper.reach.sound(time.Now().Add(-a.cfg.Lock.TTL))
}

// end lets go of the lock after a term, which is over for the reason why.
func (a *acquirer) end(t *term, why error) rest {
	a.balance.lost()
	for _, alone := range t.tried {
		a.trials.end(alone)
	}
	if errors.Is(why, errUnsure) {
		a.unsure = t.fence
	}
	a.keeper.release(t.holding)
	// Not set to 0: if the pool's settings have changed, its next acquirer may have the lock.
	a.metrics.held.WithLabelValues(a.pool.Name).Dec()
	a.metrics.holdup.DeleteLabelValues(a.pool.Name) // the next holder looks
	a.standing = watching{since: time.Now()}
	switch {
	case errors.Is(why, errMoved), errors.Is(why, context.Canceled):
		a.letGo(t, why)
		a.metrics.changes.WithLabelValues(a.pool.Name, "offered").Inc()
		return rest{}
	case errors.Is(why, store.ErrNewIncarnation): // it is this node's still, so nobody else is waited for
		a.note(Held{Pool: a.pool.Name})
		a.metrics.changes.WithLabelValues(a.pool.Name, "lost").Inc()
		a.log.Info("acquire lock is taken anew", zap.Int64("epoch", t.fence.Epoch), zap.Error(why))
		return rest{d: a.anew(t, firstAnew), saw: a.outlook()}
	case errors.Is(why, errUnsure): // taking it anew decides what was sent; see term.load
		a.note(Held{Pool: a.pool.Name})
		a.metrics.changes.WithLabelValues(a.pool.Name, "unsure").Inc()
		a.log.Warn("acquire lock is taken anew", zap.Int64("epoch", t.fence.Epoch), zap.Error(why))
		return rest{d: a.anew(t, firstAnew), saw: a.outlook()}
	}
	a.note(Held{Pool: a.pool.Name})
	a.metrics.changes.WithLabelValues(a.pool.Name, "lost").Inc()
	a.log.Warn("acquire lock lost", zap.Int64("epoch", t.fence.Epoch), zap.Error(why))
	d := rankDelay // others first
	if !errors.Is(why, errLockLost) {
		d = a.anew(t, d)
	}
	return rest{d: d + a.jitter(), saw: a.outlook()}
}

// reaches is told when the database comes into reach or goes out of it.
func (a *acquirer) reaches(up bool) {
	if a.ctx.Err() != nil { // there may be another pool of that name now
		return
	}
	a.elector.SetReaches(a.pool.Name, up)
	if up {
		a.log.Info("the pool's database can be reached again")
	} else {
		a.log.Warn("the pool's database cannot be reached from this node; others are elected for it meanwhile")
	}
}

// hint takes a hint in, or sends it on to the holder if that is known and is
// another node.
func (a *acquirer) hint(h Hint) {
	seen := a.seenLock()
	if !seen.Holding && !h.Forwarded && seen.Holder != "" && seen.Holder != a.keeper.self.Member {
		h.Forwarded = true
		if a.elector.Send(seen.Holder, MessageHint, h.Encode()) == nil {
			return
		}
	}
	a.keeper.inbox.hint(h)
}

func (a *acquirer) note(h Held) {
	a.mu.Lock()
	a.seen = h
	a.mu.Unlock()
}

func (a *acquirer) seenLock() Held {
	a.mu.Lock()
	defer a.mu.Unlock()
	h := a.seen
	h.Pool = a.pool.Name
	return h
}
