package execution

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Workers is the shared set of goroutines that run handlers.
type Workers struct {
	cfg      Config
	registry *job.Registry
	retry    job.Policy
	log      *zap.Logger
	metrics  *metrics

	room    *room
	backlog *backlog
	slots   []*slot // twice as many as workers: see replace
	group   sync.WaitGroup
	spares  spares

	stop        sync.Once
	stopping    chan struct{} // closed by Stop
	stopped     chan struct{} // closed when every worker has ended
	interrupted atomic.Bool   // what still runs is being cancelled
	putOffs     putOffs
}

// slot is one worker's place; it says what runs there.
type slot struct {
	mu       sync.Mutex
	claim    *Claim                  // guarded by mu; nil: idle
	ctx      context.Context         // guarded by mu; of the run
	cancel   context.CancelCauseFunc // guarded by mu
	tx       *tenantTx               // guarded by mu; the run's; nil: it has none
	deaf     time.Time               // guarded by mu; when the run was first seen to go on after ctx had ended
	replaced bool                    // guarded by mu; another worker stands in for this one
}

// New returns workers that run the handlers of a frozen registry. It starts nothing.
func New(cfg Config, registry *job.Registry, log *zap.Logger) (*Workers, error) {
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	retry, err := job.ParsePolicy(cfg.Retry)
	if err != nil {
		return nil, err
	}
	w := &Workers{
		cfg: cfg, registry: registry, retry: retry, log: log.Named("workers"), metrics: newMetrics(cfg.Workers),
		room:     newRoom(cfg.Workers),
		stopping: make(chan struct{}), stopped: make(chan struct{}), slots: make([]*slot, 2*cfg.Workers),
	}
	w.backlog = newBacklog(share{cfg.Workers, cfg.TenantShare}, w.room)
	for i := range w.slots {
		w.slots[i] = &slot{}
	}
	w.spares.free = slices.Clone(w.slots[cfg.Workers:])
	return w, nil
}

// Start starts the workers.
func (w *Workers) Start(context.Context) error {
	for _, s := range w.slots[:w.cfg.Workers] {
		w.group.Add(1)
		go w.work(s)
	}
	w.group.Go(w.watch)
	return nil
}

// Stop gives back what has not started, lets handlers finish within the
// configured time, or less if ctx ends too soon after that for the rest, then cancels them
// with job.ErrStopping, and returns when every worker has ended. Handlers that
// ignore the cancelling for another grace period are reported by kind; their
// claims stay, so that nobody runs their jobs while they still do.
func (w *Workers) Stop(ctx context.Context) error {
	w.stop.Do(func() {
		close(w.stopping)
		for _, c := range w.backlog.close() {
			w.left(c, false)
			c.Owner.Return(c)
		}
		go func() {
			w.group.Wait()
			close(w.stopped)
		}()
	})
	within := w.cfg.FinishWithin
	if deadline, ok := ctx.Deadline(); ok {
		within = min(within, max(0, time.Until(deadline)-cancelGrace-writeGrace))
	}
	finish := time.NewTimer(within)
	defer finish.Stop()
	select {
	case <-w.stopped:
		return nil
	case <-finish.C:
	case <-ctx.Done():
	}
	if n := w.running(); len(n) > 0 {
		w.log.Warn("cancelling handlers that did not finish in time", zap.Any("running", n), zap.Duration("finish_within", within))
	}
	w.interrupt()
	grace := time.NewTimer(cancelGrace)
	defer grace.Stop()
	select {
	case <-w.stopped:
		return nil
	case <-grace.C:
		return fmt.Errorf("stop workers: handlers ignore that their context was cancelled: %v", w.running())
	}
}

// interrupt cancels what runs, and what a worker was just about to run.
func (w *Workers) interrupt() {
	w.interrupted.Store(true)
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil {
			s.cancel(job.ErrStopping)
		}
		s.mu.Unlock()
	}
}

// cancelGrace is how long a cancelled handler may take to return.
const cancelGrace = 5 * time.Second

// writeGrace is what is left of a stop's time for writing how the last runs ended.
const writeGrace = 5 * time.Second

// running counts the running handlers by kind.
func (w *Workers) running() map[string]int {
	out := map[string]int{}
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil {
			out[s.claim.Record.Kind]++
		}
		s.mu.Unlock()
	}
	return out
}

// Reserve grants places for up to want claims, to be submitted or released; no more
// than o's share of the free ones, if others have lately asked too. When it grants
// fewer than want, o.Roomy is called once there is room again.
func (w *Workers) Reserve(o Owner, want int) int { return w.room.reserve(o, want) }

// Release gives back reserved places that no claim was found for.
func (w *Workers) Release(n int) { w.room.release(n) }

// FinishWithin is how long handlers may go on after a stop was asked for.
func (w *Workers) FinishWithin() time.Duration { return w.cfg.FinishWithin }

// Room is how many more claims the workers would take now, without reserving them.
func (w *Workers) Room() int { return w.room.open() }

// Await calls o.Roomy once there is room for a good number of claims, unless o knows of as
// much already.
func (w *Workers) Await(o Owner, known int) { w.room.await(o, known) }

// Admit makes places for n claims whether or not there are any free: somebody else
// made the claims, for the room there was.
func (w *Workers) Admit(n int) { w.room.used.Add(int64(n)) }

// Submit takes claims of one owner for which places were reserved. The slice and
// what it points to belong to the workers from then on.
func (w *Workers) Submit(o Owner, claims []Claim) {
	total := 0
	for i := range claims {
		c := &claims[i]
		c.bytes = len(c.Record.Payload) + len(c.Record.Meta)
		total += c.bytes
	}
	w.room.bytes.Add(int64(total))
	if len(claims) == 0 || w.backlog.push(o, claims) {
		return
	}
	for i := range claims {
		w.left(&claims[i], false)
		o.Return(&claims[i])
	}
}

// left says that a claim has left the workers.
func (w *Workers) left(c *Claim, done bool) {
	w.room.bytes.Add(-int64(c.bytes))
	w.room.left(done)
}

// Forget drops an owner that has stopped, so that it is not called any more.
func (w *Workers) Forget(o Owner) { w.room.forget(o) }

// Cancel cancels the run of a job, if it runs here, with job.ErrCancelled. It is false,
// too, when the run's context has ended before.
func (w *Workers) Cancel(id job.ID) bool {
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil && s.claim.Record.ID == id {
			first := s.ctx.Err() == nil
			s.cancel(job.ErrCancelled)
			s.mu.Unlock()
			return first
		}
		s.mu.Unlock()
	}
	return false
}

// errAway ends runs whose transaction's database does not answer.
var errAway = errors.New("the database does not answer, or was replaced; the job runs again when it is back")

// GiveUp cancels runs of o that are in a transaction, as its database was replaced or has
// not answered for long: they could not commit, and other pools need the workers. Their jobs are
// given back without a charge. Plain handlers, who need no database, go on.
func (w *Workers) GiveUp(o Owner) {
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil && s.claim.Owner == o {
			if spec, known := w.registry.Lookup(s.claim.Record.Kind); known && spec.InTx {
				s.cancel(errAway)
			}
		}
		s.mu.Unlock()
	}
}

// work is one worker.
func (w *Workers) work(s *slot) {
	normal := false
	defer func() {
		if !normal && !w.dismissed(s) { // a handler called runtime.Goexit: its outcome was reported on the way out
			go w.work(s)
			return
		}
		w.group.Done()
	}()
	for {
		c := w.backlog.pop()
		if c == nil {
			normal = true
			return
		}
		w.run(s, c)
		if w.dismissed(s) {
			normal = true
			return
		}
	}
}

// errGoexit stands for a handler that ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit")

// run takes one claim to its end.
func (w *Workers) run(s *slot, c *Claim) {
	spec, known := w.registry.Lookup(c.Record.Kind)
	if !known || !c.Owner.MayStart() {
		w.backlog.ended(c.Record.Tenant, false)
		w.left(c, false)
		c.Owner.Return(c)
		return
	}
	rec := c.record()
	ctx, cancel := w.context(c, rec, spec)
	s.mu.Lock()
	s.claim, s.ctx, s.cancel = c, ctx, cancel
	s.mu.Unlock()
	if w.interrupted.Load() { // see interrupt: one of the two sees the other
		cancel(job.ErrStopping)
	}

	began := time.Now()
	r := &run{workers: w, slot: s, claim: c, record: rec, spec: spec, cancel: cancel, err: errGoexit}
	defer func() {
		cause := context.Cause(ctx)
		replaced := s.clear()
		cancel(nil)
		r.report(cause, time.Since(began))
		if !replaced { // else its place was given up before
			w.backlog.ended(c.Record.Tenant, true)
			w.left(c, true)
		}
	}()
	r.do(ctx)
}

// context is what a run sees: its tenant, its job, its deadline, and the causes
// that can end it early. It is made of one cancelable context and one timer; the
// standard WithTimeoutCause on top of WithCancelCause would be another microsecond
// a job.
func (w *Workers) context(c *Claim, rec *job.Record, spec *job.Spec) (context.Context, context.CancelCauseFunc) {
	timeout := w.cfg.Timeout
	if spec.Timeout > 0 {
		timeout = spec.Timeout
	}
	if c.Record.Timeout > 0 {
		timeout = c.Record.Timeout
	}
	ctx, cancel := context.WithCancelCause(c.Owner.Context())
	timer := time.AfterFunc(timeout, func() { cancel(job.ErrTimeout) })
	ctx = deadlineContext{ctx, time.Now().Add(timeout)}
	ctx = tenancy.NewContext(ctx, *c.Tenant)
	ctx = job.NewContext(ctx, rec)
	return ctx, func(cause error) {
		timer.Stop()
		cancel(cause)
	}
}

// deadlineContext tells when a timer will cancel the context in it.
type deadlineContext struct {
	context.Context
	deadline time.Time
}

func (c deadlineContext) Deadline() (time.Time, bool) { return c.deadline, true }

// run is one execution of a handler.
type run struct {
	workers *Workers
	slot    *slot
	claim   *Claim
	record  *job.Record // the handler's
	spec    *job.Spec
	cancel  context.CancelCauseFunc
	err     error // what the handler said, as it was read
	inTx    bool  // the job was finished in the handler's transaction
}

// do calls the handler and turns a panic into an error.
func (r *run) do(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			r.err = job.ReadPanic(v, debug.Stack())
		}
	}()
	if r.spec.InTx {
		if r.inTx, r.err = r.doInTx(ctx); errors.Is(r.err, errReadOnly) && isReadOnly(ctx, r.claim.Owner.Tenants()) {
			r.err = errors.Join(errUnable, r.err)
		}
		return
	}
	r.err = r.handle(ctx)
}

// handle calls the handler and reads its error. What goes on from here calls none of the
// handler's methods any more. Those that block are a handler that does not return: its
// deadline passes, and another worker stands in for this one.
func (r *run) handle(ctx context.Context) error {
	if err := r.spec.Handle(ctx, r.record); err != nil {
		return job.ReadError(err)
	}
	return nil
}

// report tells the owner how the run ended.
func (r *run) report(cause error, took time.Duration) {
	c := r.claim
	if errors.Is(r.err, errLate) {
		c.Owner.Return(c)
		return
	}
	if r.inTx {
		r.workers.room.able(c.Owner)
		r.workers.metrics.ran(c, job.Done, took)
		c.Owner.FinishedInTx(c)
		return
	}
	o := r.outcome(cause)
	r.workers.metrics.ran(c, o.State, took)
	if o.State == job.Dead {
		r.workers.log.Warn("job goes to the dead letters", zap.Stringer("job", c.Record.ID), zap.String("kind", c.Record.Kind),
			zap.String("tenant", c.Record.Tenant), zap.Int("attempt", c.Record.Attempt), zap.Error(o.Err))
	}
	c.Owner.Finish(c, o)
}

// outcome is what the handler's error means, given what its context was ended by.
func (r *run) outcome(cause error) job.Outcome {
	if r.err != nil {
		switch {
		case errors.Is(cause, job.ErrCancelled):
			return job.Outcome{State: job.Cancelled, Err: r.err}
		case errors.Is(cause, job.ErrStopping), errors.Is(cause, errAway):
			return job.Outcome{State: job.Returned, Err: r.err}
		case errors.Is(r.err, errUnable) && job.Decide(r.err, 1, math.MaxInt, r.workers.retry).State == job.Retrying: // the handler does not say otherwise
			return r.putOff()
		case errors.Is(cause, job.ErrTimeout) && !errors.Is(r.err, job.ErrTimeout):
			r.err = fmt.Errorf("%w: %w", job.ErrTimeout, r.err)
		}
	}
	policy := r.workers.retry
	if r.spec.Retry != nil {
		policy = *r.spec.Retry
	}
	limit := policy.Attempts()
	if r.claim.Record.MaxAttempts > 0 {
		limit = r.claim.Record.MaxAttempts
	}
	return job.Decide(r.err, r.claim.Record.Attempt, limit, policy)
}
