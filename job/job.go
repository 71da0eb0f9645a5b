package job

import (
	"context"
	"fmt"
	"strconv"
	"time"

	"github.com/tenurehq/tenure/internal/jobmeta"
)

// ID identifies a job for life: it never changes when the job moves between the
// ledger's tables or when its tenant moves between pools, and no two pools of a
// cluster ever hand out the same one.
type ID int64

// String is the decimal form, as printed in logs and taken by the command line.
func (id ID) String() string { return strconv.FormatInt(int64(id), 10) }

// ParseID reads what [ID.String] prints.
func ParseID(s string) (ID, error) {
	n, err := strconv.ParseInt(s, 10, 64)
	if err != nil || n <= 0 {
		return 0, fmt.Errorf("%q is not a job id: it is a positive whole number", s)
	}
	return ID(n), nil
}

// Args is what a job is about. Kind names the handler and must not depend on
// the value; the rest of the type is stored as JSON.
type Args interface{ Kind() string }

// Job is what a handler receives.
type Job[A Args] struct {
	Record
	Args A
}

// Record is a job as the ledger keeps it, its arguments not decoded. Handlers
// and middleware must treat it as read-only; it lives as long as the handler
// runs.
type Record struct {
	ID            ID
	Turn          int32 // the claim token; a later start of the same job has a higher one
	Tenant        string
	Queue         string
	Kind          string
	Priority      int16
	Payload       []byte // JSON
	Encrypted     bool   // the ledger keeps Payload encrypted: do not log it
	Meta          []byte // JSON object, nil when none was given
	Attempt       int    // 1 for the first run
	MaxAttempts   int    // in all; while it runs, its kind's if it has none of its own, which is 0 otherwise
	Losses        int    // how often the node that ran it was lost
	Timeout       time.Duration
	CorrelationID string
	UniqueKey     string
	ExclusiveKey  string // at most one of the tenant's jobs with this key runs at a time; see tenure.Exclusive
	CreatedAt     time.Time
}

// Traceparent names the span in which the job was enqueued, as W3C's header does; "": in none, or that is not
// known. Whoever enqueues by SQL may have written any text there.
func (r *Record) Traceparent() string { return jobmeta.Traceparent(r.Meta) }

// HandlerFunc is a handler with its arguments still encoded: what the workers
// call and what middleware wraps.
type HandlerFunc func(ctx context.Context, r *Record) error

// Middleware wraps every handler of a registry, the first added outermost.
type Middleware func(next HandlerFunc) HandlerFunc

type recordKey struct{}

// NewContext returns a context that carries r; the workers call it, and batch handlers that speak
// for one of their jobs.
func NewContext(ctx context.Context, r *Record) context.Context {
	return context.WithValue(ctx, recordKey{}, r)
}

// FromContext returns the job that a handler's context belongs to; a batch handler's belongs to
// none.
func FromContext(ctx context.Context) (*Record, bool) {
	r, _ := ctx.Value(recordKey{}).(*Record)
	return r, r != nil
}
