package config

import (
	"regexp"
	"slices"
	"strings"

	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure/internal/fault"
)

// place is where something stands, both from 1, the column in characters.
type place struct{ line, column int }

func placeOf(n *yaml.Node) place { return place{n.Line, n.Column} }

// document is a file on its way to a Config. Not safe for concurrent use.
type document struct {
	err        Error
	places     map[string]place // of every setting in the file, by path
	references map[string]reference
	bad        []string // paths whose value is not what the file wanted
	secrets    []string // paths of secrets that the file spells out
}

func newDocument(name string) *document {
	return &document{err: Error{File: name}, places: map[string]place{}, references: map[string]reference{}}
}

// reportFaults adds what the packages find, without what only follows from a
// fault that was reported already.
func (d *document) reportFaults(c Config) {
	if d.isBad("") {
		return
	}
	found := c.faults()
	for _, f := range found {
		if isPattern(f.Path) {
			d.bad = append(d.bad, f.Path)
		}
	}
	for _, f := range found {
		if d.follows(f) {
			continue
		}
		if f.Path == "pools" && len(c.Pools) == 0 {
			d.err.Example = Minimal
		}
		d.reportAt(d.locate(f.Path, f.What), f.Path, f.What, f.Fix)
	}
}

// isPattern tells the settings that the places of tenants are made of.
func isPattern(path string) bool { return path == "tenants.schema" || path == "tenants.role" }

// follows says whether f may only be there because of a value that was refused.
func (d *document) follows(f *fault.Fault) bool {
	return slices.ContainsFunc(d.bad, func(bad string) bool {
		switch {
		case bad == f.Path && isPattern(bad): // its own fault
			return false
		case within(f.Path, bad), slices.Contains(pathsIn(f.What), bad):
			return true
		case within(bad, f.Path) && !strings.HasPrefix(f.Path, "pools."): // those are about the pool's name
			return true
		case bad == "pools":
			return strings.HasPrefix(f.Path, "tenants.") && strings.HasSuffix(f.Path, ".pool")
		}
		return isPattern(bad) && within(f.Path, "tenants.static") && !strings.HasSuffix(f.Path, ".pool")
	})
}

// isBad says whether path, or something in it, was refused.
func (d *document) isBad(path string) bool {
	return slices.ContainsFunc(d.bad, func(bad string) bool { return bad == path || within(bad, path) })
}

// locate finds the place to show for a setting: its own; for one that is not in
// the file, that of a setting that the sentence compares it with, or else of the
// section it would stand in, or of the file.
func (d *document) locate(path, what string) place {
	candidates := append([]string{path}, pathsIn(what)...)
	for path != "" {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
		candidates = append(candidates, path)
	}
	for _, c := range candidates {
		if at, ok := d.places[c]; ok {
			return at
		}
	}
	return place{1, 1}
}

// report adds a fault of the value at n.
func (d *document) report(n *yaml.Node, path, what, fix string) {
	d.bad = append(d.bad, path)
	d.reportAt(placeOf(n), path, what, fix)
}

func (d *document) reportAt(at place, path, what, fix string) {
	d.err.add(Fault{File: d.err.File, Line: at.line, Column: at.column, Path: path, What: what, Fix: fix})
}

var pathForm = regexp.MustCompile(`[a-z_]+(?:\.[a-z_]+)+`)

// pathsIn are the paths of settings that a sentence names.
func pathsIn(what string) []string { return pathForm.FindAllString(what, -1) }

// within says whether inner is outer or stands below it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
