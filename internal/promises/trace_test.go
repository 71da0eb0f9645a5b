package promises_test

import (
	"context"
	"encoding/json"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/stretchr/testify/require"
	"go.opentelemetry.io/otel/codes"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/sdk/trace/tracetest"
	"go.opentelemetry.io/otel/trace"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
	"github.com/tenurehq/tenure/internal/store/storetest"
	"github.com/tenurehq/tenure/job"
	"github.com/tenurehq/tenure/routing"
	"github.com/tenurehq/tenure/tenancy"
)

// sendInvoice is sent in its tenant's transaction, and enqueues a mailInvoice.
type sendInvoice struct{}

func (sendInvoice) Kind() string { return "invoice.send" }

type mailInvoice struct{}

func (mailInvoice) Kind() string { return "invoice.mail" }

// However a job is enqueued in a span, its run is linked to that, and what the run enqueues to the run.
func TestTracesLeadFromEnqueueToRun(t *testing.T) {
	t.Parallel()
	dsn := storetest.DSN(t, "p1", 1)
	db, err := pgxpool.New(t.Context(), dsn)
	require.NoError(t, err)
	t.Cleanup(db.Close)
	_, err = db.Exec(t.Context(), "CREATE SCHEMA acme")
	require.NoError(t, err)
	cfg := config.Default()
	cfg.Node.Name = "traced"
	cfg.Pools = map[string]routing.PoolConfig{"p1": {DSN: dsn}}
	cfg.Tenants.Static = map[tenancy.ID]routing.TenantConfig{"acme": {Pool: "p1"}}

	seen := tracetest.NewSpanRecorder()
	tracers := sdk.NewTracerProvider(sdk.WithSpanProcessor(seen))
	registry := job.NewRegistry()
	var node *tenure.Node
	tenure.HandleTx(registry, func(ctx context.Context, tx pgx.Tx, _ *job.Job[sendInvoice]) error {
		_, err := node.Client().EnqueueTx(ctx, tx, mailInvoice{})
		return err
	})
	job.Handle(registry, func(context.Context, *job.Job[mailInvoice]) error { return nil })
	node, err = tenure.New(cfg, registry, tenure.WithTracerProvider(tracers))
	require.NoError(t, err)
	require.NoError(t, node.Start(t.Context()))
	t.Cleanup(func() { require.NoError(t, node.Stop(context.WithoutCancel(t.Context()))) })

	acme := tenancy.For(t.Context(), "acme")
	for how, enqueue := range map[string]func(ctx context.Context) error{
		"alone": func(ctx context.Context) error {
			_, err := node.Client().Enqueue(ctx, sendInvoice{}, tenure.Meta(map[string]any{"by": "test"}))
			return err
		},
		"in a transaction": func(ctx context.Context) error {
			return node.Client().InTx(ctx, func(ctx context.Context, tx pgx.Tx) error {
				_, err := node.Client().EnqueueTx(ctx, tx, sendInvoice{})
				return err
			})
		},
		"many": func(ctx context.Context) error {
			_, err := node.Client().EnqueueMany(ctx, []tenure.Entry{{Args: sendInvoice{}}})
			return err
		},
	} {
		seen.Reset()
		ctx, web := tracers.Tracer("web").Start(acme, "request")
		require.NoError(t, enqueue(ctx), how)
		web.End()
		// produced is the span in which a job was enqueued within another.
		produced := func(in trace.SpanContext) trace.SpanContext {
			var found sdk.ReadOnlySpan
			require.Eventually(t, func() bool {
				for _, s := range seen.Ended() {
					if s.SpanKind() == trace.SpanKindProducer && s.Parent().SpanID() == in.SpanID() {
						found = s
					}
				}
				return found != nil
			}, patience, time.Millisecond, how)
			said := map[string]any{}
			for _, a := range found.Attributes() {
				said[string(a.Key)] = a.Value.AsInterface()
			}
			require.Equal(t, []any{"tenure", "send", "enqueue", "default"}, []any{said["messaging.system"], said["messaging.operation.type"], said["messaging.operation.name"], said["messaging.destination.name"]})
			if found.Name() == "enqueue many" {
				require.EqualValues(t, 1, said["messaging.batch.message_count"])
			} else {
				require.NotEmpty(t, said["messaging.message.id"])
			}
			return found.SpanContext()
		}
		run := func(name string, from trace.SpanContext) (found sdk.ReadOnlySpan) {
			require.Eventually(t, func() bool {
				for _, s := range seen.Ended() {
					if s.Name() == name && len(s.Links()) == 1 && s.Links()[0].SpanContext.SpanID() == from.SpanID() {
						found = s
					}
				}
				return found != nil
			}, patience, time.Millisecond, "%s: %s", how, name)
			require.Equal(t, from.TraceID(), found.Links()[0].SpanContext.TraceID())
			return found
		}
		enqueued := produced(web.SpanContext())
		run("run invoice.mail", produced(run("run invoice.send", enqueued).SpanContext()))
	}

	// Outside of a span the call's own is kept; where that is not recorded, nothing. A call that fails says why.
	meta := func(ctx context.Context) map[string]any {
		t.Helper()
		added, err := node.Client().Enqueue(ctx, sendInvoice{}, tenure.In(time.Hour))
		require.NoError(t, err)
		j, _, err := node.Operator().Jobs().Get(t.Context(), added.ID)
		require.NoError(t, err)
		var all map[string]any
		if j.Meta != nil {
			require.NoError(t, json.Unmarshal(j.Meta, &all))
		}
		return all
	}
	seen.Reset()
	kept := meta(acme)
	require.Len(t, seen.Ended(), 1)
	require.Contains(t, kept["tenure:traceparent"], seen.Ended()[0].SpanContext().SpanID().String())
	unsampled, span := sdk.NewTracerProvider(sdk.WithSampler(sdk.NeverSample())).Tracer("web").Start(acme, "request")
	defer span.End()
	require.Nil(t, meta(unsampled))

	seen.Reset()
	_, err = node.Client().Enqueue(acme, sendInvoice{}, tenure.Unique(""))
	require.Error(t, err)
	failed := seen.Ended()[0]
	require.Equal(t, []any{codes.Error, err.Error(), "exception"}, []any{failed.Status().Code, failed.Status().Description, failed.Events()[0].Name})
}
