// Package jobmeta is what Tenure itself keeps in a job's meta, a JSON object that is otherwise the user's. Each Set
// function returns meta, an object, null or nil, with one thing more; what is read from a text that is none is empty.
package jobmeta

import (
	"bytes"
	"encoding/json"
	"fmt"
)

// Prefix begins the keys of a job's meta, and the first element of encrypted arguments, that are not the user's.
const Prefix = "tenure:"

// AwaitedPrefix begins the key under which the ledger tells a job how those ended that it has awaited.
const AwaitedPrefix = "tenure."

const (
	tagsKey         = Prefix + "tags"
	traceKey        = Prefix + "traceparent"
	requestKey      = Prefix + "request"
	skipRetryingKey = Prefix + "skip_retrying"
)

// kept is what there may be.
type kept struct {
	Tags        []string `json:"tenure:tags"`
	Traceparent string   `json:"tenure:traceparent"`
	Request     string   `json:"tenure:request"`
}

func read(meta []byte, key string) (k kept) {
	if !bytes.Contains(meta, []byte(key)) { // most have none, and need not be decoded
		return kept{}
	}
	_ = json.Unmarshal(meta, &k) // one thing that SQL has written wrongly takes nothing from the others
	return k
}

func set(meta []byte, key string, value any) ([]byte, error) {
	var of map[string]json.RawMessage
	if meta != nil {
		if err := json.Unmarshal(meta, &of); err != nil {
			return nil, fmt.Errorf("meta is not a JSON object: %w", err)
		}
	}
	if of == nil { // null makes none
		of = map[string]json.RawMessage{}
	}
	var err error
	if of[key], err = json.Marshal(value); err != nil {
		return nil, err
	}
	return json.Marshal(of)
}

// Tags are a job's tags, sorted.
func Tags(meta []byte) []string { return read(meta, tagsKey).Tags }

// SetTags is of a job with these tags, which are sorted.
func SetTags(meta []byte, tags []string) ([]byte, error) { return set(meta, tagsKey, tags) }

// Traceparent names the span in which a job was enqueued, as W3C's header does. SQL may have written any text there.
func Traceparent(meta []byte) string { return read(meta, traceKey).Traceparent }

// SetTraceparent is of a job that was enqueued in this span.
func SetTraceparent(meta []byte, traceparent string) ([]byte, error) {
	return set(meta, traceKey, traceparent)
}

// Request is the hash of the request that a job was made of.
func Request(meta []byte) string { return read(meta, requestKey).Request }

// SetRequest is of a job that was made of a request with this hash.
func SetRequest(meta []byte, hash string) ([]byte, error) { return set(meta, requestKey, hash) }

// SetSkipRetrying is of a job that others with its exclusive key may pass while it waits to be tried again.
func SetSkipRetrying(meta []byte) ([]byte, error) { return set(meta, skipRetryingKey, true) }
