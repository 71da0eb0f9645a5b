package execution

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"time"

	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// run is one execution of a handler: of a job, or of a batch of them.
type run struct {
	workers *Workers
	slot    *slot
	claim   *ClaimedJob
	record  *job.Record // the handler's; nil: it gets a batch
	spec    *job.Spec
	cancel  context.CancelCauseFunc
	err     error // what the handler said, as it was read
	took    time.Duration
	inTx    bool // the handler's transaction was committed, and in it the jobs without an error finished
	memory  *memory

	failed failure // of the handler's transaction
	outage bool    // the ledger met the same outage, by which the handler's transaction may have failed

	records  []*job.Record    // the handler's, of a batch: those whose arguments can be read
	unopened map[job.ID]error // of a batch: why the arguments of the others cannot
	ends     *job.Ends        // what the handler said of single jobs of a batch; nil: it was not called
	reports  reports          // what it says of itself
	traced   runSpan
	noted    bool // of pauses: that the database has failed this run
	allFail  bool // what they said then
}

// newRun returns a run of the call that c is the first of.
func newRun(w *Workers, s *slot, c *ClaimedJob, spec *job.Spec) *run {
	r := &run{workers: w, slot: s, claim: c, spec: spec, err: errGoexit, reports: reports{claim: c}}
	if spec.HandleBatch == nil {
		r.record = c.handlerRecord()
		return r
	}
	r.records = make([]*job.Record, 0, c.size())
	for one := range c.call() {
		r.records = append(r.records, one.handlerRecord())
	}
	return r
}

// errOf is what a job of the run ends with: what was said of it, if that counts still, and else what
// the call ends with.
func (r *run) errOf(c *ClaimedJob) error {
	err := r.err
	if r.ends != nil {
		said, own := r.ends.Of(c.Record.ID)
		rolledBack := r.spec.InTx && !r.inTx
		switch {
		case said && own == nil && !rolledBack:
			return nil
		case own != nil:
			err = classify(own, r.failed)
		}
	}
	if r.outage && isSuspicion(err) {
		err = errors.Join(errUnavailable, err)
	}
	return err
}

// listDone lists the run's jobs that end well, if its transaction is committed.
func (r *run) listDone() []*ClaimedJob {
	done := make([]*ClaimedJob, 0, r.claim.size())
	for c := range r.claim.call() {
		if r.ends != nil {
			if _, own := r.ends.Of(c.Record.ID); own != nil {
				continue
			}
		}
		done = append(done, c)
	}
	return done
}

// callHandler calls the handler and turns a panic into an error.
func (r *run) callHandler(ctx context.Context) {
	defer func() {
		if v := recover(); v != nil {
			r.err = job.ReadPanic(v, debug.Stack())
		}
	}()
	if readable, err := r.openPayloads(ctx); !readable {
		r.err = err
		return
	}
	if r.spec.InTx {
		r.inTx, r.err = r.callUntilSerial(ctx)
		r.outage = r.mayBeOutage() && ledgerFails(ctx, r.claim)
		return
	}
	r.err = r.handleJob(ctx)
}

// mayBeOutage tells whether any of the run's jobs ends with what its database may be to blame for.
func (r *run) mayBeOutage() bool {
	for c := range r.claim.call() {
		if isSuspicion(r.errOf(c)) {
			return true
		}
	}
	return false
}

// callUntilSerial is callInTx, a few times if the transaction conflicts with others.
func (r *run) callUntilSerial(ctx context.Context) (finished bool, err error) {
	r.memory = &r.workers.memory
	for tries := 1; ; tries++ {
		finished, err = r.callInTx(ctx)
		if errors.Is(err, errTypesChanged) { // only once, as now all statements are described first
			r.memory = nil
			finished, err = r.callInTx(ctx)
		}
		if !errors.Is(err, ErrConflict) || !r.mayRetry(err) {
			return finished, err
		}
		r.workers.metrics.conflicts.WithLabelValues(r.claim.Tenant.Pool, r.claim.Record.Kind).Inc()
		if tries == mostTries {
			r.tellPutOff(ctx, err)
			return finished, err
		}
		select {
		case <-ctx.Done():
			return finished, err
		case <-time.After(conflictPolicy.Wait(tries)): // those that met shall not meet again
		}
	}
}

// mayRetry tells whether an error is one after which a job is run again, unless the handler says
// otherwise.
func (r *run) mayRetry(err error) bool {
	return job.Decide(err, 1, math.MaxInt, r.workers.retry).State == job.Retrying
}

// handleJob calls the handler and reads its error. What goes on from here calls none of the
// handler's methods any more. Those that block are a handler that does not return: its
// deadline passes, and another worker stands in for this one.
func (r *run) handleJob(ctx context.Context) error {
	if err := r.handle(ctx); err != nil {
		return job.ReadError(err)
	}
	return nil
}

func (r *run) handle(ctx context.Context) error {
	r.reports.open()
	defer r.reports.close()
	if r.spec.HandleBatch == nil {
		return r.spec.Handle(ctx, r.record)
	}
	r.endUnopened() // of this try
	defer r.ends.Close()
	return r.spec.HandleBatch(ctx, r.records, r.ends)
}

// errUnopened is returned when a job's arguments cannot be made readable now. The job is not to blame: it
// is deferred, and no attempt is charged.
var errUnopened = errors.New("the arguments cannot be read now")

// openPayloads makes the arguments of the run's jobs readable, before a transaction begins: who has the
// keys may take long. readable: those of some are. err is what a run that is no batch's ends with.
func (r *run) openPayloads(ctx context.Context) (readable bool, err error) {
	open := func(rec *job.Record) error {
		err := r.workers.open(ctx, rec)
		if err == nil {
			return nil
		}
		if err = job.ReadError(err); r.mayRetry(err) {
			err = errors.Join(errUnopened, err)
		}
		return err
	}
	switch {
	case r.workers.open == nil:
		return true, nil
	case r.spec.HandleBatch == nil:
		err := open(r.record)
		return err == nil, err
	}
	all := r.records
	r.records, r.unopened = make([]*job.Record, 0, len(all)), map[job.ID]error{}
	for _, rec := range all {
		if err := open(rec); err != nil {
			r.unopened[rec.ID] = err
			continue
		}
		r.records = append(r.records, rec)
	}
	r.endUnopened()
	return len(r.records) > 0, nil
}

// endUnopened says of the jobs of a batch whose arguments cannot be read why they end.
func (r *run) endUnopened() {
	r.ends = &job.Ends{}
	for id, err := range r.unopened {
		r.ends.Set(id, err)
	}
}

// reportEnd tells the owner how the run ended.
func (r *run) reportEnd(cause error, took time.Duration) {
	defer r.traced.end()
	if errors.Is(r.err, errLate) {
		for c := range r.claim.call() {
			c.Owner.Return(c)
		}
		return
	}
	if r.inTx {
		r.workers.pauses.forget(r.claim.Owner)
	}
	r.took = r.claim.share(took)
	r.claim.metrics.seconds.Observe(took.Seconds())
	for c := range r.claim.call() {
		r.reportJob(c, cause)
	}
}

// reportJob tells the owner how one of the run's jobs ended.
func (r *run) reportJob(c *ClaimedJob, cause error) {
	err := r.errOf(c)
	if r.inTx && err == nil {
		r.workers.metrics.countEnd(c, &job.Outcome{State: job.Done}, r.took)
		r.noteEnd(c, job.Outcome{State: job.Done})
		c.Owner.FinishedInTx(c)
		return
	}
	if c.cancelled { // also if others of its call go on
		cause = job.ErrCancelled
	}
	o := r.outcome(c, err, cause)
	r.workers.metrics.countEnd(c, &o, r.took)
	r.noteEnd(c, o)
	c.Owner.Finish(c, o)
}

// noteEnd tells the log and the trace how one of the run's jobs ended.
func (r *run) noteEnd(c *ClaimedJob, o job.Outcome) {
	r.traced.noteOutcome(c.Record.ID, o)
	r.workers.ends.noteEnd(r, c, o)
}

// outcome is what the handler's error about a job means, given what its context was ended by.
func (r *run) outcome(c *ClaimedJob, err, cause error) job.Outcome {
	if err != nil {
		switch {
		case errors.Is(cause, job.ErrCancelled):
			return job.Outcome{State: job.Cancelled, Err: err}
		case errors.Is(cause, job.ErrStopping), errors.Is(cause, errAbandoned), errors.Is(err, errOthersLost):
			return job.Outcome{State: job.Returned, Err: err}
		case errors.Is(err, errUnavailable) && r.mayRetry(err):
			return r.deferJob(c, err)
		case errors.Is(err, errUnopened):
			return r.deferFor(c, c.Record.ID, "jobs are deferred: their arguments cannot be decrypted now; they are tried again, and no attempt is charged", pausePolicy.Longest, err)
		case errors.Is(err, errNoPlace):
			return r.deferFor(c, *c.Tenant, "jobs are deferred: their tenant's schema or role is not what its transactions need; they are tried again, and no attempt is charged", pausePolicy.Longest, err)
		case errors.Is(err, ErrConflict) && r.mayRetry(err):
			if wait, ok := r.workers.conflicts.next(c.Record.ID); ok {
				if r.workers.deferrals.mayLog() {
					r.logDeferred(c, "jobs are deferred: their transactions have lost to others several times; they are tried again, and no attempt is charged", wait, err)
				}
				return job.Outcome{State: job.Snoozed, Delay: wait, Err: err}
			}
		case errors.Is(cause, job.ErrTimeout) && !errors.Is(err, job.ErrTimeout):
			err = fmt.Errorf("%w: %w", cause, err)
		}
	}
	policy, attempts := r.workers.retryOf(c, r.spec)
	return job.Decide(err, c.Record.Attempt, attempts, policy)
}

// runContext is what a run sees: its tenant, its job, its deadline, which is in timeout
// unless its kind or the job says otherwise, and the causes that can end it early. It is
// made of one cancelable context and one timer; the standard WithTimeoutCause on top of
// WithCancelCause would be another microsecond a job.
func runContext(r *run, timeout time.Duration) (context.Context, context.CancelCauseFunc) {
	c, spec := r.claim, r.spec
	whose := "the node's, execution.timeout"
	if spec.Timeout > 0 {
		timeout, whose = spec.Timeout, "its kind's"
	}
	if c.Record.Timeout > 0 {
		timeout, whose = c.Record.Timeout, "its own"
	}
	ctx, cancel := context.WithCancelCause(c.Owner.Context())
	timer := time.AfterFunc(timeout, func() { cancel(fmt.Errorf("%w of %v, %s", job.ErrTimeout, timeout, whose)) })
	ctx = handlerContext{ctx, time.Now().Add(timeout), r}
	ctx = tenancy.NewContext(ctx, *c.Tenant)
	ctx = job.NewContext(ctx, r.record)
	return ctx, func(cause error) {
		timer.Stop()
		cancel(cause)
	}
}

// handlerContext tells when a timer will cancel the context in it, who takes in what the run says, and by which client
// its handler enqueues.
type handlerContext struct {
	context.Context
	deadline time.Time
	run      *run
}

// ClientKey is the key of the client in a handler's context; see [Workers.HandWith].
type ClientKey struct{}

func (c handlerContext) Deadline() (time.Time, bool) { return c.deadline, true }

func (c handlerContext) Value(key any) any {
	switch key.(type) {
	case job.ReportersKey:
		return &c.run.reports
	case ClientKey:
		return c.run.workers.client
	}
	return c.Context.Value(key)
}
