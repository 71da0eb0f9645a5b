package api

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// findJob is a job that the grant reaches.
func (s *server) findJob(ctx context.Context, id job.ID) (operate.JobStatus, []job.RunError, error) {
	j, failed, err := s.operator.Jobs().Get(ctx, id)
	if err == nil && !sees(ctx, tenancy.ID(j.Tenant), j.Pool) {
		return operate.JobStatus{}, nil, hidden
	}
	return j, failed, err
}

// reachJob refuses a job that the grant does not reach. For one that reaches all it is not looked for.
func (s *server) reachJob(ctx context.Context, id job.ID) error {
	if access.From(ctx).IsUnlimited() {
		return nil
	}
	_, _, err := s.findJob(ctx, id)
	return err
}

// seeTenant refuses a tenant that the grant does not reach.
func (s *server) seeTenant(ctx context.Context, id tenancy.ID) error {
	return s.external.SeeTenant(ctx, id)
}

func sees(ctx context.Context, tenant tenancy.ID, pool string) bool {
	return access.From(ctx).Sees(tenant, pool)
}

// scope is a tenant and a pool that a question is about; "": all.
type scope struct{ tenant, pool string }

// narrow is what a question about a tenant and a pool, or all of them, is about that comes with this
// grant: each of those that it reaches.
func narrow(ctx context.Context, tenant, pool string) (out []scope, _ error) {
	g := access.From(ctx)
	tenants, pools := []string{tenant}, []string{pool}
	if tenant == "" && len(g.Tenants) > 0 {
		tenants = nil
		for _, id := range g.Tenants {
			tenants = append(tenants, string(id))
		}
	}
	if pool == "" && len(g.Pools) > 0 {
		pools = g.Pools
	}
	for _, t := range tenants {
		for _, p := range pools {
			if t != "" && !g.SeesTenant(tenancy.ID(t)) || p != "" && !g.SeesPool(p) {
				return nil, hidden
			}
			out = append(out, scope{t, p})
		}
	}
	return out, nil
}

// forEveryone refuses what concerns all tenants in all pools to who reaches some only.
func forEveryone(ctx context.Context) error {
	if g := access.From(ctx); !g.SeesTenant("") || len(g.Pools) > 0 {
		return hidden
	}
	return nil
}

// limits are for how long a request lasts at most.
type limits struct {
	look   time.Duration // a pool is waited for by those who look
	groups time.Duration // a pool may read its dead letters, each of which is looked at
	many   time.Duration // a request works on many jobs; another one goes on
}

// public are those of the requests of others.
var public = limits{look: time.Second, groups: 10 * time.Second, many: 20 * time.Second}

// asking is how many questions of a request are under way at a time.
const asking = 8

// look bounds for how long somebody who looks waits for pools.
func (s *server) look(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeout(ctx, s.limits.look)
}

// gather asks for what there is of a tenant and a pool, or of all, as far as the grant reaches. Each pool
// has within; those that have not answered then are missing.
func gather[T any](ctx context.Context, tenant, pool string, within time.Duration, ask func(context.Context, scope) ([]T, error)) ([]T, error) {
	scopes, err := narrow(ctx, tenant, pool)
	if err != nil {
		return nil, err
	}
	parts, errs := make([][]T, len(scopes)), make([]error, len(scopes))
	var group sync.WaitGroup
	free := make(chan struct{}, asking)
	for i, of := range scopes {
		group.Go(func() {
			free <- struct{}{}
			defer func() { <-free }()
			ctx, cancel := context.WithTimeout(ctx, within)
			defer cancel()
			parts[i], errs[i] = ask(ctx, of)
		})
	}
	group.Wait()
	return slices.Concat(parts...), errors.Join(errs...)
}

// findBatch is a batch that the grant reaches.
func (s *server) findBatch(ctx context.Context, id job.ID) (operate.BatchStatus, error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	b, err := s.operator.Batches().Get(ctx, id)
	if err == nil && !sees(ctx, tenancy.ID(b.Tenant), b.Pool) {
		err = hidden
	}
	return b, err
}

// findOperation is an operation all of which the grant reaches.
func (s *server) findOperation(ctx context.Context, id uuid.UUID) ([]operate.OperationStatus, error) {
	parts, err := s.operator.Operations().Get(ctx, id)
	if slices.ContainsFunc(parts, func(o operate.OperationStatus) bool { return !sees(ctx, tenancy.ID(o.Filter.Tenant), o.Pool) }) {
		return nil, hidden
	}
	return parts, err
}

// limit is the limit that is meant, if the grant reaches it.
func (s *server) limit(ctx context.Context, of *LimitOf) (operate.Limit, error) {
	l := operate.Limit{Tenant: tenancy.ID(of.Tenant), Kind: of.Kind, Queue: of.Queue, Key: of.Key, EachKey: of.EachKey}
	if of.EveryTenant == (of.Tenant != "") {
		return l, huma.Error422UnprocessableEntity("say whose limit it is: a tenant's or every_tenant, one of them")
	}
	if of.EveryTenant {
		l.Tenant = operate.EveryTenant
	}
	return l, s.changeable(ctx, l.Tenant)
}

// changeable refuses schedules that the grant does not reach.
func (s *server) changeable(ctx context.Context, id tenancy.ID) error {
	if id == operate.EveryTenant {
		return forEveryone(ctx)
	}
	if err := id.Validate(); err != nil {
		return huma.Error422UnprocessableEntity(err.Error())
	}
	return s.seeTenant(ctx, id)
}

func (s *server) changeSchedule(ctx context.Context, of named, do func(*operate.Schedules, context.Context, tenancy.ID, string) error) error {
	id, name := of.schedule()
	if err := s.changeable(ctx, id); err != nil {
		return err
	}
	return do(s.operator.Schedules(), ctx, id, name)
}
