package job

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"
)

// DefaultMaxBatch is how many jobs one call of a batch handler gets at most if [MaxBatch] does
// not say otherwise.
const DefaultMaxBatch = 100

// Limits of what [MaxBatch] and [BatchWait] may say.
const (
	mostBatched    = 1000
	longestGather  = 10 * time.Second
	shortestGather = time.Millisecond
)

// Batch is what a batch handler receives: jobs of one tenant and one kind.
type Batch[A Args] struct {
	Jobs []*Job[A]

	ends *Ends
}

// End says how one of the jobs ends, whatever becomes of the others: err is what a handler of
// that job alone would return. Of several for one job the last counts, and none does once the
// handler has returned. A job that nothing was said of ends with what the handler returns. It panics
// when j is not one of Jobs. It is safe for concurrent use.
func (b *Batch[A]) End(j *Job[A], err error) {
	if !slices.Contains(b.Jobs, j) {
		panic(fmt.Sprintf("job.Batch.End: job %s is not in the batch: pass one of its Jobs", j.ID))
	}
	b.ends.Set(j.ID, err)
}

// BatchFunc is a batch handler with its jobs' arguments still encoded: what the workers call.
type BatchFunc func(ctx context.Context, records []*Record, ends *Ends) error

// Ends is how the jobs of one call end, as far as that was said of each. The zero value is
// ready. It is safe for concurrent use.
type Ends struct {
	mu     sync.Mutex
	errors map[ID]error // guarded by mu; of those that something was said of
	closed bool         // guarded by mu
}

// Set says how a job ends; an error is read at once, see [ReadError].
func (e *Ends) Set(id ID, err error) {
	if err != nil {
		err = ReadError(err)
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.closed {
		return
	}
	if e.errors == nil {
		e.errors = map[ID]error{}
	}
	e.errors[id] = err
}

// Of is what was said of a job.
func (e *Ends) Of(id ID) (said bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	err, said = e.errors[id]
	return said, err
}

// Close has what is said from now on count for nothing.
func (e *Ends) Close() {
	e.mu.Lock()
	e.closed = true
	e.mu.Unlock()
}

// MaxBatch bounds how many jobs one call of a batch handler gets, 1 to 1000. Default:
// [DefaultMaxBatch].
func MaxBatch(n int) Option {
	if n < 1 || n > mostBatched {
		panic(fmt.Sprintf("job.MaxBatch(%d): 1 to %d are allowed", n, mostBatched))
	}
	return func(s *Spec) { s.MaxBatch = n }
}

// BatchWait has a claimed job wait so long for others that could share its call, 1 ms to 10 s,
// unless there are as many as [MaxBatch] allows before. Meanwhile they keep no worker from other jobs.
// Default: a call gets what waits on its node when a worker is free.
func BatchWait(d time.Duration) Option {
	if d < shortestGather || d > longestGather {
		panic(fmt.Sprintf("job.BatchWait(%v): %v to %v are allowed", d, shortestGather, longestGather))
	}
	return func(s *Spec) { s.BatchWait = d }
}

// HandleBatch registers fn for the kind of A, to be called with several jobs of one tenant at a
// time: those that wait on its node, at most [MaxBatch]. A call has one worker, one context
// and one timeout. When fn returns nil, the jobs are done; when it returns an error, all of them have
// failed with it; [Batch.End] says otherwise of single ones. As with [Handle], a job may be started
// again after its node has died.
//
// A job that has failed shares its next calls with a tenth as many each time, and the
// last of its attempts with none. So no job becomes a dead letter by an error that another one's
// call returned, unless that is of [Discard]. A job that has lost its node runs alone,
// too, and jobs with timeouts of their own share calls with their like.
//
// When one of several jobs is cancelled the call goes on, and the job counts as cancelled if it ends with
// an error. When all are, the call's context is cancelled.
//
// Middleware is called for each job, one within the other, so it must not exclude other jobs of
// the batch while it calls the next, as with a mutex per tenant: what it calls next returns
// how its own job ended.
func HandleBatch[A Args](r *Registry, fn func(ctx context.Context, b *Batch[A]) error, opts ...Option) {
	if fn == nil {
		panic("job.HandleBatch: nil handler")
	}
	r.Add(Spec{Kind: KindOf[A](), HandleBatch: BatchOf(fn)}, opts...)
}

// BatchOf decodes what a batch handler is called with. Jobs that cannot be decoded fail,
// and are not passed on.
func BatchOf[A Args](fn func(ctx context.Context, b *Batch[A]) error) BatchFunc {
	return func(ctx context.Context, records []*Record, ends *Ends) error {
		b := &Batch[A]{Jobs: make([]*Job[A], 0, len(records)), ends: ends}
		for _, rec := range records {
			j, err := Decode[A](rec)
			if err != nil {
				ends.Set(rec.ID, err)
				continue
			}
			b.Jobs = append(b.Jobs, j)
		}
		if len(b.Jobs) == 0 {
			return nil
		}
		return fn(ctx, b)
	}
}

type batchStep struct{}

var (
	errNoStep  = errors.New("the context belongs to no call of a batch: middleware must pass on the context it was given, or one made from it")
	errUnended = errors.New("the call of the batch did not come to its end")
)

// callNext is what the middleware of a batch's jobs is around; see withMiddleware.
func callNext(ctx context.Context, r *Record) error {
	next, ok := ctx.Value(batchStep{}).(HandlerFunc)
	if !ok {
		return Discard(errNoStep)
	}
	return next(ctx, r)
}

// withMiddleware calls fn within the middleware of each of its jobs, around being that of one.
// Jobs that it does not pass on end as it says, and fn is not called with them.
func withMiddleware(around HandlerFunc, fn BatchFunc) BatchFunc {
	return func(ctx context.Context, records []*Record, ends *Ends) error {
		whole := errUnended // until fn has returned
		passed := make([]*Record, 0, len(records))
		var call func(ctx context.Context, left []*Record)
		call = func(ctx context.Context, left []*Record) {
			if len(left) == 0 {
				if len(passed) == 0 {
					whole = nil
					return
				}
				whole = tellPanics(func(ctx context.Context, _ *Record) error { return fn(ctx, passed, ends) })(NewContext(ctx, nil), nil)
				return
			}
			rec := left[0]
			var said error
			went := false
			step := HandlerFunc(func(ctx context.Context, _ *Record) error {
				if went { // a batch is called once, however often middleware of one of its jobs tries
					return said
				}
				went = true
				passed = append(passed, rec)
				call(ctx, left[1:])
				if ended, own := ends.Of(rec.ID); ended {
					said = own
				} else {
					said = whole
				}
				return said
			})
			err := around(context.WithValue(NewContext(ctx, rec), batchStep{}, step), rec)
			if same := false; !went || guard(func() { same = err == said }) != nil || !same {
				ends.Set(rec.ID, err)
			}
			if !went {
				call(ctx, left[1:])
			}
		}
		call(ctx, records)
		return whole
	}
}
