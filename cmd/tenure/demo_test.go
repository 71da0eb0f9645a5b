package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/stretchr/testify/require"

	"github.com/tenurehq/tenure/internal/devpg"
	"github.com/tenurehq/tenure/internal/devpg/pgtest"
)

// startDemo starts the demo in a process of its own, on a server of its own.
func startDemo(t *testing.T, args ...string) (cmd *exec.Cmd, out *bytes.Buffer, server *devpg.Server) {
	self, err := os.Executable()
	require.NoError(t, err)
	server = pgtest.Server(t, devpg.Options{})
	cmd = exec.CommandContext(t.Context(), self, append([]string{"demo", "--json", "--dsn", server.DSN("postgres"), "--traffic", t.TempDir()}, args...)...)
	cmd.Env = append(os.Environ(), mainEnv+"=1")
	out = &bytes.Buffer{}
	cmd.Stdout, cmd.Stderr = out, out
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it has ended already unless the test failed
		_ = cmd.Wait()
	})
	return cmd, out, server
}

// proof is the demo's last line but for complaints.
func proof(t *testing.T, out string) map[string]any {
	var line string
	for l := range strings.Lines(out) {
		if strings.HasPrefix(l, "{") {
			line = l
		}
	}
	var proof map[string]any
	require.NoError(t, json.Unmarshal([]byte(line), &proof), out)
	return proof
}

func TestDemo(t *testing.T) {
	t.Parallel()
	cmd, out, server := startDemo(t, "--jobs", "60", "--over", "2s", "--pools", "2", "--tenants", "3", "--nodes", "2")
	require.NoError(t, cmd.Wait(), "%s", out)
	p := proof(t, out.String())
	require.Regexp(t, `^node-[12]$`, p["killed"])
	require.Positive(t, p["takeover_seconds"])
	delete(p, "killed")
	delete(p, "takeover_seconds")
	require.Equal(t, map[string]any{"pools": 2., "tenants": 3., "nodes": 2., "enqueued": 60., "finished": 60., "lost": 0., "doubled": 0.}, p)
	require.Contains(t, out.String(), "60 enqueued, 60 finished, 0 lost, 0 effects doubled")

	conn, err := pgx.Connect(t.Context(), server.DSN("postgres"))
	require.NoError(t, err)
	defer conn.Close(context.WithoutCancel(t.Context()))
	var left int
	require.NoError(t, conn.QueryRow(t.Context(), "SELECT count(*) FROM pg_database WHERE datname LIKE 'tenure_demo%'").Scan(&left))
	require.Zero(t, left, "its databases are dropped")
}

// A proof that cannot fail proves nothing: an effect that is gone and one that is
// there twice are seen.
func TestDemoSeesLossAndDoubling(t *testing.T) {
	t.Parallel()
	cmd, out, server := startDemo(t, "--jobs", "40", "--over", "4s", "--pools", "1", "--tenants", "1", "--nodes", "1")
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
	p := proof(t, out.String())
	require.Equal(t, []any{40., 39., 1., 1.}, []any{p["enqueued"], p["finished"], p["lost"], p["doubled"]})
	require.Contains(t, out.String(), "the proof failed")
}
