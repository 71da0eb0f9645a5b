package tenure

import (
	"encoding/json"
	"fmt"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/job"
)

// Option changes how one job is enqueued.
type Option func(*enqueue) error

// enqueue is a job being put together.
type enqueue struct {
	job       store.NewJob
	elsewhere bool
}

// In makes the job run once d has passed, by the database's clock.
func In(d time.Duration) Option {
	return func(e *enqueue) error {
		if d < 0 || d > maxDelay {
			return fmt.Errorf("In(%v): 0 to %v are allowed", d, maxDelay)
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

// maxDelay is ten years.
const maxDelay = 10 * 366 * 24 * time.Hour

// OnQueue puts the job on a queue other than its kind's.
func OnQueue(name string) Option {
	return func(e *enqueue) error {
		e.job.Queue = name
		return job.ValidateKind("queue", name)
	}
}

// Bounds of [Priority].
const (
	MinPriority = -1000
	MaxPriority = 1000
)

// Priority places the job before those of the same tenant and queue with a lower
// one; MinPriority to MaxPriority, 0 by default.
func Priority(p int) Option {
	return func(e *enqueue) error {
		if p < MinPriority || p > MaxPriority {
			return fmt.Errorf("Priority(%d): %d to %d are allowed", p, MinPriority, MaxPriority)
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

// maxKey is the longest unique key, in bytes.
const maxKey = 1024

// Unique keeps the job from being added while the tenant has an unfinished one
// with the same key: that one is returned instead. A key is free again once its
// job is finished, cancelled or dead.
func Unique(key string) Option {
	return func(e *enqueue) error {
		if key == "" || len(key) > maxKey {
			return fmt.Errorf("Unique: the key has %d bytes: 1 to %d are allowed", len(key), maxKey)
		}
		e.job.UniqueKey = key
		return validateText("unique key", key)
	}
}

// Correlation stores an id with the job by which the caller's other records can
// be found; at most 1024 bytes.
func Correlation(id string) Option {
	return func(e *enqueue) error {
		if len(id) > maxKey {
			return fmt.Errorf("Correlation: %d bytes: %d are allowed", len(id), maxKey)
		}
		e.job.CorrelationID = id
		return validateText("correlation id", id)
	}
}

// Meta stores values beside the arguments that are not the handler's business,
// such as who asked. Handlers find them in Job.Meta as JSON.
func Meta(values map[string]any) Option {
	return func(e *enqueue) error {
		b, err := json.Marshal(values)
		if err != nil {
			return fmt.Errorf("Meta: %w", err)
		}
		if err := job.CheckPayload(b); err != nil {
			return fmt.Errorf("Meta: %w", err)
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

// withData says that the job's transaction may write the tenant's own data, too.
func withData(e *enqueue) error {
	e.job.WithData = true
	return nil
}

// validateText refuses what Postgres cannot store: in an EnqueueMany it would fail
// the other jobs, too.
func validateText(what, s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%s %q holds a NUL character, which Postgres cannot store", what, s)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not UTF-8", what, s)
	}
	return nil
}
