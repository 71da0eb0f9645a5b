package api

import (
	"context"
	"errors"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/operate"
)

// Chosen says which jobs are meant, exported for huma as [JobOut] is.
type Chosen struct {
	All           bool   `json:"all,omitempty" doc:"must be true if nothing chooses some of them"`
	Pool          string `json:"pool,omitempty"`
	Tenant        string `json:"tenant,omitempty" minLength:"1" doc:"none: all that the token reaches"`
	AllTenants    bool   `json:"all_tenants,omitempty" doc:"says that all tenants are meant, in the place of tenant"`
	Kind          string `json:"kind,omitempty"`
	Queue         string `json:"queue,omitempty"`
	Tag           string `json:"tag,omitempty"`
	CorrelationID string `json:"correlation_id,omitempty"`
}

// selection is what is chosen of one state, or of any, but for its pool and its tenant.
func (c *Chosen) selection(state string) (operate.Selection, error) {
	f := operate.Selection{Kind: c.Kind, Queue: c.Queue, State: state, Tag: c.Tag, CorrelationID: c.CorrelationID}
	if chosen := f != (operate.Selection{}) || c.Tenant != "" || c.Pool != ""; chosen == c.All {
		return f, huma.Error422UnprocessableEntity("say which jobs: by tenant, kind, queue, state, tag, pool or correlation_id; or all, and none of these")
	}
	return f, nil
}

type suspendManyIn struct {
	Body struct {
		Chosen
		State string     `json:"state,omitempty" enum:"waiting,scheduled,retrying,awaiting"`
		Until *time.Time `json:"until,omitempty" doc:"they are resumed then; none: when somebody says so"`
	}
}

type suspendManyOut struct {
	Suspended int  `json:"suspended"`
	Running   int  `json:"running" doc:"go on; their next attempt is not suspended"`
	Left      int  `json:"left" doc:"stay, because their tenant is being moved or somebody has locked them"`
	Complete  bool `json:"complete" doc:"false: there are more, as time was up or a pool did not answer: send it again"`
}

func suspendMany(ctx context.Context, s *server, in *suspendManyIn) (*object[suspendManyOut], error) {
	var until time.Time
	if in.Body.Until != nil {
		until = *in.Body.Until
	}
	out := &object[suspendManyOut]{}
	complete, err := s.onMany(ctx, &in.Body.Chosen, in.Body.State, func(ctx context.Context, f operate.Selection) error {
		r, err := s.operator.Jobs().SuspendAll(ctx, f, until)
		out.Body.Suspended, out.Body.Running, out.Body.Left = out.Body.Suspended+r.Suspended, out.Body.Running+r.Running, out.Body.Left+r.Left
		return err
	})
	out.Body.Complete = complete
	return out, err
}

type resumeManyIn struct{ Body Chosen }

type resumeManyOut struct {
	Resumed  int  `json:"resumed"`
	Complete bool `json:"complete" doc:"false: there are more, as time was up or a pool did not answer: send it again"`
}

func resumeMany(ctx context.Context, s *server, in *resumeManyIn) (*object[resumeManyOut], error) {
	out := &object[resumeManyOut]{}
	complete, err := s.onMany(ctx, &in.Body, "", func(ctx context.Context, f operate.Selection) error {
		n, err := s.operator.Jobs().ResumeAll(ctx, f)
		out.Body.Resumed += n
		return err
	})
	out.Body.Complete = complete
	return out, err
}

type retryManyIn struct {
	Body struct {
		Chosen
		State     string  `json:"state" enum:"retrying,scheduled"`
		PerSecond float64 `json:"per_second,omitempty" minimum:"0" doc:"so many a second become due, in all pools together; 0: all at once"`
	}
}

type retryManyOut struct {
	Retried  int  `json:"retried" doc:"are due now, or by and by at the rate"`
	Left     int  `json:"left" doc:"stay, because their tenant is being moved or somebody has locked them"`
	Complete bool `json:"complete" doc:"false: there are more, as time was up or a pool did not answer: send it again"`
}

func retryMany(ctx context.Context, s *server, in *retryManyIn) (*object[retryManyOut], error) {
	out := &object[retryManyOut]{}
	complete, err := s.onMany(ctx, &in.Body.Chosen, in.Body.State, func(ctx context.Context, f operate.Selection) error {
		r, err := s.operator.Jobs().RetryAll(ctx, f, in.Body.PerSecond)
		out.Body.Retried, out.Body.Left = out.Body.Retried+r.Retried, out.Body.Left+r.Left
		return err
	})
	out.Body.Complete = complete
	return out, err
}

type cancelManyIn struct {
	Body struct {
		Chosen
		State     string  `json:"state,omitempty" enum:"waiting,claimed,running,locked,scheduled,retrying,awaiting,suspended"`
		PerSecond float64 `json:"per_second,omitempty" minimum:"0" doc:"so many a second in each pool; 0: without a rate, for which the holder has a tenth of its time"`
	}
}

// cancelMany has the holders of the pools' locks cancel jobs.
func cancelMany(ctx context.Context, s *server, in *cancelManyIn) (*object[BegunOut], error) {
	b := &in.Body
	if err := ofWhom(ctx, b.Tenant, b.AllTenants); err != nil {
		return nil, err
	}
	f, err := b.selection(b.State)
	if err != nil {
		return nil, err
	}
	return s.beginEach(ctx, b.Tenant, b.Pool, func(of scope, by string) (uuid.UUID, error) {
		f.Tenant, f.Pool = of.tenant, of.pool
		return s.operator.Jobs().CancelInBackground(ctx, f, b.PerSecond, by)
	})
}

// ofWhom refuses to choose the jobs of one tenant and of all, or of all to whom the grant does not reach them.
func ofWhom(ctx context.Context, tenant string, all bool) error {
	if all && !access.From(ctx).SeesTenant("") {
		return hidden
	}
	if tenant != "" && all {
		return huma.Error422UnprocessableEntity("send tenant or all_tenants, and not both")
	}
	return nil
}

// onMany does something to the jobs that are chosen, as far as the grant reaches.
func (s *server) onMany(ctx context.Context, c *Chosen, state string, do func(context.Context, operate.Selection) error) (complete bool, _ error) {
	if err := ofWhom(ctx, c.Tenant, c.AllTenants); err != nil {
		return false, err
	}
	f, err := c.selection(state)
	if err != nil {
		return false, err
	}
	return s.whileItLasts(ctx, c.Tenant, c.Pool, func(ctx context.Context, of scope) error {
		f.Tenant, f.Pool = of.tenant, of.pool
		return do(ctx, f)
	})
}

// whileItLasts does something to all that is meant of a tenant and a pool, or of all, as far as the grant reaches, for as
// long as a request may take.
func (s *server) whileItLasts(ctx context.Context, tenant, pool string, do func(context.Context, scope) error) (complete bool, _ error) {
	scopes, err := narrow(ctx, tenant, pool)
	if err != nil {
		return false, err
	}
	ctx, cancel := context.WithTimeout(ctx, s.limits.many)
	defer cancel()
	var failed []error
	for _, of := range scopes {
		failed = append(failed, do(ctx, of))
	}
	err = errors.Join(failed...)
	if isFault(err) {
		return false, err
	}
	s.note(err)
	return err == nil, nil
}
