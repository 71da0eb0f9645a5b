package tenure

import (
	"cmp"
	"fmt"
	"strings"
	"time"

	"github.com/tenurehq/tenure/internal/plural"
)

// FrozenStatus is a queue or kind that is frozen in a pool, and since when.
type FrozenStatus struct {
	Queue, Kind string // one of them
	Pool        string
	Since       time.Time
}

// PartlyError says in which pools something was done that was to be done in all. Doing it again does it in the others,
// once they answer.
type PartlyError struct {
	In          []string // the pools in which it was done
	Of          int      // how many pools there are
	done, again string
	err         error
}

// Text says what was done, and where, without what a database said.
func (e *PartlyError) Text() string {
	return fmt.Sprintf("%s in %d of %s (%s)", e.done, len(e.In), plural.Count(e.Of, "pool", "pools"), cmp.Or(strings.Join(e.In, ", "), "none"))
}

func (e *PartlyError) Error() string {
	return fmt.Sprintf("%s; once the others answer, type again: %s: %v", e.Text(), e.again, e.err)
}

// Unwrap returns why the others did not do it.
func (e *PartlyError) Unwrap() error { return e.err }
