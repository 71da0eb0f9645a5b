package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestMain lets this program be the node processes that scenarios start.
func TestMain(m *testing.M) {
	if len(os.Args) == 2 && os.Args[1] == "node" {
		main()
		return
	}
	os.Exit(m.Run())
}

// Every side of every comparison runs and gives a figure, on real Postgres: the peer's program
// is a module of its own, which nothing else would build.
func TestCompare(t *testing.T) {
	if testing.Short() {
		t.Skip("compiles a module of its own")
	}
	t.Parallel()
	file := filepath.Join(t.TempDir(), "benchmarks.md")
	require.NoError(t, os.WriteFile(file, []byte("above\n"+tableBegin+"old\n"+tableEnd+"below\n"), 0o600))
	require.NoError(t, compare(t.Context(), compareOptions{rounds: 1, jobs: 400, window: 300 * time.Millisecond, memory: true, write: file}, comparisons))
	text, err := os.ReadFile(file)
	require.NoError(t, err)
	number := `[1-9][\d,]*`
	ratio := `\d+\.\d\d`
	ms := `[1-9]?\d*\.\d\d, \d+\.\d`
	require.Regexp(t, "^above\n"+tableBegin+
		`\|.*\|\n\|[-|]+\n`+
		"\\| `drain` \\| no-op jobs/s \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+ratio+` \[≥ 5\] \| `+ratio+" \\[≥ 0.85\\] \\|\n"+
		"\\| `enqueue` \\| .* \\| "+number+" \\| – \\| "+number+" \\| "+number+" \\| "+number+" \\| "+ratio+` \[≥ 2.5\] \| `+ratio+" \\[≥ 0.9\\] \\|\n"+
		"\\| `tx` \\| .* \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+ratio+` \[≥ 2.3\] \| `+ratio+" \\[≥ 0.9\\] \\|\n"+
		"\\| `tx` \\| .* \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+number+" \\| "+ratio+` \[≥ 15\] \| `+ratio+" \\|\n"+
		"\\| `latency` \\| .* \\| "+ms+" \\| "+ms+" \\| "+ms+" \\| "+ms+` \[≤ 10\] \| `+ms+" \\| "+ratio+" \\| "+ratio+" \\[≤ 1.5\\] \\|\n"+
		"\\| `latency` \\| .* \\| "+ms+" \\| "+ms+" \\| "+ms+" \\| "+ms+` \[≤ 10\] \| `+ms+" \\| "+ratio+" \\| "+ratio+" \\[≤ 2.5\\] \\|\n"+
		`\nMedians of 1 rounds.*Postgres \d+.*, River v\d+\.\d+\.\d+, DBOS v\d+\.\d+\.\d+, Go .*\.\n`+tableEnd+"below\n$", string(text))
}

func TestComparedIsPrinted(t *testing.T) {
	t.Parallel()
	s := standing{ours: figure{2000, 0}, theirs: figure{800, 0}, dbos: figure{500, 0}, limit: figure{4000, 0}, toTheirs: 2.5, toLimit: 0.5}
	text, err := compared{name: "tx", jobs: 7, rounds: 3, standings: []standing{s}, versions: versions{"15.1", "v0.1.0", "v1.2.0", "1.26"}}.MarshalJSON()
	require.NoError(t, err)
	require.JSONEq(t, `{"comparison": "tx", "rounds": 3, "jobs": 7, "ours": 2000, "theirs": 800, "dbos_per_second": 500, "limit": 4000, "ratio": 2.5, "ratio_to_limit": 0.5,
		"postgres": "15.1", "river": "v0.1.0", "dbos": "v1.2.0", "go": "1.26"}`, string(text))

	late := standing{contest: contest{late: true}, ours: figure{3, 9}, theirs: figure{2, 8}, defaults: figure{50, 99}, dbos: figure{7, 20}, limit: figure{1.5, 2}, toTheirs: 1.5, toLimit: 2}
	text, err = compared{name: "latency", rounds: 3, standings: []standing{late, late}}.MarshalJSON()
	require.NoError(t, err)
	const figures = `"ours_p50_ms": 3, "ours_p99_ms": 9, "theirs_p50_ms": 2, "theirs_p99_ms": 8, "theirs_by_default_p50_ms": 50,
		"theirs_by_default_p99_ms": 99, "dbos_p50_ms": 7, "dbos_p99_ms": 20, "commit_ms": 1.5, "ratio": 1.5, "commits": 2`
	require.JSONEq(t, `{"comparison": "latency", "rounds": 3, `+figures+`, "other_process": {`+figures+`}, "postgres": "", "river": "", "dbos": "", "go": ""}`, string(text))
}

// A side that is fast or slow because of the machine is so beside the others of its round.
func TestRatiosAreOfRounds(t *testing.T) {
	t.Parallel()
	require.Equal(t, 2.0, medianRatio([]figure{{typical: 10}, {typical: 300}, {typical: 4000}}, []figure{{typical: 5}, {typical: 100}, {typical: 4000}}))
	require.Equal(t, 1.5, medianRatio([]figure{{typical: 1}, {typical: 2}}, []figure{{typical: 1}, {typical: 1}}))
}
