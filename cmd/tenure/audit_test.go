package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAudit(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	id := b.enqueue("k", "{}", "--tenant", "P1")
	b.ok("jobs", "suspend", id)
	b.ok("jobs", "resume", id)
	b.ok("pools", "freeze", "p2")
	b.fails(exitFailed, "jobs", "resume", id) // it is noted nowhere
	r := b.run("audit", "--limit", "2")
	require.Zero(t, r.code, r.errors)
	require.Len(t, rows(r.out), 2)
	more := regexp.MustCompile(`--after (\S+),`).FindStringSubmatch(r.errors)
	require.NotNil(t, more, r.errors)
	all := b.list("audit")
	require.Len(t, all, 3)
	for i, action := range []string{"pool.freeze", "job.resume", "job.suspend"} {
		require.Equal(t, action, all[i]["action"])
		require.Equal(t, whoAsks(), all[i]["who"])
	}
	require.Equal(t, "P1", all[1]["tenant"])
	require.Equal(t, id, all[1]["job"])
	require.Len(t, rows(b.ok("audit", "--after", more[1])), 1)
	require.Len(t, rows(b.ok("audit", "--action", "job")), 2)
	require.Len(t, rows(b.ok("audit", "--job", id, "--tenant", "P1", "--action", "job.suspend")), 1)
	b.fails(exitUsage, "audit", "--job", "x")
	b.fails(exitUsage, "audit", "--after", "x")
}
