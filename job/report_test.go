package job

import (
	"context"
	"encoding/json"
	"errors"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// oneReporter is a call of jobs that share a reporter.
type oneReporter struct{ of *Reporter }

func (o oneReporter) Reporter(ID) *Reporter { return o.of }

// reporting is a handler's context, and who takes in what is said by it.
func reporting(changed func()) (context.Context, *Reporter) {
	r := NewReporter(time.Now(), changed)
	ctx := context.WithValue(context.Background(), ReportersKey{}, Reporters(oneReporter{r}))
	return NewContext(ctx, &Record{ID: 1}), r
}

func TestReport(t *testing.T) {
	t.Parallel()
	news := 0
	ctx, r := reporting(func() { news++ })
	SetProgress(ctx, 1, 3, "first")
	SetProgress(ctx, 2, 3, "second\x00\xff")
	require.NoError(t, SetOutput(ctx, map[string]int{"n": 1}))
	Log(ctx, "a line")
	require.Equal(t, 1, news, "until it is taken")
	said, ok := r.Take()
	require.True(t, ok)
	require.Len(t, said.Lines, 1)
	require.GreaterOrEqual(t, said.Lines[0].After, time.Duration(0))
	said.Lines[0].After = 0
	require.Equal(t, Report{Done: 2, Total: 3, Note: "second\\0\uFFFD", Output: []byte(`{"n":1}`), Lines: []LogLine{{Text: "a line"}}}, said)

	Log(ctx, "another")
	require.Equal(t, 2, news)
	require.Len(t, said.Lines, 1, "what was taken stays as it is")
	said, _ = r.Take()
	require.Len(t, said.Lines, 2)
	_, ok = (*Reporter)(nil).Take()
	require.False(t, ok)
}

func TestReport_isBounded(t *testing.T) {
	t.Parallel()
	ctx, r := reporting(func() {})
	for i := range MaxLogLines + 5 {
		Log(ctx, strings.Repeat(string(rune('a'+i%26)), MaxLogLine+1))
	}
	SetProgress(ctx, 1, 0, strings.Repeat("é", MaxNote))
	said, _ := r.Take()
	require.Len(t, said.Lines, MaxLogLines)
	require.Equal(t, 5, said.LeftOut)
	for i, l := range said.Lines {
		require.Equal(t, byte('a'+(i+5)%26), l.Text[0], "the last lines, in order")
		require.LessOrEqual(t, len(l.Text), MaxLogLine)
		require.True(t, strings.HasSuffix(l.Text, cutMark))
	}
	require.LessOrEqual(t, len(said.Note), MaxNote)
	require.True(t, strings.HasSuffix(said.Note, cutMark))
}

func TestSetOutput_refuses(t *testing.T) {
	t.Parallel()
	ctx, r := reporting(func() {})
	require.NoError(t, SetOutput(ctx, "kept"))
	for why, v := range map[string]any{
		"32768 are allowed":           strings.Repeat("x", MaxOutput),
		"unsupported type":            func() {},
		"which Postgres cannot store": "\x00",
		"has an exponent beyond":      json.RawMessage("1e9999"),
		"error calling MarshalJSON":   json.RawMessage("{"),
	} {
		require.ErrorContains(t, SetOutput(ctx, v), why)
	}
	said, _ := r.Take()
	require.Equal(t, `"kept"`, string(said.Output))
}

// A context that belongs to no job, and one whose run has ended, are for nothing.
func TestReport_outsideOfARun(t *testing.T) {
	t.Parallel()
	ended := context.WithValue(context.Background(), ReportersKey{}, Reporters(oneReporter{}))
	for _, ctx := range []context.Context{context.Background(), NewContext(context.Background(), &Record{ID: 1}), NewContext(ended, &Record{ID: 1}), ended} {
		SetProgress(ctx, 1, 2, "")
		Log(ctx, "nobody hears it")
		require.NoError(t, SetOutput(ctx, 1))
		require.Error(t, SetOutput(ctx, errors.ErrUnsupported.Error), "what can never be an output")
	}
}

func TestReport_byManyAtOnce(t *testing.T) {
	t.Parallel()
	var mu sync.Mutex
	news := 0
	ctx, r := reporting(func() {
		mu.Lock()
		news++
		mu.Unlock()
	})
	var group sync.WaitGroup
	for range 4 {
		group.Go(func() {
			for range 50 {
				Log(ctx, "line")
				SetProgress(ctx, 1, 2, "")
				r.Take()
			}
		})
	}
	group.Wait()
	said, _ := r.Take()
	require.Equal(t, 200, said.LeftOut+len(said.Lines))
	require.Positive(t, news)
}
