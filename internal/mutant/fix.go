package mutant

import (
	"cmp"
	"go/format"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// Fix writes into the tables below root what the code has become: where each row's text stands
// now, and the names in it. It returns how many rows have changed.
func Fix(root string) (int, error) {
	rows, err := Read(root)
	if err != nil {
		return 0, err
	}
	c, err := Load(root)
	if err != nil {
		return 0, err
	}
	fixed := 0
	edits := map[string][]edit{} // by table
	for _, r := range rows {
		f, err := c.Find(r.Mutant)
		if err != nil {
			return 0, err
		}
		of, err := r.follow(f)
		if err != nil {
			return 0, err
		}
		if len(of) > 0 {
			fixed++
			edits[r.Table] = append(edits[r.Table], of...)
		}
	}
	for table, of := range edits {
		file := filepath.Join(root, table)
		text, err := os.ReadFile(file)
		if err != nil {
			return 0, err
		}
		if text, err = format.Source([]byte(apply(string(text), of))); err != nil {
			return 0, err
		}
		if err := os.WriteFile(file, text, 0o644); err != nil {
			return 0, err
		}
	}
	return fixed, nil
}

// edit replaces a part of a table.
type edit struct {
	at   span
	text string
}

// follow is what has to be edited for the row to say where f is.
func (r Row) follow(f Found) ([]edit, error) {
	old, err := rename(r.File, r.Old, f.Renamed)
	if err != nil {
		return nil, err
	}
	replaced, err := rename(r.File, r.New, f.Renamed)
	if err != nil {
		return nil, err
	}
	var out []edit
	for _, field := range []struct{ name, was, is string }{
		{"File", r.File, f.File}, {"Func", r.Func, f.Func}, {"Old", r.Old, old}, {"New", r.New, replaced},
	} {
		at, ok := r.fields[field.name]
		switch {
		case field.was == field.is:
		case ok:
			out = append(out, edit{at, quote(field.is)})
		default: // of these only Func may be missing
			after := r.fields["File"].to
			out = append(out, edit{span{after, after}, ", Func: " + quote(field.is)})
		}
	}
	return out, nil
}

// apply makes the edits, of which none overlaps another.
func apply(text string, edits []edit) string {
	slices.SortStableFunc(edits, func(a, b edit) int { return cmp.Compare(b.at.from, a.at.from) })
	for _, e := range edits {
		text = text[:e.at.from] + e.text + text[e.at.to:]
	}
	return text
}

// quote is a literal that reads as the text does, where Go allows that.
func quote(s string) string {
	if strings.ContainsAny(s, "\n\"\\") && !strings.Contains(s, "`") {
		return "`" + s + "`"
	}
	return strconv.Quote(s)
}
