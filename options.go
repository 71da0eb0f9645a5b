package tenure

import (
	"crypto/sha256"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/tenurehq/tenure/internal/jobmeta"
	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/tenancy"
)

// Option changes how one job is enqueued.
type Option func(*enqueue) error

// enqueue is a job being put together.
type enqueue struct {
	job       store.NewJob
	elsewhere bool
	passable  bool     // others with its exclusive key may pass it while it waits to be tried again
	byArgs    bool     // the unique key is made of the kind and its arguments
	tags      []string // sorted, each once
	request   string   // a hash of what the job is made of
}

// In makes the job run once d has passed, by the database's clock.
func In(d time.Duration) Option {
	return func(e *enqueue) error {
		if d < 0 || d > job.MaxAhead {
			return fmt.Errorf("In(%v): 0 to ten years are allowed", d)
		}
		e.job.DueIn = d
		return nil
	}
}

// At makes the job run at a time, or now if that has passed.
func At(t time.Time) Option {
	return func(e *enqueue) error {
		if y := t.Year(); y < 1970 || y > 9999 {
			return fmt.Errorf("At(%v): years 1970 to 9999 are allowed", t)
		}
		e.job.DueAt = t
		return nil
	}
}

// OnQueue puts the job on a queue other than its kind's. A tenant's queues share what the
// tenant has, by acquire.queues.weights in the configuration.
func OnQueue(name string) Option {
	return func(e *enqueue) error {
		e.job.Queue = name
		return job.ValidateKind("queue", name)
	}
}

// Priority places the job before those of the same tenant and queue with a lower
// one, unless those have been passed over for long (acquire.queues.age_every in the
// configuration); job.MinPriority to job.MaxPriority, 0 by default.
func Priority(p int) Option {
	return func(e *enqueue) error {
		if p < job.MinPriority || p > job.MaxPriority {
			return fmt.Errorf("Priority(%d): %d to %d are allowed", p, job.MinPriority, job.MaxPriority)
		}
		e.job.Priority = int16(p)
		return nil
	}
}

// MaxAttempts bounds how often the job is tried, whatever its kind's policy says;
// 1 to 1000.
func MaxAttempts(n int) Option {
	return func(e *enqueue) error {
		if n < 1 || n > job.MaxMaxAttempts {
			return fmt.Errorf("MaxAttempts(%d): 1 to %d are allowed", n, job.MaxMaxAttempts)
		}
		e.job.MaxAttempts = n
		return nil
	}
}

// Timeout bounds each run of the job, whatever its kind and the node say: from 1 ms to some 24 days, in
// whole milliseconds. The context of a run that takes longer is cancelled with [job.ErrTimeout].
func Timeout(d time.Duration) Option {
	return func(e *enqueue) error {
		if d < time.Millisecond || d > job.MaxTimeout {
			return fmt.Errorf("Timeout(%v): 1ms to 24 days are allowed", d)
		}
		e.job.Timeout = d.Truncate(time.Millisecond)
		return nil
	}
}

// Unique keeps the job from being added while the tenant has an unfinished one
// with the same key: that one is returned instead. A key is free again once its
// job is finished, cancelled or dead. For a request that may come twice, also after
// the job has ended, take [UniqueFor].
func Unique(key string) Option {
	return func(e *enqueue) error {
		if err := job.ValidateUniqueKey(key); err != nil {
			return fmt.Errorf("Unique: %w", err)
		}
		e.job.UniqueKey, e.job.UniqueFor, e.byArgs = key, 0, false
		return nil
	}
}

// UniqueFor is [Unique], and keeps the key taken for a period from now on as well, whatever becomes of
// the job meanwhile: also after it is finished, cancelled, dead or deleted. During the period other
// jobs with the key are duplicates of it, whichever option they have it from. The key is free when the
// period is over and no unfinished job has it. From 1 s to ten years, by the database's clock.
func UniqueFor(key string, period time.Duration) Option {
	return func(e *enqueue) error {
		if err := checkPeriod("UniqueFor", period); err != nil {
			return err
		}
		err := Unique(key)(e)
		e.job.UniqueFor = period
		return err
	}
}

// UniqueArgs makes the job unique by its kind and its arguments as they are encoded: as [Unique] with a
// key that is made of them. With a period, other than 0, as [UniqueFor]. It takes the place of
// either.
func UniqueArgs(period time.Duration) Option {
	return func(e *enqueue) error {
		if period != 0 {
			if err := checkPeriod("UniqueArgs", period); err != nil {
				return err
			}
		}
		e.job.UniqueFor, e.byArgs = period, true
		return nil
	}
}

func checkPeriod(option string, period time.Duration) error {
	if err := job.ValidatePeriod(period); err != nil {
		return fmt.Errorf("%s: %w", option, err)
	}
	return nil
}

// argsKey is the unique key of a job whose kind and arguments are its key.
func argsKey(kind string, payload []byte) string {
	return fmt.Sprintf("args:%s:%x", kind, sha256.Sum256(payload))
}

// Exclusive lets at most one of the tenant's jobs with this key run at a time in its pool,
// whatever their kinds, queues and nodes: in the order in which they were enqueued, or became due,
// and over priorities. A job that waits for its next attempt keeps its place, and those behind it
// wait for it; one that is snoozed, by its handler or as its database is unavailable, lets others
// go first. The key is 1 to 1024 bytes of text. See docs/limits.md, and [SkipRetrying].
func Exclusive(key string, options ...ExclusiveOption) Option {
	return func(e *enqueue) error {
		e.job.ExclusiveKey, e.passable = key, false
		for _, o := range options {
			o(e)
		}
		return job.ValidateExclusiveKey(key)
	}
}

// ExclusiveOption changes what an exclusive key does.
type ExclusiveOption func(*enqueue)

// SkipRetrying lets the jobs that stand behind this one under its exclusive key start while it waits to
// be tried again. When its time has come it is the next one, and as ever no two of them run at a time.
func SkipRetrying(e *enqueue) { e.passable = true }

// Correlation stores an id with the job by which the caller's other records can
// be found; at most 1024 bytes.
func Correlation(id string) Option {
	return func(e *enqueue) error {
		if len(id) > job.MaxKey {
			return fmt.Errorf("Correlation: %d bytes: %d are allowed", len(id), job.MaxKey)
		}
		e.job.CorrelationID = id
		return job.ValidateText("correlation id", id)
	}
}

// Tags marks the job, so that it can be found by them: see JobFilter.Tags, and tenure jobs list --tag.
// At most [job.MaxTags] of 1 to [job.MaxTag] bytes each; said more than once, they add up. The handler finds
// them by [job.Record.Tags]. A job with tags costs a row for each; one without costs nothing.
func Tags(tags ...string) Option {
	return func(e *enqueue) error {
		e.tags = append(e.tags, tags...)
		return job.ValidateTags(tags)
	}
}

// OfRequest notes a hash of the request that the job is made of, by which another request with the same unique key can be
// told from the same one that is sent again: see [jobmeta.Request].
func OfRequest(hash string) Option {
	return func(e *enqueue) error {
		e.request = hash
		return job.ValidateText("OfRequest", hash)
	}
}

// addMeta puts what the ledger keeps in the job's meta there.
func (e *enqueue) addMeta() error {
	if e.request != "" {
		meta, err := jobmeta.SetRequest(e.job.Meta, e.request)
		if err == nil {
			err = job.CheckPayload(meta)
		}
		if err != nil {
			return fmt.Errorf("OfRequest: %w", err)
		}
		e.job.Meta = meta
	}
	if e.passable {
		meta, err := jobmeta.SetSkipRetrying(e.job.Meta)
		if err == nil {
			err = job.CheckPayload(meta)
		}
		if err != nil {
			return fmt.Errorf("SkipRetrying: %w", err)
		}
		e.job.Meta = meta
	}
	if len(e.tags) == 0 {
		return nil
	}
	slices.Sort(e.tags)
	e.tags = slices.Compact(e.tags)
	if n := len(e.tags); n > job.MaxTags {
		return fmt.Errorf("Tags: %d tags: %d are allowed", n, job.MaxTags)
	}
	meta, err := jobmeta.SetTags(e.job.Meta, e.tags)
	if err == nil {
		err = job.CheckPayload(meta)
	}
	if err != nil {
		return fmt.Errorf("Tags: %w", err)
	}
	e.job.Meta, e.job.Tagged = meta, true
	return nil
}

// Meta stores values beside the arguments that are not the handler's business,
// such as who asked. Handlers find them in Job.Meta as JSON. Keys that begin with "tenure:" or "tenure." are taken.
func Meta(values map[string]any) Option {
	return func(e *enqueue) error {
		b, err := job.EncodeMeta(values)
		if err != nil {
			return err
		}
		e.job.Meta = b
		return nil
	}
}

// Elsewhere allows a kind that this process has no handler for, because other
// nodes have. Without it such an enqueue is refused, as it is most often a typing
// mistake or a handler that was not registered.
func Elsewhere() Option {
	return func(e *enqueue) error {
		e.elsewhere = true
		return nil
	}
}

// External has the job wait for a worker outside the cluster instead of a node: for one that asks
// for its kind, which is the topic. See external.Workers and docs/external-workers.md. A kind's handler
// does not matter for it. Its exclusive key keeps other jobs for such workers waiting, and none that nodes run.
func External() Option {
	return func(e *enqueue) error {
		e.job.External = true
		return nil
	}
}

// withData says that the job's transaction may write the tenant's own data, too.
func withData(e *enqueue) error {
	e.job.WithData = true
	return nil
}

func checkJob(registry *job.Registry, tenant tenancy.Tenant, args job.Args, opts []Option) (store.NewJob, error) {
	kind, err := kindOf(args)
	if err != nil {
		return store.NewJob{}, err
	}
	if err := job.ValidateKind("kind", kind); err != nil {
		return store.NewJob{}, err
	}
	e := enqueue{job: store.NewJob{Tenant: string(tenant.ID), Kind: kind}}
	for i, o := range opts {
		if o == nil {
			return store.NewJob{}, fmt.Errorf("option %d is nil: leave it out", i)
		}
		if err := o(&e); err != nil {
			return store.NewJob{}, err
		}
	}
	if err := e.checkLinks(); err != nil {
		return store.NewJob{}, err
	}
	if _, known := registry.Find(kind); !known && registry != nil && !e.elsewhere && !e.job.External {
		return store.NewJob{}, fmt.Errorf("%w: register a handler before New, or pass tenure.Elsewhere() if another node has one", ErrUnknownKind)
	}
	if e.job.Payload, err = job.Encode(args); err != nil {
		return store.NewJob{}, err
	}
	if e.byArgs {
		e.job.UniqueKey = argsKey(kind, e.job.Payload)
	}
	if err := e.addMeta(); err != nil {
		return store.NewJob{}, err
	}
	if e.job.External && (e.job.Timeout != 0 || e.job.Links != nil) {
		return store.NewJob{}, errors.New("External with Timeout, After, AsBatch or InBatch: jobs for external workers have none of these; leave them out")
	}
	return e.job, nil
}
