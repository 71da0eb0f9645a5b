package tenure

import (
	"context"

	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure/internal/store"
	"github.com/tenurehq/tenure/internal/tracing"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
)

// scope says in traces whose spans they are.
const scope = "github.com/tenurehq/tenure"

// tracer is what makes this process' spans; nil: nothing is traced.
func (s nodeSettings) tracer() trace.Tracer {
	if s.tracers == nil {
		return nil
	}
	return s.tracers.Tracer(scope, trace.WithInstrumentationVersion(s.version))
}

// producing is the span of a call that enqueues; the zero value is none, as where nothing is traced.
type producing struct{ span trace.Span }

// beginEnqueue begins the span of a call that enqueues what, within the caller's if there is one. The jobs' runs are
// linked to it.
func (c *Client) beginEnqueue(ctx context.Context, what string) (context.Context, producing) {
	if c.tracer == nil {
		return ctx, producing{}
	}
	ctx, span := c.tracer.Start(ctx, "enqueue "+what, trace.WithSpanKind(trace.SpanKindProducer), trace.WithAttributes(tracing.Enqueue()...))
	return ctx, producing{span}
}

// one says which job was enqueued.
func (p producing) one(j *store.NewJob, pool string, id job.ID) {
	if p.span != nil {
		p.span.SetAttributes(tracing.Destination.String(j.Queue), tracing.MessageID.String(id.String()),
			tracing.Tenant.String(j.Tenant), tracing.Pool.String(pool), tracing.Kind.String(j.Kind))
	}
}

// many says how many jobs are enqueued, and, if it is one, to which queue.
func (p producing) many(lists ...[]store.NewJob) {
	if p.span == nil {
		return
	}
	count, queue, others := 0, "", false
	for _, jobs := range lists {
		for i := range jobs {
			others = others || count > 0 && jobs[i].Queue != queue
			queue = jobs[i].Queue
			count++
		}
	}
	p.span.SetAttributes(tracing.MessageCount.Int(count))
	if count > 0 && !others {
		p.span.SetAttributes(tracing.Destination.String(queue))
	}
}

// manyOf is many for what goes to several pools.
func (p producing) manyOf(batches map[*routing.Pool]*batch) {
	if p.span == nil {
		return
	}
	var lists [][]store.NewJob
	for _, b := range batches {
		lists = append(lists, b.jobs)
	}
	p.many(lists...)
}

// end ends the span.
func (p producing) end(err error) {
	if p.span == nil {
		return
	}
	if err != nil {
		tracing.Except(p.span, err, "")
		tracing.Fail(p.span, err)
	}
	p.span.End()
}
