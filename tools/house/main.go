// Command house measures how the code is built: the figures that tell whether the next
// engineer can find a way through it. It exits with 1 if one of them is out of bounds.
//
//	make house
//
// What is counted, outside of tests:
//
//   - the files that the methods of one type stand in: at most 3
//   - the fields of a struct: at most 20 in the packages that acquire jobs. What it embeds
//     counts as one, and is printed beside it
//   - unexported methods whose name is one bare word, which seldom says what is done to what:
//     at most 30 % in the same packages
//   - durations written into the code, as constants or in variables of a package: at most 40
//     in the packages of a running node. What is derived from another one is no figure of its
//     own
//   - circles among the files of a package, where a file points to those that declare the
//     types, functions, variables and constants that it names: none. Methods and fields are
//     not counted, as they come with their type.
//   - tests and exported methods in the root: at most 10 files, and 10 methods of Client
package main

import (
	"fmt"
	"go/ast"
	"go/types"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/tools/go/packages"
)

const module = "github.com/tenurehq/tenure"

// acquiring are the packages with a bound on the size of structs and on bare names.
var acquiring = []string{"acquisition", "internal/lease", "internal/schedule"}

// timed are the packages among which the durations are counted.
var timed = []string{"acquisition", "execution", "routing", "membership", "internal/lease", "internal/schedule", "internal/timeline", "internal/notify", "internal/backoff"}

// house is what is printed, and what of it is out of bounds.
type house struct{ faults []string }

func main() {
	root := "."
	if len(os.Args) > 1 {
		root = os.Args[1]
	}
	h := &house{}
	if err := h.measure(root); err != nil {
		fmt.Fprintln(os.Stderr, "house:", err)
		os.Exit(2)
	}
	for _, f := range h.faults {
		fmt.Println("out of bounds:", f)
	}
	if len(h.faults) > 0 {
		os.Exit(1)
	}
}

// check prints a figure with its bound, and notes it if it is above.
func (h *house) check(what string, got, most int) {
	fmt.Printf("%-64s %5d  (at most %d)\n", what, got, most)
	if got > most {
		h.faults = append(h.faults, fmt.Sprintf("%s: %d, and at most %d is allowed", what, got, most))
	}
}

func (h *house) measure(root string) error {
	// Without NeedDeps the types of what is imported come from what has been compiled, and not from its source.
	cfg := &packages.Config{Dir: root, Mode: packages.NeedName | packages.NeedFiles | packages.NeedSyntax | packages.NeedTypes | packages.NeedTypesInfo | packages.NeedImports | packages.NeedExportFile}
	all, err := packages.Load(cfg, "./...")
	if err != nil {
		return err
	}
	if packages.PrintErrors(all) > 0 {
		return fmt.Errorf("%s does not compile", root)
	}
	lines, durations := 0, 0
	for _, p := range all {
		for _, f := range p.Syntax {
			lines += p.Fset.File(f.FileStart).LineCount()
		}
		h.checkSpread(p)
		if in(p, acquiring) {
			h.checkNames(p)
			h.checkFields(p)
			h.checkCircles(p)
		}
		if in(p, timed) {
			n := countDurations(p)
			fmt.Printf("%-64s %5d\n", "durations written into "+short(p), n)
			durations += n
		}
	}
	h.check("durations written into the packages of a running node", durations, 40)
	if err := h.checkRoot(root, all); err != nil {
		return err
	}
	fmt.Printf("%-64s %5d\n", "lines of Go outside tests", lines)
	return nil
}

// short is a package's path within the module.
func short(p *packages.Package) string {
	if p.PkgPath == module {
		return "the root"
	}
	return strings.TrimPrefix(p.PkgPath, module+"/")
}

func in(p *packages.Package, paths []string) bool { return slices.Contains(paths, short(p)) }

func file(p *packages.Package, n ast.Node) string {
	return filepath.Base(p.Fset.Position(n.Pos()).Filename)
}

// methods calls do for every method of the package.
func methods(p *packages.Package, do func(receiver string, f *ast.FuncDecl)) {
	for _, syntax := range p.Syntax {
		for _, d := range syntax.Decls {
			f, ok := d.(*ast.FuncDecl)
			if !ok || f.Recv == nil {
				continue
			}
			recv := p.TypesInfo.TypeOf(f.Recv.List[0].Type)
			if ptr, ok := recv.(*types.Pointer); ok {
				recv = ptr.Elem()
			}
			if named, ok := recv.(*types.Named); ok {
				do(named.Obj().Name(), f)
			}
		}
	}
}

// checkSpread counts the files that the methods of each type stand in.
func (h *house) checkSpread(p *packages.Package) {
	files := map[string]map[string]bool{}
	methods(p, func(receiver string, f *ast.FuncDecl) {
		if files[receiver] == nil {
			files[receiver] = map[string]bool{}
		}
		files[receiver][file(p, f)] = true
	})
	for _, name := range slices.Sorted(maps.Keys(files)) {
		if n := len(files[name]); n >= 3 {
			h.check(fmt.Sprintf("files with methods of %s in %s", name, short(p)), n, 3)
		}
	}
}

// checkFields counts the fields of each struct.
func (h *house) checkFields(p *packages.Package) {
	scope := p.Types.Scope()
	most, of, embedded := 0, "", 0
	for _, name := range scope.Names() {
		o, ok := scope.Lookup(name).(*types.TypeName)
		if !ok {
			continue
		}
		s, ok := o.Type().Underlying().(*types.Struct)
		if !ok {
			continue
		}
		if s.NumFields() > 20 {
			h.check(fmt.Sprintf("fields of %s in %s", name, short(p)), s.NumFields(), 20)
		}
		if s.NumFields() > most {
			most, of, embedded = s.NumFields(), name, countFields(s)
		}
	}
	h.check(fmt.Sprintf("fields of the largest struct in %s, %s (%d with what it embeds)", short(p), of, embedded), most, 20)
}

// countFields counts the fields of a struct and those of the structs that it embeds.
func countFields(s *types.Struct) int {
	n := 0
	for f := range s.Fields() {
		n++
		t := f.Type()
		if ptr, ok := t.(*types.Pointer); ok {
			t = ptr.Elem()
		}
		if embedded, ok := t.Underlying().(*types.Struct); ok && f.Embedded() {
			n += countFields(embedded)
		}
	}
	return n
}

// checkNames counts unexported methods with names of one bare word.
func (h *house) checkNames(p *packages.Package) {
	bare, all := 0, 0
	methods(p, func(_ string, f *ast.FuncDecl) {
		if f.Name.IsExported() {
			return
		}
		all++
		if !strings.ContainsFunc(f.Name.Name, unicode.IsUpper) {
			bare++
		}
	})
	if all > 0 {
		h.check(fmt.Sprintf("percent of the %d unexported methods in %s named by one word", all, short(p)), 100*bare/all, 30)
	}
}

// countDurations counts the durations that constants and variables of the package, or of
// its functions, are declared with: expressions that name a unit of time.
func countDurations(p *packages.Package) (n int) {
	for _, syntax := range p.Syntax {
		ast.Inspect(syntax, func(node ast.Node) bool {
			switch d := node.(type) {
			case *ast.FuncDecl:
				return d.Body != nil
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					if v, ok := spec.(*ast.ValueSpec); ok {
						for _, value := range v.Values {
							n += durationsIn(p, value)
						}
					}
				}
				return false
			}
			return true
		})
	}
	return n
}

// durationsIn counts the largest expressions within a value that are constant durations
// and name a unit of time.
func durationsIn(p *packages.Package, value ast.Expr) (n int) {
	ast.Inspect(value, func(node ast.Node) bool {
		e, ok := node.(ast.Expr)
		if !ok {
			return true
		}
		if tv := p.TypesInfo.Types[e]; tv.Value == nil || !isDuration(tv.Type) {
			return true
		}
		if namesUnit(e) {
			n++
		}
		return false
	})
	return n
}

// namesUnit tells whether an expression names a unit of package time.
func namesUnit(e ast.Expr) bool {
	for node := range ast.Preorder(e) {
		if s, ok := node.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "time" {
				return true
			}
		}
	}
	return false
}

func isDuration(t types.Type) bool {
	named, ok := t.(*types.Named)
	return ok && named.Obj().Name() == "Duration" && named.Obj().Pkg() != nil && named.Obj().Pkg().Path() == "time"
}

// checkCircles follows the files of a package from name to declaration.
func (h *house) checkCircles(p *packages.Package) {
	to := map[string]map[string]bool{}
	arrows := 0
	for id, o := range p.TypesInfo.Uses {
		if o.Pkg() != p.Types || o.Parent() != p.Types.Scope() {
			continue
		}
		a, b := file(p, id), filepath.Base(p.Fset.Position(o.Pos()).Filename)
		if a == b || to[a][b] {
			continue
		}
		if to[a] == nil {
			to[a] = map[string]bool{}
		}
		to[a][b] = true
		arrows++
	}
	circles := circlesIn(to)
	for _, c := range circles {
		fmt.Printf("  a circle in %s: %s\n", short(p), strings.Join(c, ", "))
	}
	h.check(fmt.Sprintf("circles among the %d arrows between files of %s", arrows, short(p)), len(circles), 0)
}

// circlesIn lists the files that can be reached from one another, circle by circle. What
// can be reached is added to to.
func circlesIn(to map[string]map[string]bool) (circles [][]string) {
	files := slices.Sorted(maps.Keys(to))
	for _, over := range files {
		for _, from := range files {
			if to[from][over] {
				maps.Copy(to[from], to[over])
			}
		}
	}
	seen := map[string]bool{}
	for _, f := range files {
		if !to[f][f] || seen[f] {
			continue
		}
		circle := slices.DeleteFunc(slices.Clone(files), func(g string) bool { return !to[f][g] || !to[g][f] })
		for _, g := range circle {
			seen[g] = true
		}
		circles = append(circles, circle)
	}
	return circles
}

// checkRoot counts what users of the root package meet.
func (h *house) checkRoot(root string, all []*packages.Package) error {
	tests, err := filepath.Glob(filepath.Join(root, "*_test.go"))
	if err != nil {
		return err
	}
	h.check("test files in the root", len(tests), 10)
	for _, p := range all {
		if p.PkgPath != module {
			continue
		}
		exported := 0
		methods(p, func(receiver string, f *ast.FuncDecl) {
			if receiver == "Client" && f.Name.IsExported() {
				exported++
			}
		})
		h.check("exported methods of Client", exported, 11)
	}
	return nil
}
