package tenure

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// JobStatus is a job as an operator sees it.
type JobStatus struct {
	Pool string
	store.Status
}

// JobFilter chooses jobs; empty fields choose all.
type JobFilter struct {
	// State is one of waiting, running, scheduled, retrying, suspended, dead, done, cancelled.
	State  string
	Tenant string
	Kind   string
	Queue  string
	Pool   string
	Limit  int // 0: 100
}

// States are the states a job can be listed by.
var States = []string{"waiting", "running", "scheduled", "retrying", "suspended", "dead", "done", "cancelled"}

// RunError is one failed run of a job.
type RunError = store.RunError

// Unfit says which pools are out of service although their databases answer, such as one
// that is not migrated or refuses its user, and why: somebody has to do something. They are
// tried again in the background. One that does not answer is not among them.
func (c *Client) Unfit() map[string]error {
	all := map[string]error{}
	for _, p := range c.router.Pools() {
		if err := p.Unfit(); err != nil {
			all[p.Name] = err
		}
	}
	return all
}

// perPool bounds what one pool may take of an answer that is gathered from all.
const perPool = 5 * time.Second

// Jobs lists jobs over all pools, newest first. When some pools do not answer, the
// others' jobs are returned together with an error.
func (c *Client) Jobs(ctx context.Context, f JobFilter) ([]JobStatus, error) {
	if f.State != "" && !slices.Contains(States, f.State) {
		return nil, fmt.Errorf("state %q is not one of %v", f.State, States)
	}
	if _, ok := c.router.Pool(f.Pool); f.Pool != "" && !ok {
		return nil, fmt.Errorf("pool %q: %w", f.Pool, ErrUnknownPool)
	}
	limit := cmp.Or(f.Limit, 100)
	out, err := gather(ctx, c.poolsNamed(f.Pool), func(ctx context.Context, p *routing.Pool) ([]JobStatus, error) {
		rows, err := store.List(ctx, p.Tenants(), store.Filter{State: f.State, Tenant: f.Tenant, Kind: f.Kind, Queue: f.Queue, Limit: limit})
		return withPool(p, rows), err
	})
	slices.SortStableFunc(out, func(a, b JobStatus) int { return b.CreatedAt.Compare(a.CreatedAt) })
	return out[:min(limit, len(out))], err
}

func withPool(p *routing.Pool, rows []store.Status) []JobStatus {
	out := make([]JobStatus, len(rows))
	for i, r := range rows {
		out[i] = JobStatus{Pool: p.Name, Status: r}
	}
	return out
}

// Job returns one job with its failed runs. ErrNotFound: no pool that answered has it.
func (c *Client) Job(ctx context.Context, id job.ID) (JobStatus, []RunError, error) {
	type found struct {
		job    JobStatus
		errors []RunError
	}
	out, err := gather(ctx, c.router.Pools(), func(ctx context.Context, p *routing.Pool) ([]found, error) {
		rows, err := store.List(ctx, p.Tenants(), store.Filter{ID: id, Limit: 1})
		if err != nil || len(rows) == 0 {
			return nil, err
		}
		errs, err := store.Errors(ctx, p.Tenants(), id)
		return []found{{JobStatus{p.Name, rows[0]}, errs}}, err
	})
	if len(out) > 0 {
		return out[0].job, out[0].errors, nil
	}
	return JobStatus{}, nil, errors.Join(fmt.Errorf("job %d: %w", id, ErrNotFound), err)
}

// Cancel ends an unfinished job. A waiting one is gone when Cancel returns; for a
// running one, which running reports, the handler's context is cancelled within a
// heartbeat of its node.
func (c *Client) Cancel(ctx context.Context, id job.ID) (running bool, err error) {
	err = c.onPoolOf(ctx, id, "cancel", func(ctx context.Context, p *routing.Pool) (err error) {
		running, err = store.Cancel(ctx, p.Tenants(), id, c.keep)
		return err
	})
	return running, err
}

// KeyTakenError is returned by [Client.Retry].
type KeyTakenError = store.KeyTakenError

// StateError is returned by [Client.Retry] for a job in whose state there is nothing to
// retry. It is ErrNotFound, too.
type StateError struct{ State string }

func (e *StateError) Error() string {
	switch e.State {
	case "waiting":
		return "it waits already, and runs as soon as its turn comes"
	case "running":
		return "it is running; cancel it first"
	case "done", "cancelled":
		return "it is " + e.State + ", and does not run again: enqueue another"
	}
	return "it is " + e.State + ", and was something else a moment ago: try again"
}

// Is makes it ErrNotFound: there is no such job to retry.
func (e *StateError) Is(target error) bool { return target == ErrNotFound }

// Retry makes a dead job, or one that waits for its time, run now. A dead one gets
// all its attempts again. KeyTakenError: an unfinished job has the dead one's unique
// key, and nothing was changed. StateError: the job is in another state.
func (c *Client) Retry(ctx context.Context, id job.ID) error {
	err := c.retry(ctx, id)
	if between := (*store.BetweenPoolsError)(nil); errors.Is(err, ErrNotFound) && !errors.As(err, &between) {
		if j, _, found := c.Job(ctx, id); found == nil {
			return fmt.Errorf("retry job %d: %w", id, &StateError{j.State})
		}
	}
	return err
}

func (c *Client) retry(ctx context.Context, id job.ID) error {
	return c.onPoolOf(ctx, id, "retry", func(ctx context.Context, p *routing.Pool) error {
		lane, err := store.Retry(ctx, p.Tenants(), id)
		if err == nil {
			c.bell.ring(hint{pool: p.Name, lanes: map[store.Lane]struct{}{lane: {}}})
		}
		return err
	})
}

// onPoolOf runs fn on the pool that has a job: most likely the one it was made in,
// else, if its tenant was moved, another.
func (c *Client) onPoolOf(ctx context.Context, id job.ID, what string, fn func(context.Context, *routing.Pool) error) error {
	pools := c.router.Pools()
	slices.SortStableFunc(pools, func(a, b *routing.Pool) int {
		return cmp.Compare(madeElsewhere(a, id), madeElsewhere(b, id))
	})
	var errs []error
	for _, p := range pools {
		poolCtx, cancel := context.WithTimeout(ctx, perPool)
		err := fn(poolCtx, p)
		cancel()
		switch taken := (*KeyTakenError)(nil); {
		case err == nil:
			return nil
		case p.Unfit() != nil: // not what was asked for is wrong, but another pool
			errs = append(errs, fmt.Errorf("not looked for everywhere: %v", p.Unfit()))
		case errors.As(err, &taken): // it was found, so no other pool has it
			return fmt.Errorf("%s job %d: %w", what, id, err)
		case !errors.Is(err, store.ErrNotFound):
			errs = append(errs, named(p.Name, err))
		}
	}
	return fmt.Errorf("%s job %d: %w", what, id, errors.Join(append(errs, ErrNotFound)...))
}

func madeElsewhere(p *routing.Pool, id job.ID) int {
	if n, err := p.Number(); err == nil && n == store.PoolOf(int64(id)) {
		return 0
	}
	return 1
}

// LockStatus is the acquire lock of a pool, as the database has it.
type LockStatus struct {
	Pool string
	store.Lock
	Err error // the pool did not answer
}

// LockStatuses reads every pool's acquire lock.
func (c *Client) LockStatuses(ctx context.Context) []LockStatus {
	out, _ := gather(ctx, c.router.Pools(), func(ctx context.Context, p *routing.Pool) ([]LockStatus, error) {
		l, err := store.ReadLock(ctx, p.Tenants())
		return []LockStatus{{Pool: p.Name, Lock: l, Err: err}}, nil
	})
	return out
}

// Freeze keeps all nodes from claiming jobs in a pool until [Client.Thaw]; what is
// running goes on, and jobs can be enqueued. When it returns nothing is claimed there
// any more. Doing it again changes nothing.
func (c *Client) Freeze(ctx context.Context, pool string) error { return c.freeze(ctx, pool, true) }

// Thaw ends a [Client.Freeze].
func (c *Client) Thaw(ctx context.Context, pool string) error { return c.freeze(ctx, pool, false) }

func (c *Client) freeze(ctx context.Context, pool string, frozen bool) error {
	p, ok := c.router.Pool(pool)
	if !ok {
		return fmt.Errorf("pool %q: %w", pool, ErrUnknownPool)
	}
	if err := store.Freeze(ctx, p.Jobs(), frozen); err != nil {
		return fmt.Errorf("pool %s: %w", pool, err)
	}
	return nil
}

// Claims lists the sessions that have claims in flight in a pool: none means that nothing
// runs there. One whose node has died keeps its own until the lock's holder takes them
// back, and a frozen pool has no holder.
func (c *Client) Claims(ctx context.Context, pool string) ([]SessionStatus, error) {
	p, ok := c.router.Pool(pool)
	if !ok {
		return nil, fmt.Errorf("pool %q: %w", pool, ErrUnknownPool)
	}
	sessions, err := sessionsOf(ctx, p)
	return slices.DeleteFunc(sessions, func(s SessionStatus) bool { return s.Claims == 0 }), err
}

// Elected names the node that this process' view of the cluster proposes as the
// holder of a pool's acquire lock; "" when it sees none.
func (c *Client) Elected(pool string) string {
	m, ok := c.bell.cluster.Elected(pool)
	if !ok {
		return ""
	}
	return m.Node
}

// SessionStatus is a node's session in a pool.
type SessionStatus struct {
	Pool string
	store.Session
}

// SessionStatuses lists the sessions in every pool: the nodes that work there, or
// did within a day.
func (c *Client) SessionStatuses(ctx context.Context) ([]SessionStatus, error) {
	return gather(ctx, c.router.Pools(), sessionsOf)
}

func sessionsOf(ctx context.Context, p *routing.Pool) ([]SessionStatus, error) {
	rows, err := store.Sessions(ctx, p.Tenants())
	out := make([]SessionStatus, len(rows))
	for i, r := range rows {
		out[i] = SessionStatus{Pool: p.Name, Session: r}
	}
	return out, err
}

// Counts is how many jobs stand where in a pool.
type Counts struct {
	Pool string
	store.Counts
}

// Count counts the jobs of every pool: a look at each row, for tools and tests.
func (c *Client) Count(ctx context.Context) ([]Counts, error) {
	return gather(ctx, c.router.Pools(), func(ctx context.Context, p *routing.Pool) ([]Counts, error) {
		n, err := store.Count(ctx, p.Tenants())
		return []Counts{{Pool: p.Name, Counts: n}}, err
	})
}

func (c *Client) poolsNamed(name string) []*routing.Pool {
	if name == "" {
		return c.router.Pools()
	}
	if p, ok := c.router.Pool(name); ok {
		return []*routing.Pool{p}
	}
	return nil
}

// because is why a pool could not be asked: if it is unfit, that and no more.
func because(p *routing.Pool, err error) error {
	if unfit := p.Unfit(); unfit != nil {
		return unfit
	}
	return named(p.Name, err)
}

// gather asks pools at the same time, each for perPool at most, and joins the
// answers in the order of the pools and the errors of those that did not answer.
func gather[T any](ctx context.Context, pools []*routing.Pool, ask func(context.Context, *routing.Pool) ([]T, error)) ([]T, error) {
	answers := make([][]T, len(pools))
	errs := make([]error, len(pools))
	var group sync.WaitGroup
	for i, p := range pools {
		group.Go(func() {
			ctx, cancel := context.WithTimeout(ctx, perPool)
			defer cancel()
			var err error
			if answers[i], err = ask(ctx, p); err != nil {
				errs[i] = because(p, err)
			}
		})
	}
	group.Wait()
	return slices.Concat(answers...), errors.Join(errs...)
}
