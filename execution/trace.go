package execution

import (
	"context"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
)

// What a run's span says. The outcome is known at its end.
const (
	attrAttempt = attribute.Key("tenure.attempt")
	attrJobs    = attribute.Key("tenure.jobs") // of a batch handler's call
	attrOutcome = attribute.Key("tenure.outcome")
)

// mixed is the outcome of a call whose jobs ended in several ways.
const mixed = "mixed"

// runSpan is the span of a run; the zero value is none.
type runSpan struct {
	span    trace.Span
	outcome string
	stack   string // of the last panic
	err     error
}

// begin begins the run's span: the root of a trace of its own, linked to the spans in which the jobs
// were enqueued. Those ended long ago, may be days old, and a trace that never ends can be looked at by
// nobody.
func (s *runSpan) begin(ctx context.Context, r *run) context.Context {
	c := r.claim
	attrs := append(tracing.Run(), tracing.Destination.String(c.Record.Queue),
		tracing.Tenant.String(c.Record.Tenant), tracing.Pool.String(c.Tenant.Pool), tracing.Queue.String(c.Record.Queue), tracing.Kind.String(c.Record.Kind))
	var links []trace.Link
	link := func(rec *job.Record) {
		if from, ok := tracing.Parse(rec.Traceparent()); ok {
			links = append(links, trace.Link{SpanContext: from, Attributes: []attribute.KeyValue{tracing.MessageID.String(rec.ID.String())}})
		}
	}
	if r.record != nil {
		attrs = append(attrs, tracing.MessageID.String(c.Record.ID.String()), tracing.Job.String(c.Record.ID.String()), attrAttempt.Int(c.Record.Attempt))
		link(r.record)
	} else {
		attrs = append(attrs, tracing.MessageCount.Int(c.size()), attrJobs.Int(c.size()))
		for _, rec := range r.records {
			link(rec)
		}
	}
	ctx, s.span = r.workers.tracer.Start(ctx, "run "+c.Record.Kind, trace.WithNewRoot(), trace.WithSpanKind(trace.SpanKindConsumer),
		trace.WithAttributes(attrs...), trace.WithLinks(links...))
	return ctx
}

// noteOutcome takes in how a job of the run ended.
func (s *runSpan) noteOutcome(id job.ID, o job.Outcome) {
	if s.span == nil {
		return
	}
	switch name := o.State.String(); s.outcome {
	case "", name:
		s.outcome = name
	default:
		s.outcome = mixed
	}
	if o.Err != nil {
		stack := o.Stack
		if stack == s.stack { // of the call that all its jobs were in: a span has room for it once
			stack = ""
		} else {
			s.stack = stack
		}
		tracing.Except(s.span, o.Err, stack, tracing.MessageID.String(id.String()))
	}
	if o.State == job.Retrying || o.State == job.Dead {
		s.err = o.Err
	}
}

// end ends the span.
func (s *runSpan) end() {
	if s.span == nil {
		return
	}
	if s.outcome != "" { // else the jobs were given back unstarted
		s.span.SetAttributes(attrOutcome.String(s.outcome))
	}
	if s.err != nil {
		tracing.Fail(s.span, s.err)
	}
	s.span.End()
}

// traceOf is the trace that the log lines of a run's job belong to: the run's, or, if that has none, the one in
// which it was enqueued.
func (s *runSpan) traceOf(rec *job.Record) trace.SpanContext {
	if s.span != nil {
		if own := s.span.SpanContext(); own.IsValid() {
			return own
		}
	}
	from, _ := tracing.Parse(rec.Traceparent())
	return from
}
