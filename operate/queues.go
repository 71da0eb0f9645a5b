package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/plural"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// ErrNotFrozen is returned when a queue or kind is frozen in no pool. It is tenure.ErrNotFound, too.
var ErrNotFrozen = store.ErrNotFrozen

// Queues lists, freezes and thaws queues. See [Queues.List].
type Queues struct{ proc *process.Process }

// Kinds freezes and thaws kinds of jobs. See [Operator.Kinds].
type Kinds struct{ proc *process.Process }

// List lists the queues that have jobs, that are some kind's or that are frozen, over all pools. Jobs that wait are counted up to ten thousand of
// each queue and pool. When some pools do not answer, the others' queues are returned together with an error.
func (o *Queues) List(ctx context.Context, f LoadFilter) ([]QueueStatus, error) {
	pools, err := o.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	var tenants []string
	for _, id := range f.Tenants {
		tenants = append(tenants, string(id))
	}
	return process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) ([]QueueStatus, error) {
		rows, err := store.Queues(ctx, db, tenants)
		out := make([]QueueStatus, len(rows))
		for i, r := range rows {
			r.Pool = p.Name
			out[i] = QueueStatus(r)
		}
		return out, err
	})
}

// Freeze keeps the jobs of a queue, whichever tenant's, from being started in all pools until
// [Queues.Thaw]; what is running goes on, jobs can be enqueued, and timers and schedules add to what waits. When
// it returns none is claimed any more, by nodes or external workers. Doing it again changes nothing, but in pools that
// were added since.
//
// If some pools do not answer, it holds in the others, and a PartlyError says in which, and what to type again.
func (o *Queues) Freeze(ctx context.Context, queue string) error {
	return freezeJobs(ctx, o.proc, store.ScopeQueue, queue, true)
}

// Thaw ends a [Queues.Freeze]. ErrNotFrozen: it is frozen in no pool. Other errors are as there.
func (o *Queues) Thaw(ctx context.Context, queue string) error {
	return freezeJobs(ctx, o.proc, store.ScopeQueue, queue, false)
}

// Freeze is [Queues.Freeze] for the jobs of a kind, on whichever queues; of external workers that is a topic.
func (o *Kinds) Freeze(ctx context.Context, kind string) error {
	return freezeJobs(ctx, o.proc, store.ScopeKind, kind, true)
}

// Thaw ends a [Kinds.Freeze]. Errors are those of [Queues.Thaw].
func (o *Kinds) Thaw(ctx context.Context, kind string) error {
	return freezeJobs(ctx, o.proc, store.ScopeKind, kind, false)
}

func freezeJobs(ctx context.Context, proc *process.Process, scope store.Scope, name string, frozen bool) error {
	do, done := "freeze", "frozen"
	if !frozen {
		do, done = "thaw", "thawed"
	}
	if err := job.ValidateKind(string(scope), name); err != nil {
		return &job.InputError{Err: fmt.Errorf("%s: %w", do, err)}
	}
	deed := proc.Deed(ctx, string(scope)+"."+do, "", name, nil)
	pools := proc.Router.Pools()
	where, err := routing.AskEach(ctx, pools, process.AnswerWithin, func(ctx context.Context, p *routing.Pool) ([]string, error) {
		err := p.Operate(ctx, func(db *pgxpool.Conn) error { return store.FreezeJobs(ctx, store.Noted(db, deed), scope, name, frozen) })
		switch {
		case errors.Is(err, ErrNotFrozen): // but maybe in another one
			return nil, nil
		case err != nil:
			return nil, err
		}
		return []string{p.Name}, nil
	})
	if err != nil {
		return &PartlyError{In: where, Of: len(pools), done: fmt.Sprintf("%s %s is %s", scope, name, done), again: fmt.Sprintf("tenure %ss %s %s", scope, do, name), err: err}
	}
	if len(where) == 0 {
		return fmt.Errorf("%s %s %q: %w", do, scope, name, ErrNotFrozen)
	}
	return nil
}

// FrozenStatus is a queue or kind that is frozen in a pool, and since when.
type FrozenStatus struct {
	Queue, Kind string // one of them
	Pool        string
	Since       time.Time
}

// PartlyError says in which pools something was done that was to be done in all. Doing it again does it in the others,
// once they answer.
type PartlyError struct {
	In          []string // the pools in which it was done
	Of          int      // how many pools there are
	done, again string
	err         error
}

// Text says what was done, and where, without what a database said.
func (e *PartlyError) Text() string {
	return fmt.Sprintf("%s in %d of %s (%s)", e.done, len(e.In), plural.Count(e.Of, "pool", "pools"), cmp.Or(strings.Join(e.In, ", "), "none"))
}

func (e *PartlyError) Error() string {
	return fmt.Sprintf("%s; once the others answer, type again: %s: %v", e.Text(), e.again, e.err)
}

// Unwrap returns why the others did not do it.
func (e *PartlyError) Unwrap() error { return e.err }

// Frozen lists the queues and kinds that are frozen, over all pools: queues first, by name and pool. When some pools do
// not answer, what is frozen in the others is returned together with an error.
func (o *Operator) Frozen(ctx context.Context) ([]FrozenStatus, error) {
	out, err := process.InspectEach(ctx, o.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]FrozenStatus, error) {
		rows, err := store.ListFrozen(ctx, db)
		out := make([]FrozenStatus, len(rows))
		for i, r := range rows {
			out[i] = FrozenStatus{Queue: r.Name, Pool: p.Name, Since: r.Since}
			if r.Scope == store.ScopeKind {
				out[i].Queue, out[i].Kind = "", r.Name
			}
		}
		return out, err
	})
	slices.SortStableFunc(out, func(a, b FrozenStatus) int {
		return cmp.Or(strings.Compare(a.Kind, b.Kind), strings.Compare(a.Queue, b.Queue), strings.Compare(a.Pool, b.Pool))
	})
	return out, err
}
