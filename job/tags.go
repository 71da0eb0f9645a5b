package job

import (
	"fmt"
	"strings"
	"unicode/utf8"

	"github.com/tenurehq/tenure/internal/jobmeta"
)

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
func (r *Record) Tags() []string { return jobmeta.Tags(r.Meta) }

// ValidateTags says which of some tags cannot be one.
func ValidateTags(tags []string) error {
	for _, t := range tags {
		if err := ValidateTag(t); err != nil {
			return err
		}
	}
	return nil
}
