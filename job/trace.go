package job

import (
	"bytes"
	"encoding/json"
)

// traceKey is where a job's meta says in which span it was enqueued.
const traceKey = ReservedPrefix + "traceparent"

// WithTraceparent returns meta, a JSON object, null or nil, of a job that was enqueued in a span, which W3C's
// header traceparent would name so.
func WithTraceparent(meta []byte, traceparent string) ([]byte, error) {
	return withMeta(meta, traceKey, traceparent)
}

// Traceparent names the span in which the job was enqueued, as W3C's header does; "": in none, or that is not
// known. Whoever enqueues by SQL may have written any text there.
func (r *Record) Traceparent() string { return TraceparentOf(r.Meta) }

// TraceparentOf is [Record.Traceparent] of a job that has this meta.
func TraceparentOf(meta []byte) string {
	if !bytes.Contains(meta, []byte(traceKey)) { // most have none, and need not be decoded
		return ""
	}
	var of struct {
		Traceparent string `json:"tenure:traceparent"`
	}
	if json.Unmarshal(meta, &of) != nil {
		return ""
	}
	return of.Traceparent
}
