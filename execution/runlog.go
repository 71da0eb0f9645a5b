package execution

import (
	"errors"
	"time"

	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/tenurehq/tenure/job"
)

// mostLogged bounds how many failed runs of a kind of failure a node logs a second: a handler that
// always fails, of a tenant with many jobs, fills no disk. tenure_jobs_finished_total counts all.
const mostLogged = 100

// runLog is the logger of how runs end.
type runLog struct{ *zap.Logger }

func newRunLog(log *zap.Logger) runLog {
	return runLog{log.WithOptions(zap.WrapCore(func(core zapcore.Core) zapcore.Core {
		return failuresOnly{core, zapcore.NewSamplerWithOptions(core, time.Second, mostLogged, 0)}
	}))}
}

// failuresOnly bounds all but debug lines: who asks for these wants every job.
type failuresOnly struct {
	zapcore.Core
	bounded zapcore.Core
}

func (f failuresOnly) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if e.Level == zapcore.DebugLevel {
		return f.Core.Check(e, ce)
	}
	return f.bounded.Check(e, ce)
}

func (f failuresOnly) With(fields []zapcore.Field) zapcore.Core {
	return failuresOnly{f.Core.With(fields), f.bounded.With(fields)}
}

// noteEnd logs how a run of a job ended, how long it took, and the trace that it belongs to: a failure for who operates the node,
// a panic with its stack, and anything else for who looks for a fault.
func (l runLog) noteEnd(r *run, c *ClaimedJob, o job.Outcome) {
	level, text := zapcore.DebugLevel, "job has run"
	var panicked *job.PanicError
	isPanic := errors.As(o.Err, &panicked)
	switch {
	case o.State == job.Dead:
		level, text = zapcore.WarnLevel, "job goes to the dead letters"
	case o.State == job.Retrying && isPanic:
		level, text = zapcore.WarnLevel, "job panicked and is tried again"
	case o.State == job.Retrying:
		level, text = zapcore.InfoLevel, "job failed and is tried again"
	}
	ce := l.Check(level, text)
	if ce == nil {
		return
	}
	fields := []zap.Field{
		zap.Stringer("job", c.Record.ID), zap.String("kind", c.Record.Kind), zap.String("tenant", c.Record.Tenant),
		zap.String("pool", c.Tenant.Pool), zap.Int("attempt", c.Record.Attempt), zap.Stringer("outcome", o.State), zap.Duration("took", r.took),
	}
	fields = append(fields, traceFields(r.traced.traceOf(&c.Record))...)
	if o.Delay > 0 {
		fields = append(fields, zap.Duration("again_in", o.Delay))
	}
	fields = append(fields, zap.Error(o.Err))
	if isPanic {
		fields = append(fields, zap.String("stack", panicked.Stack))
	}
	ce.Write(fields...)
}

// traceFields are a trace in a log line, as log collectors look for it; none: it is none.
func traceFields(c trace.SpanContext) []zap.Field {
	if !c.IsValid() {
		return nil
	}
	return []zap.Field{zap.Stringer("trace_id", c.TraceID()), zap.Stringer("span_id", c.SpanID())}
}
