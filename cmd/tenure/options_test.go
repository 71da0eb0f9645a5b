package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestEnqueueOptions(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	add := func(args ...string) string {
		return b.enqueue(append([]string{"k", "{}", "--tenant", "P1"}, args...)...)
	}
	id := add("--timeout", "PT30S", "--tag", "import,eu", "--tag", "x", "--correlation", "order-1", "--unique", "u", "--unique-for", "1h")
	other := add("--tag", "import")
	shown := b.ok("jobs", "show", id)
	require.Regexp(t, `timeout +30s`, shown)
	require.Regexp(t, `tags +eu, import, x`, shown)
	var listed []map[string]any
	list := func(args ...string) (ids []string) {
		listed = b.list(append([]string{"jobs", "list"}, args...)...)
		for _, j := range listed {
			ids = append(ids, j["id"].(string))
		}
		return ids
	}
	require.Equal(t, []string{other, id}, list("--tag", "import"))
	require.Equal(t, []string{id}, list("--tag", "import", "--tag", "eu"))
	require.Equal(t, []string{id}, list("--correlation", "order-1"))
	require.Equal(t, []any{[]any{"eu", "import", "x"}, 30_000.0}, []any{listed[0]["tags"], listed[0]["timeout_ms"]})
	require.Contains(t, b.ok("jobs", "list", "--tag", "eu"), "tags eu import x")

	b.ok("jobs", "cancel", id)
	r := b.run("enqueue", "k", "{}", "--tenant", "P1", "--unique", "u")
	require.Zero(t, r.code, r.errors)
	require.Contains(t, r.errors, "has this unique key")
	require.Contains(t, r.out, id)

	for _, args := range [][]string{{"--unique-for", "1h"}, {"--unique", "u", "--unique-for", "soon"}, {"--timeout", "soon"}} {
		b.fails(exitUsage, append([]string{"enqueue", "k", "{}", "--tenant", "P1"}, args...)...)
	}
	require.Contains(t, b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P1", "--timeout", "0s").errors, "must be 1ms or more")
	require.Contains(t, b.fails(exitUsage, "enqueue", "k", "{}", "--tenant", "P1", "--skip-retrying").errors, "exclusive_key, which is missing")
	b.enqueue("k", "{}", "--tenant", "P1", "--exclusive", "a", "--skip-retrying")
	require.Contains(t, b.fails(exitUsage, "jobs", "list", "--tag", strings.Repeat("x", 65)).errors, "1 to 64 are allowed")
}
