// Package access says who a request comes from and what they may do.
//
// It decides nothing by itself: handlers ask the [Grant] of a request's context before they
// answer. A request without a grant may do nothing. Safe for concurrent use.
package access

import (
	"context"
	"slices"

	"github.com/tenurehq/tenure/tenancy"
)

// Role is how much somebody may do; each role may do what the ones below it may.
type Role int

// The roles. None of them shows jobs' arguments and outputs: see [Grant.Args].
const (
	None    Role = iota // nothing
	Read                // look at everything
	Operate             // enqueue, cancel, retry, suspend, pause
	Admin               // freeze pools, change limits and weights, move tenants
)

// String is the role's name in configurations.
func (r Role) String() string {
	switch r {
	case Read:
		return "read"
	case Operate:
		return "operate"
	case Admin:
		return "admin"
	default:
		return "none"
	}
}

// ParseRole is the role of that name, if there is one that allows anything.
func ParseRole(name string) (Role, bool) {
	for _, r := range []Role{Read, Operate, Admin} {
		if r.String() == name {
			return r, true
		}
	}
	return None, false
}

// Grant is what the sender of a request may do. The zero Grant may do nothing.
type Grant struct {
	Name     string       // of the token or user
	Source   Source       // who says so
	Role     Role         //
	Tenants  []tenancy.ID // the only ones whose jobs it may see and change; empty: all
	Pools    []string     // the only ones that it may see and change; empty: all
	Args     bool         // it may see the arguments and outputs of the jobs that it may see
	SignedIn bool         // it is somebody's who signed in, and can sign out
}

// Source is by what somebody is known. Names of different ones may be the same and are of different people.
type Source string

// The sources of grants.
const (
	OfToken Source = "token"
	OfProxy Source = "proxy"
	OfOIDC  Source = "oidc"
)

// Who is what the audit calls the sender: no name of one source can be taken for one of another.
func (g Grant) Who() string {
	if g.Source == "" {
		return g.Name
	}
	return string(g.Source) + ":" + g.Name
}

// May says whether the grant's role is at least role.
func (g Grant) May(role Role) bool { return g.Role >= role && role != None }

// SeesTenant says whether the grant reaches a tenant. "" is what belongs to no tenant, which
// only grants without a list of tenants reach.
func (g Grant) SeesTenant(id tenancy.ID) bool {
	return g.Role != None && (len(g.Tenants) == 0 || slices.Contains(g.Tenants, id))
}

// SeesPool says whether the grant reaches a pool.
func (g Grant) SeesPool(pool string) bool {
	return g.Role != None && (len(g.Pools) == 0 || slices.Contains(g.Pools, pool))
}

// Sees says whether the grant reaches a tenant and the pool that it is in.
func (g Grant) Sees(id tenancy.ID, pool string) bool { return g.SeesTenant(id) && g.SeesPool(pool) }

// IsUnlimited says whether the grant reaches all tenants and pools.
func (g Grant) IsUnlimited() bool {
	return g.Role != None && len(g.Tenants) == 0 && len(g.Pools) == 0
}

type grantKey struct{}

// With returns a context that carries a grant.
func With(ctx context.Context, g Grant) context.Context {
	return context.WithValue(ctx, grantKey{}, g)
}

// From is the grant that a context carries, or the zero Grant.
func From(ctx context.Context) Grant {
	g, _ := ctx.Value(grantKey{}).(Grant)
	return g
}
