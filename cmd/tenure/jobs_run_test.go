package main

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// The command follows the run that it asked for, and no later one.
func TestJobsRun(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	again := func(id string) string {
		return `WITH gone AS (DELETE FROM tenure.job WHERE id = ` + id + ` RETURNING *)
			INSERT INTO tenure.timer_job (id, turn, attempt, tenant_id, queue, kind, payload, due_at)
			SELECT id, turn + 1, 1, tenant_id, queue, kind, payload, now() + interval '1 hour' FROM gone`
	}
	for name, tc := range map[string]struct {
		end  func(id string) string
		code int
		says string
	}{
		"done":     {func(id string) string { return ends(id, "done") }, 0, ""},
		"retrying": {again, exitFailed, "has run, and is to run again"},
	} {
		id := b.enqueue("k", "{}", "--tenant", "P1", "--in", "1h")
		followed := make(chan result, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		defer cancel()
		go func() { followed <- command(ctx, "", "jobs", "run", id, "--config", b.path) }()
		require.Eventually(t, func() bool { return strings.Contains(b.ok("jobs", "show", id), "waiting") }, 30*time.Second, 20*time.Millisecond, name)
		b.sql("p1", tc.end(id))
		r := <-followed
		require.Equal(t, tc.code, r.code, "%s: %s", name, r.errors)
		require.Contains(t, r.errors, tc.says, name)
	}
	require.Contains(t, b.fails(exitFailed, "jobs", "run", "123").errors, "no such job")
	b.fails(exitUsage, "jobs", "run", "one")
}
