package tracing

import (
	"context"
	"encoding/hex"
	"strings"

	"go.opentelemetry.io/otel/trace"
)

// The parts of a traceparent: version, trace, span and flags, each in hexadecimal digits.
const (
	parts       = 4
	flagDigits  = 2
	version     = "00"
	noVersion   = "ff"
	versionSize = len(version)
)

// Format names a span; "": it is none.
func Format(c trace.SpanContext) string {
	if !c.IsValid() {
		return ""
	}
	return version + "-" + c.TraceID().String() + "-" + c.SpanID().String() + "-" + c.TraceFlags().String()
}

// Parse reads what names a span, of this version or a later one; false: it does not.
func Parse(text string) (c trace.SpanContext, ok bool) {
	part := strings.SplitN(text, "-", parts+1)
	switch {
	case len(part) < parts, len(part[0]) != versionSize, !isHex(part[0]), part[0] == noVersion:
		return c, false
	case part[0] == version && len(part) > parts: // later ones may have more
		return c, false
	case len(part[3]) != flagDigits, !isHex(part[3]):
		return c, false
	}
	traceID, err := trace.TraceIDFromHex(part[1])
	if err != nil {
		return c, false
	}
	spanID, err := trace.SpanIDFromHex(part[2])
	if err != nil {
		return c, false
	}
	flags, _ := hex.DecodeString(part[3]) // isHex has seen it
	return trace.NewSpanContext(trace.SpanContextConfig{
		TraceID: traceID, SpanID: spanID, TraceFlags: trace.TraceFlags(flags[0]) & trace.FlagsSampled, Remote: true,
	}), true
}

// NewContext returns ctx with the span that a text names as the current one, or ctx if it names none.
func NewContext(ctx context.Context, text string) context.Context {
	if c, ok := Parse(text); ok {
		return trace.ContextWithRemoteSpanContext(ctx, c)
	}
	return ctx
}

// isHex tells whether a text is of digits as the header has them, which has no capitals.
func isHex(text string) bool { return strings.Trim(text, "0123456789abcdef") == "" }
