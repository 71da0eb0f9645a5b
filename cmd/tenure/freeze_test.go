package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Queues and kinds are frozen in all pools, listed, completed by the shell and thawed; and what cannot be one is refused.
func TestFreezing(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	for range 2 {
		require.Equal(t, "queue mail is frozen; thaw it with: tenure queues thaw mail\n", b.ok("queues", "freeze", "mail"))
	}
	b.ok("kinds", "freeze", "invoice/send")
	frozen := func(noun string) (names []string) {
		for _, f := range b.list(noun, "list") {
			require.NotEmpty(t, f["since"])
			names = append(names, fmt.Sprintf("%s in %s", f[strings.TrimSuffix(noun, "s")], f["pool"]))
		}
		return names
	}
	require.Equal(t, []string{"mail in p1", "mail in p2"}, frozen("queues"))
	require.Equal(t, []string{"invoice/send in p1", "invoice/send in p2"}, frozen("kinds"))
	require.Regexp(t, `mail +p2 +(now|.* ago)`, b.ok("queues", "list"))
	for noun, want := range map[string]string{"queues": "mail", "kinds": "invoice/send"} {
		words := strings.Fields(command(t.Context(), "", "__complete", "--config", b.path, noun, "thaw", "").out)
		require.Equal(t, want, words[0])
	}
	require.Len(t, rows(b.ok("audit", "--action", "queue.freeze")), 4)
	for _, name := range []string{"", "no queue", strings.Repeat("q", 129)} {
		require.Contains(t, b.fails(exitUsage, "queues", "freeze", name).errors, "1 to 128 letters")
	}
	require.Equal(t, "queue mail is thawed\n", b.ok("queues", "thaw", "mail"))
	b.ok("kinds", "thaw", "invoice/send")
	require.Empty(t, append(frozen("queues"), frozen("kinds")...))
}

// Where a pool does not answer it is said where the others' jobs are frozen, and what to type again.
func TestFreezingWithoutAPool(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!")
	r := b.fails(exitFailed, "kinds", "freeze", "mail.send")
	require.Contains(t, r.errors, "kind mail.send is frozen in 1 of 2 pools (p1); once the others answer, type again: tenure kinds freeze mail.send: ")
	require.Contains(t, r.errors, "pool p2")
	require.NotContains(t, r.errors, "hunter2")
	require.Len(t, rows(b.fails(exitFailed, "kinds", "list").out), 1)
	require.Contains(t, b.fails(exitFailed, "kinds", "thaw", "mail.send").errors, "is thawed in 1 of 2 pools (p1)")
}
