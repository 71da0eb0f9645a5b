// Package clients_test runs the clients' examples against a node, and sees that what is generated is up to date.
package clients_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

func TestMain(m *testing.M) { jobtest.Main(m) }

const document = "../web/internal/api/openapi.json"

// The types are of the document as it stands, which is seen without what generates them.
func TestTypesAreUpToDate(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(document)
	require.NoError(t, err)
	hash := sha256.Sum256(text)
	schema, err := os.ReadFile("typescript/schema.d.ts")
	require.NoError(t, err)
	first, _, _ := bytes.Cut(schema, []byte("\n"))
	require.Contains(t, string(first), "sha256 "+hex.EncodeToString(hash[:]), "typescript/schema.d.ts is of another openapi.json: run make clients")
}

const secret = "a long random secret"

// serve runs a node with tenant acme, and returns its address.
func serve(t *testing.T) string {
	env := jobtest.New(t)
	env.Nodes(t, 1)
	hash := sha256.Sum256([]byte(secret))
	handler, err := web.Handler(env.Client(), web.Settings{Tokens: map[string]config.Token{
		"printer": {SHA256: hex.EncodeToString(hash[:]), Role: "operate", Tenants: []tenancy.ID{"acme"}, Args: true}}})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	return server.URL
}

// fetchWithin bounds how long packages may take to be fetched.
const fetchWithin = 5 * time.Minute

// run runs a program in a folder and returns what it prints.
func run(t *testing.T, dir string, env []string, name string, args ...string) (string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), fetchWithin)
	defer cancel()
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = dir, append(os.Environ(), env...), time.Second
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// need skips the test where a program is missing.
func need(t *testing.T, program, remedy string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: on Debian, apt-get install %s", program, remedy)
	}
}

// requireExamples has the worker of a language print the invoice that the other example enqueues, and
// end when it is told to.
func requireExamples(t *testing.T, dir string, env []string, program, enqueue, worker string) {
	t.Helper()
	address := serve(t)
	var printed bytes.Buffer
	printer := exec.CommandContext(t.Context(), program, worker, address, secret)
	printer.Dir, printer.Env, printer.Stdout, printer.Stderr, printer.WaitDelay = dir, append(os.Environ(), env...), &printed, &printed, time.Second
	require.NoError(t, printer.Start())
	out, err := run(t, dir, env, program, enqueue, address, secret, "acme")
	require.NoError(t, printer.Process.Signal(syscall.SIGTERM))
	ended := printer.Wait()
	require.NoError(t, err, "%s\n%s", out, &printed)
	require.Regexp(t, `^\d+ done\n$`, out)
	require.NoError(t, ended, &printed)
	require.Regexp(t, `^\d+ prints invoice 42 of acme\n$`, printed.String())
}

func TestTypeScript(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	need(t, "npm", "npm")
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("typescript")))
	if out, err := run(t, dir, nil, "npm", "ci", "--no-audit", "--no-fund"); err != nil {
		t.Skipf("the packages could not be fetched: %v\n%s", err, out)
	}
	from, err := filepath.Abs(document)
	require.NoError(t, err)
	out, err := run(t, dir, nil, "node", "generate.mjs", from)
	require.NoError(t, err, out)
	committed, err := os.ReadFile("typescript/schema.d.ts")
	require.NoError(t, err)
	generated, err := os.ReadFile(filepath.Join(dir, "schema.d.ts"))
	require.NoError(t, err)
	require.True(t, bytes.Equal(committed, generated), "schema.d.ts is not what is generated: run make clients")
	out, err = run(t, dir, nil, "npm", "run", "build")
	require.NoError(t, err, out)
	requireExamples(t, dir, nil, "node", "dist/examples/enqueue.js", "dist/examples/worker.js")
}

func TestPython(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	need(t, "python3", "python3-venv")
	dir := t.TempDir()
	script, err := filepath.Abs("python/generate.sh")
	require.NoError(t, err)
	if out, err := run(t, dir, nil, "python3", "-m", "venv", ".venv"); err != nil {
		t.Skipf("there is no venv: on Debian, apt-get install python3-venv: %v\n%s", err, out)
	}
	python := filepath.Join(dir, ".venv/bin/python")
	requirements, err := filepath.Abs("python/requirements.txt")
	require.NoError(t, err)
	if out, err := run(t, dir, nil, python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-r", requirements); err != nil {
		t.Skipf("the packages could not be fetched: %v\n%s", err, out)
	}
	out, err := run(t, dir, nil, script, dir, python)
	require.NoError(t, err, out)
	require.NotRegexp(t, regexp.MustCompile(`(?i)warning`), out)
	require.NoError(t, os.CopyFS(filepath.Join(dir, "examples"), os.DirFS("python/examples")))
	requireExamples(t, dir, []string{"PYTHONPATH=" + dir}, python, "examples/enqueue.py", "examples/worker.py")
}
