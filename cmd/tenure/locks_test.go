package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestLocksHistory(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	require.Empty(t, b.list("locks", "history"))
	b.ok("pools", "freeze", "p2")
	locks := b.list("locks")
	require.Equal(t, []any{false, true}, []any{locks[0]["frozen"], locks[1]["frozen"]})
	b.sql("p2", "DELETE FROM tenure.lock_change")
	b.sql("p1", `INSERT INTO tenure.lock_change (epoch, change, node, member, at) VALUES
		(1, 'taken', 'n1', 'n1-0a', now() - interval '9 min'), (2, 'taken', 'n2', 'n2-0b', now() - interval '8 min'),
		(2, 'released', 'n2', 'n2-0b', now() - interval '7 min'), (3, 'taken', 'n1', 'n1-0a', now() - interval '6 min'),
		(3, 'frozen', NULL, NULL, now() - interval '5 min'), (3, 'thawed', NULL, NULL, now() - interval '4 min'),
		(4, 'taken', 'n1', 'n1-0a', now() - interval '3 min'), (5, 'taken', 'n1', 'n1-0a', now() - interval '2 min')`)
	b.sql("p2", "INSERT INTO tenure.lock_change (epoch, change, node, member, at) VALUES (7, 'taken', 'n2', 'n2-0b', now() - interval '1 min')")
	all := b.list("locks", "history")
	var texts []string
	for _, c := range all {
		texts = append(texts, c["pool"].(string)+": "+c["text"].(string))
	}
	require.Equal(t, []string{"p2: n2 took the lock", "p1: n1 took the lock once more", "p1: n1 took the lock", "p1: the pool was thawed", "p1: the pool was frozen",
		"p1: n1 took the lock", "p1: n2 released the lock", "p1: n2 took the lock, which n1 had not released", "p1: n1 took the lock"}, texts)
	require.Equal(t, "n1", all[7]["lost_by"])
	require.Len(t, rows(b.ok("locks", "history", "--pool", "p1", "--limit", "2")), 2)
	require.Contains(t, b.fails(exitUsage, "locks", "history", "--limit", "0").errors, "--limit 0: 1 to")
	require.Contains(t, b.fails(exitUsage, "locks", "history", "--pool", "p9").errors, `pool "p9"`)
	require.Contains(t, b.fails(exitUsage, "locks", "hsitory").errors, "unknown command")
}
