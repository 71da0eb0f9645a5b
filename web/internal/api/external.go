package api

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strconv"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure/external"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/wire"
)

type acquireIn struct {
	Body struct {
		Topic   string   `json:"topic" minLength:"1" doc:"the kind of the jobs"`
		Worker  string   `json:"worker" minLength:"1" maxLength:"128"`
		Lock    int      `json:"lock" minimum:"1" maximum:"86400" doc:"seconds until others may have the jobs"`
		Max     int      `json:"max" minimum:"1" maximum:"1000"`
		Wait    int      `json:"wait,omitempty" minimum:"0" maximum:"20" doc:"seconds to wait for the first job"`
		Tenants []string `json:"tenants,omitempty" maxItems:"1000" items.minLength:"1" doc:"whose jobs; empty: all that the token reaches"`
	}
}

// WorkerLock is by what a worker proves that a job is its own, exported for huma as [JobOut] is.
type WorkerLock struct {
	Job    string `json:"job" pattern:"^[1-9][0-9]{0,18}$"`
	Turn   int32  `json:"turn"`
	Worker string `json:"worker" minLength:"1" maxLength:"128"`
}

func (l *WorkerLock) lock() (external.Lock, error) {
	id, err := strconv.ParseInt(l.Job, 10, 64)
	if err != nil {
		return external.Lock{}, huma.Error422UnprocessableEntity("job: this is no id of a job")
	}
	return external.Lock{Job: job.ID(id), Turn: l.Turn, Worker: l.Worker}, nil
}

type acquiredOut struct {
	WorkerLock
	Until   time.Time       `json:"until" doc:"when the lock expires"`
	Pool    string          `json:"pool"`
	Tenant  string          `json:"tenant"`
	Topic   string          `json:"topic"`
	Attempt int             `json:"attempt" doc:"this one, from 1"`
	Args    json.RawMessage `json:"args"`

	Queue         string          `json:"queue"`
	Priority      int             `json:"priority"`
	Losses        int             `json:"losses" doc:"locks on it that expired"`
	CreatedAt     time.Time       `json:"created_at"`
	UniqueKey     string          `json:"unique_key,omitempty"`
	CorrelationID string          `json:"correlation_id,omitempty"`
	Meta          json.RawMessage `json:"meta,omitempty"`
}

func acquire(ctx context.Context, s *server, in *acquireIn) (*list[acquiredOut], error) {
	b := &in.Body
	r := external.AcquireRequest{Topic: b.Topic, Worker: b.Worker, Max: b.Max,
		LockFor: time.Duration(b.Lock) * time.Second, Wait: time.Duration(b.Wait) * time.Second}
	for _, id := range b.Tenants {
		r.Tenants = append(r.Tenants, tenancy.ID(id))
	}
	if r.Wait > 0 {
		waits, leave, err := s.acquiring.begin(ctx)
		if err != nil {
			return nil, err
		}
		defer leave()
		ctx = waits
	}
	jobs, err := s.external.Acquire(ctx, r)
	var out []acquiredOut
	for _, j := range jobs {
		lock := WorkerLock{strconv.FormatInt(int64(j.Job), 10), j.Turn, j.Worker}
		out = append(out, acquiredOut{lock, j.Until, j.Pool, string(j.Tenant), j.Topic, j.Attempt, j.Payload, j.Queue, j.Priority, j.Losses, j.CreatedAt, j.UniqueKey, j.CorrelationID, j.Meta})
	}
	return listOf(out, err)
}

// ownLock is a lock on a job that the grant reaches.
func ownLock(ctx context.Context, s *server, in *WorkerLock) (external.Lock, error) {
	l, err := in.lock()
	if err == nil {
		err = s.reachJob(ctx, l.Job)
	}
	return l, err
}

type completeIn struct {
	Body struct {
		WorkerLock
		Output json.RawMessage `json:"output,omitempty" doc:"kept with the job"`
	}
}

func complete(ctx context.Context, s *server, in *completeIn) (*none, error) {
	l, err := ownLock(ctx, s, &in.Body.WorkerLock)
	if err != nil {
		return nil, err
	}
	return nil, s.external.Complete(ctx, external.Result{Lock: l, Output: in.Body.Output})
}

type completeManyIn struct {
	Body struct {
		Worker string `json:"worker" minLength:"1" maxLength:"128"`
		Jobs   []struct {
			Job    string          `json:"job" pattern:"^[1-9][0-9]{0,18}$"`
			Turn   int32           `json:"turn"`
			Output json.RawMessage `json:"output,omitempty" doc:"kept with the job"`
		} `json:"jobs" minItems:"1" maxItems:"1000" nullable:"false" doc:"a request may have 1 MiB"`
	}
}

type completeManyOut struct {
	Lost  []string `json:"lost" nullable:"false" doc:"whose lock was lost, maybe as this request was sent before. The others are done"`
	Again bool     `json:"again" doc:"some stand between two pools, as their tenant is being moved: send it again without those that are lost"`
}

// completeMany ends all jobs that are still the worker's. What the grant does not reach is lost, as what is not there is.
func completeMany(ctx context.Context, s *server, in *completeManyIn) (*object[completeManyOut], error) {
	out := &object[completeManyOut]{completeManyOut{Lost: []string{}}}
	var done []external.Result
	for _, j := range in.Body.Jobs {
		l, err := ownLock(ctx, s, &WorkerLock{j.Job, j.Turn, in.Body.Worker})
		switch {
		case errors.Is(err, hidden):
			out.Body.Lost = append(out.Body.Lost, j.Job)
		case err != nil:
			return nil, err
		default:
			done = append(done, external.Result{Lock: l, Output: j.Output})
		}
	}
	if len(done) == 0 {
		return out, nil
	}
	err := s.external.Complete(ctx, done...)
	var lost *external.LockLostError
	if errors.As(err, &lost) {
		for _, id := range lost.Jobs {
			out.Body.Lost = append(out.Body.Lost, id.String())
		}
	}
	if lost == nil {
		return out, err
	}
	out.Body.Again = !isLost(err)
	return out, nil
}

// isLost says whether err is about nothing but locks that were lost.
func isLost(err error) bool {
	switch e := err.(type) {
	case *external.LockLostError:
		return true
	case interface{ Unwrap() error }:
		return isLost(e.Unwrap())
	case interface{ Unwrap() []error }:
		return !slices.ContainsFunc(e.Unwrap(), func(one error) bool { return !isLost(one) })
	default:
		return false
	}
}

type failIn struct {
	Body struct {
		WorkerLock
		Error   wire.Report `json:"error" doc:"16 KiB of it are kept, without U+0000"`
		Stack   wire.Report `json:"stack,omitempty" doc:"likewise"`
		Delay   int         `json:"delay,omitempty" minimum:"0" maximum:"86400" doc:"seconds until the next attempt; 0: as the retry policy has it"`
		Retries *int        `json:"retries,omitempty" minimum:"0" maximum:"1000" doc:"how often to try again; 0: it is dead"`
	}
}

func fail(ctx context.Context, s *server, in *failIn) (*none, error) {
	b := &in.Body
	l, err := ownLock(ctx, s, &b.WorkerLock)
	if err != nil {
		return nil, err
	}
	return nil, s.external.Fail(ctx, external.Failure{Lock: l, Error: string(b.Error), Stack: string(b.Stack),
		Delay: time.Duration(b.Delay) * time.Second, Retries: b.Retries})
}

type raiseIn struct {
	Body struct {
		WorkerLock
		Code    string          `json:"code" minLength:"1" maxLength:"128"`
		Message wire.Report     `json:"message" doc:"16 KiB of it are kept, without U+0000"`
		Output  json.RawMessage `json:"output,omitempty"`
	}
}

func raise(ctx context.Context, s *server, in *raiseIn) (*none, error) {
	b := &in.Body
	l, err := ownLock(ctx, s, &b.WorkerLock)
	if err == nil {
		err = s.external.RaiseError(ctx, external.Raised{Lock: l, Code: b.Code, Message: string(b.Message), Output: b.Output})
	}
	return nil, err
}

type extendIn struct {
	Body struct {
		WorkerLock
		Lock int `json:"lock" minimum:"1" maximum:"86400" doc:"seconds from now"`
	}
}

func extend(ctx context.Context, s *server, in *extendIn) (*none, error) {
	l, err := ownLock(ctx, s, &in.Body.WorkerLock)
	if err == nil {
		err = s.external.Extend(ctx, time.Duration(in.Body.Lock)*time.Second, l)
	}
	return nil, err
}

type releaseIn struct{ Body WorkerLock }

func release(ctx context.Context, s *server, in *releaseIn) (*none, error) {
	l, err := ownLock(ctx, s, &in.Body)
	if err == nil {
		err = s.external.Release(ctx, l)
	}
	return nil, err
}
