package jobtest

import (
	"cmp"
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/execution"
	"github.com/tenurehq/tenure/internal/lease"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Result is one run of a job, with its end as it stands in the ledger: State, Err,
// Stack and, when it is to run again, Delay. Attempt is 1 for the first run.
//
// Err has what the handler returned in its chain, so compare it by [errors.Is], as
// require.ErrorIs(t, res.Err, ErrNoInvoice) does. Its text begins with "discard: " or "cancel: "
// where the handler said so.
//
// Report is what the run said of itself, by [job.SetProgress], [job.SetOutput] and [job.Log].
type Result struct {
	job.Record
	job.Outcome
	Report job.Report
}

// String says it in a line.
func (r Result) String() string {
	s := fmt.Sprintf("%s %s of tenant %s, attempt %d: %s", r.Kind, r.Payload, r.Tenant, r.Attempt, r.State)
	if r.State == job.Retrying || r.State == job.Snoozed {
		s += " in " + r.Delay.String()
	}
	if r.Err != nil {
		s += ": " + r.Err.Error()
	}
	return s
}

// Runs are runs in the order in which they took place.
type Runs []Result

// Count is how many of them ended so.
func (r Runs) Count(s job.State) (n int) {
	for i := range r {
		if r[i].State == s {
			n++
		}
	}
	return n
}

// String has a line for each.
func (r Runs) String() string {
	lines := make([]string, len(r))
	for i := range r {
		lines[i] = r[i].String()
	}
	return strings.Join(lines, "\n")
}

// Run enqueues a job for the tenant and runs it, it alone, once: through its
// claim, the tenant's set-up, middleware and the handler, to its outcome in the
// ledger. A delay before the next run is in the result and is not waited for. Jobs
// that the handler enqueues wait for [Env.Drain].
func (c *Tenant) Run(args job.Args, opts ...tenure.Option) Result {
	c.t.Helper()
	e := c.env
	e.begin(c.t)
	defer e.mu.Unlock()
	added, err := e.Client().Enqueue(c, args, opts...)
	if err != nil {
		c.t.Fatalf("jobtest: %v", err)
	}
	if added.Duplicate {
		c.t.Fatalf("jobtest: run %s: nothing was enqueued, as job %s has the same unique key", args.Kind(), added.ID)
	}
	s, _, err := e.Client().Operator().Jobs().Get(c, added.ID)
	if err != nil {
		c.t.Fatalf("jobtest: %v", err)
	}
	if s.State != "waiting" {
		c.t.Fatalf("jobtest: run %s: it is %s for later; enqueue it with the client, then call Advance and Drain", args.Kind(), s.State)
	}
	i := slices.IndexFunc(e.pools, func(p *pool) bool { return p.Name == s.Pool })
	lane := store.Lane{Queue: s.Queue, Tenant: s.Tenant, Priority: s.Priority}
	res, err := e.run(c, e.pools[i], theOne(lane, added.ID))
	switch {
	case err != nil:
		c.t.Fatalf("jobtest: run %s: %v", args.Kind(), err)
	case len(res) == 0:
		c.t.Fatalf("jobtest: run %s: it was gone before it could start; is there a handler for its kind?", args.Kind())
	}
	return res[0]
}

// maxRuns is where Drain gives up on jobs that enqueue one another without end.
const maxRuns = 10_000

// Drain runs every job that is due when it is called, every job that these enqueue to be run at
// once, and every job that awaited one of them ([tenure.After], a batch), until none waits. It runs them one after another:
// pool by pool, and there those of higher priority first and else in the order in
// which they were enqueued. Whatever is to happen after a delay, such as a retry, which
// waits [job.MinDelay] at least, is left for a Drain after [Env.Advance]. Jobs of kinds
// without a handler are left as well. A batch handler is called with what waits in the
// queue of the first job, and does not wait for more.
func (e *Env) Drain(t testing.TB) Runs {
	t.Helper()
	e.begin(t)
	defer e.mu.Unlock()
	for _, p := range e.pools {
		if err := p.fire(t.Context()); err != nil {
			t.Fatalf("jobtest: %v", err)
		}
	}
	var runs Runs
	for more := true; more; { // a handler may enqueue into a pool that was done
		before := len(runs)
		settled := false
		for _, p := range e.pools {
			var err error
			if runs, err = e.drain(t.Context(), p, runs); err != nil {
				t.Fatalf("jobtest: drain: %v", err)
			}
			ended, err := p.settle(t.Context())
			if err != nil {
				t.Fatalf("jobtest: drain: %v", err)
			}
			settled = settled || ended
		}
		more = settled || len(runs) > before
	}
	return runs
}

// drain runs what waits in one pool.
func (e *Env) drain(ctx context.Context, p *pool, runs Runs) (Runs, error) {
	for {
		res, err := e.run(ctx, p, first)
		if err != nil || len(res) == 0 {
			return runs, err
		}
		if runs = append(runs, res...); len(runs) >= maxRuns {
			return runs, fmt.Errorf("%d jobs ran and some still wait: do they enqueue one another without end? The last ones were %s", maxRuns, kindsOf(runs[maxRuns-100:]))
		}
	}
}

// kindsOf names the kinds among runs.
func kindsOf(runs Runs) string {
	kinds := map[string]bool{}
	for i := range runs {
		kinds[runs[i].Kind] = true
	}
	return strings.Join(slices.Sorted(maps.Keys(kinds)), ", ")
}

// Advance makes delays, retries and snoozes that stand in the ledger due, and the periods of unique keys end, as if d
// had passed. Schedules stay as they are: run one with operate.Schedules.Run. Nothing runs until [Env.Drain]. Handlers and PostgreSQL see the time
// as it is, and what is enqueued later counts from that: to follow a chain of
// delays, take turns with Drain.
func (e *Env) Advance(t testing.TB, d time.Duration) {
	t.Helper()
	if d < 0 {
		t.Fatalf("jobtest: Advance(%v): time does not go back", d)
	}
	e.begin(t)
	defer e.mu.Unlock()
	for _, p := range e.pools {
		if err := p.advance(t.Context(), d); err != nil {
			t.Fatalf("jobtest: %v", err)
		}
	}
}

// begin takes mu, or fails t if the jobs are not ours to run.
func (e *Env) begin(t testing.TB) {
	t.Helper()
	e.mu.Lock()
	if e.nodes {
		e.mu.Unlock()
		t.Fatalf("jobtest: nodes run the jobs of this env (Env.Nodes): use Nodes.Wait, or another env")
	}
}

// run claims the jobs that pick chooses, runs them and writes their outcomes; none: there
// is none. mu is held.
func (e *Env) run(ctx context.Context, p *pool, pick pickFunc) ([]Result, error) {
	c, err := p.claim(ctx, pick)
	if err != nil || c == nil {
		return nil, err
	}
	one := &c.records[0]
	tenant, home, err := e.router.Resolve(ctx, tenancy.ID(one.Tenant))
	if err != nil {
		return nil, err
	}
	if home != p.Pool {
		return nil, fmt.Errorf("job %s stands in pool %s, but its tenant %q lives in %s", one.ID, p.Name, tenant.ID, home.Name)
	}
	o := &owner{pool: p, keep: e.cfg.Execution.Retention > 0, ended: make(chan lease.Ended, len(c.records))}
	claims := make([]execution.ClaimedJob, len(c.records))
	for i, rec := range c.records {
		claims[i] = execution.ClaimedJob{ID: c.claim, Record: rec, Tenant: &tenant, Owner: o}
	}
	e.workers.TakeSlots(len(claims)) // all are free
	e.workers.Submit(o, claims)
	e.workers.PassOn()
	var results []Result
	var written []store.Finished
	var reports []store.Reported
	for range c.records {
		end, err := e.await(ctx, p, o, c.records)
		if err != nil {
			return nil, fmt.Errorf("wait for job %s (%s): %w", one.ID, one.Kind, err)
		}
		rec := &end.Claim.Record
		report, said := end.Claim.Reporter().Take()
		switch end.How {
		case lease.Unstarted:
			return nil, fmt.Errorf("job %s (%s) was not started", rec.ID, rec.Kind)
		case lease.Ran:
			written = append(written, store.Finished{Record: rec, Outcome: end.Outcome, Took: end.Took})
			if said {
				reports = append(reports, store.Reported{Record: rec, Age: end.Claim.Age(), Report: report})
			}
		}
		i := slices.IndexFunc(c.records, func(r job.Record) bool { return r.ID == rec.ID })
		results = append(results, Result{Record: c.records[i], Outcome: end.Outcome, Report: report})
	}
	if err := store.WriteReports(ctx, p.Jobs(), name, reports); err != nil {
		return nil, err
	}
	lost, err := store.Finish(ctx, p.Jobs(), store.Runner{Session: p.fence.Session, Node: name}, o.keep, written, []int64{c.claim})
	switch {
	case err != nil:
		return nil, err
	case lost > 0:
		return nil, fmt.Errorf("finish job %s (%s): %w", one.ID, one.Kind, job.ErrClaimLost)
	}
	return results, nil
}

// cancelPoll is how often a running job is looked at for an operate.Jobs.Cancel.
const cancelPoll = 20 * time.Millisecond

// await waits for the end of one of some jobs, and cancels those that somebody asks for.
func (e *Env) await(ctx context.Context, p *pool, o *owner, records []job.Record) (lease.Ended, error) {
	look := time.NewTicker(cancelPoll)
	defer look.Stop()
	for {
		select {
		case end := <-o.ended:
			return end, nil
		case <-ctx.Done():
			return lease.Ended{}, context.Cause(ctx)
		case <-look.C:
			asked, err := store.CancelRequests(ctx, p.Jobs(), p.fence.Session)
			if err != nil {
				return lease.Ended{}, err
			}
			for i := range records {
				if slices.Contains(asked, records[i].ID) {
					e.workers.Cancel(records[i].ID)
				}
			}
		}
	}
}

// owner is what one run belongs to.
type owner struct {
	pool  *pool
	keep  bool
	ended chan lease.Ended // a place for each job; written once for each, by a worker
}

var _ execution.Owner = (*owner)(nil)

// Context is no test's: the run outlives the call that waits for it, and what still runs when
// the test ends is cancelled by the workers' stop.
func (o *owner) Context() context.Context { return context.Background() }

// MayStart is true: nobody else could have taken the job.
func (o *owner) MayStart() bool { return true }

func (o *owner) Tenants() execution.Conns { return o.pool.Tenants() }

func (o *owner) FinishInTx(claims []*execution.ClaimedJob) string {
	return store.FinishInTx(lease.EndInTx(claims, name, o.keep))
}

func (o *owner) FinishError(err error) error { return store.TranslateFinish(err) }

func (o *owner) TryFinish(ctx context.Context, claims []*execution.ClaimedJob) error {
	return store.TryFinish(ctx, o.pool.Jobs(), claims[0].Record.Turn, execution.IDs(claims), name)
}

func (o *owner) FinishedInTx(c *execution.ClaimedJob) {
	o.ended <- lease.Ended{Claim: c, How: lease.RanInTx, Outcome: job.Outcome{State: job.Done}}
}

func (o *owner) Finish(c *execution.ClaimedJob, out job.Outcome) {
	o.ended <- lease.Ended{Claim: c, Outcome: out, Took: c.Age()}
}

func (o *owner) Return(c *execution.ClaimedJob) {
	o.ended <- lease.Ended{Claim: c, How: lease.Unstarted}
}

// Reported does nothing: what a run says is written with its end.
func (o *owner) Reported(*execution.ClaimedJob) {}

func (o *owner) CapacityAvailable() {}

// byAge orders jobs as they were enqueued.
func byAge(a, b operate.JobStatus) int {
	return cmp.Or(a.CreatedAt.Compare(b.CreatedAt), cmp.Compare(a.ID, b.ID))
}
