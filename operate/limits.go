package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/tenurehq/tenure/acquisition"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Limits is what an operator does with limits. Safe for concurrent use.
type Limits struct{ proc *process.Process }

// Limit bounds a tenant's jobs, or those of one of its kinds, queues or exclusive keys, on all nodes
// together: how many are in flight at a time, and how many start in a period. docs/limits.md says how exactly.
type Limit struct {
	// Tenant has the limit. [EveryTenant]: each tenant has such a limit of its own, unless one was set
	// for itself.
	Tenant tenancy.ID
	// Kind, Queue or Key narrow it down to the tenant's jobs of that kind, on that queue, or with that
	// exclusive key; EachKey gives each of its keys such a limit of its own, unless one was set for that key.
	// All empty: it is for all of the tenant's jobs.
	Kind, Queue, Key string
	EachKey          bool
	// MaxRunning is how many may be in flight at a time: 1 to 1,000,000; 0: any number. Of an exclusive key it
	// is one in any case, and cannot be set.
	MaxRunning int
	// Rate is how many may start in Per: 1 to 1,000,000; 0: any number.
	Rate int
	// Per is the period of Rate: a millisecond to a day. Default: a second.
	Per time.Duration
	// Burst is how many may start at once after a pause: 1 to 1,000,000, and no more than the rate gives
	// in 365 days. Default: 1, which spaces starts out evenly.
	Burst int
}

// ErrNoLimit is returned when there is no such limit. It is tenure.ErrNotFound, too.
var ErrNoLimit = store.ErrNoLimit

// AllTenants is the tenant of a limit that all tenants have together, in all pools. The configuration sets those
// (limits.kinds, limits.queues), and [Limits.List] shows which share each pool has.
const AllTenants tenancy.ID = "(all tenants)\n" // which no tenant can be called

// LimitStatus is a limit as a pool has it.
type LimitStatus struct {
	Limit
	Pool string
	// Whole is the limit of which this one, of AllTenants, is the pool's share; nil: it is none. The MaxRunning of
	// a pool that has no share is -1.
	Whole *Limit
	// Running is how many jobs are in flight that it counts, and NextStart when its rate lets the next
	// one start; zero: now. Of one for every tenant, or each key, neither is told.
	Running   int
	NextStart time.Time
	// MaxWaiting is how many of a tenant's jobs may wait or run before more are refused, with its limit of all of its jobs;
	// 0: any number. [Tenants.LimitWaiting] sets it.
	MaxWaiting int
}

// row is the limit as the ledger has it, if it can be set.
func (l Limit) row() (row store.Limit, err error) {
	row = store.Limit{LimitKey: store.LimitKey{Tenant: ledgerTenant(l.Tenant), Scope: store.ScopeTenant}, Most: l.MaxRunning, Rate: l.Rate, Per: l.Per, Burst: l.Burst}
	if l.Tenant == AllTenants {
		return row, errors.New("tenant: what all tenants have together is set in the nodes' configuration: limits.kinds, limits.queues")
	}
	if l.Tenant != EveryTenant {
		if err := l.Tenant.Validate(); err != nil {
			return row, fmt.Errorf("tenant: %w", err)
		}
	}
	named := 0
	for _, given := range []bool{l.Kind != "", l.Queue != "", l.Key != "", l.EachKey} {
		if given {
			named++
		}
	}
	switch {
	case named > 1:
		return row, errors.New("kind, queue and key: name one of them, or none for all of the tenant's jobs")
	case l.EachKey || l.Key != "":
		row.Scope, row.Name = store.ScopeKey, l.Key
		if l.Key != "" {
			err = job.ValidateText("exclusive key", l.Key)
		}
		if l.MaxRunning != 0 {
			err = errors.New("max running: of the jobs with one exclusive key one runs at a time in any case; give a rate")
		}
	case l.Kind != "":
		row.Scope, row.Name, err = store.ScopeKind, l.Kind, job.ValidateKind("kind", l.Kind)
	case l.Queue != "":
		row.Scope, row.Name, err = store.ScopeQueue, l.Queue, job.ValidateKind("queue", l.Queue)
	}
	if err != nil || l.Rate == 0 {
		row.Per, row.Burst = 0, 0
	} else {
		row.Per, row.Burst = cmp.Or(l.Per, time.Second), cmp.Or(l.Burst, 1)
	}
	within := func(what string, n int) {
		if err == nil && (n < 0 || n > maxLimit) {
			err = fmt.Errorf("%s: %d: 1 to %d are allowed, or 0 for any number", what, n, maxLimit)
		}
	}
	within("max running", l.MaxRunning)
	within("rate", l.Rate)
	within("burst", l.Burst)
	switch {
	case err != nil:
	case row.Rate == 0 && (l.Per != 0 || l.Burst != 0):
		err = errors.New("per and burst: they are of a rate, which is missing")
	case row.Rate > 0 && (row.Per < time.Millisecond || row.Per > store.LongestPer || row.Per%time.Millisecond != 0):
		err = fmt.Errorf("per: %v: whole milliseconds up to %v are allowed", row.Per, store.LongestPer)
	case row.Rate > 0 && row.Burst > int(store.LongestRefill/row.Tokens(1)):
		err = fmt.Errorf("burst: %d: %d at most at a rate of %d in %v, which takes %v to give as many; raise the rate, or lower the burst",
			row.Burst, store.LongestRefill/row.Tokens(1), row.Rate, row.Per, store.LongestRefill)
	}
	return row, err
}

// Set sets a limit in the place of the one there was. From the next claim on it holds, for what
// waits already, too; what is in flight beyond it goes on. It is kept with the tenant, and moves with
// it.
//
// One for every tenant is written to every pool. If some pools do not answer, the others have it,
// and the error says so: set it again, as for a pool that is added later.
func (ls *Limits) Set(ctx context.Context, l Limit) error {
	row, err := l.row()
	if err == nil && row.Most == 0 && row.Rate == 0 {
		err = errors.New("max running and rate: one of them must be given; Delete lifts a limit")
	}
	if err != nil {
		return fmt.Errorf("limit: %w", &job.InputError{Err: err})
	}
	return ls.write(ctx, l.Tenant, row)
}

// Delete lifts a limit; of which only Tenant, Kind, Queue, Key and EachKey are looked at. ErrNoLimit:
// there is none.
func (ls *Limits) Delete(ctx context.Context, l Limit) error {
	row, err := Limit{Tenant: l.Tenant, Kind: l.Kind, Queue: l.Queue, Key: l.Key, EachKey: l.EachKey}.row()
	if err != nil {
		return fmt.Errorf("limit: %w", &job.InputError{Err: err})
	}
	return ls.write(ctx, l.Tenant, row)
}

func (ls *Limits) write(ctx context.Context, tenant tenancy.ID, row store.Limit) error {
	deed := ls.proc.Deed(ctx, "limit.delete", tenant, string(row.Scope)+" "+row.Name, nil)
	if row.Most != 0 || row.Rate != 0 {
		deed.Action = "limit.set"
		deed.Detail = map[string]any{"max_running": row.Most, "rate": row.Rate, "per_ms": row.Per.Milliseconds(), "burst": row.Burst}
	}
	set := func(p *routing.Pool) error {
		ctx, cancel := context.WithTimeout(ctx, process.AnswerWithin)
		defer cancel()
		return p.Operate(ctx, func(db *pgxpool.Conn) error { return store.SetLimit(ctx, store.Noted(db, deed), row) })
	}
	if tenant != EveryTenant {
		_, err := (&Tenants{ls.proc}).change(ctx, tenant, set)
		return err
	}
	var errs []error
	there := false
	for _, p := range ls.proc.Router.Pools() {
		switch err := set(p); {
		case err == nil:
			there = true
		case !errors.Is(err, ErrNoLimit): // a pool that was added later has none
			errs = append(errs, routing.NamePool(p.Name, err))
		}
	}
	if len(errs) == 0 && !there {
		return fmt.Errorf("limit %s: %w", row.LimitKey, ErrNoLimit)
	}
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s: set in %d of %d pools; try again: %w", row.LimitKey, len(ls.proc.Router.Pools())-len(errs), len(ls.proc.Router.Pools()), err)
	}
	return nil
}

// listShares are a pool's shares of limits of all tenants.
func listShares(cfg *config.Config, pool string) []store.Limit {
	return cfg.Limits.Shares(slices.Collect(maps.Keys(cfg.Pools)))[pool]
}

// List lists the limits of every pool: those of all tenants together first, as this process's configuration has them,
// those for every tenant, then by tenant. When some
// pools do not answer, the others' are returned together with an error.
func (ls *Limits) List(ctx context.Context) ([]LimitStatus, error) {
	cfg := ls.proc.Cfg.Load()
	out, err := process.InspectEach(ctx, ls.proc.Router.Pools(), func(ctx context.Context, p *routing.Pool, db store.DB) ([]LimitStatus, error) {
		rows, err := store.LimitRows(ctx, db, listShares(cfg, p.Name))
		out := make([]LimitStatus, len(rows))
		for i, r := range rows {
			out[i] = newLimitStatus(p.Name, r)
			out[i].setWhole(cfg.Limits)
		}
		return out, err
	})
	rank := func(tenant tenancy.ID) int {
		return slices.Index([]tenancy.ID{AllTenants, EveryTenant, tenant}, tenant)
	}
	slices.SortStableFunc(out, func(a, b LimitStatus) int {
		return cmp.Or(cmp.Compare(rank(a.Tenant), rank(b.Tenant)), cmp.Compare(a.Tenant, b.Tenant), cmp.Compare(a.Queue, b.Queue), cmp.Compare(a.Kind, b.Kind), cmp.Compare(a.Key, b.Key), cmp.Compare(a.Pool, b.Pool))
	})
	return out, err
}

func newLimitStatus(pool string, r store.LimitRow) LimitStatus {
	s := LimitStatus{Pool: pool, Running: r.Flying, MaxWaiting: r.Quota, Limit: Limit{Tenant: tenancy.ID(r.Tenant), MaxRunning: r.Most, Rate: r.Rate, Per: r.Per, Burst: r.Burst}}
	if r.Tenant == store.EveryTenant {
		s.Tenant, s.Running = EveryTenant, 0
	}
	switch r.Scope {
	case store.ScopeClusterKind:
		s.Tenant, s.Kind, s.Running = AllTenants, r.Name, r.Flying
	case store.ScopeClusterQueue:
		s.Tenant, s.Queue, s.Running = AllTenants, r.Name, r.Flying
	case store.ScopeKind:
		s.Kind = r.Name
	case store.ScopeQueue:
		s.Queue = r.Name
	case store.ScopeKey:
		s.Key, s.EachKey = r.Name, r.Name == ""
	}
	if in := r.NextIn(); in > 0 {
		s.NextStart = time.Now().Add(in)
	}
	return s
}

// setWhole says of which limit it is a share.
func (s *LimitStatus) setWhole(all acquisition.LimitsConfig) {
	if s.Tenant != AllTenants {
		return
	}
	c := all.Kinds[s.Kind]
	if s.Queue != "" {
		c = all.Queues[s.Queue]
	}
	s.Whole = &Limit{Tenant: AllTenants, Kind: s.Kind, Queue: s.Queue, MaxRunning: c.MaxRunning, Rate: c.Rate, Per: c.Per, Burst: c.Burst}
	if c.Rate > 0 {
		s.Whole.Per = cmp.Or(c.Per, time.Second)
	}
}
