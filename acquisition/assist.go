package acquisition

import (
	"context"
	"errors"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// assistant runs jobs of a pool whose lock another node holds: it tells the holder how
// much capacity there is, and accepts the claims that the holder makes for this node.
// It works from an invitation until none has come for a while. A pool for which there
// is none costs nothing here.
type assistant struct {
	place
	cfg        Config
	workers    *execution.Workers
	elector    Elector
	router     *routing.Router
	allotments *allotments
	events     *peerEvents

	session *lease.Session // the last one it worked with; used by run only
	taken   int64          // jobs accepted in that session; used by run only

	mu      sync.Mutex
	running bool      // guarded by mu; run is under way, or about to be
	stopped bool      // guarded by mu; it must not begin any more
	holder  string    // guarded by mu; the member that invited last
	until   time.Time // guarded by mu; how long the invitation holds
}

// acceptInvitation takes an invitation in, and has run started if it is not under way.
func (a *assistant) acceptInvitation(by string, start func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.holder, a.until = by, time.Now().Add(invitedFor)
	nudge(a.events.nudge)
	if a.running || a.stopped {
		return
	}
	a.running = true
	start() // with mu held, so that it does not come after stop
}

// stop makes it not begin any more.
func (a *assistant) stop() {
	a.mu.Lock()
	a.stopped = true
	a.mu.Unlock()
}

// invitation is who invited last, and whether that still holds.
func (a *assistant) invitation() (holder string, holds bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.holder, time.Now().Before(a.until)
}

// finishIfIdle ends run when there is nothing to do any more.
func (a *assistant) finishIfIdle() bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if time.Now().Before(a.until) || !a.events.isIdle() {
		return false
	}
	a.running = false
	return true
}

// run works until the invitation has lapsed and all is told, or ctx ends.
func (a *assistant) run(ctx context.Context) {
	var reported, searched time.Time
	failures := 0 // in a row
	for {
		now := time.Now()
		holder, holds := a.invitation()
		if a.finishIfIdle() {
			a.reportLeaving(holder)
			return
		}
		err := a.ensureSession(ctx, holds)
		if err != nil && ctx.Err() == nil {
			a.keeper.LogFailure("no session to help the lock's holder with; trying again", err, zap.String("holder", holder))
		}
		if err == nil && a.session != nil {
			if a.events.takeAssigned() || now.Sub(searched) >= a.cfg.Session.HeartbeatEvery {
				searched = now
				if err = a.acceptAssigned(ctx); err != nil && ctx.Err() == nil {
					a.log.Warn("claims could not be accepted; trying again", zap.Error(err))
					a.events.noteAssigned()
				}
			}
			a.reportTo(holder, holds && err == nil)
			reported = time.Now()
		}
		goesOn := false
		if err != nil {
			failures++
			goesOn = a.awaitRetry(ctx, failures)
		} else {
			goesOn, failures = a.awaitEvents(ctx, reported), 0
		}
		if !goesOn {
			a.reportLeaving(holder) // running stays set: it must not begin again
			return
		}
	}
}

// awaitRetry waits before the database is asked again. Nothing that comes in cuts that short:
// under load there is always something, and each node would ask hundreds of times a second.
func (a *assistant) awaitRetry(ctx context.Context, failures int) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(helpRetries.Wait(failures)):
		return true
	}
}

// awaitEvents waits for something to do, but not less than a tenth of a burst after a report, so
// that what happens in quick succession is told at once.
func (a *assistant) awaitEvents(ctx context.Context, reported time.Time) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(recheckEvery):
		return true
	case <-a.events.nudge:
	}
	select {
	case <-ctx.Done():
		return false
	case <-time.After(burst/10 - time.Since(reported)):
		return true
	}
}

// ensureSession sees to a session, if there is capacity for work or some is under way.
func (a *assistant) ensureSession(ctx context.Context, holds bool) error {
	k := a.keeper
	if !holds || a.session == nil && a.workers.FreeSlots() == 0 {
		if current := k.Current(); a.session != nil && current != a.session {
			a.session = nil // it has ended; so have its claims
		}
		return nil
	}
	current, err := k.Session(ctx)
	if err != nil {
		return err
	}
	if current != a.session {
		a.session, a.taken = current, 0
		a.events.forgetSession()
	}
	return nil
}

// acceptAssigned accepts the claims that were assigned, and hands their jobs to the workers.
func (a *assistant) acceptAssigned(ctx context.Context) error {
	if !a.session.Trusted() {
		return nil
	}
	// Not to be cut short by a stop: what is accepted must be known here.
	acceptCtx, cancel := context.WithTimeout(context.WithoutCancel(ctx), lease.CallTimeout)
	defer cancel()
	defer a.session.BeginClaim()()
	accepted, err := store.AcceptClaims(acceptCtx, a.pool.Jobs(), a.session.ID(), a.session.Claims())
	if err != nil {
		return err
	}
	var empty []int64
	for _, c := range accepted {
		if len(c.Jobs) == 0 {
			empty = append(empty, c.ID)
			continue
		}
		a.taken += int64(len(c.Jobs))
		a.events.addAccepted(c.ID)
		a.session.OpenClaim(c.ID, len(c.Jobs))
		a.workers.TakeSlots(len(c.Jobs))
		a.allotments.note(a.pool.Name, len(c.Jobs), time.Now())
		a.workers.Submit(a.session, a.resolveTenants(ctx, c))
		a.metrics.accepted.WithLabelValues(a.pool.Name).Add(float64(len(c.Jobs)))
	}
	if len(empty) > 0 {
		return store.ReleaseClaims(acceptCtx, a.pool.Jobs(), a.session.ID(), empty)
	}
	return nil
}

// resolveTenants finds the tenants of a claim's jobs. What cannot be resolved here is given
// back: its tenant may have moved, or the lookup table may not answer.
func (a *assistant) resolveTenants(ctx context.Context, c store.Accepted) []execution.ClaimedJob {
	homes := map[string]*tenancy.Tenant{}
	claims := make([]execution.ClaimedJob, 0, len(c.Jobs))
	for i := range c.Jobs {
		one := execution.ClaimedJob{ID: c.ID, Record: c.Jobs[i], Owner: a.session, Ready: c.Ready[i]}
		id := one.Record.Tenant
		home, known := homes[id]
		if !known {
			tenant, pool, err := resolveTenant(ctx, a.router, a.pool, tenancy.ID(id))
			switch {
			case err == nil && pool != a.pool:
				err = errors.New("it lives in another pool")
				fallthrough
			case err != nil:
				a.log.Warn("jobs are given back because their tenant is unroutable", zap.String("tenant", id), zap.Error(err))
			default:
				home = &tenant
			}
			homes[id] = home
		}
		one.Tenant = home
		switch {
		case home == nil, c.Damaged != nil && c.Damaged[i]: // damaged since the holder read it, who finds that out
			a.workers.Release(1)
			a.session.Return(&one)
		case one.Record.Payload == nil: // a holder of an earlier version has assigned it
			a.workers.Release(1)
			a.session.DeadLetter(&one)
		default:
			claims = append(claims, one)
		}
	}
	return claims
}

// reportTo tells the holder about capacity and ends, and has itself woken when there is more of
// either. Without willing there is no capacity.
func (a *assistant) reportTo(holder string, willing bool) {
	r := Capacity{Pool: a.pool.Name, Session: a.session.ID(), Taken: a.taken, Kinds: a.session.KindsMark()}
	willing = willing && a.session.MayStart()
	free := 0
	if willing {
		free = a.workers.FreeSlots()
		r.Free, r.Full = a.allotments.allot(a.pool.Name, free, time.Now()), a.workers.FullTenants(a.session, maxFull)
		r.Idle = min(r.Free, a.workers.IdleWorkers()) // of which the holders of other locks are told, too
	}
	for more := true; more; {
		more = a.events.moveTo(&r)
		if err := a.elector.Send(holder, MessageCapacity, r.Encode()); err != nil {
			a.log.Debug("the lock's holder could not be told; it finds out by itself", zap.String("to", holder), zap.Error(err))
		}
	}
	if willing {
		a.workers.AwaitCapacity(a.session, free)
	}
}

// reportLeaving tells the holder that this node takes nothing any more.
func (a *assistant) reportLeaving(holder string) {
	if a.session != nil {
		_ = a.elector.Send(holder, MessageCapacity, Capacity{Pool: a.pool.Name, Session: a.session.ID(), Taken: a.taken, Kinds: a.session.KindsMark()}.Encode()) // it finds out by itself
	}
}
