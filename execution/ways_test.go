package execution

import (
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// ways are all the ways that pgx has from a handler's pgx.Tx to the connection, and to the memory
// that it reads into: what the methods of what it is handed return, and what values that it hands
// to pgx are called with. Interfaces of other packages that are given such memory (sql.Scanner,
// json.Unmarshaler) are destinations of Scan, as BytesScanner is. Each names what keeps it from leading into the next tenant's transaction: an
// attack that tries it, or the reason why none can.
var ways = map[string]string{
	"Tx.Begin returns pgx.Tx":                    "attack: 38 the connection of the transaction",
	"Tx.Conn returns *pgx.Conn":                  "attack: 38 the connection of the transaction",
	"Tx.LargeObjects returns pgx.LargeObjects":   "attack: 27 large objects by the API",
	"LargeObjects.Open returns *pgx.LargeObject": "attack: 27 large objects by the API",
	"Tx.Query returns pgx.Rows":                  "attack: 38 the connection of rows",
	"Tx.QueryRow returns pgx.Row":                "attack: 38 the connection of a row that scans itself",
	"Tx.SendBatch returns pgx.BatchResults":      "attack: 38 the connection of a batch's rows",
	"Rows.Conn returns *pgx.Conn":                "attack: 38 the connection of rows",
	"Rows.TypeMap returns *pgtype.Map":           ofItsOwn,
	"Map.Copy returns *pgtype.Map":               ofItsOwn,
	"Map.PlanEncode returns pgtype.EncodePlan":   ofItsOwn,
	"Map.PlanScan returns pgtype.ScanPlan":       ofItsOwn,
	"BatchResults.Query returns pgx.Rows":        "attack: 38 the connection of a batch's rows",
	"BatchResults.QueryRow returns pgx.Row":      "attack: 38 the connection of a batch's rows",
	"BatchResults.Tx returns pgx.Tx":             "attack: 38 the transaction of a batch",

	"RowScanner.ScanRow is called with pgx.Rows":              "attack: 38 the connection of rows that scan themselves",
	"RowToFunc is called with pgx.CollectableRow":             "attack: 38 the connection of a row that is collected",
	"QueryRewriter.RewriteQuery is called with *pgx.Conn":     "attack: 38 the connection of a rewritten",
	"batchItemFunc is called with pgx.BatchResults":           "attack: 38 the connection of results that a batch is told of",
	"of Query: func(rows Rows) error is called with pgx.Rows": "attack: 38 the connection of rows that a batch is told of",
	"of QueryRow: func(row Row) error is called with pgx.Row": "attack: 38 the connection of a row that a batch is told of",
	"of BeginFunc: func(Tx) error is called with pgx.Tx":      "attack: 38 the connection of a savepoint's rows",
	"of BeginTxFunc: func(Tx) error is called with pgx.Tx":    "a handler's transaction does not begin others but by Begin",
	"of beginFuncExec: func(Tx) error is called with pgx.Tx":  "attack: 38 the connection of a savepoint's rows",
	"Tx.CopyFrom is called with pgx.CopyFromSource":           "it is what the handler gave; those of pgx hold its rows",

	"Codec.DecodeDatabaseSQLValue is called with *pgtype.Map":              ofItsOwn,
	"Codec.DecodeValue is called with *pgtype.Map":                         ofItsOwn,
	"Codec.PlanEncode is called with *pgtype.Map":                          ofItsOwn,
	"Codec.PlanScan is called with *pgtype.Map":                            ofItsOwn,
	"WrappedEncodePlanNextSetter.SetNext is called with pgtype.EncodePlan": ofItsOwn,
	"WrappedScanPlanNextSetter.SetNext is called with pgtype.ScanPlan":     ofItsOwn,

	"Rows.RawValues returns [][]byte":                                                      "attack: 38 what it has scanned",
	"BytesScanner.ScanBytes is called with []byte":                                         "attack: 38 what it has scanned",
	"Codec.DecodeDatabaseSQLValue is called with []byte":                                   ofItsOwn,
	"Codec.DecodeValue is called with []byte":                                              ofItsOwn,
	"ScanPlan.Scan is called with []byte":                                                  ofItsOwn,
	"WrappedScanPlanNextSetter.Scan is called with []byte":                                 ofItsOwn,
	"EncodePlan.Encode is called with []byte":                                              ofItsOwn,
	"EncodePlan.Encode returns []byte":                                                     ofItsOwn,
	"WrappedEncodePlanNextSetter.Encode is called with []byte":                             ofItsOwn,
	"Map.Encode returns []byte":                                                            ofItsOwn,
	"of JSONBCodec: func(data []byte, v any) error is called with []byte":                  ofItsOwn,
	"of JSONCodec: func(data []byte, v any) error is called with []byte":                   ofItsOwn,
	"of XMLCodec: func(data []byte, v any) error is called with []byte":                    ofItsOwn,
	"GSS.Continue is called with []byte":                                                   byConfiguration,
	"of scanPlanJSONToJSONUnmarshal: func(data []byte, v any) error is called with []byte": ofItsOwn,
	"of scanPlanXMLToXMLUnmarshal: func(data []byte, v any) error is called with []byte":   ofItsOwn,

	"AfterConnectFunc is called with *pgconn.PgConn":                          byConfiguration,
	"NoticeHandler is called with *pgconn.PgConn":                             byConfiguration,
	"NotificationHandler is called with *pgconn.PgConn":                       byConfiguration,
	"PgErrorHandler is called with *pgconn.PgConn":                            byConfiguration,
	"ValidateConnectFunc is called with *pgconn.PgConn":                       byConfiguration,
	"of Config: func(*PgConn) ctxwatch.Handler is called with *pgconn.PgConn": byConfiguration,
	"BatchTracer.TraceBatchEnd is called with *pgx.Conn":                      byConfiguration,
	"BatchTracer.TraceBatchQuery is called with *pgx.Conn":                    byConfiguration,
	"BatchTracer.TraceBatchStart is called with *pgx.Conn":                    byConfiguration,
	"ConnectTracer.TraceConnectEnd is called with pgx.TraceConnectEndData":    byConfiguration,
	"CopyFromTracer.TraceCopyFromEnd is called with *pgx.Conn":                byConfiguration,
	"CopyFromTracer.TraceCopyFromStart is called with *pgx.Conn":              byConfiguration,
	"PrepareTracer.TracePrepareEnd is called with *pgx.Conn":                  byConfiguration,
	"PrepareTracer.TracePrepareStart is called with *pgx.Conn":                byConfiguration,
	"QueryTracer.TraceQueryEnd is called with *pgx.Conn":                      byConfiguration,
	"QueryTracer.TraceQueryStart is called with *pgx.Conn":                    byConfiguration,
}

const (
	ofItsOwn        = "attack: 38 a type of its own for what all read"
	byConfiguration = "it is set where a connection is opened, of which handlers know nothing"
)

// TestWaysToTheConnection reads the source of pgx, so that another version of it cannot
// add a way that nobody has thought of.
func TestWaysToTheConnection(t *testing.T) {
	t.Parallel()
	found := findWays(t)
	for _, w := range found {
		require.Contains(t, ways, w, "pgx has a way to the connection or its memory that is not guarded: guard it, attack it, and name the attack here")
	}
	for w, guard := range ways {
		require.Contains(t, found, w, "pgx has it no more")
		if name, ok := strings.CutPrefix(guard, "attack: "); ok {
			require.True(t, slices.ContainsFunc(attacks, func(a attack) bool { return strings.HasPrefix(a.name, name) }), "%s: there is no attack %q", w, name)
		}
	}
}

const pgxPath = "github.com/jackc/pgx/v5"

// sources type-checks packages of pgx from their source; all others come from the
// compiler, which leaves out what is not exported.
type sources struct {
	types.Importer
	t     *testing.T
	fset  *token.FileSet
	dirs  map[string]string // by import path
	done  map[string]*types.Package
	infos map[string]*types.Info
	files map[string][]*ast.File
}

func (s *sources) Import(path string) (*types.Package, error) {
	if path == "unsafe" {
		return types.Unsafe, nil
	}
	if !isPgx(path) {
		return s.Importer.Import(path)
	}
	if p := s.done[path]; p != nil {
		return p, nil
	}
	var files []*ast.File
	names, err := filepath.Glob(filepath.Join(s.dirs[path], "*.go"))
	require.NoError(s.t, err)
	for _, name := range names {
		if !strings.HasSuffix(name, "_test.go") {
			f, err := parser.ParseFile(s.fset, name, nil, parser.SkipObjectResolution)
			require.NoError(s.t, err)
			files = append(files, f)
		}
	}
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	cfg := types.Config{Importer: s, Error: func(error) {}} // files of other systems declare things twice
	p, _ := cfg.Check(path, s.fset, files, info)
	s.done[path], s.infos[path], s.files[path] = p, info, files
	return p, nil
}

func isPgx(path string) bool {
	return slices.Contains([]string{pgxPath, pgxPath + "/pgconn", pgxPath + "/pgtype"}, path)
}

func findWays(t *testing.T) []string {
	out, err := exec.CommandContext(t.Context(), "go", "list", "-export", "-deps", "-f", "{{.ImportPath}}\t{{.Export}}\t{{.Dir}}", pgxPath).Output()
	require.NoError(t, err)
	exports, dirs := map[string]string{}, map[string]string{}
	for line := range strings.Lines(string(out)) {
		f := strings.Split(strings.TrimSpace(line), "\t")
		exports[f[0]], dirs[f[0]] = f[1], f[len(f)-1]
	}
	fset := token.NewFileSet()
	s := &sources{t: t, fset: fset, dirs: dirs, done: map[string]*types.Package{},
		infos: map[string]*types.Info{}, files: map[string][]*ast.File{},
		Importer: importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) })}
	pgx, err := s.Import(pgxPath)
	require.NoError(t, err)
	w := walk{t: t, seen: map[string]bool{}, carry: map[types.Type]bool{}}
	w.learn(s.done)
	w.handedOut(pgx.Scope().Lookup("Tx").Type())
	for path, files := range s.files {
		for _, f := range files {
			w.calledBack(f, s.infos[path])
		}
	}
	slices.Sort(w.found)
	return slices.Compact(w.found)
}

// isBytes tells whether a value of this type may be memory of a connection: bytes, or several of them.
func isBytes(t types.Type) bool {
	s, ok := types.Unalias(t).Underlying().(*types.Slice)
	if !ok {
		return false
	}
	e, ok := types.Unalias(s.Elem()).(*types.Basic)
	return ok && e.Kind() == types.Byte || isBytes(s.Elem())
}

// walk looks for ways from one type to another.
type walk struct {
	t        *testing.T
	carriers []types.Type        // concrete types that hold a connection, however deep
	carry    map[types.Type]bool // those that were looked at
	seen     map[string]bool     // types whose methods were looked at
	found    []string
}

// learn finds the types that hold a connection.
func (w *walk) learn(packages map[string]*types.Package) {
	var all []*types.Named
	for _, p := range packages {
		for _, name := range p.Scope().Names() {
			if n, ok := p.Scope().Lookup(name).Type().(*types.Named); ok && n.TypeParams().Len() == 0 {
				all = append(all, n)
			}
		}
	}
	for before := -1; before < len(w.carriers); { // one may hold another
		before = len(w.carriers)
		for _, n := range all {
			s, ok := n.Underlying().(*types.Struct)
			if !ok || w.carry[n] {
				continue
			}
			name := n.Obj().Name()
			for i := range s.NumFields() {
				if name == "Conn" || name == "PgConn" || name == "Map" || w.carries(s.Field(i).Type()) {
					w.carry[n] = true
					w.carriers = append(w.carriers, n)
					break
				}
			}
		}
	}
}

// carries tells whether a value of this type may hold a connection.
func (w *walk) carries(t types.Type) bool {
	switch t := types.Unalias(t).(type) {
	case *types.Pointer:
		return w.carries(t.Elem())
	case *types.Slice:
		return w.carries(t.Elem())
	case *types.Map:
		return w.carries(t.Elem())
	case *types.Named:
		if w.carry[t] {
			return true
		}
		i, ok := t.Underlying().(*types.Interface)
		if !ok || i.NumMethods() == 0 || t.Obj().Pkg() == nil || !isPgx(t.Obj().Pkg().Path()) {
			return false
		}
		return slices.ContainsFunc(w.carriers, func(c types.Type) bool { return types.Implements(types.NewPointer(c), i) })
	}
	return false
}

// handedOut follows the results of the methods of what a handler is handed.
func (w *walk) handedOut(t types.Type) {
	if p, ok := types.Unalias(t).(*types.Pointer); ok {
		t = p.Elem()
	}
	n, ok := types.Unalias(t).(*types.Named)
	if !ok || w.seen[n.String()] {
		return
	}
	w.seen[n.String()] = true
	if name := n.Obj().Name(); name == "Conn" || name == "PgConn" {
		return // there
	}
	if st, ok := n.Underlying().(*types.Struct); ok {
		for f := range st.Fields() {
			if f.Exported() && w.carries(f.Type()) {
				w.add(n.Obj().Name()+"."+f.Name()+" is ", f.Type())
				w.handedOut(f.Type())
			}
		}
	}
	set := types.NewMethodSet(types.NewPointer(n))
	if types.IsInterface(n) {
		set = types.NewMethodSet(n)
	}
	for m := range set.Methods() {
		if !m.Obj().Exported() {
			continue
		}
		for v := range m.Type().(*types.Signature).Results().Variables() {
			if w.carries(v.Type()) || isBytes(v.Type()) {
				w.add(n.Obj().Name()+"."+m.Obj().Name()+" returns ", v.Type())
				w.handedOut(v.Type())
			}
		}
	}
}

// calledBack notes what the methods of interfaces, and functions of function types, are
// called with: a handler may have values of its own that pgx calls.
func (w *walk) calledBack(file *ast.File, info *types.Info) {
	within := "" // which declaration
	named := map[ast.Node]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.FuncDecl:
			within, named[n.Type] = n.Name.Name, true
		case *ast.FuncLit:
			named[n.Type] = true
		case *ast.TypeSpec:
			within, named[n.Type] = n.Name.Name, true
			w.callback(n.Name.Name, info.TypeOf(n.Type))
		case *ast.InterfaceType:
			for _, m := range n.Methods.List {
				named[m.Type] = true
			}
		}
		if e, ok := n.(ast.Expr); ok && !named[n] {
			switch n.(type) {
			case *ast.FuncType, *ast.InterfaceType:
				w.callback("of "+within+": "+types.ExprString(e), info.TypeOf(e))
			}
		}
		return true
	})
}

func (w *walk) callback(name string, t types.Type) {
	switch t := types.Unalias(t).Underlying().(type) {
	case *types.Interface:
		for m := range t.Methods() {
			w.params(name+"."+m.Name(), m.Type().(*types.Signature))
		}
	case *types.Signature:
		w.params(name, t)
	}
}

func (w *walk) params(name string, s *types.Signature) {
	for v := range s.Params().Variables() {
		if w.carries(v.Type()) || isBytes(v.Type()) {
			w.add(name+" is called with ", v.Type())
		}
	}
}

func (w *walk) add(name string, t types.Type) {
	w.found = append(w.found, name+types.TypeString(t, func(p *types.Package) string { return p.Name() }))
}
