package config

import (
	"fmt"
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
	lines      []string
	err        Error
	places     map[string]place // of every setting in the file, by path
	references map[string]reference
	bad        []string // paths whose value is not what the file wanted
	hidden     hiddenTexts
	secrets    []string // paths of literal secrets
}

// reportFaults adds what the packages find, without what only follows from a
// fault that was reported already.
func (d *document) reportFaults(c Config) {
	if d.isBad("") {
		return
	}
	found := c.faults()
	for _, f := range found {
		if f.Path == "tenants.schema" || f.Path == "tenants.role" {
			d.bad = append(d.bad, f.Path)
		}
	}
	for _, f := range found {
		if d.err.Truncated {
			return
		}
		if d.follows(f) {
			continue
		}
		c.polish(f)
		if f.Path == "pools" && len(c.Pools) == 0 {
			d.err.Example = Minimal
		}
		_, given := d.places[f.Path]
		d.reportAt(d.locate(f.Path, f.What), f.Path, sentence(f, given), f.Fix)
	}
}

// follows says whether f may only be there because of a value that was refused.
func (d *document) follows(f *fault.Fault) bool {
	for _, bad := range d.bad {
		switch {
		case bad == f.Path && (bad == "tenants.schema" || bad == "tenants.role"):
			// its own fault
		case within(f.Path, bad), mentions(f.What, bad):
			return true
		case within(bad, f.Path) && !strings.HasPrefix(f.Path, "pools."): // those are about the pool's name
			return true
		case bad == "pools" && strings.HasPrefix(f.Path, "tenants.") && strings.HasSuffix(f.Path, ".pool"):
			return true
		case (bad == "tenants.schema" || bad == "tenants.role") && within(f.Path, "tenants.static") && !strings.HasSuffix(f.Path, ".pool"):
			return true
		}
	}
	return false
}

// isBad says whether path, or something in it, was refused.
func (d *document) isBad(path string) bool {
	return slices.ContainsFunc(d.bad, func(bad string) bool { return bad == path || within(bad, path) })
}

// locate finds the place to show for a setting: its own; for one that is not in
// the file, that of a setting that the sentence compares it with, or else of the
// section it would stand in. The zero place means none.
func (d *document) locate(path, what string) place {
	if at, ok := d.places[path]; ok {
		return at
	}
	for _, token := range pathToken.FindAllString(what, -1) {
		if at, ok := d.places[token]; ok {
			return at
		}
	}
	for path != "" {
		path = path[:max(0, strings.LastIndexAny(path, ".["))]
		if at, ok := d.places[path]; ok {
			return at
		}
	}
	return place{}
}

// report adds a fault of the value at n.
func (d *document) report(n *yaml.Node, path, what, fix string) {
	d.bad = append(d.bad, path)
	d.reportAt(placeOf(n), path, what, fix)
}

func (d *document) reportAt(at place, path, what, fix string) {
	if len(d.err.Faults) >= maxFaults {
		d.err.Truncated = true
		return
	}
	d.err.add(Fault{File: d.err.File, Line: max(1, at.line), Column: max(1, at.column),
		Path: maskText(path, d.hidden), What: maskText(what, d.hidden), Fix: fix,
		Excerpt: excerpt(d.lines, at.line, at.column, d.hidden)})
}

// quote shows a text from the file in a sentence.
func (d *document) quote(text string) string {
	text, _ = maskLine(text, 0, d.hidden)
	if runes := []rune(text); len(runes) > 60 {
		text = string(runes[:59]) + "…"
	}
	return fmt.Sprintf("%q", text)
}

var pathToken = regexp.MustCompile(`[a-z_]+(?:\.[a-z_]+)+`)

// mentions says whether a sentence names the setting at path.
func mentions(what, path string) bool {
	return slices.Contains(pathToken.FindAllString(what, -1), path)
}

// within says whether inner is outer or stands below it.
func within(inner, outer string) bool {
	rest, ok := strings.CutPrefix(inner, outer)
	return ok && outer != "" && (rest == "" || rest[0] == '.' || rest[0] == '[')
}
