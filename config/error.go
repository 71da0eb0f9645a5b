package config

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
)

// Fault is one mistake. It quotes nothing of the file but keys, and values that are
// numbers, durations or addresses: so it never holds a secret.
type Fault struct {
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`   // from 1; 0 when the Config did not come from a file
	Column int    `json:"column,omitempty"` // in characters, from 1
	Path   string `json:"path,omitempty"`   // such as pools.eu-1.dsn; empty for the file as a whole
	What   string `json:"what"`             // such as "is empty"; without the path
	Fix    string `json:"fix,omitempty"`
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

func (e *Error) add(f Fault) {
	if len(e.Faults) >= maxFaults {
		e.Truncated = true
		return
	}
	e.Faults = append(e.Faults, f)
}

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
		fmt.Fprintf(&b, "error: %s\n", f.sentence())
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
	fmt.Fprintf(&b, " in %s", cmp.Or(e.File, "the configuration"))
	return b.String()
}

var verbs = []string{"is", "has", "does", "can", "cannot", "differs", "goes", "needs", "opens", "sets", "names", "looks", "limits", "refers"}

// sentence is what is wrong, as it reads on its own.
func (f Fault) sentence() string {
	first, _, _ := strings.Cut(f.What, " ")
	switch {
	case slices.Contains(verbs, first):
		return cmp.Or(f.Path, "the file") + " " + f.What
	case f.Path == "":
		return f.What
	}
	return f.Path + ": " + f.What
}
