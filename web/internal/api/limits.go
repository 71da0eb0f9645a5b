package api

import (
	"context"
	"time"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type limitOut struct {
	Tenant      string     `json:"tenant,omitempty"`
	EveryTenant bool       `json:"every_tenant" doc:"each tenant has it, unless one was set for itself"`
	AllTenants  bool       `json:"all_tenants" doc:"all tenants have it together, in all pools, by the nodes' configuration; this is the pool's share"`
	Kind        string     `json:"kind,omitempty"`
	Queue       string     `json:"queue,omitempty"`
	Key         string     `json:"key,omitempty" doc:"an exclusive one"`
	EachKey     bool       `json:"each_key" doc:"each exclusive key has it"`
	MaxRunning  int        `json:"max_running" doc:"0: any number; -1: none, as the pool has no share"`
	Rate        int        `json:"rate" doc:"0: any number"`
	PerMS       int64      `json:"per_ms"`
	Burst       int        `json:"burst"`
	MaxWaiting  int        `json:"max_waiting" doc:"jobs that wait or run before more are refused; 0: any number. It is set with the tenant"`
	Running     int        `json:"running"`
	NextStart   *time.Time `json:"next_start,omitempty" doc:"when the rate lets the next job start; none: now"`
	Pool        string     `json:"pool"`
	Whole       *wholeOut  `json:"whole,omitempty" doc:"with all_tenants: what all pools have together"`
}

// wholeOut is the limit of which a pool has a share.
type wholeOut struct {
	MaxRunning int   `json:"max_running" doc:"0: any number"`
	Rate       int   `json:"rate" doc:"0: any number"`
	PerMS      int64 `json:"per_ms"`
}

type listLimitsIn struct {
	Tenant string `query:"tenant" doc:"only those that bind this tenant: its own, and in its pool those for every tenant and of all together"`
}

func listLimits(ctx context.Context, s *server, in *listLimitsIn) (*list[limitOut], error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	var home string
	if in.Tenant != "" {
		err := s.seeTenant(ctx, tenancy.ID(in.Tenant))
		if err == nil {
			home, err = s.operator.Tenants().Home(ctx, tenancy.ID(in.Tenant))
		}
		if err != nil {
			return nil, err
		}
	}
	all, err := s.operator.Limits().List(ctx)
	g := access.From(ctx)
	homes := map[string]bool{} // of the tenants that the grant reaches, unless those are all
	for _, id := range g.Tenants {
		if home, err := s.operator.Tenants().Home(ctx, id); err == nil {
			homes[home] = true
		}
	}
	var out []limitOut
	for _, l := range all {
		if home != "" && string(l.Tenant) != in.Tenant && (l.Pool != home || l.Tenant != operate.EveryTenant && l.Tenant != operate.AllTenants) {
			continue
		}
		o := limitOut{string(l.Tenant), l.Tenant == operate.EveryTenant, l.Tenant == operate.AllTenants, l.Kind, l.Queue, l.Key, l.EachKey, l.MaxRunning, l.Rate, l.Per.Milliseconds(), l.Burst, l.MaxWaiting, l.Running, timeOrNone(l.NextStart), l.Pool, nil}
		if o.EveryTenant || o.AllTenants {
			o.Tenant = ""
		}
		if w := l.Whole; w != nil {
			o.Whole = &wholeOut{w.MaxRunning, w.Rate, w.Per.Milliseconds()}
		}
		if g.SeesPool(l.Pool) && (o.EveryTenant && (g.SeesTenant("") || homes[l.Pool]) || sees(ctx, l.Tenant, l.Pool)) {
			out = append(out, o)
		}
	}
	return listOf(out, err)
}

// LimitOf is which limit is meant: of all of a tenant's jobs, or of a kind, a queue or exclusive keys.
type LimitOf struct {
	Tenant      string `json:"tenant,omitempty" query:"tenant" minLength:"1"`
	EveryTenant bool   `json:"every_tenant,omitempty" query:"every_tenant"`
	Kind        string `json:"kind,omitempty" query:"kind"`
	Queue       string `json:"queue,omitempty" query:"queue"`
	Key         string `json:"key,omitempty" query:"key" doc:"an exclusive one: a rate only"`
	EachKey     bool   `json:"each_key,omitempty" query:"each_key" doc:"each exclusive key: a rate only"`
}

type setLimitIn struct {
	Body struct {
		LimitOf
		MaxRunning int   `json:"max_running,omitempty" minimum:"0" maximum:"1000000" doc:"jobs in flight at a time; 0: any number"`
		Rate       int   `json:"rate,omitempty" minimum:"0" maximum:"1000000" doc:"starts in each period; 0: any number"`
		PerMS      int64 `json:"per_ms,omitempty" minimum:"0" maximum:"86400000" doc:"the period of the rate; a second by default"`
		Burst      int   `json:"burst,omitempty" minimum:"0" maximum:"1000000" doc:"starts at once after a pause; 1 by default"`
	}
}

func setLimit(ctx context.Context, s *server, in *setLimitIn) (*none, error) {
	b := &in.Body
	l, err := s.limit(ctx, &b.LimitOf)
	if err != nil {
		return nil, err
	}
	l.MaxRunning, l.Rate, l.Per, l.Burst = b.MaxRunning, b.Rate, time.Duration(b.PerMS)*time.Millisecond, b.Burst
	return nil, s.operator.Limits().Set(ctx, l)
}

func deleteLimit(ctx context.Context, s *server, in *LimitOf) (*none, error) {
	l, err := s.limit(ctx, in)
	if err != nil {
		return nil, err
	}
	return nil, s.operator.Limits().Delete(ctx, l)
}
