package acquisition

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/store"
)

// A lock that is let go of in order passes to its next holder in three steps. The holder
// says that it is about to let go, and goes on claiming; the next one opens what it will
// need and answers; then the offer is made. So what takes time, a session and a connection
// on which everything was done once, is there before the pool is without a holder. A
// pool that dozes is offered at once, as nobody waits there.
//
// The answer also tells that somebody is there who can take it: the lock of a busy pool is
// not moved to a better place, as the election sees it, before that has said that it is one.

// handoverWithin bounds the wait for the next holder's answer.
const handoverWithin = 500 * time.Millisecond

// handover is a term's end that is being prepared.
type handover struct {
	why   error     // the term ends
	to    string    // who is to have the lock; "": whoever comes
	ready bool      // it has said so
	until time.Time // how long its answer is waited for
}

// How long a member is not asked again that could not take a lock: whether it may be
// moved there, and whether it takes over when the holder stops, which costs nothing.
const (
	refusedFor     = 10 * time.Minute
	refusedForStop = 5 * time.Second
)

// refusals are when members said that they cannot take the lock: they stop or start, do
// not have the pool in their configuration, or do not reach its database.
type refusals map[string]time.Time

func (r *refusals) note(members []string) {
	for _, m := range members {
		if *r == nil {
			*r = refusals{}
		}
		(*r)[m] = time.Now()
	}
}

// refusing are those of some members that were offered the lock. Anybody may say that
// somebody cannot take it, which would keep it from there for a while.
func (a *acquirer) refusing(members []string) []string {
	return slices.DeleteFunc(members, func(m string) bool { return m != a.invited })
}

func (r refusals) within(d time.Duration, member string) bool {
	at, ok := r[member]
	return ok && time.Since(at) <= d
}

// shunFor is how long a lock is not offered to whom it was taken from, as it did not renew.
// When several nodes die at once gossip takes that long to say so of the last.
const shunFor = time.Minute

// shuns tells whether a member is not to be offered the lock when the term ends for the
// reason why.
func (t *term) shuns(member string, why error) bool {
	d := refusedForStop
	if errors.Is(why, errMoved) {
		d = refusedFor
	}
	return member == t.from && time.Since(t.began) < shunFor || t.refusals.within(d, member)
}

// heir is who should have the lock next.
func (t *term) heir(why error) string {
	return t.elector.Heir(t.pool.Name, func(member string) bool { return t.shuns(member, why) })
}

// heedElection prepares to let another node have the lock.
func (t *term) heedElection(context.Context) error {
	if t.leaving == nil && t.shouldMove() {
		t.announce(errMoved)
	}
	return nil
}

// shouldMove tells whether another node should have the lock: it is elected, the members
// have agreed for a while, and this node holds more locks than its share. Not soon after
// it was taken: when several nodes die at once the elected one may be dead too, and each
// offer in vain costs the pool a gap.
func (t *term) shouldMove() bool {
	elected, elsewhere := t.electedElsewhere()
	if !elsewhere || t.shuns(elected, errMoved) || t.reaping || t.elector.StableFor() < rebalanceAfter ||
		time.Since(t.began) < rebalanceAfter || time.Since(t.unmoved) < rebalanceAfter {
		return false
	}
	return t.balance.mayGive(t.elector.Share(), time.Now())
}

// electedElsewhere tells whether another node is elected, and which.
func (t *term) electedElsewhere() (elected string, elsewhere bool) {
	elected = t.elector.Elected(t.pool.Name)
	return elected, elected != "" && elected != t.keeper.self.Member
}

// announce tells the next holder to prepare.
func (t *term) announce(why error) {
	t.leaving, t.late = &handover{why: why, to: t.heir(why)}, ""
	t.invited = t.leaving.to
	if t.leaving.to == "" {
		return
	}
	if err := t.elector.Send(t.leaving.to, MessageOffer, About{Pool: t.pool.Name, Soon: true, Conns: t.pool.Handling()}.Encode()); err == nil {
		t.leaving.until = time.Now().Add(handoverWithin)
	}
}

// answered heeds what members say to offers.
func (t *term) answered(m mail) {
	m.refused = t.refusing(m.refused)
	for _, member := range m.refused {
		t.log.Warn("a node cannot take the acquire lock: it is stopping or starting, does not have the pool in its configuration, or does not reach its database",
			zap.String("node", member), zap.Duration("nothing_is_moved_there_for", refusedFor))
	}
	t.refusals.note(m.refused)
	l := t.leaving
	if l == nil {
		// It is prepared by now, so asking again is not in vain. If it is too late each time, that is seldom enough.
		if t.late != "" && slices.Contains(m.ready, t.late) && time.Since(t.heeded) >= rebalanceAfter {
			t.unmoved, t.late, t.heeded = time.Time{}, "", time.Now()
		}
		return
	}
	for _, member := range m.ready {
		delete(t.refusals, member)
		l.ready = l.ready || member == l.to
	}
	switch {
	case l.ready || !t.refusals.within(refusedForStop, l.to):
	case errors.Is(l.why, errMoved): // not to the second best, from where it would have to be moved again
		t.leaving, t.unmoved = nil, time.Now()
	default:
		t.announce(l.why)
	}
}

// depart ends the term once the next holder is prepared, or should have been.
func (t *term) depart() error {
	if t.stop.Err() != nil {
		if t.leaving == nil && t.mayDoze(time.Now()) { // nobody waits for jobs here, so nobody has to prepare
			t.dozing = true
			return context.Canceled
		}
		if t.leaving == nil {
			t.announce(context.Canceled)
		}
		t.leaving.why = context.Canceled
	}
	l := t.leaving
	switch {
	case l == nil:
		return nil
	case l.ready:
		return l.why
	case time.Now().Before(l.until):
		return nil
	case errors.Is(l.why, errMoved):
		t.leaving, t.unmoved, t.late = nil, time.Now(), l.to
		return nil
	}
	return l.why
}

// serves tells whether this node could take the lock. Safe for concurrent use.
func (a *acquirer) serves() bool {
	_, down := a.pool.Number()
	_, eligible := a.elector.Rank(a.pool.Name)
	return down == nil && eligible && !a.keeper.reach.isDown()
}

// prepare opens what a term needs, one after the other as the machine may have no time to
// spare, and tells the holder, whose handlers need conns connections.
func (a *acquirer) prepare(ctx context.Context, holder string, conns int) {
	inTime, cancel := context.WithTimeout(ctx, handoverWithin/2) // for what can do without
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, callTimeout)
	defer cancel()
	_, err := a.keeper.session(ctx)
	if err == nil {
		err = store.Warm(ctx, a.pool.Jobs())
	}
	if err == nil {
		a.readyForHandlers(inTime, conns)
		err = a.elector.Send(holder, MessageAnswer, About{Pool: a.pool.Name}.Encode())
	}
	if err != nil {
		a.log.Debug("could not prepare to take the acquire lock", zap.String("from", holder), zap.Error(err))
	}
}

// mostReady bounds how many connections are opened before there are jobs for them.
const mostReady = 16

// readyForHandlers opens connections for handlers until there are as many as the holder
// needs. What is enqueued while the lock changes hands begins all at once, and each of these
// jobs would otherwise wait longer for a connection than it takes. That there are fewer by
// then is no matter: a lock can be taken without any.
func (a *acquirer) readyForHandlers(ctx context.Context, conns int) {
	if a.pool.Short() {
		return
	}
	a.pool.OpenTenants(ctx, min(conns, mostReady), func(c *pgxpool.Conn) {
		_ = store.WarmTx(ctx, c) // the first job will find out
	})
}

// letGo offers the lock to the node that should have it next, and tells it.
func (a *acquirer) letGo(t *term, why error) {
	to := t.heir(why)
	prepared := t.leaving != nil && t.leaving.ready && a.elector.Alive(t.leaving.to)
	if prepared {
		to = t.leaving.to
	}
	// The stop that brings us here may have ended every context.
	ctx, cancel := context.WithTimeout(context.Background(), 2*callTimeout)
	defer cancel()
	a.keeper.reach.again()
	err := a.keeper.call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.OfferLock(ctx, conn, t.fence, to, reservation)
	})
	a.note(Held{Pool: a.pool.Name, Holder: to})
	if err != nil {
		a.log.Warn("acquire lock could not be let go of; it will expire", zap.Int64("epoch", t.fence.Epoch), zap.Error(err))
		return
	}
	a.log.Info("acquire lock let go of", zap.Int64("epoch", t.fence.Epoch), zap.String("to", to), zap.Bool("prepared", prepared))
	if a.invited = to; to == "" {
		return
	}
	if err := a.elector.Send(to, MessageOffer, About{Pool: a.pool.Name, Idle: t.dozing}.Encode()); err != nil {
		a.log.Debug("offer could not be sent; the node finds the lock by itself", zap.String("to", to), zap.Error(err))
	}
}
