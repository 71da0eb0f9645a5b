package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestRelative(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 11, 20, 12, 0, 0, 0, time.UTC)
	a := &app{now: func() time.Time { return now }}
	for d, want := range map[time.Duration]string{
		0: "now", 900 * time.Millisecond: "now", -900 * time.Millisecond: "now",
		-time.Second: "1s ago", -59 * time.Second: "59s ago", -3 * time.Minute: "3m ago", 5 * time.Minute: "in 5m",
		-47 * time.Hour: "47h ago", -48 * time.Hour: "2d ago", 9 * 24 * time.Hour: "in 9d",
	} {
		require.Equal(t, want, a.now.relative(now.Add(d)), d)
	}
	require.Equal(t, "in 6974 years", a.now.relative(now.AddDate(6974, 0, 0)))
	require.Equal(t, "2026-11-20T11:57:00Z (3m ago)", a.now.stamp(now.Add(-3*time.Minute).In(time.FixedZone("", 3600))))
	require.Empty(t, a.now.stamp(time.Time{}))
}

// What stands in a job must not reach the terminal as more than text.
func TestCellsStayInTheirPlace(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	require.NoError(t, printTable(&b, []string{"A", "B"}, [][]string{{"x\ty\n\x1b[2Jz", ""}, {"\u202eé\u0085", "b"}}))
	require.Equal(t, "A          B\nx y  [2Jz  -\n é         b\n", b.String())
	require.Equal(t, "a\n    b c", cleanLines("a\n\tb\x1bc\n"))
	b.Reset()
	require.NoError(t, printJSON(&b, json.RawMessage("{\"a<\": \"\u202e\u00e9\u009b\U0001F600\u0628\"}")))
	require.Equal(t, "{\n  \"a<\": \"\\u202e\u00e9\\u009b\U0001F600\u0628\"\n}\n", b.String())
}

func TestErrorsAreLines(t *testing.T) {
	t.Parallel()
	var b bytes.Buffer
	a := &app{stderr: &b, reached: true}
	inner := errors.New("failed to connect:\n\thost a: refused\n\thost b: refused")
	err := errors.Join(fmt.Errorf("pool a: %w", inner), fmt.Errorf("two: %w", errors.Join(errors.New("x"), errors.New("y"))), nil)
	require.Equal(t, exitFailed, a.report(nil, errors.Join(err, errors.New("last"))))
	require.Equal(t, "tenure: pool a: failed to connect: host a: refused, host b: refused\ntenure: two: x; y\ntenure: last\n", b.String())
}

func TestConfigPath(t *testing.T) {
	t.Parallel()
	require.Equal(t, "node.yaml", configPath("", ""))
	require.Equal(t, "env", configPath("", "env"))
	require.Equal(t, "flag", configPath("flag", "env"))
}
