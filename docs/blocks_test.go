package docs

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"
	"go.yaml.in/yaml/v4"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/codeblocks"
	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/operate"
	"github.com/tenurehq/tenure/routing"
)

// elsewhere are pages whose blocks, of these languages, tests of their own run as they stand.
var elsewhere = map[string][]string{
	"README.md":        {"go"},                // TestReadmeProgram
	"quickstart.md":    {"go", "sql", "yaml"}, // TestQuickstart
	"from-river.md":    {"go", "sql"},         // TestFromRiver_…
	"from-flowable.md": {"sql"},               // TestFromFlowable_moves
	"use-with.md":      {"go", "sql", "yaml"}, // TestUseWith
}

// checks are what becomes of blocks by language. Commands are checked by cmd/tenure.
var checks = map[string]bool{"go": true, "sql": true, "yaml": true, "json": true, "console": true, "sh": true, "text": true, "ini": true,
	"properties": true} // of programs that are not there, such as Flowable's client for Spring

// readBlocks are the blocks of all documents in a language, by page, but for those that run elsewhere.
func readBlocks(t *testing.T, language string) map[string][]codeblocks.Block {
	paths, err := codeblocks.Documents("..")
	require.NoError(t, err)
	out := map[string][]codeblocks.Block{}
	for _, path := range paths {
		blocks, err := codeblocks.Read(path)
		require.NoError(t, err)
		page := filepath.Base(path)
		for _, b := range blocks {
			require.True(t, checks[b.Language], "%s:%d: no test knows the language %q", path, b.Line, b.Language)
			if b.Language == language && !slices.Contains(elsewhere[page], language) {
				out[page] = append(out[page], b)
			}
		}
	}
	require.NotEmpty(t, out, language)
	return out
}

// What pages take for granted in their Go: declared before it.
const everywhere = `
var (
	ctx = context.Background()
	client *tenure.Client
	operator *operate.Operator
	node *tenure.Node
	handlers, registry *job.Registry
	cfg config.Config
	tx pgx.Tx
)
`

// given are what single pages take for granted.
var given = map[string]string{
	"batches.md": `
type Invoice struct{ Number int }
type MonthReport struct{ Month string }
type ReportMail struct{ To string }
func (Invoice) Kind() string { return "invoice.send" }
func (MonthReport) Kind() string { return "month.report" }
func (ReportMail) Kind() string { return "report.mail" }
`,
	"external-workers.md": `
type PrintInvoice struct{ Invoice int }
func (PrintInvoice) Kind() string { return "invoice.print" }
func print(payload []byte) []byte { return payload }
`,
	"handlers.md": `
type Booking struct{ Account string }
func (Booking) Kind() string { return "book" }
func book(context.Context, pgx.Tx, *job.Job[Booking]) error { return nil }
type Mail struct{ To string }
func (Mail) Kind() string { return "mail" }
func mail(context.Context, *job.Job[Mail]) error { return nil }
func page(tenant, kind string, id job.ID, err error)
`,
	"limits.md": `
type Book struct{ Account string }
func (Book) Kind() string { return "book" }
func book(context.Context, *job.Job[Book]) error { return nil }
`,
	"options.md": `
type Import struct{ File string }
func (Import) Kind() string { return "import" }
`,
	"reports.md": `
type SendNewsletter struct{ To []string }
func (SendNewsletter) Kind() string { return "newsletter.send" }
var mail interface{ Send(ctx context.Context, to string) error }
`,
	"schedules.md": `
type BuildReport struct{ Pages int }
func (BuildReport) Kind() string { return "report.build" }
`,
}

// imports are what blocks may use without saying so, by name.
var imports = map[string]string{
	"context": "context", "errors": "errors", "fmt": "fmt", "log": "log", "http": "net/http", "time": "time", "slog": "log/slog",
	"pgx": "github.com/jackc/pgx/v5", "trace": "go.opentelemetry.io/otel/trace",
	"config": "github.com/tenurehq/tenure/config", "job": "github.com/tenurehq/tenure/job", "jobtest": "github.com/tenurehq/tenure/job/jobtest", "mutant": "github.com/tenurehq/tenure/internal/mutant",
	"operate": "github.com/tenurehq/tenure/operate", "external": "github.com/tenurehq/tenure/external", "tenancy": "github.com/tenurehq/tenure/tenancy", "tenure": "github.com/tenurehq/tenure", "web": "github.com/tenurehq/tenure/web",
	"encryption": "github.com/tenurehq/tenure/job/encryption",
}

// Every piece of Go in a document compiles, within a function or beside one.
func TestGoInDocumentsCompiles(t *testing.T) {
	t.Parallel()
	imported := importCompiled(t)
	for page, blocks := range readBlocks(t, "go") {
		for _, b := range blocks {
			source := wrap(page, b.Text)
			fset := token.NewFileSet()
			file, err := parser.ParseFile(fset, page, source, parser.SkipObjectResolution)
			if err != nil {
				t.Errorf("%s:%d: %v in\n%s", b.Path, b.Line, err, source)
				continue
			}
			check := types.Config{Importer: imported(fset), Error: func(err error) {
				if e := new(types.Error); errors.As(err, e) && !e.Soft { // a variable that is not used is for the reader
					t.Errorf("%s:%d: %v in\n%s", b.Path, b.Line, err, source)
				}
			}}
			_, _ = check.Check("page", fset, []*ast.File{file}, nil) // its errors are passed on
		}
	}
}

// wrap makes a file of a block.
func wrap(page, text string) string {
	body := everywhere + given[page]
	if regexp.MustCompile(`(?m)\A(//[^\n]*\n)*(func|type|var|const) `).MatchString(text) {
		body += text
	} else if strings.HasPrefix(text, "{") {
		body += "var _ = []mutant.Mutant{\n" + text + "}\n" // a row of a table
	} else {
		body += "func _() {\n" + text + "\n}\n"
	}
	var b strings.Builder
	b.WriteString("package page\n")
	for _, name := range slices.Sorted(maps.Keys(imports)) {
		if regexp.MustCompile(`\b` + name + `\.`).MatchString(body) {
			fmt.Fprintf(&b, "import %s %q\n", name, imports[name])
		}
	}
	return b.String() + body
}

// importCompiled imports what go build has compiled.
func importCompiled(t *testing.T) func(*token.FileSet) types.Importer {
	cmd := exec.CommandContext(t.Context(), "go", append([]string{"list", "-export", "-deps", "-f", "{{.ImportPath}} {{.Export}}"}, slices.Collect(maps.Values(imports))...)...)
	out, err := cmd.Output()
	require.NoError(t, err)
	files := map[string]string{}
	for line := range strings.Lines(string(out)) {
		path, file, _ := strings.Cut(strings.TrimSpace(line), " ")
		files[path] = file
	}
	return func(fset *token.FileSet) types.Importer {
		return importer.ForCompiler(fset, "gc", func(path string) (io.ReadCloser, error) { return os.Open(files[path]) })
	}
}

// Every piece of SQL in a document is executed on a ledger, page by page, and undone.
func TestSQLInDocumentsRuns(t *testing.T) {
	t.Parallel()
	server := pgtest.Server(t, devpg.Options{})
	for _, name := range []string{"main", "new"} {
		require.NoError(t, server.CreateDatabase(t.Context(), name))
	}
	cfg := config.Default()
	cfg.Pools = map[string]routing.PoolConfig{"main": {DSN: server.DSN("main")}}
	_, err := operate.Migrate(t.Context(), cfg)
	require.NoError(t, err)
	conn, err := pgx.Connect(t.Context(), server.DSN("main"))
	require.NoError(t, err)
	defer conn.Close(t.Context())
	for page, blocks := range readBlocks(t, "sql") {
		run := func(sql string) error {
			_, err := conn.PgConn().Exec(t.Context(), sql).ReadAll()
			return err
		}
		require.NoError(t, run("BEGIN; CREATE ROLE web; CREATE ROLE mover; CREATE SCHEMA app; SELECT tenure.make_day('2026-01-31'); "+
			"CREATE TABLE app.tenant (id text PRIMARY KEY, pool text NOT NULL, schema_name text, role_name text)"))
		for _, b := range blocks {
			if err := run(b.Text); err != nil {
				t.Errorf("%s:%d: %v in\n%s", b.Path, b.Line, err, b.Text)
				break
			}
		}
		require.NoError(t, run("ROLLBACK"), page)
	}
}

// Every piece of YAML in a document is part of a configuration, which a node would start with.
func TestYAMLInDocumentsLoads(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("DATABASE_URL", "postgres://app@127.0.0.1/main")
	t.Setenv("PGBOUNCER_URL", "postgres://app@127.0.0.1:6432/main")
	t.Setenv("CREDENTIALS_DIRECTORY", dir)
	t.Setenv("POD_IP", "10.0.0.7")
	t.Setenv("GOSSIP_KEY", "CzBVep/E6Q4zWH2ix+wRNluApcrvFDleg6jN8hc8YYY=")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "dsn"), []byte("postgres://app@127.0.0.1/main"), 0o600))
	secret := regexp.MustCompile(`\$\{file:/run/secrets/(\w+)[^}]*\}`)
	for page, blocks := range readBlocks(t, "yaml") {
		for i, b := range blocks {
			text := strings.ReplaceAll(b.Text, "HASH", strings.Repeat("0", 64))
			text = secret.ReplaceAllString(text, "$1:"+"AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=")
			var parts map[string]any
			require.NoError(t, yaml.Unmarshal([]byte(text), &parts), "%s:%d", b.Path, b.Line)
			if parts["pools"] == nil {
				text += "\npools:\n  main: {dsn: '${env:DATABASE_URL}'}\n"
			}
			if parts["tenants"] == nil {
				text += "\ntenants:\n  static: {acme: main}\n"
			}
			path := filepath.Join(dir, fmt.Sprintf("%s-%d.yaml", page, i))
			require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
			if _, err := config.Load(path); err != nil {
				t.Errorf("%s:%d: %v", b.Path, b.Line, err)
			}
		}
	}
}

// JSON in documents is some.
func TestJSONInDocuments(t *testing.T) {
	t.Parallel()
	for _, blocks := range readBlocks(t, "json") {
		for _, b := range blocks {
			require.True(t, json.Valid([]byte(b.Text)), "%s:%d", b.Path, b.Line)
		}
	}
}
