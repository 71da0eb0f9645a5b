package main

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestDeadLetters(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	dies := func(pool, kind, failure, died string) {
		b.sql(pool, `INSERT INTO tenure.dead_letter_job (tenant_id, queue, kind, payload, origin, error, died_at)
			SELECT upper('`+pool+`'), 'default', '`+kind+`', '{"n": 1}', 'job', '`+failure+`' || n, now() - interval '`+died+`' FROM generate_series(1, 3) n`)
	}
	dies("p1", "mail.send", "no mailbox ", "1 hour")
	dies("p2", "mail.send", "no mailbox ", "2 days")
	dies("p2", "bill", "timeout after ", "1 hour")
	require.Contains(t, b.ok("jobs", "dead"), "GROUP")
	groups := func(args ...string) []map[string]any {
		t.Helper()
		return b.list(append([]string{"jobs", "dead"}, args...)...)
	}
	all := groups()
	require.Len(t, all, 2)
	require.Equal(t, []any{"mail.send", 6.0, 3.0}, []any{all[0]["kind"], all[0]["count"], all[1]["count"]})
	group := all[0]["group"].(string)
	require.Regexp(t, `(?m)^[0-9a-f]{16} +6 +mail\.send +\S+Z \(\S+ ago\) +\S+Z \(\S+ ago\) +\d+ +no mailbox #$`, b.ok("jobs", "dead"))
	require.Len(t, groups("--older", "24h"), 1)
	require.Len(t, groups("--kind", "bill", "--tenant", "P2", "--pool", "p2", "--error", "TIMEOUT"), 1)
	require.Empty(t, groups("--kind", "bill", "--pool", "p1"))

	require.Equal(t, "3 dead letters retried\n", b.ok("jobs", "retry", "--kind", "mail.send", "--older", "P1D", "--rate", "1000"))
	require.Len(t, rows(b.ok("jobs", "list", "--state", "waiting", "--tenant", "P2")), 3)
	b.sql("p1", "UPDATE tenure.dead_letter_job SET unique_key = 'u'")
	require.Equal(t, "1 dead letter retried; 2 stay: unfinished jobs have their unique keys\n", b.ok("jobs", "retry", "--group", group))
	require.Equal(t, "2 dead letters deleted\n", b.ok("jobs", "delete", "--group", group))
	b.sql("p2", "INSERT INTO tenure.tenant (tenant_id, state, other_pool) VALUES ('P2', 'moved', 'p1')")
	require.Contains(t, b.ok("jobs", "delete", "--all"), "0 dead letters deleted; 3 stay: their tenant is being moved")
	b.sql("p2", "DELETE FROM tenure.tenant")
	require.Equal(t, "3 dead letters deleted\n", b.ok("jobs", "delete", "--all"))
	require.Empty(t, groups())
}

func TestSuspendAndChange(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	one := b.enqueue("a", "{}", "--tenant", "P1")
	two := b.enqueue("a", "{}", "--tenant", "P2", "--in", "1h")
	three := b.enqueue("b", "{}", "--tenant", "P2", "--queue", "q")
	require.Equal(t, "job "+one+" is suspended; resume it with: tenure jobs resume "+one+"\n", b.ok("jobs", "suspend", one))
	require.Contains(t, b.ok("jobs", "show", one), "suspended")
	require.Equal(t, "job "+one+" is resumed\n", b.ok("jobs", "resume", one))
	r := b.fails(exitFailed, "jobs", "resume", one)
	require.Equal(t, "tenure: resume job "+one+": it is waiting, and not suspended\n", r.errors)
	r = b.fails(exitFailed, "jobs", "suspend", "999")
	require.Contains(t, r.errors, "no such job")

	until := time.Now().Add(time.Hour).UTC().Format(time.RFC3339)
	require.Equal(t, "2 jobs suspended\n", b.ok("jobs", "suspend", "--kind", "a", "--until", until))
	require.Equal(t, "1 job suspended\n", b.ok("jobs", "suspend", "--queue", "q", "--tenant", "P2", "--pool", "p2"))
	require.Len(t, rows(b.ok("jobs", "list", "--state", "suspended")), 3)
	require.Regexp(t, `(?m)^`+one+` +suspended .* until in 59m$`, b.ok("jobs", "list"))
	require.Regexp(t, `(?m)^until +`+until+` \(in 59m\)$`, b.ok("jobs", "show", two))
	require.Contains(t, b.ok("jobs", "show", two, "-o", "json"), `"resume_at": "`+until+`"`)
	require.NotContains(t, b.ok("jobs", "show", three), "until")
	require.Equal(t, "0 jobs resumed\n", b.ok("jobs", "resume", "--correlation", "c"))
	require.Equal(t, "3 jobs resumed\n", b.ok("jobs", "resume", "--all"))
	require.Len(t, rows(b.ok("jobs", "list", "--state", "scheduled")), 1)

	require.Equal(t, "job "+two+" is changed\njob "+three+" is changed\n", b.ok("jobs", "change", two, three, "--priority", "9", "--max-attempts", "4", "--in", "0s"))
	shown := b.ok("jobs", "show", three)
	require.Regexp(t, `(?m)^priority +9$`, shown)
	require.Regexp(t, `(?m)^max attempts +4$`, shown)
	b.ok("jobs", "cancel", two)
	r = b.fails(exitFailed, "jobs", "change", two, "--timeout", "5s")
	require.Contains(t, r.errors, "it is cancelled, and does not run again")
	require.True(t, strings.HasPrefix(b.ok("jobs", "change", one, "--at", "2999-01-01T00:00:00Z"), "job "+one))
	require.Contains(t, b.ok("jobs", "show", one), "2999-01-01T00:00:00Z")
}

// Jobs that flags choose are cancelled by the nodes; none runs here, so that it waits for one.
func TestCancelMany(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2")
	one := b.enqueue("a", "{}", "--tenant", "P1", "--in", "1h", "--tag", "red")
	said := b.ok("jobs", "cancel", "--kind", "a", "--state", "scheduled", "--tag", "red", "--queue", "default", "--rate", "5")
	require.Regexp(t, `^operation \S+ is under way; see: tenure operations show \S+\n$`, said)
	id := strings.Fields(said)[1]
	shown := b.ok("operations", "show", id)
	require.Regexp(t, `(?m)^of +kind a, queue default, state scheduled, tag red$`, shown)
	require.Regexp(t, `(?m)^made before +\d{4}-`, shown)
	require.Contains(t, b.ok("audit", "--action", "jobs.cancel"), `"state":"scheduled"`)
	require.Contains(t, b.ok("jobs", "cancel", "--all", "--pool", "p2"), "is under way")
	for _, args := range [][]string{{}, {one, "--kind", "a"}, {one, "--rate", "5"}, {"--all", "--kind", "a"}, {"--kind", ""}, {"--state", "dead"}, {"--kind", "a", "--rate", "0"}, {"--pool", "p2"}} {
		b.fails(exitUsage, append([]string{"jobs", "cancel"}, args...)...)
	}
	require.Equal(t, "job "+one+" is cancelled\n", b.ok("jobs", "cancel", one))
}
