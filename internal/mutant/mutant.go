// Package mutant describes deliberate faults and finds in the code where each belongs.
//
// A [Mutant] stands in a table beside the test that catches it, in a file mutants_test.go of
// that test's package; [Read] parses all tables of a module. [Code.Find] says where a mutant's
// text stands now, though that was moved or its names were changed since the row was written:
// text is compared token by token, without white space and comments, and a name may stand for
// another one if it does so everywhere.
//
// Nothing here may be used concurrently, and nothing runs a test: that is the command's part,
// internal/mutants.
package mutant

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// TableFile is the name of the files that hold tables.
const TableFile = "mutants_test.go"

// Mutant is one deliberate fault. Its name is unique.
type Mutant struct {
	Promise string // the promise of docs/guarantees.md that it breaks, or another subject
	Name    string // what is wrong then
	File    string // what it is laid over, relative to the module's root
	Func    string // the function that Old stands in, such as "Open" or "(*keeper).renew"; none outside of functions and in SQL
	Old     string // whole tokens, which stand there exactly once
	New     string // what replaces them; names that Old has too follow them when they change
	Test    string // the test of the table's package that must fail
}

// Row is a mutant of a table, and where that stands.
type Row struct {
	Mutant
	Table string // the table's file, relative to the module's root
	At    int    // the table's line
	Dir   string // the folder of the package whose test must fail

	fields map[string]span // where the table has the mutant's fields
}

// span is a part of a file.
type span struct{ from, to int }

// Read returns the rows of all tables below root, in the order of their files.
func Read(root string) ([]Row, error) {
	var rows []Row
	err := eachFile(root, func(file string) error {
		if path.Base(file) != TableFile {
			return nil
		}
		of, err := Parse(file, nil, root)
		rows = append(rows, of...)
		return err
	})
	return rows, err
}

// Parse returns the rows of one table: of src or, without one, of the file below root.
func Parse(table string, src any, root string) ([]Row, error) {
	files := token.NewFileSet()
	tree, err := parser.ParseFile(files, filepath.Join(root, table), src, parser.SkipObjectResolution)
	if err != nil {
		return nil, err
	}
	var rows []Row
	var faults []error
	ast.Inspect(tree, func(n ast.Node) bool {
		lit, ok := n.(*ast.CompositeLit)
		if !ok || lit.Type != nil {
			return true
		}
		r := Row{Table: table, Dir: path.Dir(table), At: files.Position(lit.Pos()).Line, fields: map[string]span{}}
		if err := r.fill(files, lit); err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", table, r.At, err))
		}
		rows = append(rows, r)
		return false
	})
	return rows, errors.Join(faults...)
}

// fill takes a row's fields from its literal.
func (r *Row) fill(files *token.FileSet, lit *ast.CompositeLit) error {
	into := map[string]*string{"Promise": &r.Promise, "Name": &r.Name, "File": &r.File, "Func": &r.Func, "Old": &r.Old, "New": &r.New, "Test": &r.Test}
	for _, e := range lit.Elts {
		pair, ok := e.(*ast.KeyValueExpr)
		if !ok {
			return errors.New("name the mutant's fields")
		}
		key, ok := pair.Key.(*ast.Ident)
		value, isText := pair.Value.(*ast.BasicLit)
		if !ok || into[key.Name] == nil || !isText {
			return errors.New("a mutant's fields are string literals")
		}
		text, err := strconv.Unquote(value.Value)
		if err != nil {
			return fmt.Errorf("%s: %w", key.Name, err)
		}
		*into[key.Name] = text
		r.fields[key.Name] = span{files.Position(value.Pos()).Offset, files.Position(value.End()).Offset}
	}
	for _, must := range []string{"Promise", "Name", "File", "Old", "Test"} {
		if *into[must] == "" {
			return fmt.Errorf("the mutant has no %s", must)
		}
	}
	return nil
}

// eachFile calls do for the files of the module's packages, relative to its root.
func eachFile(root string, do func(file string) error) error {
	return fs.WalkDir(os.DirFS(root), ".", func(file string, d fs.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case !d.IsDir():
			return do(file)
		case file != "." && (d.Name() == "testdata" || d.Name() == "tools" || strings.HasPrefix(d.Name(), ".")):
			return fs.SkipDir
		}
		return nil
	})
}
