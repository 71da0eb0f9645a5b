package dashboard

import (
	"cmp"
	"context"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// tenantRow is a tenant with what it waits for.
type tenantRow struct {
	operate.TenantStatus
	Why    operate.TenantExplanation
	Known  bool // Why was answered in time
	Limits int
}

// tenantsShown is how many tenants there are on a page: each is asked for by itself.
const tenantsShown = 40

type tenantsBody struct {
	Query   string
	Busiest bool // only those whose jobs wait, on one page
	Rows    []tenantRow
	Pages   pages
}

func tenantsPage(v *visit) (view, error) {
	query, after, busiest := v.FormValue("q"), v.after(), v.FormValue("by") == "work"
	var all []operate.TenantStatus
	var limits []operate.LimitStatus
	together(func() { all = listTenants(v) }, func() { limits = listLimits(v) })
	all = slices.DeleteFunc(all, func(s operate.TenantStatus) bool { return !strings.Contains(string(s.Tenant), query) })
	if busiest {
		all = keepBusiest(v, all)
	}
	total, next := number(int64(len(all))), ""
	all = slices.DeleteFunc(all, func(s operate.TenantStatus) bool { return !busiest && string(s.Tenant) <= after })
	if len(all) > tenantsShown {
		all = all[:tenantsShown]
		next = string(all[tenantsShown-1].Tenant)
	}
	body := tenantsBody{Query: query, Busiest: busiest, Pages: v.newPages("/tenants", len(all), tenantsShown, total, next, "q", query)}
	body.Rows = explainTenants(v, all)
	for i := range body.Rows {
		row := &body.Rows[i]
		row.Limits = len(limitsOf(limits, row.Tenant))
	}
	return view{Page: "tenants", Title: titled("Tenants", "with", query), Body: body}, nil
}

// keepBusiest keeps the tenants whose jobs wait, on one page, those with the most first.
func keepBusiest(v *visit, all []operate.TenantStatus) (busy []operate.TenantStatus) {
	loads, err := v.op.Tenants().Busiest(v.ctx, operate.LoadFilter{Tenants: v.grant.Tenants})
	v.missing("", err)
	for _, l := range loads {
		i := slices.IndexFunc(all, func(s operate.TenantStatus) bool { return s.Tenant == l.Tenant && s.Pool == l.Pool })
		if i >= 0 {
			busy = append(busy, all[i])
		}
		if len(busy) == tenantsShown {
			break
		}
	}
	return busy
}

// listTenants are the tenants that the visitor may see, each once where it lives, or wherever it is
// known if nobody says so.
func listTenants(v *visit) []operate.TenantStatus {
	all, err := v.op.Tenants().List(v.ctx)
	v.missing("", err)
	all = slices.DeleteFunc(all, func(s operate.TenantStatus) bool {
		return s.State == "moved" || !v.sees(s.Pool, string(s.Tenant))
	})
	return all
}

// grantedTenants are the tenants that the visitor may see because they are listed for him.
func grantedTenants(v *visit) (out []operate.TenantStatus) {
	for _, id := range v.grant.Tenants {
		out = append(out, operate.TenantStatus{Tenant: id})
	}
	return out
}

func explainTenants(v *visit, all []operate.TenantStatus) []tenantRow {
	rows := make([]tenantRow, len(all))
	var questions []func()
	for i, s := range all {
		rows[i].TenantStatus = s
		questions = append(questions, func() {
			explain := v.op.Tenants().Explain
			if s.State == "stray" {
				explain = func(ctx context.Context, id tenancy.ID) (operate.TenantExplanation, error) {
					return v.op.Tenants().ExplainStray(ctx, id, s.Pool)
				}
			}
			why, err := explain(v.ctx, s.Tenant)
			rows[i].Why, rows[i].Known = asSeen(v, why.Reason, why), err == nil && v.grant.SeesPool(why.Pool)
			rows[i].Pool = cmp.Or(s.Pool, why.Pool)
		})
	}
	together(questions...)
	return rows
}

// asSeen is an explanation as far as it is for the visitor.
func asSeen[E interface{ Bounded() E }](v *visit, why operate.WaitReason, e E) E {
	if why == operate.WaitsForDatabase || !v.grant.IsUnlimited() {
		return e.Bounded()
	}
	return e
}

func listLimits(v *visit) []operate.LimitStatus {
	all, err := v.op.Limits().List(v.ctx)
	v.missing("", err)
	return all
}

// limitsOf are a tenant's own limits.
func limitsOf(all []operate.LimitStatus, id tenancy.ID) (own []operate.LimitStatus) {
	for _, l := range all {
		if l.Tenant == id {
			own = append(own, l)
		}
	}
	return own
}

type tenantBody struct {
	tenantRow
	Own   []operate.LimitStatus
	Every []operate.LimitStatus // those for every tenant, and of all together, in its pool
}

func tenantPage(v *visit) (view, error) {
	id := tenancy.ID(v.FormValue("id"))
	if err := checkTenant(v, id); err != nil {
		return view{}, err
	}
	var body tenantBody
	var all []operate.TenantStatus
	var limits []operate.LimitStatus
	var err error
	together(func() { all = listTenants(v) }, func() { limits = listLimits(v) },
		func() { body.Why, err = v.op.Tenants().Explain(v.ctx, id) })
	if errors.Is(err, tenure.ErrUnknownTenant) || err == nil && !v.grant.SeesPool(body.Why.Pool) {
		return view{}, notFound("tenant")
	}
	if err != nil && len(v.grant.Pools) > 0 { // it may live in a pool that is not to be seen
		return view{}, &statusError{http.StatusServiceUnavailable, "It was not answered in time where this tenant lives: try again."}
	}
	v.missing("", err)
	body.Why, body.Known = asSeen(v, body.Why.Reason, body.Why), err == nil
	body.Why.Text += v.whoFroze(body.Why.Frozen)
	body.TenantStatus = operate.TenantStatus{Tenant: id, Pool: body.Why.Pool, State: "unknown"}
	if body.Known && body.Why.Reason != operate.WaitsForDatabase {
		body.State, body.Weight = "active", 1
	}
	for _, s := range all {
		if s.Tenant == id && s.Pool == body.Why.Pool {
			body.TenantStatus = s
		}
	}
	body.Own = limitsOf(limits, id)
	others := limitsOf(limits, operate.EveryTenant)
	if v.grant.SeesTenant("") { // what all tenants do together is no single one's business
		others = append(others, limitsOf(limits, operate.AllTenants)...)
	}
	for _, l := range others {
		if l.Pool == body.Pool {
			body.Every = append(body.Every, l)
		}
	}
	return view{Page: "tenant", Title: "Tenant " + string(id), Body: body}, nil
}

// checkTenant refuses tenants that cannot be, and those of others alike.
func checkTenant(v *visit, id tenancy.ID) error {
	if id.Validate() != nil || !v.grant.SeesTenant(id) {
		return notFound("tenant")
	}
	return nil
}
