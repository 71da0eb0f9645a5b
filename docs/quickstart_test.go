// Package docs has the documents, and runs what stands in them.
package docs

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

func TestMain(m *testing.M) { pgtest.Main(m) }

const patience = 90 * time.Second

// block is a piece of code in a document. file: it is to be written there.
type block struct{ language, file, text string }

// blocks reads a document: a file is named in backquotes, last on the line before its block, or
// first on it.
func blocks(t *testing.T, name string) (all []block) {
	text, err := os.ReadFile(name)
	require.NoError(t, err)
	named := regexp.MustCompile("`([\\w.]+\\.(?:go|sql|yaml))`")
	for _, m := range regexp.MustCompile("(?s)([^\n]*)\n\n```([a-z]+)\n(.*?)```").FindAllStringSubmatch(string(text), -1) {
		b := block{language: m[2], text: m[3]}
		if file := named.FindStringSubmatch(m[1]); file != nil && m[2] != "console" {
			b.file = file[1]
		}
		all = append(all, b)
	}
	return all
}

// The quick start is done as it stands: its files are written, its commands are typed into one
// shell, and what it says a command prints is printed, if need be after a while. Others are only the ports and the
// database, which this machine may have already.
func TestQuickstart(t *testing.T) {
	t.Parallel()
	for _, program := range []string{"make", "psql", "curl"} {
		if _, err := exec.LookPath(program); err != nil {
			t.Skip("needs what the page does: ", err)
		}
	}
	server := pgtest.Server(t, devpg.Options{TCP: true})
	require.NoError(t, server.CreateDatabase(t.Context(), "shop"))
	home := t.TempDir()
	dir := filepath.Join(home, "shop")
	require.NoError(t, os.Mkdir(dir, 0o755))
	root, err := filepath.Abs("..")
	require.NoError(t, err)
	require.NoError(t, os.Symlink(root, filepath.Join(home, "tenure"))) // the checkout

	all := blocks(t, "quickstart.md")
	require.Greater(t, len(all), 20)
	change := strings.NewReplacer("8000", freePort(t), "8001", freePort(t), "7946", freePort(t), "7947", freePort(t),
		"postgres://localhost/shop", "'"+server.DSN("shop")+"'")
	for _, b := range all {
		if b.file != "" {
			require.NoError(t, os.WriteFile(filepath.Join(dir, b.file), []byte(change.Replace(b.text)), 0o600))
		}
	}
	shell := openShell(t, dir, homeAt(t, home)...)
	for i, b := range all {
		if b.language != "console" {
			continue
		}
		lines := strings.Split(strings.TrimSpace(change.Replace(b.text)), "\n")
		printed, code := "", 0
		for _, command := range lines {
			printed, code = shell.run(t, command)
			require.Zero(t, code, "%s\n%s\n%s", command, printed, shell.logs(t))
		}
		if i+1 == len(all) || all[i+1].language != "text" {
			continue
		}
		matches := func() bool {
			for want := range strings.SplitSeq(strings.TrimSpace(all[i+1].text), "\n") {
				pattern := strings.ReplaceAll(regexp.QuoteMeta(want), "…", ".*")
				if !regexp.MustCompile("(?m)^" + strings.ReplaceAll(pattern, " ", `\s*`) + "$").MatchString(printed) {
					return false
				}
			}
			return true
		}
		for end := time.Now().Add(patience); !matches(); {
			require.True(t, time.Now().Before(end), "%s printed, and the page says\n%s:\n%s\n%s", lines[len(lines)-1], all[i+1].text, printed, shell.logs(t))
			printed, _ = shell.run(t, "sleep 0.1; "+lines[len(lines)-1])
		}
	}
}

// The Go blocks of the page are all there is to build: none is without a file.
func TestQuickstartHasFiles(t *testing.T) {
	t.Parallel()
	var files []string
	for _, b := range blocks(t, "quickstart.md") {
		if slices.Contains([]string{"go", "sql", "yaml"}, b.language) {
			files = append(files, b.file)
		}
	}
	require.Equal(t, []string{"schema.sql", "node.yaml", "main.go", "main_test.go"}, files)
}

// homeAt is an environment with a home of its own, where Go finds what it has in the user's: modules, too, so that
// it asks nobody for those that this module has.
func homeAt(t *testing.T, home string) []string {
	out, err := exec.CommandContext(t.Context(), "go", "env", "GOENV", "GOCACHE", "GOMODCACHE", "GOPROXY").Output()
	require.NoError(t, err)
	of := strings.Split(string(out), "\n")
	cache, err := os.UserCacheDir() // of Postgres
	require.NoError(t, err)
	return []string{"HOME=" + home, "GOPATH=", "GOBIN=", "XDG_CACHE_HOME=" + cache, "GOENV=" + of[0], "GOCACHE=" + of[1], "GOMODCACHE=" + of[2],
		"GOPROXY=file://" + filepath.ToSlash(of[2]) + "/cache/download," + of[3], "GONOSUMDB=*"}
}

// writeModule makes dir a module that uses this one.
func writeModule(t *testing.T, root, dir string) {
	module, err := os.ReadFile(filepath.Join(root, "go.mod"))
	require.NoError(t, err)
	module = bytes.Replace(module, []byte("module github.com/tenurehq/tenure\n"), []byte("module example.com/shop\n"), 1)
	module = fmt.Appendf(module, "\nrequire github.com/tenurehq/tenure v0.0.0\n\nreplace github.com/tenurehq/tenure => %s\n", root)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.mod"), module, 0o600))
	sums, err := os.ReadFile(filepath.Join(root, "go.sum"))
	require.NoError(t, err)
	require.NoError(t, os.WriteFile(filepath.Join(dir, "go.sum"), sums, 0o600))
}

// freePort is one that nobody listened on a moment ago.
func freePort(t *testing.T) string {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	require.NoError(t, err)
	return port
}

// shell is one bash, which what was started in the background belongs to.
type shell struct {
	dir string
	in  io.Writer
	out *bufio.Reader
	pid int
}

func openShell(t *testing.T, dir string, env ...string) *shell {
	cmd := exec.Command("bash")
	cmd.Dir = dir
	cmd.Env = append(append(os.Environ(), "PATH="+filepath.Join(dir, "bin")+":"+os.Getenv("PATH")), env...)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	cmd.Stderr = cmd.Stdout
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // with what it has started
		_ = cmd.Wait()
	})
	return &shell{dir, in, bufio.NewReader(out), cmd.Process.Pid}
}

// done is what the shell prints behind each command.
const done = "--command-is-done--"

// run types a command, and returns what it prints and its exit code. A command that does not end prints
// what its goroutines wait for.
func (s *shell) run(t *testing.T, command string) (printed string, code int) {
	late := time.AfterFunc(3*patience, func() { _ = syscall.Kill(-s.pid, syscall.SIGQUIT) }) // bash takes no notice
	defer late.Stop()
	_, err := fmt.Fprintf(s.in, "%s\ncode=$?; echo; echo %s $code\n", command, done)
	require.NoError(t, err)
	for {
		line, err := s.out.ReadString('\n')
		require.NoError(t, err, "%s\n%s", command, printed)
		if n, err := fmt.Sscanf(line, done+" %d", &code); n == 1 && err == nil {
			return printed, code
		}
		printed += line
	}
}

// logs are what the nodes have said.
func (s *shell) logs(t *testing.T) (text string) {
	for _, name := range []string{"one.log", "two.log"} {
		one, err := os.ReadFile(filepath.Join(s.dir, name))
		if err == nil {
			text += name + ":\n" + string(one)
		}
	}
	return text
}
