package operate

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/notify"
	"github.com/tenurehq/tenure/internal/process"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tenantmove"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// Tenants lists, explains, limits, freezes and moves tenants. See [Tenants.List].
type Tenants struct{ proc *process.Process }

// Freeze keeps a tenant's jobs from being started until [Tenants.Thaw]; what
// is running goes on, and jobs can be enqueued. When it returns none is claimed any more.
func (o *Tenants) Freeze(ctx context.Context, id tenancy.ID) error {
	_, err := o.change(ctx, id, func(p *routing.Pool) error {
		return store.FreezeTenant(ctx, store.Noted(p.Jobs(), o.proc.Deed(ctx, "tenant.freeze", id, "", nil)), string(id), true)
	})
	return err
}

// Thaw ends a [Tenants.Freeze].
func (o *Tenants) Thaw(ctx context.Context, id tenancy.ID) error {
	p, err := o.change(ctx, id, func(p *routing.Pool) error {
		return store.FreezeTenant(ctx, store.Noted(p.Jobs(), o.proc.Deed(ctx, "tenant.thaw", id, "", nil)), string(id), false)
	})
	if err == nil {
		o.notify(ctx, p, id)
	}
	return err
}

// maxLimit is more jobs than are ever in flight in a pool.
const maxLimit = store.MaxLimit

// Limit bounds how many jobs of a tenant are in flight at a time, on all nodes together: 1
// to 1,000,000, or 0 for any number, as at first. What is in flight beyond it goes on. It is in
// force within a second, is kept with the tenant, and moves with it.
func (o *Tenants) Limit(ctx context.Context, id tenancy.ID, most int) error {
	if most < 0 || most > maxLimit {
		return &job.InputError{Err: fmt.Errorf("limit tenant %q to %d: 1 to %d are allowed, or 0 for any number", id, most, maxLimit)}
	}
	deed := o.proc.Deed(ctx, "tenant.limit", id, "", map[string]any{"max_running": most})
	_, err := o.change(ctx, id, func(p *routing.Pool) error {
		return store.LimitTenant(ctx, store.Noted(p.Jobs(), deed), string(id), most)
	})
	return err
}

// LimitWaiting bounds how many jobs of a tenant may wait or run before more are refused with
// ErrTenantQuota: 1 to 1,000,000, or 0 for any number, as at first. The holder of the pool's acquire
// lock looks about once a second, so that some more may come in; those that wait for their time, or for
// external workers, do not count, and what comes back from there is never refused. It moves with the
// tenant.
func (o *Tenants) LimitWaiting(ctx context.Context, id tenancy.ID, most int) error {
	if most < 0 || most > maxLimit {
		return &job.InputError{Err: fmt.Errorf("limit the waiting jobs of tenant %q to %d: 1 to %d are allowed, or 0 for any number", id, most, maxLimit)}
	}
	deed := o.proc.Deed(ctx, "tenant.limit", id, "", map[string]any{"max_waiting": most})
	_, err := o.change(ctx, id, func(p *routing.Pool) error {
		return store.InNoted(ctx, p.Jobs(), deed, func(db store.DB) error { return store.SetQuota(ctx, db, string(id), most) })
	})
	return err
}

// maxWeight is the largest weight of a tenant: those of weight 1 wait for so many of its jobs.
const maxWeight = 100

// SetWeight gives a tenant a weight beside the others of its pool: 1, as at first, to 100. Of two
// that have much to do, one of weight 3 has three times as much of the workers as one of weight 1. It
// is in force from the next page of jobs on, for what waits already, too; is kept with the tenant, and
// moves with it. docs/limits.md says how exactly.
func (o *Tenants) SetWeight(ctx context.Context, id tenancy.ID, weight int) error {
	if weight < 1 || weight > maxWeight {
		return &job.InputError{Err: fmt.Errorf("weight of tenant %q: %d: 1 to %d are allowed, of which 1 is as at first", id, weight, maxWeight)}
	}
	deed := o.proc.Deed(ctx, "tenant.weight", id, "", map[string]any{"weight": weight})
	_, err := o.change(ctx, id, func(p *routing.Pool) error {
		return store.SetWeight(ctx, store.Noted(p.Jobs(), deed), string(id), weight)
	})
	return err
}

// TenantSettings are what was set for a tenant in the pool that it lives in.
type TenantSettings struct {
	Tenant     tenancy.ID
	Pool       string
	State      string // active, frozen, moving, held or arriving, as of TenantStatus
	Weight     int    // see [Tenants.SetWeight]
	MaxRunning int    // see [Tenants.Limit]; 0: any number
	MaxWaiting int    // see [Tenants.LimitWaiting]; 0: any number
}

// Settings reads what was set for a tenant. ErrUnknownTenant: no routing rule knows it.
func (o *Tenants) Settings(ctx context.Context, id tenancy.ID) (out TenantSettings, err error) {
	_, err = o.change(ctx, id, func(p *routing.Pool) error {
		found, err := process.InspectEach(ctx, []*routing.Pool{p}, func(ctx context.Context, _ *routing.Pool, db store.DB) ([]store.TenantSettings, error) {
			s, err := store.ReadTenantSettings(ctx, db, string(id))
			return []store.TenantSettings{s}, err
		})
		if err != nil {
			return err
		}
		s := found[0]
		if s.State == store.TenantMoved {
			return &store.TenantBusyError{TenantRow: s.TenantRow}
		}
		out = TenantSettings{id, p.Name, tenantState(s.TenantRow), s.Weight, s.MaxRunning, s.MaxWaiting}
		return nil
	})
	return out, err
}

// Home returns the name of the pool that a tenant lives in: by its rule alone, if that pool does not answer.
// ErrUnknownTenant: no routing rule knows it.
func (o *Tenants) Home(ctx context.Context, id tenancy.ID) (string, error) {
	s, err := o.Settings(ctx, id)
	if err == nil {
		return s.Pool, nil
	}
	_, pool, err := o.proc.ResolveTenant(ctx, id)
	if err != nil {
		return "", err
	}
	return pool.Name, nil
}

// tenantState is what operators call the state of a tenant.
func tenantState(r store.TenantRow) string {
	switch {
	case r.Held:
		return "held"
	case r.State == store.TenantActive && r.Frozen:
		return "frozen"
	default:
		return r.State
	}
}

// change changes what the pool that a tenant lives in says of it, and returns the pool.
func (o *Tenants) change(ctx context.Context, id tenancy.ID, change func(*routing.Pool) error) (*routing.Pool, error) {
	for tries := 1; ; tries++ {
		_, pool, err := o.proc.ResolveTenant(ctx, id)
		if err != nil {
			return nil, err
		}
		err = change(pool)
		var busy *store.TenantBusyError
		switch {
		case errors.As(err, &busy) && busy.State == store.TenantMoved && tries <= process.MaxFollowed:
			o.proc.Router.Forget(id)
		case errors.As(err, &busy):
			return nil, &job.InputError{Err: fmt.Errorf("tenant %q is being moved between pools %s and %s: let that come to its end first", id, pool.Name, busy.Other)}
		case err != nil:
			return nil, routing.NamePool(pool.Name, err)
		default:
			return pool, nil
		}
	}
}

// TenantStatus is a tenant as a pool has it.
type TenantStatus struct {
	Tenant tenancy.ID
	Pool   string
	// State is active, frozen, moving, held (moving, and its data can be copied), moved,
	// arriving, stray: it lives elsewhere and has jobs here, which do not run until it
	// is moved to where it lives; or unknown: no routing rule knows it, and it has jobs here.
	State string
	Other string // the other pool of a move
	// Weight is the tenant's weight in that pool; see [Tenants.SetWeight].
	Weight int
}

// List lists the tenants of every pool: those that the configuration or tenants.table.list
// lists, those with unfinished jobs, and those that were frozen or moved, or have a weight. Of a
// list, it is ten thousand of a pool at most.
func (o *Tenants) List(ctx context.Context) ([]TenantStatus, error) {
	return o.list(ctx, o.listAllIn)
}

// ListPresent is [Tenants.List] without those that only tenants.table.list names: for whom nothing is there yet.
func (o *Tenants) ListPresent(ctx context.Context) ([]TenantStatus, error) {
	return o.list(ctx, o.listIn)
}

func (o *Tenants) list(ctx context.Context, in func(context.Context, *routing.Pool) ([]TenantStatus, error)) ([]TenantStatus, error) {
	out, err := routing.AskEach(ctx, o.proc.Router.Pools(), process.AnswerWithin, in)
	slices.SortStableFunc(out, func(a, b TenantStatus) int { return strings.Compare(string(a.Tenant), string(b.Tenant)) })
	return out, err
}

// TenantLoad is what waits of a tenant in a pool.
type TenantLoad struct {
	Tenant  tenancy.ID
	Pool    string
	Waiting int           // jobs that no node or worker has in hand; where some ten thousand wait in the pool, an estimate
	Oldest  time.Duration // since the oldest of them could start
}

// Busiest lists the tenants whose jobs wait, those with the most first. Jobs that wait for their time do not count. It takes
// a pool some tens of milliseconds, however many jobs there are. When some pools do not answer, the others' tenants are
// returned together with an error.
func (o *Tenants) Busiest(ctx context.Context, f LoadFilter) ([]TenantLoad, error) {
	pools, err := o.proc.PoolsOf(f.Pool)
	if err != nil {
		return nil, err
	}
	out, err := process.InspectEach(ctx, pools, func(ctx context.Context, p *routing.Pool, db store.DB) (out []TenantLoad, err error) {
		_, all, err := store.CountWaiting(ctx, db)
		for id, w := range all {
			if len(f.Tenants) == 0 || slices.Contains(f.Tenants, tenancy.ID(id)) {
				out = append(out, TenantLoad{tenancy.ID(id), p.Name, w.Jobs, w.Oldest})
			}
		}
		return out, err
	})
	slices.SortFunc(out, func(a, b TenantLoad) int {
		return cmp.Or(cmp.Compare(b.Waiting, a.Waiting), strings.Compare(string(a.Tenant), string(b.Tenant)), strings.Compare(a.Pool, b.Pool))
	})
	return out, err
}

// maxTenants bounds how many tenants with jobs, and how many that the lookup table lists, are looked for in one pool.
const maxTenants = 10_000

func (o *Tenants) listAllIn(ctx context.Context, p *routing.Pool) ([]TenantStatus, error) {
	out, err := o.listIn(ctx, p)
	if err != nil {
		return out, err
	}
	seen := map[tenancy.ID]bool{}
	for _, t := range out {
		seen[t.Tenant] = true
	}
	listed, err := o.proc.Router.ListedByTable(ctx, p)
	for _, id := range listed[:min(len(listed), maxTenants)] { // whom to look up one by one would take too long
		if !seen[id] {
			out = append(out, TenantStatus{Tenant: id, Pool: p.Name, State: store.TenantActive, Weight: 1})
		}
	}
	return out, err
}

func (o *Tenants) listIn(ctx context.Context, p *routing.Pool) ([]TenantStatus, error) {
	if _, err := p.Number(); err != nil {
		return nil, err
	}
	var rows []store.TenantRow
	var busy []string
	weights, err := process.Inspect(ctx, p, func(ctx context.Context, _ *routing.Pool, db store.DB) (weights map[string]int, err error) {
		if rows, err = store.TenantRows(ctx, db); err != nil {
			return nil, err
		}
		if busy, err = store.TenantsWithJobs(ctx, db, maxTenants, nil); err != nil {
			return nil, err
		}
		return store.Weights(ctx, db)
	})
	if err != nil {
		return nil, err
	}
	var out []TenantStatus
	seen := map[tenancy.ID]bool{}
	add := func(id tenancy.ID, state, other string) {
		if !seen[id] {
			seen[id] = true
			out = append(out, TenantStatus{Tenant: id, Pool: p.Name, State: state, Other: other, Weight: max(weights[string(id)], 1)})
		}
	}
	for _, r := range rows {
		if state := tenantState(r); state != store.TenantActive { // else it is listed below, if it lives here
			add(tenancy.ID(r.Tenant), state, r.Other)
		}
	}
	for _, name := range busy {
		id := tenancy.ID(name)
		switch _, home, err := o.proc.Router.Resolve(ctx, id); {
		case err == nil && home == p:
			add(id, store.TenantActive, "")
		case errors.Is(err, tenancy.ErrUnknownTenant):
			add(id, "unknown", "")
		default:
			add(id, "stray", "")
		}
	}
	for name := range weights {
		id := tenancy.ID(name)
		if _, home, err := o.proc.Router.Resolve(ctx, id); err == nil && home == p {
			add(id, store.TenantActive, "")
		}
	}
	for _, id := range o.proc.Router.Listed() {
		if _, home, err := o.proc.Router.Resolve(ctx, id); err == nil && home == p {
			add(id, store.TenantActive, "")
		}
	}
	return out, nil
}

// Explain says why a tenant's work waits: the first true reason, as the ledger of its pool has
// it, or WaitsForDatabase if that does not answer. Whose turn it is just now only the memory of the lock's
// holder knows: that is told as waiting for its turn. ErrUnknownTenant: no routing rule
// knows the tenant.
func (o *Tenants) Explain(ctx context.Context, id tenancy.ID) (TenantExplanation, error) {
	for tries := 1; ; tries++ {
		_, pool, err := o.proc.ResolveTenant(ctx, id)
		if err != nil {
			return TenantExplanation{}, err
		}
		e := TenantExplanation{Tenant: id, Pool: pool.Name}
		found, err := process.InspectEach(ctx, []*routing.Pool{pool}, func(ctx context.Context, _ *routing.Pool, db store.DB) ([]store.TenantWait, error) {
			w, err := store.ReadTenantWait(ctx, db, string(id))
			return []store.TenantWait{w}, err
		})
		switch {
		case ctx.Err() != nil:
			return TenantExplanation{}, context.Cause(ctx)
		case err != nil:
			e.Reason, e.Text, e.Advice = WaitsForDatabase, err.Error(), "its jobs are safe there: look after the database, and see tenure pools list"
		case found[0].TenantState == store.TenantMoved && tries <= process.MaxFollowed:
			o.proc.Router.Forget(id)
			continue
		default:
			e.explain(&found[0])
			if e.Reason == WaitsForMove {
				e.Text, e.Advice = explainMove(ctx, o.proc, string(id), pool.Name, found[0].TenantState, found[0].Other)
			}
			name := string(id)
			if rests := found[0].Rests; rests != nil && e.Reason != WaitsForTenant {
				name = rests.Name
			}
			e.Frozen = frozenBy(ctx, o.proc, pool.Name, e.Reason, name)
		}
		if e.Reason == WaitsForTurn { // a limit of its queue or kind, a key or a share holds up some jobs only
			one, err := (&Jobs{o.proc}).explainIn(ctx, []*routing.Pool{pool}, found[0].Example)
			if err == nil && one.Reason != WaitsNot && one.Reason != WaitsForTurn {
				e.Reason, e.Text, e.Advice = one.Reason, fmt.Sprintf("%s, such as job %d: %s", e.countWaiting(), one.Job.ID, one.Text), one.Advice
			}
		}
		return e, nil
	}
}

// ExplainStray says of a tenant that has jobs in a pool which it does not live in how many those are, and how to bring them home.
// ErrUnknownTenant: no routing rule knows it. ErrUnknownPool: there is none of this name.
func (o *Tenants) ExplainStray(ctx context.Context, id tenancy.ID, pool string) (TenantExplanation, error) {
	home, err := o.Home(ctx, id)
	if err != nil {
		return TenantExplanation{}, err
	}
	p, ok := o.proc.Router.Pool(pool)
	if !ok {
		return TenantExplanation{}, process.ErrUnknownPool
	}
	w, err := process.Inspect(ctx, p, func(ctx context.Context, _ *routing.Pool, db store.DB) (store.TenantWait, error) {
		return store.ReadTenantWait(ctx, db, string(id))
	})
	stray := strayError{id, home, pool}
	return TenantExplanation{Tenant: id, Pool: pool, Reason: WaitsForRoute, Text: stray.Error(), Advice: stray.mend(), Waiting: w.Waiting, Running: w.Running}, err
}

// reassignStep is how many jobs one transaction gives to another tenant, for which claims wait.
const reassignStep = 500

// Reassign gives the unfinished jobs and dead letters of a tenant that no routing rule knows to another one, in the pool
// where that lives, and returns how many. They go to the end of its queues. left counts what stays: jobs in
// flight, those whose arguments are encrypted for the first tenant, and those whose unique key the other one has. It can be
// interrupted, and called again.
func (o *Tenants) Reassign(ctx context.Context, from, to tenancy.ID) (n, left int, err error) {
	if err := from.Validate(); err != nil {
		return 0, 0, &job.InputError{Err: err}
	}
	o.proc.Router.Forget(from)
	switch _, p, err := o.proc.Router.Resolve(ctx, from); {
	case err == nil:
		return 0, 0, &job.InputError{Err: fmt.Errorf("tenant %q lives in pool %s, and its jobs run there: only those of a tenant that no routing rule knows can be given to another one", from, p.Name)}
	case !errors.Is(err, tenancy.ErrUnknownTenant):
		return 0, 0, err
	}
	noted := false
	for more := true; more; {
		step := 0
		pool, err := o.change(ctx, to, func(p *routing.Pool) (err error) {
			db := store.Operated(p.Jobs())
			if !noted {
				db = store.Noted(db, o.proc.Deed(ctx, "tenant.reassign", from, string(to), nil))
			}
			step, left, err = store.Reassign(ctx, db, string(from), string(to), reassignStep)
			return err
		})
		if err != nil {
			return n, left, err
		}
		n, noted, more = n+step, true, step == reassignStep
		o.notify(ctx, pool, to)
	}
	return n, left, nil
}

// MoveOptions are for [Tenants.Move].
type MoveOptions struct {
	// Wait bounds how long running jobs, and then transactions that may still enqueue,
	// are waited for; 0: as long as the context lasts.
	Wait time.Duration
	// Hold has the tenant held in its old pool and nothing moved yet: no job of it runs, no
	// transaction of it begins, and when [Tenants.Move] returns none is open there any more.
	// Then its own data can be copied. Call it again without Hold to go on, or with
	// the old pool to give up. On an error, the tenant is held only if it was before.
	Hold bool
	// Progress, if not nil, is called before each step.
	Progress func(step string)
}

// Moved is what [Tenants.Move] did, also up to an error.
type Moved struct {
	From []string       // the pools that jobs were moved from
	To   string         // the pool the tenant lives in; if Held, the one it is to live in
	Held bool           // the tenant is held in its old pool, and its data can be copied
	Jobs map[string]int // moved jobs by state: waiting, scheduled, external, history, suspended, dead, finished; and how many schedules
}

// Move moves a tenant's schedules and jobs to another pool and has the tenant live there from
// then on. Its own data must be there already; see [MoveOptions] for how it comes there
// without a write being lost. Its jobs are not started meanwhile and can
// be enqueued all the time, those with a unique key but for the moments in which keys
// and jobs are on their way.
//
// tenure.Client.InTx follows the tenant. While the tenant is held no handler of it runs, and
// InTx fails with tenure.ErrTenantHeld, as does EnqueueTx in a transaction of the caller's own.
//
// It can be interrupted at any point; called again with the same pool it goes on where
// it was, and brings along what was left behind, in whichever pool. While a move is under
// way no other one is begun, but a move whose running jobs are still being waited for is
// given up by moving the tenant to where it is.
//
// Where a configuration still places the tenant in its old pool, that pool leads on to
// the new one; see routing.TableConfig.Move.
func (o *Tenants) Move(ctx context.Context, id tenancy.ID, to string, options MoveOptions) (Moved, error) {
	if err := id.Validate(); err != nil {
		return Moved{}, &job.InputError{Err: err}
	}
	pool, ok := o.proc.Router.Pool(to)
	if !ok {
		return Moved{To: to}, fmt.Errorf("move tenant %q to pool %s: %w", id, to, &job.InputError{Err: process.ErrUnknownPool})
	}
	deed := func(stage string) store.Deed {
		return o.proc.Deed(ctx, "tenant.move", id, to, map[string]any{"stage": stage, "hold": options.Hold})
	}
	mover := tenantmove.Mover{Router: o.proc.Router, Notify: o.notify, Deed: deed}
	out, err := mover.MoveTenant(ctx, id, pool, tenantmove.Options(options))
	if err != nil {
		return Moved(out), fmt.Errorf("move tenant %q to pool %s: %w", id, to, err)
	}
	return Moved(out), nil
}

// notify tells a pool's holder where a tenant's jobs wait. That it fails is no
// reason to fail: the holder looks by itself.
func (o *Tenants) notify(ctx context.Context, p *routing.Pool, id tenancy.ID) {
	h := notify.Hint{Pool: p.Name, DueIn: time.Millisecond}
	lanes, _ := store.Move{Tenant: string(id)}.Lanes(ctx, p.Jobs())
	for _, l := range lanes {
		h.AddLane(l)
	}
	o.proc.Notifier.Notify(h)
}
