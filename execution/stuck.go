package execution

import (
	"context"
	"fmt"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
)

// A handler cannot be made to return. One that goes on long after its context has ended
// keeps its goroutine and its job, but not its worker's slot: another worker stands in
// for it, and the connection of its transaction is closed, so that the locks it holds in
// the tenant's tables go. There are as many stand-ins as workers.
const (
	stuckAfter = 2 * cancelGrace // after that a handler is not waited for
	watchEvery = stuckAfter / 10
)

// watchStuck looks for handlers that do not return, and for claims that would wait for long as
// handlers take longer than they did.
func (w *Workers) watchStuck() {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for {
		select {
		case <-w.stopping:
			return
		case now := <-every.C:
			for _, s := range w.slots {
				w.checkStuck(s, now)
				w.noteLong(s, now)
			}
			for _, c := range w.backlog.takeFarOff(now) {
				w.giveBack(c)
			}
			w.noteBusy(now)
		}
	}
}

func (w *Workers) checkStuck(s *slot, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.claim == nil || s.replaced || s.ctx.Err() == nil:
	case s.stuckSince.IsZero():
		s.stuckSince = now
	case now.Sub(s.stuckSince) >= stuckAfter:
		w.replaceWorker(s)
	}
}

// keptAfter is how long a run keeps its worker before nothing is claimed ahead for it: nobody knows when it
// ends.
const keptAfter = 10 * lookahead

// noteLong takes in how long the run in s has taken so far.
func (w *Workers) noteLong(s *slot, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claim == nil || s.replaced {
		return
	}
	if !s.kept && now.Sub(s.began) >= keptAfter {
		s.kept = true
		w.capacity.kept.Add(1)
	}
	took := s.claim.share(now.Sub(s.began))
	w.durations.of(s.claim.Record.Kind).raise(took)
	w.backlog.raise(s.claim.Record.Tenant, took)
}

// replaceWorker has another worker stand in for the one in s; s.mu is held.
func (w *Workers) replaceWorker(s *slot) {
	var next *slot
	select {
	case next = <-w.spares:
	default: // Unhealthy says so
		return
	}
	s.replaced = true
	s.release(w.capacity)
	if s.tx != nil {
		s.tx.dropConn()
	}
	w.log.With(traceFields(trace.SpanContextFromContext(s.ctx))...).Error("a handler goes on although its context has ended; another worker stands in for it. Its job stays claimed until it returns or this process ends; mend the handler",
		zap.Stringer("job", s.claim.Record.ID), zap.Int("jobs", s.claim.size()), zap.String("kind", s.claim.Record.Kind), zap.String("tenant", s.claim.Record.Tenant),
		zap.Duration("for", time.Since(s.stuckSince)), zap.NamedError("ended_by", context.Cause(s.ctx)), zap.String("stack", stackOf(s.goroutine)))
	w.backlog.countEnd(s.claim.Record.Tenant, 0) // first, or the stand-in might find that the tenant's next may not run, and nobody wakes it
	w.freeSlot(s.claim)
	w.group.Add(1) // the worker that is replaced still counts
	go w.runWorker(next)
}

// wasReplaced tells whether another worker stands in for the one in s, which has come to
// its handler's end and goes.
func (w *Workers) wasReplaced(s *slot) bool {
	s.mu.Lock()
	replaced := s.replaced
	s.replaced = false
	s.mu.Unlock()
	if replaced {
		w.spares <- s // there is a place for each slot
	}
	return replaced
}

// endRun notes that the run has ended, and tells whether its worker was replaced.
func (s *slot) endRun(c *capacity) (replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.release(c)
	s.claim, s.ctx, s.cancel, s.stuckSince = nil, nil, nil, time.Time{}
	return s.replaced
}

// release counts the worker as kept no longer; s.mu is held.
func (s *slot) release(c *capacity) {
	if s.kept {
		s.kept = false
		c.kept.Add(-1)
	}
}

// setContext notes what the run's context has become.
func (s *slot) setContext(ctx context.Context) {
	s.mu.Lock()
	s.ctx = ctx
	s.mu.Unlock()
}

// setTx notes the run's transaction.
func (s *slot) setTx(tx *tenantTx) {
	s.mu.Lock()
	s.tx = tx
	s.mu.Unlock()
}

// dropConn closes the connection under a handler's hands, and lets the pool open another.
func (t *tenantTx) dropConn() {
	t.handle.abandoned = true
	_ = t.handle.pooled.Hijack().PgConn().Conn().Close()
	t.handle.leave()
}

// keeps tells whether the run in s should have been replaced, and was not: it keeps a worker's place; s.mu is held.
func (s *slot) keeps(now time.Time) bool {
	return !s.replaced && !s.stuckSince.IsZero() && now.Sub(s.stuckSince) >= stuckAfter+2*watchEvery
}

// countStuck counts the handlers that workers were replaced for, and those that keep a
// worker's place because no stand-in is left.
func (w *Workers) countStuck() (replaced, left int) {
	for _, s := range w.slots {
		s.mu.Lock()
		switch {
		case s.replaced:
			replaced++
		case s.keeps(time.Now()):
			left++
		}
		s.mu.Unlock()
	}
	return replaced, left
}

// Unhealthy says why this process should be restarted; "": it need not. There are as
// many stand-ins for handlers that do not return as there are workers. Beyond that every
// such handler costs a worker, which only a new process brings back.
func (w *Workers) Unhealthy() string {
	replaced, left := w.countStuck()
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%d handlers ignore that their context has ended and %d of them keep a worker: restart the node, and mend them", replaced+left, left)
}

// Stack is the stack of the goroutine in which a job's handler runs here, and of those that it has begun; false:
// none does. All goroutines stand still for the moment in which it is taken.
func (w *Workers) Stack(id job.ID) (stack string, running bool) {
	for _, s := range w.slots {
		if goroutine, found := s.goroutineOf(id); found {
			return stackOf(goroutine), true
		}
	}
	return "", false
}
