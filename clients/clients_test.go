// Package clients_test runs the clients' examples against a node, and sees that what is generated is up to date.
package clients_test

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job"
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

// serve runs a node with tenant acme, and returns its address. What is asked of it passes through front.
func serve(t *testing.T, front func(node http.Handler) http.Handler) (*jobtest.Env, string) {
	env := jobtest.New(t)
	env.Nodes(t, 1)
	hash := sha256.Sum256([]byte(secret))
	handler, err := web.Handler(env.Client(), web.Settings{Tokens: map[string]config.Token{
		"printer": {SHA256: hex.EncodeToString(hash[:]), Role: "operate", Tenants: []tenancy.ID{"acme"}, Args: true}}})
	require.NoError(t, err)
	server := httptest.NewServer(front(handler))
	t.Cleanup(server.Close)
	return env, server.URL
}

// troubles befall the requests of a worker, by the invoices of its jobs.
type troubles struct {
	mu       sync.Mutex
	invoices map[string]int // by job; guarded by mu
	seen     map[string]int // requests, by what they are about; guarded by mu
}

// count counts a request that is about something, from 1.
func (f *troubles) count(what string) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.seen[what]++
	return f.seen[what]
}

// befall is what a node and the way to it do: the first call of acquire finds nobody, and neither does the first that
// completes invoice 1. The answer to that of invoice 2 is lost, and the output of invoice 3 is too large.
func (f *troubles) befall(node http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/api/v1/external/acquire" && f.count("acquire") == 1 {
			panic(http.ErrAbortHandler)
		}
		if r.URL.Path != "/api/v1/external/complete" {
			node.ServeHTTP(w, r)
			return
		}
		var body struct {
			Job    string `json:"job"`
			Turn   int    `json:"turn"`
			Worker string `json:"worker"`
			Output any    `json:"output"`
		}
		if err := json.NewDecoder(r.Body).Decode(&body); err != nil {
			panic(http.ErrAbortHandler)
		}
		f.mu.Lock()
		invoice := f.invoices[body.Job]
		f.mu.Unlock()
		if invoice == 3 {
			body.Output = strings.Repeat("x", job.MaxPayload)
		}
		text, _ := json.Marshal(body) // of what was JSON
		sent := r.Clone(r.Context())
		sent.Body, sent.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
		switch first := f.count(body.Job) == 1; {
		case first && invoice == 1:
			panic(http.ErrAbortHandler)
		case first && invoice == 2:
			node.ServeHTTP(httptest.NewRecorder(), sent)
			panic(http.ErrAbortHandler)
		}
		node.ServeHTTP(w, sent)
	})
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

// requireExamples has the worker of a language print the invoice that the other example enqueues, and three others
// that troubles befall, and end when it is told to. It returns the address of the node and a job that has ended.
func requireExamples(t *testing.T, dir string, env []string, program, enqueue, worker string) (address, id string) {
	t.Helper()
	trouble := &troubles{invoices: map[string]int{}, seen: map[string]int{}}
	node, address := serve(t, trouble.befall)
	jobs := map[int]job.ID{}
	for n := 1; n <= 3; n++ {
		added, err := node.Client().Enqueue(tenancy.For(t.Context(), "acme"), job.RawArgs{Name: "invoice.print", Payload: fmt.Appendf(nil, `{"invoice": %d}`, n)}, tenure.External())
		require.NoError(t, err)
		jobs[n], trouble.invoices[added.ID.String()] = added.ID, n
	}
	var printed bytes.Buffer
	printer := exec.CommandContext(t.Context(), program, worker, address, secret)
	printer.Dir, printer.Env, printer.Stdout, printer.Stderr, printer.WaitDelay = dir, append(os.Environ(), env...), &printed, &printed, time.Second
	require.NoError(t, printer.Start())
	out, err := run(t, dir, env, program, enqueue, address, secret, "acme")
	state := func(n int) (string, []job.RunError) {
		j, failed, err := node.Client().Operator().Jobs().Get(t.Context(), jobs[n])
		require.NoError(t, err)
		return j.State, failed
	}
	ended := assert.Eventually(t, func() bool {
		one, _ := state(1)
		two, _ := state(2)
		_, failed := state(3)
		return one == "done" && two == "done" && len(failed) > 0
	}, time.Minute, 20*time.Millisecond)
	require.NoError(t, printer.Process.Signal(syscall.SIGTERM))
	stopped := printer.Wait()
	require.True(t, ended, &printed)
	_, failed := state(3)
	require.Contains(t, failed[0].Error, "262144 are allowed")
	require.NoError(t, err, "%s\n%s", out, &printed)
	require.Regexp(t, `^\d+ done\n$`, out)
	require.NoError(t, stopped, &printed)
	for _, n := range []int{1, 2, 42} {
		require.Equal(t, 1, strings.Count(printed.String(), fmt.Sprintf(" prints invoice %d of acme\n", n)), &printed)
	}
	id, _, _ = strings.Cut(out, " ")
	return address, id
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
	address, id := requireExamples(t, dir, nil, "node", "dist/examples/enqueue.js", "dist/examples/worker.js")
	out, err = run(t, dir, nil, "node", "--input-type=module", "--eval", `
		import { connect, need } from "./dist/tenure.js";
		const events = await connect(process.argv[1], process.argv[2]).GET("/api/v1/jobs/{id}/events", { params: { path: { id: process.argv[3] } }, parseAs: "text" });
		console.log(need(events));`, address, secret, id)
	require.NoError(t, err, out)
	require.Contains(t, out, "event: job\ndata: {")
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
	env := []string{"PYTHONPATH=" + dir}
	address, id := requireExamples(t, dir, env, python, "examples/enqueue.py", "examples/worker.py")
	out, err = run(t, dir, env, python, "-c", `
import sys
from tenure_client import AuthenticatedClient
from tenure_client.api.default import watch_job
print(watch_job.sync(sys.argv[3], client=AuthenticatedClient(base_url=sys.argv[1], token=sys.argv[2])))`, address, secret, id)
	require.NoError(t, err, out)
	require.Contains(t, out, "event: job\ndata: {")
}
