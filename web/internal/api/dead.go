package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

type deadGroupsIn struct {
	Pool   string    `query:"pool"`
	Tenant string    `query:"tenant"`
	Kind   string    `query:"kind"`
	Error  string    `query:"error" doc:"text that the error contains, in upper or lower case"`
	Group  string    `query:"group" doc:"the id of a group"`
	Before time.Time `query:"before" doc:"died before then"`
}

type deadGroupOut struct {
	Group       string    `json:"group" doc:"the same in all pools and on all days"`
	Kind        string    `json:"kind"`
	Error       string    `json:"error" doc:"without numbers, ids, times and quoted text"`
	Count       int       `json:"count"`
	FirstDiedAt time.Time `json:"first_died_at"`
	LastDiedAt  time.Time `json:"last_died_at"`
	Sample      string    `json:"sample" doc:"the job that died last"`
}

// groupsAnswer is for how long a pool may read its dead letters, each of which is looked at.
const groupsAnswer = 10 * time.Second

func listDeadGroups(ctx context.Context, s *server, in *deadGroupsIn) (*list[deadGroupOut], error) {
	parts, err := gather(ctx, in.Tenant, in.Pool, groupsAnswer, func(ctx context.Context, of scope) ([]tenure.DeadGroup, error) {
		return s.operator.DeadLetters().Groups(ctx, tenure.DeadFilter{Pool: of.pool, Tenant: of.tenant, Kind: in.Kind, Error: in.Error, Group: in.Group, Before: in.Before})
	})
	var out []deadGroupOut
	for _, g := range tenure.MergeGroups(parts) {
		out = append(out, deadGroupOut{g.ID, g.Kind, g.Pattern, g.Count, g.First, g.Last, strconv.FormatInt(int64(g.Sample), 10)})
	}
	return listOf(out, err)
}

type changeDeadIn struct {
	Body struct {
		All        bool       `json:"all,omitempty" doc:"must be true if nothing chooses some of them"`
		Pool       string     `json:"pool,omitempty"`
		Tenant     string     `json:"tenant,omitempty" minLength:"1" doc:"none: all that the token reaches"`
		AllTenants bool       `json:"all_tenants,omitempty" doc:"says that all tenants are meant, in the place of tenant"`
		Kind       string     `json:"kind,omitempty"`
		Error      string     `json:"error,omitempty" doc:"text that the error contains, in upper or lower case"`
		Group      string     `json:"group,omitempty" doc:"the id of a group"`
		Before     *time.Time `json:"before,omitempty" doc:"died before then; what dies after the request is left alone in any case"`
		PerSecond  float64    `json:"per_second,omitempty" minimum:"0" doc:"so many a second in each pool; 0: as fast as that goes"`
	}
}

type begunOut struct {
	Operations []string `json:"operations" nullable:"false" doc:"one, or one for each tenant and pool that the token reaches"`
	Incomplete bool     `json:"incomplete" doc:"some pools did not answer, and nothing was begun there"`
}

// changeDead has the holders of the pools' locks do something to dead letters.
func changeDead(begin func(*tenure.DeadLetters, context.Context, tenure.DeadFilter, float64, string) (uuid.UUID, error)) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *changeDeadIn) (*object[begunOut], error) {
		b := &in.Body
		if err := ofWhom(ctx, b.Tenant, b.AllTenants); err != nil {
			return nil, err
		}
		f := tenure.DeadFilter{Kind: b.Kind, Error: b.Error, Group: b.Group}
		if b.Before != nil {
			f.Before = *b.Before
		}
		if chosen := f != (tenure.DeadFilter{}) || b.Tenant != "" || b.Pool != ""; chosen == b.All {
			return nil, huma.Error422UnprocessableEntity("say which dead letters: by group, kind, tenant, pool, error or before; or all, and none of these")
		}
		return beginEach(ctx, b.Tenant, b.Pool, func(of scope, by string) (uuid.UUID, error) {
			f.Tenant, f.Pool = of.tenant, of.pool
			return begin(s.operator.DeadLetters(), ctx, f, b.PerSecond, by)
		})
	})
}

// beginEach begins an operation in what is meant of a tenant and a pool, or of all, as far as the grant reaches.
func beginEach(ctx context.Context, tenant, pool string, begin func(of scope, by string) (uuid.UUID, error)) (*object[begunOut], error) {
	scopes, err := narrow(ctx, tenant, pool)
	if err != nil {
		return nil, err
	}
	out := &object[begunOut]{begunOut{Operations: []string{}}}
	var failed []error
	for _, of := range scopes {
		id, err := begin(of, access.From(ctx).Who())
		if id != uuid.Nil {
			out.Body.Operations = append(out.Body.Operations, id.String())
		}
		failed = append(failed, err)
	}
	if err := errors.Join(failed...); len(out.Body.Operations) == 0 || isFault(err) {
		return nil, err
	}
	out.Body.Incomplete = errors.Join(failed...) != nil
	return out, nil
}

func deleteDead(ctx context.Context, s *server, in *JobIn) (*none, error) {
	if _, _, err := s.findJob(ctx, job.ID(in.ID)); err != nil {
		return nil, err
	}
	return nil, s.operator.DeadLetters().DeleteOne(ctx, job.ID(in.ID))
}

type operationOut struct {
	ID          string     `json:"id"`
	Pool        string     `json:"pool"`
	Action      string     `json:"action" doc:"retry or delete, of dead letters; cancel, of jobs that have not ended"`
	State       string     `json:"state" doc:"running, done or cancelled"`
	Tenant      string     `json:"tenant,omitempty"`
	Kind        string     `json:"kind,omitempty"`
	Error       string     `json:"error,omitempty" doc:"text that the errors contain"`
	Group       string     `json:"group,omitempty"`
	Queue       string     `json:"queue,omitempty" doc:"of jobs to be cancelled"`
	JobState    string     `json:"job_state,omitempty" doc:"likewise"`
	Tag         string     `json:"tag,omitempty" doc:"likewise"`
	Correlation string     `json:"correlation_id,omitempty" doc:"likewise"`
	DiedBefore  *time.Time `json:"died_before,omitempty" doc:"of dead letters"`
	MadeBefore  *time.Time `json:"made_before,omitempty" doc:"of jobs to be cancelled"`
	PerSecond   float64    `json:"per_second"`
	Done        int64      `json:"done"`
	KeyTaken    int64      `json:"key_taken" doc:"stay dead, because an unfinished job has their unique key"`
	Left        int64      `json:"left" doc:"stay as they are for other reasons"`
	AskedBy     string     `json:"asked_by"`
	CreatedAt   time.Time  `json:"created_at"`
	EndedAt     *time.Time `json:"ended_at,omitempty"`
	Failing     bool       `json:"failing" doc:"the last step failed, and is tried again"`
}

func newOperation(o *tenure.OperationStatus) operationOut {
	died, made := &o.Filter.Before, (*time.Time)(nil)
	if o.Action == "cancel" {
		died, made = nil, died
	}
	return operationOut{o.ID.String(), o.Pool, o.Action, o.State, o.Filter.Tenant, o.Filter.Kind, o.Filter.Error, o.Group, o.Jobs.Queue, o.Jobs.State, o.Jobs.Tag, o.Jobs.CorrelationID, died, made, o.PerSecond,
		o.Done, o.KeyTaken, o.Left, o.By, o.CreatedAt, timeOrNone(o.EndedAt), o.Failure != ""}
}

// timeOrNone is a time in an answer that may be missing.
func timeOrNone(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func listOperations(ctx context.Context, s *server, _ *none) (*list[operationOut], error) {
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	all, err := s.operator.Operations().List(ctx)
	var out []operationOut
	for i := range all {
		if o := &all[i]; sees(ctx, tenancy.ID(o.Filter.Tenant), o.Pool) {
			out = append(out, newOperation(o))
		}
	}
	return listOf(out, err)
}

type operationIn struct {
	ID uuid.UUID `path:"id" format:"uuid"`
}

func getOperation(ctx context.Context, s *server, in *operationIn) (*list[operationOut], error) {
	ctx, cancel := context.WithTimeout(ctx, poolAnswers)
	defer cancel()
	parts, err := s.findOperation(ctx, in.ID)
	var out []operationOut
	for i := range parts {
		out = append(out, newOperation(&parts[i]))
	}
	return listOf(out, err)
}

func cancelOperation(ctx context.Context, s *server, in *operationIn) (*none, error) {
	parts, err := s.findOperation(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(parts, func(o tenure.OperationStatus) bool { return o.State == "running" }) {
		return nil, huma.Error409Conflict("it is " + parts[0].State + ", and there is nothing left to cancel")
	}
	_, err = s.operator.Operations().Cancel(ctx, in.ID)
	return nil, err
}
