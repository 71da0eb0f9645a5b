package execution

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Workers is the shared set of goroutines that run handlers.
type Workers struct {
	cfg      Config
	registry *job.Registry
	client   any                                      // that handlers enqueue by; nil: none
	open     func(context.Context, *job.Record) error // decrypts a job's arguments; nil: they are as they are
	tracer   trace.Tracer                             // nil: nothing is traced
	retry    job.Policy
	log      *zap.Logger
	ends     runLog
	metrics  *metrics

	capacity  *capacity
	memory    memory // of how statements were described
	pauses    pauses
	durations durations
	backlog   *backlog
	gathering *gathering
	withheld  withheld
	slots     []*slot // twice as many as workers: see replaceWorker
	group     sync.WaitGroup
	spares    chan *slot // those that nobody works in
	busy      atomic.Pointer[busyness]

	stop        sync.Once
	stopping    chan struct{} // closed by Stop
	stopped     chan struct{} // closed when every worker has ended
	interrupted interruption
	deferrals   deferrals
	conflicts   conflicts
}

// slot is where one worker works; it says what runs there.
type slot struct {
	mu         sync.Mutex
	claim      *ClaimedJob             // guarded by mu; nil: idle
	ctx        context.Context         // guarded by mu; of the run
	cancel     context.CancelCauseFunc // guarded by mu
	began      time.Time               // guarded by mu; the run
	tx         *tenantTx               // guarded by mu; the run's; nil: it has none
	stuckSince time.Time               // guarded by mu; when the run was first seen to go on after ctx had ended
	kept       bool                    // guarded by mu; the run has kept the worker for keptAfter, and is counted for that
	replaced   bool                    // guarded by mu; another worker stands in for this one
	goroutine  string                  // guarded by mu; the one that works here, by its number
}

// interruption is whether what still runs is being cancelled.
type interruption struct {
	begun context.Context // ends then, with job.ErrStopping
	begin context.CancelCauseFunc
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
		cfg: cfg, registry: registry, retry: retry, log: log.Named("workers"), ends: newRunLog(log.Named("workers")),
		capacity: newCapacity(cfg.Workers), durations: newDurations(),
		stopping: make(chan struct{}), stopped: make(chan struct{}), slots: make([]*slot, 2*cfg.Workers), spares: make(chan *slot, 2*cfg.Workers),
	}
	w.backlog = newBacklog(tenantShare{tenancy.Share{Of: cfg.Workers, Percent: cfg.TenantShare}}, w.capacity, w.durations)
	w.backlog.shares = w.mostTogether
	w.gathering = newGathering(w)
	w.metrics = newMetrics(w)
	w.interrupted.begun, w.interrupted.begin = context.WithCancelCause(context.Background())
	for i := range w.slots {
		w.slots[i] = &slot{}
		if i >= cfg.Workers {
			w.spares <- w.slots[i]
		}
	}
	return w, nil
}

// PerTenant is how many jobs of one tenant may run here at a time; 0: as many as there are workers.
func (w *Workers) PerTenant() int {
	if most := w.backlog.share.Most(); most < w.cfg.Workers {
		return most
	}
	return 0
}

// OpenWith has open make each job's arguments readable before its handler is called, and before its
// transaction begins. It is called before Start. By [job.Discard] the job is a dead letter; by another error
// it is deferred, and no attempt is charged.
func (w *Workers) OpenWith(open func(ctx context.Context, r *job.Record) error) { w.open = open }

// HandWith puts a client into the contexts of handlers, which the program that made it knows the type of. It is called
// before Start.
func (w *Workers) HandWith(client any) { w.client = client }

// TraceWith has a span begin and end with each run. It is called before Start; by default nothing is
// traced, and runs cost nothing more.
func (w *Workers) TraceWith(tracer trace.Tracer) { w.tracer = tracer }

// MeterTenants has so many tenants, those with most work, be counted each by itself, and the others
// together; 0: none is counted. It is called before Start.
func (w *Workers) MeterTenants(most int) { w.metrics.tenants.busiest.most = most }

// Metrics returns the Workers' metrics, to be registered by the caller.
func (w *Workers) Metrics() prometheus.Collector { return w.metrics }

// Start starts the workers.
func (w *Workers) Start(context.Context) error {
	for _, s := range w.slots[:w.cfg.Workers] {
		w.group.Add(1)
		go w.runWorker(s)
	}
	w.group.Go(w.watchStuck)
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
		w.gathering.close()
		for _, c := range w.backlog.close() {
			w.giveBack(c)
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
	select {
	case <-w.stopped:
		return nil
	case <-time.After(within):
	case <-ctx.Done():
	}
	if n := w.runningKinds(); len(n) > 0 {
		w.log.Warn("cancelling handlers that did not finish in time", zap.Any("running", n), zap.Duration("finish_within", within))
	}
	w.cancelRuns()
	select {
	case <-w.stopped:
		return nil
	case <-time.After(cancelGrace):
		return fmt.Errorf("stop workers: handlers ignore that their context was cancelled: %v", w.runningKinds())
	}
}

// Interrupted ends, with job.ErrStopping, when a stop cancels the handlers that still run.
func (w *Workers) Interrupted() context.Context { return w.interrupted.begun }

// cancelRuns cancels what runs, and what a worker was just about to run.
func (w *Workers) cancelRuns() {
	w.interrupted.begin(job.ErrStopping)
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil {
			s.cancel(job.ErrStopping)
		}
		s.mu.Unlock()
	}
}

// FinishWithdrawn returns once nothing runs of a kind that the registry does not handle any more. Nothing
// begins: what waits is given back. When ctx ends, what still runs is cancelled with
// job.ErrStopping, and its jobs are given back; an error says which handlers ignore that.
// Safe for concurrent use.
func (w *Workers) FinishWithdrawn(ctx context.Context) error { return withdrawal{w}.finish(ctx) }

// cancelGrace is how long a cancelled handler may take to return, and its statement to be
// cancelled.
const cancelGrace = 5 * time.Second

// writeGrace is what is left of a stop's time for writing how the last runs ended.
const writeGrace = cancelGrace

// runningKinds counts the running handlers by kind.
func (w *Workers) runningKinds() map[string]int {
	out := map[string]int{}
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil {
			out[s.claim.Record.Kind] += s.claim.size()
		}
		s.mu.Unlock()
	}
	return out
}

// Reserve grants slots for up to want claims, to be submitted or released; no more
// than o's share of the free ones, if others have lately asked too; none while that is too
// little to be worth a claim, and none for a while after o's database could run none of its
// jobs, and none while o may start none. When it grants fewer than want, o.CapacityAvailable is called once there is capacity again.
func (w *Workers) Reserve(o Owner, want int) int {
	if !o.MayStart() || w.pauses.isPaused(o) {
		return 0 // it is told when that is over
	}
	return w.capacity.reserve(o, want)
}

// Release gives back reserved slots that no claim was found for.
func (w *Workers) Release(n int) { w.capacity.release(n) }

// FinishWithin is how long handlers may go on after a stop was asked for.
func (w *Workers) FinishWithin() time.Duration { return w.cfg.FinishWithin }

// FreeSlots is how many more claims the workers would take now, without reserving them.
func (w *Workers) FreeSlots() int { return w.capacity.countFree() }

// IdleWorkers is how many workers run nothing, and have nothing waiting for them.
func (w *Workers) IdleWorkers() int {
	free, _ := w.backlog.room()
	return max(free, 0)
}

// AwaitCapacity calls o.CapacityAvailable once there is capacity for a good number of
// claims, unless o knows of as much already.
func (w *Workers) AwaitCapacity(o Owner, known int) { w.capacity.tellWhenFree(o, known) }

// TakeSlots takes slots for n claims whether or not there are any free: somebody else
// made the claims, for the capacity there was.
func (w *Workers) TakeSlots(n int) { w.capacity.used.Add(int64(n)) }

// Submit takes claims of one owner for which slots were reserved. The slice and
// what it points to belong to the workers from then on.
func (w *Workers) Submit(o Owner, claims []ClaimedJob) {
	w.metrics.prepare(claims)
	total := 0
	for i := range claims {
		c := &claims[i]
		c.bytes = len(c.Record.Payload) + len(c.Record.Meta)
		total += c.bytes
		w.backlog.countBytes(c, 1)
	}
	w.capacity.bytes.Add(int64(total))
	w.queue(o, w.gathering.take(o, claims))
}

// queue has claims wait for a worker, or gives them back.
func (w *Workers) queue(o Owner, claims []ClaimedJob) {
	if len(claims) == 0 {
		return
	}
	if w.backlog.push(o, claims) {
		w.backlog.giveUpSlots()
		return
	}
	for i := range claims {
		w.giveBack(&claims[i])
	}
}

// PassOn has claims that wait for others of their kind, see job.BatchWait, go on at once: nobody is
// to add any.
func (w *Workers) PassOn() { w.gathering.passOnAll() }

// giveBack gives a call's claims back, which have not started.
func (w *Workers) giveBack(c *ClaimedJob) {
	w.freeSlot(c)
	for one := range c.call() {
		one.Owner.Return(one)
	}
}

// freeSlot says that a call's claims have left the workers.
func (w *Workers) freeSlot(c *ClaimedJob) {
	for one := range c.call() {
		w.capacity.bytes.Add(-int64(one.bytes))
		w.backlog.countBytes(one, -1)
	}
	if !c.slotless {
		w.capacity.freeSlot()
	}
}

// Room is how much more work this node has use for, in time. It is for one page of jobs, and
// not safe for concurrent use.
type Room struct {
	workers *Workers
	free    int              // workers
	left    time.Duration    // of work that may wait
	calls   map[string]int   // that were taken, by tenant; see Calls
	alike   map[batchKey]int // waiting jobs of tenants and kinds that come in batches; none: not asked yet
	kind    string           // that was asked about last
	batch   int              // how many of its jobs may share a call
}

// batchKey is what claims that share calls have in common, apart from their owner.
type batchKey struct{ tenant, kind string }

// Room tells how much more work may wait for a worker here: a tenth of a second for all workers
// together, by how long jobs of each kind took lately, and one job for each free worker. Workers
// that one run has kept for a second do not count.
func (w *Workers) Room() Room {
	r := Room{workers: w}
	r.free, r.left = w.backlog.room()
	return r
}

// Take tells whether one more job of a tenant and kind is to be claimed for this node. A kind of
// which none has run here yet counts as long: there must be a free worker. A tenant that has
// nothing else here may have one job wait in any case, as the next worker is for it: others
// must not keep it out by what waits. Of a kind that comes in batches it may have one call wait, also
// while it has others run. Where every worker has been kept for a second nothing may wait: a peer may be
// idle. Once Take has said no, Workers.Reserve grants slots for
// free workers only, until a run has ended.
func (r *Room) Take(tenant, kind string) bool {
	took, known := r.workers.durations.expect(kind)
	batch, alike := r.countAlike(tenant, kind)
	switch {
	case alike%batch > 0:
		r.left -= took
	case r.free > 0:
		r.free--
	case known && took <= r.left:
		r.left -= took
	case r.calls[tenant] == 0 && r.workers.capacity.turning() > 0 && r.workers.backlog.hasNothingOf(tenant, batch == 1):
	default:
		r.workers.capacity.full.Store(true)
		return false
	}
	if batch > 1 {
		if r.alike == nil {
			r.alike = map[batchKey]int{}
		}
		r.alike[batchKey{tenant, kind}] = alike + 1
	}
	if alike%batch == 0 {
		if r.calls == nil {
			r.calls = map[string]int{}
		}
		r.calls[tenant]++
	}
	return true
}

// Joins tells whether one more job of a tenant and kind would share a call that waits, or was taken, and so need no
// slot.
func (r *Room) Joins(tenant, kind string) bool {
	batch, alike := r.countAlike(tenant, kind)
	return alike%batch > 0
}

// Calls is how many calls were taken of each tenant, those of single jobs included.
func (r *Room) Calls() map[string]int { return r.calls }

// TakeAtOnce is Take for a job that a free worker is to run.
func (r *Room) TakeAtOnce(tenant, kind string) bool { return r.free > 0 && r.Take(tenant, kind) }

// Together is how many jobs of a kind may share a call of this node's handler; 1 if it has none.
func (w *Workers) Together(kind string) int {
	if spec, known := w.registry.Lookup(kind); known {
		return max(spec.MaxBatch, 1)
	}
	return 1
}

// countAlike tells how many jobs of a kind may share a call, and how many of a tenant wait.
func (r *Room) countAlike(tenant, kind string) (batch, waiting int) {
	if kind != r.kind || r.batch == 0 {
		r.kind, r.batch = kind, r.workers.Together(kind)
	}
	if batch = r.batch; batch == 1 {
		return 1, 0
	}
	waiting, seen := r.alike[batchKey{tenant, kind}]
	if !seen {
		waiting = r.workers.backlog.countAlike(tenant, kind)
	}
	return batch, waiting
}

// Expect is how long a run of a kind is expected to keep a worker: by those before it on this
// node, a millisecond at least, as its claim and its end take time, too. A kind of which none
// has run here counts as long: a tenth of a second.
func (w *Workers) Expect(kind string) time.Duration {
	return max(w.durations.expectAnyway(kind), time.Millisecond)
}

// FreeSlotsFor is how many more claims of a tenant are of use here: those that may run at a
// time, and as many more as these workers get through in a tenth of a second. If there is none, o.CapacityAvailable is called once there is.
func (w *Workers) FreeSlotsFor(o Owner, tenant string) int { return w.backlog.freeFor(o, tenant) }

// FullTenants lists tenants of o that need no more claims now, as many as so many bytes hold;
// o.CapacityAvailable is called once one of them does.
func (w *Workers) FullTenants(o Owner, most int) []string { return w.backlog.fullTenants(o, most) }

// Forget drops an owner that has stopped, so that it is not called any more.
func (w *Workers) Forget(o Owner) {
	w.Withhold(o, nil)
	w.capacity.forget(o)
	w.pauses.forget(o)
}

// ForgetPool drops what was counted for a pool that was left.
func (w *Workers) ForgetPool(pool string) { w.metrics.forget(pool) }

// Cancel cancels the run of a job, if it runs here, with job.ErrCancelled; a call that several
// share, when all of them are cancelled. It is false, too, when that was done before, or the run's
// context has ended.
func (w *Workers) Cancel(id job.ID) bool {
	for _, s := range w.slots {
		if found, cancelled := s.cancelJob(id); found {
			return cancelled
		}
	}
	return false
}

// cancelJob is Workers.Cancel for what runs in s.
func (s *slot) cancelJob(id job.ID) (found, cancelled bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.claim == nil {
		return false, false
	}
	all := true
	for c := range s.claim.call() {
		if c.Record.ID == id {
			found, cancelled = true, s.ctx.Err() == nil && !c.cancelled
			c.cancelled = c.cancelled || cancelled
		}
		all = all && c.cancelled
	}
	if found && all {
		s.cancel(job.ErrCancelled)
	}
	return found, cancelled
}

// errAbandoned ends runs whose transaction's database does not answer.
var errAbandoned = errors.New("the database does not answer, or was replaced; the job runs again when it is back")

// CancelTransactions cancels runs of o that are in a transaction, as its database was
// replaced or has not answered for long: they could not commit, and other pools need the
// workers. Their jobs are given back without a charge. Plain handlers, which need no
// database, go on.
func (w *Workers) CancelTransactions(o Owner) {
	for _, s := range w.slots {
		s.mu.Lock()
		if s.claim != nil && s.claim.Owner == o {
			if spec, known := w.registry.Lookup(s.claim.Record.Kind); known && spec.InTx {
				s.cancel(errAbandoned)
			}
		}
		s.mu.Unlock()
	}
}

// runWorker is one worker.
func (w *Workers) runWorker(s *slot) {
	s.noteGoroutine()
	normal := false
	defer func() {
		if !normal && !w.wasReplaced(s) { // a handler called runtime.Goexit: its outcome was reported on the way out
			go w.runWorker(s)
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
		w.runClaim(s, c)
		if w.wasReplaced(s) {
			normal = true
			return
		}
	}
}

// errGoexit stands for a handler that ended its goroutine.
var errGoexit = errors.New("the handler called runtime.Goexit")

// dropCall gives back a call that a worker has taken and does not begin.
func (w *Workers) dropCall(c *ClaimedJob) {
	w.backlog.countEnd(c.Record.Tenant, 0)
	w.giveBack(c)
}

// runClaim takes one claim to its end.
func (w *Workers) runClaim(s *slot, c *ClaimedJob) {
	if c = w.withhold(c); c == nil {
		return
	}
	s.mu.Lock()
	spec, known := w.registry.Lookup(c.Record.Kind) // with mu held: see FinishWithdrawn
	if !known || !c.Owner.MayStart() {
		s.mu.Unlock()
		w.dropCall(c)
		return
	}
	began := time.Now()
	for one := range c.call() {
		one.began = began
		_, one.Record.MaxAttempts = w.retryOf(one, spec) // handlers and middleware see which is the last
	}
	r := newRun(w, s, c, spec) // which copies large records
	ctx, cancel := runContext(r, w.cfg.Timeout)
	s.claim, s.ctx, s.cancel, s.began = c, ctx, cancel, began
	s.mu.Unlock()
	if w.interrupted.begun.Err() != nil { // see cancelRuns: one of the two sees the other
		cancel(job.ErrStopping)
	}

	for one := range c.call() {
		w.metrics.countStart(one)
	}
	if w.tracer != nil {
		ctx = r.traced.begin(ctx, r)
		s.setContext(ctx)
	}
	r.cancel = cancel
	defer func() {
		cause := context.Cause(ctx)
		replaced := s.endRun(w.capacity)
		cancel(nil)
		took := time.Since(began)
		r.reportEnd(cause, took)
		w.noteRun(c, took)
		if !replaced { // else its place was given up before
			w.backlog.countEnd(c.Record.Tenant, c.share(took))
			w.freeSlot(c)
		}
	}()
	r.callHandler(ctx)
}

// noteRun takes in how long a run took, for each of its jobs.
func (w *Workers) noteRun(c *ClaimedJob, took time.Duration) {
	w.durations.of(c.Record.Kind).note(c.share(took))
	w.capacity.runs.note(c.share(took))
}

// retryOf is a job's policy, and how many attempts it has.
func (w *Workers) retryOf(c *ClaimedJob, spec *job.Spec) (policy job.Policy, attempts int) {
	policy = w.retry
	if spec.Retry != nil {
		policy = *spec.Retry
	}
	if c.Record.MaxAttempts > 0 {
		return policy, c.Record.MaxAttempts
	}
	return policy, policy.Attempts()
}

// failedShare divides the size of the call that a job may share, for each attempt that has failed.
const failedShare = 10

// mostTogether is how many jobs may share a call that c is in. One that has lost a node may be
// what ended it. One that has failed may be what its call has failed with: it comes in ever smaller
// company, and alone when it could become a dead letter.
func (w *Workers) mostTogether(c *ClaimedJob) int {
	spec, known := w.registry.Lookup(c.Record.Kind)
	if !known || spec.HandleBatch == nil || c.Record.Losses > 0 {
		return 1
	}
	if _, attempts := w.retryOf(c, spec); c.Record.Attempt >= attempts {
		return 1
	}
	n := spec.MaxBatch
	for failed := c.Record.Attempt - 1; failed > 0 && n > 1; failed-- {
		n /= failedShare
	}
	return max(n, 1)
}
