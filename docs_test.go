package tenure_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Every test that the documents name exists: `TestMove` by itself, or `TestMove…` as the
// beginning of some names. A promise whose test was renamed would look as if it had none.
func TestDocumentsNameTestsThatExist(t *testing.T) {
	t.Parallel()
	tests := declaredTests(t)
	exists := func(name string, begins bool) bool {
		return slices.ContainsFunc(tests, func(d declaredTest) bool { return d.isNamed(name, begins) })
	}
	named := regexp.MustCompile(`\b((?:Test|Fuzz|Benchmark)[A-Z_]\w*)(…)?`)
	documents, err := filepath.Glob("docs/*.md")
	require.NoError(t, err)
	decisions, err := filepath.Glob("docs/adr/*.md")
	require.NoError(t, err)
	code := regexp.MustCompile("(?s)```go\n.*?```") // has tests of its own
	for _, path := range append(documents, decisions...) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range named.FindAllStringSubmatch(code.ReplaceAllString(string(text), ""), -1) {
			if !exists(m[1], m[2] != "") {
				t.Errorf("%s names %s, which does not exist: write what it is called now", path, m[1]+m[2])
			}
		}
	}
}

// In the lists of guarantees and faults a test is in the package that is named before it, as in
// `store: TestMove`, up to the next semicolon or the end of the cell; without one it is
// in internal/promises. Who wants to run a promise's test must find it.
func TestDocumentsNameTestsInTheirPackages(t *testing.T) {
	t.Parallel()
	tests := declaredTests(t)
	packages := map[string]string{"promises": "internal/promises"}
	for _, d := range tests {
		packages[strings.TrimPrefix(d.pkg, "internal/")] = d.pkg
		packages[strings.TrimPrefix(d.pkg, "job/")] = d.pkg
	}
	word := regexp.MustCompile("([\\w/]+): |`((?:Test|Fuzz|Benchmark)[A-Z_]\\w*)(…)?`|[;|]")
	for _, path := range []string{"docs/guarantees.md", "docs/faults.md"} {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for i, line := range strings.Split(string(text), "\n") {
			pkg := packages["promises"]
			for _, m := range word.FindAllStringSubmatch(line, -1) {
				switch {
				case m[2] != "":
					if !slices.ContainsFunc(tests, func(d declaredTest) bool { return d.pkg == pkg && d.isNamed(m[2], m[3] != "") }) {
						t.Errorf("%s:%d says that %s is in package %s, where it is not: name its package before it, which holds up to the next semicolon", path, i+1, m[2]+m[3], pkg)
					}
				case m[1] == "":
					pkg = packages["promises"]
				case packages[m[1]] != "": // else an ordinary word before a colon
					pkg = packages[m[1]]
				}
			}
		}
	}
}

// Links between pages lead to pages and headings that are there, and docs/README.md has every page.
func TestDocumentsLinkWhatExists(t *testing.T) {
	t.Parallel()
	var pages []string
	for _, in := range []string{"*.md", "docs/*.md", "docs/adr/*.md"} {
		found, err := filepath.Glob(in)
		require.NoError(t, err)
		pages = append(pages, found...)
	}
	code, link := regexp.MustCompile("(?s)```.*?```"), regexp.MustCompile(`\]\(([^)#:]*)(#[^)]*)?\)`)
	heading, dropped := regexp.MustCompile(`(?m)^#+ (.*)$`), regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	anchors := map[string][]string{}
	texts := map[string]string{}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		require.NoError(t, err)
		texts[page] = code.ReplaceAllString(string(text), "")
		for _, m := range heading.FindAllStringSubmatch(texts[page], -1) {
			anchors[page] = append(anchors[page], "#"+strings.ReplaceAll(dropped.ReplaceAllString(strings.ToLower(m[1]), ""), " ", "-"))
		}
	}
	indexed := map[string]bool{"docs/README.md": true}
	for page, text := range texts {
		for _, m := range link.FindAllStringSubmatch(text, -1) {
			to := page
			if m[1] != "" {
				to = filepath.Join(filepath.Dir(page), m[1])
			}
			if page == "docs/README.md" {
				indexed[to] = true
			}
			if _, err := os.Stat(to); err != nil || m[2] != "" && strings.HasSuffix(to, ".md") && !slices.Contains(anchors[to], m[2]) {
				t.Errorf("%s links %s%s, which is not there", page, m[1], m[2])
			}
		}
	}
	for page := range texts {
		if filepath.Dir(page) == "docs" && !indexed[page] {
			t.Errorf("docs/README.md leaves %s out", page)
		}
	}
}

// declaredTest is a test, a fuzz test or a benchmark in the folder pkg.
type declaredTest struct{ pkg, name string }

func (d declaredTest) isNamed(name string, begins bool) bool {
	return d.name == name || begins && strings.HasPrefix(d.name, name)
}

func declaredTests(t *testing.T) (tests []declaredTest) {
	declared := regexp.MustCompile(`(?m)^func ((?:Test|Fuzz|Benchmark)\w+)\(`)
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, "_test.go") {
			return err
		}
		text, err := os.ReadFile(path)
		for _, m := range declared.FindAllStringSubmatch(string(text), -1) {
			tests = append(tests, declaredTest{filepath.ToSlash(filepath.Dir(path)), m[1]})
		}
		return err
	}))
	return tests
}

// What docs/glossary.md calls a thing in Go is declared: package.Name, package.Type.Member, or
// Type.Member of any package. So one word stays one thing when it is renamed in the code.
func TestGlossaryNamesWhatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/glossary.md")
	require.NoError(t, err)
	declared := declaredNames(t)
	name := regexp.MustCompile("`(?:[a-z]\\w*\\.)?[A-Z]\\w*(?:\\.[A-Z]\\w*)?`")
	for _, quoted := range name.FindAllString(string(text), -1) {
		if n := strings.Trim(quoted, "`"); strings.Contains(n, ".") && !declared[n] {
			t.Errorf("docs/glossary.md names %s, which is not declared: write what it is called now", n)
		}
	}
}

// declaredNames are those of all packages: package.Name, package.Type.Member and Type.Member,
// members being methods and fields, those of an embedded type of the package included.
func declaredNames(t *testing.T) map[string]bool {
	names := map[string]bool{}
	type embedding struct{ pkg, outer, inner string }
	var embeddings []embedding
	require.NoError(t, filepath.WalkDir(".", func(path string, _ fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go") {
			return err
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		add := func(name string) { names[file.Name.Name+"."+name] = true }
		addMember := func(of, name string) {
			add(of + "." + name)
			names[of+"."+name] = true
		}
		for _, d := range file.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					add(d.Name.Name)
				} else {
					addMember(receiver(d.Recv.List[0].Type), d.Name.Name)
				}
			case *ast.GenDecl:
				for _, spec := range d.Specs {
					switch spec := spec.(type) {
					case *ast.ValueSpec:
						for _, n := range spec.Names {
							add(n.Name)
						}
					case *ast.TypeSpec:
						add(spec.Name.Name)
						for _, f := range members(spec.Type) {
							for _, n := range f.Names {
								addMember(spec.Name.Name, n.Name)
							}
							if len(f.Names) == 0 {
								embeddings = append(embeddings, embedding{file.Name.Name, spec.Name.Name, receiver(f.Type)})
							}
						}
					}
				}
			}
		}
		return nil
	}))
	own := slices.Collect(maps.Keys(names))
	for _, e := range embeddings {
		for _, name := range own {
			if member, ok := strings.CutPrefix(name, e.pkg+"."+e.inner+"."); ok {
				names[e.pkg+"."+e.outer+"."+member], names[e.outer+"."+member] = true, true
			}
		}
	}
	return names
}

func members(e ast.Expr) []*ast.Field {
	switch t := e.(type) {
	case *ast.StructType:
		return t.Fields.List
	case *ast.InterfaceType:
		return t.Methods.List
	}
	return nil
}

// receiver is the name of a method's type, or of an embedded one of the package.
func receiver(e ast.Expr) string {
	for {
		switch t := e.(type) {
		case *ast.StarExpr:
			e = t.X
		case *ast.IndexExpr:
			e = t.X
		case *ast.IndexListExpr:
			e = t.X
		case *ast.Ident:
			return t.Name
		default:
			return ""
		}
	}
}

// Every file that docs/architecture.md names exists, and declares the functions that its
// Code lines name behind it: who follows a job by them must not get lost.
func TestArchitectureNamesCodeThatExists(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("docs/architecture.md")
	require.NoError(t, err)
	name := regexp.MustCompile("`([\\w./]+)`")
	for _, line := range strings.Split(string(text), "\n") {
		path, code := "", ""
		for _, m := range name.FindAllStringSubmatch(line, -1) {
			switch word := m[1]; {
			case strings.HasSuffix(word, ".go"), strings.HasSuffix(word, ".sql"):
				path = strings.Replace(word, "queries/", "internal/store/queries/", 1)
				read, err := os.ReadFile(path)
				code = string(read)
				if err != nil {
					t.Errorf("docs/architecture.md names the file %s, which does not exist", word)
				}
			case strings.HasPrefix(line, "*Code:*") && path != "":
				if !regexp.MustCompile(`(?m)^func (\([^)]*\) )?` + regexp.QuoteMeta(word) + `[(\[]`).MatchString(code) {
					t.Errorf("docs/architecture.md says that %s declares %s, which it does not", path, word)
				}
			}
		}
	}
}

// A decision fits on a page: at most 300 words each, so that all of them can be read.
func TestDecisionsAreShort(t *testing.T) {
	t.Parallel()
	files, err := filepath.Glob("docs/adr/0*.md")
	require.NoError(t, err)
	require.NotEmpty(t, files)
	for _, file := range files {
		text, err := os.ReadFile(file)
		require.NoError(t, err)
		require.LessOrEqual(t, len(strings.Fields(string(text))), 600, "%s is more than a page: move figures to docs/benchmarks.md", file)
	}
}
