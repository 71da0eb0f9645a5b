package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/wait"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/job/encryption"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Acquire locks up to r.Max jobs of a topic, in all pools; each tenant in turn, and of a tenant the
// highest priority first, then in the order of enqueuing. There are fewer, but one at least, if their payloads come
// to 16 MiB in a pool. Nothing is acquired while a pool or a tenant
// is frozen, or a tenant moves, nor what would exceed a tenant's max_running, for which external jobs
// are counted by themselves. With r.Wait it looks again, every half second at least, until there is
// a job; those that wait in this process for the same take turns. No job and no error: there is none. The error, if no
// job was acquired, is that of pools that did not answer. What a pool still acquires when ctx has ended, or
// other pools had enough, is released, uncharged. Arguments that nobody can decrypt make their job a
// dead letter, and another one is acquired in its place.
func (w *Workers) Acquire(ctx context.Context, r AcquireRequest) ([]Job, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	jobs, err := w.acquireOnce(ctx, &r)
	if len(jobs) > 0 || r.Wait == 0 {
		return jobs, err
	}
	waiting, cancel := context.WithTimeout(ctx, r.Wait)
	defer cancel()
	take, leave := w.queueFor(&r)
	defer leave()
	if !take(waiting) {
		return nil, waitError(ctx, err)
	}
	const firstPause, lastPause = 20 * time.Millisecond, 500 * time.Millisecond
	for next := firstPause; wait.For(waiting, next) == nil; next = min(2*next, lastPause) {
		if jobs, err = w.acquireOnce(ctx, &r); len(jobs) > 0 {
			return jobs, nil
		}
	}
	return nil, waitError(ctx, err)
}

// waitError is what a caller is told who has waited in vain: that its context has ended, or what was
// seen last.
func waitError(ctx context.Context, last error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return last
}

// turn is whose turn it is to look for jobs, of those that wait for the same.
type turn struct {
	token   chan struct{} // in it: somebody looks
	waiting int           // guarded by Workers.mu
}

// queueFor has its caller wait with the others that wait for the same. take returns when it is his turn;
// false: ctx has ended. leave ends that, and has to be called.
func (w *Workers) queueFor(r *AcquireRequest) (take func(context.Context) bool, leave func()) {
	key := r.Topic
	for _, t := range r.Tenants {
		key += "\x00" + string(t)
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	t := w.turns[key]
	if t == nil {
		t = &turn{token: make(chan struct{}, 1)}
		w.turns[key] = t
	}
	t.waiting++
	mine := false
	take = func(ctx context.Context) bool {
		select {
		case t.token <- struct{}{}:
			mine = true
		case <-ctx.Done():
		}
		return mine
	}
	return take, func() {
		if mine {
			<-t.token
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		if t.waiting--; t.waiting == 0 {
			delete(w.turns, key)
		}
	}
}

// poolPatience is how long an acquire waits for one pool before it asks the next one, too.
const poolPatience = process.AnswerWithin / 2

// acquired is what a pool answered.
type acquired struct {
	pool *routing.Pool
	jobs []Job
	err  error
}

// acquireOnce asks pool by pool, beginning with another one each time. One that does not answer
// holds up nobody for long: the next one is asked, and it is waited for when none had jobs.
func (w *Workers) acquireOnce(ctx context.Context, r *AcquireRequest) (jobs []Job, _ error) {
	answers, left := make(chan acquired), make(chan struct{})
	defer close(left)
	pools, errs := w.poolsInTurn()
	asked := 0
	await := func(patience <-chan time.Time) (on bool) {
		select {
		case a := <-answers:
			asked--
			if a.err != nil {
				errs = append(errs, routing.NamePool(a.pool.Name, a.err))
			}
			fits := min(len(a.jobs), r.Max-len(jobs)) // more may have come of two pools that were asked for as many
			jobs = append(jobs, a.jobs[:fits]...)
			w.releaseLater(a.pool, a.jobs[fits:])
		case <-patience:
		case <-ctx.Done():
			for _, p := range pools {
				w.releaseLater(p, slices.DeleteFunc(slices.Clone(jobs), func(j Job) bool { return j.Pool != p.Name }))
			}
			jobs, errs = nil, []error{context.Cause(ctx)}
			return false
		}
		return true
	}
	for _, p := range pools {
		w.ask(ctx, p, r, r.Max-len(jobs), answers, left)
		asked++
		if !await(time.After(poolPatience)) || len(jobs) == r.Max {
			break
		}
	}
	for asked > 0 && len(jobs) == 0 && await(nil) {
	}
	if len(jobs) > 0 {
		return jobs, nil
	}
	return nil, errors.Join(errs...)
}

// poolsInTurn returns the pools in the order in which they are to be asked, but, unless all are, for those
// of which another acquire awaits an answer too long; they are the errors.
func (w *Workers) poolsInTurn() (pools []*routing.Pool, errs []error) {
	all := w.proc.Router.Pools()
	w.mu.Lock()
	defer w.mu.Unlock()
	w.first++
	for i := range all {
		p := all[(w.first+i)%len(all)]
		if w.late[p] > 0 {
			errs = append(errs, routing.NamePool(p.Name, fmt.Errorf("it has not answered another call for %v", poolPatience)))
		} else {
			pools = append(pools, p)
		}
	}
	if len(pools) == 0 {
		return all, nil
	}
	return pools, errs
}

// ask acquires jobs in a pool and answers, or releases them if nobody waits for the answer any more.
func (w *Workers) ask(ctx context.Context, p *routing.Pool, r *AcquireRequest, max int, answers chan<- acquired, left <-chan struct{}) {
	w.proc.Asking.Go(func() {
		late := time.AfterFunc(poolPatience, func() { w.noteLate(p, 1) })
		jobs, err := w.acquireIn(ctx, p, r, max)
		if !late.Stop() {
			w.noteLate(p, -1)
		}
		select {
		case answers <- acquired{p, jobs, err}:
		case <-left:
			w.releaseLater(p, jobs)
		}
	})
}

func (w *Workers) noteLate(p *routing.Pool, n int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.late[p] += n; w.late[p] == 0 {
		delete(w.late, p)
	}
}

// releaseLater releases jobs that nobody is told of. Where that fails, their locks expire.
func (w *Workers) releaseLater(p *routing.Pool, jobs []Job) {
	if len(jobs) == 0 {
		return
	}
	locks := make([]store.ExternalLock, len(jobs))
	for i, j := range jobs {
		locks[i] = j.lock()
	}
	w.proc.Asking.Go(func() {
		ctx, cancel := context.WithTimeout(context.Background(), process.AnswerWithin)
		defer cancel()
		_, _ = store.ReleaseExternal(ctx, p.Jobs(), locks)
	})
}

// acquireIn looks at the tenants behind the one that was looked at last and then, unless there were
// enough jobs, at those from the first one on.
func (w *Workers) acquireIn(ctx context.Context, p *routing.Pool, r *AcquireRequest, max int) (jobs []Job, err error) {
	if err := p.Outage(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
	defer cancel()
	conn, err := p.Jobs().Acquire(ctx)
	if err != nil {
		return nil, err
	}
	defer conn.Release()
	// A call that is cut short may have locked jobs all the same, of which nobody would know.
	whole, cancel := context.WithTimeout(context.WithoutCancel(ctx), process.AnswerWithin)
	defer cancel()
	tour := w.beginTour(p, r, max)
	defer w.endTour(p, r, tour)
	var closed error // why arguments could not be read that can be another time
	ask := store.ExternalRequest{Topic: r.Topic, Worker: r.Worker, LockFor: r.LockFor, Max: max, Bytes: maxAcquireBytes}
	for _, t := range r.Tenants {
		ask.Tenants = append(ask.Tenants, string(t))
	}
	for more := true; more && ctx.Err() == nil; {
		ask.After, ask.Look = tour.after, tour.look
		got, looked, err := store.AcquireExternal(whole, conn, &ask)
		if err != nil {
			return jobs, err
		}
		gone := 0 // as nobody can read them
		for i := range got {
			e, err := w.openJob(whole, p, conn, r, &got[i])
			if isUnreadable(err) {
				gone++
				continue
			}
			if err == nil {
				jobs = append(jobs, e)
			} else {
				closed = err // it is released, and would be acquired again
			}
			ask.Max--
			ask.Bytes -= len(got[i].Record.Payload) + len(got[i].Record.Meta)
		}
		more = (gone > 0 || tour.goOn(got, looked)) && ask.Max > 0 && ask.Bytes >= job.MaxPayload
	}
	if len(jobs) == 0 {
		return nil, closed
	}
	return jobs, nil
}

// tour is a walk through the tenants of a pool that have jobs of a topic, around once.
type tour struct {
	first  string  // behind which it began
	after  *string // behind which it goes on; nil: tenants are chosen by chance
	look   int     // how many tenants are looked at
	around bool    // it has begun at the first tenant
}

// beginTour begins behind the tenant that the last one came to. If that is not known, or tenants are
// given, they are chosen by chance, so that no process after the other begins with the same ones.
func (w *Workers) beginTour(p *routing.Pool, r *AcquireRequest, max int) *tour {
	const unknown = 1000 // tenants among which they are chosen
	w.mu.Lock()
	after, known := w.after[[2]string{p.Name, r.Topic}]
	w.mu.Unlock()
	if !known || len(r.Tenants) > 0 {
		return &tour{look: unknown, around: true}
	}
	return &tour{first: after, after: &after, look: max + 10, around: after == ""}
}

// goOn says whether there may be more jobs where looked leads to.
func (t *tour) goOn(got []store.External, looked string) bool {
	const most = 1000
	if t.after == nil && len(got) > 0 {
		looked = got[0].Record.Tenant
		t.after = &looked
		return false
	}
	t.look = min(4*t.look, most)
	t.after = &looked
	switch {
	case looked == "" && t.around:
		return false
	case looked == "":
		t.around = true
		return true
	}
	return !t.around || t.first == "" || looked < t.first
}

// endTour notes where the next one is to begin.
func (w *Workers) endTour(p *routing.Pool, r *AcquireRequest, t *tour) {
	const most = 10_000 // topics: those who ask may name any
	if t.after == nil || len(r.Tenants) > 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	if len(w.after) >= most {
		clear(w.after)
	}
	w.after[[2]string{p.Name, r.Topic}] = *t.after
}

func isUnreadable(err error) bool {
	return errors.Is(err, encryption.ErrNoKey) || errors.Is(err, encryption.ErrUnreadable)
}

// openJob makes a job's arguments readable. One whose arguments nobody can read is a dead letter
// then; where the keys cannot be had now, it is released, and no attempt is charged for it.
func (w *Workers) openJob(ctx context.Context, p *routing.Pool, db store.DB, r *AcquireRequest, e *store.External) (Job, error) {
	rec := &e.Record
	if err := w.proc.Cipher.OpenRecord(ctx, rec); err != nil {
		lock := store.ExternalLock{Job: rec.ID, Turn: e.Turn, Worker: r.Worker}
		if isUnreadable(err) { // what cannot be written here waits until its lock expires
			failure := store.ExternalFailure{ExternalLock: lock, Error: cleanError(err.Error()), Retries: new(int)}
			_, _, _ = store.FailExternal(ctx, db, []store.ExternalFailure{failure}, w.proc.Retry)
		} else {
			_, _ = store.ReleaseExternal(ctx, db, []store.ExternalLock{lock})
		}
		return Job{}, fmt.Errorf("read the arguments of job %s: %w", rec.ID, err)
	}
	return Job{
		Lock: Lock{Job: rec.ID, Turn: e.Turn, Worker: r.Worker}, Until: e.Until, Pool: p.Name,
		Tenant: tenancy.ID(rec.Tenant), Topic: rec.Kind, Queue: rec.Queue, Priority: int(rec.Priority),
		Attempt: rec.Attempt, MaxAttempts: cmp.Or(rec.MaxAttempts, w.proc.Retry.Attempts()), Losses: rec.Losses, CreatedAt: rec.CreatedAt,
		UniqueKey: rec.UniqueKey, CorrelationID: rec.CorrelationID, Payload: rec.Payload, Meta: rec.Meta,
	}, nil
}
