package api

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/danielgtaylor/huma/v2"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web/internal/wire"
)

// NewJob is a job that is to be added, exported for huma as [JobOut] is.
type NewJob struct {
	Tenant string `json:"tenant" minLength:"1"`
	JobSpec
}

// JobSpec is all of a job that is to be added but whose it is, exported for huma as [JobOut] is.
type JobSpec struct {
	Kind          string                     `json:"kind" minLength:"1"`
	Args          json.RawMessage            `json:"args"`
	Queue         string                     `json:"queue,omitempty"`
	Priority      *int                       `json:"priority,omitempty" minimum:"-1000" maximum:"1000"`
	MaxAttempts   int                        `json:"max_attempts,omitempty" minimum:"0" maximum:"1000" doc:"0: the kind's"`
	TimeoutMS     int64                      `json:"timeout_ms,omitempty" minimum:"0" maximum:"2147483647" doc:"of each run; 0: the kind's"`
	At            *time.Time                 `json:"at,omitempty" doc:"when it is due"`
	DelayMS       int64                      `json:"delay_ms,omitempty" minimum:"0" maximum:"316224000000" doc:"after which it is due, by the database's clock"`
	UniqueKey     string                     `json:"unique_key,omitempty" doc:"while an unfinished job of the tenant has it no other is added. For a request that may be sent again: unique_for, too, or an Idempotency-Key"`
	UniqueFor     int64                      `json:"unique_for,omitempty" minimum:"0" maximum:"316224000" doc:"seconds for which the key is taken whatever becomes of the job"`
	ExclusiveKey  string                     `json:"exclusive_key,omitempty" doc:"of the tenant's jobs that have it one runs at a time, in order; those for workers outside the cluster have keys of their own"`
	SkipRetrying  bool                       `json:"skip_retrying,omitempty" doc:"others with its exclusive key may start while it waits to be tried again"`
	CorrelationID string                     `json:"correlation_id,omitempty"`
	Tags          []string                   `json:"tags,omitempty"`
	Meta          map[string]json.RawMessage `json:"meta,omitempty" doc:"an object that is kept beside the arguments"`
	After         []string                   `json:"after,omitempty" maxItems:"1000" doc:"it starts when the jobs with these ids have ended"`
	OnFailure     string                     `json:"on_failure,omitempty" enum:"wait,cancel,run" doc:"what becomes of it when one of those fails"`
	Batch         string                     `json:"batch,omitempty" doc:"the id of an open batch that it is added to"`
	External      bool                       `json:"external,omitempty" doc:"it is for workers outside the cluster"`
}

// keptFor is for how long an idempotency key stands for the job that it was first sent with.
const keptFor = 24 * time.Hour

type enqueueIn struct {
	Key  string `header:"Idempotency-Key" doc:"for a day the answer to all requests of a tenant with it is the same job; it takes the place of unique_key and unique_for"`
	Body NewJob
}

type enqueueOut struct {
	ID        string `json:"id"`
	Duplicate bool   `json:"duplicate" doc:"nothing was added: it is the id of a job with the same key"`
}

func enqueue(ctx context.Context, s *server, in *enqueueIn) (*object[enqueueOut], error) {
	b := &in.Body
	options, err := b.options(false)
	hash := s.hashOf("job", b, &b.JobSpec)
	if err == nil && in.Key != "" {
		options, err = b.withKey(in.Key, hash, options)
	}
	if err = errors.Join(tenancy.ID(b.Tenant).Validate(), err); err != nil {
		return nil, huma.Error422UnprocessableEntity(err.Error()) // it says what of the body is wrong
	}
	if err := s.seeTenant(ctx, tenancy.ID(b.Tenant)); err != nil {
		return nil, err
	}
	added, err := s.client.Enqueue(tenancy.For(ctx, tenancy.ID(b.Tenant)), b.args(), options...)
	err = s.refuseOther(ctx, in.Key, hash, added, s.explainLink(ctx, err))
	return &object[enqueueOut]{enqueueOut{added.ID.String(), added.Duplicate}}, err
}

// hashOf tells a request with some jobs from others of its kind. Arguments that are encrypted do not count: the hash is kept
// with the job, and who reads it could try what they are.
func (s *server) hashOf(kind string, body any, jobs ...*JobSpec) string {
	for _, j := range jobs {
		if args := j.Args; s.client.Encrypts(j.Kind) {
			j.Args = nil
			defer func() { j.Args = args }()
		}
	}
	text, _ := json.Marshal(body) // it was read as JSON
	hash := sha256.Sum256(append([]byte(kind), text...))
	return hex.EncodeToString(hash[:16])
}

// errOtherRequest is that an idempotency key came with two requests, the second of which is not the first one again.
var errOtherRequest = huma.Error422UnprocessableEntity("this Idempotency-Key came with another request before: nothing was enqueued. Send each request with a key of its own")

// refuseOther refuses what was answered with a job that was made of another request with the same key.
func (s *server) refuseOther(ctx context.Context, key, hash string, added tenure.Enqueued, err error) error {
	if err != nil || key == "" || !added.Duplicate {
		return err
	}
	j, _, err := s.operator.Jobs().Get(ctx, added.ID)
	return other(hash, j, err)
}

// other is errOtherRequest if a job was made of another request. What became of a job that is not kept nobody knows.
func other(hash string, j operate.JobStatus, err error) error {
	switch was := jobmeta.Request(j.Meta); {
	case errors.Is(err, tenure.ErrNotFound), errors.As(err, new(*operate.UnansweredError)): // or it is not kept
		return nil
	case err == nil && was != "" && was != hash:
		return errOtherRequest
	}
	return err
}

// explainLink says of a batch to which nothing can be added any more that it is closed.
func (s *server) explainLink(ctx context.Context, err error) error {
	var link *job.LinkError
	if errors.As(err, &link) && link.Batch {
		if b, not := s.findBatch(ctx, link.ID); not == nil && !b.ClosedAt.IsZero() {
			return huma.Error409Conflict("batch " + link.ID.String() + " is closed: nothing can be added to it any more")
		}
	}
	return err
}

func (b *JobSpec) withKey(key, hash string, options []tenure.Option) ([]tenure.Option, error) {
	if b.UniqueKey != "" {
		return nil, errors.New("send a unique_key or an Idempotency-Key, and not both")
	}
	return append(options, tenure.OfRequest(hash), tenure.UniqueFor(key, keptFor)), nil
}

func (b *JobSpec) args() job.RawArgs { return job.RawArgs{Name: b.Kind, Payload: b.Args} }

// options are Elsewhere, as another node may handle the kind, and those that the request names. completes:
// it is the completion job of a batch.
func (b *JobSpec) options(completes bool) ([]tenure.Option, error) {
	if err := job.CheckPayload(b.Args); err != nil {
		return nil, fmt.Errorf("args: %w", err)
	}
	out := []tenure.Option{tenure.Elsewhere()}
	add := func(given bool, o func() tenure.Option) {
		if given {
			out = append(out, o())
		}
	}
	add(b.Queue != "", func() tenure.Option { return tenure.OnQueue(b.Queue) })
	add(b.Priority != nil, func() tenure.Option { return tenure.Priority(*b.Priority) })
	add(b.MaxAttempts != 0, func() tenure.Option { return tenure.MaxAttempts(b.MaxAttempts) })
	add(b.TimeoutMS != 0, func() tenure.Option { return tenure.Timeout(milliseconds(b.TimeoutMS)) })
	add(b.At != nil, func() tenure.Option { return tenure.At(*b.At) })
	add(b.DelayMS != 0, func() tenure.Option { return tenure.In(milliseconds(b.DelayMS)) })
	add(b.UniqueKey != "" && b.UniqueFor == 0, func() tenure.Option { return tenure.Unique(b.UniqueKey) })
	add(b.UniqueFor != 0, func() tenure.Option { return tenure.UniqueFor(b.UniqueKey, time.Duration(b.UniqueFor)*time.Second) })
	add(b.CorrelationID != "", func() tenure.Option { return tenure.Correlation(b.CorrelationID) })
	add(len(b.Tags) > 0, func() tenure.Option { return tenure.Tags(b.Tags...) })
	add(b.External, tenure.External)
	switch {
	case b.At != nil && b.DelayMS != 0:
		return nil, errors.New("send at or delay_ms, and not both")
	case b.SkipRetrying && b.ExclusiveKey == "":
		return nil, errors.New("skip_retrying: it is about an exclusive_key, which is missing")
	case b.OnFailure != "" && len(b.After) == 0 && !completes:
		return nil, errors.New("on_failure: it is about the jobs of after, which are missing")
	case b.SkipRetrying:
		out = append(out, tenure.Exclusive(b.ExclusiveKey, tenure.SkipRetrying))
	case b.ExclusiveKey != "":
		out = append(out, tenure.Exclusive(b.ExclusiveKey))
	}
	links, err := b.links()
	if err == nil && b.Meta != nil {
		links = append(links, tenure.Meta(metaOf(b.Meta)))
	}
	return append(out, links...), err
}

// metaOf is what is kept beside arguments, as it came.
func metaOf(fields map[string]json.RawMessage) map[string]any {
	meta := map[string]any{}
	for key, value := range fields {
		meta[key] = value
	}
	return meta
}

func milliseconds(n int64) time.Duration { return time.Duration(n) * time.Millisecond }

// links are the options that link the job to others.
func (b *JobSpec) links() (out []tenure.Option, err error) {
	if len(b.After) > 0 {
		ids := make([]job.ID, len(b.After))
		for i, text := range b.After {
			if ids[i], err = job.ParseID(text); err != nil {
				return nil, fmt.Errorf("after: %w", err)
			}
		}
		out = append(out, tenure.After(ids...))
	}
	if b.OnFailure != "" {
		out = append(out, tenure.OnFailure(tenure.FailurePolicy(b.OnFailure)))
	}
	if b.Batch != "" {
		id, err := job.ParseID(b.Batch)
		if err != nil {
			return nil, fmt.Errorf("batch: %w", err)
		}
		out = append(out, tenure.InBatch(id))
	}
	return out, nil
}

type enqueueManyIn struct {
	Key  string `header:"Idempotency-Key" doc:"for a day, a request with it and the same jobs adds none a second time; it takes the place of unique_key and unique_for of each of them"`
	Body struct {
		Jobs []NewJob `json:"jobs" minItems:"1" maxItems:"10000" nullable:"false" doc:"of any tenants; a request may have 1 MiB"`
	}
}

type enqueueManyOut struct {
	Added  int          `json:"added" doc:"those whose unique key was taken are not"`
	Jobs   []enqueueOut `json:"jobs" nullable:"false" doc:"in the order of the request; the id is empty if the job's pool failed"`
	Failed []failedOut  `json:"failed" nullable:"false" doc:"pools that failed: their jobs were not added. With an Idempotency-Key the request can be sent again"`
}

type failedOut struct {
	Pool   string `json:"pool"`
	Detail string `json:"detail"`
}

// keyOfMany is the unique key of a job of a request with many, which no other request has.
func keyOfMany(key string, i int) string {
	return fmt.Sprintf("tenure:many:%x/%d", sha256.Sum256([]byte(key)), i)
}

// enqueueMany adds jobs, all or none of each pool's.
func enqueueMany(ctx context.Context, s *server, in *enqueueManyIn) (*object[enqueueManyOut], error) {
	specs := make([]*JobSpec, len(in.Body.Jobs))
	for i := range in.Body.Jobs {
		specs[i] = &in.Body.Jobs[i].JobSpec
	}
	hash := s.hashOf("many", &in.Body, specs...)
	entries := make([]tenure.Entry, len(in.Body.Jobs))
	tenants := map[tenancy.ID]bool{}
	for i := range in.Body.Jobs {
		b := &in.Body.Jobs[i]
		options, err := b.options(false)
		if err == nil && in.Key != "" {
			options, err = b.withKey(keyOfMany(in.Key, i), hash, options)
		}
		if err = errors.Join(tenancy.ID(b.Tenant).Validate(), err); err != nil {
			return nil, huma.Error422UnprocessableEntity(fmt.Sprintf("nothing was enqueued: job %d: %v", i, err))
		}
		entries[i] = tenure.Entry{Tenant: tenancy.ID(b.Tenant), Args: b.args(), Options: options}
		tenants[tenancy.ID(b.Tenant)] = true
	}
	for id := range tenants {
		if err := s.seeTenant(ctx, id); err != nil {
			return nil, err
		}
	}
	if in.Key != "" {
		first, err := s.operator.Jobs().WithKey(ctx, entries[0].Tenant, keyOfMany(in.Key, 0))
		if _, down := tenure.DownPool(err); !down { // others' jobs are added, and the answer says which are not
			if err := other(hash, first, err); err != nil {
				return nil, err
			}
		}
	}
	jobs, err := s.client.EnqueueMany(ctx, entries)
	out := &object[enqueueManyOut]{enqueueManyOut{Jobs: []enqueueOut{}, Failed: []failedOut{}}}
	for _, j := range jobs {
		one := enqueueOut{Duplicate: j.Duplicate}
		if j.ID != 0 {
			one.ID = j.ID.String()
		}
		out.Body.Jobs = append(out.Body.Jobs, one)
		if j.ID != 0 && !j.Duplicate {
			out.Body.Added++
		}
	}
	var failed tenure.PoolErrors
	if err != nil && (!errors.As(err, &failed) || !slices.ContainsFunc(jobs, func(j tenure.Enqueued) bool { return j.ID != 0 })) {
		return nil, s.explainLink(ctx, err)
	}
	for _, pool := range slices.Sorted(maps.Keys(failed)) {
		out.Body.Failed = append(out.Body.Failed, failedOut{pool, wire.Brief(problemOf(ctx, s.log, "enqueue-many", s.explainLink(ctx, failed[pool])).Error())})
	}
	return out, nil
}
