package slogcore_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"log/slog"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure/internal/slogcore"
)

// What zap is given arrives with its level, name, fields and place.
func TestWhatIsLoggedArrives(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	handler := slog.NewJSONHandler(&out, &slog.HandlerOptions{Level: slog.LevelInfo, AddSource: true})
	log := zap.New(slogcore.New(handler), zap.AddCaller()).Named("routing").With(zap.String("pool", "main"))
	log.Debug("is not written")
	require.Zero(t, out.Len())
	for level, say := range map[string]func(string, ...zap.Field){"INFO": log.Info, "WARN": log.Warn, "ERROR": log.Error} {
		out.Reset()
		say("pool is up", zap.Error(errors.New("boom")), zap.Strings("names", []string{"a", "b"}), zap.Duration("took", time.Second))
		var got map[string]any
		require.NoError(t, json.Unmarshal(out.Bytes(), &got))
		require.Equal(t, []any{level, "pool is up", "routing", "main", "boom", []any{"a", "b"}, float64(time.Second)},
			[]any{got["level"], got["msg"], got["logger"], got["pool"], got["error"], got["names"], got["took"]})
		require.Contains(t, got["source"].(map[string]any)["file"], "core_test.go")
		require.NotEmpty(t, got["time"])
	}
}

// What a logger was given once is said by that one only.
func TestAttributesOfALoggerAreKept(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	log := zap.New(slogcore.New(slog.NewJSONHandler(&out, nil)))
	log.With(zap.Int("a", 1)).Info("m", zap.Int("b", 2))
	log.Info("m")
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	require.Len(t, lines, 2)
	require.Contains(t, string(lines[0]), `"a":1,"b":2`)
	require.NotContains(t, string(lines[1]), `"a"`)
}
