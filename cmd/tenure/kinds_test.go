package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// Who types a kind for which no live node has a handler is told so, and which one may be meant. What was asked is done
// all the same. Nobody is told so while no node lives that could know, or of topics of external workers.
func TestKindsThatNobodyHandles(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	session := func(kinds, expires string) {
		b.sql("p1", `INSERT INTO tenure.node_session (session_id, node, member, kinds, expires_at)
			VALUES (gen_random_uuid(), 'n', 'm', '{`+kinds+`}', now() + interval '`+expires+`')`)
	}
	typed := [][]string{
		{"enqueue", "mail.sned", "{}", "--tenant", "P1", "-o", "json"},
		{"schedules", "set", "nightly", "mail.sned", "--tenant", "P1", "--rule", "@daily"},
		{"limits", "set", "--tenant", "P1", "--kind", "mail.sned", "--rate", "7"},
		{"kinds", "freeze", "mail.sned"},
	}
	session("gone", "-1 h")
	session("", "1 h") // of a node that has no handlers
	for _, args := range typed {
		b.ok(args...)
	}
	session("mail.send,report.build", "1 h")
	for _, args := range typed {
		r := b.run(args...)
		require.Zero(t, r.code, r.errors)
		require.Equal(t, "tenure: note: no live node has a handler for kind \"mail.sned\": did you mean mail.send?\n", r.errors, args)
		require.NotContains(t, r.out, "note", args)
	}
	require.Equal(t, "tenure: note: no live node has a handler for kind \"gone\"\n", b.run("enqueue", "gone", "{}", "--tenant", "P1").errors)
	b.sql("p1", "INSERT INTO tenure.kind_queue VALUES ('of.an.idle.node', 'default')")
	b.ok("enqueue", "of.an.idle.node", "{}", "--tenant", "P1")
	b.ok("enqueue", "report.build", "{}", "--tenant", "P1")
	b.ok("enqueue", "invoice.print", "{}", "--tenant", "P1", "--external")
	b.ok("limits", "set", "--tenant", "P1", "--rate", "7")
	b.ok("kinds", "thaw", "mail.sned")
}
