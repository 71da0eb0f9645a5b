package tenure

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// FreezeTenant keeps a tenant's jobs from being started until [Client.ThawTenant]; what
// is running goes on, and jobs can be enqueued. When it returns none is claimed any more.
func (c *Client) FreezeTenant(ctx context.Context, id tenancy.ID) error {
	return c.freezeTenant(ctx, id, true)
}

// ThawTenant ends a [Client.FreezeTenant].
func (c *Client) ThawTenant(ctx context.Context, id tenancy.ID) error {
	return c.freezeTenant(ctx, id, false)
}

func (c *Client) freezeTenant(ctx context.Context, id tenancy.ID, frozen bool) error {
	for tries := 1; ; tries++ {
		_, pool, err := c.resolve(ctx, id)
		if err != nil {
			return err
		}
		err = store.FreezeTenant(ctx, pool.Jobs(), string(id), frozen)
		var busy *store.TenantBusyError
		switch {
		case errors.As(err, &busy) && busy.State == store.TenantMoved && tries <= maxFollowed:
			c.router.Forget(id)
		case errors.As(err, &busy):
			return &inputError{fmt.Errorf("tenant %q is being moved between pools %s and %s: let that come to its end first", id, pool.Name, busy.Other)}
		case err != nil:
			return fmt.Errorf("pool %s: %w", pool.Name, err)
		default:
			if !frozen {
				c.ringTenant(ctx, pool, id)
			}
			return nil
		}
	}
}

// ringTenant tells a pool's holder where a tenant's jobs wait. That it fails is no
// reason to fail: the holder looks by itself.
func (c *Client) ringTenant(ctx context.Context, p *routing.Pool, id tenancy.ID) {
	h := hint{pool: p.Name, lanes: map[store.Lane]struct{}{}, dueIn: time.Millisecond}
	lanes, _ := store.Move{Tenant: string(id)}.Lanes(ctx, p.Jobs())
	for _, l := range lanes {
		h.lanes[l] = struct{}{}
	}
	c.bell.ring(h)
}

// TenantStatus is a tenant as a pool has it.
type TenantStatus struct {
	Tenant tenancy.ID
	Pool   string
	// State is active, frozen, moving, held (moving, and its data can be copied), moved,
	// arriving, or stray: it lives elsewhere and has jobs here, which do not run until it
	// is moved to where it lives.
	State string
	Other string // the other pool of a move
}

// Tenants lists the tenants of every pool: those that the configuration lists, those
// with unfinished jobs, and those that were frozen or moved.
func (c *Client) Tenants(ctx context.Context) ([]TenantStatus, error) {
	out, err := gather(ctx, c.router.Pools(), c.tenantsIn)
	slices.SortStableFunc(out, func(a, b TenantStatus) int { return strings.Compare(string(a.Tenant), string(b.Tenant)) })
	return out, err
}

// maxTenants bounds how many tenants with jobs are looked for in one pool.
const maxTenants = 10_000

func (c *Client) tenantsIn(ctx context.Context, p *routing.Pool) ([]TenantStatus, error) {
	if _, err := p.Number(); err != nil {
		return nil, err
	}
	rows, err := store.TenantRows(ctx, p.Jobs())
	if err != nil {
		return nil, err
	}
	busy, err := store.TenantsWithJobs(ctx, p.Jobs(), maxTenants, nil)
	if err != nil {
		return nil, err
	}
	var out []TenantStatus
	seen := map[tenancy.ID]bool{}
	add := func(id tenancy.ID, state, other string) {
		if !seen[id] {
			seen[id] = true
			out = append(out, TenantStatus{Tenant: id, Pool: p.Name, State: state, Other: other})
		}
	}
	for _, r := range rows {
		state := r.State
		if state == store.TenantActive {
			if state = "frozen"; !r.Frozen {
				continue // it is listed below, if it lives here
			}
		}
		if r.Held {
			state = "held"
		}
		add(tenancy.ID(r.Tenant), state, r.Other)
	}
	for _, name := range busy {
		id := tenancy.ID(name)
		switch _, home, err := c.router.Resolve(ctx, id); {
		case err == nil && home == p:
			add(id, store.TenantActive, "")
		default:
			add(id, "stray", "")
		}
	}
	for _, id := range c.router.Listed() {
		if _, home, err := c.router.Resolve(ctx, id); err == nil && home == p {
			add(id, store.TenantActive, "")
		}
	}
	return out, nil
}
