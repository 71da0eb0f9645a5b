package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

// A folder of traffic that has none is a mistake; nothing looks in a folder that nobody has named.
func TestDemoReadsTheTrafficThatIsNamed(t *testing.T) {
	t.Parallel()
	empty := t.TempDir()
	r := command(t.Context(), "", "demo", "--traffic", empty)
	require.Equal(t, exitFailed, r.code)
	require.Contains(t, r.errors, "--traffic "+empty+": there is no recording")
	require.NotContains(t, command(t.Context(), "", "demo", "--help").out, "../")
}

// startDemo starts the demo in a process of its own, on a server of its own. What it says to
// people is in out, its result in report.
func startDemo(t *testing.T, args ...string) (cmd *exec.Cmd, out, report *bytes.Buffer, server *devpg.Server) {
	self, err := os.Executable()
	require.NoError(t, err)
	server = pgtest.Server(t, devpg.Options{})
	cmd = exec.CommandContext(t.Context(), self, append([]string{"demo", "--json", "--dsn", server.DSN("postgres")}, args...)...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	out, report = &bytes.Buffer{}, &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = report, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already unless the test failed
		_ = cmd.Wait()
	})
	return cmd, out, report, server
}

// proof is the demo's result.
func proof(t *testing.T, report string) map[string]any {
	var proof map[string]any
	require.NoError(t, json.Unmarshal([]byte(report), &proof), report)
	return proof
}

func TestDemo(t *testing.T) {
	t.Parallel()
	cmd, out, report, server := startDemo(t, "--jobs", "60", "--over", "2s", "--pools", "2", "--tenants", "3", "--nodes", "2")
	require.NoError(t, cmd.Wait(), "%s", out)
	p := proof(t, report.String())
	require.Regexp(t, `^node-[12]$`, p["killed"])
	require.Positive(t, p["takeover_seconds"])
	delete(p, "killed")
	delete(p, "takeover_seconds")
	require.Equal(t, map[string]any{"pools": 2., "tenants": 3., "nodes": 2., "enqueued": 60., "finished": 60., "lost": 0., "doubled": 0.}, p)
	text := strings.Join(strings.Fields(out.String()), " ")
	require.Contains(t, text, "60 enqueued, 60 finished, 0 lost, 0 effects doubled")
	require.Contains(t, text, "is killed with SIGKILL: it held the lock of pool-")
	require.Regexp(t, `[0-9]+ jobs of node-[12] start again in [0-9]+ s`, text)
	for line := range strings.Lines(out.String()) {
		require.LessOrEqual(t, utf8.RuneCountInString(line), 81, line) // with the line's end
	}

	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'tenure_demo%'").Scan(&left))
	require.Zero(t, left, "its databases are dropped")
}

// A demo that stays can be looked at with what it prints, and has succeeded when somebody
// ends it.
func TestDemoStays(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	require.NoError(t, err)
	cmd := exec.CommandContext(t.Context(), self, "demo", "--stay", "--jobs", "10", "--over", "1s", "--pools", "1", "--tenants", "1", "--nodes", "1",
		"--dsn", pgtest.Server(t, devpg.Options{}).DSN("postgres"))
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended already unless the test failed

	dir, address := "", ""
	ran := 0
	for lines := bufio.NewScanner(out); ran < 5 && lines.Scan(); {
		require.LessOrEqual(t, utf8.RuneCountInString(lines.Text()), 80, lines.Text())
		command := strings.TrimPrefix(lines.Text(), "  ")
		if _, line, ok := strings.Cut(command, "dashboard: "); ok {
			address, _, _ = strings.Cut(line, " ")
		}
		if to, ok := strings.CutPrefix(command, "cd "); ok {
			dir = to
		}
		if dir == "" {
			continue
		}
		ran++
		if _, err := exec.LookPath("psql"); err != nil && strings.HasPrefix(command, "psql ") {
			continue
		}
		shell := exec.CommandContext(t.Context(), "sh", "-ec", "cd "+dir+"; "+command)
		shell.Env = append(os.Environ(), mainEnv+"=1")
		text, err := shell.CombinedOutput()
		require.NoError(t, err, "%s: %s", command, text)
	}
	require.Equal(t, 5, ran)
	page, err := http.Get(address)
	require.NoError(t, err)
	text, err := io.ReadAll(page.Body)
	require.NoError(t, err)
	require.NoError(t, page.Body.Close())
	require.Equal(t, http.StatusOK, page.StatusCode, "%s", text)
	require.Contains(t, string(text), "node-1")
	_, err = io.WriteString(in, "\n") // Ctrl-C is TestMakeDemoEndsWell's
	require.NoError(t, err)
	_, _ = io.Copy(io.Discard, out)
	require.NoError(t, cmd.Wait())
	require.NoDirExists(t, dir)
}

// Ctrl-C on the terminal of `make demo`, once the demo has succeeded, is no failure of make's.
func TestMakeDemoEndsWell(t *testing.T) {
	t.Parallel()
	for _, needed := range []string{"make", "script"} {
		if _, err := exec.LookPath(needed); err != nil {
			t.Skip(err)
		}
	}
	self, err := os.Executable()
	require.NoError(t, err)
	// What is to be compiled has been: this test.
	make := "make -C ../.. demo GO=true TENURE='" + self + "' ARGS='--stay --jobs 10 --over 1s --pools 1 --tenants 1 --nodes 1'"
	cmd := exec.CommandContext(t.Context(), "script", "-qec", make, "/dev/null")
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	keyboard, err := cmd.StdinPipe()
	require.NoError(t, err)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // it has ended already unless the test failed
	var said strings.Builder
	for lines := bufio.NewScanner(out); lines.Scan(); {
		said.WriteString(lines.Text() + "\n")
		if strings.HasPrefix(lines.Text(), "  psql ") {
			_, err := io.WriteString(keyboard, "\x03")
			require.NoError(t, err)
		}
	}
	require.NoError(t, cmd.Wait(), &said)
	require.Contains(t, said.String(), "psql")
}

// A proof that cannot fail proves nothing: an effect that is gone and one that is
// there twice are seen.
func TestDemoSeesLossAndDoubling(t *testing.T) {
	t.Parallel()
	cmd, out, report, server := startDemo(t, "--jobs", "40", "--over", "4s", "--pools", "1", "--tenants", "1", "--nodes", "1")
	require.Eventually(t, func() bool {
		conn, err := pgx.Connect(t.Context(), server.DSN(fmt.Sprintf("tenure_demo_%d_1", cmd.Process.Pid)))
		if err != nil {
			return false
		}
		defer conn.Close(context.WithoutCancel(t.Context()))
		err = pgx.BeginFunc(t.Context(), conn, func(tx pgx.Tx) error {
			for _, change := range []string{
				"INSERT INTO tenant_01.effect SELECT * FROM tenant_01.effect ORDER BY job_id LIMIT 1",
				"DELETE FROM tenant_01.effect WHERE job_id = (SELECT max(job_id) FROM tenant_01.effect HAVING count(DISTINCT job_id) > 1)",
			} {
				if tag, err := tx.Exec(t.Context(), change); err != nil || tag.RowsAffected() != 1 {
					return errors.Join(err, errors.New("not yet"))
				}
			}
			return nil
		})
		return err == nil
	}, patience, tick)
	var exit *exec.ExitError
	require.ErrorAs(t, cmd.Wait(), &exit, "%s", out)
	require.Equal(t, exitFailed, exit.ExitCode())
	p := proof(t, report.String())
	require.Equal(t, []any{40., 39., 1., 1.}, []any{p["enqueued"], p["finished"], p["lost"], p["doubled"]})
	require.Contains(t, out.String(), "the proof failed")
}
