package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestTop(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1", "p2!", "p3")
	for range 3 {
		b.run("enqueue", "k", "{}", "--tenant", "P3")
	}
	b.sql("p3", `UPDATE tenure.job SET created_at = clock_timestamp() - interval '3 hours', ready_at = clock_timestamp() - interval '1 hour' WHERE id = (SELECT min(id) FROM tenure.job);
		INSERT INTO tenure.claim (session_id, turn, job_ids) SELECT gen_random_uuid(), turn, ARRAY[id] FROM tenure.job ORDER BY id DESC LIMIT 1`)
	var pools []jsonLoad
	require.NoError(t, json.Unmarshal([]byte(b.ok("top", "--once", "--every", "100ms", "-o", "json")), &pools))
	var order []string
	for _, p := range pools {
		order = append(order, p.Pool+" "+p.State)
	}
	require.Equal(t, []string{"p2 down", "p3 unheld", "p1 unheld"}, order, "the worst first")
	require.Equal(t, []int64{2, 1}, []int64{pools[1].Waiting, pools[1].Running})
	require.InDelta(t, 3600, pools[1].Oldest, 60)
	out := b.ok("top", "--once", "--every", "100ms")
	require.Regexp(t, `(?m)^p3 +unheld +nobody +\d+ +2 +\S+ +1 `, out)
	require.Contains(t, b.fails(exitUsage, "top", "-o", "json").errors, "goes with --once")
	require.Contains(t, b.fails(exitUsage, "top", "--every", "1ms").errors, "must be 100ms or more")
}

// Without --once it goes on until somebody has seen enough, which is no failure.
func TestTopEnds(t *testing.T) {
	t.Parallel()
	b := setup(t, "p1")
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	out := &seen{until: 2, enough: cancel}
	var errs bytes.Buffer
	require.Zero(t, run(ctx, []string{"top", "--every", "100ms", "--config", b.path}, strings.NewReader(""), out, &errs), errs.String())
	require.GreaterOrEqual(t, strings.Count(out.text.String(), "POOL"), 2)
}

// seen is somebody who looks at so many tables.
type seen struct {
	text   bytes.Buffer
	until  int
	enough func()
}

// Write implements io.Writer.
func (s *seen) Write(p []byte) (int, error) {
	s.text.Write(p)
	if strings.Count(s.text.String(), "POOL") >= s.until {
		s.enough()
	}
	return len(p), nil
}

// What happened between two looks is told by the second.
func TestRatesOfTop(t *testing.T) {
	t.Parallel()
	look := func(running, ended, finished, died int64) []shownPool {
		p := shownPool{Pool: "p", State: "up", Held: true, Running: running}
		p.Totals.Ended, p.Totals.Done, p.Totals.Died = ended, finished, died
		return []shownPool{p}
	}
	p := topPools(look(10, 100, 90, 5), look(30, 200, 180, 7), 2*time.Second)[0]
	require.Equal(t, []float64{60, 50, 45, 1}, []float64{p.Started, p.Ended, p.Done, p.Died})
	p = topPools(look(10, 100, 90, 5), look(0, 0, 0, 0), time.Second)[0]
	require.Zero(t, p.Started+p.Ended+p.Done+p.Died, "statistics were reset")
	require.Zero(t, topPools(nil, look(1, 100, 90, 5), time.Second)[0].Ended, "it did not answer before")
}
