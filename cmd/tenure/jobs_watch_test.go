package main

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// reports is SQL by which a node named n1 would write that a job's run has come so far.
func reports(id string, done int, lines string) string {
	return fmt.Sprintf(`SELECT tenure.write_reports('[{"job_id": %s, "turn": 1, "attempt": 1, "age_us": 60000000, "done": %d, "total": 8,
		"note": "sending", "output": {"sent": %[2]d}, "lines": [%s], "left_out": 0}]', 'n1');`, id, done, lines)
}

// ends is SQL by which a node would end a waiting job.
func ends(id, outcome string) string {
	return fmt.Sprintf(`WITH gone AS (DELETE FROM tenure.job WHERE id = %s RETURNING *)
		INSERT INTO tenure.completed_job (id, created_at, finished_at, turn, priority, attempt, losses, tenant_id, queue, kind, outcome, payload, started_at, node)
		SELECT id, created_at, now(), 1, 0, 1, 0, tenant_id, queue, kind, '%s', payload, now() - interval '90 seconds', 'n1' FROM gone;`, id, outcome)
}

func TestShowTellsWhatRunsSaid(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	id := b.enqueue("k", "{}", "--tenant", "P1")
	b.sql("p1", reports(id, 2, `{"ms": 1500, "text": "a\u001b[31mline"}`)+ends(id, "done"))
	out := b.ok("jobs", "show", id)
	require.Regexp(t, `(?m)^ran for +1m30s$`, out)
	require.Regexp(t, `(?m)^node +n1$`, out)
	require.Regexp(t, `(?m)^attempt 1, begun \S+ \(1m ago\) on n1, said:\n  progress: 2 of 8 \(25 %\), sending\n  output: \{\n +"sent": 2\n +\}\n  \d\d:\d\d:\d\d\.\d{3}  a \[31mline$`, out)
	require.Contains(t, b.ok("jobs", "list"), "on n1, ran for 1m30s, finished ")
	var shown shownJob
	require.NoError(t, json.Unmarshal([]byte(b.ok("jobs", "show", id, "-o", "json")), &shown))
	require.Len(t, shown.Reports, 1)
	require.Equal(t, int64(2), shown.Reports[0].Done)
	require.Len(t, shown.Reports[0].Lines, 1)
}

func TestWatchFollowsAJobToItsEnd(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	for _, end := range []string{"done", "cancelled"} {
		for _, output := range []string{"table", "json"} {
			id := b.enqueue("k", "{}", "--tenant", "P1")
			b.sql("p1", reports(id, 1, `{"ms": 1, "text": "first line"}`))
			watched := make(chan result, 1)
			go func() { watched <- command(t.Context(), "", "jobs", "watch", id, "-o", output, "--config", b.path) }()
			b.sql("p1", reports(id, 2, `{"ms": 1, "text": "first line"}, {"ms": 2, "text": "second line"}`)+ends(id, end))
			r := <-watched
			if end == "done" {
				require.Zero(t, r.code, r.errors)
			} else {
				require.Equal(t, exitFailed, r.code)
				require.Equal(t, "tenure: job "+id+" is cancelled\n", r.errors)
			}
			for _, line := range []string{"first line", "second line", "sending"} {
				require.Contains(t, r.out, line)
			}
			if output == "table" {
				require.Equal(t, 1, strings.Count(r.out, "first line"), "each line once")
				require.Regexp(t, `2 of 8 \(25 %\), sending\n(waiting.*\n)?`+end, r.out, "the end may come a look later")
			}
		}
	}
	r := b.fails(exitFailed, "jobs", "watch", "123")
	require.Contains(t, r.errors, "no such job")
}

// What is new is printed once, and lines that are left out are not missed.
func TestWatcherPrintsWhatIsNew(t *testing.T) {
	t.Parallel()
	var out strings.Builder
	w := watcher{a: &app{stdout: &out, now: time.Now}, seen: map[string]int{}}
	look := func(state string, leftOut int, lines ...string) string {
		r := map[string]any{"done": 1, "left_out": leftOut}
		var all []map[string]any
		for _, l := range lines {
			all = append(all, map[string]any{"text": l})
		}
		r["lines"] = all
		text, err := json.Marshal(map[string]any{"state": state, "handled": true, "reports": []any{r}})
		require.NoError(t, err)
		out.Reset()
		_, err = w.tell(text)
		require.NoError(t, err)
		return strings.ReplaceAll(out.String(), "00:00:00.000  ", "")
	}
	require.Equal(t, "a\nb\n1\nrunning\n", look("running", 0, "a", "b"))
	require.Empty(t, look("running", 0, "a", "b"))
	require.Equal(t, "c\n", look("running", 1, "b", "c"))
	require.Equal(t, "x\ny\n", look("running", 100, "x", "y"), "some were never seen")
	require.Equal(t, "done\n", look("done", 100, "x", "y"))
}
