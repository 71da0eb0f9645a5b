package api

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/google/uuid"

	"github.com/tenurehq/tenure/internal/access"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
)

type deadGroupsIn struct {
	Pool          string    `query:"pool"`
	Tenant        string    `query:"tenant"`
	Kind          string    `query:"kind"`
	Error         string    `query:"error" doc:"text that the error contains, in upper or lower case"`
	Group         string    `query:"group" doc:"the id of a group"`
	Before        time.Time `query:"before" doc:"died before then"`
	Tag           string    `query:"tag"`
	CorrelationID string    `query:"correlation_id"`
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

func listDeadGroups(ctx context.Context, s *server, in *deadGroupsIn) (*list[deadGroupOut], error) {
	parts, err := gather(ctx, in.Tenant, in.Pool, s.limits.groups, func(ctx context.Context, of scope) ([]operate.DeadGroup, error) {
		return s.operator.DeadLetters().Groups(ctx, operate.DeadFilter{Pool: of.pool, Tenant: of.tenant, Kind: in.Kind, Error: in.Error, Group: in.Group, Before: in.Before, Tag: in.Tag, CorrelationID: in.CorrelationID})
	})
	var out []deadGroupOut
	for _, g := range operate.MergeGroups(parts) {
		out = append(out, deadGroupOut{g.ID, g.Kind, g.Pattern, g.Count, g.First, g.Last, strconv.FormatInt(int64(g.Sample), 10)})
	}
	return listOf(out, err)
}

type changeDeadIn struct {
	Body struct {
		All           bool       `json:"all,omitempty" doc:"must be true if nothing chooses some of them"`
		Pool          string     `json:"pool,omitempty"`
		Tenant        string     `json:"tenant,omitempty" minLength:"1" doc:"none: all that the token reaches"`
		AllTenants    bool       `json:"all_tenants,omitempty" doc:"says that all tenants are meant, in the place of tenant"`
		Kind          string     `json:"kind,omitempty"`
		Error         string     `json:"error,omitempty" doc:"text that the error contains, in upper or lower case"`
		Group         string     `json:"group,omitempty" doc:"the id of a group"`
		Before        *time.Time `json:"before,omitempty" doc:"died before then; what dies after the request is left alone in any case"`
		Tag           string     `json:"tag,omitempty"`
		CorrelationID string     `json:"correlation_id,omitempty"`
		PerSecond     float64    `json:"per_second,omitempty" minimum:"0" doc:"so many a second in each pool; 0: without a rate, for which the holder has a tenth of its time"`
		Now           bool       `json:"now,omitempty" doc:"do it while the request lasts, in steps that each last, and begin no operation: for when no node runs. per_second is that of all pools then"`
	}
}

type changedDeadOut struct {
	BegunOut
	Now *doneNow `json:"now,omitempty" doc:"with now: what was done"`
}

type doneNow struct {
	Done     int       `json:"done"`
	KeyTaken int       `json:"key_taken" doc:"stay dead, because an unfinished job has their unique key"`
	Left     int       `json:"left" doc:"stay dead for other reasons"`
	Complete bool      `json:"complete" doc:"false: there are more, as time was up or a pool did not answer: send it again, with this before"`
	Before   time.Time `json:"before" doc:"what has died since is left alone"`
}

// BegunOut are the operations that were begun, exported for huma as [JobOut] is.
type BegunOut struct {
	Operations []string `json:"operations" nullable:"false" doc:"one, or one for each tenant and pool that the token reaches"`
	Incomplete bool     `json:"incomplete" doc:"some pools did not answer, and nothing was begun there"`
}

// changeDead has something done to dead letters: by the holders of the pools' locks, or here and now.
func changeDead(begin func(*operate.DeadLetters, context.Context, operate.DeadFilter, float64, string) (uuid.UUID, error),
	do func(*operate.DeadLetters, context.Context, operate.DeadFilter, float64) (operate.DeadResult, error)) func(*server, huma.API, huma.Operation) {
	return bind(func(ctx context.Context, s *server, in *changeDeadIn) (*object[changedDeadOut], error) {
		b := &in.Body
		if err := ofWhom(ctx, b.Tenant, b.AllTenants); err != nil {
			return nil, err
		}
		f := operate.DeadFilter{Kind: b.Kind, Error: b.Error, Group: b.Group, Tag: b.Tag, CorrelationID: b.CorrelationID}
		if b.Before != nil {
			f.Before = *b.Before
		}
		if chosen := f != (operate.DeadFilter{}) || b.Tenant != "" || b.Pool != ""; chosen == b.All {
			return nil, huma.Error422UnprocessableEntity("say which dead letters: by group, kind, tenant, pool, error, tag, correlation_id or before; or all, and none of these")
		}
		if !b.Now {
			begun, err := s.beginEach(ctx, b.Tenant, b.Pool, func(of scope, by string) (uuid.UUID, error) {
				f.Tenant, f.Pool = of.tenant, of.pool
				return begin(s.operator.DeadLetters(), ctx, f, b.PerSecond, by)
			})
			if err != nil {
				return nil, err
			}
			return &object[changedDeadOut]{changedDeadOut{BegunOut: begun.Body}}, nil
		}
		done := doneNow{Before: time.Now()}
		if b.Before != nil {
			done.Before = *b.Before
		}
		var err error
		done.Complete, err = s.whileItLasts(ctx, b.Tenant, b.Pool, func(ctx context.Context, of scope) error {
			f.Tenant, f.Pool = of.tenant, of.pool
			r, err := do(s.operator.DeadLetters(), ctx, f, b.PerSecond)
			done.Done, done.KeyTaken, done.Left = done.Done+r.Done, done.KeyTaken+r.KeyTaken, done.Left+r.Left
			return err
		})
		return &object[changedDeadOut]{changedDeadOut{BegunOut{Operations: []string{}}, &done}}, err
	})
}

// beginEach begins an operation in what is meant of a tenant and a pool, or of all, as far as the grant reaches.
func (s *server) beginEach(ctx context.Context, tenant, pool string, begin func(of scope, by string) (uuid.UUID, error)) (*object[BegunOut], error) {
	scopes, err := narrow(ctx, tenant, pool)
	if err != nil {
		return nil, err
	}
	out := &object[BegunOut]{BegunOut{Operations: []string{}}}
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
	s.note(errors.Join(failed...))
	out.Body.Incomplete = errors.Join(failed...) != nil
	return out, nil
}

func deleteDead(ctx context.Context, s *server, in *JobIn) (*none, error) {
	if err := s.reachJob(ctx, job.ID(in.ID)); err != nil {
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
	Failure     string     `json:"failure,omitempty" doc:"with what, as far as that is not for the node's log only"`
}

func (s *server) newOperation(o *operate.OperationStatus) operationOut {
	failure := ""
	if s.failed != nil {
		failure = o.Failure
	}
	died, made := &o.Filter.Before, (*time.Time)(nil)
	if o.Action == "cancel" {
		died, made = nil, died
	}
	return operationOut{o.ID.String(), o.Pool, o.Action, o.State, o.Filter.Tenant, o.Filter.Kind, o.Filter.Error, o.Group, o.Jobs.Queue, o.Jobs.State, o.Jobs.Tag, o.Jobs.CorrelationID, died, made, o.PerSecond,
		o.Done, o.KeyTaken, o.Left, o.By, o.CreatedAt, timeOrNone(o.EndedAt), o.Failure != "", failure}
}

// timeOrNone is a time in an answer that may be missing.
func timeOrNone(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

func listOperations(ctx context.Context, s *server, _ *none) (*list[operationOut], error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	all, err := s.operator.Operations().List(ctx)
	var out []operationOut
	for i := range all {
		if o := &all[i]; sees(ctx, tenancy.ID(o.Filter.Tenant), o.Pool) {
			out = append(out, s.newOperation(o))
		}
	}
	return listOf(out, err)
}

type operationIn struct {
	ID uuid.UUID `path:"id" format:"uuid"`
}

func getOperation(ctx context.Context, s *server, in *operationIn) (*list[operationOut], error) {
	ctx, cancel := s.look(ctx)
	defer cancel()
	parts, err := s.findOperation(ctx, in.ID)
	var out []operationOut
	for i := range parts {
		out = append(out, s.newOperation(&parts[i]))
	}
	return listOf(out, err)
}

func cancelOperation(ctx context.Context, s *server, in *operationIn) (*none, error) {
	parts, err := s.findOperation(ctx, in.ID)
	if err != nil {
		return nil, err
	}
	if !slices.ContainsFunc(parts, func(o operate.OperationStatus) bool { return o.State == "running" }) {
		return nil, huma.Error409Conflict("it is " + parts[0].State + ", and there is nothing left to cancel")
	}
	_, err = s.operator.Operations().Cancel(ctx, in.ID)
	return nil, err
}
