// Package fault is the one shape every refused setting has: where it stands in
// the YAML tree, what is wrong and why, and how to mend it. Packages validate
// their own Config into faults; package config adds file, line and column.
package fault

import (
	"errors"
	"fmt"
)

// Fault is one refused setting.
type Fault struct {
	Path string // YAML path from the root of the file, such as "cluster.bind" or "pools.eu-1.dsn"
	What string // what is wrong and why, without the path; never holds a secret's value
	Fix  string // how to mend it; may be empty when What says it all
}

// Error renders the fault as "path: what; fix", without what is empty.
func (f *Fault) Error() string {
	text := f.What
	if f.Path != "" {
		text = f.Path + ": " + text
	}
	if f.Fix != "" {
		text += "; " + f.Fix
	}
	return text
}

// List gathers faults so that a user sees all of them in one go.
// The zero value is ready to use. It is not safe for concurrent use.
type List struct{ errs []error }

// Add records a fault at path. fix may be empty.
func (l *List) Add(path, fix, what string, args ...any) {
	l.errs = append(l.errs, &Fault{Path: path, What: fmt.Sprintf(what, args...), Fix: fix})
}

// Err joins what was added; nil when nothing was.
func (l *List) Err() error { return errors.Join(l.errs...) }

// All takes err apart into the faults joined in it, depth first. Errors of
// another type come back as a Fault without a path, so that nothing is lost.
func All(err error) []*Fault {
	if err == nil {
		return nil
	}
	if f, ok := err.(*Fault); ok {
		return []*Fault{f}
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		var out []*Fault
		for _, e := range joined.Unwrap() {
			out = append(out, All(e)...)
		}
		return out
	}
	return []*Fault{{What: err.Error()}}
}
