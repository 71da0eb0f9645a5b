package main

import (
	"encoding/json"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestBatches(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	b.sql("p1", "SELECT tenure.enqueue_linked('P1', 'then', as_batch => true)")
	b.sql("p2", "SELECT tenure.enqueue_linked('P2', 'then', as_batch => true, on_failure => 'run')")
	type shownBatch struct {
		ID, Tenant, Cursor string
		Open               []string
	}
	list := func(args ...string) (all []shownBatch) {
		t.Helper()
		require.NoError(t, json.Unmarshal([]byte(b.ok(append([]string{"batches", "list", "-o", "json"}, args...)...)), &all))
		return all
	}
	require.Len(t, list(), 2)
	require.Equal(t, "P2", list("--tenant", "P2")[0].Tenant)
	all := list()
	require.Equal(t, all[1:], list("--after", all[0].Cursor), "the next page")
	require.Empty(t, list("--after", all[1].Cursor))
	first := b.run("batches", "list", "--limit", "1")
	require.NotContains(t, first.out, all[1].ID)
	require.Contains(t, first.errors, "go on with --after "+all[0].Cursor)
	require.Contains(t, b.fails(exitUsage, "batches", "list", "--after", "x").errors, "no place in a list of batches")
	batch := list("--pool", "p1")[0]
	require.Regexp(t, `jobs +0`, b.ok("batches", "show", batch.ID))
	one := b.enqueue("k", "{}", "--tenant", "P1", "--batch", batch.ID)
	second := b.enqueue("k", "{}", "--tenant", "P1", "--batch", batch.ID, "--in", "1h")
	b.fails(exitFailed, "enqueue", "k", "{}", "--tenant", "P2", "--batch", batch.ID)

	shown := b.ok("batches", "show", batch.ID)
	require.Regexp(t, `waits for +`+one+` `+second, shown)
	require.Regexp(t, `unfinished +2`, shown)
	require.Contains(t, b.ok("jobs", "why", batch.ID), "awaits job "+one+", "+second)
	require.NoError(t, json.Unmarshal([]byte(b.ok("batches", "show", batch.ID, "-o", "json")), &batch))
	require.Equal(t, []string{one, second}, batch.Open)
	require.Contains(t, b.ok("batches", "cancel", batch.ID), "is cancelled, with 2 jobs that had not ended")
	require.Contains(t, b.fails(exitFailed, "batches", "show", one).errors, "no batch has this id")
	b.fails(exitUsage, "batches", "list", "--limit", "0")
}
