package tenure_test

import (
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

const module = "github.com/tenurehq/tenure"

// layers says which packages of this module each package may import: imports only
// point down. "" is the root package. A package that is not listed fails the test,
// so that a new one gets its place on purpose.
var layers = map[string][]string{
	"internal/fault":   {},                   // the shape of a refused setting; every Config is validated into it
	"internal/jobmeta": {},                   // what Tenure itself keeps in a job's meta
	"job":              {"internal/jobmeta"}, // the domain
	"tenancy":          {},

	"internal/backoff":    {},                                                                                 // how long to wait after a failure
	"internal/jobstate":   {"job"},                                                                            // the states that jobs are listed in
	"internal/recurrence": {},                                                                                 // when schedules are due, as a function of what they say
	"internal/store":      {"internal/backoff", "internal/jobstate", "internal/recurrence", "job", "tenancy"}, // all SQL of the ledger, and no decision about it
	"internal/timeline":   {"internal/backoff"},                                                               // who has reached which timeline of a database; it knows no database
	"internal/underlay":   {},                                                                                 // what tests put below membership and routing
	"membership":          {"internal/backoff", "internal/fault", "internal/underlay"},                        // gossip proposes; it knows neither jobs nor databases

	"internal/tenantconn": {}, // what routing knows of a tenant's connection, and execution asks

	"internal/plural":   {}, // numbers in sentences
	"internal/tracing":  {}, // spans by name, as a job's meta keeps them, and what they say
	"internal/slogcore": {}, // what is logged by zap, to a handler of log/slog

	"internal/deadletter": {"job"}, // which dead letters died of the same cause, as a function of their errors

	"routing":           {"internal/backoff", "internal/fault", "internal/store", "internal/tenantconn", "internal/timeline", "internal/underlay", "tenancy"},
	"internal/schedule": {"internal/store", "job", "tenancy"}, // what to claim next, as a function of rows that were read

	"execution": {"internal/backoff", "internal/fault", "internal/tenantconn", "internal/tracing", "job", "tenancy"}, // runs handlers and never sees the ledger's SQL

	"job/encryption": {"internal/fault", "internal/jobmeta", "job", "tenancy"}, // what arguments look like in the ledger, and who has which keys; it knows no ledger

	"internal/lease": {"execution", "internal/backoff", "internal/plural", "internal/store", "job", "routing"}, // a node's session in a pool, and the pool's lock

	"acquisition":         {"internal/backoff", "internal/deadletter", "internal/fault", "internal/lease", "internal/recurrence", "internal/schedule", "job", "tenancy", "routing", "execution", "internal/store"}, // not membership: it declares the Elector it needs
	"internal/proposal":   {"acquisition", "internal/store", "membership", "routing"},                                                                                                                              // adapts membership to acquisition and routing
	"internal/admin":      {},                                                                                                                                                                                      // is handed what it shows
	"internal/notify":     {"acquisition", "internal/store", "job", "membership"},                                                                                                                                  // hints reach the acquirer on whichever node
	"internal/tenantmove": {"internal/plural", "internal/store", "routing", "tenancy"},                                                                                                                             // the workflow of a move; the steps' SQL is the store's

	"config": {"job/encryption", "internal/fault", "job", "tenancy", "routing", "execution", "acquisition", "membership"},

	"internal/access": {"config", "tenancy"}, // who sends a request, and what they may do; it decides nothing

	"internal/doctor": {"config", "internal/store", "job", "internal/plural", "routing", "tenancy"}, // what is wrong with the databases; it changes nothing

	"internal/process": {"config", "internal/jobmeta", "internal/notify", "internal/store", "internal/wait", "job", "job/encryption", "membership", "routing", "tenancy"},                                                                                                                                                  // what client, operator and external workers of one process share
	"operate":          {"acquisition", "config", "internal/backoff", "internal/deadletter", "internal/doctor", "internal/jobstate", "internal/notify", "internal/plural", "internal/process", "internal/recurrence", "internal/store", "internal/tenantmove", "internal/wait", "job", "membership", "routing", "tenancy"}, // what people and their tools do to jobs, tenants and pools
	"external":         {"internal/process", "internal/store", "internal/wait", "job", "job/encryption", "routing", "tenancy"},                                                                                                                                                                                             // jobs for workers outside the cluster

	"": {"acquisition", "config", "execution", "external", "internal/access", "internal/admin", "internal/backoff", "internal/jobmeta", "internal/lease", "internal/notify", "internal/process", "internal/proposal", "internal/slogcore", "internal/store", "internal/tenantmove", "internal/tracing", "job", "job/encryption", "membership", "operate", "routing", "tenancy"},

	"web":                    {"", "config", "internal/access", "internal/slogcore", "web/internal/api", "web/internal/dashboard", "web/internal/flowable", "web/internal/signin"}, // what people and programs use over HTTP
	"web/internal/workers":   {"", "job", "tenancy", "internal/access", "external", "operate"},
	"web/internal/api":       {"", "internal/jobmeta", "internal/jobstate", "internal/tracing", "job", "tenancy", "internal/access", "internal/admin", "web/internal/workers", "web/internal/reveal", "web/internal/wire", "external", "operate"},
	"web/internal/flowable":  {"", "job", "tenancy", "internal/access", "web/internal/workers", "web/internal/wire", "external", "operate"},
	"web/internal/dashboard": {"", "internal/jobmeta", "internal/jobstate", "internal/tracing", "job", "tenancy", "internal/access", "web/internal/reveal", "web/internal/wire", "operate"},
	"web/internal/wire":      {},                                                   // what is read and answered over HTTP
	"web/internal/reveal":    {"", "internal/access", "job/encryption", "operate"}, // what of a job's contents somebody sees
	"web/internal/signin":    {"config", "internal/access"},                        // OpenID Connect and tokens; it knows no jobs

	"internal/devpg":            {},
	"internal/devpg/pgtest":     {"internal/devpg"},
	"internal/devpg/poolertest": {},
	"internal/store/storetest":  {"internal/store", "internal/devpg/pgtest", "job"},
	"internal/traffic":          {"internal/wait"},
	"internal/wait":             {},
	"internal/codeblocks":       {}, // finds code in documents, for tests
	"internal/mutant":           {},
	"internal/mutants":          {"internal/mutant"},
	"internal/release":          {"", "config", "job", "tenancy", "internal/store"}, // what both releases have
	"internal/release/program":  {"internal/release"},
	"internal/notices":          {},
	"internal/promises":         {}, // tests only, of the whole through its doors
	"internal/model":            {}, // a picture of the protocol, not a part of it
	"internal/faultproxy":       {},
	"internal/sim":              {}, // tests only, which may import anything
	"deploy":                    {}, // tests only, of the files there
	"docs":                      {}, // tests only, of what stands there
	"clients":                   {}, // tests only, of the clients there
	"job/jobtest":               {"", "job/encryption", "job", "tenancy", "routing", "execution", "config", "membership", "internal/lease", "internal/store", "internal/store/storetest", "internal/devpg", "internal/devpg/pgtest", "operate"},

	"cmd/tenure":                   {"", "web", "config", "job/encryption", "job", "tenancy", "cmd/tenure/internal/demo", "cmd/tenure/internal/handlers", "internal/fault", "internal/jobstate", "internal/plural", "external", "operate"},
	"cmd/tenure/internal/demo":     {"", "web", "config", "job", "tenancy", "routing", "membership", "internal/devpg", "internal/traffic", "internal/wait", "internal/plural", "operate"},
	"cmd/tenure/internal/handlers": {"", "config", "internal/fault", "internal/tracing", "job", "tenancy"},

	"loadtest": {"", "config", "job", "membership", "tenancy", "routing", "internal/devpg", "internal/faultproxy", "internal/traffic", "internal/wait",
		"loadtest/internal/bed", "loadtest/internal/chaos", "loadtest/internal/fleet", "loadtest/internal/report", "web", "operate"},
	// how results are measured and printed; it starts nothing
	"loadtest/internal/report": {"job", "internal/wait"},
	// the databases; it knows no node processes
	"loadtest/internal/bed": {"", "config", "job", "tenancy", "routing", "internal/devpg", "internal/wait", "loadtest/internal/report", "operate"},
	// the node processes; it knows no scenario
	"loadtest/internal/fleet": {"", "config", "job", "membership", "internal/wait", "loadtest/internal/bed", "loadtest/internal/report"},
	// faults and the checker, which two scenarios share
	"loadtest/internal/chaos": {"", "job", "routing", "internal/devpg", "internal/faultproxy", "internal/wait",
		"loadtest/internal/bed", "loadtest/internal/fleet", "loadtest/internal/report"},
}

// outside says which packages may import something from outside that the others
// must not, and why. A prefix covers all packages below it.
var outside = []struct {
	path    string
	allowed []string
	why     string
}{
	{"go.uber.org/fx", []string{""}, "an embedder never meets the wiring"},
	{"github.com/hashicorp/memberlist", []string{"membership", "internal/underlay"}, "its traps are met in one place"},
	{"github.com/spf13/cobra", []string{"cmd/tenure", "cmd/tenure/internal/demo", "loadtest"}, "a library has no flags"},
	{"go.opentelemetry.io/otel/sdk", []string{"cmd/tenure"}, "who embeds a node brings a tracer provider of their own"},
	{"go.opentelemetry.io/otel/exporters", []string{"cmd/tenure"}, "who embeds a node brings a tracer provider of their own"},
	{"go.opentelemetry.io/otel", []string{"", "execution", "internal/tracing", "cmd/tenure"}, "traces begin where jobs are enqueued, and where they run"},
	{"github.com/netresearch/go-cron", []string{"internal/recurrence"}, "its traps are met in one place"},
	{"github.com/coreos/go-oidc/v3", []string{"web/internal/signin"}, "only programs with a dashboard inherit it"},
	{"golang.org/x/oauth2", []string{"web/internal/signin"}, "only programs with a dashboard inherit it"},
	{"testing", []string{"internal/devpg/pgtest", "internal/devpg/poolertest", "internal/store/storetest", "job/jobtest"}, "tests' packages stay out of what users run"},
	{"github.com/stretchr/testify/require", []string{"internal/devpg/pgtest", "internal/store/storetest", "job/jobtest"}, "tests' packages stay out of what users run"},
}

type listed struct {
	ImportPath string
	Imports    []string
}

func TestImportsPointDown(t *testing.T) {
	t.Parallel()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	require.NoError(t, err)
	for dec := json.NewDecoder(strings.NewReader(string(out))); dec.More(); {
		var p listed
		require.NoError(t, dec.Decode(&p))
		name := local(p.ImportPath)
		allowed, known := layers[name]
		require.True(t, known, "package %q has no place in layers_test.go", name)
		for _, imp := range p.Imports {
			if imp == module || strings.HasPrefix(imp, module+"/") {
				require.Contains(t, allowed, local(imp), "package %q must not import %q: imports only point down", name, local(imp))
			}
			for _, o := range outside {
				if imp == o.path || strings.HasPrefix(imp, o.path+"/") && o.path != "testing" {
					require.True(t, slices.Contains(o.allowed, name), "package %q must not import %s: %s", name, imp, o.why)
				}
			}
		}
	}
}

func local(path string) string {
	return strings.TrimPrefix(strings.TrimPrefix(path, module), "/")
}

// public are the packages that programs import, of which go doc has to show everything.
var public = []string{".", "operate", "external", "job", "job/encryption", "job/jobtest", "tenancy", "config", "web"}

// made are what only package tenure can call: the functions that make what a client returns.
var made = []string{"operate.New", "external.New"}

// TestPublicTypesShowThemselves: what is exported says nothing by a type that nobody can look up.
func TestPublicTypesShowThemselves(t *testing.T) {
	t.Parallel()
	for _, dir := range public {
		files, err := filepath.Glob(filepath.Join(dir, "*.go"))
		require.NoError(t, err)
		for _, name := range files {
			if strings.HasSuffix(name, "_test.go") {
				continue
			}
			file, err := parser.ParseFile(token.NewFileSet(), name, nil, 0)
			require.NoError(t, err)
			hidden := map[string]bool{} // packages by their names
			for _, imp := range file.Imports {
				if p := strings.Trim(imp.Path.Value, `"`); strings.Contains(p, "/internal/") {
					hidden[path.Base(p)] = true
				}
			}
			check := func(what string, node ast.Node) {
				ast.Inspect(node, func(n ast.Node) bool {
					if s, ok := n.(*ast.SelectorExpr); ok {
						if x, ok := s.X.(*ast.Ident); ok && hidden[x.Name] {
							t.Errorf("%s: %s names %s.%s, which is internal", name, what, x.Name, s.Sel.Name)
						}
					}
					return true
				})
			}
			for _, d := range file.Decls {
				switch d := d.(type) {
				case *ast.FuncDecl:
					if d.Name.IsExported() && (d.Recv == nil && !slices.Contains(made, dir+"."+d.Name.Name) || d.Recv != nil && isExported(d.Recv.List[0].Type)) {
						check(d.Name.Name, d.Type)
					}
				case *ast.GenDecl:
					for _, s := range d.Specs {
						s, ok := s.(*ast.TypeSpec)
						if !ok || !s.Name.IsExported() {
							continue
						}
						fields, isStruct := s.Type.(*ast.StructType)
						if !isStruct {
							check(s.Name.Name, s.Type)
							continue
						}
						for _, f := range fields.Fields.List {
							if f.Names == nil || slices.ContainsFunc(f.Names, (*ast.Ident).IsExported) {
								check(s.Name.Name, f.Type)
							}
						}
					}
				}
			}
		}
	}
}

func isExported(receiver ast.Expr) bool {
	exported := false
	ast.Inspect(receiver, func(n ast.Node) bool {
		id, ok := n.(*ast.Ident)
		exported = exported || ok && id.IsExported()
		return !exported
	})
	return exported
}
