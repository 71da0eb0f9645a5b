package external

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Status is an unfinished job for external workers, as its pool's ledger has it.
type Status struct {
	Lock                    // of who has locked the job last; Worker is "" while nobody has
	Until         time.Time // when the lock expires, or has expired: until somebody asks for the topic the worker can still end the job; zero: it is not locked
	Pool          string
	Tenant        tenancy.ID
	Topic         string
	Queue         string
	Attempt       int // runs so far, this one not included
	MaxAttempts   int // its own, or those of execution.retry
	CreatedAt     time.Time
	Due           time.Time // it is not acquired before; zero: at once
	CorrelationID string
	Error         string // the last one
}

func (w *Workers) newStatus(p *routing.Pool, s store.ExternalStatus) Status {
	return Status{Lock: Lock(s.ExternalLock), Until: s.Until, Pool: p.Name, Tenant: tenancy.ID(s.Tenant),
		Topic: s.Topic, Queue: s.Queue, Attempt: s.Attempt, MaxAttempts: cmp.Or(s.MaxAttempts, w.proc.Retry.Attempts()), CreatedAt: s.CreatedAt, Due: s.Due,
		CorrelationID: s.Correlation, Error: s.Error}
}

// Find returns an unfinished job and who has locked it: so a worker that has stored nothing but a job's
// id finds its lock again. The pool that the job was made in is asked first. ErrNotFound: no pool has such a job. While some do not
// answer and the others do not have it, the error is theirs instead.
func (w *Workers) Find(ctx context.Context, id job.ID) (Status, error) {
	pools := w.proc.Router.Pools()
	slices.SortStableFunc(pools, func(a, b *routing.Pool) int {
		return cmp.Compare(process.MadeElsewhere(a, id), process.MadeElsewhere(b, id))
	})
	var errs []error
	for _, p := range pools {
		found, err := findIn(ctx, p, id)
		switch {
		case err == nil:
			return w.newStatus(p, found), nil
		case !errors.Is(err, store.ErrNotFound):
			errs = append(errs, routing.NamePool(p.Name, err))
		}
	}
	if len(errs) == 0 {
		errs = []error{store.ErrNotFound}
	}
	return Status{}, fmt.Errorf("find job %d: %w", id, errors.Join(errs...))
}

func findIn(ctx context.Context, p *routing.Pool, id job.ID) (store.ExternalStatus, error) {
	if err := p.Outage(); err != nil {
		return store.ExternalStatus{}, err
	}
	ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
	defer cancel()
	return store.FindExternal(ctx, p.Jobs(), id)
}

// Filter chooses unfinished jobs for external workers; empty fields choose all.
type Filter struct {
	Job           job.ID
	Pools         []string
	Tenants       []tenancy.ID
	Topic         string
	Worker        string // that has locked them
	CorrelationID string
	Locked        *bool // a lock that has expired counts until somebody asks for the topic
	Failed        *bool // whether they have failed before
	Sort          Sort  // default: ByID
	Descending    bool
	Skip, Limit   int // of what is found; Limit 0: 100; both together up to MaxListed
}

// MaxListed is how far [Workers.List] reads, and counts, in each pool.
const MaxListed = 10_000

// Sort is by what unfinished jobs are sorted. A page of the ids is read by an index; by anything else
// all that are found are sorted.
type Sort string

// What unfinished jobs can be sorted by; those that are alike by their ids.
const (
	ByID      Sort = ""
	ByCreated Sort = "created"
	ByTenant  Sort = "tenant"
)

// List lists unfinished jobs over all pools, and says how many there are, of each pool up to
// MaxListed. When some pools do not answer, the others' jobs are returned together with an error.
func (w *Workers) List(ctx context.Context, f Filter) (found []Status, count int, err error) {
	limit := cmp.Or(f.Limit, 100)
	if f.Skip < 0 || limit < 0 || f.Skip+limit > MaxListed {
		return nil, 0, &job.InputError{Err: fmt.Errorf("list jobs of external workers: skip %d, limit %d: 0 to %d together are allowed", f.Skip, limit, MaxListed)}
	}
	ask := store.ExternalFilter{Job: f.Job, Topic: f.Topic, Worker: f.Worker, Correlation: f.CorrelationID, Locked: f.Locked, Failed: f.Failed,
		Sort: string(f.Sort), Descending: f.Descending, Limit: f.Skip + limit, Count: MaxListed}
	for _, t := range f.Tenants {
		ask.Tenants = append(ask.Tenants, string(t))
	}
	pools := w.proc.Router.Pools()
	if len(f.Pools) > 0 {
		pools = slices.DeleteFunc(pools, func(p *routing.Pool) bool { return !slices.Contains(f.Pools, p.Name) })
	}
	type page struct {
		jobs  []Status
		count int
	}
	pages, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]page, error) {
		rows, n, err := store.ListExternal(ctx, db, ask)
		jobs := make([]Status, len(rows))
		for i, r := range rows {
			jobs[i] = w.newStatus(p, r)
		}
		return []page{{jobs, n}}, err
	})
	for _, p := range pages {
		found, count = append(found, p.jobs...), count+p.count
	}
	slices.SortStableFunc(found, f.compare)
	return found[min(f.Skip, len(found)):min(f.Skip+limit, len(found))], count, err
}

// compare orders as external_list.sql does.
func (f *Filter) compare(a, b Status) (by int) {
	switch f.Sort {
	case ByCreated:
		by = a.CreatedAt.Compare(b.CreatedAt)
	case ByTenant:
		by = strings.Compare(string(a.Tenant), string(b.Tenant))
	}
	if by = cmp.Or(by, cmp.Compare(a.Job, b.Job)); f.Descending {
		return -by
	}
	return by
}
