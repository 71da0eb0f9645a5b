package main

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.sql("p1", "SELECT tenure.enqueue_linked('P1', 'then', as_batch => true)")
	b.sql("p2", "SELECT tenure.enqueue_linked('P2', 'then', as_batch => true, on_failure => 'run')")
	all := b.list("batches", "list")
	require.Len(t, all, 2)
	require.Equal(t, "P2", b.list("batches", "list", "--tenant", "P2")[0]["tenant"])
	first := b.run("batches", "list", "--limit", "1")
	require.NotContains(t, first.out, all[1]["id"])
	_, after, more := strings.Cut(first.errors, "go on with --after ")
	require.True(t, more, first.errors)
	after, _, _ = strings.Cut(after, ",")
	require.Equal(t, all[1:], b.list("batches", "list", "--after", after), "the next page")
	require.Contains(t, b.fails(exitUsage, "batches", "list", "--after", "x").errors, "no place in a list of batches")
	batch := b.list("batches", "list", "--pool", "p1")[0]["id"].(string)
	require.Regexp(t, `jobs +0`, b.ok("batches", "show", batch))
	one := b.enqueue("k", "{}", "--tenant", "P1", "--batch", batch)
	second := b.enqueue("k", "{}", "--tenant", "P1", "--batch", batch, "--in", "1h")
	b.fails(exitFailed, "enqueue", "k", "{}", "--tenant", "P2", "--batch", batch)

	shown := b.ok("batches", "show", batch)
	require.Regexp(t, `waits for +`+one+`, `+second, shown)
	require.Regexp(t, `unfinished +2`, shown)
	require.Contains(t, b.ok("jobs", "why", batch), "awaits job "+one+", "+second)
	var read struct{ Open []string }
	require.NoError(t, json.Unmarshal([]byte(b.ok("batches", "show", batch, "-o", "json")), &read))
	require.Equal(t, []string{one, second}, read.Open)
	require.Contains(t, b.ok("batches", "cancel", batch), "is cancelled, with 2 jobs that had not ended")
	require.Contains(t, b.fails(exitFailed, "batches", "show", one).errors, "no batch has this id")
	b.fails(exitUsage, "batches", "list", "--limit", "0")
}
