package api

import (
	"context"
	"errors"
	"slices"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type none struct{}

// list is the body of an answer with some of a kind.
type list[T any] struct {
	Body struct {
		Items      []T          `json:"items" nullable:"false"`
		Incomplete bool         `json:"incomplete" doc:"some pools did not answer in time, and theirs are missing"`
		Missing    []missingOut `json:"missing,omitempty" doc:"those pools, as far as the token reaches them"`
		Next       string       `json:"next,omitempty" doc:"of a list in pages: to be passed as after for the next one; none: there is none"`
	}
	lacks error // why pools are missing
}

type missingOut struct {
	Pool  string `json:"pool"`
	State string `json:"state" doc:"down: it did not answer, or out of service: it answers and cannot be used"`
}

// partial is an answer that may lack what some pools have.
type partial interface {
	complete(context.Context, *server)
}

// complete says which pools are missing from a list.
func (l *list[T]) complete(ctx context.Context, s *server) {
	s.note(l.lacks)
	unfit := s.operator.Pools().Unfit()
	for _, pool := range tenure.FailedPools(l.lacks) {
		state := operate.PoolDown
		if unfit[pool] != nil {
			state = operate.PoolUnfit
		}
		if g := access.From(ctx); g.SeesTenant("") && g.SeesPool(pool) { // as those that list pools
			l.Body.Missing = append(l.Body.Missing, missingOut{pool, state})
		}
	}
}

func listOf[T any](items []T, err error) (*list[T], error) {
	out := &list[T]{}
	out.Body.Items = append([]T{}, items...) // never null
	if isFault(err) {
		return nil, err
	}
	out.Body.Incomplete, out.lacks = err != nil, err
	return out, nil
}

// pageOf is one page of what was found of a list in pages, which was asked for one more than the limit.
func pageOf[T interface{ Cursor() string }, O any](found []T, err error, limit int, compare func(a, b T) int, show func(*T) O) (*list[O], error) {
	slices.SortStableFunc(found, compare)
	var items []O
	for i := range found[:min(limit, len(found))] {
		items = append(items, show(&found[i]))
	}
	out, err := listOf(items, err)
	if err == nil && len(found) > limit {
		out.Body.Next = found[limit-1].Cursor()
	}
	return out, err
}

// object is the body of an answer with one thing.
type object[T any] struct{ Body T }

type tenantIn struct {
	Tenant string `path:"tenant"`
}

type tenantOut struct {
	Tenant string `json:"tenant"`
	Pool   string `json:"pool"`
	State  string `json:"state"`
	Other  string `json:"other,omitempty" doc:"the other pool of a move"`
	Weight int    `json:"weight"`
}

func listTenants(ctx context.Context, s *server, _ *none) (*list[tenantOut], error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Tenants().List(ctx)
	var out []tenantOut
	for _, t := range all {
		if sees(ctx, t.Tenant, t.Pool) {
			out = append(out, tenantOut{string(t.Tenant), t.Pool, t.State, t.Other, t.Weight})
		}
	}
	return listOf(out, err)
}

type busyIn struct {
	Pool  string `query:"pool"`
	Limit int    `query:"limit" minimum:"1" maximum:"1000" default:"20"`
}

type busyOut struct {
	Tenant        string  `json:"tenant"`
	Pool          string  `json:"pool"`
	Waiting       int     `json:"waiting" doc:"where some ten thousand wait in the pool, an estimate"`
	OldestSeconds float64 `json:"oldest_seconds" doc:"since the oldest of those could start"`
}

func listBusyTenants(ctx context.Context, s *server, in *busyIn) (*list[busyOut], error) {
	g := access.From(ctx)
	if in.Pool != "" && !g.SeesPool(in.Pool) {
		return nil, hidden
	}
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Tenants().Busiest(ctx, operate.LoadFilter{Pool: in.Pool, Tenants: g.Tenants})
	var out []busyOut
	for _, t := range all {
		if g.SeesPool(t.Pool) && len(out) < in.Limit {
			out = append(out, busyOut{string(t.Tenant), t.Pool, t.Waiting, t.Oldest.Seconds()})
		}
	}
	return listOf(out, err)
}

type tenantDetail struct {
	Tenant     string `json:"tenant"`
	Pool       string `json:"pool" doc:"that it lives in"`
	State      string `json:"state" doc:"active, frozen, moving, held or arriving"`
	Weight     int    `json:"weight"`
	MaxRunning int    `json:"max_running" doc:"jobs in flight at a time; 0: any number"`
	MaxWaiting int    `json:"max_waiting" doc:"jobs that wait or run before more are refused; 0: any number"`
}

func getTenant(ctx context.Context, s *server, in *tenantIn) (*object[tenantDetail], error) {
	if err := s.seeTenant(ctx, tenancy.ID(in.Tenant)); err != nil {
		return nil, err
	}
	t, err := s.operator.Tenants().Settings(ctx, tenancy.ID(in.Tenant))
	if err == nil && !sees(ctx, t.Tenant, t.Pool) { // it has just moved there
		err = hidden
	}
	return &object[tenantDetail]{tenantDetail{string(t.Tenant), t.Pool, t.State, t.Weight, t.MaxRunning, t.MaxWaiting}}, err
}

// tells says whether the grant is for all that is said of why something waits, of other tenants, pools and nodes, too. What a database
// said is for those who see all that this process does.
func (s *server) tells(ctx context.Context, why operate.WaitReason) bool {
	if why == operate.WaitsForDatabase {
		return s.failed != nil
	}
	return access.From(ctx).IsUnlimited()
}

type tenantWhyOut struct {
	operate.TenantExplanation
	Frozen *auditOut `json:"frozen,omitempty" doc:"who froze what it waits for, if that is known, and the token reaches it"`
}

func explainTenant(ctx context.Context, s *server, in *tenantIn) (*object[tenantWhyOut], error) {
	id := tenancy.ID(in.Tenant)
	if err := s.seeTenant(ctx, id); err != nil {
		return nil, err
	}
	e, err := s.operator.Tenants().Explain(ctx, id)
	if !s.tells(ctx, e.Reason) {
		e = e.Bounded()
	}
	return &object[tenantWhyOut]{tenantWhyOut{e, seenDeed(ctx, e.Frozen)}}, err
}

// onTenant is a route that does something to a tenant, and has nothing to say.
func onTenant(do func(context.Context, *operate.Operator, tenancy.ID) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *tenantIn) (*none, error) {
		if err := s.seeTenant(ctx, tenancy.ID(in.Tenant)); err != nil {
			return nil, err
		}
		return nil, do(ctx, s.operator, tenancy.ID(in.Tenant))
	})
}

func freezeTenant(ctx context.Context, op *operate.Operator, id tenancy.ID) error {
	return op.Tenants().Freeze(ctx, id)
}

func thawTenant(ctx context.Context, op *operate.Operator, id tenancy.ID) error {
	return op.Tenants().Thaw(ctx, id)
}

type limitsIn struct {
	Tenant string `path:"tenant"`
	Body   struct {
		MaxRunning *int `json:"max_running,omitempty" minimum:"0" maximum:"1000000" doc:"jobs in flight at a time; 0: any number"`
		MaxWaiting *int `json:"max_waiting,omitempty" minimum:"0" maximum:"1000000" doc:"jobs that wait or run before more are refused; 0: any number"`
	}
}

func limitTenant(ctx context.Context, s *server, in *limitsIn) (*none, error) {
	id := tenancy.ID(in.Tenant)
	err := s.seeTenant(ctx, id)
	if err == nil && in.Body.MaxRunning != nil {
		err = s.operator.Tenants().Limit(ctx, id, *in.Body.MaxRunning)
	}
	if err == nil && in.Body.MaxWaiting != nil {
		err = s.operator.Tenants().LimitWaiting(ctx, id, *in.Body.MaxWaiting)
	}
	return nil, err
}

type weightIn struct {
	Tenant string `path:"tenant"`
	Body   struct {
		Weight int `json:"weight" minimum:"1" maximum:"100"`
	}
}

func weighTenant(ctx context.Context, s *server, in *weightIn) (*none, error) {
	if err := s.seeTenant(ctx, tenancy.ID(in.Tenant)); err != nil {
		return nil, err
	}
	return nil, s.operator.Tenants().SetWeight(ctx, tenancy.ID(in.Tenant), in.Body.Weight)
}

type reassignIn struct {
	Tenant string `path:"tenant"`
	Body   struct {
		To string `json:"to" minLength:"1" doc:"the tenant that gets them"`
	}
}

type reassignOut struct {
	Reassigned int  `json:"reassigned"`
	Left       int  `json:"left" doc:"stay, as they are in flight, or encrypted, or the other tenant has their unique key"`
	Complete   bool `json:"complete" doc:"false: there are more, as a database did not answer: send it again"`
}

// reassignJobs is for grants that reach everybody: the jobs are of a tenant that lives nowhere.
func reassignJobs(ctx context.Context, s *server, in *reassignIn) (*object[reassignOut], error) {
	if err := forEveryone(ctx); err != nil {
		return nil, err
	}
	from, to := tenancy.ID(in.Tenant), tenancy.ID(in.Body.To)
	if err := errors.Join(from.Validate(), to.Validate()); err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error())
	}
	n, left, err := s.operator.Tenants().Reassign(ctx, from, to)
	if routed := (*job.InputError)(nil); errors.As(err, &routed) { // which the same request may find otherwise later
		s.note(err)
		return nil, huma.Error409Conflict(routed.Error())
	}
	complete := err == nil
	if n > 0 && err != nil {
		s.note(err)
		err = nil
	}
	return &object[reassignOut]{reassignOut{n, left, complete}}, err
}

type moveIn struct {
	Tenant string `path:"tenant"`
	Body   struct {
		To   string `json:"to" minLength:"1" doc:"the pool that it is to live in"`
		Hold bool   `json:"hold,omitempty" doc:"hold it where it is, so that its own data can be copied, and move nothing yet"`
	}
}

type moveOut struct {
	To   string         `json:"to"`
	From []string       `json:"from" nullable:"false" doc:"the pools that jobs were moved from"`
	Held bool           `json:"held" doc:"its data can be copied now; send it again without hold, or with its old pool to give up"`
	Done bool           `json:"done" doc:"it lives there. Else send it again: the move goes on where it is"`
	Jobs map[string]int `json:"jobs" nullable:"false" doc:"that were moved, by state"`
}

// moveTenant takes part of a move: one that takes longer than a request may goes on with the next one.
func moveTenant(ctx context.Context, s *server, in *moveIn) (*object[moveOut], error) {
	id := tenancy.ID(in.Tenant)
	if !sees(ctx, id, in.Body.To) {
		return nil, hidden
	}
	if err := s.seeTenant(ctx, id); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.many)
	defer cancel()
	m, err := s.operator.Tenants().Move(ctx, id, in.Body.To, operate.MoveOptions{Hold: in.Body.Hold})
	out := &object[moveOut]{moveOut{in.Body.To, append([]string{}, m.From...), m.Held, err == nil && !m.Held, m.Jobs}}
	if out.Body.Jobs == nil {
		out.Body.Jobs = map[string]int{}
	}
	if ctx.Err() == context.DeadlineExceeded && !isFault(err) {
		err = nil // it goes on with the next request
	}
	return out, err
}

type poolIn struct {
	Pool string `path:"pool"`
}

// onPool is a route that does something to a pool: to all tenants in it, so a grant that is bound
// to tenants does not reach it.
func onPool(do func(context.Context, *operate.Operator, string) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *poolIn) (*none, error) {
		if g := access.From(ctx); !g.SeesPool(in.Pool) || !g.SeesTenant("") {
			return nil, hidden
		}
		return nil, do(ctx, s.operator, in.Pool)
	})
}

func freezePool(ctx context.Context, op *operate.Operator, pool string) error {
	return op.Pools().Freeze(ctx, pool)
}

func thawPool(ctx context.Context, op *operate.Operator, pool string) error {
	return op.Pools().Thaw(ctx, pool)
}
