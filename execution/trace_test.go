package execution

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/tenurehq/tenure/job"
)

const enqueuedIn = `{"tenure:traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}`

// attributes are what a span says, by name.
func attributes(s sdk.ReadOnlySpan) map[string]any {
	all := map[string]any{}
	for _, a := range s.Attributes() {
		all[string(a.Key)] = a.Value.AsInterface()
	}
	return all
}

// exceptions are the events of errors that a span has.
func exceptions(s sdk.ReadOnlySpan) (all []string) {
	for _, e := range s.Events() {
		said := map[string]string{}
		for _, a := range e.Attributes {
			said[string(a.Key)] = a.Value.AsString()
		}
		text := said["exception.type"] + ": " + said["exception.message"]
		if strings.Contains(said["exception.stacktrace"], "trace_test.go") {
			text += ", with its stack"
		}
		if e.Name == "exception" {
			all = append(all, text)
		}
	}
	return all
}

// Each run has a span, the root of a trace, that says how it ended and is linked to where its job was
// enqueued; what the handler does belongs to it, and so do the job's lines in the log.
func TestRunsHaveSpans(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewSpanRecorder()
	tracer := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test")
	core, logged := observer.New(zap.DebugLevel)
	handle := func(end error) job.HandlerFunc {
		return func(ctx context.Context, _ *job.Record) error {
			_, inner := tracer.Start(ctx, "inner")
			inner.End()
			return end
		}
	}
	b := newBundle(t, nil, func(r *job.Registry) {
		r.Add(job.Spec{Kind: "works", Handle: handle(nil)})
		r.Add(job.Spec{Kind: "fails", Handle: handle(errBroken)})
		r.Add(job.Spec{Kind: "panics", Handle: func(context.Context, *job.Record) error { panic("boom") }})
	})
	b.workers.TraceWith(tracer)
	b.workers.ends = newRunLog(zap.New(core))
	b.start()
	for _, c := range []struct {
		kind, outcome string
		status        codes.Code
		exception     []string
	}{{"works", "done", codes.Unset, nil}, {"fails", "retrying", codes.Error, []string{"error: " + errBroken.Error()}},
		{"panics", "retrying", codes.Error, []string{"panic: panic: boom, with its stack"}}} {
		seen.Reset()
		claim := b.claim(c.kind)
		claim.Record.Meta = []byte(enqueuedIn)
		b.submitClaims([]ClaimedJob{claim})
		ended := b.owner.next(t)
		var run sdk.ReadOnlySpan
		require.Eventually(t, func() bool { // it ends after the job's end was reported
			for _, s := range seen.Ended() {
				if s.Name() == "run "+c.kind {
					run = s
				}
			}
			return run != nil
		}, patience, time.Millisecond)
		require.Equal(t, map[string]any{"tenure.tenant": "acme", "tenure.pool": "main", "tenure.queue": "default", "tenure.kind": c.kind,
			"tenure.job": ended.claim.Record.ID.String(), "tenure.attempt": int64(1), "tenure.outcome": c.outcome,
			"messaging.system": "tenure", "messaging.operation.type": "process", "messaging.operation.name": "run",
			"messaging.destination.name": "default", "messaging.message.id": ended.claim.Record.ID.String()}, attributes(run))
		require.Equal(t, c.exception, exceptions(run))
		require.Equal(t, c.status, run.Status().Code)
		require.False(t, run.Parent().IsValid())
		require.Equal(t, trace.SpanKindConsumer, run.SpanKind())
		require.Len(t, run.Links(), 1)
		require.Equal(t, "0af7651916cd43dd8448eb211c80319c", run.Links()[0].SpanContext.TraceID().String())
		require.NotEqual(t, run.Links()[0].SpanContext.TraceID(), run.SpanContext().TraceID())
		for _, s := range seen.Ended() {
			require.Equal(t, run.SpanContext().TraceID(), s.SpanContext().TraceID(), s.Name())
		}
		lines := logged.FilterField(zap.Stringer("trace_id", run.SpanContext().TraceID())).All()
		require.Len(t, lines, 1)
		require.Equal(t, []any{"acme", ended.claim.Record.ID.String()}, []any{lines[0].ContextMap()["tenant"], lines[0].ContextMap()["job"]})
	}
	b.stop()
}

// Without traces a job's lines in the log name the trace in which it was enqueued.
func TestLinesNameTheTraceOfTheEnqueuer(t *testing.T) {
	t.Parallel()
	core, logged := observer.New(zap.DebugLevel)
	b := newBundle(t, nil, nil)
	b.workers.ends = newRunLog(zap.New(core))
	b.start()
	for meta, want := range map[string]any{enqueuedIn: "0af7651916cd43dd8448eb211c80319c", `{"tenure:traceparent": "nonsense"}`: nil, `{"tenure:traceparent": 1}`: nil, "": nil} {
		claim := b.claim("noop")
		claim.Record.Meta = []byte(meta)
		b.submitClaims([]ClaimedJob{claim})
		b.owner.next(t)
		lines := logged.TakeAll()
		require.Len(t, lines, 1)
		require.Equal(t, want, lines[0].ContextMap()["trace_id"], meta)
	}
	b.stop()
}

// A call of a batch handler has one span, linked to where each of its jobs was enqueued.
func TestCallsHaveOneSpan(t *testing.T) {
	t.Parallel()
	seen := tracetest.NewSpanRecorder()
	b := newBundle(t, nil, func(r *job.Registry) {
		job.HandleBatch(r, func(_ context.Context, batch *job.Batch[traced]) error {
			batch.End(batch.Jobs[0], job.Discard(errBroken))
			return nil
		})
	})
	b.workers.TraceWith(sdk.NewTracerProvider(sdk.WithSpanProcessor(seen)).Tracer("test"))
	claims := make([]ClaimedJob, 3)
	for i := range claims {
		claims[i] = b.claim("traced")
		claims[i].Record.Payload, claims[i].Record.Meta = []byte("{}"), []byte(enqueuedIn)
	}
	b.submitClaims(claims) // before the start, so that they share a call
	b.start()
	for range claims {
		b.owner.next(t)
	}
	b.stop()
	require.Len(t, seen.Ended(), 1)
	run := seen.Ended()[0]
	require.Len(t, run.Links(), 3)
	require.Equal(t, []any{int64(3), mixed}, []any{attributes(run)[string(attrJobs)], attributes(run)[string(attrOutcome)]})
	require.NotContains(t, run.Attributes(), attribute.String("tenure.job", "1"))
	require.Equal(t, int64(3), attributes(run)["messaging.batch.message_count"])
	require.Len(t, exceptions(run), 1, "of the one that fails")
}

type traced struct{}

func (traced) Kind() string { return "traced" }

// BenchmarkTraces is what spans cost a job, beside BenchmarkWorkers, where nothing is traced.
func BenchmarkTraces(b *testing.B) {
	b.Run("off", func(b *testing.B) { benchmarkWorkers(b, nil) })
	b.Run("unsampled", func(b *testing.B) {
		benchmarkWorkers(b, sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())).Tracer("test"))
	})
	b.Run("recorded", func(b *testing.B) {
		benchmarkWorkers(b, sdk.NewTracerProvider(sdk.WithSpanProcessor(sdk.NewSimpleSpanProcessor(tracetest.NewNoopExporter()))).Tracer("test"))
	})
}
