package main

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestExternal(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	var ids []string
	for _, tenant := range []string{"P1", "P2", "P1"} {
		ids = append(ids, b.enqueue("invoice.print", `{"n": 1}`, "--tenant", tenant, "--external"))
	}
	require.Contains(t, b.ok("jobs", "list", "--tenant", "P2"), "waiting (external)")
	require.Contains(t, b.ok("jobs", "why", ids[0]), "no external worker has acquired it")
	acquire := func(args ...string) []map[string]any {
		t.Helper()
		return b.list(append([]string{"external", "acquire", "invoice.print", "--worker", "w"}, args...)...)
	}
	lockOf := func(job map[string]any) string { return fmt.Sprintf("%s:%.0f", job["job"], job["turn"]) }
	jobs := acquire("--max", "5")
	require.Len(t, jobs, 3)
	require.Equal(t, map[string]any{"n": 1.0}, jobs[0]["args"])
	require.Empty(t, acquire())
	require.Regexp(t, `locked .* on w, lock expires in \dm`, b.ok("jobs", "list", "--state", "locked"))

	locks := []string{lockOf(jobs[0]), lockOf(jobs[1]), lockOf(jobs[2])}
	as := func(command string, args ...string) []string {
		return append([]string{"external", command, "--worker", "w"}, args...)
	}
	require.Equal(t, "job "+locks[0]+" stays locked\njob "+locks[1]+" stays locked\n", b.ok(as("extend", locks[0], locks[1], "--lock", "10m")...))
	require.Equal(t, "job "+locks[0]+" is done\n", b.ok(as("complete", locks[0], "--result", `{"pages": 3}`)...))
	require.Contains(t, b.ok("jobs", "show", jobs[0]["job"].(string)), `"pages": 3`)
	b.ok(as("error", locks[1], "--code", "no_paper", "--message", "the tray is empty")...)
	require.Contains(t, b.ok("jobs", "list", "--state", "business_error"), "no_paper: the tray is empty")
	b.ok(as("release", locks[2])...)
	b.ok(as("fail", lockOf(acquire()[0]), "--error", "jammed", "--retries", "0")...)
	require.Contains(t, b.ok("jobs", "list", "--state", "dead"), "jammed")
	require.Contains(t, b.ok("external", "acquire", "invoice.print", "--worker", "w"), "LOCK")

	r := b.fails(exitFailed, as("complete", locks[0])...)
	require.Contains(t, r.errors, "the lock on the job was lost")
	r = b.fails(exitUsage, as("complete", "12")...)
	require.Contains(t, r.errors, "JOB:TURN")
	r = b.fails(exitUsage, "external", "acquire", "invoice.print", "--worker", "w", "--max", "0")
	require.Contains(t, r.errors, "--max 0: 1 to 1000")
}

// Jobs that were locked are no failure because another pool is out of service: run again, the command would lock more.
func TestExternalBesideAPoolOutOfService(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2?")
	require.Zero(t, b.run("enqueue", "invoice.print", "{}", "--tenant", "P1", "--external").code)
	r := b.run("external", "acquire", "invoice.print", "--worker", "w", "-o", "json")
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.out, `"tenant": "P1"`)
	require.Contains(t, r.errors, "note: ")
}
