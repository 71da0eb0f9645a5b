package main

import (
	"context"
	"fmt"
	"net/url"
	"os"
	"time"

	"go.opentelemetry.io/otel"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	semconv "go.opentelemetry.io/otel/semconv/v1.43.0"
	"go.uber.org/zap"

	"github.com/tenurehq/tenure"
	"github.com/tenurehq/tenure/config"
)

// flushLimit bounds how long a node that has stopped tries to hand in its last spans.
const flushLimit = 5 * time.Second

// traceRuns has a node's runs traced, if the configuration or OpenTelemetry's own variables say where spans go:
// by OTLP over HTTP. flush hands in what is left, once the node has stopped.
func traceRuns(ctx context.Context, cfg config.Node, log *zap.Logger) (option tenure.NodeOption, flush func(), err error) {
	if !tracesWanted(cfg) {
		return tenure.WithTracerProvider(nil), func() {}, nil
	}
	var options []otlptracehttp.Option // the variables say the rest, such as headers
	if cfg.OTLPEndpoint != "" {
		collector, err := url.JoinPath(cfg.OTLPEndpoint, "v1/traces") // as OTEL_EXPORTER_OTLP_ENDPOINT is read
		if err != nil {
			return nil, nil, fmt.Errorf("node.otlp_endpoint: %w", err)
		}
		options = append(options, otlptracehttp.WithEndpointURL(collector))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, nil, fmt.Errorf("traces: %w: check node.otlp_endpoint and the OTEL_EXPORTER_OTLP variables", err)
	}
	self, err := resource.New(ctx, resource.WithAttributes(semconv.ServiceName("tenure"), semconv.ServiceVersion(buildVersion()), semconv.ServiceInstanceID(cfg.Name)),
		resource.WithTelemetrySDK(), resource.WithFromEnv())
	if err != nil { // what OTEL_RESOURCE_ATTRIBUTES says cannot be read
		log.Warn("traces lack what the environment says of this process", zap.Error(err))
	}
	otel.SetErrorHandler(otel.ErrorHandlerFunc(func(err error) { log.Warn("traces could not be handed in; they are lost", zap.Error(err)) }))
	provider := sdk.NewTracerProvider(sdk.WithBatcher(exporter), sdk.WithResource(self))
	return tenure.WithTracerProvider(provider), func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), flushLimit)
		defer cancel()
		if err := provider.Shutdown(ctx); err != nil {
			log.Warn("the last traces could not be handed in", zap.Error(err))
		}
	}, nil
}

// tracesWanted tells whether somebody has said where traces go.
func tracesWanted(cfg config.Node) bool {
	if os.Getenv("OTEL_SDK_DISABLED") == "true" || os.Getenv("OTEL_TRACES_EXPORTER") == "none" {
		return false
	}
	return cfg.OTLPEndpoint != "" || os.Getenv("OTEL_EXPORTER_OTLP_ENDPOINT") != "" || os.Getenv("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT") != ""
}
