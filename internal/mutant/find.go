package mutant

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// Code is the Go and SQL of a module, and the names of its tests.
type Code struct {
	texts  map[string]string // by file, relative to the module's root
	places []place
	tests  map[string][]string // the folders that have a test, by its name
	names  map[string]string   // of packages, by folder
}

// place is one declaration of a Go file, or a whole file of SQL.
type place struct {
	file   string
	name   string // of a function: "Open" or "(*keeper).renew"
	tokens []lexeme
	has    map[string]bool // the names that occur in it
	body   span            // of a function; none if it has labels, which cannot stand in it twice
	end    string          // what ends a body that need not end with a statement of its own
}

// Load reads the module below root.
func Load(root string) (*Code, error) {
	c := &Code{texts: map[string]string{}, tests: map[string][]string{}, names: map[string]string{}}
	return c, eachFile(root, func(file string) error {
		if ext := path.Ext(file); ext != ".sql" && ext != ".go" {
			return nil
		}
		text, err := os.ReadFile(filepath.Join(root, file))
		if err != nil {
			return err
		}
		return c.add(file, string(text))
	})
}

var aTest = regexp.MustCompile(`(?m)^func (Test\w*)\(`)

// add takes a file in, declaration by declaration.
func (c *Code) add(file, text string) error {
	if strings.HasSuffix(file, "_test.go") {
		for _, t := range aTest.FindAllStringSubmatch(text, -1) {
			c.tests[t[1]] = append(c.tests[t[1]], path.Dir(file))
		}
		return nil
	}
	tokens, err := lex(file, text)
	if err != nil {
		return fmt.Errorf("%s: %w", file, err)
	}
	c.texts[file] = text
	if strings.HasSuffix(file, ".sql") {
		c.addPlace(place{file: file}, tokens, 0, len(text))
		return nil
	}
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, file, text, parser.SkipObjectResolution)
	if err != nil {
		return err
	}
	c.names[path.Dir(file)] = tree.Name.Name
	at := func(from, to token.Pos) span { return span{files.Position(from).Offset, files.Position(to).Offset} }
	for _, decl := range tree.Decls {
		p := place{file: file}
		if f, ok := decl.(*ast.FuncDecl); ok {
			p.name = f.Name.Name
			if f.Recv != nil {
				in := at(f.Recv.List[0].Type.Pos(), f.Recv.List[0].Type.End())
				p.name = "(" + text[in.from:in.to] + ")." + p.name
			}
			if f.Body != nil && !labelled(f.Body) {
				p.body = at(f.Body.Lbrace+1, f.Body.Rbrace)
				if f.Type.Results == nil {
					p.end = "return"
				}
			}
		}
		whole := at(decl.Pos(), decl.End())
		c.addPlace(p, tokens, whole.from, whole.to)
	}
	return nil
}

func labelled(body *ast.BlockStmt) bool {
	for n := range ast.Preorder(body) {
		if _, is := n.(*ast.LabeledStmt); is {
			return true
		}
	}
	return false
}

// addPlace takes in what stands between two offsets of a file.
func (c *Code) addPlace(p place, tokens []lexeme, from, to int) {
	p.has = map[string]bool{}
	for _, t := range tokens {
		if t.from < from || t.to > to {
			continue
		}
		p.tokens = append(p.tokens, t)
		if t.name {
			p.has[t.text] = true
		}
	}
	c.places = append(c.places, p)
}

// Found is where a mutant belongs now.
type Found struct {
	File, Func string
	Renamed    map[string]string // names of the row's that are others in the code

	text     string // of File
	from, to int    // what is to be replaced in it
	body     span   // of the function that it stands in
	end      string // of that body
	mutant   Mutant
}

// Find returns where a mutant's text stands. It is looked for in the function that the row
// names, then in functions of that name whose receiver is another, then in the whole package,
// and at last in the module. The first of these that has it decides: as it is or, if it is not
// there so, with the fewest names changed, of which elsewhere than in its function none may be
// left, and most must be as they were. An error says so if there are two of them.
func (c *Code) Find(m Mutant) (Found, error) {
	old, err := lex(m.File, m.Old)
	if err != nil || len(old) == 0 {
		return Found{}, fmt.Errorf("%q: Old is not made of whole tokens (%v)", m.Name, err)
	}
	kind, dir := path.Ext(m.File), path.Dir(m.File)
	here := func(p place) bool {
		return path.Dir(p.file) == dir && p.name == m.Func && (m.Func != "" || p.file == m.File)
	}
	alike := func(p place) bool { return m.Func != "" && bare(p.name) == bare(m.Func) }
	for i, within := range []func(place) bool{
		here,
		func(p place) bool { return alike(p) && path.Dir(p.file) == dir },
		func(p place) bool { return path.Dir(p.file) == dir },
		alike,
		func(place) bool { return true },
	} {
		var best []Found
		least := cost{1 << 30, 0}
		for _, p := range c.places {
			if path.Ext(p.file) != kind || !within(p) {
				continue
			}
			for at := range p.tokens {
				names := unify(old, p.tokens[at:])
				if names == nil {
					continue
				}
				price := p.price(names)
				if i > 0 && price.left > 0 || i > 1 && 2*price.renamed > len(names) || least.less(price) {
					continue
				}
				if price.less(least) {
					best, least = nil, price
				}
				best = append(best, Found{File: p.file, Func: p.name, Renamed: changed(names), mutant: m, body: p.body, end: p.end,
					text: c.texts[p.file], from: p.tokens[at].from, to: p.tokens[at+len(old)-1].to})
			}
		}
		switch {
		case len(best) == 1:
			return best[0], nil
		case len(best) > 1:
			return Found{}, fmt.Errorf("%q: its text may stand in %s, or in %s: lengthen Old, or correct File and Func", m.Name, best[0], best[1])
		}
	}
	return Found{}, fmt.Errorf("%q: its text does not stand in %s of %s, nor anywhere else: correct Old and New", m.Name, m.Func, m.File)
}

// Package returns the folder of the package whose test must fail: the table's, or the only one
// that the test was moved to.
func (c *Code) Package(r Row) (string, error) {
	switch dirs := c.tests[r.Test]; {
	case slices.Contains(dirs, r.Dir):
		return r.Dir, nil
	case len(dirs) == 1:
		return dirs[0], nil
	default:
		return "", fmt.Errorf("%q: package ./%s has no %s: correct Test, or move the row to the table beside its test", r.Name, r.Dir, r.Test)
	}
}

// unify returns which names of the code stand for those of a row, each for one other, or nil
// if the tokens differ in more than names.
func unify(old, code []lexeme) map[string]string {
	if len(code) < len(old) {
		return nil
	}
	names, taken := map[string]string{}, map[string]string{}
	for i, want := range old {
		have := code[i]
		if want.name != have.name || !want.name && want.text != have.text {
			return nil
		}
		if !want.name {
			continue
		}
		if to, ok := names[want.text]; ok && to != have.text {
			return nil
		}
		if by, ok := taken[have.text]; ok && by != want.text {
			return nil
		}
		names[want.text], taken[have.text] = have.text, want.text
	}
	return names
}

// cost is how much has to be believed for a text to be the one that is looked for.
type cost struct {
	left    int // names that were changed, though they still stand in that place
	renamed int // names that were changed
}

func (a cost) less(b cost) bool {
	return a.left < b.left || a.left == b.left && a.renamed < b.renamed
}

// price is what it costs to believe that names were changed to these in p.
func (p place) price(names map[string]string) cost {
	var a cost
	for from, to := range names {
		if from == to {
			continue
		}
		a.renamed++
		if p.has[from] {
			a.left++
		}
	}
	return a
}

// bare is a function's name without its receiver.
func bare(name string) string { return name[strings.LastIndex(name, ".")+1:] }

// changed is the names that have become others.
func changed(names map[string]string) map[string]string {
	maps.DeleteFunc(names, func(from, to string) bool { return from == to })
	return names
}

// Broken is the text of f.File with the mutant in it.
func (f Found) Broken() (string, error) {
	to, err := rename(f.File, f.mutant.New, f.Renamed)
	return f.text[:f.from] + to + f.text[f.to:], err
}

// String says where that is, and what has another name there.
func (f Found) String() string {
	s := fmt.Sprintf("%s:%d", f.File, 1+strings.Count(f.text[:f.from], "\n"))
	for _, from := range slices.Sorted(maps.Keys(f.Renamed)) {
		s += fmt.Sprintf(", renamed: %s → %s", from, f.Renamed[from])
	}
	return s
}
