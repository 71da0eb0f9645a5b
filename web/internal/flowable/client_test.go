package flowable_test

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/job/jobtest"
	"github.com/tenurehq/tenure/tenancy"
	"github.com/tenurehq/tenure/web"
)

// Flowable's own client for JavaScript works with a node as it works with Flowable.
func TestFlowablesClientForJavaScript(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/javascript")))
	fetch(t, dir, "npm", "ci", "--no-audit", "--no-fund")
	requireWorks(t, "node-js", dir, "node", "worker.cjs")
}

// Flowable's own client for Python works with a node as it works with Flowable.
func TestFlowablesClientForPython(t *testing.T) {
	if testing.Short() {
		t.Skip("fetches packages")
	}
	t.Parallel()
	dir := t.TempDir()
	require.NoError(t, os.CopyFS(dir, os.DirFS("testdata/python")))
	fetch(t, dir, "python3", "-m", "venv", "venv")
	python := filepath.Join(dir, "venv/bin/python")
	fetch(t, dir, python, "-m", "pip", "install", "--quiet", "--no-compile", "--disable-pip-version-check", "-r", "requirements.txt")
	requireWorks(t, "python", dir, python, "worker.py")
}

// fetch runs a program that fetches a client, and skips the test where that cannot be done.
func fetch(t *testing.T, dir, program string, args ...string) {
	t.Helper()
	if _, err := exec.LookPath(program); err != nil {
		t.Skipf("%s is not installed: on Debian, apt-get install npm python3-venv", program)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.WaitDelay = dir, time.Second
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Skipf("Flowable's client cannot be had: %s %v: %v\n%s", program, args, err, out)
	}
}

// requireWorks has a worker, which calls itself name, do with jobs what they say.
func requireWorks(t *testing.T, name, dir string, program ...string) {
	t.Helper()
	env := jobtest.New(t, jobtest.Pools(2), jobtest.Tenants("acme", "globex"))
	b := &bundle{t: t, client: env.Client()}
	env.Nodes(t, 1)
	const secret = "a long random secret"
	hash := sha256.Sum256([]byte(secret))
	handler, err := web.Handler(env.Client(), web.Settings{Tokens: map[string]config.Token{
		"printer": {SHA256: hex.EncodeToString(hash[:]), Role: "operate", Tenants: []tenancy.ID{"acme"}, Args: true}}})
	require.NoError(t, err)
	server := httptest.NewServer(handler)
	defer server.Close()

	done := b.enqueue("acme", `{"what": "complete", "n": 7}`)
	plain := b.enqueue("acme", `{"what": "plain", "n": "x"}`)
	failed := b.enqueue("acme", `{"what": "fail", "n": 1.5}`)
	refused := b.enqueue("acme", `{"what": "error", "n": 4294967296}`)
	thrown := b.enqueue("acme", `{"what": "throw", "n": "y"}`)
	ended := b.enqueueAs("case", "acme", `{"n": "z"}`)
	foreign := b.enqueue("globex", `{"what": "complete"}`)
	want := []string{
		done + " complete acme bpmn 10 " + name + " integer 7",
		plain + " plain acme bpmn 10 " + name + " string x",
		failed + " fail acme bpmn 10 " + name + " double 1.5",
		failed + " fail acme bpmn 9 " + name + " double 1.5",
		refused + " error acme bpmn 10 " + name + " long 4294967296",
		thrown + " throw acme bpmn 10 " + name + " string y",
		ended + " terminate acme cmmn 10 " + name + " string z",
	}
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	worker := exec.CommandContext(ctx, program[0], append(slices.Clone(program[1:]), server.URL, secret, "7")...)
	worker.Dir, worker.WaitDelay = dir, time.Second
	var said strings.Builder
	worker.Stderr = &said
	out, err := worker.Output()
	require.NoError(t, err, "%s\n%s", out, &said)
	require.ElementsMatch(t, want, strings.Split(strings.TrimSpace(string(out)), "\n"), &said)

	for id, want := range map[string][]string{
		done:    {"done", "", `{"pages": 3, "printer": "hp", "cost": 0.25}`},
		plain:   {"done", "", ""},
		failed:  {"dead", "still no paper", ""},
		refused: {"business_error", "no_address: raised by an external worker", `{"customer": 42}`},
		ended:   {"business_error", "terminated: by an external worker", `{"by": "a case"}`},
		thrown:  {"retrying", "out of order", ""},
		foreign: {"waiting", "", ""},
	} {
		j, output := b.job(id)
		require.Equal(t, want[:2], []string{j.State, strings.Trim(j.Error, `"`)}, id)
		if want[2] != "" || output != "" {
			require.JSONEq(t, want[2], output)
		}
	}
}
