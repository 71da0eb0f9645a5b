// Package workers is what workers outside the cluster, in whichever dialect they speak, may do with
// the grant that their request's context carries. What that does not reach is not there: its jobs are
// neither acquired nor found.
package workers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// Workers acquires, finds and lists what a grant reaches. The methods that end jobs are those of
// [external.Workers], which know no grants: whoever calls them has found the job before. Safe for
// concurrent use.
type Workers struct {
	*external.Workers
	operator *operate.Operator
}

// ErrNoArgs is that a grant shows no arguments, which workers are handed with the jobs.
var ErrNoArgs = errors.New("a worker is handed the jobs' arguments: this needs a token with args: true")

// New returns what workers work with in the pools of a client, which has to be started.
func New(client *tenure.Client) *Workers {
	return &Workers{client.ExternalWorkers(), client.Operator()}
}

// Acquire locks jobs of those tenants that r names, each of which has to be reached, else of all that
// are. [ErrNoArgs].
func (w *Workers) Acquire(ctx context.Context, r external.AcquireRequest) ([]external.Job, error) {
	if !access.From(ctx).Args {
		return nil, ErrNoArgs
	}
	tenants, err := w.tenants(ctx, r.Tenants)
	if err != nil {
		return nil, err
	}
	r.Tenants = tenants
	jobs, err := w.Workers.Acquire(ctx, r)
	g := access.From(ctx)
	var foreign []external.Lock // of tenants that were moved to a pool which the grant does not reach
	jobs = slices.DeleteFunc(jobs, func(j external.Job) bool {
		if g.Sees(j.Tenant, j.Pool) {
			return false
		}
		foreign = append(foreign, j.Lock)
		return true
	})
	if len(foreign) > 0 {
		_ = w.Release(ctx, foreign...) // else their locks expire
	}
	return jobs, err
}

// tenants are those whose jobs may be acquired. None: any tenant's.
func (w *Workers) tenants(ctx context.Context, asked []tenancy.ID) ([]tenancy.ID, error) {
	g := access.From(ctx)
	for _, id := range asked {
		if err := w.SeeTenant(ctx, id); err != nil {
			return nil, err
		}
	}
	switch {
	case len(asked) > 0:
		return asked, nil
	case len(g.Pools) == 0:
		return g.Tenants, nil
	}
	all, err := w.operator.Tenants().ListPresent(ctx)
	var reached []tenancy.ID
	for _, t := range all {
		if g.Sees(t.Tenant, t.Pool) {
			reached = append(reached, t.Tenant)
		}
	}
	if len(reached) == 0 {
		return nil, errors.Join(tenure.ErrNotFound, err)
	}
	return reached, nil
}

// SeeTenant refuses a tenant that the grant does not reach. Where that depends on its pool, the
// pool that it lives in counts.
func (w *Workers) SeeTenant(ctx context.Context, id tenancy.ID) error {
	g := access.From(ctx)
	if !g.SeesTenant(id) {
		return tenure.ErrNotFound
	}
	if len(g.Pools) == 0 {
		return nil
	}
	pool, err := w.operator.Tenants().Home(ctx, id)
	if errors.Is(err, tenure.ErrUnknownTenant) || err == nil && !g.SeesPool(pool) {
		err = tenure.ErrNotFound // the same for both: else it would tell who lives in other pools
	}
	return err
}

// Find returns an unfinished job and who has locked it. ErrNotFound as of [external.Workers.Find].
func (w *Workers) Find(ctx context.Context, id job.ID) (external.Status, error) {
	s, err := w.Workers.Find(ctx, id)
	if err == nil && !access.From(ctx).Sees(s.Tenant, s.Pool) {
		return external.Status{}, fmt.Errorf("job %d: %w", id, tenure.ErrNotFound)
	}
	return s, err
}

// List lists unfinished jobs. f names at most tenants and pools that are to be looked at of those that
// are reached; it has to leave Pools empty.
func (w *Workers) List(ctx context.Context, f external.Filter) ([]external.Status, int, error) {
	g := access.From(ctx)
	f.Pools = g.Pools
	switch {
	case g.Role == access.None:
		return nil, 0, nil
	case len(f.Tenants) == 0:
		f.Tenants = g.Tenants
	default:
		f.Tenants = slices.DeleteFunc(slices.Clone(f.Tenants), func(id tenancy.ID) bool { return !g.SeesTenant(id) })
		if len(f.Tenants) == 0 {
			return nil, 0, nil
		}
	}
	return w.Workers.List(ctx, f)
}
