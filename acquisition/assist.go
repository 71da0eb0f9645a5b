package acquisition

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// assistant runs jobs of a pool whose lock another node holds: it tells the holder how
// much room there is, and takes over the claims that the holder makes for this node.
// It works from an invitation until none has come for a while. A pool for which there
// is none costs nothing here.
type assistant struct {
	acquirer *acquirer
	box      *errands

	session *session // the last one it worked with; used by run only
	taken   int64    // jobs taken over in that session; used by run only

	mu      sync.Mutex
	running bool      // guarded by mu; run is under way, or about to be
	stopped bool      // guarded by mu; it must not begin any more
	holder  string    // guarded by mu; the member that invited last
	until   time.Time // guarded by mu; how long the invitation holds
}

// errands are what an assistant has to do and to tell. Safe for concurrent use.
type errands struct {
	nudge chan struct{} // one place; read by the assistant

	mu       sync.Mutex
	given    bool           // guarded by mu; there are claims to be taken over
	taken    map[int64]bool // guarded by mu; claims taken over that are not at their end
	over     []int64        // guarded by mu; those that are, and the holder has not been told
	returned bool           // guarded by mu; some of their jobs wait again
	due      time.Time      // guarded by mu; some were put off until then; zero: none
}

func newErrands() *errands {
	return &errands{nudge: make(chan struct{}, 1), taken: map[int64]bool{}}
}

// come says that there are claims for this node.
func (e *errands) come() {
	e.mu.Lock()
	e.given = true
	e.mu.Unlock()
	nudge(e.nudge)
}

// ended takes in how runs ended; over are the claims that are at their end with them.
func (e *errands) ended(batch []ending, over []int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if len(e.taken) == 0 {
		return
	}
	now := time.Now()
	for i := range batch {
		b := &batch[i]
		if !e.taken[b.claim.ID] {
			continue
		}
		switch {
		case b.how == unstarted || b.outcome.State == job.Returned:
			e.returned = true
		case b.outcome.State == job.Retrying || b.outcome.State == job.Snoozed:
			if at := now.Add(b.outcome.Delay); e.due.IsZero() || at.Before(e.due) {
				e.due = at
			}
		}
	}
	for _, id := range over {
		if e.taken[id] {
			delete(e.taken, id)
			e.over = append(e.over, id)
		}
	}
	nudge(e.nudge)
}

// forget drops what was taken over in a session that has ended.
func (e *errands) forget() {
	e.mu.Lock()
	defer e.mu.Unlock()
	clear(e.taken)
	e.over = nil
}

// take notes claims that are taken over.
func (e *errands) take(ids ...int64) {
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, id := range ids {
		e.taken[id] = true
	}
}

// wanted tells once whether there are claims to be taken over.
func (e *errands) wanted() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	given := e.given
	e.given = false
	return given
}

// idle tells whether everything that was taken over is at its end, and told.
func (e *errands) idle() bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return len(e.taken) == 0 && len(e.over) == 0 && !e.given
}

// tell moves what the holder is to be told into a message; more: not all of it fitted.
func (e *errands) tell(r *Room) (more bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	n := min(len(e.over), maxOver)
	r.Over, e.over = e.over[:n:n], e.over[n:]
	r.Returned, e.returned = e.returned, false
	if !e.due.IsZero() {
		r.DueIn = max(time.Until(e.due), time.Nanosecond)
		e.due = time.Time{}
	}
	return len(e.over) > 0
}

// invited takes an invitation in, and has run started if it is not under way.
func (s *assistant) invited(by string, start func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.holder, s.until = by, time.Now().Add(invitedFor)
	nudge(s.box.nudge)
	if s.running || s.stopped {
		return
	}
	s.running = true
	start() // with mu held, so that it does not come after stop
}

// stop makes it not begin any more.
func (s *assistant) stop() {
	s.mu.Lock()
	s.stopped = true
	s.mu.Unlock()
}

// invitation is who invited last, and whether that still holds.
func (s *assistant) invitation() (holder string, holds bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.holder, time.Now().Before(s.until)
}

// finish ends run when there is nothing to do any more.
func (s *assistant) finish() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.until) || !s.box.idle() {
		return false
	}
	s.running = false
	return true
}

// run works until the invitation has lapsed and all is told, or ctx ends.
func (s *assistant) run(ctx context.Context) {
	a := s.acquirer
	var reported, looked time.Time
	failed := 0 // in a row
	for {
		now := time.Now()
		holder, holds := s.invitation()
		if s.finish() {
			s.leave(holder)
			return
		}
		err := s.join(ctx, holds)
		if err != nil && ctx.Err() == nil {
			a.keeper.complain("no session to help the lock's holder with; trying again", err, zap.String("holder", holder))
		}
		if err == nil && s.session != nil {
			if s.box.wanted() || now.Sub(looked) >= a.cfg.Session.HeartbeatEvery {
				looked = now
				if err = s.accept(ctx); err != nil && ctx.Err() == nil {
					a.log.Warn("claims could not be taken over; trying again", zap.Error(err))
					s.box.come()
				}
			}
			s.report(holder, holds && err == nil)
			reported = time.Now()
		}
		goesOn := false
		if err != nil {
			goesOn = s.holdOff(ctx, failed)
			failed++
		} else {
			goesOn, failed = s.rest(ctx, reported), 0
		}
		if !goesOn {
			s.leave(holder) // running stays set: it must not begin again
			return
		}
	}
}

// Waits after a failure, longer each time, with up to half as much again of jitter. Less
// than giveWithin: what was given can then still be taken over.
const (
	firstHelp = 500 * time.Millisecond
	lastHelp  = 3 * time.Second
)

// holdOff waits before the database is asked again. Nothing that comes in cuts that short:
// under load there is always something, and each node would ask hundreds of times a second.
func (s *assistant) holdOff(ctx context.Context, failed int) bool {
	wait := min(firstHelp<<min(failed, 10), lastHelp)
	timer := time.NewTimer(wait + rand.N(wait/2))
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

// rest waits for something to do, but not less than reportEvery after a report, so
// that what happens in quick succession is told at once.
func (s *assistant) rest(ctx context.Context, reported time.Time) bool {
	timer := time.NewTimer(reportAtLeast)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	case <-s.box.nudge:
	}
	if early := reportEvery - time.Since(reported); early > 0 {
		timer.Reset(early)
		select {
		case <-ctx.Done():
			return false
		case <-timer.C:
		}
	}
	return true
}

// join sees to a session, if there is room for work or some is under way.
func (s *assistant) join(ctx context.Context, holds bool) error {
	k := s.acquirer.keeper
	if !holds || s.session == nil && s.acquirer.workers.Room() == 0 {
		if current := k.opened(); s.session != nil && current != s.session {
			s.session = nil // it has ended; so have its claims
		}
		return nil
	}
	current, err := k.session(ctx)
	if err != nil {
		return err
	}
	if current != s.session {
		s.session, s.taken = current, 0
		s.box.forget()
	}
	return nil
}

// accept takes over what was given, and hands it to the workers.
func (s *assistant) accept(ctx context.Context) error {
	a := s.acquirer
	if !s.session.trust.stands() {
		return nil
	}
	// Not to be cut short by a stop: what is taken over must be known here.
	acceptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), claimTimeout)
	defer cancel()
	defer s.session.making.enter()()
	accepted, err := store.AcceptClaims(acceptCtx, a.pool.Jobs(), s.session.id, s.session.completer.known())
	if err != nil {
		return err
	}
	var empty []int64
	for _, c := range accepted {
		if len(c.Jobs) == 0 {
			empty = append(empty, c.ID)
			continue
		}
		s.taken += int64(len(c.Jobs))
		s.box.take(c.ID)
		s.session.open(c.ID, len(c.Jobs))
		a.workers.Admit(len(c.Jobs))
		a.workers.Submit(s.session, s.place(ctx, c))
		a.metrics.accepted.WithLabelValues(a.pool.Name).Add(float64(len(c.Jobs)))
	}
	if len(empty) > 0 {
		return store.ReleaseClaims(acceptCtx, a.pool.Jobs(), s.session.id, empty)
	}
	return nil
}

// place finds the tenants of a claim's jobs. What cannot be placed here is given
// back: its tenant may have moved, or the lookup table may not answer.
func (s *assistant) place(ctx context.Context, c store.Accepted) []execution.Claim {
	a := s.acquirer
	places := map[string]*tenancy.Tenant{}
	claims := make([]execution.Claim, 0, len(c.Jobs))
	for i := range c.Jobs {
		one := execution.Claim{ID: c.ID, Record: c.Jobs[i], Owner: s.session}
		id := one.Record.Tenant
		place, known := places[id]
		if !known {
			tenant, pool, err := a.home(ctx, tenancy.ID(id))
			switch {
			case err == nil && pool != a.pool:
				err = errors.New("it lives in another pool")
				fallthrough
			case err != nil:
				a.log.Warn("jobs are given back because their tenant cannot be placed", zap.String("tenant", id), zap.Error(err))
			default:
				place = &tenant
			}
			places[id] = place
		}
		if place == nil {
			a.workers.Release(1)
			s.session.Return(&one)
			continue
		}
		one.Tenant = place
		if one.Record.Payload == nil { // a holder of an earlier version has given it
			a.workers.Release(1)
			s.session.bury(&one)
			continue
		}
		claims = append(claims, one)
	}
	return claims
}

// report tells the holder about room and ends, and has itself woken when there is more of
// either. Without willing there is no room.
func (s *assistant) report(holder string, willing bool) {
	a := s.acquirer
	r := Room{Pool: a.pool.Name, Session: s.session.id, Taken: s.taken}
	willing = willing && s.session.MayStart()
	if willing {
		r.Room, r.Full = a.workers.Room(), a.workers.Full(s.session, maxFull)
	}
	for more := true; more; {
		more = s.box.tell(&r)
		if err := a.elector.Send(holder, MessageRoom, r.Encode()); err != nil {
			a.log.Debug("the lock's holder could not be told; it finds out by itself", zap.String("to", holder), zap.Error(err))
		}
	}
	if willing {
		a.workers.Await(s.session, r.Room)
	}
}

// leave tells the holder that this node takes nothing any more.
func (s *assistant) leave(holder string) {
	if s.session != nil {
		_ = s.acquirer.elector.Send(holder, MessageRoom, Room{Pool: s.acquirer.pool.Name, Session: s.session.id, Taken: s.taken}.Encode()) // it finds out by itself
	}
}
