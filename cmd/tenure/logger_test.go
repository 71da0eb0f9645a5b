package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/config"
)

// Durations are numbers of seconds in JSON, which programs compare, and are readable for people.
func TestDurationsInLogs(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	newLogger(config.Log{Format: "json", Level: "info"}, &out).Info("job has run", zap.Duration("took", 1500*time.Millisecond), zap.Any("finish_within", 10*time.Second))
	var line map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &line))
	require.Equal(t, []any{1.5, 10.0}, []any{line["took"], line["finish_within"]})

	out.Reset()
	newLogger(config.Log{Format: "console", Level: "info"}, &out).Info("job has run", zap.Duration("took", 1500*time.Millisecond))
	require.Contains(t, out.String(), `{"took": "1.5s"}`)
}
