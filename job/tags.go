package job

import (
	"encoding/json"
	"fmt"
	"strings"
	"unicode/utf8"
)

// ReservedPrefix begins the keys of a job's meta, and the first element of encrypted arguments, that are not the user's.
const ReservedPrefix = "tenure:"

// tagsKey is where a job's tags stand in its meta.
const tagsKey = ReservedPrefix + "tags"

// Bounds of a job's tags.
const (
	MaxTags = 16
	MaxTag  = 64 // bytes
)

// ValidateTag refuses a tag that is empty, longer than [MaxTag], or that Postgres cannot store.
func ValidateTag(tag string) error {
	switch {
	case tag == "" || len(tag) > MaxTag:
		return fmt.Errorf("tag %q has %d bytes: 1 to %d are allowed", tag, len(tag), MaxTag)
	case strings.ContainsRune(tag, 0):
		return fmt.Errorf("tag %q holds a NUL character, which Postgres cannot store", tag)
	case !utf8.ValidString(tag):
		return fmt.Errorf("tag %q is not UTF-8", tag)
	}
	return nil
}

// Tags returns the job's tags, sorted; none if it has none. It decodes the job's meta each time.
func (r *Record) Tags() []string { return TagsOf(r.Meta) }

// TagsOf returns the tags that a job's meta has.
func TagsOf(meta []byte) []string {
	var of struct {
		Tags []string `json:"tenure:tags"`
	}
	if len(meta) == 0 || json.Unmarshal(meta, &of) != nil {
		return nil
	}
	return of.Tags
}

// skipRetryingKey is where a job's meta says that others may pass it while it waits to be tried again.
const skipRetryingKey = ReservedPrefix + "skip_retrying"

// WithTags returns meta, a JSON object, null or nil, with these tags.
func WithTags(meta []byte, tags []string) ([]byte, error) { return withMeta(meta, tagsKey, tags) }

// WithSkipRetrying returns meta, a JSON object, null or nil, of a job that others with its exclusive key may
// pass while it waits to be tried again.
func WithSkipRetrying(meta []byte) ([]byte, error) { return withMeta(meta, skipRetryingKey, true) }

func withMeta(meta []byte, key string, value any) ([]byte, error) {
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

// ValidateTags says which of some tags cannot be one.
func ValidateTags(tags []string) error {
	for _, t := range tags {
		if err := ValidateTag(t); err != nil {
			return err
		}
	}
	return nil
}
