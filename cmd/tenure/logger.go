package main

import (
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/config"
)

// newLogger logs to w as node.log says.
func newLogger(c config.Log, w io.Writer) *zap.Logger {
	level, err := zapcore.ParseLevel(c.Level)
	if err != nil {
		level = zapcore.InfoLevel // Validate refuses other words
	}
	e := zap.NewProductionEncoderConfig()
	e.EncodeTime = zapcore.ISO8601TimeEncoder
	e.EncodeDuration = zapcore.StringDurationEncoder
	e.TimeKey = "time"
	encoder := zapcore.NewJSONEncoder(e)
	if c.Format == "console" {
		e.EncodeLevel = zapcore.CapitalLevelEncoder
		encoder = zapcore.NewConsoleEncoder(e)
	}
	return zap.New(zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), level))
}
