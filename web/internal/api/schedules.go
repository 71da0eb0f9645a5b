package api

import (
	"cmp"
	"context"
	"encoding/json"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

// ScheduleOut is a schedule, exported for huma as [JobOut] is.
type ScheduleOut struct {
	Name        string          `json:"name"`
	Tenant      string          `json:"tenant,omitempty"`
	EveryTenant bool            `json:"every_tenant" doc:"all have it; it is listed in each pool, and for each tenant besides"`
	Pool        string          `json:"pool" doc:"empty of one for every tenant, for tokens that do not reach all tenants"`
	State       string          `json:"state" doc:"active, paused or ended"`
	Origin      string          `json:"origin" doc:"set, config, or every: a tenant's own of one for every tenant"`
	Kind        string          `json:"kind"`
	Queue       string          `json:"queue"`
	Priority    int             `json:"priority"`
	MaxAttempts int             `json:"max_attempts" doc:"0: the kind's"`
	External    bool            `json:"external" doc:"workers outside the cluster run its jobs"`
	Args        json.RawMessage `json:"args,omitempty" doc:"for tokens with args: true only"`
	Meta        json.RawMessage `json:"meta,omitempty" doc:"likewise"`
	Rule        string          `json:"rule"`
	TimeZone    string          `json:"time_zone"`
	End         *time.Time      `json:"end,omitempty"`
	Missed      string          `json:"missed"`
	Wait        bool            `json:"wait"`
	JitterMS    int64           `json:"jitter_ms"`
	Next        *time.Time      `json:"next,omitempty"`
	Last        *time.Time      `json:"last,omitempty"`
	LastJob     string          `json:"last_job,omitempty"`
}

type scheduleOfAllOut struct {
	ScheduleOut
	Reach []reachOut `json:"reach,omitempty" doc:"for whom it stands, by pool; for tokens that reach all tenants only"`
}

type reachOut struct {
	Pool    string       `json:"pool"`
	Has     []tenancy.ID `json:"has" nullable:"false"`
	Own     []tenancy.ID `json:"own" nullable:"false" doc:"have one of that name by themselves"`
	Lack    []tenancy.ID `json:"lack" nullable:"false" doc:"have none yet: the holder of the pool's lock gives it to them within a minute"`
	Unknown []tenancy.ID `json:"unknown" nullable:"false" doc:"have jobs and do not get it, as no rule knows them"`
}

func newSchedule(ctx context.Context, s *server, d *operate.ScheduleStatus) ScheduleOut {
	out := ScheduleOut{d.Name, string(d.Tenant), false, d.Pool, "active", d.Origin, d.Kind, d.Queue, int(d.Priority), d.MaxAttempts, d.External, s.reveal.ScheduleArgs(ctx, d.Kind, d.Payload), nil, d.Rule, cmp.Or(d.TimeZone, "UTC"),
		timeOrNone(d.End), string(d.Missed), d.Wait, d.Jitter.Milliseconds(), timeOrNone(d.Next), timeOrNone(d.Last), ""}
	if d.Tenant == operate.EveryTenant {
		out.Tenant, out.EveryTenant = "", true
		if !access.From(ctx).SeesTenant("") {
			out.Pool = ""
		}
	}
	if access.From(ctx).Args {
		out.Meta = d.Meta
	}
	if d.LastJob != 0 {
		out.LastJob = strconv.FormatInt(int64(d.LastJob), 10)
	}
	switch {
	case d.Paused:
		out.State = "paused"
	case d.Next.IsZero() && !out.EveryTenant:
		out.State = "ended"
	}
	return out
}

type schedulesIn struct {
	Tenant      string `query:"tenant"`
	EveryTenant bool   `query:"every_tenant" doc:"only those for every tenant"`
	Name        string `query:"name"`
}

func listSchedules(ctx context.Context, s *server, in *schedulesIn) (*list[ScheduleOut], error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	f := operate.ScheduleFilter{Tenant: tenancy.ID(in.Tenant), Name: in.Name}
	if in.EveryTenant {
		f.Tenant = operate.EveryTenant
	}
	all, err := s.operator.Schedules().List(ctx, f)
	var out []ScheduleOut
	for i := range all {
		if seesSchedule(ctx, all[:i], &all[i]) {
			out = append(out, newSchedule(ctx, s, &all[i]))
		}
	}
	return listOf(out, err)
}

// seesSchedule tells whether a schedule, before which others were listed, is to be seen. One for every tenant is for all to
// see, as theirs come of it; who does not reach all tenants, and so no pools, sees it once.
func seesSchedule(ctx context.Context, before []operate.ScheduleStatus, d *operate.ScheduleStatus) bool {
	g := access.From(ctx)
	if !g.SeesPool(d.Pool) || d.Tenant != operate.EveryTenant {
		return g.SeesPool(d.Pool) && sees(ctx, d.Tenant, d.Pool)
	}
	return g.SeesTenant("") || !slices.ContainsFunc(before, func(o operate.ScheduleStatus) bool {
		return o.Tenant == d.Tenant && o.Name == d.Name && g.SeesPool(o.Pool)
	})
}

// ScheduleOf is which schedule is meant, exported for huma as [JobOut] is.
type ScheduleOf struct {
	Tenant string `path:"tenant"`
	Name   string `path:"name"`
}

// ScheduleOfAll is which schedule for every tenant is meant.
type ScheduleOfAll struct {
	Name string `path:"name"`
}

// named is a path that names a schedule.
type named interface {
	schedule() (tenancy.ID, string)
}

func (o *ScheduleOf) schedule() (tenancy.ID, string) { return tenancy.ID(o.Tenant), o.Name }

func (o *ScheduleOfAll) schedule() (tenancy.ID, string) { return operate.EveryTenant, o.Name }

func getSchedule(ctx context.Context, s *server, in *ScheduleOf) (*object[ScheduleOut], error) {
	return findSchedule(ctx, s, in)
}

func getScheduleOfAll(ctx context.Context, s *server, in *ScheduleOfAll) (*object[scheduleOfAllOut], error) {
	found, err := findSchedule(ctx, s, in)
	if err != nil {
		return nil, err
	}
	out := &object[scheduleOfAllOut]{scheduleOfAllOut{ScheduleOut: found.Body}}
	if g := access.From(ctx); g.SeesTenant("") {
		reach, err := s.operator.Schedules().Reach(ctx, in.Name)
		s.note(err)
		for _, r := range reach {
			if g.SeesPool(r.Pool) {
				all := func(ids []tenancy.ID) []tenancy.ID { return append([]tenancy.ID{}, ids...) }
				out.Body.Reach = append(out.Body.Reach, reachOut{r.Pool, all(r.Has), all(r.Own), all(r.Lack), all(r.Unknown)})
			}
		}
	}
	return out, nil
}

func findSchedule(ctx context.Context, s *server, in named) (*object[ScheduleOut], error) {
	id, name := in.schedule()
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Schedules().List(ctx, operate.ScheduleFilter{Tenant: id, Name: name})
	for i := range all {
		if seesSchedule(ctx, nil, &all[i]) {
			return &object[ScheduleOut]{newSchedule(ctx, s, &all[i])}, nil
		}
	}
	return nil, cmp.Or(err, operate.ErrNoSchedule)
}

// ScheduleBody is what a schedule is to be; what is left out has its default.
type ScheduleBody struct {
	Kind        string          `json:"kind" minLength:"1"`
	Args        json.RawMessage `json:"args"`
	Rule        string          `json:"rule" minLength:"1" maxLength:"256" doc:"cron (0 7 * * 1-5), an interval (@every 15m, PT15M), or an ISO 8601 repeat"`
	TimeZone    string          `json:"time_zone,omitempty" doc:"whose clocks count, such as Europe/Amsterdam; UTC by default"`
	End         *time.Time      `json:"end,omitempty" doc:"the last time at which it can be due"`
	Missed      string          `json:"missed,omitempty" enum:"skip,one,all" doc:"what becomes of runs that nobody could make when they were due; one by default"`
	Wait        bool            `json:"wait,omitempty" doc:"a run waits until the job of the one before has ended"`
	JitterMS    int64           `json:"jitter_ms,omitempty" minimum:"0" maximum:"86400000" doc:"for every tenant: over how long the tenants' runs are spread"`
	Queue       string          `json:"queue,omitempty"`
	Priority    int             `json:"priority,omitempty" minimum:"-1000" maximum:"1000"`
	MaxAttempts int             `json:"max_attempts,omitempty" minimum:"0" maximum:"1000" doc:"0: the kind's"`
	External    bool            `json:"external,omitempty" doc:"workers outside the cluster run its jobs"`

	Meta map[string]json.RawMessage `json:"meta,omitempty" doc:"an object that is kept beside the arguments of its jobs"`
}

type setScheduleIn struct {
	ScheduleOf
	Body ScheduleBody
}

type setScheduleOfAllIn struct {
	ScheduleOfAll
	Body ScheduleBody
}

type setScheduleOut struct {
	Next *time.Time `json:"next,omitempty" doc:"when it is due; none: each tenant has it within a minute"`
}

func setSchedule(ctx context.Context, s *server, in *setScheduleIn) (*object[setScheduleOut], error) {
	return putSchedule(ctx, s, &in.ScheduleOf, &in.Body)
}

func setScheduleOfAll(ctx context.Context, s *server, in *setScheduleOfAllIn) (*object[setScheduleOut], error) {
	return putSchedule(ctx, s, &in.ScheduleOfAll, &in.Body)
}

func putSchedule(ctx context.Context, s *server, of named, b *ScheduleBody) (*object[setScheduleOut], error) {
	id, name := of.schedule()
	if err := s.changeable(ctx, id); err != nil {
		return nil, err
	}
	d := operate.Schedule{Tenant: id, Name: name, Args: job.RawArgs{Name: b.Kind, Payload: b.Args}, Elsewhere: true, Rule: b.Rule, TimeZone: b.TimeZone, Missed: operate.Missed(b.Missed),
		Wait: b.Wait, Jitter: time.Duration(b.JitterMS) * time.Millisecond,
		Queue: b.Queue, Priority: b.Priority, MaxAttempts: b.MaxAttempts, External: b.External, Meta: metaOf(b.Meta)}
	if b.End != nil {
		d.End = *b.End
	}
	next, err := s.operator.Schedules().Set(ctx, d)
	return &object[setScheduleOut]{setScheduleOut{timeOrNone(next)}}, err
}

// onSchedule is a route that does something to a tenant's schedule, and has nothing to say.
func onSchedule(do func(*operate.Schedules, context.Context, tenancy.ID, string) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *ScheduleOf) (*none, error) {
		return nil, s.changeSchedule(ctx, in, do)
	})
}

// onScheduleOfAll is one that does something to a schedule for every tenant.
func onScheduleOfAll(do func(*operate.Schedules, context.Context, tenancy.ID, string) error) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *ScheduleOfAll) (*none, error) {
		return nil, s.changeSchedule(ctx, in, do)
	})
}

type runScheduleOut struct {
	Job string `json:"job" doc:"that was added"`
}

func runSchedule(ctx context.Context, s *server, in *ScheduleOf) (*object[runScheduleOut], error) {
	id, name := in.schedule()
	if err := s.changeable(ctx, id); err != nil {
		return nil, err
	}
	added, err := s.operator.Schedules().Run(ctx, id, name)
	return &object[runScheduleOut]{runScheduleOut{added.String()}}, err
}
