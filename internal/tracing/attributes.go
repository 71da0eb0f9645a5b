package tracing

import (
	"context"
	"strings"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/trace"
)

// What spans say of jobs in words of Tenure's.
const (
	Tenant = attribute.Key("tenure.tenant")
	Pool   = attribute.Key("tenure.pool")
	Queue  = attribute.Key("tenure.queue")
	Kind   = attribute.Key("tenure.kind")
	Job    = attribute.Key("tenure.job")
)

// What they say as OpenTelemetry's conventions for messaging have it. A job's queue is the destination, and its id the
// message's.
const (
	Destination  = attribute.Key("messaging.destination.name")
	MessageID    = attribute.Key("messaging.message.id")
	MessageCount = attribute.Key("messaging.batch.message_count") // of what is about several jobs
)

// Enqueue is what is said of every span in which jobs are enqueued.
func Enqueue() []attribute.KeyValue { return operation("send", "enqueue") }

// Run is what is said of every span in which jobs run.
func Run() []attribute.KeyValue { return operation("process", "run") }

func operation(kind, name string) []attribute.KeyValue {
	return []attribute.KeyValue{attribute.String("messaging.system", "tenure"), attribute.String("messaging.operation.type", kind), attribute.String("messaging.operation.name", name)}
}

// maxDescription is how many bytes of an error a span has.
const maxDescription = 1 << 10

// Fail says that a span has failed, and why.
func Fail(span trace.Span, err error) { span.SetStatus(codes.Error, shorten(err.Error())) }

// Except adds an event to a span for an error, with the stack of the panic that it was, if there is one.
func Except(span trace.Span, err error, stack string, more ...attribute.KeyValue) {
	what := "error"
	if stack != "" {
		what = "panic"
		more = append(more, attribute.String("exception.stacktrace", stack))
	}
	more = append(more, attribute.String("exception.type", what), attribute.String("exception.message", shorten(err.Error())))
	span.AddEvent("exception", trace.WithAttributes(more...))
}

func shorten(text string) string {
	return strings.ToValidUTF8(text[:min(len(text), maxDescription)], "")
}

// Inject passes the current span on as the headers of W3C's trace context; none: there is no span.
func Inject(ctx context.Context, set func(header, value string)) {
	c := trace.SpanContextFromContext(ctx)
	name := Format(c)
	if name == "" {
		return
	}
	set("Traceparent", name)
	if state := c.TraceState().String(); state != "" {
		set("Tracestate", state)
	}
}
