package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/tenurehq/tenure/internal/fault"
)

// Fault is one mistake. It never holds a secret.
type Fault struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0 when the Config did not come from a file
	Column int    `json:"column,omitempty"` // in characters, from 1
	Path   string `json:"path,omitempty"`   // such as pools.eu-1.dsn; empty for the file as a whole
	What   string `json:"what"`
	Fix    string `json:"fix,omitempty"`
	// Excerpt is the line with its number, and a caret below; empty when no line
	// shows the mistake.
	Excerpt string `json:"excerpt,omitempty"`
}

// maxFaults keeps what is not a configuration at all from filling the screen.
const maxFaults = 100

// Error is every mistake in a configuration, in the order of the file.
type Error struct {
	File   string  `json:"file,omitempty"`
	Faults []Fault `json:"faults"`
	// Truncated says that there are more faults than the hundred given here.
	Truncated bool `json:"truncated,omitempty"`
	// Example is a file that would do, given when nothing useful was found.
	Example string `json:"example,omitempty"`
}

func (e *Error) add(f Fault) { e.Faults = append(e.Faults, f) }

// err sorts the faults; nil when there are none.
func (e *Error) err() error {
	if len(e.Faults) == 0 {
		return nil
	}
	slices.SortStableFunc(e.Faults, func(a, b Fault) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column), cmp.Compare(a.Path, b.Path))
	})
	e.Faults = slices.Compact(e.Faults)
	return e
}

// Error prints all faults for a terminal, over several lines; places come first
// so that editors and terminals can jump to them.
func (e *Error) Error() string {
	var b strings.Builder
	for _, f := range e.Faults {
		if f.Line > 0 {
			fmt.Fprintf(&b, "%s:%d:%d: ", f.File, f.Line, f.Column)
		}
		fmt.Fprintf(&b, "error: %s\n%s", f.What, f.Excerpt)
		if f.Fix != "" {
			fmt.Fprintf(&b, "      = %s\n", f.Fix)
		}
	}
	if e.Example != "" {
		b.WriteString("the shortest file that works:\n\n")
		for line := range strings.Lines(e.Example) {
			b.WriteString("    " + line)
		}
		b.WriteByte('\n')
	}
	if e.Truncated {
		b.WriteString("more than ")
	}
	fmt.Fprintf(&b, "%d problem", len(e.Faults))
	if len(e.Faults) != 1 {
		b.WriteByte('s')
	}
	fmt.Fprintf(&b, " in %s; nothing was changed", cmp.Or(e.File, "the configuration"))
	return b.String()
}

// sentence is what is wrong, as it reads on its own. The path is left out where
// the excerpt shows it (shown), unless the sentence would lack its subject.
func sentence(f *fault.Fault, shown bool) string {
	first, _, _ := strings.Cut(f.What, " ")
	switch {
	case f.Path == "":
		return f.What
	case slices.Contains([]string{"is", "has", "does", "cannot", "differs", "holds", "needs", "opens"}, first):
		return f.Path + " " + f.What
	case shown:
		return f.What
	default:
		return f.Path + ": " + f.What
	}
}
