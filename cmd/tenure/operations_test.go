package main

import (
	"regexp"
	"testing"

	"github.com/stretchr/testify/require"
)

// What is begun in the background can be seen and cancelled; no node runs here, so it waits.
func TestOperations(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	require.Empty(t, b.list("operations", "list"))
	said := b.ok("jobs", "retry", "--kind", "mail.send", "--rate", "5", "--background")
	id := regexp.MustCompile(`^operation (\S+) is under way; see: tenure operations show \S+\n$`).FindStringSubmatch(said)
	require.Len(t, id, 2, said)
	all := b.list("operations", "show", id[1])
	require.Len(t, all, 2)
	for field, want := range map[string]any{"pool": "p1", "kind": "mail.send", "state": "running", "asked_by": whoAsks()} {
		require.Equal(t, want, all[0][field])
	}
	require.Regexp(t, `(?m)^died before +\d{4}-`, b.ok("operations", "show", id[1]))
	require.Regexp(t, `(?m)^pool p2 +running: 0 done, 0 whose unique key is taken, 0 left$`, b.ok("operations", "show", id[1]))
	require.Regexp(t, `(?m)^rate +5 a second in each pool$`, b.ok("operations", "show", id[1]))
	b.sql("p1", "UPDATE tenure.operation SET failure = 'disk full'")
	require.Contains(t, b.ok("operations", "list"), "disk full")
	require.Len(t, rows(b.ok("operations", "list")), 2)

	require.Contains(t, b.ok("jobs", "delete", "--all", "--pool", "p2", "--background"), "is under way")
	require.Len(t, rows(b.ok("operations", "list")), 3)
	require.Equal(t, "operation "+id[1]+" is cancelled\n", b.ok("operations", "cancel", id[1]))
	require.Equal(t, "operation "+id[1]+" had ended\n", b.ok("operations", "cancel", id[1]))

	said = b.ok("jobs", "cancel", "--kind", "mail.send")
	id = regexp.MustCompile(`operation (\S+) is under way`).FindStringSubmatch(said)
	require.Len(t, id, 2, said)
	require.Regexp(t, `(?m)^made before +\d{4}-`, b.ok("operations", "show", id[1]))
	require.Contains(t, b.fails(exitFailed, "operations", "show", "0d3b2f7e-52f3-4e0e-9d0b-0d8c9f0a1b2c").errors, "seven days")
	require.Contains(t, b.fails(exitUsage, "operations", "cancel", "7").errors, "no id of an operation")
	require.Contains(t, b.fails(exitUsage, "jobs", "retry", "7", "--background").errors, "and not both")
}
