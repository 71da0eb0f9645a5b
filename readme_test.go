package tenure_test

import (
	"bytes"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg/pgtest"
	"github.com/tenurehq/tenure/internal/store/storetest"
)

// TestMain runs the tests, or, in a process that a test started, the Fx example.
func TestMain(m *testing.M) {
	if cfg := os.Getenv(appEnv); cfg != "" {
		os.Exit(runApp(cfg))
	}
	pgtest.Main(m)
}

// patience is for what takes milliseconds to seconds on an idle machine.
const patience = 30 * time.Second

// The README's program is built as printed, in a module of its own, and does what the
// README says: it sends invoice 42, answers on node.listen, reads its file again on SIGHUP,
// and stops on SIGTERM with nothing claimed.
func TestReadmeProgram(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "p1", 1)
	db, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Exec(t.Context(), `CREATE SCHEMA acme; CREATE TABLE acme.invoice (id bigint PRIMARY KEY, sent_at timestamptz);
		INSERT INTO acme.invoice (id) VALUES (42)`)
	require.NoError(t, err)
	has := func(sql string) (yes bool) {
		err := db.QueryRow(t.Context(), "SELECT EXISTS ("+sql+")").Scan(&yes)
		return err == nil && yes
	}
	dir := t.TempDir()
	buildReadme(t, dir)
	file := fmt.Sprintf("node: {name: readme, listen: '127.0.0.1:0'}\npools: {p1: {dsn: %q}}\ntenants: {static: {acme: p1}}\n", dsn)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(file), 0o600))

	cmd := exec.CommandContext(t.Context(), filepath.Join(dir, "app"))
	cmd.Dir = dir
	out := &lines{}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		if t.Failed() {
			_ = cmd.Process.Kill()
			t.Log(out.String())
		}
	})
	require.Eventually(t, func() bool { return has("SELECT FROM acme.invoice WHERE sent_at IS NOT NULL") }, patience, 10*time.Millisecond)
	var address []string
	out.until(t, func(text string) bool {
		address = regexp.MustCompile(`"address": ?"(127.0.0.1:[0-9]+)"`).FindStringSubmatch(text)
		return address != nil
	})
	status, _ := ask(t, http.MethodGet, "http://"+address[1]+"/readyz")
	require.Equal(t, http.StatusOK, status)
	status, text := ask(t, http.MethodPost, "http://"+address[1]+"/-/reload")
	require.Equal(t, http.StatusOK, status)
	require.JSONEq(t, "{}", text)

	require.NoError(t, os.WriteFile(filepath.Join(dir, "node.yaml"), []byte(strings.Replace(file, "acme: p1", "acme: p1, globex: p1", 1)), 0o600))
	require.NoError(t, cmd.Process.Signal(syscall.SIGHUP))
	out.until(t, func(text string) bool { return strings.Count(text, "configuration reloaded") >= 2 })
	require.NoError(t, cmd.Process.Signal(syscall.SIGTERM))
	require.NoError(t, cmd.Wait())
	require.Contains(t, out.String(), "stopped, nothing is claimed")
	require.True(t, has("SELECT WHERE NOT EXISTS (SELECT FROM tenure.claim)"))
}

// ask is one request, on a connection of its own.
func ask(t *testing.T, method, url string) (status int, text string) {
	t.Helper()
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	require.NoError(t, err)
	request.Close = true
	response, err := http.DefaultClient.Do(request)
	require.NoError(t, err)
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	require.NoError(t, err)
	return response.StatusCode, string(body)
}

// buildReadme builds the README's program into dir/app.
func buildReadme(t *testing.T, dir string) {
	readme, err := os.ReadFile("README.md")
	require.NoError(t, err)
	blocks := regexp.MustCompile("(?s)```go\n(.*?)```").FindAllSubmatch(readme, -1)
	require.Len(t, blocks, 2, "the README has a program, and a batch handler")
	require.NoError(t, os.WriteFile(filepath.Join(dir, "main.go"), blocks[0][1], 0o600))
	batch := fmt.Sprintf(`package main
import (
	"context"
	"errors"
	"github.com/jackc/pgx/v5"
	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/job"
)
var _ = func(r *job.Registry) { tenure.HandleBatchTx(r, sendAll) }
%s`, blocks[1][1])
	require.NoError(t, os.WriteFile(filepath.Join(dir, "batch.go"), []byte(batch), 0o600))
	root, err := os.Getwd()
	require.NoError(t, err)
	module, err := os.ReadFile("go.mod")
	require.NoError(t, err)
	module = bytes.Replace(module, []byte("module github.com/tenurehq/tenure\n"), []byte("module example.com/app\n"), 1)
	module = fmt.Appendf(module, "\nrequire github.com/tenurehq/tenure v0.0.0\n\nreplace github.com/tenurehq/tenure => %s\n", root)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), module, 0o600))
	sums, err := os.ReadFile("go.sum")
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
	build := exec.CommandContext(t.Context(), "go", "build", "-ldflags=-s -w", "-mod=mod", "-o", "app", ".")
	build.Dir = dir
	text, err := build.CombinedOutput()
	require.NoError(t, err, "%s", text)
}

// lines are what a process prints.
type lines struct {
	mu   sync.Mutex
	text bytes.Buffer
}

// Write implements io.Writer.
func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

// String is all that was printed so far.
func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

// until waits until what was printed is such.
func (l *lines) until(t *testing.T, such func(text string) bool) {
	t.Helper()
	require.Eventually(t, func() bool { return such(l.String()) }, patience, 10*time.Millisecond)
}
