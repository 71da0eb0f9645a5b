package job

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/tenurehq/tenure/internal/jobmeta"
)

// Bounds of a job's priority, of its time-out, and of its keys and correlation id in bytes.
const (
	MinPriority = -1000
	MaxPriority = 1000
	MaxKey      = 1024
	MaxAhead    = 10 * 366 * 24 * time.Hour        // that a job starts later, or its unique key is kept: ten years
	MaxTimeout  = math.MaxInt32 * time.Millisecond // which the ledger's integer of milliseconds can hold: some 24 days
)

// ValidateText refuses what Postgres cannot store: in an EnqueueMany it would fail
// the other jobs, too.
func ValidateText(what, s string) error {
	switch {
	case strings.ContainsRune(s, 0):
		return fmt.Errorf("%s %q holds a NUL character, which Postgres cannot store", what, s)
	case !utf8.ValidString(s):
		return fmt.Errorf("%s %q is not UTF-8", what, s)
	}
	return nil
}

// EncodeMeta returns the JSON of values that a job has beside its arguments. The error names a key that is
// Tenure's own, or says what cannot be stored.
func EncodeMeta(values map[string]any) ([]byte, error) {
	for key := range values {
		if strings.HasPrefix(key, jobmeta.Prefix) || strings.HasPrefix(key, jobmeta.AwaitedPrefix) {
			return nil, fmt.Errorf("meta: key %q: those that begin with %s or %s are Tenure's own", key, jobmeta.Prefix, jobmeta.AwaitedPrefix)
		}
	}
	b, err := json.Marshal(values)
	if err == nil {
		err = CheckPayload(b)
	}
	if err != nil {
		return nil, fmt.Errorf("meta: %w", err)
	}
	return b, nil
}

// ValidateUniqueKey says what of a unique key cannot be.
func ValidateUniqueKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("the key has %d bytes: 1 to %d are allowed", len(key), MaxKey)
	}
	return ValidateText("unique key", key)
}

// ValidatePeriod says what of the period of a unique key cannot be.
func ValidatePeriod(period time.Duration) error {
	if period < time.Second || period > MaxAhead {
		return fmt.Errorf("a period of %v: 1s to ten years are allowed", period)
	}
	return nil
}

// ValidateExclusiveKey says what of an exclusive key cannot be.
func ValidateExclusiveKey(key string) error {
	if key == "" || len(key) > MaxKey {
		return fmt.Errorf("exclusive key of %d bytes: 1 to %d are allowed", len(key), MaxKey)
	}
	return ValidateText("exclusive key", key)
}
