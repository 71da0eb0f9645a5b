package slogcore

import (
	"context"
	"log/slog"
	"maps"
	"slices"

	"go.uber.org/zap/zapcore"
)

// core is a zapcore.Core on a slog.Handler.
type core struct{ handler slog.Handler }

// New returns a core that writes to h. The name of a logger is the attribute logger.
func New(h slog.Handler) zapcore.Core { return core{h} }

// Enabled implements zapcore.LevelEnabler.
func (c core) Enabled(l zapcore.Level) bool {
	return c.handler.Enabled(context.Background(), levelOf(l))
}

// With implements zapcore.Core.
func (c core) With(fields []zapcore.Field) zapcore.Core {
	return core{c.handler.WithAttrs(attrsOf(fields))}
}

// Check implements zapcore.Core.
func (c core) Check(e zapcore.Entry, checked *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if c.Enabled(e.Level) {
		return checked.AddCore(e, c)
	}
	return checked
}

// Write implements zapcore.Core.
func (c core) Write(e zapcore.Entry, fields []zapcore.Field) error {
	r := slog.NewRecord(e.Time, levelOf(e.Level), e.Message, e.Caller.PC)
	if e.LoggerName != "" {
		r.AddAttrs(slog.String("logger", e.LoggerName))
	}
	r.AddAttrs(attrsOf(fields)...)
	return c.handler.Handle(context.Background(), r)
}

// Sync implements zapcore.Core: a handler has nothing that could be flushed.
func (c core) Sync() error { return nil }

func levelOf(l zapcore.Level) slog.Level {
	switch {
	case l <= zapcore.DebugLevel:
		return slog.LevelDebug
	case l == zapcore.InfoLevel:
		return slog.LevelInfo
	case l == zapcore.WarnLevel:
		return slog.LevelWarn
	}
	return slog.LevelError
}

// attrsOf has zap's own encoder say what fields hold, one by one, so that they keep their order.
func attrsOf(fields []zapcore.Field) (attrs []slog.Attr) {
	for _, f := range fields {
		encoded := zapcore.NewMapObjectEncoder()
		f.AddTo(encoded)
		for _, key := range slices.Sorted(maps.Keys(encoded.Fields)) {
			attrs = append(attrs, slog.Any(key, encoded.Fields[key]))
		}
	}
	return attrs
}
