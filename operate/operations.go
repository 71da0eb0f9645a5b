package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"time"

	"github.com/google/uuid"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Operations lists and cancels what was asked to be done to many dead letters or jobs in the background: see
// [DeadLetters.RetryInBackground] and [Jobs.CancelInBackground]. It is safe for concurrent use.
type Operations struct{ proc *process.Process }

// OperationStatus is the part of an operation in one pool.
type OperationStatus struct {
	Pool      string
	ID        uuid.UUID
	Action    string     // retry, delete or cancel
	Filter    DeadFilter // of jobs to be cancelled their tenant and kind, and Before which they were made
	Jobs      ChosenJobs // what else chooses; of dead letters their tag and correlation id, which are not in Filter
	Group     string     // of the dead letters; "": of any
	PerSecond float64    // dead letters or jobs; 0: as many as that goes
	By        string     // who asked for it

	CreatedAt time.Time
	EndedAt   time.Time // zero: it is under way
	State     string    // running, done or cancelled
	Done      int64     // retried, or deleted
	KeyTaken  int64     // stay dead, because an unfinished job has their unique key
	Left      int64     // stay dead for other reasons
	Failure   string    // of the last step, which is tried again; "": it has not failed
}

// ChosenJobs is what chosen jobs have in common; empty fields choose all.
type ChosenJobs struct{ Queue, State, Tag, CorrelationID string }

func newOperationStatus(pool string, o store.Operation) OperationStatus {
	f := DeadFilter{Tenant: o.Filter.Tenant, Kind: o.Filter.Kind, Error: o.Filter.Error, Before: o.Filter.Before}
	return OperationStatus{pool, o.ID, o.Action, f, ChosenJobs(o.Jobs), o.Group, o.PerSecond, o.By,
		o.CreatedAt, o.EndedAt, o.State, o.Done, o.KeyTaken, o.Left, o.Failure}
}

// List lists operations over all pools, the newest first, at most 1000 of each pool: those under way, and
// those that have ended in the last seven days. When some pools do not answer, the others' are returned together with an
// error.
func (s *Operations) List(ctx context.Context) ([]OperationStatus, error) {
	const most = 1000
	return s.list(ctx, uuid.Nil, most)
}

// Get returns an operation's part in each pool, in the order of their names. ErrNotFound: no pool has it.
func (s *Operations) Get(ctx context.Context, id uuid.UUID) ([]OperationStatus, error) {
	out, err := s.list(ctx, id, 1)
	if len(out) == 0 {
		err = fmt.Errorf("operation %s: %w", id, cmp.Or(err, store.ErrNotFound))
	}
	slices.SortFunc(out, func(a, b OperationStatus) int { return cmp.Compare(a.Pool, b.Pool) })
	return out, err
}

func (s *Operations) list(ctx context.Context, id uuid.UUID, most int) ([]OperationStatus, error) {
	out, err := process.InspectEach(ctx, s.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]OperationStatus, error) {
		rows, err := store.Operations(ctx, db, id, most)
		out := make([]OperationStatus, len(rows))
		for i, r := range rows {
			out[i] = newOperationStatus(p.Name, r)
		}
		return out, err
	})
	slices.SortStableFunc(out, func(a, b OperationStatus) int {
		return cmp.Or(b.CreatedAt.Compare(a.CreatedAt), cmp.Compare(a.Pool, b.Pool))
	})
	return out, err
}

// Cancel ends an operation in all pools: when it returns, no step of it is under way or begins. What was
// done stays so. It tells in how many pools it was under way. ErrNotFound: no pool has it.
func (s *Operations) Cancel(ctx context.Context, id uuid.UUID) (pools int, err error) {
	found := false
	var errs []error
	for _, p := range s.proc.Router.Pools() {
		err := process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error {
			var running bool
			err := store.InNoted(ctx, db, s.proc.Deed(ctx, "operation.cancel", "", id.String(), nil), func(db store.DB) (err error) {
				running, err = store.CancelOperation(ctx, db, id)
				return err
			})
			if found = found || err == nil; running {
				pools++
			}
			return err
		})
		if err != nil && !errors.Is(err, store.ErrNotFound) {
			errs = append(errs, fmt.Errorf("cancel operation %s: %w", id, routing.NamePool(p.Name, err)))
		}
	}
	if !found && len(errs) == 0 {
		errs = append(errs, fmt.Errorf("operation %s: %w", id, store.ErrNotFound))
	}
	return pools, errors.Join(errs...)
}

// RetryInBackground is [DeadLetters.Retry] as an operation: the holder of each pool's lock carries it out
// there, whatever becomes of the caller, at perSecond in each pool. It returns the operation's id once
// that is written down; see [Operator.Operations] for how far it is. by says who asks, for people; "":
// this process. With an error it may have begun in some pools, and in those that the error names
// it has not. In a frozen pool it waits. It does not follow a tenant that moves: what has gone to
// another pool meanwhile is for another operation.
func (d *DeadLetters) RetryInBackground(ctx context.Context, f DeadFilter, perSecond float64, by string) (uuid.UUID, error) {
	return d.begin(ctx, store.RetryDeadLetters, f, perSecond, by)
}

// DeleteInBackground is [DeadLetters.Delete] as an operation; see [DeadLetters.RetryInBackground].
func (d *DeadLetters) DeleteInBackground(ctx context.Context, f DeadFilter, perSecond float64, by string) (uuid.UUID, error) {
	return d.begin(ctx, store.DeleteDeadLetters, f, perSecond, by)
}

func (d *DeadLetters) begin(ctx context.Context, action string, f DeadFilter, perSecond float64, by string) (uuid.UUID, error) {
	o := store.Operation{Action: action, Filter: f.chosen(), Group: f.Group, PerSecond: perSecond, By: by, Jobs: store.ChosenJobs{Tag: f.Tag, CorrelationID: f.CorrelationID}}
	return (&Operations{d.proc}).begin(ctx, action+" dead letters", f.Pool, o, func(p *routing.Pool) store.Deed { return d.deadDeed(ctx, p, action, f, perSecond) })
}

func (s *Operations) cancelJobs(ctx context.Context, f Selection, perSecond float64, by string) (uuid.UUID, error) {
	if err := f.check("cancel", CancelStates...); err != nil {
		return uuid.Nil, err
	}
	o := store.Operation{Action: store.CancelJobs, Filter: store.DeadFilter{Tenant: f.Tenant, Kind: f.Kind, Before: f.Before}, PerSecond: perSecond, By: by,
		Jobs: store.ChosenJobs{Queue: f.Queue, State: f.State, Tag: f.Tag, CorrelationID: f.CorrelationID}}
	detail := f.detail()
	maps.Copy(detail, given("per_second", perSecond))
	return s.begin(ctx, "cancel jobs", f.Pool, o, func(*routing.Pool) store.Deed {
		return s.proc.Deed(ctx, "jobs.cancel", tenancy.ID(f.Tenant), "", detail)
	})
}

// begin adds an operation to a pool, or to all. A pool that fails does not keep it from the others.
func (s *Operations) begin(ctx context.Context, what, pool string, o store.Operation, deedIn func(*routing.Pool) store.Deed) (uuid.UUID, error) {
	if err := checkRate(what, o.PerSecond); err != nil {
		return uuid.Nil, err
	}
	o.By = cmp.Or(o.By, s.proc.Cluster.Self().Node)
	for field, text := range map[string]string{"by": o.By, "tenant": o.Filter.Tenant, "kind": o.Filter.Kind, "error": o.Filter.Error, "group": o.Group, "tag": o.Jobs.Tag, "correlation id": o.Jobs.CorrelationID} {
		if err := job.ValidateText(field, text); err != nil {
			return uuid.Nil, &job.InputError{Err: fmt.Errorf("%s in the background: %w", what, err)}
		}
	}
	pools, err := s.proc.PoolsOf(pool)
	if err != nil {
		return uuid.Nil, err
	}
	o.ID = uuid.New()
	var errs []error
	for _, p := range pools {
		deed := deedIn(p)
		deed.Subject = "operation " + o.ID.String()
		err := process.Operate(ctx, p, func(ctx context.Context, db *pgxpool.Conn) error {
			return store.InNoted(ctx, db, deed, func(db store.DB) error { return store.AddOperation(ctx, db, o) })
		})
		if err != nil {
			errs = append(errs, fmt.Errorf("%s in the background: %w", what, routing.NamePool(p.Name, err)))
		}
	}
	return o.ID, errors.Join(errs...)
}

// checkRate refuses what cannot be done in a second.
func checkRate(what string, perSecond float64) error {
	const least = 0.0001 // some three hours for each; a wait that does not fit into a clock would be none
	if perSecond > 0 && perSecond < least {
		return &job.InputError{Err: fmt.Errorf("%s: a rate of %v in a second: at least %v are allowed, or 0 for as fast as that goes", what, perSecond, least)}
	}
	if perSecond < 0 || math.IsNaN(perSecond) || math.IsInf(perSecond, 0) {
		return &job.InputError{Err: fmt.Errorf("%s: a rate of %v in a second: more than 0 are allowed, or 0 for as fast as that goes", what, perSecond)}
	}
	return nil
}

// chosen is what the ledger chooses by.
func (f DeadFilter) chosen() store.DeadFilter {
	return store.DeadFilter{Tenant: f.Tenant, Kind: f.Kind, Error: f.Error, Before: f.Before, Tag: f.Tag, CorrelationID: f.CorrelationID}
}
