package acquisition

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
)

// A lock that is released in order passes to its next holder in three steps. The holder says
// that it is about to release it, and goes on claiming; the successor opens what it will need
// and answers; then the offer is made. So what takes time, a session and a connection on
// which everything was done once, is there before the pool is without a holder. A pool that
// dozes is offered at once, as nobody waits there.
//
// The answer also tells that somebody is there who can take it: the lock of a busy pool is
// not moved to a better place, as the election sees it, before that has said that it is one.

// handover is how a term passes its lock on.
type handover struct {
	place
	lock     *holding
	elector  Elector
	balance  *balance
	sight    *atomic.Pointer[Held] // how the lock was last seen
	offers   *offers
	recovery *recovery

	checkDuty duty
	departing *departure // nil: the lock is not about to be released
	unmoved   time.Time  // when another node was last elected and did not take the lock
	late      string     // that node, if it has not answered yet
	heeded    time.Time  // when a late answer last was
}

// departure is the end of a term that is being prepared.
type departure struct {
	why   error     // the term ends
	to    string    // the successor; "": any member
	ready bool      // it has said so
	until time.Time // how long its answer is waited for
}

// offers is what members have said to offers of a lock. It outlasts terms.
type offers struct {
	to      string               // the member that the lock was offered to last; "": none was
	refused map[string]time.Time // when members said that they cannot take the lock: they stop or start, do not have the pool in their configuration, or do not reach its database
}

// refusedFor is how long a lock is not moved to a member that could not take it. When the
// holder stops, which costs nothing, it is offered to it again after peerPatience.
const refusedFor = 10 * sweepEvery

// noteRefusals takes in that members cannot take the lock, and returns those that it was
// offered to. Anybody may say that somebody cannot take it, which would keep it from there
// for a while.
func (o *offers) noteRefusals(members []string) []string {
	members = slices.DeleteFunc(members, func(m string) bool { return m != o.to })
	for _, m := range members {
		if o.refused == nil {
			o.refused = map[string]time.Time{}
		}
		o.refused[m] = time.Now()
	}
	return members
}

// refusedWithin tells whether a member has refused the lock lately.
func (o *offers) refusedWithin(d time.Duration, member string) bool {
	at, ok := o.refused[member]
	return ok && time.Since(at) <= d
}

// avoids tells whether a member is not to be offered the lock when the term ends for the
// reason why. One that did not renew it is avoided for a while: when several nodes die at
// once gossip takes that long to say so of the last.
func (h *handover) avoids(member string, why error) bool {
	d := peerPatience
	if errors.Is(why, errMoved) {
		d = refusedFor
	}
	return member == h.lock.from && time.Since(h.lock.began) < sweepEvery || h.offers.refusedWithin(d, member)
}

// findSuccessor is who should have the lock next.
func (h *handover) findSuccessor(why error) string {
	return h.elector.Successor(h.pool.Name, func(member string) bool { return h.avoids(member, why) })
}

// listDuties are those of a handover.
func (h *handover) listDuties(now time.Time) []*duty {
	h.checkDuty = duty{name: "the election", every: fixed(tendEvery), due: now.Add(tendEvery), do: h.checkElection}
	return []*duty{&h.checkDuty}
}

// checkElection prepares to pass the lock on if another node should have it.
func (h *handover) checkElection(context.Context) error {
	if h.departing == nil && h.shouldMove() {
		h.announce(errMoved)
	}
	return nil
}

// shouldMove tells whether another node should have the lock: it is elected, the members
// have agreed for a while, and this node holds more locks than its share. Not soon after
// it was taken: when several nodes die at once the elected one may be dead too, and each
// offer in vain costs the pool a gap.
func (h *handover) shouldMove() bool {
	elected, elsewhere := h.electedElsewhere()
	if !elsewhere || h.avoids(elected, errMoved) || h.recovery.reaping || h.elector.StableFor() < calmAfter ||
		time.Since(h.lock.began) < calmAfter || time.Since(h.unmoved) < calmAfter {
		return false
	}
	return h.balance.mayRelease(h.elector.Share(), time.Now())
}

// electedElsewhere tells whether another node is elected, and which.
func (h *handover) electedElsewhere() (elected string, elsewhere bool) {
	elected = h.elector.Elected(h.pool.Name)
	return elected, elected != "" && elected != h.keeper.Member()
}

// announce tells the successor to prepare.
func (h *handover) announce(why error) {
	d := &departure{why: why, to: h.findSuccessor(why)}
	h.departing, h.late, h.offers.to = d, "", d.to
	if d.to == "" {
		return
	}
	if err := h.elector.Send(d.to, MessageOffer, About{Pool: h.pool.Name, Soon: true, Conns: h.pool.Handling()}.Encode()); err == nil {
		d.until = time.Now().Add(rankDelay)
	}
}

// noteAnswers takes in what members say to offers.
func (h *handover) noteAnswers(ready, refused []string) {
	for _, member := range h.offers.noteRefusals(refused) {
		h.log.Warn("a node cannot take the acquire lock: it is stopping or starting, does not have the pool in its configuration, or does not reach its database",
			zap.String("node", member), zap.Duration("nothing_is_moved_there_for", refusedFor))
	}
	d := h.departing
	if d == nil {
		// It is prepared by now, so asking again is not in vain. If it is too late each time, that is seldom enough.
		if h.late != "" && slices.Contains(ready, h.late) && time.Since(h.heeded) >= calmAfter {
			h.unmoved, h.late, h.heeded = time.Time{}, "", time.Now()
		}
		return
	}
	for _, member := range ready {
		delete(h.offers.refused, member)
		d.ready = d.ready || member == d.to
	}
	switch {
	case d.ready || !h.offers.refusedWithin(peerPatience, d.to):
	case errors.Is(d.why, errMoved): // not to the second best, from where it would have to be moved again
		h.departing, h.unmoved = nil, time.Now()
	default:
		h.announce(d.why)
	}
}

// prepareStop prepares to release the lock because this node stops claiming.
func (h *handover) prepareStop() {
	if h.departing == nil {
		h.announce(context.Canceled)
	}
	h.departing.why = context.Canceled
}

// checkDeparture returns why the term ends once the successor is prepared, or should have
// been; nil: it goes on.
func (h *handover) checkDeparture() error {
	d := h.departing
	switch {
	case d == nil:
		return nil
	case d.ready:
		return d.why
	case time.Now().Before(d.until):
		return nil
	case errors.Is(d.why, errMoved):
		h.departing, h.unmoved, h.late = nil, time.Now(), d.to
		return nil
	}
	return d.why
}

// offerLock releases the lock to the node that should have it next, and tells it. idle: the
// term was dozing.
func (h *handover) offerLock(why error, idle bool) {
	to := h.findSuccessor(why)
	prepared := h.departing != nil && h.departing.ready && h.elector.Alive(h.departing.to)
	if prepared {
		to = h.departing.to
	}
	// The stop that brings us here may have ended every context.
	ctx, cancel := context.WithTimeout(context.Background(), 2*lease.CallTimeout)
	defer cancel()
	h.pool.Breaker.TryAtOnce()
	err := h.keeper.Call(ctx, func(ctx context.Context, conn *pgx.Conn) error {
		return store.OfferLock(ctx, conn, h.lock.Fence(), to, reservation)
	})
	h.sight.Store(&Held{Pool: h.pool.Name, Holder: to})
	if err != nil {
		h.log.Warn("acquire lock could not be released; it will expire", zap.Int64("epoch", h.lock.Fence().Epoch), zap.Error(err))
		return
	}
	h.log.Info("acquire lock released", zap.Int64("epoch", h.lock.Fence().Epoch), zap.String("to", to), zap.Bool("prepared", prepared))
	if h.offers.to = to; to == "" {
		return
	}
	if err := h.elector.Send(to, MessageOffer, About{Pool: h.pool.Name, Idle: idle}.Encode()); err != nil {
		h.log.Debug("offer could not be sent; the node finds the lock by itself", zap.String("to", to), zap.Error(err))
	}
}

// mostPrepared bounds how many connections are opened before there are jobs for them.
const mostPrepared = 16

// prepareToLead opens what a term needs, one after the other as the machine may have no time
// to spare, and tells the holder, whose handlers need conns connections.
func (a *acquirer) prepareToLead(ctx context.Context, holder string, conns int) {
	inTime, cancel := context.WithTimeout(ctx, rankDelay/2) // for what can do without
	defer cancel()
	ctx, cancel = context.WithTimeout(ctx, lease.CallTimeout)
	defer cancel()
	_, err := a.keeper.Session(ctx)
	if err == nil {
		err = store.Warm(ctx, a.pool.Jobs())
	}
	if err == nil {
		a.openForHandlers(inTime, conns)
		err = a.node.elector.Send(holder, MessageAnswer, About{Pool: a.pool.Name}.Encode())
	}
	if err != nil {
		a.log.Debug("could not prepare to take the acquire lock", zap.String("from", holder), zap.Error(err))
	}
}

// openForHandlers opens connections for handlers until there are as many as the holder needs.
// What is enqueued while the lock changes hands begins all at once, and each of these jobs
// would otherwise wait longer for a connection than it takes. That there are fewer by then is
// no matter: a lock can be taken without any.
func (a *acquirer) openForHandlers(ctx context.Context, conns int) {
	if a.pool.Short() {
		return
	}
	a.pool.Tenants().OpenAhead(ctx, min(conns, mostPrepared), func(c *pgxpool.Conn) {
		_ = store.WarmTx(ctx, c) // the first job will find out
	})
}
