package execution

import (
	"context"
	"fmt"
	"sync"
	"time"

	"go.uber.org/zap"
)

// A handler cannot be made to return. One that goes on long after its context has ended
// keeps its goroutine and its job, but not its worker's place: another worker stands in
// for it, and the connection of its transaction is closed, so that the locks it holds in
// the tenant's tables go. There are as many stand-ins as workers.
const (
	deafFor    = 10 * time.Second // after that a handler is not waited for
	watchEvery = time.Second
)

// spares are slots that nobody works in.
type spares struct {
	mu   sync.Mutex
	free []*slot // guarded by mu
}

func (p *spares) put(s *slot) {
	p.mu.Lock()
	p.free = append(p.free, s)
	p.mu.Unlock()
}

// take returns nil when there is none.
func (p *spares) take() *slot {
	p.mu.Lock()
	defer p.mu.Unlock()
	n := len(p.free)
	if n == 0 {
		return nil
	}
	s := p.free[n-1]
	p.free = p.free[:n-1]
	return s
}

// watch looks for handlers that do not return.
func (w *Workers) watch() {
	every := time.NewTicker(watchEvery)
	defer every.Stop()
	for {
		select {
		case <-w.stopping:
			return
		case now := <-every.C:
			for _, s := range w.slots {
				w.look(s, now)
			}
		}
	}
}

func (w *Workers) look(s *slot, now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.claim == nil || s.replaced || s.ctx.Err() == nil:
	case s.deaf.IsZero():
		s.deaf = now
	case now.Sub(s.deaf) >= deafFor:
		w.replace(s)
	}
}

// replace has another worker stand in for the one in s; s.mu is held.
func (w *Workers) replace(s *slot) {
	next := w.spares.take()
	if next == nil { // Unhealthy says so
		return
	}
	s.replaced = true
	if s.tx != nil {
		s.tx.abandon()
	}
	w.log.Error("a handler goes on although its context has ended; another worker stands in for it. Its job stays claimed until it returns or this process ends; mend the handler",
		zap.Stringer("job", s.claim.Record.ID), zap.String("kind", s.claim.Record.Kind), zap.String("tenant", s.claim.Record.Tenant),
		zap.Duration("for", time.Since(s.deaf)), zap.NamedError("ended_by", context.Cause(s.ctx)))
	w.group.Add(1) // the worker that is replaced still counts
	go w.work(next)
	w.backlog.ended(s.claim.Record.Tenant, false)
	w.left(s.claim, false)
}

// dismissed tells whether another worker stands in for the one in s, which has come to
// its handler's end and goes.
func (w *Workers) dismissed(s *slot) bool {
	s.mu.Lock()
	replaced := s.replaced
	s.replaced = false
	s.mu.Unlock()
	if replaced {
		w.spares.put(s)
	}
	return replaced
}

// clear notes that the run has ended, and tells whether its worker was replaced.
func (s *slot) clear() (replaced bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.claim, s.ctx, s.cancel, s.deaf = nil, nil, nil, time.Time{}
	return s.replaced
}

// hold notes the run's transaction.
func (s *slot) hold(tx *tenantTx) {
	s.mu.Lock()
	s.tx = tx
	s.mu.Unlock()
}

// abandon closes the connection under a handler's hands, and lets the pool open another.
func (t *tenantTx) abandon() {
	t.handle.abandoned = true
	_ = t.handle.pooled.Hijack().PgConn().Conn().Close()
}

// deafness counts the handlers that workers were replaced for, and those that keep a
// worker's place because no stand-in is left.
func (w *Workers) deafness() (replaced, left int) {
	for _, s := range w.slots {
		s.mu.Lock()
		switch {
		case s.replaced:
			replaced++
		case !s.deaf.IsZero() && time.Since(s.deaf) >= deafFor+2*watchEvery:
			left++
		}
		s.mu.Unlock()
	}
	return replaced, left
}

// Unhealthy says why this process should be started anew; "": it need not. There are as
// many stand-ins for handlers that do not return as there are workers. Beyond that every
// such handler costs a worker, which only a new process brings back.
func (w *Workers) Unhealthy() string {
	replaced, left := w.deafness()
	if left == 0 {
		return ""
	}
	return fmt.Sprintf("%d handlers ignore that their context has ended and %d of them keep a worker: restart the node, and mend them", replaced+left, left)
}
