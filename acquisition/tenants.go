package acquisition

import (
	"context"
	"fmt"

	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/schedule"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// homes finds out where the tenants of lanes live.
type homes struct {
	place
	*work
	router *routing.Router
	sweep  *duty // of the rereader

	applied    int64           // how many configurations had come into force when tenants were resolved
	unroutable map[string]bool // tenants already logged as unroutable, mostNamed at most
}

// mostNamed bounds how many tenants a term names that nobody routes: SQL can make up any number.
const mostNamed = 1000

// resolve resolves a lane's tenant, once between two sweeps; nil: it cannot be now, which is
// logged once, as it is found again with every discovery.
func (hs *homes) resolve(ctx context.Context, l *schedule.Lane) *tenancy.Tenant {
	home, err := hs.lookUp(ctx, l)
	if err == nil {
		delete(hs.unroutable, l.Tenant)
		return home
	}
	if !hs.unroutable[l.Tenant] && len(hs.unroutable) < mostNamed {
		hs.unroutable[l.Tenant] = true
		hs.log.Warn("jobs wait because their tenant is unroutable", zap.String("tenant", l.Tenant), zap.Error(err))
		if len(hs.unroutable) == mostNamed {
			hs.log.Warn("many tenants with jobs are unroutable, and no more of them are named here; `tenure tenants list` has all", zap.Int("tenants", mostNamed))
		}
	}
	return nil
}

func (hs *homes) lookUp(ctx context.Context, l *schedule.Lane) (*tenancy.Tenant, error) {
	if home := l.Home(); home != nil {
		return home, nil
	}
	tenant, pool, err := resolveTenant(ctx, hs.router, hs.pool, tenancy.ID(l.Tenant))
	if err != nil {
		return nil, err
	}
	if pool != hs.pool {
		return nil, fmt.Errorf("tenant %q lives in pool %q, but has jobs in pool %q: tenure tenants move %[1]s --to %[2]s brings them there; or correct its route", l.Tenant, pool.Name, hs.pool.Name)
	}
	l.SetHome(&tenant)
	return &tenant, nil
}

// resolveTenant finds the pool of a tenant that has jobs in one. Another one may be what it was before
// the tenant was moved here.
func resolveTenant(ctx context.Context, r *routing.Router, here *routing.Pool, id tenancy.ID) (tenancy.Tenant, *routing.Pool, error) {
	tenant, pool, err := r.Resolve(ctx, id)
	if err == nil && pool != here {
		r.Forget(id)
		tenant, pool, err = r.Resolve(ctx, id)
	}
	return tenant, pool, err
}

// areOutdated tells whether another configuration has come into force.
func (hs *homes) areOutdated() bool { return hs.router.Applied() != hs.applied }

// forgetAll has every tenant resolved again. What was read of jobs in quarantine goes by where
// tenants lived, too, and is read again.
func (hs *homes) forgetAll() {
	hs.applied = hs.router.Applied()
	hs.lanes.ForgetHomes()
	for q := range hs.quarantine.Waiting() {
		hs.lanes.RereadFrom(q.Lane.Lane, q.Position)
	}
	hs.clearQuarantine()
}

// followRoutes heeds that tenants may live elsewhere now.
func (hs *homes) followRoutes() {
	hs.forgetAll()
	hs.sweep.ask()
}
